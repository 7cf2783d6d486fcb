/*
 * partition.c
 *		Attached tables as the catalog knows them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/sql.h"

/* Digits of a tag: 64 random bits. */
#define TAG_DIGITS 16

/* Attribute numbers of incsink.partition_state, see sql/incsink--0.4.sql. */
#define STATE_PARTITION_ID 1
#define STATE_SEQUENCE_RELFILENODE 4
#define STATE_HIGHEST_SEQ 5
#define STATE_RECORDED_HORIZON 6
#define STATE_RECORDED_AT 7

/* What ReadPartition() expects, in order; "preparing" is an expression. */
#define PARTITION_QUERY(preparing) \
	"SELECT d.partition_id, d.dataset, d.source, d.schema_name, d.table_name, d.seq_column," \
	" d.adopted, d.had_rows, t.tag, s.relid, s.sequence_oid, s.sequence_relfilenode," \
	" s.highest_seq, s.recorded_horizon, s.recorded_at, s.error, s.hint, " preparing \
	" FROM incsink.partition_def d" \
	" LEFT JOIN incsink.partition_state s ON s.partition_id = d.partition_id" \
	" LEFT JOIN incsink.partition_tag t ON t.partition_id = d.partition_id AND t.last_horizon IS NULL "

/* The catalog of version 0.1 has no index tasks. */
#define RunPartitionQuery(condition, ...) \
	(CatalogIsAtLeast(2) \
	 ? SqlRun(PARTITION_QUERY("EXISTS (SELECT FROM incsink.index_task k WHERE k.partition_id = d.partition_id)") \
			  condition, __VA_ARGS__) \
	 : SqlRun(PARTITION_QUERY("false") condition, __VA_ARGS__))

/* Row "row" of the result of PARTITION_QUERY. */
static Partition *
ReadPartition(uint64 row, MemoryContext context)
{
	Partition  *partition = MemoryContextAllocZero(context, sizeof(Partition));

	partition->partition_id = SqlGetInt8(row, 1);
	partition->dataset = SqlGetText(row, 2, context);
	partition->source = SqlGetText(row, 3, context);
	partition->schema_name = SqlGetText(row, 4, context);
	partition->table_name = SqlGetText(row, 5, context);
	partition->seq_column = SqlGetText(row, 6, context);
	partition->adopted = SqlGetBool(row, 7);
	partition->had_rows = SqlGetBool(row, 8);
	partition->tag = SqlGetText(row, 9, context);
	partition->relid = SqlGetOid(row, 10);
	partition->sequence = SqlGetOid(row, 11);
	partition->sequence_relfilenode = SqlGetOid(row, 12);
	partition->highest_seq = SqlGetInt8(row, 13);
	partition->recorded_horizon = SqlGetInt8(row, 14);
	partition->recorded_at = SqlGetTime(row, 15);
	partition->error = SqlGetText(row, 16, context);
	partition->hint = SqlGetText(row, 17, context);
	partition->preparing = SqlGetBool(row, 18);
	partition->tree = get_rel_relkind(partition->relid) == RELKIND_PARTITIONED_TABLE;
	return partition;
}

/* After the query for the partition itself: a result is gone with the next query. */
static Partition *
AddBacklog(Partition *partition, MemoryContext context)
{
	Backlog    *backlog;

	if (!partition->had_rows || !CatalogIsAtLeast(2) ||
		SqlRun("SELECT key_columns, key_types, last_key, row_estimate FROM incsink.backlog_def"
			   " WHERE partition_id = $1", SqlInt8(partition->partition_id)) == 0)
		return partition;
	backlog = MemoryContextAllocZero(context, sizeof(Backlog));
	backlog->key_columns = SqlGetTextArray(0, 1, context, &backlog->nkeys);
	backlog->key_types = SqlGetTextArray(0, 2, context, &backlog->nkeys);
	backlog->last_key = SqlGetJsonb(0, 3, context);
	backlog->row_estimate = SqlGetInt8(0, 4);
	partition->backlog = backlog;
	return partition;
}

Partition *
LoadPartition(int64 partition_id, MemoryContext context)
{
	if (RunPartitionQuery("WHERE d.partition_id = $1", SqlInt8(partition_id)) == 0)
		return NULL;
	return AddBacklog(ReadPartition(0, context), context);
}

Partition *
LoadPartitionByRelation(Oid relid, MemoryContext context)
{
	if (RunPartitionQuery("WHERE s.relid = $1", SqlOid(relid)) == 0)
		return NULL;
	return AddBacklog(ReadPartition(0, context), context);
}

