/*
 * launcher.c
 *		Starts workers where they are wanted, and starts them again.
 *
 * Preloaded there is one launcher; it visits each database once at its start, by
 * starting a worker that leaves when it does not find the extension, and is told
 * of CREATE EXTENSION through shared memory.  Not preloaded, the commit of CREATE
 * EXTENSION starts one for its database.  The launcher is connected to no database.
 *
 *	 CREATE EXTENSION committed   the committer wants a worker (WantWorker)
 *	   rolled back                nothing was asked
 *	 DROP EXTENSION committed     the worker sees it and ends: EXIT_NOTHING_TO_DO
 *	   rolled back                the worker stays
 *	 DROP/RENAME/TEMPLATE         the worker makes room (EXIT_LEFT); a second later
 *								  it is started again, and its start waits for the
 *								  command by the lock on the database
 *	 database gone                its slot is freed; a launcher of that database alone
 *								  ends with its last slot, and the next CREATE
 *								  EXTENSION, attach or sink there starts another
 *	 worker killed or failed      again after a pause that doubles, up to 5 min
 *	 no background worker slot    likewise, and incsink.stat_worker says so
 *	 incsink.workers raised       the first forward worker asks for the others
 *	   lowered                    those above end when they see it: EXIT_NOTHING_TO_DO
 */
#include "postgres.h"

#include <signal.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "common/inject.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"
#include "worker/slot.h"
#include "worker/worker.h"

#define LEFT_PAUSE_MS 1000
#define FAILURE_PAUSE_MS 1000
#define FAILURE_PAUSE_MAX_MS (300 * 1000)
#define STARTING_AT_ONCE 2
#define LONGEST_WAIT_MS (60 * 1000)

PGDLLEXPORT void IncsinkLauncherMain(Datum arg);

static BackgroundWorkerHandle *handles[SHARED_WORKERS];
static List *to_visit = NIL;	/* databases not yet looked at since our start */
static dsm_handle dynamic_shared = DSM_HANDLE_INVALID;

/* Nobody else lets a session's lock go; see WorkerExits(). */
static void
LauncherExits(int code, Datum arg)
{
	LockReleaseSession(DEFAULT_LOCKMETHOD);
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->launcher = NULL;
	LWLockRelease(&shared->lock);
}

/* OIDs of the databases that accept connections. */
static List *
ListDatabases(MemoryContext context)
{
	List	   *databases = NIL;
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(context);

		if (database->datallowconn)
			databases = lappend_oid(databases, database->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	INCSINK_POINT("launcher-commit");
	CommitTransactionCommand();
	return databases;
}

/* As far as there are slots; a visit that finds no extension frees its own.  With shared->lock held. */
static void
WantNextDatabases(void)
{
	while (to_visit != NIL && WantWorker(linitial_oid(to_visit), WORKER_FORWARD, 0) != NULL)
		to_visit = list_delete_first(to_visit);
}

/* A second launcher for the same database ends at once. */
static bool
BecomeOnlyLauncher(Oid database)
{
	LOCKTAG		tag;
	bool		acquired;

	StartTransactionCommand();
	SetLauncherLockTag(&tag, database);
	acquired = LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
	INCSINK_POINT("launcher-commit");
	CommitTransactionCommand();
	return acquired;
}

static int64
FailurePause(int failures)
{
	int64		pause = FAILURE_PAUSE_MS;

	for (int i = 1; i < failures && pause < FAILURE_PAUSE_MAX_MS; i++)
		pause *= 2;
	return Min(pause, FAILURE_PAUSE_MAX_MS);
}

static void
PauseSlot(WorkerSlot *slot, int64 pause_ms)
{
	slot->phase = WORKER_WANTED;
	slot->next_start = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pause_ms);
}

/* With shared->lock held. */
static void
HandleStopped(WorkerSlot *slot, bool database_exists)
{
	if (!database_exists || (slot->exit == EXIT_NOTHING_TO_DO && !slot->wanted))
	{
		memset(slot, 0, sizeof(WorkerSlot));
		return;
	}
	if (slot->exit == EXIT_NOTHING_TO_DO)
	{
		PauseSlot(slot, 0);
		return;
	}
	if (slot->exit == EXIT_LEFT)
	{
		PauseSlot(slot, LEFT_PAUSE_MS);
		return;
	}
	/* One that ran for a while starts the count of failures anew. */
	if (slot->started_at > 0 &&
		TimestampDifferenceExceeds(slot->started_at, GetCurrentTimestamp(), 60 * 1000))
		slot->failures = 0;
	slot->failures++;
	PauseSlot(slot, FailurePause(slot->failures));
}

/*
 * A worker that ends before it has attached (its database is gone, the fork failed)
 * leaves its slot as it was: the postmaster's word counts.
 */
static void
NoticeStopped(int index)
{
	WorkerSlot *slot = &shared->workers[index];
	pid_t		pid;

	if (handles[index] == NULL || GetBackgroundWorkerPid(handles[index], &pid) != BGWH_STOPPED)
		return;
	pfree(handles[index]);
	handles[index] = NULL;
	if (slot->phase == WORKER_STARTING || slot->phase == WORKER_RUNNING)
	{
		slot->phase = WORKER_STOPPED;
		slot->exit = EXIT_FAILED;
	}
}

