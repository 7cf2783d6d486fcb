/*
 * tree.c
 *		The leaves of attached trees on record.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cache/seq_index.h"
#include "cache/tree.h"
#include "common/compat.h"
#include "common/sql.h"

/* Attribute number of incsink.leaf_def, see sql/incsink--0.2.sql. */
#define LEAF_RELID 2

/* Asked while objects are dropped, perhaps these very ones: then nothing is. */
bool
IsRecordedLeaf(Oid relid)
{
	Oid			schema = get_namespace_oid("incsink", true);
	Oid			index = OidIsValid(schema) ? get_relname_relid("leaf_def_relid_idx", schema) : InvalidOid;
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	if (!OidIsValid(index))
		return false;
	rel = table_open(CatalogRelation("leaf_def"), AccessShareLock);
	ScanKeyInit(&key, LEAF_RELID, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, index, true, NULL, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

bool
AnyLeafIsRecorded(void)
{
	Relation	rel = table_open(CatalogRelation("leaf_def"), AccessShareLock);
	bool		any = RelationGetNumberOfBlocks(rel) > 0;

	table_close(rel, AccessShareLock);
	return any;
}

void
RecordLeaf(int64 partition_id, Oid relid)
{
	SqlRun("INSERT INTO incsink.leaf_def AS l (partition_id, relid, schema_name, table_name)"
		   " VALUES ($1, $2, $3, $4)"
		   " ON CONFLICT (partition_id, relid) DO UPDATE SET left_at_seq = NULL,"
		   " schema_name = EXCLUDED.schema_name, table_name = EXCLUDED.table_name",
		   SqlInt8(partition_id), SqlOid(relid),
		   SqlName(get_namespace_name(get_rel_namespace(relid))), SqlName(get_rel_name(relid)));
}

void
RecordDeparture(int64 partition_id, Oid relid, int64 left_at_seq)
{
	SqlRun("WITH free AS (SELECT partition_id, relid FROM incsink.leaf_def"
		   " WHERE partition_id = $1 AND relid = $2 AND left_at_seq IS NULL FOR UPDATE SKIP LOCKED)"
		   " UPDATE incsink.leaf_def l SET left_at_seq = $3 FROM free"
		   " WHERE l.partition_id = free.partition_id AND l.relid = free.relid",
		   SqlInt8(partition_id), SqlOid(relid), SqlInt8(left_at_seq));
}

void
RecordLeaves(const Partition *partition)
{
	ListCell   *cell;

	foreach(cell, ListTreeLeaves(partition->relid))
		RecordLeaf(partition->partition_id, lfirst_oid(cell));
}

void
AcceptLeaf(int64 partition_id, Oid relid)
{
	SqlSession	session;

	SqlBegin(&session);
	RecordLeaf(partition_id, relid);
	SqlEnd(&session);
}

char *
UnfitLeafReason(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	char		relkind;
	char		persistence;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	relkind = ((Form_pg_class) GETSTRUCT(tuple))->relkind;
	persistence = ((Form_pg_class) GETSTRUCT(tuple))->relpersistence;
	ReleaseSysCache(tuple);
	if (relkind == RELKIND_FOREIGN_TABLE)
		return "a foreign table: its rows are in another server";
	if (persistence == RELPERSISTENCE_TEMP)
		return "a temporary table, which no other session can read";
	if (persistence == RELPERSISTENCE_UNLOGGED)
		return "an unlogged table: a crash empties it";
	return NULL;
}

char *
UnfitLeafRepair(Oid relid)
{
	if (get_rel_relkind(relid) == RELKIND_RELATION)
		return psprintf("Run: ALTER TABLE %s SET LOGGED;", QuotedRelationName(relid));
	return psprintf("Leave it out of the partitioned table: detach %s.", QuotedRelationName(relid));
}

/* Without an index, which a large leaf may still wait for. */
static int64
HighestNumberByScan(Relation rel, AttrNumber attnum)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = TableBeginScanCompat(rel, snapshot);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	int64		highest = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		int64		number = DatumGetInt64(slot_getattr(slot, attnum, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (!isnull && number > highest)
			highest = number;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return highest;
}

int64
HighestNumber(Relation rel, AttrNumber attnum)
{
	SeqIndex	index;
	int64		highest;

	if (!FindSeqIndex(RelationGetRelid(rel), attnum, true, &index))
		return HighestNumberByScan(rel, attnum);
	return SeqIndexBound(rel, &index, attnum, false, &highest) ? Max(highest, 0) : 0;
}

/* One that left is on record, too; its rows have been exported perhaps. */
static bool
LeftBefore(const TreeReading *tree)
{
	ListCell   *cell;

	foreach(cell, tree->recorded)
		if (((Leaf *) lfirst(cell))->relid == tree->unknown)
			return true;
	return false;
}

void
DescribeUnknownLeaf(const Partition *partition, const TreeReading *tree, char **error, char **hint)
{
	char	   *leaf = QuotedRelationName(tree->unknown);

	*error = psprintf("leaf \"%s.%s\" of table \"%s.%s\" joined unseen: its rows may have numbers that were passed already",
					  get_namespace_name(get_rel_namespace(tree->unknown)), get_rel_name(tree->unknown),
					  get_namespace_name(get_rel_namespace(partition->relid)),
					  get_rel_name(partition->relid));
	if (LeftBefore(tree))
		*hint = psprintf("It was a leaf before. Detach it and attach it again while the event trigger incsink_ddl_end is enabled; or run: CALL incsink_renumber(%s, every_row => true); then all of its rows are exported again.",
						 quote_literal_cstr(leaf));
	else
		*hint = psprintf("Run: CALL incsink_renumber(%s, every_row => true); and see to it that the event trigger incsink_ddl_end is enabled.",
						 quote_literal_cstr(leaf));
}

void
RaiseUnknownLeaf(const Partition *partition, const TreeReading *tree)
{
	char	   *error;
	char	   *hint;

	DescribeUnknownLeaf(partition, tree, &error, &hint);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s", error),
			 errhint("%s", hint)));
}
