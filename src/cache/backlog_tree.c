/*
 * backlog_tree.c
 *		What a partitioned table has when it is attached.
 *
 * Its rows are read in the order of one key, whichever leaves they are in: a row that is
 * moved to another leaf before it is reached keeps its place, and one that was exported
 * does not come again.  So the key must be the same in all leaves.
 */
#include "postgres.h"

#include "access/relation.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "cache/backlog.h"

/* By the order that the columns' types have of themselves. */
static int
CompareKeys(Relation rel, const KeyIndex *key, Jsonb *one, Jsonb *other)
{
	Datum	   *values = BacklogKeyValues(RelationGetDescr(rel), key, one);
	Datum	   *others = BacklogKeyValues(RelationGetDescr(rel), key, other);

	for (int i = 0; i < key->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), key->attnums[i] - 1);
		TypeCacheEntry *type = lookup_type_cache(att->atttypid, TYPECACHE_CMP_PROC_FINFO);
		int32		order = DatumGetInt32(FunctionCall2Coll(&type->cmp_proc_finfo, att->attcollation,
															values[i], others[i]));

		if (order != 0)
			return order;
	}
	return 0;
}

/* Takes the leaf's rows in; false if the leaf has no index on the tree's key. */
static bool
AddLeaf(Backlog *tree, Relation leaf, const Backlog *rows)
{
	KeyIndex	key;

	tree->row_estimate += rows->row_estimate;
	if (tree->nkeys == 0)
	{
		tree->nkeys = rows->nkeys;
		tree->key_columns = rows->key_columns;
		tree->key_types = rows->key_types;
	}
	if (rows->nkeys == 0 || !KeyColumnsAreSame(leaf, tree) ||
		!FindKeyIndex(leaf, tree->key_columns, tree->nkeys, &key))
		return false;
	if (tree->last_key == NULL || CompareKeys(leaf, &key, rows->last_key, tree->last_key) > 0)
		tree->last_key = rows->last_key;
	return true;
}

Backlog *
DescribeTreeBacklog(Relation root, List *leaves, const char *seq_column)
{
	Backlog    *tree = DescribeKey(root);
	bool		any = false;
	bool		ordered = true;
	ListCell   *cell;

	foreach(cell, leaves)
	{
		Relation	leaf = relation_open(lfirst_oid(cell), NoLock);
		AttrNumber	attnum = seq_column ? get_attnum(lfirst_oid(cell), seq_column) : InvalidAttrNumber;
		Backlog    *rows = DescribeBacklog(leaf, attnum, tree);

		if (rows)
		{
			any = true;
			ordered = AddLeaf(tree, leaf, rows) && ordered;
		}
		relation_close(leaf, NoLock);
	}
	if (!any)
		return NULL;
	if (!ordered)
		tree->nkeys = 0;
	return tree;
}
