/*
 * number_scan.c
 *		Rows with numbers, in the order of the numbers.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "cache/attach.h"
#include "cache/columns.h"
#include "cache/reader.h"
#include "cache/seq_index.h"
#include "cache/number_scan.h"
#include "cache/storage.h"
#include "common/compat.h"

/* One relation of them. */
typedef struct NumberedStorage
{
	OpenStorage storage;
	Oid			relid;
	int64		until;
	bool		left;			/* a leaf that is not in the tree any more */
	IndexScanDesc scan;			/* NULL at its end */
	ScanDirection direction;
	int			current;		/* which of the slots the scan is in */
	int64		seq;			/* number of the row there */
} NumberedStorage;

struct NumberScan
{
	Snapshot	snapshot;
	NumberedStorage *parts;
	int			nparts;
	binaryheap *heap;			/* parts with a row in hand; NULL for an
								 * ordinary table */
	NumberedStorage *returned;	/* its row was handed out and its next one not
								 * fetched yet */
	int64		last;			/* number of the row handed out last */
};

/*
 * Rows of the backlog have number 0 and are never in the range.  The index may be
 * newer than a tuple's HOT chain that other snapshots still need (pg_index.
 * indcheckxmin); the snapshot given here is newer than the index.
 */
static void
BeginPart(NumberedStorage *part, Snapshot snapshot, int64 since)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(Max(since, 0)));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(part->until));
	part->scan = IndexBeginScanCompat(part->storage.rel, part->storage.index, snapshot, 2);
	index_rescan(part->scan, keys, 2, NULL, 0);
}

static void
EndPart(NumberedStorage *part)
{
	if (part->scan)
		index_endscan(part->scan);
	part->scan = NULL;
}

/* Fetches the next row into the slot in turn. */
static inline bool
FetchNext(NumberedStorage *part)
{
	TupleTableSlot *slot = part->storage.rows[part->current];
	bool		isnull;

	if (!index_getnext_slot(part->scan, part->direction, slot))
		return false;
	part->seq = DatumGetInt64(slot_getattr(slot, part->storage.seq_attnum, &isnull));
	return true;
}

/*
 * The tree's index gives none to a leaf that has left, and the turns do not look for
 * it, so only those are stopped who still have to read the leaf.
 */
static void
RaiseLeftUnindexed(Relation leaf, const Partition *partition)
{
	const char *column = quote_identifier(partition->seq_column);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" has no valid index on \"%s\"",
					RelationDisplayName(leaf), partition->seq_column),
			 errdetail("It has left table \"%s.%s\" with rows that are still to be read.",
					   partition->schema_name, partition->table_name),
			 errhint("Run: CREATE INDEX CONCURRENTLY ON %s (%s)%s;",
					 QuotedRelationName(RelationGetRelid(leaf)), column,
					 partition->adopted ? "" : psprintf(" WHERE %s > 0", column))));
}

/* Opens the relation and its index on the numbers. */
static ReaderStatus
OpenPart(NumberedStorage *part, const Partition *partition, Relation root, bool wait)
{
	SeqIndex	found;
	ReaderStatus status = OpenStorageRelation(&part->storage, part->relid, root, partition, wait);

	if (status != READER_OK)
		return status;
	if (!FindSeqIndex(part->relid, part->storage.seq_attnum, partition->tree, &found))
	{
		if (part->left)
			RaiseLeftUnindexed(part->storage.rel, partition);
		return READER_GONE;
	}
	status = OpenStorageIndex(&part->storage, found.index, wait);
	part->direction = found.descending ? BackwardScanDirection : ForwardScanDirection;
	return status;
}

static void
CloseParts(NumberScan *scan)
{
	for (int i = 0; i < scan->nparts; i++)
	{
		EndPart(&scan->parts[i]);
		CloseStorage(&scan->parts[i].storage);
	}
	scan->nparts = 0;
	if (scan->snapshot)
		UnregisterSnapshot(scan->snapshot);
	scan->snapshot = NULL;
}

static ReaderStatus
OpenTable(NumberScan *scan, const Partition *partition, Relation root, bool wait, int64 until)
{
	ReaderStatus status;

	scan->parts = palloc0(sizeof(NumberedStorage));
	scan->nparts = 1;
	scan->parts[0].relid = RelationGetRelid(root);
	scan->parts[0].until = until;
	status = OpenPart(&scan->parts[0], partition, root, wait);
	if (status == READER_OK)
		scan->snapshot = TakeReadSnapshot();
	return status;
}

/* A leaf that was dropped after it was listed has no rows left. */
static ReaderStatus
OpenLeaves(NumberScan *scan, List *storage, const Partition *partition, Relation root, bool wait,
		   int64 until)
{
	ListCell   *cell;

	scan->parts = palloc0(sizeof(NumberedStorage) * (list_length(storage) + 1));
	foreach(cell, storage)
	{
		StoragePart *listed = lfirst(cell);
		NumberedStorage *part = &scan->parts[scan->nparts];
		ReaderStatus status;

		CHECK_FOR_INTERRUPTS();
		part->relid = listed->relid;
		part->until = Min(until, listed->until);
		part->left = listed->until != PG_INT64_MAX;
		scan->nparts++;
		status = OpenPart(part, partition, root, wait);
		if (status == READER_GONE && part->storage.rel == NULL)
			scan->nparts--;
		else if (status != READER_OK)
			return status;
	}
	return READER_OK;
}