Partition *
LoadPartitionByName(const char *dataset, const char *source, MemoryContext context)
{
	if (RunPartitionQuery("WHERE d.dataset = $1 AND d.source = $2",
						  SqlText(dataset), SqlText(source)) == 0)
		return NULL;
	return AddBacklog(ReadPartition(0, context), context);
}

List *
LoadPartitions(MemoryContext context)
{
	uint64		count = RunPartitionQuery("WHERE $1 ORDER BY d.partition_id", SqlBool(true));
	MemoryContext old = MemoryContextSwitchTo(context);
	List	   *partitions = NIL;
	ListCell   *cell;

	for (uint64 row = 0; row < count; row++)
		partitions = lappend(partitions, ReadPartition(row, context));
	foreach(cell, partitions)
		(void) AddBacklog(lfirst(cell), context);
	MemoryContextSwitchTo(old);
	return partitions;
}

/*
 * Scans the table itself with a snapshot of its own: in REPEATABLE READ a query
 * would show the state as it was when the transaction began.
 */
bool
RefreshPartitionState(Partition *partition)
{
	Relation	rel = table_open(CatalogRelation("partition_state"), AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, STATE_PARTITION_ID, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(partition->partition_id));
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		TupleDesc	desc = RelationGetDescr(rel);
		bool		isnull;

		partition->sequence_relfilenode =
			DatumGetObjectId(heap_getattr(tuple, STATE_SEQUENCE_RELFILENODE, desc, &isnull));
		partition->highest_seq =
			DatumGetInt64(heap_getattr(tuple, STATE_HIGHEST_SEQ, desc, &isnull));
		partition->recorded_horizon =
			DatumGetInt64(heap_getattr(tuple, STATE_RECORDED_HORIZON, desc, &isnull));
		partition->recorded_at =
			DatumGetTimestampTz(heap_getattr(tuple, STATE_RECORDED_AT, desc, &isnull));
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return HeapTupleIsValid(tuple);
}

/*
 * A row that a TRUNCATE in progress has updated is left for the next turn: the
 * worker waits for no lock.  Nothing goes backwards.
 */
void
RecordHorizon(const Partition *partition, int64 horizon, int64 highest_seq)
{
	SqlRun("WITH free AS ("
		   "SELECT partition_id FROM incsink.partition_state WHERE partition_id = $1"
		   " AND (recorded_horizon < $2 OR highest_seq < $3) FOR UPDATE SKIP LOCKED)"
		   " UPDATE incsink.partition_state s SET recorded_at = clock_timestamp(),"
		   " recorded_horizon = GREATEST(s.recorded_horizon, $2),"
		   " highest_seq = GREATEST(s.highest_seq, $3)"
		   " FROM free WHERE s.partition_id = free.partition_id",
		   SqlInt8(partition->partition_id), SqlInt8(horizon), SqlInt8(highest_seq));
}

void
RecordPartitionError(int64 partition_id, const char *error, const char *hint)
{
	SqlRun("WITH free AS ("
		   "SELECT partition_id FROM incsink.partition_state WHERE partition_id = $1"
		   " AND (error IS DISTINCT FROM $2 OR hint IS DISTINCT FROM $3) FOR UPDATE SKIP LOCKED)"
		   " UPDATE incsink.partition_state s SET error = $2, hint = $3"
		   " FROM free WHERE s.partition_id = free.partition_id",
		   SqlInt8(partition_id), SqlText(error), SqlText(hint));
}

void
RefreshNames(const Partition *partition)
{
	char	   *table = get_rel_name(partition->relid);
	char	   *schema = table ? get_namespace_name(get_rel_namespace(partition->relid)) : NULL;

	if (schema == NULL)
		return;
	if (strcmp(schema, partition->schema_name) != 0 || strcmp(table, partition->table_name) != 0)
		SqlRun("WITH free AS (SELECT partition_id FROM incsink.partition_def"
			   " WHERE partition_id = $1 AND (schema_name <> $2 OR table_name <> $3)"
			   " FOR UPDATE SKIP LOCKED)"
			   " UPDATE incsink.partition_def d SET schema_name = $2, table_name = $3"
			   " FROM free WHERE d.partition_id = free.partition_id",
			   SqlInt8(partition->partition_id), SqlName(schema), SqlName(table));
	if (partition->tree)
		SqlRun("WITH stale AS (SELECT l.ctid, n.nspname, c.relname FROM incsink.leaf_def l"
			   " JOIN pg_catalog.pg_class c ON c.oid = l.relid"
			   " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
			   " WHERE l.partition_id = $1 AND (l.schema_name <> n.nspname OR l.table_name <> c.relname)"
			   " FOR UPDATE OF l SKIP LOCKED)"
			   " UPDATE incsink.leaf_def t SET schema_name = stale.nspname, table_name = stale.relname"
			   " FROM stale WHERE t.ctid = stale.ctid", SqlInt8(partition->partition_id));
}

