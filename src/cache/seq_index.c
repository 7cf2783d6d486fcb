/*
 * seq_index.c
 *		The unique index on the seq column.
 *
 * It is known by its shape and not by its name or OID: pg_repack and REINDEX
 * CONCURRENTLY replace it, and one built by hand serves as well.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/indexing.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cache/seq_index.h"
#include "common/compat.h"

/* The value of an integer constant; false if the node is anything else. */
static bool
IntegerConstant(Node *node, int64 *value)
{
	Const	   *constant;

	if (node == NULL || !IsA(node, Const))
		return false;
	constant = (Const *) node;
	if (constant->constisnull)
		return false;
	switch (constant->consttype)
	{
		case INT2OID:
			*value = DatumGetInt16(constant->constvalue);
			return true;
		case INT4OID:
			*value = DatumGetInt32(constant->constvalue);
			return true;
		case INT8OID:
			*value = DatumGetInt64(constant->constvalue);
			return true;
		default:
			return false;
	}
}

/* Is the predicate "column > 0"?  The literal's type decides on the operator. */
static bool
PredicateIsAboveZero(Node *predicate, AttrNumber attnum)
{
	OpExpr	   *comparison;
	Node	   *column;
	int64		bound = 0;

	if (predicate != NULL && IsA(predicate, List) && list_length((List *) predicate) == 1)
		predicate = linitial((List *) predicate);
	if (predicate == NULL || !IsA(predicate, OpExpr))
		return false;
	comparison = (OpExpr *) predicate;
	set_opfuncid(comparison);
	if (comparison->opfuncid != F_INT8GT && comparison->opfuncid != F_INT84GT &&
		comparison->opfuncid != F_INT82GT)
		return false;
	column = linitial(comparison->args);
	return IsA(column, Var) && ((Var *) column)->varattno == attnum &&
		IntegerConstant(lsecond(comparison->args), &bound) && bound == 0;
}

/* True if the index described by the pg_index tuple would serve if it is valid; fills *found. */
static bool
IndexFits(Relation catalog, HeapTuple tuple, AttrNumber attnum, bool in_tree, SeqIndex *found)
{
	TupleDesc	desc = RelationGetDescr(catalog);
	Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);
	oidvector  *classes;
	int2vector *options;
	Datum		value;
	bool		isnull;

	if (form->indkey.values[0] != attnum)
		return false;
	if (!in_tree && (!form->indisunique || form->indnkeyatts != 1))
		return false;
	classes = (oidvector *) DatumGetPointer(heap_getattr(tuple, Anum_pg_index_indclass,
														 desc, &isnull));
	if (isnull || get_opclass_family(classes->values[0]) != INTEGER_BTREE_FAM_OID)
		return false;

	value = heap_getattr(tuple, Anum_pg_index_indpred, desc, &isnull);
	found->partial = !isnull;
	if (found->partial && !PredicateIsAboveZero(stringToNode(TextDatumGetCString(value)), attnum))
		return false;

	options = (int2vector *) DatumGetPointer(heap_getattr(tuple, Anum_pg_index_indoption,
														  desc, &isnull));
	found->descending = !isnull && (options->values[0] & INDOPTION_DESC) != 0;
	found->index = form->indexrelid;
	return true;
}

static bool
IndexServes(Relation catalog, HeapTuple tuple, AttrNumber attnum, bool in_tree, SeqIndex *found)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);

	return form->indisvalid && form->indislive &&
		IndexFits(catalog, tuple, attnum, in_tree, found);
}

bool
FindSeqIndex(Oid relid, AttrNumber attnum, bool in_tree, SeqIndex *found)
{
	Relation	catalog = table_open(IndexRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		any = false;

	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, IndexIndrelidIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		SeqIndex	candidate;

		if (!IndexServes(catalog, tuple, attnum, in_tree, &candidate))
			continue;
		if (!any || (found->partial && !candidate.partial))
			*found = candidate;
		any = true;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return any;
}

List *
ListMadeIndexes(Oid relid, AttrNumber attnum, bool in_tree)
{
	Relation	catalog = table_open(IndexRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *made = NIL;

	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, IndexIndrelidIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);
		MadeIndex  *index;
		SeqIndex	fitting;

		if (form->indnatts != 1 || form->indisunique == in_tree ||
			!IndexFits(catalog, tuple, attnum, in_tree, &fitting) || !fitting.partial)
			continue;
		index = palloc(sizeof(MadeIndex));
		index->index = fitting.index;
		index->finished = form->indisvalid && form->indislive;
		index->joined = get_rel_relispartition(fitting.index);
		made = lappend(made, index);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return made;
}

bool
SeqIndexBound(Relation rel, const SeqIndex *index, AttrNumber attnum, bool lowest, int64 *bound)
{
	Relation	index_rel = index_open(index->index, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = IndexBeginScanCompat(rel, index_rel, snapshot, 0);
	bool		forward = lowest != index->descending;
	bool		found;
	bool		isnull;

	index_rescan(scan, NULL, 0, NULL, 0);
	found = index_getnext_slot(scan, forward ? ForwardScanDirection : BackwardScanDirection, slot);
	if (found)
		*bound = DatumGetInt64(slot_getattr(slot, attnum, &isnull));
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	index_close(index_rel, AccessShareLock);
	return found;
}
