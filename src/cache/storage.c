/*
 * storage.c
 *		Which relations hold the rows of a partition.
 *
 * pg_inherits is read with a snapshot of the catalog's own and incsink.leaf_def with
 * the latest one, so that both show what was committed before the call, also in
 * REPEATABLE READ: a leaf, its row there and its rows are committed together.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cache/storage.h"
#include "cache/tree.h"
#include "common/sql.h"

/* Attribute numbers of incsink.leaf_def, see sql/incsink--0.2.sql. */
#define LEAF_PARTITION_ID 1
#define LEAF_RELID 2
#define LEAF_LEFT_AT_SEQ 5

/* How often tree and record are read before they count as different. */
#define TREE_READINGS 3

static void
AddLeaves(Oid parent, List **leaves)
{
	ListCell   *cell;

	check_stack_depth();
	foreach(cell, find_inheritance_children_extended(parent, false, NoLock, NULL, NULL))
	{
		Oid			child = lfirst_oid(cell);
		char		relkind = get_rel_relkind(child);

		if (relkind == RELKIND_PARTITIONED_TABLE)
			AddLeaves(child, leaves);
		else if (relkind != '\0')
			*leaves = lappend_oid(*leaves, child);
	}
}

/*
 * One that is being detached concurrently gets rows of statements planned before
 * until the second half of the command.
 */
List *
ListTreeLeaves(Oid root)
{
	List	   *leaves = NIL;

	AddLeaves(root, &leaves);
	return leaves;
}

List *
LoadLeaves(int64 partition_id)
{
	Relation	rel = table_open(CatalogRelation("leaf_def"), AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *leaves = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, LEAF_PARTITION_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(partition_id));
	scan = systable_beginscan(rel, CatalogRelation("leaf_def_pkey"), true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Leaf	   *leaf = palloc0(sizeof(Leaf));
		bool		isnull;
		Datum		left;

		leaf->relid = DatumGetObjectId(heap_getattr(tuple, LEAF_RELID, RelationGetDescr(rel), &isnull));
		left = heap_getattr(tuple, LEAF_LEFT_AT_SEQ, RelationGetDescr(rel), &isnull);
		leaf->left = !isnull;
		leaf->left_at_seq = isnull ? 0 : DatumGetInt64(left);
		leaves = lappend(leaves, leaf);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return leaves;
}

static int
CompareLeaves(const ListCell *a, const ListCell *b)
{
	Oid			left = ((Leaf *) lfirst(a))->relid;
	Oid			right = ((Leaf *) lfirst(b))->relid;

	return left < right ? -1 : left > right;
}

/* The first leaf that is not on record as being in the tree; both lists are in order. */
static Oid
FindUnknownLeaf(List *in_tree, List *recorded)
{
	ListCell   *record = list_head(recorded);
	ListCell   *cell;

	foreach(cell, in_tree)
	{
		Oid			relid = lfirst_oid(cell);

		while (record && ((Leaf *) lfirst(record))->relid < relid)
			record = lnext(recorded, record);
		if (record == NULL || ((Leaf *) lfirst(record))->relid != relid ||
			((Leaf *) lfirst(record))->left)
			return relid;
	}
	return InvalidOid;
}

/*
 * The record is read after the tree, so a leaf that has joined is there.  One that
 * leaves or is dropped in between is gone when both are read again.
 */
TreeReading
ReadTree(const Partition *partition)
{
	TreeReading tree;

	for (int i = 0; i < TREE_READINGS; i++)
	{
		if (i > 0)
			AcceptInvalidationMessages();
		tree.in_tree = ListTreeLeaves(partition->relid);
		list_sort(tree.in_tree, list_oid_cmp);
		tree.recorded = LoadLeaves(partition->partition_id);
		list_sort(tree.recorded, CompareLeaves);
		tree.unknown = FindUnknownLeaf(tree.in_tree, tree.recorded);
		if (!OidIsValid(tree.unknown))
			break;
	}
	return tree;
}

bool
IsInAnotherTree(const Partition *partition, Oid relid)
{
	Oid			root = AttachedRoot(relid);

	return OidIsValid(root) && root != partition->relid;
}

static List *
AddPart(List *parts, Oid relid, int64 until)
{
	StoragePart *part = palloc(sizeof(StoragePart));

	part->relid = relid;
	part->until = until;
	return lappend(parts, part);
}

/*
 * Leaves that are in the tree are all on record, or this raises.  One that left while
 * the event trigger was off is taken for one in the tree until a turn notes it; one
 * that was dropped is nothing to read.
 */
List *
ListStorage(const Partition *partition, int64 since)
{
	TreeReading tree;
	List	   *parts = NIL;
	ListCell   *cell;

	if (!partition->tree)
		return AddPart(NIL, partition->relid, PG_INT64_MAX);
	tree = ReadTree(partition);
	if (OidIsValid(tree.unknown))
		RaiseUnknownLeaf(partition, &tree);
	foreach(cell, tree.recorded)
	{
		Leaf	   *leaf = lfirst(cell);

		if (leaf->left && leaf->left_at_seq <= since)
			continue;
		if (get_rel_relkind(leaf->relid) == '\0')
			continue;
		if (leaf->left && IsInAnotherTree(partition, leaf->relid))
			continue;
		parts = AddPart(parts, leaf->relid, leaf->left ? leaf->left_at_seq : PG_INT64_MAX);
	}
	return parts;
}
