/*
 * tree_ddl.c
 *		Leaves that join or leave an attached tree, in the transaction of the command.
 *
 * Which leaves a command concerns is not asked: tree and record are compared.  A leaf
 * that is not on record but in the tree since an earlier transaction joined while the
 * event trigger was off, or brought rows with the owner's consent: it is left alone,
 * and the turns report it, so that no other command fails because of it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "cache/columns.h"
#include "cache/horizon.h"
#include "cache/seq_column.h"
#include "cache/tree.h"
#include "catalog/identity.h"
#include "common/settings.h"
#include "common/sql.h"

/* A leaf as pg_inherits has it. */
typedef struct TreeLeaf
{
	Oid			relid;
	bool		joined;			/* in this transaction, by itself or in a branch */
	bool		branch;			/* partitioned: rows are elsewhere, but its default counts */
} TreeLeaf;

/* The commands that are run here fire the event trigger again. */
static bool syncing = false;

static void
AddTreeLeaf(List **leaves, Oid relid, bool joined)
{
	TreeLeaf   *leaf = palloc(sizeof(TreeLeaf));

	leaf->relid = relid;
	leaf->joined = joined;
	leaf->branch = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE;
	*leaves = lappend(*leaves, leaf);
}

/* The leaves below "parent", which has itself joined in this transaction or not. */
static void
ScanTree(Oid parent, bool joined, List **leaves)
{
	Relation	catalog = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	check_stack_depth();
	ScanKeyInit(&key, Anum_pg_inherits_inhparent, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(parent));
	scan = systable_beginscan(catalog, InheritsParentIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Oid			child = ((Form_pg_inherits) GETSTRUCT(tuple))->inhrelid;
		bool		child_joined = joined ||
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));

		AddTreeLeaf(leaves, child, child_joined);
		if (get_rel_relkind(child) == RELKIND_PARTITIONED_TABLE)
			ScanTree(child, child_joined, leaves);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
}

static Leaf *
FindRecord(List *recorded, Oid relid)
{
	ListCell   *cell;

	foreach(cell, recorded)
		if (((Leaf *) lfirst(cell))->relid == relid)
			return lfirst(cell);
	return NULL;
}

static bool
IsInTree(List *leaves, Oid relid)
{
	ListCell   *cell;

	foreach(cell, leaves)
		if (((TreeLeaf *) lfirst(cell))->relid == relid)
			return true;
	return false;
}

static void
RefuseUnfitLeaf(const Partition *partition, Oid relid, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("\"%s.%s\" cannot be a partition of \"%s.%s\", which incsink exports",
					get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid),
					partition->schema_name, partition->table_name),
			 errdetail("It is %s.", reason),
			 errhint("%s", UnfitLeafRepair(relid))));
}

static void
RefuseRows(const Partition *partition, Oid relid, bool returns)
{
	char	   *leaf = quote_literal_cstr(QuotedRelationName(relid));

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot attach \"%s.%s\" with its rows to \"%s.%s\", which incsink exports",
					get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid),
					partition->schema_name, partition->table_name),
			 returns ?
			 errdetail("It has got rows since it was detached: they would never be exported, for their numbers may have been passed already.")
			 : errdetail("Its rows would never be exported: their numbers may have been passed already."),
			 errhint("Insert its rows into \"%s.%s\" instead, all columns but \"%s\". Or, as a superuser: SET incsink.allow_explicit_seq = on; attach it; then run: CALL incsink_renumber(%s, every_row => true);",
					 partition->schema_name, partition->table_name, partition->seq_column, leaf)));
}

void
SetLeafDefault(const Partition *partition, Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	AttrNumber	attnum = SeqAttribute(rel, partition);
	bool		numbered = TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attidentity != '\0' ||
		SeqColumnSequence(rel, attnum) == partition->sequence;

	table_close(rel, NoLock);
	if (!numbered)
		SetNextvalDefault(relid, attnum, partition->sequence);
}

/*
 * A leaf that is not on record as one of the tree; "left" is what is on record
 * otherwise.  Needs an open SqlSession.
 */
static void
SyncJoinedLeaf(const Partition *partition, Oid relid, const Leaf *left, bool refuse)
{
	char	   *reason = UnfitLeafReason(relid);
	Relation	rel;
	bool		known;

	if (reason && refuse)
		RefuseUnfitLeaf(partition, relid, reason);
	if (reason)
		return;
	rel = table_open(relid, AccessShareLock);
	known = JoiningRowsAreKnown(partition, rel, left);
	table_close(rel, NoLock);
	if (!known && refuse)
		RefuseRows(partition, relid, left != NULL);
	RefuseOwedLeaf(partition, relid);
	SetLeafDefault(partition, relid);
	if (known)
		RecordLeaf(partition->partition_id, relid);
}

