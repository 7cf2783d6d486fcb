/*
 * sink_table.h
 *		What a sink exports: tables with a column list and a row filter.
 */
#ifndef INCSINK_API_SINK_TABLE_H
#define INCSINK_API_SINK_TABLE_H

#include "postgres.h"

#include "catalog/partition.h"
#include "catalog/sink.h"
#include "nodes/bitmapset.h"
#include "utils/rel.h"

typedef struct TableExport
{
	char	  **columns;		/* NULL = all */
	int			ncolumns;
	char	   *filter;			/* as stored, or NULL */
	Bitmapset  *filter_columns; /* offset by FirstLowInvalidHeapAttributeNumber */
	const char *start;			/* NULL = as the sink's option says */
} TableExport;

/* Everything, from where the sink's option says. */
#define EXPORT_ALL ((TableExport) {0})

/*
 * Adds an attached table to a sink after checking that the sink's owner may read
 * what is exported.  Needs an open SqlSession; locks the table in AccessShareLock
 * to the end of the transaction, so that it is not detached meanwhile.
 */
extern void AddTable(const SinkDefinition *sink, Oid relid, const TableExport *export);

/*
 * The highest seq of which it is certain now that nothing at or below it can still
 * be committed: where a delivery that starts "now" begins.  Waits for up to a second
 * and raises an ERROR for a partition whose sequence is unsound.
 */
extern int64 FindStartOfNow(Partition *partition);

#endif							/* INCSINK_API_SINK_TABLE_H */
