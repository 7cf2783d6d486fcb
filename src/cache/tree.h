/*
 * tree.h
 *		Partitioned tables as partitions: their leaves come and go.
 *
 * A leaf that joins the tree with numbers that were passed already would never be
 * seen.  So leaves are recorded by OID in incsink.leaf_def, by an event trigger, which
 * refuses those that bring rows; where it did not fire, the turn finds a leaf that is
 * not on record and halts the partition.
 */
#ifndef INCSINK_TREE_H
#define INCSINK_TREE_H

#include "postgres.h"

#include "cache/attach.h"
#include "cache/storage.h"
#include "catalog/partition.h"
#include "common/compat.h"
#include "utils/rel.h"

/* At attach: all leaves as they are; needs an open SqlSession. */
extern void RecordLeaves(const Partition *partition);

/*
 * After DDL on the tree of "root", in its transaction: leaves that joined are checked
 * and recorded, with a default for their numbers where the tree has no identity
 * (before 17); those that left get their highest number.  Raises an ERROR, with the
 * repair, for a leaf that brings rows that this transaction did not write, unless
 * incsink.allow_explicit_seq: then it is not recorded, and the partition halts until
 * incsink_renumber().  Needs no SqlSession.
 */
extern void SyncLeaves(Oid root);

/*
 * A relation is about to be dropped: if it is a leaf on record, or the first index of
 * one that goes, counts what some sink has not exported.  For object_access_hook.
 */
extern void CountBeforeDrop(Oid relid);

/*
 * A leaf is to join the tree of "partition": raises an ERROR if it has rows that
 * another tree's sinks have not exported, which would not read it any more.  Needs an open SqlSession.
 */
extern void RefuseOwedLeaf(const Partition *partition, Oid relid);

/* A leaf on record was dropped: records what was counted. */
extern void NoteDroppedLeaf(Oid relid);

/* Around every command: what it counted is for its own drops alone. */
typedef struct HTAB *DropCounts;
extern DropCounts BeginDropCounts(void);
extern void EndDropCounts(DropCounts outer);

/* Takes a leaf for known, its rows having been renumbered. */
extern void AcceptLeaf(int64 partition_id, Oid relid);

/* Root of the attached tree that the relation is in (or is), or InvalidOid. */
extern Oid	AttachedRoot(Oid relid);

/* The partitioned table that the relation is in at last; itself if in none. */
extern Oid	TopmostAncestor(Oid relid);

/* Is the relation in incsink.leaf_def, in the tree or not?  Needs the current catalog. */
extern bool IsRecordedLeaf(Oid relid);

/* Is there any row in incsink.leaf_def, or was there lately?  Costs no query. */
extern bool AnyLeafIsRecorded(void);

/* Puts a leaf on record, or what is known of one that returns; needs an open SqlSession. */
extern void RecordLeaf(int64 partition_id, Oid relid);

/*
 * Notes where the numbers of a leaf end that has left the tree; no change if a session
 * has its row locked.  Needs an open SqlSession.
 */
extern void RecordDeparture(int64 partition_id, Oid relid, int64 left_at_seq);

/* Why a leaf cannot be one that is exported, or NULL; and what to do about it. */
extern char *UnfitLeafReason(Oid relid);
extern char *UnfitLeafRepair(Oid relid);

/* The highest number in a leaf, as of now; 0 if it has none. */
extern int64 HighestNumber(Relation rel, AttrNumber attnum);

/* What is wrong with a leaf that is in the tree and not on record so, and the repair. */
extern void DescribeUnknownLeaf(const Partition *partition, const TreeReading *tree,
								char **error, char **hint);
pg_noreturn extern void RaiseUnknownLeaf(const Partition *partition, const TreeReading *tree);

/* Sets the default of a leaf that the tree's sequence does not number; not with an identity. */
extern void SetLeafDefault(const Partition *partition, Oid relid);

/*
 * Does the open leaf that joins hold nothing but rows that this transaction drew the
 * numbers for, or that it had when it left before?  "left" is what is on record then,
 * or NULL.
 */
extern bool JoiningRowsAreKnown(const Partition *partition, Relation rel, const Leaf *left);

/*
 * For a turn: is every leaf known, of a kind that can be read, and numbered by the
 * tree's sequence?  Notes what left without the event trigger.  False with what is
 * wrong, like CheckPartition(), which calls it.  Waits for no lock.
 */
extern bool LeavesAreSound(Partition *partition, char **error, char **hint);

#endif							/* INCSINK_TREE_H */
