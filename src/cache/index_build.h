/*
 * index_build.h
 *		The index on the numbers: at once on small tables, later on large ones.
 */
#ifndef INCSINK_INDEX_BUILD_H
#define INCSINK_INDEX_BUILD_H

#include "postgres.h"

#include "catalog/partition.h"
#include "nodes/pg_list.h"

/*
 * In incsink_attach(), the table being locked: builds the index if the table is small
 * (setting incsink.attach_index_size, kB) or has one that serves; otherwise true: it
 * is to be built by the worker, and the partition is preparing.  On a tree the root's
 * index is made at once, without those of large leaves.
 */
extern bool BuildOrPostponeIndex(Oid relid, const char *column);

/* Every relation that holds rows has its index, leaves that have left too: nothing is to be built. */
extern bool IndexesAreThere(const Partition *partition);

/* OIDs of those that have none, of a tree only those that are in it now. */
extern List *ListUnindexed(const Partition *partition);

/*
 * OIDs of leaves that have left with numbers, and have none.  Whether anybody still
 * has to read them is not asked.
 */
extern List *ListUnindexedLeft(const Partition *partition);

/*
 * Drops what a build that was broken off has left on an ordinary table, which is
 * locked.
 */
extern void DropUnfinishedIndexes(Oid relid, const char *column);

/*
 * Leaves whose index has not joined their parent's, of UnjoinedLeaf: the root's is not
 * valid until all have, and as long each turn looks at all leaves.
 */
typedef struct UnjoinedLeaf
{
	Oid			parent;
	Oid			leaf;
} UnjoinedLeaf;

extern List *ListUnjoined(const Partition *partition);

/*
 * Joins it, under a lock on the index that is taken as LockTableForAttach() does,
 * because it keeps those who use the leaf waiting.  ERRCODE_LOCK_NOT_AVAILABLE if it
 * is not to be had.
 */
extern void JoinLeafIndex(const UnjoinedLeaf *leaf, const char *column);

/*
 * For the process of class WORKER_INDEX, outside of a transaction: builds what is
 * missing with CREATE INDEX CONCURRENTLY, after dropping what a crash left invalid,
 * and ends the task.  Returns when there is nothing to do or nothing could be done
 * now; milliseconds until it is worth another try, or -1: no task is left.
 */
extern long BuildPendingIndexes(void);

#endif							/* INCSINK_INDEX_BUILD_H */
