/*
 * index_concurrently.h
 *		CREATE INDEX CONCURRENTLY from a background process.
 */
#ifndef INCSINK_INDEX_CONCURRENTLY_H
#define INCSINK_INDEX_CONCURRENTLY_H

#include "postgres.h"

/*
 * Outside of a transaction: builds the index on the column of an ordinary table or a
 * leaf, unless there is one that serves or the table is gone, after dropping what an
 * earlier attempt left.  No statement is kept waiting by it but those that would
 * change the table.
 *
 * Raises an ERROR, with the caller to abort the transaction that is open then and to
 * call EndBuild(): ERRCODE_LOCK_NOT_AVAILABLE with the holder's pid,
 * ERRCODE_UNIQUE_VIOLATION, ERRCODE_QUERY_CANCELED...
 */
extern void BuildIndexConcurrently(Oid relid, const char *column, bool in_tree);

/* Puts back what a build has set for this process.  Outside of a transaction. */
extern void EndBuild(void);

#endif							/* INCSINK_INDEX_CONCURRENTLY_H */
