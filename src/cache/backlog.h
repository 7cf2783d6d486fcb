/*
 * backlog.h
 *		The rows that a table had when it was attached.
 *
 * They have the number 0 and are read in the order of a unique index on NOT NULL
 * columns, up to the highest key at attach.  ctid order would be no order: an UPDATE
 * between two batches would lose a row.
 */
#ifndef INCSINK_BACKLOG_H
#define INCSINK_BACKLOG_H

#include "postgres.h"

#include "access/attnum.h"
#include "catalog/partition.h"
#include "common/token.h"
#include "executor/tuptable.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

/* An index in whose order a backlog can be read. */
typedef struct KeyIndex
{
	Oid			index;
	int			nkeys;
	AttrNumber	attnums[INDEX_MAX_KEYS];	/* of its key columns in the table */
	bool		descending;		/* all of its columns are */
} KeyIndex;

/*
 * Finds a valid, immediate unique btree index without predicate or expressions whose
 * key columns are all NOT NULL, in the order of their types and collations, and all
 * ascending or all descending: the primary key if it serves, else the one with the
 * fewest columns.  Looks at the catalog only.
 */
extern bool ChooseKeyIndex(Relation rel, KeyIndex *found);

/* The one on exactly these columns, in this order; false if there is none (any more). */
extern bool FindKeyIndex(Relation rel, char **columns, int ncolumns, KeyIndex *found);

/* "a, b": for messages. */
extern char *KeyColumnNames(char **columns, int ncolumns);

/*
 * Describes what the open relation, locked against writers, has now; NULL if it has no
 * row with 0 in its seq column (InvalidAttrNumber: no row at all).  A large one that has
 * a key may turn out to have none when it is read: to look would take too long.  Without
 * an index that serves, or one on the key of "like" where that has one, nkeys is 0.  In
 * CurrentMemoryContext.
 */
extern Backlog *DescribeBacklog(Relation rel, AttrNumber seq_attnum, const Backlog *like);

/* The key that the relation has, of rows that are not looked at; nkeys may be 0. */
extern Backlog *DescribeKey(Relation rel);

/*
 * The same of a partitioned table, whose leaves are locked: one order for all of them, as
 * long as one key serves in all that have rows; the table's own if it has one.
 */
extern Backlog *DescribeTreeBacklog(Relation root, List *leaves, const char *seq_column);

/* What the order of a column is, for Backlog.key_types; in CurrentMemoryContext. */
extern char *DescribeKeyType(Relation rel, AttrNumber attnum);

/*
 * Are the key columns there, and of the types and collations that they had?
 * RequireKeyColumns() raises ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE unless they are.
 */
extern bool KeyColumnsAreSame(Relation rel, const Backlog *backlog);
extern void RequireKeyColumns(Relation rel, const Backlog *backlog);

/* A scan of one relation; see backlog_reader.c. */
typedef struct BacklogScan BacklogScan;

/*
 * Rows of an open relation by its open index, with keys in (since, until]; NULL bounds
 * are the beginning and the backlog's last key.  Bounds are positions' keys.
 * Raises an ERROR for a bound that does not fit the key's types.  Rows that have a number
 * are none of the backlog, but come too, so that it is up to the caller how many of them
 * are passed at once.
 */
extern BacklogScan *BacklogScanBegin(Relation rel, Relation index, const KeyIndex *key,
									 const Backlog *backlog, AttrNumber seq_attnum,
									 Snapshot snapshot, Jsonb *since, Jsonb *until);
extern bool BacklogScanNext(BacklogScan *scan, TupleTableSlot *slot, bool *has_number);
extern void BacklogScanEnd(BacklogScan *scan);

/* The key of a position at the row in the slot, in CurrentMemoryContext. */
extern Jsonb *BacklogKeyOf(const KeyIndex *key, TupleTableSlot *slot);

/* The values of a key as columns of "desc" have them, in CurrentMemoryContext. */
extern Datum *BacklogKeyValues(TupleDesc desc, const KeyIndex *key, Jsonb *json);

/*
 * Raises ERRCODE_INVALID_PARAMETER_VALUE, like ParseToken(), unless the token's
 * position fits the partition's backlog: as many values as key columns, each readable as its column's type.  RequireKeyColumns() comes before that.
 */
extern void CheckBacklogPosition(const Partition *partition, Position position);

#endif							/* INCSINK_BACKLOG_H */
