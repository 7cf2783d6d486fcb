/*
 * attach_lock.h
 *		ACCESS EXCLUSIVE on a table that is in use, without a queue behind it.
 */
#ifndef INCSINK_ATTACH_LOCK_H
#define INCSINK_ATTACH_LOCK_H

#include "postgres.h"

#include "storage/lockdefs.h"

/*
 * Locks the relation, and the leaves of a partitioned one, in AccessExclusiveLock.
 * Whoever waits for that lock makes everybody after it wait; so each try waits for
 * some milliseconds only, and between two there is a pause in which writers go on.
 * An autovacuum in the way is cancelled, as the server would after deadlock_timeout.
 * Gives up after lock_timeout, or 30 s where that is not set, with
 * ERRCODE_LOCK_NOT_AVAILABLE and the pid of the holder.
 */
extern void LockTableForAttach(Oid relid);

/*
 * "process 4711" or the like: who holds a lock on the relation that conflicts with
 * the mode; palloc'd, NULL if nobody does now.
 */
extern char *DescribeLockHolders(Oid relid, LOCKMODE mode);

#endif							/* INCSINK_ATTACH_LOCK_H */