/* Has the column of a table that left a default of the tree's sequence? */
static bool
IsFedBySequence(const Partition *partition, Oid relid)
{
	Relation	rel = try_table_open(relid, AccessShareLock);
	AttrNumber	attnum = get_attnum(relid, partition->seq_column);
	bool		fed = rel != NULL && attnum > 0 && OidIsValid(partition->sequence) &&
		DefaultSequence(rel, attnum) == partition->sequence;

	if (rel != NULL)
		table_close(rel, NoLock);
	return fed;
}

/*
 * A default of the tree's sequence would keep the tree from being dropped.  -1 lets
 * rows be inserted, and marks them as none of the tree's: 0 is for its backlog.
 */
static void
UnsetDefault(const Partition *partition, Oid relid)
{
	if (IsFedBySequence(partition, relid))
		SetUnnumberedDefault(relid, get_attnum(relid, partition->seq_column));
}

/* Branches that left with their leaves have such a default, too; one that is in use keeps it. */
static void
UnsetBranchDefaults(const Partition *partition, Oid top)
{
	ListCell   *cell;

	foreach(cell, find_all_inheritors(top, NoLock, NULL))
	{
		Oid			relid = lfirst_oid(cell);

		if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE &&
			IsFedBySequence(partition, relid) &&
			ConditionalLockRelationOid(relid, AccessExclusiveLock))
			UnsetDefault(partition, relid);
	}
}

/*
 * DETACH keeps writers away from the table that it is given, but not from leaves
 * below that: what these may still commit has a number that is drawn already.
 */
static void
SyncLeftLeaf(const Partition *partition, Oid relid)
{
	bool		exclusive = ConditionalLockRelationOid(relid, AccessExclusiveLock);
	Relation	rel = try_table_open(relid, AccessShareLock);
	AttrNumber	attnum = get_attnum(relid, partition->seq_column);
	SequenceReading reading;
	int64		left_at_seq;

	if (rel == NULL)
		return;
	if ((!exclusive || attnum <= 0) && ReadSequence(partition->sequence, &reading))
		left_at_seq = reading.last_drawn;
	else
		left_at_seq = HighestNumber(rel, SeqAttribute(rel, partition));
	table_close(rel, NoLock);
	RecordDeparture(partition->partition_id, relid, left_at_seq);
	if (exclusive)
		UnsetDefault(partition, relid);
}

/*
 * Not while the root's column is missing or has another name, which the turn reports.
 * Needs an open SqlSession.
 */
static void
CompareTreeWithRecord(const Partition *partition, bool refuse)
{
	List	   *recorded = LoadLeaves(partition->partition_id);
	List	   *leaves = NIL;
	List	   *tops = NIL;
	ListCell   *cell;

	ScanTree(partition->relid, false, &leaves);
	foreach(cell, leaves)
	{
		TreeLeaf   *leaf = lfirst(cell);
		Leaf	   *record = leaf->joined ? FindRecord(recorded, leaf->relid) : NULL;

		if (leaf->branch && leaf->joined)
			SetLeafDefault(partition, leaf->relid);
		else if (leaf->joined && (record == NULL || record->left))
			SyncJoinedLeaf(partition, leaf->relid, record, refuse);
	}
	foreach(cell, recorded)
	{
		Leaf	   *record = lfirst(cell);

		if (record->left || IsInTree(leaves, record->relid))
			continue;
		SyncLeftLeaf(partition, record->relid);
		tops = list_append_unique_oid(tops, TopmostAncestor(record->relid));
	}
	foreach(cell, tops)
		UnsetBranchDefaults(partition, lfirst_oid(cell));
}

/* In a copy that is not adopted nothing is refused: it waits for its owner's word. */
static bool
MayRefuse(void)
{
	IdentityMatch match = CompareIdentity();

	return !setting_allow_explicit_seq &&
		(match == IDENTITY_SAME || match == IDENTITY_NEW_TIMELINE);
}

static void
SyncPartition(Oid root)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;

	SqlBegin(&session);
	partition = LoadPartitionByRelation(root, context);
	if (partition && RefreshPartitionState(partition) &&
		get_attnum(root, partition->seq_column) > 0)
		CompareTreeWithRecord(partition, MayRefuse());
	SqlEnd(&session);
}

void
SyncLeaves(Oid root)
{
	if (syncing)
		return;
	syncing = true;
	PG_TRY();
	{
		SyncPartition(root);
	}
	PG_FINALLY();
	{
		syncing = false;
	}
	PG_END_TRY();
}
