/*
 * reader.h
 *		Rows of a partition, the backlog before what has numbers, in order, from indexes,
 *		without SPI or planner.
 *
 * Cost is O(rows returned) whatever the size of the partition; no plan can flip.
 */
#ifndef INCSINK_READER_H
#define INCSINK_READER_H

#include "postgres.h"

#include "catalog/partition.h"
#include "cache/open_storage.h"
#include "common/token.h"
#include "executor/tuptable.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct Reader Reader;

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
 * Opens the relation (AccessShareLock, kept to the end of the transaction), checks
 * privileges of "role" and that row level security does not apply to it, resolves the
 * columns and prepares the filter.  Everything lives in CurrentMemoryContext.  Raises
 * an ERROR that names table and column for what no waiting mends (privilege, row
 * security, unknown column, bad filter).
 */
extern ReaderStatus ReaderOpen(const Partition *partition, const ReaderOptions *options,
							   Reader **reader);

/* Shape of what is exported: attribute numbers to encode, in order; never the internal ingest_seq. */
extern Relation ReaderRelation(Reader *reader);
extern void ReaderColumns(Reader *reader, const AttrNumber **attnums, int *nattnums);

/*
 * Positions before the first row of (since, until].  A range lies inside the backlog
 * (since is not over it; until is a position with its key or POSITION_BACKLOG_END) or
 * above it.  Opens the relations that hold its rows, leaves too, and their indexes,
 * locked like the relation, and reads with snapshots taken after that: newer than a
 * rewrite of any of them, and than the horizon that until is at or below.  May be
 * called again for another range.
 */
extern ReaderStatus ReaderStart(Reader *reader, Position since, Position until);

/*
 * Makes ReaderNext() end the range early, once it has read for that long and is not
 * tied.
 */
extern void ReaderStopAfter(Reader *reader, int milliseconds);
extern bool ReaderStopped(Reader *reader);

/*
 * The next row that passes the filter, or NULL at the end of the range.  The slot is
 * the reader's own, shaped like the relation, and good until the next call.
 */
extern TupleTableSlot *ReaderNext(Reader *reader);

/*
 * Position of the last row read, whether the filter passed it over or not; since, if
 * there was none.  With its key, in CurrentMemoryContext or the reader's.
 */
extern Position ReaderPosition(Reader *reader);

/* The same without the key, which costs to make. */
extern Position ReaderPlace(Reader *reader);

/*
 * After ReaderNext() has returned a row: position of the one that it returned before,
 * or of the one before all that have the same number as the last one.
 */
extern Position ReaderPositionBefore(Reader *reader);

/*
 * Only in leaves, where nothing keeps numbers apart, two rows may have one number; no
 * batch and no token may end between the two.  Is the last row the second of such two?
 * Is it the first of them?  The latter looks ahead past the filter.
 */
extern bool ReaderGoesOnTie(Reader *reader);
extern bool ReaderIsTied(Reader *reader);

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
