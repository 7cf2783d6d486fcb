/*
 * open_storage.h
 *		A relation that holds rows of a partition, open for reading.
 *
 * It is the attached table itself or, where that is a tree, a leaf of it, whose columns
 * may stand in another order or be fewer.
 */
#ifndef INCSINK_OPEN_STORAGE_H
#define INCSINK_OPEN_STORAGE_H

#include "postgres.h"

#include "access/attmap.h"
#include "access/tupconvert.h"
#include "catalog/partition.h"
#include "executor/tuptable.h"
#include "utils/rel.h"

/* Why a reader could not be opened now; not an ERROR, the turn skips the partition. */
typedef enum ReaderStatus
{
	READER_OK,
	READER_BUSY,				/* a relation is locked by somebody else */
	READER_GONE					/* the relation or its index is not there */
} ReaderStatus;

/* A row in hand, two before it and the next one. */
#define STORAGE_SLOTS 4

typedef struct OpenStorage
{
	Relation	rel;
	bool		is_root;		/* rel is the partition's, which its reader closes */
	Relation	index;			/* NULL before OpenStorageIndex() */
	AttrNumber	seq_attnum;
	TupleTableSlot *rows[STORAGE_SLOTS];	/* in the relation's own shape */
	AttrMap    *map;			/* to the shape of the partition */
	TupleTableSlot *shaped;		/* a row in that shape; NULL where it is the same */
} OpenStorage;

/*
 * Locks a relation in AccessShareLock, to the end of the transaction, and opens it;
 * waits for the lock only if told to.  READER_GONE leaves no lock behind.
 */
extern ReaderStatus LockAndOpen(Oid relid, bool wait, Relation *rel);

/* After READER_BUSY: the relation that is locked (a leaf, or an index). */
extern Oid	ReaderBusyRelation(void);

/*
 * Opens one with LockAndOpen(), for rows in the shape of the open relation of the
 * partition, "root", which it may be itself.  Whatever the status, CloseStorage() is
 * called in the end.  Raises an ERROR for a leaf that cannot be brought into the shape.
 */
extern ReaderStatus OpenStorageRelation(OpenStorage *storage, Oid relid, Relation root,
										const Partition *partition, bool wait);
extern ReaderStatus OpenStorageIndex(OpenStorage *storage, Oid index, bool wait);
extern void CloseStorage(OpenStorage *storage);

/* The row in one of storage->rows as one of the partition; good as long as that is. */
static inline TupleTableSlot *
StorageRow(OpenStorage *storage, TupleTableSlot *row)
{
	if (storage->shaped == NULL)
		return row;
	return execute_attr_map_slot(storage->map, row, storage->shaped);
}

#endif							/* INCSINK_OPEN_STORAGE_H */
