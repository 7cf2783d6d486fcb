/*
 * reader.h
 *		Rows of a partition in seq order, from the index, without SPI or planner.
 *
 * Cost is O(rows returned) whatever the size of the partition; no plan can flip.
 */
#ifndef INCSINK_READER_H
#define INCSINK_READER_H

#include "postgres.h"

#include "catalog/partition.h"
#include "common/token.h"
#include "executor/tuptable.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct Reader Reader;

/* Why a reader could not be opened now; not an ERROR, the turn skips the partition. */
typedef enum ReaderStatus
{
	READER_OK,
	READER_BUSY,				/* the relation is locked by somebody else */
	READER_GONE					/* the relation or its index is not there */
} ReaderStatus;

typedef struct ReaderOptions
{
	Oid			role;			/* whose privileges count: SELECT on the table
								 * or on every column read */
	char	  **columns;		/* NULL = all */
	int			ncolumns;
	const char *filter;			/* boolean expression over the row, or NULL */
	bool		wait_for_lock;	/* read functions wait, the worker never does */
} ReaderOptions;

/*
 * Opens the relation (AccessShareLock, kept to the end of the transaction), finds
 * the unique index on the seq column, checks privileges of "role" and that row
 * level security does not apply to it, resolves the columns and prepares the
 * filter.  Everything lives in CurrentMemoryContext.  Raises an ERROR that names
 * table and column for what no waiting mends (privilege, row security, unknown
 * column, bad filter).
 */
extern ReaderStatus ReaderOpen(const Partition *partition, const ReaderOptions *options,
							   Reader **reader);

/* Shape of what is exported: attribute numbers to encode, in order; never the internal ingest_seq. */
extern Relation ReaderRelation(Reader *reader);
extern void ReaderColumns(Reader *reader, const AttrNumber **attnums, int *nattnums);

/*
 * Positions before the first row of (since, until], read with "snapshot", which
 * must have been taken after the horizon that until is at or below.
 */
extern void ReaderStart(Reader *reader, Snapshot snapshot, Position since, Position until);

/*
 * Makes ReaderNext() end the range early, once it has read for that long; *position
 * is then that of the last row read, whether the filter passed it over or not.
 */
extern void ReaderStopAfter(Reader *reader, int milliseconds);
extern bool ReaderStopped(Reader *reader);

/*
 * The next row that passes the filter, or NULL at the end of the range.  The slot
 * is the reader's own.  *position is the row's position.
 */
extern TupleTableSlot *ReaderNext(Reader *reader, Position *position);

extern void ReaderClose(Reader *reader);

/*
 * A snapshot that sees everything that ended before now, whatever the isolation
 * level of the transaction; registered, to be given to UnregisterSnapshot().
 */
extern Snapshot TakeReadSnapshot(void);

/*
 * Flushes WAL up to the end of the last record inserted: a token for a row that a
 * crash takes back would skip others.  Does nothing on a standby.
 */
extern void FlushAllWal(void);

#endif							/* INCSINK_READER_H */
