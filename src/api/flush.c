/*
 * flush.c
 *		Waits until a sink has exported everything that was there at the call.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "api/arguments.h"
#include "api/sink_access.h"
#include "cache/current.h"
#include "cache/horizon.h"
#include "cache/reader.h"
#include "common/shared.h"
#include "common/sql.h"

PG_FUNCTION_INFO_V1(incsink_flush);

#define FIRST_PAUSE_MS 20
#define LONGEST_PAUSE_MS 200

/* One table of the sink, and how far it has to get. */
typedef struct FlushTable
{
	int64		partition_id;
	char	   *name;			/* for messages */
	SinkTable  *definition;
	Partition  *partition;		/* as it is in this round */
	bool		is_known;		/* the last number drawn could be read */
	int64		target;
	bool		is_done;
} FlushTable;

typedef struct Flush
{
	char	   *name;
	Oid			user;			/* the caller */
	int64		sink_id;
	Oid			owner;
	List	   *tables;			/* of FlushTable */
	bool		is_done;
	MemoryContext context;		/* of all this */
	MemoryContext round;		/* of what one look at the tables needs */
} Flush;

/*
 * What this transaction did itself is not committed, so it would be waited for in
 * vain; and a snapshot of the whole transaction would never see the watermark move.
 */
static void
CheckTransaction(void)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("incsink_flush cannot run in a transaction that has written"),
				 errdetail("Its own rows are not exported before it commits."),
				 errhint("Commit first.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("incsink_flush needs isolation level READ COMMITTED")));
}

static void
CheckHasDrawnNothing(const Partition *partition)
{
	if (OwnTransactionHasDrawn(partition->sequence))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("incsink_flush cannot run in a transaction that has drawn numbers for table \"%s\"",
						partition->table_name),
				 errhint("Commit first.")));
}

static void
AddFlushTable(Flush *flush, SinkTable *table)
{
	Partition  *partition = LoadPartition(table->partition_id, flush->context);
	FlushTable *entry;
	MemoryContext old;

	if (partition == NULL)
		return;
	CheckHasDrawnNothing(partition);
	entry = MemoryContextAllocZero(flush->context, sizeof(FlushTable));
	entry->partition_id = table->partition_id;
	entry->name = partition->table_name;
	entry->definition = table;
	old = MemoryContextSwitchTo(flush->context);
	flush->tables = lappend(flush->tables, entry);
	MemoryContextSwitchTo(old);
}

static void
LoadFlush(Flush *flush)
{
	SqlSession	session;
	SinkDefinition *sink;
	ListCell   *cell;

	SqlBegin(&session);
	sink = LoadOwnSink(flush->name, flush->user);
	if (!sink->enabled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sink \"%s\" is paused", flush->name),
				 errhint("Run SELECT incsink_resume_sink('%s');", flush->name)));
	flush->sink_id = sink->sink_id;
	flush->owner = sink->owner;
	foreach(cell, LoadSinkTables(flush->context))
	{
		SinkTable  *table = lfirst(cell);

		if (table->sink_id == flush->sink_id)
			AddFlushTable(flush, table);
	}
	SqlEnd(&session);
}

pg_noreturn static void
RaiseNotExported(const Flush *flush, const FlushTable *table)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("sink \"%s\" does not export table \"%s\" any more",
					flush->name, table->name)));
}

/*
 * The partition as it is now, in table->partition, and the least position of its
 * destinations; both in CurrentMemoryContext.
 */
static Position
LoadRound(const Flush *flush, FlushTable *table)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Position	position;

	SqlBegin(&session);
	table->partition = LoadPartition(table->partition_id, context);
	if (table->partition == NULL ||
		SqlRun("SELECT seq, n, key FROM incsink.watermark WHERE sink_id = $1 AND partition_id = $2"
			   " ORDER BY seq, n LIMIT 1",
			   SqlInt8(flush->sink_id), SqlInt8(table->partition_id)) == 0)
		RaiseNotExported(flush, table);
	position.seq = SqlGetInt8(0, 1);
	position.n = SqlGetInt8(0, 2);
	position.key = SqlGetJsonb(0, 3, context);
	SqlEnd(&session);
	return position;
}

/*
 * Its index cannot be built before the snapshot of this very call is gone
 * (CREATE INDEX CONCURRENTLY waits for it), and nothing is exported before.
 */
