/*
 * partitions.c
 *		Each turn's look at the sequences of all partitions.
 *
 * Reading a sequence that nobody drew from costs a lock that does not wait and one
 * buffer; the catalog is written only when something changed, and by one process: what
 * the others find stops their own deliveries, and stands there when that one finds it.
 */
#include "postgres.h"

#include "cache/integrity.h"
#include "cache/subscription.h"
#include "common/sql.h"
#include "common/subtransaction.h"
#include "utils/timestamp.h"
#include "worker/definitions.h"

#define CHECK_EVERY_MS 10000	/* a whole look at a partition that is quiet */
#define RECORD_EVERY_MS 1000	/* the horizon, for standbys */

typedef struct RefreshCall
{
	Workload   *workload;
	PartitionRun *run;
	TimestampTz now;
} RefreshCall;

static void
StoreError(MemoryContext definitions, Partition *partition, const char *error, const char *hint)
{
	SqlSession	session;

	if (!records_partitions || (error == NULL && partition->error == NULL))
		return;
	if (error != NULL && partition->error != NULL && strcmp(error, partition->error) == 0)
		return;
	SqlBegin(&session);
	RecordPartitionError(partition->partition_id, error, hint);
	SqlEnd(&session);
	partition->error = error ? MemoryContextStrdup(definitions, error) : NULL;
}

/*
 * True if the partition is whole; otherwise its deliveries stand still, and it says so.
 * A sequence must not be below what was read of it before; a watermark above it is the
 * matter of one delivery, which one worker alone may know of.
 * A sequence in a new file begins another life: what held the old one says nothing.
 */
static bool
CheckRun(const Workload *workload, PartitionRun *run, const SequenceReading *reading)
{
	Oid			file = run->partition->sequence_relfilenode;
	char	   *error = NULL;
	char	   *hint = NULL;
	bool		whole = CheckPartition(run->partition, reading, run->last_drawn, &error, &hint);

	StoreError(workload->definitions, run->partition, whole ? NULL : error, hint);
	if (run->partition->sequence_relfilenode != file)
		HorizonTrackerReset(&run->tracker);
	return whole;
}

static bool
RecordIsDue(const PartitionRun *run, TimestampTz now)
{
	return records_partitions &&
		run->tracker.horizon > run->partition->recorded_horizon &&
		TimestampDifferenceExceeds(run->partition->recorded_at, now, RECORD_EVERY_MS);
}

static void
StoreHorizon(PartitionRun *run, TimestampTz now)
{
	SqlSession	session;

	SqlBegin(&session);
	RecordHorizon(run->partition, run->tracker.horizon, run->last_drawn);
	SqlEnd(&session);
	run->partition->recorded_horizon = run->tracker.horizon;
	run->partition->recorded_at = now;
}

/*
 * A transaction that was open before this process began holds all that it sees back;
 * what was known before it, it takes from others.
 */
static void
TakeKnownHorizon(PartitionRun *run)
{
	int64		known = run->partition->recorded_horizon;
	int64		published;

	if (PublishedHorizon(run->partition->partition_id, run->partition->sequence, &published))
		known = Max(known, published);
	HorizonRaise(&run->tracker, Min(known, run->last_drawn));
}

/* What a change of the table asks for and no command of ours has seen. */
static void
KeepUp(const Partition *partition)
{
	SqlSession	session;

	(void) EnsureNumberRowTrigger(partition->relid);
	SqlBegin(&session);
	RefreshNames(partition);
	SqlEnd(&session);
}

static void
RefreshPartition(void *arg)
{
	RefreshCall *call = arg;
	PartitionRun *run = call->run;
	SequenceReading reading;
	bool		known = ReadSequence(run->partition->sequence, &reading);
	bool		check_due = !run->readable || run->checked_at == 0 ||
		TimestampDifferenceExceeds(run->checked_at, call->now, CHECK_EVERY_MS);

	if (known && (reading.last_drawn != run->last_drawn || check_due))
	{
		run->readable = CheckRun(call->workload, run, &reading);
		run->checked_at = call->now;
		run->last_drawn = reading.last_drawn;
	}
	else if (!known)
	{
		run->readable = false;
		(void) CheckRun(call->workload, run, NULL);
	}
	if (!run->readable)
		return;
	if (check_due && records_partitions)
		KeepUp(run->partition);
	TakeKnownHorizon(run);
	if (HorizonAdvance(&run->tracker, &reading))
		PublishHorizon(run->partition->partition_id, run->partition->sequence, run->tracker.horizon);
	if (RecordIsDue(run, call->now))
		StoreHorizon(run, call->now);
}

/*
 * A quiet partition needs no subtransaction: nothing that can fail is done for it.  Without
 * "look" it is one that was quiet before.
 */
static bool
IsQuiet(const PartitionRun *run, TimestampTz now, bool look)
{
	SequenceReading reading;

	if (!run->readable || run->tracker.ncandidates > 0 || run->checked_at == 0 ||
		run->last_drawn != run->tracker.horizon ||
		(records_partitions && run->partition->recorded_horizon < run->tracker.horizon) ||
		TimestampDifferenceExceeds(run->checked_at, now, CHECK_EVERY_MS))
		return false;
	return !look || (ReadSequence(run->partition->sequence, &reading) &&
					 reading.last_drawn == run->last_drawn);
}

void
RefreshPartitions(Workload *workload, TimestampTz now, bool look)
{
	ListCell   *cell;

	foreach(cell, workload->runs)
	{
		RefreshCall call = {workload, lfirst(cell), now};
		ErrorData  *error;

		if (IsQuiet(call.run, now, look))
			continue;
		error = InSubtransaction(RefreshPartition, &call);
		if (error == NULL)
			continue;
		call.run->readable = false;
		ereport(LOG,
				(errmsg("partition (\"%s\", \"%s\") was skipped this turn: %s",
						call.run->partition->dataset, call.run->partition->source,
						error->message)));
		FreeErrorData(error);
	}
}
