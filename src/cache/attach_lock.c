/*
 * attach_lock.c
 *		ACCESS EXCLUSIVE on a table that is in use, without a queue behind it.
 *
 * A request for the lock that waits keeps everybody who comes after it waiting, too
 * (storage/lmgr/README: a new request must not conflict with those that wait).  So
 * the wait is cut into tries.
 */
#include "postgres.h"

#include <signal.h>

#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "cache/attach_lock.h"
#include "common/lock_holder.h"
#include "common/subtransaction.h"

#define TRY_MS 50				/* how long a writer may find us in its way */
#define FIRST_PAUSE_MS 50
#define LONGEST_PAUSE_MS 500
#define DEFAULT_LIMIT_MS 30000
#define NAMED_HOLDERS 5			/* in a message */

/* One try. */
typedef struct LockTry
{
	Oid			relid;
	TimestampTz until;
	Oid			waits_for;		/* relation whose lock was asked for last */
} LockTry;

char *
DescribeLockHolders(Oid relid, LOCKMODE mode)
{
	LOCKTAG		tag;
	VirtualTransactionId *holders;
	StringInfoData pids;
	int			count;
	int			npids = 0;
	char	   *text;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	holders = GetLockConflicts(&tag, mode, &count);
	if (count == 0)
		return NULL;
	initStringInfo(&pids);
	for (int i = 0; i < count; i++)
	{
		int			pid = VirtualTransactionPid(holders[i]);

		if (pid == 0)
			continue;
		if (npids < NAMED_HOLDERS)
			appendStringInfo(&pids, "%s%d", npids > 0 ? ", " : "", pid);
		npids++;
	}
	if (npids == 0)
		text = pstrdup("a prepared transaction");
	else if (npids > NAMED_HOLDERS)
		text = psprintf("%d processes, among them %s", npids, pids.data);
	else
		text = psprintf("%s %s", npids == 1 ? "process" : "processes", pids.data);
	pfree(pids.data);
	pfree(holders);
	return text;
}

/* For the rest of the try; undone with its subtransaction or by TryLock(). */
static void
SetLockTimeout(long timeout_ms)
{
	char		value[32];

	snprintf(value, sizeof(value), "%ld", timeout_ms);
	(void) set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

static void
LockOne(LockTry *try, Oid relid)
{
	long		left;

	try->waits_for = relid;
	if (ConditionalLockRelationOid(relid, AccessExclusiveLock))
		return;
	left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), try->until);
	SetLockTimeout(Max(left, 1));
	LockRelationOid(relid, AccessExclusiveLock);
}

/*
 * A partitioned table that is locked keeps its children.  Parents come before their
 * children, and children in the order of their OIDs, as the server locks them.
 */
static void
LockWithChildren(LockTry *try, Oid relid)
{
	List	   *children;
	ListCell   *cell;

	check_stack_depth();
	LockOne(try, relid);
	if (get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		return;
	children = find_inheritance_children(relid, NoLock);
	foreach(cell, children)
		LockWithChildren(try, lfirst_oid(cell));
	list_free(children);
}

/* For InSubtransaction(): what was locked is let go if one lock is not to be had. */
static void
TryLock(void *arg)
{
	LockTry    *try = arg;
	int			nest_level = NewGUCNestLevel();

	LockWithChildren(try, try->relid);
	AtEOXact_GUC(true, nest_level);
}

/*
 * Does what ProcSleep() (storage/lmgr/proc.c) does for one who has waited for
 * deadlock_timeout; our tries are too short for that.
 */
static void
CancelAutovacuum(Oid relid)
{
	LOCKTAG		tag;
	VirtualTransactionId *holders;
	int			count;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	holders = GetLockConflicts(&tag, AccessExclusiveLock, &count);
	for (int i = 0; i < count; i++)
	{
		int			pid = VirtualTransactionPid(holders[i]);
		PGPROC	   *proc = pid != 0 ? BackendPidGetProc(pid) : NULL;
		uint8		flags;

		if (proc == NULL)
			continue;
		LWLockAcquire(ProcArrayLock, LW_SHARED);
		flags = proc->statusFlags;
		LWLockRelease(ProcArrayLock);
		if ((flags & PROC_IS_AUTOVACUUM) && !(flags & PROC_VACUUM_FOR_WRAPAROUND))
		{
			ereport(DEBUG1,
					(errmsg_internal("sending cancel to blocking autovacuum PID %d", pid)));
			(void) kill(pid, SIGINT);
		}
	}
	pfree(holders);
}

static void
Pause(long pause_ms)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pause_ms);
	long		left;

	while ((left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until)) > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* The name of a relation that is not locked may be gone. */
static void
GiveUp(Oid relid, int limit_ms)
{
	char	   *holders = DescribeLockHolders(relid, AccessExclusiveLock);
	char	   *table = get_rel_name(relid);
	char	   *schema = table ? get_namespace_name(get_rel_namespace(relid)) : NULL;

	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock relation \"%s.%s\" within %d ms",
					schema ? schema : "?", table ? table : "?", limit_ms),
			 holders ? errdetail("It is locked by %s.", holders)
			 : errdetail("It was locked by another session at each try."),
			 errhint("Try again when that transaction has ended; lock_timeout says how long to try, by default 30 s. Or run LOCK TABLE before, in the same transaction: that waits in the queue, and others behind it.")));
}

void
LockTableForAttach(Oid relid)
{
	TimestampTz start = GetCurrentTimestamp();
	int			limit_ms = LockTimeout > 0 ? LockTimeout : DEFAULT_LIMIT_MS;
	long		pause_ms = FIRST_PAUSE_MS;

	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		LockTry		try = {relid, TimestampTzPlusMilliseconds(now, Min(TRY_MS, limit_ms)), relid};
		ErrorData  *error = InSubtransaction(TryLock, &try);

		if (error == NULL)
			return;
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		FreeErrorData(error);
		now = GetCurrentTimestamp();
		if (TimestampDifferenceExceeds(start, now, limit_ms))
			GiveUp(try.waits_for, limit_ms);
		if (TimestampDifferenceExceeds(start, now, Min(DeadlockTimeout, limit_ms / 2)))
			CancelAutovacuum(try.waits_for);
		Pause(pause_ms);
		pause_ms = Min(pause_ms + pause_ms / 4, LONGEST_PAUSE_MS);
	}
}
