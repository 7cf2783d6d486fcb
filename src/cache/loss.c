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
#include "common/token.h"

/* Whoever waits for the drop has waited long enough. */
#define MOST_COUNTED 1000000

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

void
ForgetDropCounts(void)
{
	if (counts)
		hash_destroy(counts);
	counts = NULL;
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
			   " WHERE w.partition_id = $1 ORDER BY w.seq, w.n LIMIT 1", SqlInt8(partition_id)) == 0)
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

/* Rows of a part of the backlog behind "since", NULL being its beginning. */
static int64
CountBehindKey(Relation rel, AttrNumber attnum, const BacklogPart *part, Jsonb *since,
			   Snapshot snapshot)
{
	KeyIndex	key;
	Relation	index;
	BacklogScan *scan;
	TupleTableSlot *slot;
	int64		rows = 0;

	if (!FindKeyIndex(rel, part->key_columns, part->nkeys, &key))
		return CountByScan(rel, attnum, -1, 0, snapshot);
	index = index_open(key.index, AccessShareLock);
	slot = table_slot_create(rel, NULL);
	scan = BacklogScanBegin(rel, index, &key, part, attnum, snapshot, since, NULL);
	while (rows < MOST_COUNTED && BacklogScanNext(scan, slot))
	{
		CHECK_FOR_INTERRUPTS();
		rows++;
	}
	BacklogScanEnd(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	return rows;
}

static int64
CountBacklog(const Partition *partition, Relation rel, AttrNumber attnum, Position lowest,
			 Snapshot snapshot)
{
	int			reached = BacklogKeyPart(lowest.key);

	if (partition->nparts == 0 || BacklogIsOver(lowest))
		return 0;
	for (int i = 0; i < partition->nparts; i++)
	{
		const BacklogPart *part = &partition->parts[i];

		if (part->relid == RelationGetRelid(rel) && part->part >= reached)
			return CountBehindKey(rel, attnum, part, part->part == reached ? lowest.key : NULL,
								  snapshot);
	}
	return 0;
}

/* Rows of a leaf that some sink has not exported.  Needs an open SqlSession. */
static int64
CountUnexported(const Partition *partition, Relation rel, int64 until)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), partition->seq_column);
	Snapshot	snapshot;
	Position	lowest;
	int64		rows;

	if (attnum <= 0 || !LowestPosition(partition->partition_id, &lowest))
		return 0;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	rows = CountNumbered(rel, attnum, Max(lowest.seq, 0), until, snapshot) +
		CountBacklog(partition, rel, attnum, lowest, snapshot);
	UnregisterSnapshot(snapshot);
	return Min(rows, MOST_COUNTED);
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

	SqlBegin(&session);
	count = SqlRun("SELECT partition_id, COALESCE(left_at_seq, 9223372036854775807)"
				   " FROM incsink.leaf_def WHERE relid = $1", SqlOid(RelationGetRelid(rel)));
	ids = palloc(sizeof(int64) * (count + 1));
	untils = palloc(sizeof(int64) * (count + 1));
	for (uint64 row = 0; row < count; row++)
	{
		ids[row] = SqlGetInt8(row, 1);
		untils[row] = SqlGetInt8(row, 2);
	}
	for (uint64 i = 0; i < count; i++)
	{
		DropKey		key = {RelationGetRelid(rel), ids[i]};
		Partition  *partition = FindCount(&key) ? NULL : LoadPartition(ids[i], context);

		if (partition)
			NoteCount(&key, CountUnexported(partition, rel, untils[i]));
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
		!CatalogIsCurrent() || !IsRecordedLeaf(table) || !CatalogIsWhole())
		return;
	rel = try_table_open(table, AccessShareLock);
	if (rel == NULL)
		return;
	CountLeaf(rel);
	table_close(rel, NoLock);
}

/*
 * Where nothing was counted, because the library was not loaded yet: is it certain
 * that every sink has passed the leaf?
 */
static bool
WasExported(const Partition *partition, bool left, int64 left_at_seq)
{
	SequenceReading reading;
	Position	lowest;

	if (!LowestPosition(partition->partition_id, &lowest))
		return true;
	if (partition->nparts > 0 && !BacklogIsOver(lowest))
		return false;
	if (left)
		return lowest.seq >= left_at_seq;
	return ReadSequence(partition->sequence, &reading) && lowest.seq >= reading.last_drawn;
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
		   SqlInt8(partition_id), SqlName(schema), SqlName(table), SqlInt8(count ? count->rows : -1));
}

void
NoteDroppedLeaf(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;

	SqlBegin(&session);
	while (SqlRun("DELETE FROM incsink.leaf_def WHERE ctid = ("
				  " SELECT ctid FROM incsink.leaf_def WHERE relid = $1 LIMIT 1)"
				  " RETURNING partition_id, schema_name, table_name, left_at_seq",
				  SqlOid(relid)) > 0)
		RecordLoss(SqlGetInt8(0, 1), relid, SqlGetText(0, 2, context), SqlGetText(0, 3, context),
				   !SqlIsNull(0, 4), SqlGetInt8(0, 4));
	SqlEnd(&session);
}
