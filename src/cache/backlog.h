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
 * row with 0 in its seq column (InvalidAttrNumber: no row at all).  Without an index
 * that serves nkeys is 0.  In CurrentMemoryContext; part is the caller's to set.
 */
extern BacklogPart *DescribeBacklog(Relation rel, AttrNumber seq_attnum);

/* A scan of one part; see backlog_reader.c. */
typedef struct BacklogScan BacklogScan;

/*
 * Rows of the open relation and index of a part with 0 in the seq column and keys in
 * (since, until]; NULL bounds are the beginning and the part's last key.  Bounds are
 * positions' keys.  Raises an ERROR for a bound that does not fit the key's types.
 */
extern BacklogScan *BacklogScanBegin(Relation rel, Relation index, const KeyIndex *key,
									 const BacklogPart *part, AttrNumber seq_attnum,
									 Snapshot snapshot, Jsonb *since, Jsonb *until);
extern bool BacklogScanNext(BacklogScan *scan, TupleTableSlot *slot);
extern void BacklogScanEnd(BacklogScan *scan);

/* The key of a position at the row in the slot, in CurrentMemoryContext. */
extern Jsonb *BacklogKeyOf(const KeyIndex *key, int part, TupleTableSlot *slot);

/*
 * The values of a key, which has a part before them or has not, as columns of "desc"
 * have them, in CurrentMemoryContext.
 */
extern Datum *BacklogKeyValues(TupleDesc desc, const KeyIndex *key, Jsonb *json, bool has_part);

/* The part that a position's key names; 0 for one that is over or has no key. */
extern int	BacklogKeyPart(Jsonb *key);

/*
 * Raises ERRCODE_INVALID_PARAMETER_VALUE, like ParseToken(), unless the token's
 * position fits the partition's backlog: a part that there is, as many values as key
 * columns, each readable as its column's type.
 */
extern void CheckBacklogPosition(const Partition *partition, Position position);

#endif							/* INCSINK_BACKLOG_H */
