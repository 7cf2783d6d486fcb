/*
 * joining_leaf.c
 *		What a table brings along that becomes a leaf.
 *
 * A row whose number was passed would never be seen.  What the horizon has passed is
 * not known to the transaction that attaches, only what it holds back itself: numbers
 * that it has drawn, for the sequence is locked by it since before the first.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cache/columns.h"
#include "cache/horizon.h"
#include "cache/tree.h"
#include "common/compat.h"
#include "common/shared.h"

/* Which rows are known. */
typedef struct KnownRows
{
	bool		drawn;			/* own rows are, with numbers in (after, until] */
	int64		after;
	int64		until;
	int64		before;			/* numbers from 1 to this one are: 0 = none */
	bool		backlog;		/* rows with number 0 are */
} KnownRows;

/* The horizon that was published last: own numbers are above it. */
static int64
PassedHorizon(const Partition *partition)
{
	int64		published;

	if (!PublishedHorizon(partition->partition_id, partition->sequence, &published))
		return partition->recorded_horizon;
	return Max(published, partition->recorded_horizon);
}

static KnownRows
FindKnownRows(const Partition *partition, Oid relid, const Leaf *left)
{
	KnownRows	known = {0};
	SequenceReading reading;

	if (OwnTransactionHasDrawn(partition->sequence) && ReadSequence(partition->sequence, &reading))
	{
		known.drawn = true;
		known.after = PassedHorizon(partition);
		known.until = reading.last_drawn;
	}
	if (left)
	{
		known.before = left->left_at_seq;
		known.backlog = partition->backlog != NULL;
	}
	return known;
}

/*
 * A row that was updated may have been inserted, and numbered, by another transaction,
 * which does not hold the horizon back any more.
 */
static bool
IsOwnInsert(TupleTableSlot *slot)
{
	bool		should_free;
	HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, &should_free);
	HeapTupleHeader header = tuple->t_data;
	bool		own = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(header)) &&
		(header->t_infomask & HEAP_UPDATED) == 0;

	if (should_free)
		heap_freetuple(tuple);
	return own;
}

static bool
RowIsKnown(const KnownRows *known, int64 number, TupleTableSlot *slot)
{
	if (number == 0)
		return known->backlog;
	if (number > 0 && number <= known->before)
		return true;
	return known->drawn && number > known->after && number <= known->until && IsOwnInsert(slot);
}

/* ATTACH keeps everybody else away from the table and reads all of it, too. */
bool
JoiningRowsAreKnown(const Partition *partition, Relation rel, const Leaf *left)
{
	AttrNumber	attnum = SeqAttribute(rel, partition);
	KnownRows	known = FindKnownRows(partition, RelationGetRelid(rel), left);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = TableBeginScanCompat(rel, snapshot);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		all_known = true;

	while (all_known && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		int64		number = DatumGetInt64(slot_getattr(slot, attnum, &isnull));

		CHECK_FOR_INTERRUPTS();
		all_known = !isnull && RowIsKnown(&known, number, slot);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return all_known;
}