pg_noreturn static void
RaisePreparing(const Partition *partition)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s.%s\" is being prepared: its index on \"%s\" is not built yet",
					partition->schema_name, partition->table_name, partition->seq_column),
			 errhint("Call incsink_flush() again when incsink.partitions does not show it as preparing any more.")));
}

/* Are there rows from before that have neither numbers yet nor a place in a backlog? */
static bool
IsUnnumbered(const FlushTable *table)
{
	return table->partition->had_rows && table->partition->backlog == NULL &&
		strcmp(table->definition->start, "now") != 0;
}

/*
 * Numbers of transactions that were rolled back, and rows that a filter passes over.
 */
static bool
RangeIsEmpty(const Flush *flush, const FlushTable *table, Position since)
{
	ReaderOptions options = {0};
	Position	until = {.seq = table->target};
	Reader	   *reader;
	bool		empty;

	options.role = flush->owner;
	options.columns = table->definition->columns;
	options.ncolumns = table->definition->ncolumns;
	options.filter = table->definition->filter;
	if (ReaderOpen(table->partition, &options, &reader) != READER_OK)
		return false;
	empty = ReaderStart(reader, since, until) == READER_OK && ReaderNext(reader) == NULL;
	ReaderClose(reader);
	return empty;
}

static bool
TableIsFlushed(const Flush *flush, FlushTable *table)
{
	Position	position = LoadRound(flush, table);
	CurrentState state = FindCurrentState(table->partition);

	if (!table->is_known && state.drawn_known)
	{
		table->is_known = true;
		table->target = state.last_drawn;
	}
	if (!table->is_known)
		return false;
	if (table->partition->preparing && position.seq < table->target)
		RaisePreparing(table->partition);
	if (IsUnnumbered(table) || (table->partition->backlog != NULL && !BacklogIsOver(position)))
		return false;
	if (position.seq >= table->target)
		return true;
	return state.horizon >= table->target && RangeIsEmpty(flush, table, position);
}

static void
LookAtTables(Flush *flush)
{
	MemoryContext old = MemoryContextSwitchTo(flush->round);
	ListCell   *cell;

	MemoryContextReset(flush->round);
	flush->is_done = true;
	foreach(cell, flush->tables)
	{
		FlushTable *table = lfirst(cell);

		table->is_done = table->is_done || TableIsFlushed(flush, table);
		flush->is_done = flush->is_done && table->is_done;
	}
	MemoryContextSwitchTo(old);
}

/*
 * Does the work in a subtransaction that is rolled back even if all went well: its
 * locks on the catalog and on tables go with it, and nothing is held while we wait.
 */
static void
DoAndRollBack(void (*work) (Flush *flush), Flush *flush)
{
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		work(flush);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(flush->context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(flush->context);
	CurrentResourceOwner = owner;
	if (error != NULL)
		ReThrowError(error);
}

static void
Pause(long milliseconds)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 milliseconds, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Milliseconds of an interval; months count 30 days, as everywhere. */
static int64
TimeoutMilliseconds(const Interval *timeout)
{
	double		milliseconds = timeout->time / 1000.0 +
		(timeout->day + timeout->month * (double) DAYS_PER_MONTH) * SECS_PER_DAY * 1000.0;

	if (milliseconds < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be negative")));
	return (int64) Min(milliseconds, 1e15);
}

static bool
WaitUntilFlushed(Flush *flush, int64 timeout)
{
	TimestampTz deadline = GetCurrentTimestamp() + timeout * 1000;
	long		pause = FIRST_PAUSE_MS;

	for (;;)
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

		DoAndRollBack(LookAtTables, flush);
		if (flush->is_done || left <= 0)
			return flush->is_done;
		Pause(Min(pause, left));
		pause = Min(pause * 3 / 2, LONGEST_PAUSE_MS);
	}
}

Datum
incsink_flush(PG_FUNCTION_ARGS)
{
	Flush		flush = {0};
	int64		timeout;

	flush.name = RequireText(fcinfo, 0, "sink");
	flush.user = GetUserId();
	flush.context = CurrentMemoryContext;
	flush.round = AllocSetContextCreate(CurrentMemoryContext, "incsink flush round", ALLOCSET_DEFAULT_SIZES);
	RequireArgument(fcinfo, 1, "timeout");
	timeout = TimeoutMilliseconds(PG_GETARG_INTERVAL_P(1));
	CheckTransaction();
	DoAndRollBack(LoadFlush, &flush);
	RequestFlush(flush.sink_id);
	PG_RETURN_BOOL(WaitUntilFlushed(&flush, timeout));
}
