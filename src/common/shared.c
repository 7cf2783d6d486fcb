/*
 * shared.c
 *		Shared memory, wake-ups and requests between backends and workers.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "common/compat.h"
#include "common/shared.h"
#include "common/sql.h"

#define TRANCHE_NAME "incsink"

/* Numbers of our own in the sub-object field of lock tags; catalogs use column numbers there. */
#define LAUNCHER_LOCK_SUBID 31001
#define FLUSH_LOCK_SUBID 31002

SharedState *shared = NULL;
bool		records_partitions = false;

static bool preloaded = false;
static bool was_standby = false;
static bool callbacks_registered = false;
static bool wakeup_noted = false;
static bool worker_requested = false;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void RegisterCallbacks(void);

static void
RequestHook(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(SharedState)));
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

static void
InitializeState(SharedState *state, int tranche)
{
	memset(state, 0, sizeof(SharedState));
	LWLockInitialize(&state->lock, tranche);
	state->was_standby = was_standby;
}

static void
StartupHook(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct(TRANCHE_NAME, sizeof(SharedState), &found);
	if (!found)
		InitializeState(shared, GetNamedLWLockTranche(TRANCHE_NAME)->lock.tranche);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * standby.signal is looked at here because promotion has removed it when the
 * launcher starts.  The data directory is the current one during preloading.
 */
void
RequestSharedMemory(void)
{
	preloaded = true;
	was_standby = access("standby.signal", F_OK) == 0;
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = RequestHook;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = StartupHook;
	RegisterCallbacks();		/* every process inherits them */
}

bool
SharedMemoryIsPreloaded(void)
{
	return preloaded;
}

dsm_handle
CreateDynamicShared(void)
{
	dsm_segment *segment = dsm_create(sizeof(SharedState), 0);
	int			tranche = NewTrancheCompat(TRANCHE_NAME);

	RegisterTrancheCompat(tranche, TRANCHE_NAME);
	shared = dsm_segment_address(segment);
	InitializeState(shared, tranche);
	return dsm_segment_handle(segment);
}

void
AttachDynamicShared(dsm_handle handle)
{
	dsm_segment *segment = dsm_attach(handle);

	if (segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("incsink launcher has ended")));
	shared = dsm_segment_address(segment);
	RegisterTrancheCompat(shared->lock.tranche, TRANCHE_NAME);
}

const char *
WorkerClassName(WorkerClass class)
{
	switch (class)
	{
		case WORKER_FORWARD:
			return "forward";
		case WORKER_BLOB:
			return "blob";
		case WORKER_INDEX:
			break;
	}
	return "index";
}

WorkerSlot *
WantWorker(Oid database, WorkerClass class, int number)
{
	WorkerSlot *free_slot = NULL;

	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		WorkerSlot *slot = &shared->workers[i];

		if (slot->phase == WORKER_FREE)
		{
			if (free_slot == NULL)
				free_slot = slot;
		}
		else if (slot->database == database && slot->class == class &&
				 slot->number == number)
		{
			slot->wanted = true;
			if (slot->phase == WORKER_STARTING || slot->phase == WORKER_RUNNING)
				return slot;

			/* A new wish ends the pause after a failure. */
			slot->next_start = 0;
			slot->phase = WORKER_WANTED;
			if (shared->launcher)
				SetLatch(shared->launcher);
			return slot;
		}
	}
	if (free_slot != NULL)
	{
		memset(free_slot, 0, sizeof(WorkerSlot));
		free_slot->phase = WORKER_WANTED;
		free_slot->wanted = true;
		free_slot->database = database;
		free_slot->class = class;
		free_slot->number = number;
		shared->slots_used = Max(shared->slots_used, (int) (free_slot - shared->workers) + 1);
		if (shared->launcher)
			SetLatch(shared->launcher);
	}
	return free_slot;
}

/* A spurious SetLatch on a PGPROC that was given to another process is harmless. */
void
WakeWorkers(Oid database)
{
	if (shared == NULL)
		return;
	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->slots_used; i++)
	{
		WorkerSlot *slot = &shared->workers[i];

		if (slot->latch != NULL && (!OidIsValid(database) || slot->database == database))
			SetLatch(slot->latch);
	}
	LWLockRelease(&shared->lock);
}

/*
 * Runs when the top transaction's locks are gone.  Workers of logical replication
 * pass by every hook that would note what they write (executor/execReplication.c):
 * whatever they wrote may have been for an attached table.
 */
static void
WakeAfterLocks(ResourceReleasePhase phase, bool isCommit, bool isTopLevel, void *arg)
{
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !isTopLevel)
		return;
	if (!wakeup_noted &&
		!(IsLogicalWorker() && TransactionIdIsValid(GetTopTransactionIdIfAny())))
		return;
	wakeup_noted = false;
	WakeWorkers(MyDatabaseId);
}

