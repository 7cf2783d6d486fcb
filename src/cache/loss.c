/*
 * loss.c
 *		Leaves that are dropped before their rows are exported.
 *
 * DROP removes what depends on a table before the table (catalog/dependency.c,
 * findDependentObjects), so rows are counted when the first index of a leaf goes: then
 * all of them are still there.  What was counted becomes a loss when the command has
 * dropped the leaf itself.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cache/backlog.h"
#include "cache/columns.h"
#include "cache/horizon.h"
#include "cache/seq_index.h"
#include "cache/tree.h"
#include "common/compat.h"
#include "common/hash.h"
#include "common/sql.h"
#include "common/subtransaction.h"
#include "common/token.h"

/* Whoever waits for the drop has waited long enough. */
#define MOST_COUNTED 1000000

/* Instead of a count. */
#define UNKNOWN_ROWS (-1)

/*
 * What a command in progress may drop; a leaf may have left one tree and be in another.
 * It is compared as bytes: there must be none between the fields.
 */
typedef struct DropKey
{
	int64		relid;
	int64		partition_id;
} DropKey;

typedef struct DropCount
{
	DropKey		key;			/* hash key */
	int64		rows;
} DropCount;

static HTAB *counts = NULL;

static void
NoteCount(const DropKey *key, int64 rows)
{
	DropCount  *count;

	if (counts == NULL)
		counts = MakeHash("incsink drop counts", sizeof(DropKey), sizeof(DropCount));
	count = hash_search(counts, key, HASH_ENTER, NULL);
	count->rows = rows;
}

static DropCount *
FindCount(const DropKey *key)
{
	return counts ? hash_search(counts, key, HASH_FIND, NULL) : NULL;
}

/* Commands can be nested: an event trigger of the user's may drop, too. */
DropCounts
BeginDropCounts(void)
{
	DropCounts	outer = counts;

	counts = NULL;
	return outer;
}

/* Also where the command failed, or event triggers did not fire: REINDEX CONCURRENTLY. */
void
EndDropCounts(DropCounts outer)
{
	if (counts)
		hash_destroy(counts);
	counts = outer;
}

/*
 * Where the delivery stands that is furthest behind; false if no sink exports the
 * partition.  Needs an open SqlSession.
 */
static bool
LowestPosition(int64 partition_id, Position *position)
{
	if (SqlRun("SELECT w.seq, w.n, w.key FROM incsink.watermark w"
			   " JOIN incsink.sink_table_def t ON t.sink_id = w.sink_id AND t.partition_id = w.partition_id"
			   " WHERE w.partition_id = $1 ORDER BY w.seq, COALESCE(w.key = $2, false), w.n LIMIT 1",
			   SqlInt8(partition_id), SqlJsonb(BacklogOverKey())) == 0)
		return false;
	position->seq = SqlGetInt8(0, 1);
	position->n = SqlGetInt8(0, 2);
	position->key = SqlGetJsonb(0, 3, CurrentMemoryContext);
	return true;
}

/* Rows of the scan, whose index keeps them above a number, up to "until". */
static int64
CountByIndex(Relation rel, AttrNumber attnum, const SeqIndex *index, int64 above, int64 until,
			 Snapshot snapshot)
{
	Relation	index_rel = index_open(index->index, AccessShareLock);
	IndexScanDesc scan = IndexBeginScanCompat(rel, index_rel, snapshot, 2);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ScanKeyData keys[2];
	int64		rows = 0;

	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(above));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(until));
	index_rescan(scan, keys, 2, NULL, 0);
	while (rows < MOST_COUNTED && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		rows++;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index_rel, AccessShareLock);
	return rows;
}

