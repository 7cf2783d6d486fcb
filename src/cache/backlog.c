/*
 * backlog.c
 *		Which index gives a backlog its order, where it ends, and its keys.
 *
 * A key is kept as text, so that it outlives an index, a rewrite and a dump.  That the
 * text means the same each time is why only plain types serve, in the order that the
 * column's type and collation have of themselves.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "optimizer/plancat.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cache/backlog.h"
#include "common/compat.h"
#include "common/pin.h"

/* Blocks of a table in which attach looks for a row with 0, although it has a key. */
#define MOST_BLOCKS 1000

/*
 * The text of reg* types is the name of something, which may be renamed or gone; that of
 * "char" may be half a character (before 16).
 */
static bool
TextIsNoValue(Oid type)
{
	switch (type)
	{
		case CHAROID:
		case REGPROCOID:
		case REGPROCEDUREOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGCLASSOID:
		case REGCOLLATIONOID:
		case REGTYPEOID:
		case REGROLEOID:
		case REGNAMESPACEOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
#ifdef REGDATABASEOID
		case REGDATABASEOID:
#endif
			return true;
		default:
			return false;
	}
}

/*
 * A base type, an enum, a domain over one, or an array of base types or enums: reading
 * the text of any other runs what users wrote (the constraints of a domain in an array),
 * or gives what depends on more than the text.
 */
static bool
TypeServes(Oid type)
{
	Oid			base = getBaseType(type);
	Oid			element = get_element_type(base);
	Oid			plain = OidIsValid(element) ? element : base;
	char		kind = get_typtype(plain);

	return (kind == TYPTYPE_BASE || kind == TYPTYPE_ENUM) && !TextIsNoValue(plain);
}

/*
 * Is the order of the index's column that of the table's column itself?  A family
 * belongs to one access method, so the index is a btree.
 */
static bool
HasOwnOrder(Form_pg_attribute att, Oid opclass, Oid collation)
{
	Oid			own = GetDefaultOpClass(att->atttypid, BTREE_AM_OID);

	return OidIsValid(own) && get_opclass_family(own) == get_opclass_family(opclass) &&
		collation == att->attcollation;
}

static Datum
IndexAttribute(HeapTuple tuple, AttrNumber attnum)
{
	bool		isnull;

	return SysCacheGetAttr(INDEXRELID, tuple, attnum, &isnull);
}

/* What the catalog says of the index as a whole. */
static bool
IsUsableUnique(HeapTuple tuple)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);

	return form->indisunique && form->indimmediate && form->indisvalid && form->indisready &&
		form->indislive &&
		heap_attisnull(tuple, Anum_pg_index_indpred, NULL) &&
		heap_attisnull(tuple, Anum_pg_index_indexprs, NULL);
}

/* True if the backlog can be read in the index's order; fills *found. */
static bool
IndexServes(Relation rel, HeapTuple tuple, KeyIndex *found)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);
	TupleDesc	desc = RelationGetDescr(rel);
	oidvector  *classes;
	oidvector  *collations;
	int2vector *options;

	if (!IsUsableUnique(tuple))
		return false;
	classes = (oidvector *) DatumGetPointer(IndexAttribute(tuple, Anum_pg_index_indclass));
	collations = (oidvector *) DatumGetPointer(IndexAttribute(tuple, Anum_pg_index_indcollation));
	options = (int2vector *) DatumGetPointer(IndexAttribute(tuple, Anum_pg_index_indoption));
	found->index = form->indexrelid;
	found->nkeys = form->indnkeyatts;
	found->descending = (options->values[0] & INDOPTION_DESC) != 0;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attnum = form->indkey.values[i];

		if (attnum <= 0 || !AttributeIsNotNull(desc, attnum - 1) ||
			((options->values[i] & INDOPTION_DESC) != 0) != found->descending ||
			!TypeServes(TupleDescAttr(desc, attnum - 1)->atttypid) ||
			!HasOwnOrder(TupleDescAttr(desc, attnum - 1), classes->values[i],
						 collations->values[i]))
			return false;
		found->attnums[i] = attnum;
	}
	return true;
}

/* The primary key before others, fewer columns before more, then the older index. */
static bool
IsBetter(Relation rel, const KeyIndex *candidate, const KeyIndex *best)
{
	bool		candidate_primary = candidate->index == rel->rd_pkindex;

	if (candidate_primary != (best->index == rel->rd_pkindex))
		return candidate_primary;
	if (candidate->nkeys != best->nkeys)
		return candidate->nkeys < best->nkeys;
	return candidate->index < best->index;
}

/* Are these the key columns of the index? */
static bool
HasColumns(Relation rel, const KeyIndex *index, char **columns, int ncolumns)
{
	if (index->nkeys != ncolumns)
		return false;
	for (int i = 0; i < ncolumns; i++)
		if (get_attnum(RelationGetRelid(rel), columns[i]) != index->attnums[i])
			return false;
	return true;
}

/* The best index that serves; with columns, of those on them. */
static bool
FindBest(Relation rel, char **columns, int ncolumns, KeyIndex *found)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		any = false;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		KeyIndex	candidate = {0};

		if (!HeapTupleIsValid(tuple))
			continue;
		if (IndexServes(rel, tuple, &candidate) &&
			(columns == NULL || HasColumns(rel, &candidate, columns, ncolumns)) &&
			(!any || IsBetter(rel, &candidate, found)))
		{
			*found = candidate;
			any = true;
		}
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
	return any;
}

