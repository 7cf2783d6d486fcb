/*
 * current.c
 *		The horizon as a session that is no worker knows it.
 *
 * Each session keeps its candidates from call to call, so that the horizon moves
 * for it too while there is no moment without a writer.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "cache/current.h"
#include "cache/horizon.h"
#include "cache/integrity.h"
#include "common/compat.h"
#include "common/hash.h"
#include "common/shared.h"

/* How often a waiting reader looks again, in milliseconds. */
#define WAIT_INTERVAL 10

typedef struct SessionHorizon
{
	Oid			sequence;		/* hash key */
	Oid			relfilenode;	/* another one means another life */
	HorizonTracker tracker;
} SessionHorizon;

static HTAB *session_horizons = NULL;

/* The session's tracker of a sequence, begun anew if the sequence was. */
static HorizonTracker *
SessionTracker(const Partition *partition, const SequenceReading *reading)
{
	SessionHorizon *entry;
	bool		found;

	if (session_horizons == NULL)
		session_horizons = MakeHash("incsink horizons", sizeof(Oid), sizeof(SessionHorizon));
	entry = hash_search(session_horizons, &partition->sequence, HASH_ENTER, &found);
	if (!found)
		HorizonTrackerInit(&entry->tracker, partition->sequence, 0, TopMemoryContext);
	else if (entry->relfilenode != reading->relfilenode ||
			 reading->last_drawn < entry->tracker.horizon)
		HorizonTrackerReset(&entry->tracker);
	entry->relfilenode = reading->relfilenode;
	return &entry->tracker;
}

/* The horizon that this session found before, while the sequence cannot be read. */
static int64
SessionHorizonBefore(const Partition *partition)
{
	SessionHorizon *entry = NULL;

	if (session_horizons)
		entry = hash_search(session_horizons, &partition->sequence, HASH_FIND, NULL);
	return entry ? entry->tracker.horizon : 0;
}

/* What a worker found may be ahead of what this session can know. */
static int64
HighestKnownHorizon(const Partition *partition, int64 horizon)
{
	int64		published;

	if (PublishedHorizon(partition->partition_id, partition->sequence, &published))
		horizon = Max(horizon, published);
	return Max(horizon, partition->recorded_horizon);
}

/*
 * The row that records the horizon commits after everything that the horizon
 * covers, and is replayed after it: what is read later on a standby is complete.
 */
static void
StateOnStandby(Partition *partition, CurrentState *state)
{
	if (!RefreshPartitionState(partition))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no horizon of table \"%s.%s\" has reached this standby",
						partition->schema_name, partition->table_name),
				 errhint("Read on the primary, or wait until the standby has replayed more.")));
	state->horizon = partition->recorded_horizon;
}

static void
RaiseUnsound(const char *error, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s", error),
			 errhint("%s", hint)));
}

CurrentState
FindCurrentState(Partition *partition)
{
	CurrentState state = {false, 0, 0};
	SequenceReading reading;
	char	   *error;
	char	   *hint;

	if (RecoveryInProgress())
	{
		StateOnStandby(partition, &state);
		return state;
	}
	state.drawn_known = ReadSequence(partition->sequence, &reading);
	if (!CheckPartition(partition, state.drawn_known ? &reading : NULL, 0, &error, &hint))
		RaiseUnsound(error, hint);
	if (state.drawn_known)
	{
		HorizonTracker *tracker = SessionTracker(partition, &reading);

		(void) HorizonAdvance(tracker, &reading);
		state.last_drawn = reading.last_drawn;
		state.horizon = Min(HighestKnownHorizon(partition, tracker->horizon), reading.last_drawn);
	}
	else
		state.horizon = HighestKnownHorizon(partition, SessionHorizonBefore(partition));
	return state;
}

/* Sleeps, serving interrupts, until WAIT_INTERVAL or "end" has come. */
static void
SleepUntil(TimestampTz end)
{
	long		milliseconds = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end);

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(milliseconds, WAIT_INTERVAL), PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * On a standby what was drawn is not known (the sequence is replayed 32 numbers
 * ahead); the highest number that the primary recorded stands in for it.
 */
CurrentState
WaitForHorizon(Partition *partition, int64 timeout)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout);
	bool		standby = RecoveryInProgress();
	CurrentState state = FindCurrentState(partition);
	bool		target_known = standby || state.drawn_known;
	int64		target = standby ? partition->highest_seq : state.last_drawn;

	if (!standby && OwnTransactionHasDrawn(partition->sequence))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot wait for numbers of table \"%s.%s\" that this transaction drew itself",
						partition->schema_name, partition->table_name),
				 errhint("Commit first, or read without waiting.")));
	while ((!target_known || state.horizon < target) && GetCurrentTimestamp() < end)
	{
		SleepUntil(end);
		state = FindCurrentState(partition);
		if (!target_known && state.drawn_known)
		{
			target_known = true;
			target = state.last_drawn;
		}
	}
	return state;
}

bool
PeekHorizon(const Partition *partition, CurrentState *state)
{
	SequenceReading reading;

	state->horizon = partition->recorded_horizon;
	state->drawn_known = !RecoveryInProgress() && ReadSequence(partition->sequence, &reading);
	if (!state->drawn_known)
		return false;
	state->last_drawn = reading.last_drawn;
	if (reading.relfilenode == partition->sequence_relfilenode)
	{
		HorizonTracker *tracker = SessionTracker(partition, &reading);

		(void) HorizonAdvance(tracker, &reading);
		state->horizon = Min(HighestKnownHorizon(partition, tracker->horizon), reading.last_drawn);
	}
	return true;
}
