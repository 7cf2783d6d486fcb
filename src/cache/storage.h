/*
 * storage.h
 *		Which relations hold the rows of a partition.
 *
 * An ordinary table is its own storage.  The rows of a tree are in its leaves, and in
 * those that have left it but hold numbers that were not read yet; leaves are known
 * by OID.
 */
#ifndef INCSINK_STORAGE_H
#define INCSINK_STORAGE_H

#include "postgres.h"

#include "catalog/partition.h"
#include "nodes/pg_list.h"

typedef struct StoragePart
{
	Oid			relid;
	int64		until;			/* its numbers above this one are not the
								 * partition's; PG_INT64_MAX while in the tree */
} StoragePart;

/*
 * Lists them, of StoragePart, in CurrentMemoryContext, with the state of the catalog
 * as of now whatever the isolation level: rows below a horizon that was found before
 * the call are in one of them.  Leaves that left before "since" are left out.
 * Raises ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE for a leaf that is not in
 * incsink.leaf_def (see CheckLeaves).  Takes no lock.
 */
extern List *ListStorage(const Partition *partition, int64 since);

/* A row of incsink.leaf_def. */
typedef struct Leaf
{
	Oid			relid;
	bool		left;
	int64		left_at_seq;	/* if it left */
} Leaf;

/* List of Leaf, as of now whatever the isolation level. */
extern List *LoadLeaves(int64 partition_id);

/* OIDs of the relations of the tree that hold rows now, detached concurrently or not. */
extern List *ListTreeLeaves(Oid root);

/* Tree and record, each as of now, in the order of OIDs. */
typedef struct TreeReading
{
	List	   *in_tree;		/* of OIDs, as ListTreeLeaves() */
	List	   *recorded;		/* of Leaf */
	Oid			unknown;		/* the first that is in the tree and not on record
								 * so, or InvalidOid */
} TreeReading;

extern TreeReading ReadTree(const Partition *partition);

/*
 * Is a leaf that has left the partition's tree in another attached one?  Then the
 * numbers in it are that one's.
 */
extern bool IsInAnotherTree(const Partition *partition, Oid relid);

#endif							/* INCSINK_STORAGE_H */
