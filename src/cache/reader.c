/*
 * reader.c
 *		A scan of the seq index with a snapshot of the caller's.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/rls.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "cache/columns.h"
#include "cache/reader.h"
#include "cache/row_filter.h"
#include "cache/seq_index.h"
#include "common/compat.h"

struct Reader
{
	Relation	relation;
	Relation	index;
	AttrNumber	seq_attnum;
	ScanDirection direction;
	AttrNumber *attnums;
	int			nattnums;
	EState	   *estate;			/* owns the filter; NULL without one */
	ExprState  *filter;
	TupleTableSlot *slot;
	IndexScanDesc scan;			/* NULL before ReaderStart() */
	int64		scanned;
	TimestampTz stop_at;		/* 0 = never */
	bool		stopped;
};

/*
 * Locks a relation in AccessShareLock, as the caller may wait or not, and opens it.
 * READER_GONE leaves no lock behind.
 */
static ReaderStatus
LockAndOpen(Oid relid, bool wait, Relation *rel)
{
	if (wait)
		LockRelationOid(relid, AccessShareLock);
	else if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return READER_BUSY;
	*rel = try_relation_open(relid, NoLock);
	if (*rel == NULL)
	{
		UnlockRelationOid(relid, AccessShareLock);
		return READER_GONE;
	}
	return READER_OK;
}

/* Finds and opens the index on the seq column of the open relation. */
static ReaderStatus
OpenSeqIndex(Reader *reader, bool wait)
{
	SeqIndex	found;
	ReaderStatus status;

	if (!FindSeqIndex(RelationGetRelid(reader->relation), reader->seq_attnum, &found))
		return READER_GONE;
	status = LockAndOpen(found.index, wait, &reader->index);
	if (status == READER_OK)
		reader->direction = found.descending ? BackwardScanDirection : ForwardScanDirection;
	return status;
}

/*
 * Row level security would leave rows out silently.  Asked with the answer of an
 * error, it is the same whatever row_security says in this session.
 */
static void
RefuseRowSecurity(Relation rel, Oid role)
{
	if (check_enable_rls(RelationGetRelid(rel), role, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("row-level security of table \"%s\" applies to role \"%s\"",
						RelationDisplayName(rel), GetUserNameFromId(role, false)),
				 errdetail("A policy would leave out rows without a word."),
				 errhint("Let a role read that owns the table without FORCE ROW LEVEL SECURITY, or that has BYPASSRLS.")));
}

/* Compiles the filter; rows are shown to it in the reader's slot. */
static void
PrepareFilter(Reader *reader, List *conditions)
{
	MemoryContext old;

	reader->estate = CreateExecutorState();
	old = MemoryContextSwitchTo(reader->estate->es_query_cxt);
	reader->filter = ExecPrepareQual(copyObject(conditions), reader->estate);
	GetPerTupleExprContext(reader->estate)->ecxt_scantuple = reader->slot;
	MemoryContextSwitchTo(old);
}

/* Resolves names and checks rights: all that may raise an ERROR. */
static void
PrepareReader(Reader *reader, const Partition *partition, const ReaderOptions *options)
{
	List	   *conditions = NIL;
	Bitmapset  *filtered = NULL;

	reader->attnums = ResolveColumns(reader->relation, partition, options->columns,
									 options->ncolumns, &reader->nattnums);
	if (options->filter)
	{
		conditions = ParseRowFilter(reader->relation, options->filter);
		pull_varattnos((Node *) conditions, 1, &filtered);
	}
	CheckReadPrivileges(reader->relation, options->role, reader->attnums, reader->nattnums,
						filtered);
	RefuseRowSecurity(reader->relation, options->role);
	reader->slot = table_slot_create(reader->relation, NULL);
	if (conditions != NIL)
		PrepareFilter(reader, conditions);
}

ReaderStatus
ReaderOpen(const Partition *partition, const ReaderOptions *options, Reader **result)
{
	Reader	   *reader;
	ReaderStatus status;

	if (!OidIsValid(partition->relid))
		return READER_GONE;
	reader = palloc0(sizeof(Reader));
	status = LockAndOpen(partition->relid, options->wait_for_lock, &reader->relation);
	if (status != READER_OK)
	{
		pfree(reader);
		return status;
	}
	reader->seq_attnum = SeqAttribute(reader->relation, partition);
	status = OpenSeqIndex(reader, options->wait_for_lock);
	if (status != READER_OK)
	{
		relation_close(reader->relation, NoLock);
		pfree(reader);
		return status;
	}
	PrepareReader(reader, partition, options);
	*result = reader;
	return READER_OK;
}

Relation
ReaderRelation(Reader *reader)
{
	return reader->relation;
}

void
ReaderColumns(Reader *reader, const AttrNumber **attnums, int *nattnums)
{
	*attnums = reader->attnums;
	*nattnums = reader->nattnums;
}

/*
 * Rows of the backlog have seq 0 and are never in the range.  The index may be
 * newer than a tuple's HOT chain that other snapshots still need (pg_index.
 * indcheckxmin); the snapshot given here is newer than the index.
 */
void
ReaderStart(Reader *reader, Snapshot snapshot, Position since, Position until)
{
	ScanKeyData keys[2];

	if (reader->scan)
		index_endscan(reader->scan);
	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(Max(since.seq, 0)));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(until.seq));
	reader->scan = IndexBeginScanCompat(reader->relation, reader->index, snapshot, 2);
	index_rescan(reader->scan, keys, 2, NULL, 0);
	reader->scanned = 0;
	reader->stop_at = 0;
	reader->stopped = false;
}

void
ReaderStopAfter(Reader *reader, int milliseconds)
{
	reader->stop_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds);
}

bool
ReaderStopped(Reader *reader)
{
	return reader->stopped;
}

/* The clock is asked only now and then. */
static bool
TimeIsUp(const Reader *reader)
{
	return reader->stop_at != 0 && reader->scanned % 256 == 0 &&
		GetCurrentTimestamp() >= reader->stop_at;
}

/* Memory that the filter took for the row before is freed first. */
static bool
PassesFilter(Reader *reader)
{
	ExprContext *context;

	if (reader->filter == NULL)
		return true;
	context = GetPerTupleExprContext(reader->estate);
	ResetExprContext(context);
	return ExecQual(reader->filter, context);
}

TupleTableSlot *
ReaderNext(Reader *reader, Position *position)
{
	while (!reader->stopped &&
		   index_getnext_slot(reader->scan, reader->direction, reader->slot))
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		reader->scanned++;
		reader->stopped = TimeIsUp(reader);
		position->seq = DatumGetInt64(slot_getattr(reader->slot, reader->seq_attnum, &isnull));
		position->n = 0;
		if (PassesFilter(reader))
			return reader->slot;
	}
	return NULL;
}

/* The locks stay until the end of the transaction. */
void
ReaderClose(Reader *reader)
{
	if (reader->scan)
		index_endscan(reader->scan);
	ExecDropSingleTupleTableSlot(reader->slot);
	if (reader->estate)
		FreeExecutorState(reader->estate);
	index_close(reader->index, NoLock);
	relation_close(reader->relation, NoLock);
	pfree(reader);
}
