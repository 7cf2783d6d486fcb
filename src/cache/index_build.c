/*
 * index_build.c
 *		The index on the numbers: at once on small tables, later on large ones.
 *
 * On a partitioned table the leaves' indexes are what is read by.  That of the root
 * gives every new leaf one; it is valid when all of them have joined it.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cache/attach.h"
#include "cache/attach_lock.h"
#include "cache/index_build.h"
#include "cache/seq_index.h"
#include "cache/storage.h"
#include "common/settings.h"

/* Is there an index on the column by which the relation's numbers can be read? */
static bool
HasSeqIndex(Oid relid, const char *column, bool in_tree)
{
	AttrNumber	attnum = get_attnum(relid, column);
	SeqIndex	found;

	return attnum > 0 && FindSeqIndex(relid, attnum, in_tree, &found);
}

/* The index of a partitioned table that was made for it, valid or not, or InvalidOid. */
static Oid
PartitionedIndex(Oid relid, const char *column)
{
	List	   *made = ListMadeIndexes(relid, get_attnum(relid, column), true);

	return made != NIL ? ((MadeIndex *) linitial(made))->index : InvalidOid;
}

static void
JoinIndex(Oid parent_index, Oid index)
{
	RunStatement("ALTER INDEX %s ATTACH PARTITION %s", QuotedRelationName(parent_index),
				 QuotedRelationName(index));
}

/*
 * Makes the indexes of a partitioned table and of those below it, without their
 * leaves', which takes no time.  All are locked.
 */
static void
MakePartitionedIndexes(Oid relid, Oid parent_index, const char *column)
{
	Oid			index = PartitionedIndex(relid, column);
	ListCell   *cell;

	check_stack_depth();
	if (!OidIsValid(index))
	{
		RunStatement("CREATE INDEX ON ONLY %s (%s) WHERE %s > 0", QuotedRelationName(relid),
					 quote_identifier(column), quote_identifier(column));
		index = PartitionedIndex(relid, column);
	}
	if (OidIsValid(parent_index) && !get_rel_relispartition(index))
		JoinIndex(parent_index, index);
	foreach(cell, find_inheritance_children(relid, NoLock))
	{
		if (get_rel_relkind(lfirst_oid(cell)) == RELKIND_PARTITIONED_TABLE)
			MakePartitionedIndexes(lfirst_oid(cell), index, column);
	}
}

/* What CREATE INDEX would have to read, TOAST left out. */
static bool
IsLarge(List *relations)
{
	uint64		blocks = 0;
	ListCell   *cell;

	foreach(cell, relations)
	{
		Relation	rel = table_open(lfirst_oid(cell), NoLock);

		blocks += RelationGetNumberOfBlocks(rel);
		table_close(rel, NoLock);
	}
	return blocks * (BLCKSZ / 1024) > (uint64) setting_attach_index_size;
}

void
DropUnfinishedIndexes(Oid relid, const char *column)
{
	ListCell   *cell;

	foreach(cell, ListMadeIndexes(relid, get_attnum(relid, column), false))
	{
		MadeIndex  *index = lfirst(cell);

		if (!index->finished && !index->joined)
			RunStatement("DROP INDEX %s", QuotedRelationName(index->index));
	}
}

bool
BuildOrPostponeIndex(Oid relid, const char *column)
{
	bool		in_tree = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE;

	if (HasSeqIndex(relid, column, in_tree))
		return false;
	if (!in_tree)
		DropUnfinishedIndexes(relid, column);
	if (!IsLarge(in_tree ? ListTreeLeaves(relid) : list_make1_oid(relid)) &&
		!(in_tree && OidIsValid(PartitionedIndex(relid, column))))
	{
		RunStatement("CREATE %sINDEX ON %s (%s) WHERE %s > 0", in_tree ? "" : "UNIQUE ",
					 QuotedRelationName(relid), quote_identifier(column), quote_identifier(column));
		return false;
	}
	if (in_tree)
		MakePartitionedIndexes(relid, InvalidOid, column);
	return true;
}

List *
ListUnindexed(const Partition *partition)
{
	List	   *unindexed = NIL;
	ListCell   *cell;

	/* A root's index that is valid has one of every leaf. */
	if (HasSeqIndex(partition->relid, partition->seq_column, partition->tree))
		return NIL;
	if (!partition->tree)
		return list_make1_oid(partition->relid);
	foreach(cell, ListTreeLeaves(partition->relid))
	{
		if (!HasSeqIndex(lfirst_oid(cell), partition->seq_column, true))
			unindexed = lappend_oid(unindexed, lfirst_oid(cell));
	}
	return unindexed;
}

/* One whose column is gone cannot have an index: reading it says so. */
List *
ListUnindexedLeft(const Partition *partition)
{
	List	   *unindexed = NIL;
	ListCell   *cell;

	if (!partition->tree)
		return NIL;
	foreach(cell, LoadLeaves(partition->partition_id))
	{
		Leaf	   *leaf = lfirst(cell);

		if (leaf->left && leaf->left_at_seq > 0 &&
			get_attnum(leaf->relid, partition->seq_column) > 0 &&
			!HasSeqIndex(leaf->relid, partition->seq_column, true) &&
			!IsInAnotherTree(partition, leaf->relid))
			unindexed = lappend_oid(unindexed, leaf->relid);
	}
	return unindexed;
}

bool
IndexesAreThere(const Partition *partition)
{
	return ListUnindexed(partition) == NIL && ListUnindexedLeft(partition) == NIL;
}

/* The leaf's index that is to join its parent's, or InvalidOid. */
static Oid
UnjoinedIndex(Oid leaf, const char *column)
{
	Oid			index = InvalidOid;
	ListCell   *cell;

	foreach(cell, ListMadeIndexes(leaf, get_attnum(leaf, column), true))
	{
		MadeIndex  *made = lfirst(cell);

		if (made->joined)
			return InvalidOid;
		if (made->finished)
			index = made->index;
	}
	return index;
}

static List *
AddUnjoined(List *unjoined, Oid parent, const char *column)
{
	Oid			parent_index = PartitionedIndex(parent, column);
	ListCell   *cell;

	check_stack_depth();
	foreach(cell, find_inheritance_children(parent, NoLock))
	{
		Oid			child = lfirst_oid(cell);
		UnjoinedLeaf *leaf;

		if (get_rel_relkind(child) == RELKIND_PARTITIONED_TABLE)
			unjoined = AddUnjoined(unjoined, child, column);
		else if (OidIsValid(parent_index) && OidIsValid(UnjoinedIndex(child, column)))
		{
			leaf = palloc(sizeof(UnjoinedLeaf));
			leaf->parent = parent;
			leaf->leaf = child;
			unjoined = lappend(unjoined, leaf);
		}
	}
	return unjoined;
}

List *
ListUnjoined(const Partition *partition)
{
	if (!partition->tree || HasSeqIndex(partition->relid, partition->seq_column, true))
		return NIL;
	return AddUnjoined(NIL, partition->relid, partition->seq_column);
}

/* Locks come in the order in which others take them: table, leaf, index. */
void
JoinLeafIndex(const UnjoinedLeaf *leaf, const char *column)
{
	Oid			parent_index;
	Oid			index;

	LockRelationOid(leaf->parent, AccessShareLock);
	LockRelationOid(leaf->leaf, AccessShareLock);
	parent_index = PartitionedIndex(leaf->parent, column);
	index = UnjoinedIndex(leaf->leaf, column);
	if (!OidIsValid(parent_index) || !OidIsValid(index))
		return;
	LockTableForAttach(index);
	JoinIndex(parent_index, index);
}
