/*
 * reader.c
 *		Rows of a partition in order, with the privileges of a role and through a filter.
 */
#include "postgres.h"

#include "access/relation.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/rls.h"
#include "utils/timestamp.h"

#include "cache/backlog_reader.h"
#include "cache/columns.h"
#include "cache/number_scan.h"
#include "cache/reader.h"
#include "cache/row_filter.h"

/* Rows between two looks at the clock. */
#define CLOCK_ROWS 256

struct Reader
{
	const Partition *partition;
	bool		wait;
	Relation	relation;
	AttrNumber *attnums;
	int			nattnums;
	EState	   *estate;			/* owns the filter; NULL without one */
	ExprState  *filter;
	/* the range; one of the two, or none before ReaderStart() */
	BacklogReader *backlog;
	NumberScan *numbers;
	Position	since;
	int64		scanned;
	int64		last;			/* number of the last row */
	int64		returned;		/* of the last row returned */
	int64		before;			/* of the last row returned with another number */
	bool		goes_on_tie;
	TimestampTz stop_at;		/* 0 = never */
	bool		is_due;			/* the time is up */
	bool		stopped;
};

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

/* Compiles the filter, for rows in slots of any kind. */
static void
PrepareFilter(Reader *reader, List *conditions)
{
	MemoryContext old;

	reader->estate = CreateExecutorState();
	old = MemoryContextSwitchTo(reader->estate->es_query_cxt);
	reader->filter = ExecPrepareQual(copyObject(conditions), reader->estate);
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
	reader->partition = partition;
	reader->wait = options->wait_for_lock;
	status = LockAndOpen(partition->relid, reader->wait, &reader->relation);
	if (status != READER_OK)
	{
		pfree(reader);
		return status;
	}
	(void) SeqAttribute(reader->relation, partition);
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

/* Ends what an earlier range needed. */
static void
EndRange(Reader *reader)
{
	if (reader->backlog)
		BacklogReaderClose(reader->backlog);
	reader->backlog = NULL;
	if (reader->numbers)
		NumberScanClose(reader->numbers);
	reader->numbers = NULL;
}

static bool
IsInBacklog(const Partition *partition, Position since, Position until)
{
	return partition->backlog != NULL && until.seq == 0 && until.n > 0 && !BacklogIsOver(since);
}

ReaderStatus
ReaderStart(Reader *reader, Position since, Position until)
{
	EndRange(reader);
	reader->since = since;
	reader->scanned = 0;
	reader->last = reader->returned = reader->before = since.seq;
	reader->goes_on_tie = false;
	reader->stop_at = 0;
	reader->is_due = false;
	reader->stopped = false;
	if (IsInBacklog(reader->partition, since, until))
		return BacklogReaderOpen(reader->partition, reader->relation, reader->wait,
								 since, until, &reader->backlog);
	return NumberScanOpen(reader->partition, reader->relation, reader->wait,
						  since.seq, until.seq, &reader->numbers);
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

/* Is it time to stop, and may the range end here? */
static bool
StopsHere(Reader *reader)
{
	if (reader->stop_at == 0 || reader->scanned == 0)
		return false;
	if (!reader->is_due && reader->scanned % CLOCK_ROWS == 0)
		reader->is_due = GetCurrentTimestamp() >= reader->stop_at;
	return reader->is_due && !ReaderIsTied(reader);
}

/* *passed: it is not for the range, though it was read. */
static inline TupleTableSlot *
FetchRow(Reader *reader, bool *passed)
{
	*passed = false;
	if (reader->numbers)
		return NumberScanNext(reader->numbers, &reader->last);
	return BacklogReaderNext(reader->backlog, passed);
}

/* Memory that the filter took for the row before is freed first. */
static bool
PassesFilter(Reader *reader, TupleTableSlot *slot)
{
	ExprContext *context;

	if (reader->filter == NULL)
		return true;
	context = GetPerTupleExprContext(reader->estate);
	ResetExprContext(context);
	context->ecxt_scantuple = slot;
	return ExecQual(reader->filter, context);
}

/* Keeps the books on the rows returned. */
static inline void
NoteReturned(Reader *reader)
{
	if (reader->backlog)
	{
		BacklogReaderKeep(reader->backlog);
		reader->goes_on_tie = BacklogReaderGoesOnTie(reader->backlog);
		return;
	}
	reader->goes_on_tie = reader->last == reader->returned;
	if (!reader->goes_on_tie)
		reader->before = reader->returned;
	reader->returned = reader->last;
}

TupleTableSlot *
ReaderNext(Reader *reader)
{
	TupleTableSlot *slot;
	bool		passed;

	if (reader->stopped)
		return NULL;
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (StopsHere(reader))
		{
			reader->stopped = true;
			return NULL;
		}
		slot = FetchRow(reader, &passed);
		if (slot == NULL)
			return NULL;
		reader->scanned++;
		if (passed || !PassesFilter(reader, slot))
			continue;
		NoteReturned(reader);
		return slot;
	}
}

Position
ReaderPosition(Reader *reader)
{
	if (reader->scanned == 0)
		return reader->since;
	if (reader->backlog)
		return BacklogReaderPosition(reader->backlog);
	return (Position) {.seq = reader->last};
}

Position
ReaderPlace(Reader *reader)
{
	if (reader->backlog)
		return (Position) {.n = BacklogReaderCount(reader->backlog)};
	return (Position) {.seq = reader->last};
}

Position
ReaderPositionBefore(Reader *reader)
{
	if (reader->backlog)
		return BacklogReaderPositionBefore(reader->backlog);
	return (Position) {.seq = reader->before};
}

bool
ReaderGoesOnTie(Reader *reader)
{
	return reader->goes_on_tie;
}

bool
ReaderIsTied(Reader *reader)
{
	return reader->numbers ? NumberScanIsTied(reader->numbers) : BacklogReaderIsTied(reader->backlog);
}

/* The locks stay until the end of the transaction. */
void
ReaderClose(Reader *reader)
{
	EndRange(reader);
	if (reader->estate)
		FreeExecutorState(reader->estate);
	relation_close(reader->relation, NoLock);
	pfree(reader);
}
