/*
 * backlog_reader.h
 *		The rows of a backlog, in the order of its key.
 *
 * They are read with a snapshot taken when their relations are locked: they were there
 * at attach, so that there is no horizon to be newer than.
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
 * open and locked.  Everything lives in CurrentMemoryContext.  Raises
 * ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE where the key index is gone.
 */
extern ReaderStatus BacklogReaderOpen(const Partition *partition, Relation root, bool wait,
									  Position since, Position until, BacklogReader **result);

/*
 * The next row, in the shape of the partition and good until the next call, or NULL.
 * One that has a number counts as read, but is none of the backlog.
 */
extern TupleTableSlot *BacklogReaderNext(BacklogReader *reader, bool *has_number);

/* The row of the last call is one that counts: see ReaderPositionBefore(). */
extern void BacklogReaderKeep(BacklogReader *reader);

/* As ReaderGoesOnTie() and ReaderIsTied(): leaves may hold rows with the same key. */
extern bool BacklogReaderGoesOnTie(BacklogReader *reader);
extern bool BacklogReaderIsTied(BacklogReader *reader);

/*
 * Of the last row; of the row kept before the last one kept, or before those with its
 * key.  In CurrentMemoryContext.
 */
extern Position BacklogReaderPosition(BacklogReader *reader);
extern Position BacklogReaderPositionBefore(BacklogReader *reader);

/* The n of the last row. */
extern int64 BacklogReaderCount(BacklogReader *reader);

extern void BacklogReaderClose(BacklogReader *reader);

#endif							/* INCSINK_BACKLOG_READER_H */
