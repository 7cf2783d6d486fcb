/*
 * tree_check.c
 *		Each turn's look at the leaves of a tree.
 *
 * What was found sound stays so until the definition of one of the relations changes:
 * a turn under load costs the same with ten leaves and with a thousand.  Reading does
 * not rely on it; see ListStorage().
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "cache/integrity.h"
#include "cache/relation_watch.h"
#include "cache/seq_column.h"
#include "cache/tree.h"
#include "common/hash.h"
#include "common/shared.h"
#include "common/sql.h"

/* A tree that was found sound. */
typedef struct SoundTree
{
	int64		partition_id;	/* hash key */
	uint64		changes;		/* still is, while WatchedChanges() is the same */
} SoundTree;

static HTAB *sound_trees = NULL;

static bool
IsKnownSound(int64 partition_id)
{
	SoundTree  *tree = sound_trees ? hash_search(sound_trees, &partition_id, HASH_FIND, NULL) : NULL;

	return tree && tree->changes == WatchedChanges();
}

static void
NoteSound(int64 partition_id, uint64 changes)
{
	SoundTree  *tree;

	if (sound_trees == NULL)
		sound_trees = MakeHash("incsink sound trees", sizeof(int64), sizeof(SoundTree));
	tree = hash_search(sound_trees, &partition_id, HASH_ENTER, NULL);
	tree->changes = changes;
}

/* The changes from before the list is read: a relation that joins meanwhile counts. */
static uint64
WatchTree(Oid root)
{
	uint64		changes;
	ListCell   *cell;

	WatchRelation(root);
	changes = WatchedChanges();
	foreach(cell, find_all_inheritors(root, NoLock, NULL))
		WatchRelation(lfirst_oid(cell));
	return changes;
}

/* How far a look at one leaf came. */
typedef enum LeafFinding
{
	LEAF_SOUND,
	LEAF_BUSY,					/* locked: nothing is known now */
	LEAF_UNSOUND
} LeafFinding;

/*
 * Is the leaf numbered by the tree's sequence?  An identity is the root's, a default
 * may be changed leaf by leaf.
 */
static LeafFinding
LookAtDefault(const Partition *partition, Oid relid)
{
	LeafFinding finding = LEAF_SOUND;
	Relation	rel;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return LEAF_BUSY;
	rel = try_table_open(relid, NoLock);
	if (rel)
	{
		if (SeqColumnSequence(rel, get_attnum(relid, partition->seq_column)) != partition->sequence)
			finding = LEAF_UNSOUND;
		table_close(rel, NoLock);
	}
	UnlockRelationOid(relid, AccessShareLock);
	return finding;
}

static LeafFinding
LookAtLeaf(const Partition *partition, Oid relid, char **error, char **hint)
{
	char	   *reason = UnfitLeafReason(relid);
	char	   *leaf = QuotedRelationName(relid);
	LeafFinding finding;

	if (reason)
	{
		*error = psprintf("partition \"%s\" of table \"%s.%s\" is %s", leaf,
						  partition->schema_name, partition->table_name, reason);
		*hint = UnfitLeafRepair(relid);
		return LEAF_UNSOUND;
	}
	finding = LookAtDefault(partition, relid);
	if (finding == LEAF_UNSOUND)
	{
		*error = psprintf("partition \"%s\" of table \"%s.%s\" is not numbered by the sequence of the table",
						  leaf, partition->schema_name, partition->table_name);
		*hint = psprintf("Run: ALTER TABLE ONLY %s ALTER COLUMN %s SET DEFAULT nextval(%s);",
						 leaf, quote_identifier(partition->seq_column),
						 quote_literal_cstr(QuotedRelationName(partition->sequence)));
	}
	return finding;
}

/*
 * Detached while the event trigger was off: its rows count up to the highest number
 * that it has now.  Needs an open SqlSession.
 */
static void
NoteUnseenDeparture(const Partition *partition, Oid relid)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return;
	rel = try_table_open(relid, NoLock);
	if (rel)
	{
		AttrNumber	attnum = get_attnum(relid, partition->seq_column);

		RecordDeparture(partition->partition_id, relid, attnum > 0 ? HighestNumber(rel, attnum) : 0);
		table_close(rel, NoLock);
	}
	UnlockRelationOid(relid, AccessShareLock);
}

/*
 * What went on without the event trigger, as far as it can be known.  One worker alone
 * writes it down: a reader may be in a transaction that must not.
 */
static void
NoteUnseenChanges(const Partition *partition, const TreeReading *tree)
{
	SqlSession	session;
	ListCell   *cell;

	if (!records_partitions || IsInParallelMode() || XactReadOnly)
		return;
	SqlBegin(&session);
	foreach(cell, tree->recorded)
	{
		Leaf	   *leaf = lfirst(cell);

		if (get_rel_relkind(leaf->relid) == '\0')
			NoteDroppedLeaf(leaf->relid);
		else if (!leaf->left && !list_member_oid(tree->in_tree, leaf->relid))
			NoteUnseenDeparture(partition, leaf->relid);
	}
	SqlEnd(&session);
}

/* Partitioned tables below the root: INSERT INTO one uses its own default. */
static List *
ListBranches(Oid root)
{
	List	   *branches = NIL;
	ListCell   *cell;

	foreach(cell, find_all_inheritors(root, NoLock, NULL))
		if (lfirst_oid(cell) != root && get_rel_relkind(lfirst_oid(cell)) == RELKIND_PARTITIONED_TABLE)
			branches = lappend_oid(branches, lfirst_oid(cell));
	return branches;
}

static bool
LookAtLeaves(const Partition *partition, const TreeReading *tree, bool *all_known,
			 char **error, char **hint)
{
	ListCell   *cell;

	*all_known = true;
	foreach(cell, list_concat(ListBranches(partition->relid), tree->in_tree))
	{
		LeafFinding finding = LookAtLeaf(partition, lfirst_oid(cell), error, hint);

		if (finding == LEAF_UNSOUND)
			return false;
		if (finding == LEAF_BUSY)
			*all_known = false;
	}
	return true;
}

bool
LeavesAreSound(Partition *partition, char **error, char **hint)
{
	TreeReading tree;
	uint64		changes;
	bool		all_known;
	ListCell   *cell;

	if (IsKnownSound(partition->partition_id))
		return true;
	changes = WatchTree(partition->relid);
	tree = ReadTree(partition);
	foreach(cell, tree.recorded)
		WatchRelation(((Leaf *) lfirst(cell))->relid);
	if (OidIsValid(tree.unknown))
	{
		DescribeUnknownLeaf(partition, &tree, error, hint);
		return false;
	}
	if (!LookAtLeaves(partition, &tree, &all_known, error, hint))
		return false;
	NoteUnseenChanges(partition, &tree);
	if (all_known)
		NoteSound(partition->partition_id, changes);
	return true;
}
