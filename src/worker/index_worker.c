/*
 * index_worker.c
 *		The process that builds the indexes of large tables.
 *
 * A build takes long, most of all when it waits for old transactions, and looks at
 * nothing else meanwhile.  So the first forward worker looks for it whether it is in
 * somebody's way, and breaks it off.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "cache/index_build.h"
#include "common/inject.h"
#include "common/settings.h"
#include "worker/index_worker.h"
#include "worker/slot.h"

#define ERROR_PAUSE_MS 1000

/* What was built is shown by the catalog; what failed is looked at again. */
static long
TakeIndexTurn(void)
{
	volatile long wait = ERROR_PAUSE_MS;

	PG_TRY();
	{
		StartTransactionCommand();
		StayOwner();
		StayWithExtension();
		INCSINK_POINT("index-turn-commit");
		CommitTransactionCommand();
		wait = BuildPendingIndexes();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(TopMemoryContext);
		error = CopyErrorData();
		EmitErrorReport();
		FlushErrorState();
		NoteError(error->message);
		FreeErrorData(error);
		AbortCurrentTransaction();
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_END_TRY();
	my_slot->turns++;
	my_slot->last_turn_time = GetCurrentTimestamp();
	pgstat_report_stat(false);
	return wait;
}

/* Names of operators in statements are those of pg_catalog. */
static void
PinSearchPath(void)
{
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SET, true, 0, false);
}

static void
ServeSignals(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (DatabaseIsWanted(MyDatabaseId) || LauncherIsGone())
		Leave(EXIT_LEFT);
	if (!setting_enabled)
		Leave(EXIT_NOTHING_TO_DO);
}

/* Until the time is over or something new is wanted. */
static void
Wait(long wait_ms)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), wait_ms);
	long		left;

	while (!my_slot->wanted &&
		   (left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until)) > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(left, DATABASE_LOOK_MS), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		QueryCancelPending = false;
		ServeSignals();
	}
}

void
IndexWorkerLoop(void)
{
	PinSearchPath();
	for (;;)
	{
		long		wait;

		/* Before the look whether the database is wanted: what comes later counts. */
		QueryCancelPending = false;
		ServeSignals();
		TakeWish();
		wait = TakeIndexTurn();
		if (wait < 0)
			Leave(EXIT_NOTHING_TO_DO);
		Wait(wait);
	}
}

static pid_t
IndexWorkerPid(void)
{
	pid_t		pid = 0;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		WorkerSlot *slot = &shared->workers[i];

		if (slot->phase == WORKER_RUNNING && slot->database == MyDatabaseId &&
			slot->class == WORKER_INDEX)
			pid = slot->pid;
	}
	LWLockRelease(&shared->lock);
	return pid;
}

void
InterruptIndexWorker(void)
{
	pid_t		pid = IndexWorkerPid();

	if (pid != 0)
		(void) kill(pid, SIGINT);
}

static bool
HoldsLock(const LockData *locks, pid_t pid, const LOCKTAG *tag)
{
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->pid == pid && lock->holdMask != 0 &&
			memcmp(&lock->locktag, tag, sizeof(LOCKTAG)) == 0)
			return true;
	}
	return false;
}

/*
 * Before deadlock_timeout is over: a transaction that has written to the table, which
 * the build waits for, and now wants to lock it would be ended as a deadlock's victim.
 */
static bool
WaitsLong(const LockInstanceData *lock, TimestampTz now)
{
	return lock->locktag.locktag_type == LOCKTAG_RELATION &&
		lock->waitLockMode == AccessExclusiveLock &&
		TimestampDifferenceExceeds(lock->waitStart, now, DeadlockTimeout / 2);
}

void
GiveWayToLocks(void)
{
	static TimestampTz looked_at = 0;
	TimestampTz now = GetCurrentTimestamp();
	pid_t		pid;
	LockData   *locks;

	if (!TimestampDifferenceExceeds(looked_at, now, DATABASE_LOOK_MS))
		return;
	looked_at = now;
	pid = IndexWorkerPid();
	if (pid == 0)
		return;
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		if (WaitsLong(&locks->locks[i], now) && HoldsLock(locks, pid, &locks->locks[i].locktag))
		{
			(void) kill(pid, SIGINT);
			break;
		}
	}
	pfree(locks->locks);
	pfree(locks);
}
