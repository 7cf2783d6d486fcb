/*
 * seq_index.h
 *		The unique index on the seq column, found by its shape.
 */
#ifndef INCSINK_SEQ_INDEX_H
#define INCSINK_SEQ_INDEX_H

#include "postgres.h"

#include "access/attnum.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"

typedef struct SeqIndex
{
	Oid			index;
	bool		partial;		/* only rows with seq_col > 0 */
	bool		descending;
} SeqIndex;

/*
 * Finds a valid unique btree index whose only key is the column and that holds
 * every row above 0; one without a predicate is preferred.  In a leaf of a tree,
 * where numbers are not unique, it need not be unique and may have more columns.
 * False if there is none.  Looks at the catalog only: needs no lock, and promises
 * nothing for later to callers that hold none.
 */
extern bool FindSeqIndex(Oid relid, AttrNumber attnum, bool in_tree, SeqIndex *found);

/* An index that is as attach makes it: one column, rows above 0, unique or (in trees) not. */
typedef struct MadeIndex
{
	Oid			index;
	bool		finished;		/* neither half built nor half dropped */
	bool		joined;			/* to the index of a partitioned table */
} MadeIndex;

/* List of MadeIndex, in CurrentMemoryContext. */
extern List *ListMadeIndexes(Oid relid, AttrNumber attnum, bool in_tree);

/*
 * The lowest or the highest value of committed rows in the index of the open
 * relation, as of now; false if there is none.
 */
extern bool SeqIndexBound(Relation rel, const SeqIndex *index, AttrNumber attnum,
						  bool lowest, int64 *bound);

#endif							/* INCSINK_SEQ_INDEX_H */
