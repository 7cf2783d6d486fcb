/*
 * backlog_reader.h
 *		The rows of a backlog: of all its parts, one part after the other.
 *
 * A part is read with a snapshot of its own, taken when its relation is locked: its
 * rows were there at attach, so that there is no horizon to be newer than.
 */
#ifndef INCSINK_BACKLOG_READER_H
#define INCSINK_BACKLOG_READER_H

#include "postgres.h"

#include "cache/backlog.h"
#include "cache/open_storage.h"
#include "common/token.h"

typedef struct BacklogReader BacklogReader;

/*
 * Before the first of the rows in (since, until], both inside the backlog; until is a
 * position with its key or POSITION_BACKLOG_END.  "root" is the partition's relation,
 * open and locked.  A part whose relation is gone is passed over.  Everything lives in
 * CurrentMemoryContext.  Raises ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE for a part whose
 * key index is gone.
 */
extern ReaderStatus BacklogReaderOpen(const Partition *partition, Relation root, bool wait,
									  Position since, Position until, BacklogReader **result);

/* The next row, in the shape of the partition and good until the next call, or NULL. */
extern TupleTableSlot *BacklogReaderNext(BacklogReader *reader);

/* True if it ended because a part is locked by somebody else. */
extern bool BacklogReaderStopped(BacklogReader *reader);

/* The row of the last call is one that counts: see ReaderPositionBefore(). */
extern void BacklogReaderKeep(BacklogReader *reader);

/* Of the last row; of the row kept before the last one kept.  In CurrentMemoryContext. */
extern Position BacklogReaderPosition(BacklogReader *reader);
extern Position BacklogReaderPositionBefore(BacklogReader *reader);

extern void BacklogReaderClose(BacklogReader *reader);

#endif							/* INCSINK_BACKLOG_READER_H */