/* The same without an index: rows with numbers in (above, until]. */
static int64
CountByScan(Relation rel, AttrNumber attnum, int64 above, int64 until, Snapshot snapshot)
{
	TableScanDesc scan = TableBeginScanCompat(rel, snapshot);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	int64		rows = 0;

	while (rows < MOST_COUNTED && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		int64		number = DatumGetInt64(slot_getattr(slot, attnum, &isnull));

		CHECK_FOR_INTERRUPTS();
		rows += number > above && number <= until;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return rows;
}

static int64
CountNumbered(Relation rel, AttrNumber attnum, int64 above, int64 until, Snapshot snapshot)
{
	SeqIndex	index;

	if (above >= until)
		return 0;
	if (FindSeqIndex(RelationGetRelid(rel), attnum, true, &index))
		return CountByIndex(rel, attnum, &index, above, until, snapshot);
	return CountByScan(rel, attnum, above, until, snapshot);
}

/*
 * Rows of the backlog behind "since", NULL being its beginning.  Others, which
 * have numbers, may stand between: UNKNOWN_ROWS if they are too many to look at.
 */
static int64
CountBehindKey(Relation rel, AttrNumber attnum, const Backlog *backlog, Jsonb *since,
			   Snapshot snapshot)
{
	KeyIndex	key;
	Relation	index;
	BacklogScan *scan;
	TupleTableSlot *slot;
	int64		rows = 0;
	int64		seen = 0;
	bool		has_number;

	if (!KeyColumnsAreSame(rel, backlog) ||
		!FindKeyIndex(rel, backlog->key_columns, backlog->nkeys, &key))
		return CountByScan(rel, attnum, -1, 0, snapshot);
	index = index_open(key.index, AccessShareLock);
	slot = table_slot_create(rel, NULL);
	scan = BacklogScanBegin(rel, index, &key, backlog, attnum, snapshot, since, NULL);
	while (seen++ < MOST_COUNTED && BacklogScanNext(scan, slot, &has_number))
		rows += !has_number;
	BacklogScanEnd(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	return seen > MOST_COUNTED && rows < MOST_COUNTED ? UNKNOWN_ROWS : rows;
}

static int64
CountBacklog(const Partition *partition, Relation rel, AttrNumber attnum, Position lowest,
			 Snapshot snapshot)
{
	if (partition->backlog == NULL || BacklogIsOver(lowest))
		return 0;
	return CountBehindKey(rel, attnum, partition->backlog, lowest.key, snapshot);
}

/*
 * Where nothing can be counted, or was, because the library was not loaded yet: is it
 * certain that every sink has passed the leaf?
 */
static bool
WasExported(const Partition *partition, bool left, int64 left_at_seq)
{
	SequenceReading reading;
	Position	lowest;

	if (!LowestPosition(partition->partition_id, &lowest))
		return true;
	if (partition->backlog != NULL && !BacklogIsOver(lowest))
		return false;
	if (left)
		return lowest.seq >= left_at_seq;
	return ReadSequence(partition->sequence, &reading) && lowest.seq >= reading.last_drawn;
}

/*
 * Rows of a leaf, one that left at "until" or one in the tree, that some sink has not
 * exported.  Needs an open SqlSession.  Raises what reading raises.
 */
static int64
CountUnexported(const Partition *partition, Relation rel, bool left, int64 until)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), partition->seq_column);
	Snapshot	snapshot;
	Position	lowest;
	int64		rows;
	int64		backlog;

	if (attnum <= 0)
		return WasExported(partition, left, until) ? 0 : UNKNOWN_ROWS;
	if (!LowestPosition(partition->partition_id, &lowest))
		return 0;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	rows = CountNumbered(rel, attnum, Max(lowest.seq, 0), until, snapshot);
	backlog = CountBacklog(partition, rel, attnum, lowest, snapshot);
	UnregisterSnapshot(snapshot);
	return backlog == UNKNOWN_ROWS ? UNKNOWN_ROWS : Min(rows + backlog, MOST_COUNTED);
}

typedef struct CountCall
{
	const Partition *partition;
	Relation	rel;
	bool		left;
	int64		until;
	int64		rows;			/* what was found */
} CountCall;

static void
CountInSubtransaction(void *arg)
{
	CountCall  *call = arg;

	call->rows = CountUnexported(call->partition, call->rel, call->left, call->until);
}

/* Nobody is kept from dropping a leaf because its rows cannot be read. */
static int64
CountIfPossible(const Partition *partition, Relation rel, bool left, int64 until)
{
	CountCall	call = {partition, rel, left, until, 0};
	ErrorData  *error = InSubtransaction(CountInSubtransaction, &call);

	if (error == NULL)
		return call.rows;
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	FreeErrorData(error);
	return UNKNOWN_ROWS;
}

/* For every partition that has the leaf on record, unless it was counted before. */
static void
CountLeaf(Relation rel)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	uint64		count;
	int64	   *ids;
	int64	   *untils;
	bool	   *left;

	SqlBegin(&session);
	count = SqlRun("SELECT partition_id, COALESCE(left_at_seq, 9223372036854775807), left_at_seq IS NOT NULL"
				   " FROM incsink.leaf_def l JOIN incsink.partition_state s USING (partition_id)"
				   " WHERE l.relid = $1", SqlOid(RelationGetRelid(rel)));
	ids = palloc(sizeof(int64) * (count + 1));
	untils = palloc(sizeof(int64) * (count + 1));
	left = palloc(sizeof(bool) * (count + 1));
	for (uint64 row = 0; row < count; row++)
	{
		ids[row] = SqlGetInt8(row, 1);
		untils[row] = SqlGetInt8(row, 2);
		left[row] = SqlGetBool(row, 3);
	}
	for (uint64 i = 0; i < count; i++)
	{
		DropKey		key = {RelationGetRelid(rel), ids[i]};
		Partition  *partition = FindCount(&key) ? NULL : LoadPartition(ids[i], context);

		if (partition)
			NoteCount(&key, left[i] && IsInAnotherTree(partition, RelationGetRelid(rel)) ? 0 :
					  CountIfPossible(partition, rel, left[i], untils[i]));
	}
	SqlEnd(&session);
}