bool
ChooseKeyIndex(Relation rel, KeyIndex *found)
{
	return FindBest(rel, NULL, 0, found);
}

bool
FindKeyIndex(Relation rel, char **columns, int ncolumns, KeyIndex *found)
{
	return FindBest(rel, columns, ncolumns, found);
}

char *
KeyColumnNames(char **columns, int ncolumns)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < ncolumns; i++)
		appendStringInfo(&names, "%s%s", i > 0 ? ", " : "", quote_identifier(columns[i]));
	return names.data;
}

/*
 * An array of the key's values.  As text first: the functions that build jsonb from
 * parts differ between server versions.
 */
static Jsonb *
MakeKey(const KeyIndex *key, TupleTableSlot *slot)
{
	StringInfoData text;
	Jsonb	   *result;

	initStringInfo(&text);
	appendStringInfoChar(&text, '[');
	for (int i = 0; i < key->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(slot->tts_tupleDescriptor, key->attnums[i] - 1);
		Oid			output;
		bool		varlena;
		bool		isnull;
		Datum		value = slot_getattr(slot, key->attnums[i], &isnull);

		if (isnull)
			elog(ERROR, "null value in key column \"%s\"", NameStr(att->attname));
		getTypeOutputInfo(att->atttypid, &output, &varlena);
		if (text.len > 1)
			appendStringInfoString(&text, ", ");
		escape_json(&text, OidOutputFunctionCall(output, value));
	}
	appendStringInfoChar(&text, ']');
	result = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text.data)));
	pfree(text.data);
	return result;
}

/* Where settings are pinned already this costs some comparisons. */
Jsonb *
BacklogKeyOf(const KeyIndex *key, TupleTableSlot *slot)
{
	int			nest_level = NewGUCNestLevel();
	Jsonb	   *result;

	PinOutputSettings();
	result = MakeKey(key, slot);
	AtEOXact_GUC(true, nest_level);
	return result;
}

/* Reads past privileges and policies, which the caller has no business to be bound by. */
static bool
HasRow(Relation rel, AttrNumber seq_attnum, Snapshot snapshot)
{
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, seq_attnum, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(0));
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, seq_attnum > 0 ? 1 : 0, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return found;
}

/*
 * The key of the last row in key order, numbered or not: no later row gets number 0.
 * One probe of the index, whatever the size of the table.  NULL: there is no row.
 */
static Jsonb *
LastKey(Relation rel, const KeyIndex *key, Snapshot snapshot)
{
	Relation	index = index_open(key->index, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = IndexBeginScanCompat(rel, index, snapshot, 0);
	Jsonb	   *last = NULL;

	index_rescan(scan, NULL, 0, NULL, 0);
	if (index_getnext_slot(scan, key->descending ? ForwardScanDirection : BackwardScanDirection,
						   slot))
		last = BacklogKeyOf(key, slot);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	return last;
}

/*
 * As the planner would: by its size now, and how full it was when it was analyzed.  The
 * planner takes a small table that never was for one of 10 pages, though.
 */
static int64
EstimateRows(Relation rel)
{
	BlockNumber actual_pages = RelationGetNumberOfBlocks(rel);
	BlockNumber pages;
	double		rows;
	double		visible;

	estimate_rel_size(rel, NULL, &pages, &rows, &visible);
	if (pages > actual_pages)
		rows *= (double) actual_pages / pages;
	return (int64) rows;
}

static void
SetKey(Backlog *backlog, Relation rel, const KeyIndex *key)
{
	backlog->nkeys = key->nkeys;
	backlog->key_columns = palloc(sizeof(char *) * key->nkeys);
	backlog->key_types = palloc(sizeof(char *) * key->nkeys);
	for (int i = 0; i < key->nkeys; i++)
	{
		backlog->key_columns[i] = get_attname(RelationGetRelid(rel), key->attnums[i], false);
		backlog->key_types[i] = DescribeKeyType(rel, key->attnums[i]);
	}
}

/* NULL: it has no row; of a large table whether one has 0 is left open. */
static Backlog *
DescribeOrdered(Relation rel, AttrNumber seq_attnum, const KeyIndex *key, Snapshot snapshot)
{
	Backlog    *backlog;
	Jsonb	   *last;

	if (RelationGetNumberOfBlocks(rel) <= MOST_BLOCKS && !HasRow(rel, seq_attnum, snapshot))
		return NULL;
	last = LastKey(rel, key, snapshot);
	if (last == NULL)
		return NULL;
	backlog = palloc0(sizeof(Backlog));
	SetKey(backlog, rel, key);
	backlog->last_key = last;
	return backlog;
}

Backlog *
DescribeBacklog(Relation rel, AttrNumber seq_attnum, const Backlog *like)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Backlog    *backlog = NULL;
	KeyIndex	key;

	if (like && like->nkeys > 0 ? FindKeyIndex(rel, like->key_columns, like->nkeys, &key)
		: ChooseKeyIndex(rel, &key))
		backlog = DescribeOrdered(rel, seq_attnum, &key, snapshot);
	else if (HasRow(rel, seq_attnum, snapshot))
		backlog = palloc0(sizeof(Backlog));
	if (backlog)
		backlog->row_estimate = EstimateRows(rel);
	UnregisterSnapshot(snapshot);
	return backlog;
}

Backlog *
DescribeKey(Relation rel)
{
	Backlog    *backlog = palloc0(sizeof(Backlog));
	KeyIndex	key;

	if (ChooseKeyIndex(rel, &key))
		SetKey(backlog, rel, &key);
	return backlog;
}