/*
 * The tag of before is kept with the last horizon recorded under it: its tokens
 * are good up to there.
 */
char *
DrawTag(int64 partition_id)
{
	char	   *tag = RandomHex(TAG_DIGITS);

	SqlRun("UPDATE incsink.partition_tag t SET last_horizon = COALESCE("
		   "(SELECT s.recorded_horizon FROM incsink.partition_state s"
		   " WHERE s.partition_id = t.partition_id), 0)"
		   " WHERE t.partition_id = $1 AND t.last_horizon IS NULL", SqlInt8(partition_id));
	SqlRun("INSERT INTO incsink.partition_tag (partition_id, tag) VALUES ($1, $2)",
		   SqlInt8(partition_id), SqlText(tag));
	return tag;
}

bool
FindTag(int64 partition_id, const char *tag, bool *in_force, int64 *last_horizon)
{
	if (SqlRun("SELECT last_horizon FROM incsink.partition_tag WHERE partition_id = $1 AND tag = $2",
			   SqlInt8(partition_id), SqlText(tag)) == 0)
		return false;
	*in_force = SqlIsNull(0, 1);
	*last_horizon = SqlGetInt8(0, 1);
	return true;
}

static void
InsertBacklog(int64 partition_id, const Backlog *backlog)
{
	SqlRun("INSERT INTO incsink.backlog_def (partition_id, key_columns, key_types, last_key,"
		   " row_estimate) VALUES ($1, $2, $3, $4, $5)",
		   SqlInt8(partition_id), SqlNameArray(backlog->key_columns, backlog->nkeys),
		   SqlTextArray(backlog->key_types, backlog->nkeys), SqlJsonb(backlog->last_key),
		   SqlInt8(backlog->row_estimate));
}

void
InsertPartition(Partition *partition, Jsonb *options)
{
	SqlRun0("SELECT nextval('incsink.object_id_seq')");
	partition->partition_id = SqlGetInt8(0, 1);
	SqlRun("INSERT INTO incsink.partition_def (partition_id, dataset, source, schema_name,"
		   " table_name, seq_column, adopted, had_rows, options)"
		   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		   SqlInt8(partition->partition_id), SqlText(partition->dataset),
		   SqlText(partition->source), SqlName(partition->schema_name),
		   SqlName(partition->table_name), SqlName(partition->seq_column),
		   SqlBool(partition->adopted), SqlBool(partition->had_rows), SqlJsonb(options));
	SqlRun("INSERT INTO incsink.partition_state (partition_id, relid, sequence_oid,"
		   " sequence_relfilenode, highest_seq, recorded_horizon) VALUES ($1, $2, $3, $4, $5, $6)",
		   SqlInt8(partition->partition_id), SqlOid(partition->relid),
		   SqlOid(partition->sequence), SqlOid(partition->sequence_relfilenode),
		   SqlInt8(partition->highest_seq), SqlInt8(partition->recorded_horizon));
	if (partition->backlog)
		InsertBacklog(partition->partition_id, partition->backlog);
	if (partition->preparing)
		SqlRun("INSERT INTO incsink.index_task (partition_id) VALUES ($1)",
			   SqlInt8(partition->partition_id));
	partition->tag = DrawTag(partition->partition_id);
}

void
FinishIndexTask(int64 partition_id)
{
	SqlRun("DELETE FROM incsink.index_task WHERE partition_id = $1", SqlInt8(partition_id));
}

void
DeletePartition(int64 partition_id)
{
	if (CatalogIsAtLeast(2))
	{
		SqlRun("DELETE FROM incsink.backlog_def WHERE partition_id = $1", SqlInt8(partition_id));
		SqlRun("DELETE FROM incsink.leaf_def WHERE partition_id = $1", SqlInt8(partition_id));
		SqlRun("DELETE FROM incsink.loss WHERE partition_id = $1", SqlInt8(partition_id));
		FinishIndexTask(partition_id);
	}
	SqlRun("DELETE FROM incsink.partition_def WHERE partition_id = $1", SqlInt8(partition_id));
	SqlRun("DELETE FROM incsink.partition_state WHERE partition_id = $1", SqlInt8(partition_id));
	SqlRun("DELETE FROM incsink.partition_tag WHERE partition_id = $1", SqlInt8(partition_id));
}