/* The table that goes with the relation, or InvalidOid: an index, or a table itself. */
static Oid
TableOf(Oid relid)
{
	switch (get_rel_relkind(relid))
	{
		case RELKIND_INDEX:
			return IndexGetRelation(relid, true);
		case RELKIND_RELATION:
			return relid;
		default:
			return InvalidOid;
	}
}

/* Is all there that is asked?  DROP OWNED may take it before the leaf. */
static bool
CatalogIsWhole(void)
{
	static const char *const names[] = {"partition_def", "partition_state", "partition_tag",
		"index_task", "backlog_def", "sink_table_def", "watermark"};
	Oid			schema = get_namespace_oid("incsink", true);

	if (!OidIsValid(schema))
		return false;
	for (int i = 0; i < lengthof(names); i++)
		if (!OidIsValid(get_relname_relid(names[i], schema)))
			return false;
	return true;
}

void
CountBeforeDrop(Oid relid)
{
	Oid			table = TableOf(relid);
	Relation	rel;

	if (!OidIsValid(table) || get_rel_persistence(table) == RELPERSISTENCE_TEMP ||
		!CatalogIsAtLeast(2) || !IsRecordedLeaf(table) || !CatalogIsWhole())
		return;
	rel = try_table_open(table, AccessShareLock);
	if (rel == NULL)
		return;
	CountLeaf(rel);
	table_close(rel, NoLock);
}

/* A leaf that went with its tree is no loss of its own: the partition says what is wrong. */
static void
RecordLoss(int64 partition_id, Oid relid, const char *schema, const char *table,
		   bool left, int64 left_at_seq)
{
	DropKey		key = {relid, partition_id};
	DropCount  *count = FindCount(&key);
	Partition  *partition = LoadPartition(partition_id, CurrentMemoryContext);

	if (partition == NULL || get_rel_relkind(partition->relid) == '\0')
		return;
	if (count ? count->rows == 0 : WasExported(partition, left, left_at_seq))
		return;
	SqlRun("INSERT INTO incsink.loss (partition_id, schema_name, table_name, row_count)"
		   " VALUES ($1, $2, $3, NULLIF($4, -1))",
		   SqlInt8(partition_id), SqlName(schema), SqlName(table),
		   SqlInt8(count ? count->rows : UNKNOWN_ROWS));
}

void
NoteDroppedLeaf(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;

	SqlBegin(&session);
	while (SqlRun("DELETE FROM incsink.leaf_def WHERE ctid = ("
				  " SELECT l.ctid FROM incsink.leaf_def l JOIN incsink.partition_state s USING (partition_id)"
				  " WHERE l.relid = $1 LIMIT 1)"
				  " RETURNING partition_id, schema_name, table_name, left_at_seq",
				  SqlOid(relid)) > 0)
		RecordLoss(SqlGetInt8(0, 1), relid, SqlGetText(0, 2, context), SqlGetText(0, 3, context),
				   !SqlIsNull(0, 4), SqlGetInt8(0, 4));
	SqlEnd(&session);
}

void
RefuseOwedLeaf(const Partition *partition, Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	uint64		count;
	int64	   *ids;
	int64	   *untils;

	count = SqlRun("SELECT partition_id, left_at_seq FROM incsink.leaf_def l"
				   " JOIN incsink.partition_state s USING (partition_id)"
				   " WHERE l.relid = $1 AND partition_id <> $2 AND left_at_seq IS NOT NULL",
				   SqlOid(relid), SqlInt8(partition->partition_id));
	ids = palloc(sizeof(int64) * (count + 1));
	untils = palloc(sizeof(int64) * (count + 1));
	for (uint64 row = 0; row < count; row++)
	{
		ids[row] = SqlGetInt8(row, 1);
		untils[row] = SqlGetInt8(row, 2);
	}
	for (uint64 i = 0; i < count; i++)
	{
		Partition  *other = LoadPartition(ids[i], CurrentMemoryContext);

		if (other && get_rel_relkind(other->relid) != '\0' && CountIfPossible(other, rel, true, untils[i]) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot attach \"%s\" with its rows to \"%s.%s\", which incsink exports",
							RelationDisplayName(rel), partition->schema_name, partition->table_name),
					 errdetail("It was detached from \"%s.%s\", whose sinks have not exported all of them yet.",
							   other->schema_name, other->table_name),
					 errhint("Attach it when they have, or delete the rows first.")));
	}
	table_close(rel, NoLock);
}
