/*
 * read_rows.h
 *		Rows on their way out of a read function.  Private to src/api.
 */
#ifndef INCSINK_READ_ROWS_H
#define INCSINK_READ_ROWS_H

#include "postgres.h"

#include "catalog/partition.h"
#include "common/token.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"

/* What a read function was asked for. */
typedef struct ReadRequest
{
	Oid			relid;
	bool		typed;			/* data is a row of the table, not jsonb */
	Jsonb	   *since;			/* NULL: from the beginning */
	char	  **columns;		/* NULL: all */
	int			ncolumns;
	int64		max_rows;
	int64		wait;			/* milliseconds; 0: not at all */
} ReadRequest;

/*
 * Turns rows into (data, token) and puts them into the result.  The columns to
 * hand out stand at places[i] of the slots that come, and at attnums[i] of the
 * table.
 */
typedef struct RowWriter RowWriter;

extern RowWriter *BeginRows(ReturnSetInfo *result, const Partition *partition, bool typed,
							Relation rel, TupleDesc source, const AttrNumber *places,
							const AttrNumber *attnums, int ncolumns);

/* The next row's own memory: reset by WriteRow(). */
extern MemoryContext RowContext(RowWriter *writer);
extern void WriteRow(RowWriter *writer, TupleTableSlot *slot, Position position);
extern void EndRows(RowWriter *writer);

/*
 * The rows in (since, until] through the executor, for a caller whom policies of the
 * table apply to; the backlog's first if since is inside it.
 */
extern void ReadThroughPolicies(const ReadRequest *request, const Partition *partition,
								Position since, Position until, ReturnSetInfo *result);

#endif							/* INCSINK_READ_ROWS_H */
