/*
 * columns.h
 *		Which columns of a partition leave it, and who may read them.
 */
#ifndef INCSINK_COLUMNS_H
#define INCSINK_COLUMNS_H

#include "postgres.h"

#include "access/attnum.h"
#include "catalog/partition.h"
#include "nodes/bitmapset.h"
#include "utils/rel.h"

/* "schema.table", for messages. */
extern char *RelationDisplayName(Relation rel);

/* Attribute number of the seq column; ERROR if the table has none of that name. */
extern AttrNumber SeqAttribute(Relation rel, const Partition *partition);

/*
 * The columns to hand out, in the table's order: all of them or those listed, never
 * the internal ingest_seq (an adopted column is one of the user's).  Raises an
 * ERROR for a column that is unknown, listed twice or not to be handed out.
 */
extern AttrNumber *ResolveColumns(Relation rel, const Partition *partition,
								  char **columns, int ncolumns, int *nattnums);

/*
 * Raises an ERROR unless "role" may SELECT the table or every column read: those
 * handed out and, where not NULL, those in "more" (offset as pull_varattnos() has
 * it).
 */
extern void CheckReadPrivileges(Relation rel, Oid role, const AttrNumber *attnums,
								int nattnums, Bitmapset *more);

#endif							/* INCSINK_COLUMNS_H */