static bool
SameStorage(List *one, List *other)
{
	ListCell   *a;
	ListCell   *b;

	if (list_length(one) != list_length(other))
		return false;
	forboth(a, one, b, other)
	{
		StoragePart *first = lfirst(a);
		StoragePart *second = lfirst(b);

		if (first->relid != second->relid || first->until != second->until)
			return false;
	}
	return true;
}

/*
 * The snapshot must be newer than the locks: a leaf that was rewritten between the two
 * would look empty.  And the list must be newer than the snapshot: a row that an UPDATE
 * moved into a leaf which joined between the two would be missed.  So the list is made
 * again after the snapshot, until nothing has changed.
 */
static ReaderStatus
OpenTree(NumberScan *scan, const Partition *partition, Relation root, bool wait, int64 since,
		 int64 until)
{
	List	   *storage = ListStorage(partition, since);

	for (;;)
	{
		ReaderStatus status = OpenLeaves(scan, storage, partition, root, wait, until);
		List	   *now;

		if (status != READER_OK)
			return status;
		scan->snapshot = TakeReadSnapshot();
		now = ListStorage(partition, since);
		if (SameStorage(storage, now))
			return READER_OK;
		CloseParts(scan);
		storage = now;
	}
}

/*
 * The lowest number comes first.  Of equal ones that of the older leaf: the order must
 * be the same each time.
 */
static int
ComparePartsForHeap(Datum a, Datum b, void *arg)
{
	NumberedStorage *first = (NumberedStorage *) DatumGetPointer(a);
	NumberedStorage *second = (NumberedStorage *) DatumGetPointer(b);

	if (first->seq != second->seq)
		return first->seq < second->seq ? 1 : -1;
	return first->relid < second->relid ? 1 : -1;
}

/* A leaf without a row in the range is closed at once: its slots would pin buffers. */
static void
StartMerge(NumberScan *scan, int64 since)
{
	scan->heap = binaryheap_allocate(scan->nparts + 1, ComparePartsForHeap, NULL);
	for (int i = 0; i < scan->nparts; i++)
	{
		NumberedStorage *part = &scan->parts[i];

		BeginPart(part, scan->snapshot, since);
		if (FetchNext(part))
			binaryheap_add_unordered(scan->heap, PointerGetDatum(part));
		else
		{
			EndPart(part);
			CloseStorage(&part->storage);
		}
	}
	binaryheap_build(scan->heap);
}

ReaderStatus
NumberScanOpen(const Partition *partition, Relation root, bool wait, int64 since, int64 until,
			   NumberScan **result)
{
	NumberScan    *scan = palloc0(sizeof(NumberScan));
	ReaderStatus status = READER_OK;

	if (!partition->tree)
		status = OpenTable(scan, partition, root, wait, until);
	else if (since < until)
		status = OpenTree(scan, partition, root, wait, since, until);
	if (status != READER_OK)
	{
		CloseParts(scan);
		return status;
	}
	if (partition->tree)
		StartMerge(scan, since);
	else
		BeginPart(&scan->parts[0], scan->snapshot, since);
	*result = scan;
	return READER_OK;
}

/*
 * Fetches the row after the one handed out, into the other slot: what was handed out
 * stays good.
 */
static void
FetchAfterReturned(NumberScan *scan)
{
	NumberedStorage *part = scan->returned;

	scan->returned = NULL;
	part->current = 1 - part->current;
	if (FetchNext(part))
		binaryheap_replace_first(scan->heap, PointerGetDatum(part));
	else
	{
		EndPart(part);
		(void) binaryheap_remove_first(scan->heap);
	}
}

static TupleTableSlot *
MergeNext(NumberScan *scan, int64 *seq)
{
	NumberedStorage *part;

	if (scan->returned)
		FetchAfterReturned(scan);
	if (binaryheap_empty(scan->heap))
		return NULL;
	part = (NumberedStorage *) DatumGetPointer(binaryheap_first(scan->heap));
	scan->returned = part;
	scan->last = part->seq;
	*seq = part->seq;
	return StorageRow(&part->storage, part->storage.rows[part->current]);
}

TupleTableSlot *
NumberScanNext(NumberScan *scan, int64 *seq)
{
	NumberedStorage *part = scan->parts;

	if (scan->heap)
		return MergeNext(scan, seq);
	if (part->scan == NULL)
		return NULL;
	if (!FetchNext(part))
	{
		EndPart(part);			/* asked again it would begin anew */
		return NULL;
	}
	*seq = part->seq;
	return part->storage.rows[0];
}

bool
NumberScanIsTied(NumberScan *scan)
{
	if (scan->heap == NULL)
		return false;
	if (scan->returned)
		FetchAfterReturned(scan);
	if (binaryheap_empty(scan->heap))
		return false;
	return ((NumberedStorage *) DatumGetPointer(binaryheap_first(scan->heap)))->seq == scan->last;
}

void
NumberScanClose(NumberScan *scan)
{
	CloseParts(scan);
	if (scan->heap)
		binaryheap_free(scan->heap);
	pfree(scan);
}
