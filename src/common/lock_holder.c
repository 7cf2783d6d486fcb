/*
 * lock_holder.c
 *		Who holds a lock that is in the way, for people.
 */
#include "postgres.h"

#include "common/lock_holder.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/sinvaladt.h"
#if PG_VERSION_NUM >= 170000
#include "storage/procarray.h"
#endif

int
VirtualTransactionPid(VirtualTransactionId vxid)
{
	PGPROC	   *proc;

#if PG_VERSION_NUM >= 170000
	proc = vxid.procNumber == INVALID_PROC_NUMBER ? NULL : ProcNumberGetProc(vxid.procNumber);
#else
	proc = vxid.backendId == InvalidBackendId ? NULL : BackendIdGetProc(vxid.backendId);
#endif
	return proc ? proc->pid : 0;
}

char *
DescribeLockHolder(Oid relid)
{
	LOCKTAG		tag;
	VirtualTransactionId *holders;
	int			count;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	holders = GetLockConflicts(&tag, AccessShareLock, &count);
	for (int i = 0; i < count; i++)
	{
		int			pid = VirtualTransactionPid(holders[i]);

		if (pid != 0)
			return psprintf("the table is locked by process %d", pid);
	}
	if (count > 0)
		return pstrdup("the table is locked by a prepared transaction");
	return pstrdup("the table is locked, or another session waits to lock it; see pg_locks");
}
