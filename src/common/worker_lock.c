/*
 * worker_lock.c
 *		The locks by which workers own what they work on.
 */
#include "postgres.h"

#include "catalog/pg_extension.h"
#include "common/hashfn.h"
#include "common/worker_lock.h"
#include "miscadmin.h"

/* Sub-objects of the extension's own object, where nothing else has any. */
#define CLASSES 3
#define WORKER_LOCK_SUBID 31010 /* CLASSES for each number */
#define SHARE_LOCK_SUBID 31100	/* SHARES for each class */

int
ShareOf(int64 sink_id, int64 partition_id)
{
	int64		key[2] = {sink_id, partition_id};

	return hash_bytes((unsigned char *) key, sizeof(key)) % SHARES;
}

void
SetWorkerLockTag(LOCKTAG *tag, Oid extension, WorkerClass class, int number)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, ExtensionRelationId, extension,
					   WORKER_LOCK_SUBID + number * CLASSES + class);
}

void
SetShareLockTag(LOCKTAG *tag, Oid extension, WorkerClass class, int share)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, ExtensionRelationId, extension,
					   SHARE_LOCK_SUBID + class * SHARES + share);
}

/* False if the lock is none of a worker. */
static bool
ReadLock(const LockInstanceData *instance, Oid extension, WorkerLock *lock)
{
	const LOCKTAG *tag = &instance->locktag;
	int			share = (int) tag->locktag_field4 - SHARE_LOCK_SUBID;
	int			worker = (int) tag->locktag_field4 - WORKER_LOCK_SUBID;

	if (tag->locktag_type != LOCKTAG_OBJECT || tag->locktag_field1 != MyDatabaseId ||
		tag->locktag_field2 != ExtensionRelationId || tag->locktag_field3 != extension ||
		(instance->holdMask & LOCKBIT_ON(ExclusiveLock)) == 0)
		return false;
	lock->pid = instance->pid;
	lock->number = lock->share = -1;
	if (share >= 0 && share < CLASSES * SHARES)
	{
		lock->class = (WorkerClass) (share / SHARES);
		lock->share = share % SHARES;
		return true;
	}
	if (worker < 0 || worker >= CLASSES * WORKERS_MAX)
		return false;
	lock->class = (WorkerClass) (worker % CLASSES);
	lock->number = worker / CLASSES;
	return true;
}

WorkerLock *
ListWorkerLocks(Oid extension, int *count)
{
	LockData   *table = GetLockStatusData();
	WorkerLock *locks = palloc(sizeof(WorkerLock) * Max(table->nelements, 1));

	*count = 0;
	for (int i = 0; i < table->nelements; i++)
		if (ReadLock(&table->locks[i], extension, &locks[*count]))
			(*count)++;
	return locks;
}
