/*
 * partition_access.h
 *		Partitions and tokens as callers of read functions name them.  Private to src/api.
 */
#ifndef INCSINK_PARTITION_ACCESS_H
#define INCSINK_PARTITION_ACCESS_H

#include "postgres.h"

#include "catalog/partition.h"
#include "common/token.h"
#include "utils/rel.h"

/* The partition of a table that the caller may read any column of, or an ERROR. */
extern Partition *RequireAttached(Oid relid);

/* Raises an ERROR for a column that cannot be read; waits for no lock longer than a query would. */
extern void CheckColumns(const Partition *partition, char **columns, int ncolumns);

/* Takes a token apart and raises an ERROR unless it is good for the partition. */
extern Position AcceptToken(const Partition *partition, Jsonb *token);

/* Does reading from the position begin inside the backlog? */
extern bool IsInBacklog(const Partition *partition, Position position);

/*
 * Raises an ERROR unless the caller may read the key columns of the backlog, in the open
 * relation: their values stand in tokens.
 */
extern void CheckKeyPrivileges(const Partition *partition, Relation rel);

/* What is to be read is gone or changed just now. */
extern void RaiseBeingChanged(const Partition *partition);

/* The token is above the last number drawn. */
extern void RaiseTokenAhead(const Partition *partition);

#endif							/* INCSINK_PARTITION_ACCESS_H */
