/*
 * slot.c
 *		What every process of a WorkerClass shares: its place, its end.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "common/inject.h"
#include "common/pin.h"
#include "common/sql.h"
#include "common/text.h"
#include "common/worker_lock.h"
#include "worker/index_worker.h"
#include "worker/slot.h"

WorkerSlot *my_slot = NULL;

Oid			my_extension = InvalidOid;

static WorkerClass my_class;
static int	my_number;

/* What the worker's own transactions must not take from the database's settings. */
static const struct
{
	const char *name;
	const char *value;
}			worker_settings[] = {
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	{"statement_timeout", "0"},
	{"transaction_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"lock_timeout", "100ms"},	/* it waits for nobody; this bounds what it
								 * cannot see coming */
	{"synchronous_commit", "local"},	/* intents reach the local disk, and wait
										 * for no standby */
	{"session_replication_role", "origin"},
	{"row_security", "off"},

	/*
	 * Catalog tables are looked into by key, also while they look small: a plan
	 * that is kept may have been made for another size, and versions that an old
	 * snapshot keeps are many.
	 */
	{"plan_cache_mode", "force_generic_plan"},
	{"enable_seqscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"jit", "off"},				/* the cost of a disabled scan would ask for it */
};

/* Not every server has all of them: transaction_timeout came with 17. */
void
ApplyWorkerSettings(void)
{
	for (int i = 0; i < lengthof(worker_settings); i++)
	{
		if (GetConfigOption(worker_settings[i].name, true, false) == NULL)
			continue;
		(void) set_config_option(worker_settings[i].name, worker_settings[i].value, PGC_SUSET,
								 PGC_S_SESSION, GUC_ACTION_SET, true, 0, false);
	}
	PinOutputSettings();
}

/*
 * A session's lock of this method goes by itself only with a transaction that is
 * aborted (ShutdownPostgres() in utils/init/postinit.c lets advisory locks go, and
 * no others); left behind by an idle process, it keeps every later worker out.
 */
static void
WorkerExits(int code, Datum arg)
{
	LockReleaseSession(DEFAULT_LOCKMETHOD);
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	my_slot->phase = WORKER_STOPPED;
	my_slot->latch = NULL;
	my_slot->pid = 0;
	if (shared->launcher)
		SetLatch(shared->launcher);
	LWLockRelease(&shared->lock);
}

/* Commits wake what exports; a process that builds indexes has no latch for them. */
void
AttachSlot(int index, const WorkerArgs *args)
{
	my_class = args->class;
	my_number = args->number;
	records_partitions = my_class == WORKER_FORWARD && my_number == 0;
	if (args->dynamic_shared != DSM_HANDLE_INVALID)
		AttachDynamicShared(args->dynamic_shared);
	my_slot = &shared->workers[index];
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	my_slot->exit = EXIT_FAILED;
	my_slot->pid = MyProcPid;
	my_slot->latch = my_class == WORKER_INDEX ? NULL : MyLatch;
	my_slot->started_at = GetCurrentTimestamp();
	LWLockRelease(&shared->lock);
	before_shmem_exit(WorkerExits, (Datum) 0);
}

void
Leave(WorkerExit reason)
{
	if (records_partitions)
		InterruptIndexWorker();
	my_slot->exit = reason;
	proc_exit(0);
}

bool
DatabaseIsWanted(Oid database)
{
	LOCKTAG		tag;
	int			count;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	pfree(GetLockConflicts(&tag, RowExclusiveLock, &count));
	return count > 0;
}

bool
LauncherIsGone(void)
{
	return !SharedMemoryIsPreloaded() && shared->launcher == NULL;
}

void
TakeWish(void)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	my_slot->wanted = false;
	LWLockRelease(&shared->lock);
}

void
AskForWorker(WorkerClass class, int number)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	(void) WantWorker(MyDatabaseId, class, number);
	LWLockRelease(&shared->lock);
}

/* One process a class, number and database; ownership is a lock, not a clock. */
void
StayOwner(void)
{
	LOCKTAG		tag;

	SetWorkerLockTag(&tag, my_extension, my_class, my_number);
	if (LockHeldByMeCompat(&tag, ExclusiveLock))
		return;
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another process is %s worker %d of incsink in database %u",
						WorkerClassName(my_class), my_number, MyDatabaseId)));
}

void
FindExtension(void)
{
	TakeWish();

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	my_extension = ExtensionOid();
	if (OidIsValid(my_extension))
		StayOwner();
	INCSINK_POINT("worker-start-commit");
	CommitTransactionCommand();
	if (!OidIsValid(my_extension))
		Leave(EXIT_NOTHING_TO_DO);
}

void
StayWithExtension(void)
{
	if (ExtensionOid() != my_extension)
		Leave(ExtensionIsInstalled() ? EXIT_LEFT : EXIT_NOTHING_TO_DO);
}

void
NoteError(const char *message)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	ClipText(my_slot->last_error, message, sizeof(my_slot->last_error));
	my_slot->last_error_time = GetCurrentTimestamp();
	LWLockRelease(&shared->lock);
}

void
ShowWaitingFor(const char *reason)
{
	if (strcmp(my_slot->waiting_for, reason ? reason : "") == 0)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	strlcpy(my_slot->waiting_for, reason ? reason : "", sizeof(my_slot->waiting_for));
	LWLockRelease(&shared->lock);
}