/*
 * The rest of a partition that has just been bound: its leaves, by their names too.  A
 * leaf that is not there any more has nothing to be read; one that is there and not found
 * is reported as unknown by the next turn.  The DELETE has ended before the INSERT begins,
 * for an old OID may be a new one's.
 */
static void
BindStorage(int64 partition_id)
{
	(void) SqlRun("WITH gone AS (DELETE FROM incsink.leaf_def WHERE partition_id = $1 RETURNING *)"
				  " INSERT INTO incsink.leaf_def (partition_id, relid, schema_name, table_name, left_at_seq)"
				  " SELECT g.partition_id, c.oid, g.schema_name, g.table_name, g.left_at_seq"
				  " FROM (SELECT * FROM gone ORDER BY relid) g"
				  " JOIN pg_catalog.pg_namespace n ON n.nspname = g.schema_name"
				  " JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = g.table_name"
				  "  AND c.relkind = 'r'",
				  SqlInt8(partition_id));
}

/*
 * A table without its seq column stays unbound, which CheckPartition() reports.
 * Whatever a watermark has passed was below a horizon.  The column is fed by an
 * identity or, on a tree that came from before 17, by the default of nextval() of a
 * sequence that it owns.
 */
void
BindPartitions(void)
{
	uint64		count;
	int64	   *bound;

	count = SqlRun0("INSERT INTO incsink.partition_state AS o (partition_id, relid, sequence_oid,"
					" sequence_relfilenode, highest_seq, recorded_horizon)"
					" SELECT d.partition_id, c.oid, s.oid, s.relfilenode, 0, COALESCE((SELECT max(w.seq)"
					"  FROM incsink.watermark w WHERE w.partition_id = d.partition_id), 0)"
					" FROM incsink.partition_def d"
					" JOIN pg_catalog.pg_namespace n ON n.nspname = d.schema_name"
					" JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = d.table_name"
					"  AND c.relkind IN ('r', 'p')"
					" JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = d.seq_column"
					"  AND NOT a.attisdropped"
					" JOIN pg_catalog.pg_depend p ON p.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
					"  AND p.refobjid = c.oid AND p.refobjsubid = a.attnum"
					"  AND p.classid = 'pg_catalog.pg_class'::pg_catalog.regclass"
					" JOIN pg_catalog.pg_class s ON s.oid = p.objid AND s.relkind = 'S'"
					" WHERE (p.deptype = 'i' AND (a.attidentity = 'a' OR (a.attidentity = 'd' AND c.relkind = 'p')))"
					"  OR (c.relkind = 'p' AND a.attidentity = '' AND p.deptype = 'a'"
					"   AND EXISTS (SELECT FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_depend q"
					"    ON q.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND q.objid = f.oid"
					"    AND q.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND q.refobjid = s.oid"
					"    WHERE f.adrelid = c.oid AND f.adnum = a.attnum))"
					" ON CONFLICT (partition_id) DO UPDATE SET relid = EXCLUDED.relid,"
					" sequence_oid = EXCLUDED.sequence_oid,"
					" sequence_relfilenode = EXCLUDED.sequence_relfilenode, highest_seq = 0"
					" WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class x WHERE x.oid = o.relid)"
					" RETURNING partition_id");
	if (!CatalogIsAtLeast(2))
		return;
	bound = palloc(sizeof(int64) * (count + 1));
	for (uint64 row = 0; row < count; row++)
		bound[row] = SqlGetInt8(row, 1);
	for (uint64 i = 0; i < count; i++)
		BindStorage(bound[i]);
}

void
RecordSequence(const Partition *partition)
{
	SqlRun("UPDATE incsink.partition_state SET sequence_oid = $2, sequence_relfilenode = $3,"
		   " highest_seq = GREATEST(highest_seq, $4) WHERE partition_id = $1"
		   " AND (sequence_oid <> $2 OR sequence_relfilenode <> $3 OR highest_seq < $4)",
		   SqlInt8(partition->partition_id), SqlOid(partition->sequence),
		   SqlOid(partition->sequence_relfilenode), SqlInt8(partition->highest_seq));
}

int64
HighestPosition(int64 partition_id)
{
	SqlRun("SELECT GREATEST("
		   "(SELECT max(seq) FROM incsink.watermark WHERE partition_id = $1),"
		   " (SELECT max(until_seq) FROM incsink.intent WHERE partition_id = $1), 0)",
		   SqlInt8(partition_id));
	return SqlGetInt8(0, 1);
}
