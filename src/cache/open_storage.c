/*
 * open_storage.c
 *		A relation that holds rows of a partition, open for reading.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "cache/columns.h"
#include "cache/open_storage.h"

static Oid	busy_relation = InvalidOid;

Oid
ReaderBusyRelation(void)
{
	return busy_relation;
}

ReaderStatus
LockAndOpen(Oid relid, bool wait, Relation *rel)
{
	if (wait)
		LockRelationOid(relid, AccessShareLock);
	else if (!ConditionalLockRelationOid(relid, AccessShareLock))
	{
		busy_relation = relid;
		return READER_BUSY;
	}
	*rel = try_relation_open(relid, NoLock);
	if (*rel == NULL)
	{
		UnlockRelationOid(relid, AccessShareLock);
		return READER_GONE;
	}
	return READER_OK;
}

/*
 * Where a column of the tree stands in the leaf.  One that has left the tree may lack a
 * column (0: it is null), but one of another type is none that can be handed out.
 */
static AttrNumber
LeafAttribute(Relation leaf, Form_pg_attribute att)
{
	AttrNumber	attnum;
	Oid			type;

	if (att->attisdropped)
		return InvalidAttrNumber;
	attnum = get_attnum(RelationGetRelid(leaf), NameStr(att->attname));
	if (attnum <= 0)
		return InvalidAttrNumber;
	type = TupleDescAttr(RelationGetDescr(leaf), attnum - 1)->atttypid;
	if (type != att->atttypid)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" is of type %s, but of type %s in the partitioned table it was a leaf of",
						NameStr(att->attname), RelationDisplayName(leaf),
						format_type_be(type), format_type_be(att->atttypid)),
				 errhint("Give both the same type until its rows are exported.")));
	return attnum;
}

/* Prepares the change of shape if the leaf's differs. */
static void
MapLeafColumns(OpenStorage *storage, TupleDesc shape)
{
	AttrMap    *map = make_attrmap(shape->natts);
	bool		differs = false;

	for (int i = 0; i < shape->natts; i++)
	{
		map->attnums[i] = LeafAttribute(storage->rel, TupleDescAttr(shape, i));
		if (!TupleDescAttr(shape, i)->attisdropped && map->attnums[i] != i + 1)
			differs = true;
	}
	if (!differs)
	{
		free_attrmap(map);
		return;
	}
	storage->map = map;
	storage->shaped = MakeSingleTupleTableSlot(shape, &TTSOpsVirtual);
}

/* A leaf that has left may have lost its column before its rows were read. */
static AttrNumber
StorageSeqAttribute(Relation rel, Relation root, const Partition *partition)
{
	if (rel != root && get_attnum(RelationGetRelid(rel), partition->seq_column) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist any more",
						partition->seq_column, RelationDisplayName(rel)),
				 errdetail("It has left table \"%s\" with rows that are still to be read, whose numbers are lost.",
						   RelationDisplayName(root)),
				 errhint("If the column was renamed, give it its name again. Otherwise insert the rows that are to be exported into \"%s\" once more, and drop table \"%s\": incsink.loss will say that it had some.",
						 RelationDisplayName(root), RelationDisplayName(rel))));
	return SeqAttribute(rel, partition);
}

ReaderStatus
OpenStorageRelation(OpenStorage *storage, Oid relid, Relation root, const Partition *partition,
					bool wait)
{
	memset(storage, 0, sizeof(OpenStorage));
	storage->is_root = relid == RelationGetRelid(root);
	if (storage->is_root)
		storage->rel = root;
	else
	{
		ReaderStatus status = LockAndOpen(relid, wait, &storage->rel);

		if (status != READER_OK)
			return status;
		MapLeafColumns(storage, RelationGetDescr(root));
	}
	storage->seq_attnum = StorageSeqAttribute(storage->rel, root, partition);
	for (int i = 0; i < STORAGE_SLOTS; i++)
		storage->rows[i] = table_slot_create(storage->rel, NULL);
	return READER_OK;
}

ReaderStatus
OpenStorageIndex(OpenStorage *storage, Oid index, bool wait)
{
	return LockAndOpen(index, wait, &storage->index);
}

/* The locks stay until the end of the transaction. */
void
CloseStorage(OpenStorage *storage)
{
	for (int i = 0; i < STORAGE_SLOTS; i++)
		if (storage->rows[i])
			ExecDropSingleTupleTableSlot(storage->rows[i]);
	if (storage->shaped)
		ExecDropSingleTupleTableSlot(storage->shaped);
	if (storage->index)
		relation_close(storage->index, NoLock);
	if (storage->rel && !storage->is_root)
		relation_close(storage->rel, NoLock);
	memset(storage, 0, sizeof(OpenStorage));
}
