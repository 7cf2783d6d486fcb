/*
 * index_worker.h
 *		The process that builds the indexes of large tables.
 */
#ifndef INCSINK_INDEX_WORKER_H
#define INCSINK_INDEX_WORKER_H

#include "postgres.h"

#include "common/compat.h"

/* Works on index tasks until there is none; does not return. */
pg_noreturn extern void IndexWorkerLoop(void);

/*
 * For the first forward worker, whose loop goes on while a build waits.  Breaks off what
 * the index worker of this database does now; it begins again, or leaves if that is
 * what it finds to do.
 */
extern void InterruptIndexWorker(void);

/*
 * The same if somebody waits to lock a table that the index worker builds on:
 * behind that one all who use the table wait.
 */
extern void GiveWayToLocks(void);

#endif							/* INCSINK_INDEX_WORKER_H */