static void
RegisterWorker(int index)
{
	WorkerSlot *slot = &shared->workers[index];
	WorkerArgs	args = {slot->database, slot->class, slot->number, dynamic_shared};
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "incsink", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, WORKER_FUNCTION, sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "incsink %s worker %d for database %u",
			 WorkerClassName(slot->class), slot->number, slot->database);
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "incsink %s worker",
			 WorkerClassName(slot->class));
	worker.bgw_main_arg = Int32GetDatum(index);
	memcpy(worker.bgw_extra, &args, sizeof(args));
	worker.bgw_notify_pid = MyProcPid;

	slot->phase = WORKER_STARTING;
	slot->started_at = 0;
	if (RegisterDynamicBackgroundWorker(&worker, &handles[index]))
		return;
	handles[index] = NULL;
	slot->failures++;
	PauseSlot(slot, FailurePause(slot->failures));
	strlcpy(slot->last_error, "no background worker slot is free; raise max_worker_processes",
			sizeof(slot->last_error));
	slot->last_error_time = GetCurrentTimestamp();
}

/*
 * One look at all slots; returns the milliseconds until the next is due, or -1 if
 * none is in use.
 */
static long
LauncherTurn(List *databases)
{
	TimestampTz now = GetCurrentTimestamp();
	long		wait = LONGEST_WAIT_MS;
	int			starting = 0;
	bool		used = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		WorkerSlot *slot = &shared->workers[i];

		NoticeStopped(i);
		if (slot->phase == WORKER_STOPPED && handles[i] == NULL)
			HandleStopped(slot, list_member_oid(databases, slot->database));
		starting += slot->phase == WORKER_STARTING;
	}
	WantNextDatabases();
	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		WorkerSlot *slot = &shared->workers[i];

		/* Dropped during the pause; a new one may not be in the list yet. */
		if (slot->phase == WORKER_WANTED && slot->next_start > 0 &&
			!list_member_oid(databases, slot->database))
			memset(slot, 0, sizeof(WorkerSlot));
		used = used || slot->phase != WORKER_FREE;
		if (slot->phase != WORKER_WANTED)
			continue;
		if (slot->next_start > now)
			wait = Min(wait, TimestampDifferenceMilliseconds(now, slot->next_start) + 1);
		else if (starting < STARTING_AT_ONCE)
		{
			RegisterWorker(i);
			starting++;
		}
	}
	LWLockRelease(&shared->lock);
	return used ? wait : -1;
}

/* Does the worker that looks after index builds run there?  With shared->lock held. */
static bool
HasForwardWorker(Oid database)
{
	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		const WorkerSlot *slot = &shared->workers[i];

		if (slot->phase == WORKER_RUNNING && slot->class == WORKER_FORWARD &&
			slot->number == 0 && slot->database == database)
			return true;
	}
	return false;
}

/*
 * The first forward worker breaks off an index build that keeps somebody from the database.
 * Where none runs we do; true if there is such a place.
 */
static bool
WatchIndexBuilds(void)
{
	struct
	{
		Oid			database;
		pid_t		pid;
	}			alone[SHARED_WORKERS];
	int			count = 0;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		const WorkerSlot *slot = &shared->workers[i];

		if (slot->phase == WORKER_RUNNING && slot->class == WORKER_INDEX &&
			!HasForwardWorker(slot->database))
		{
			alone[count].database = slot->database;
			alone[count++].pid = slot->pid;
		}
	}
	LWLockRelease(&shared->lock);
	for (int i = 0; i < count; i++)
	{
		if (DatabaseIsWanted(alone[i].database))
			(void) kill(alone[i].pid, SIGINT);
	}
	return count > 0;
}

/*
 * A launcher before this may have ended while it started workers; one that comes up
 * all the same finds that another owns its deliveries, and ends.
 */
static void
TakeOver(void)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->launcher = MyLatch;
	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		if (shared->workers[i].phase == WORKER_STARTING)
			shared->workers[i].phase = WORKER_WANTED;
	}
	LWLockRelease(&shared->lock);
}

void
IncsinkLauncherMain(Datum arg)
{
	Oid			only = DatumGetObjectId(arg);

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	if (OidIsValid(only) && !BecomeOnlyLauncher(only))
		proc_exit(0);
	if (shared == NULL)
		dynamic_shared = CreateDynamicShared();
	TakeOver();
	before_shmem_exit(LauncherExits, (Datum) 0);
	if (OidIsValid(only))
	{
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		(void) WantWorker(only, WORKER_FORWARD, 0);
		LWLockRelease(&shared->lock);
	}
	else
		to_visit = ListDatabases(TopMemoryContext);

	for (;;)
	{
		List	   *databases;
		long		wait;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		databases = ListDatabases(TopMemoryContext);
		wait = LauncherTurn(databases);
		list_free(databases);
		if (wait < 0 && OidIsValid(only))
			proc_exit(0);
		if (WatchIndexBuilds())
			wait = Min(wait, DATABASE_LOOK_MS);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 wait < 0 ? LONGEST_WAIT_MS : wait, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
