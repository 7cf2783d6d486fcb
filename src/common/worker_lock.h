/*
 * worker_lock.h
 *		The locks by which workers own what they work on.
 *
 * The deliveries of a database fall into SHARES shares for each class of workers.
 * A worker holds a lock on its own number, and one on each share of which it has
 * deliveries.  They stand in the lock table: they end with their holder, whatever
 * ends it, and who holds them can be seen from everywhere, preloaded or not.
 */
#ifndef INCSINK_WORKER_LOCK_H
#define INCSINK_WORKER_LOCK_H

#include "postgres.h"

#include "common/shared.h"

#define SHARES 64
#define WORKERS_MAX 16			/* of a class, in a database */

/* 0 to SHARES - 1; the same in every process and release. */
extern int	ShareOf(int64 sink_id, int64 partition_id);

extern void SetWorkerLockTag(LOCKTAG *tag, Oid extension, WorkerClass class, int number);
extern void SetShareLockTag(LOCKTAG *tag, Oid extension, WorkerClass class, int share);

typedef struct WorkerLock
{
	pid_t		pid;			/* who holds it */
	WorkerClass class;
	int			number;			/* -1: it is a share's */
	int			share;			/* -1: it is a worker's own */
} WorkerLock;

/* Those that are held in this database; palloc'd.  Copies the whole lock table. */
extern WorkerLock *ListWorkerLocks(Oid extension, int *count);

#endif							/* INCSINK_WORKER_LOCK_H */