void
DescribeLauncher(BackgroundWorker *worker, Oid database)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = 5;
	strlcpy(worker->bgw_library_name, "incsink", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, LAUNCHER_FUNCTION, sizeof(worker->bgw_function_name));
	if (OidIsValid(database))
		snprintf(worker->bgw_name, sizeof(worker->bgw_name), "incsink launcher for database %u",
				 database);
	else
		strlcpy(worker->bgw_name, "incsink launcher", sizeof(worker->bgw_name));
	strlcpy(worker->bgw_type, "incsink launcher", sizeof(worker->bgw_type));
	worker->bgw_main_arg = ObjectIdGetDatum(database);
}

static void
StartDynamicLauncher(Oid database)
{
	BackgroundWorker worker;

	DescribeLauncher(&worker, database);
	(void) RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* Starts nothing for a transaction that does not commit. */
static void
RequestAfterCommit(XactEvent event, void *arg)
{
	if (!worker_requested)
		return;
	if (event == XACT_EVENT_COMMIT)
	{
		if (shared != NULL)
		{
			LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
			(void) WantWorker(MyDatabaseId, WORKER_FORWARD, 0);
			LWLockRelease(&shared->lock);
		}
		else
			StartDynamicLauncher(MyDatabaseId);
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		worker_requested = false;
}

static void
RegisterCallbacks(void)
{
	if (callbacks_registered)
		return;
	RegisterResourceReleaseCallback(WakeAfterLocks, NULL);
	RegisterXactCallback(RequestAfterCommit, NULL);
	callbacks_registered = true;
}

void
NoteWakeup(void)
{
	if (shared == NULL)
		return;
	RegisterCallbacks();
	wakeup_noted = true;
}

void
SetLauncherLockTag(LOCKTAG *tag, Oid database)
{
	SET_LOCKTAG_OBJECT(*tag, InvalidOid, DatabaseRelationId, database, LAUNCHER_LOCK_SUBID);
}

/* Where not preloaded, the launcher's lock tells whether there is one. */
static bool
DynamicLauncherRuns(void)
{
	LOCKTAG		tag;
	int			holders;

	SetLauncherLockTag(&tag, MyDatabaseId);
	(void) GetLockConflicts(&tag, ExclusiveLock, &holders);
	return holders > 0;
}

void
RequestWorkerAtCommit(void)
{
	if (RecoveryInProgress() || (shared == NULL && DynamicLauncherRuns()))
		return;
	RegisterCallbacks();
	worker_requested = true;
}

static PublishedEntry *
FindPublished(Oid database, int64 partition_id, bool make)
{
	uint32		start = (uint32) ((partition_id * 31 + database) % SHARED_HORIZONS);

	for (int i = 0; i < SHARED_HORIZONS; i++)
	{
		PublishedEntry *entry = &shared->horizons[(start + i) % SHARED_HORIZONS];

		if (entry->database == database && entry->partition_id == partition_id)
			return entry;
		if (!OidIsValid(entry->database))
		{
			if (!make)
				return NULL;
			entry->database = database;
			entry->partition_id = partition_id;
			entry->horizon = -1;
			return entry;
		}
	}
	return NULL;
}

/* An entry without a horizon (-1) stays as a place, so that probing goes on behind it. */
bool
PublishedHorizon(int64 partition_id, Oid sequence, int64 *horizon)
{
	PublishedEntry *entry;
	bool		known;

	if (shared == NULL)
		return false;
	LWLockAcquire(&shared->lock, LW_SHARED);
	entry = FindPublished(MyDatabaseId, partition_id, false);
	known = entry != NULL && entry->sequence == sequence && entry->horizon >= 0;
	if (known)
		*horizon = entry->horizon;
	LWLockRelease(&shared->lock);
	return known;
}

static void
SetPublished(int64 partition_id, Oid sequence, int64 horizon, bool make)
{
	PublishedEntry *entry;

	if (shared == NULL)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	entry = FindPublished(MyDatabaseId, partition_id, make);
	if (entry != NULL)
	{
		entry->sequence = sequence;
		entry->horizon = horizon;
	}
	LWLockRelease(&shared->lock);
}

void
PublishHorizon(int64 partition_id, Oid sequence, int64 horizon)
{
	SetPublished(partition_id, sequence, horizon, true);
}

void
ForgetPublishedHorizon(int64 partition_id)
{
	SetPublished(partition_id, InvalidOid, -1, false);
}

static void
SetFlushLockTag(LOCKTAG *tag, int64 sink_id)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, CatalogRelation("sink_def"), (Oid) sink_id,
					   FLUSH_LOCK_SUBID);
}

void
RequestFlush(int64 sink_id)
{
	LOCKTAG		tag;

	SetFlushLockTag(&tag, sink_id);
	(void) LockAcquire(&tag, ShareLock, false, false);
	WakeWorkers(MyDatabaseId);
}

bool
FlushIsRequested(int64 sink_id)
{
	LOCKTAG		tag;
	int			holders;

	SetFlushLockTag(&tag, sink_id);
	(void) GetLockConflicts(&tag, ExclusiveLock, &holders);
	return holders > 0;
}
