/*
 * backlog_scan.c
 *		The rows of one part of a backlog between two keys.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "storage/lockdefs.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "cache/backlog.h"
#include "common/compat.h"
#include "common/pin.h"

struct BacklogScan
{
	IndexScanDesc scan;
	ScanDirection direction;
	AttrNumber	seq_attnum;
};

/*
 * The value of a key column from its text.  A domain's constraints, which may run
 * anything, are not asked: this is a bound and no value to keep.
 */
static Datum
ReadKeyValue(Oid type, const JsonbValue *text)
{
	Oid			input;
	Oid			parameter;
	char	   *value = pnstrdup(text->val.string.val, text->val.string.len);

	getTypeInputInfo(getBaseType(type), &input, &parameter);
	return OidInputFunctionCall(input, value, parameter, -1);
}

Datum *
BacklogKeyValues(TupleDesc desc, const KeyIndex *key, Jsonb *json, bool has_part)
{
	int			skip = has_part ? 1 : 0;
	int			nest_level = NewGUCNestLevel();
	Datum	   *values = palloc(sizeof(Datum) * key->nkeys);

	if (JB_ROOT_COUNT(json) != key->nkeys + skip)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a position inside a backlog has %d values, but its key has %d columns",
						(int) JB_ROOT_COUNT(json) - skip, key->nkeys)));
	PinOutputSettings();
	for (int i = 0; i < key->nkeys; i++)
		values[i] = ReadKeyValue(TupleDescAttr(desc, key->attnums[i] - 1)->atttypid,
								 getIthJsonbValueFromContainer(&json->root, i + skip));
	AtEOXact_GUC(true, nest_level);
	return values;
}

/* "column <strategy> value", for an index of one column. */
static void
SetColumnBound(ScanKey bound, Relation index, StrategyNumber strategy, Datum value)
{
	Oid			type = index->rd_opcintype[0];
	Oid			operator = get_opfamily_member(index->rd_opfamily[0], type, type, strategy);

	ScanKeyEntryInitialize(bound, 0, 1, strategy, InvalidOid, index->rd_indcollation[0],
						   get_opcode(operator), value);
}

/*
 * "ROW(columns) <strategy> ROW(values)", as ExecIndexBuildScanKeys() has it: a row
 * comparison of one column is none (_bt_first() in access/nbtree/nbtsearch.c).
 */
static void
SetRowBound(ScanKey bound, Relation index, int nkeys, StrategyNumber strategy,
			const Datum *values)
{
	ScanKey		members = palloc0(sizeof(ScanKeyData) * nkeys);

	for (int i = 0; i < nkeys; i++)
		ScanKeyEntryInitialize(&members[i], SK_ROW_MEMBER, i + 1, strategy, InvalidOid,
							   index->rd_indcollation[i],
							   index_getprocid(index, i + 1, BTORDER_PROC), values[i]);
	members[nkeys - 1].sk_flags |= SK_ROW_END;
	memset(bound, 0, sizeof(ScanKeyData));
	bound->sk_flags = SK_ROW_HEADER;
	bound->sk_attno = 1;
	bound->sk_strategy = strategy;
	bound->sk_argument = PointerGetDatum(members);
}

static void
SetBound(ScanKey bound, Relation index, int nkeys, StrategyNumber strategy, const Datum *values)
{
	if (nkeys == 1)
		SetColumnBound(bound, index, strategy, values[0]);
	else
		SetRowBound(bound, index, nkeys, strategy, values);
}

/* Keys ascend: an index in descending order is read backwards. */
BacklogScan *
BacklogScanBegin(Relation rel, Relation index, const KeyIndex *key, const BacklogPart *part,
				 AttrNumber seq_attnum, Snapshot snapshot, Jsonb *since, Jsonb *until)
{
	BacklogScan *scan = palloc0(sizeof(BacklogScan));
	TupleDesc	desc = RelationGetDescr(rel);
	ScanKeyData bounds[2];
	int			nbounds = 0;

	if (since)
		SetBound(&bounds[nbounds++], index, key->nkeys, BTGreaterStrategyNumber,
				 BacklogKeyValues(desc, key, since, true));
	SetBound(&bounds[nbounds++], index, key->nkeys, BTLessEqualStrategyNumber,
			 until ? BacklogKeyValues(desc, key, until, true)
			 : BacklogKeyValues(desc, key, part->last_key, false));
	scan->direction = key->descending ? BackwardScanDirection : ForwardScanDirection;
	scan->seq_attnum = seq_attnum;
	scan->scan = IndexBeginScanCompat(rel, index, snapshot, nbounds);
	index_rescan(scan->scan, bounds, nbounds, NULL, 0);
	return scan;
}

/* Rows that have a number came after attach. */
bool
BacklogScanNext(BacklogScan *scan, TupleTableSlot *slot)
{
	while (index_getnext_slot(scan->scan, scan->direction, slot))
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (DatumGetInt64(slot_getattr(slot, scan->seq_attnum, &isnull)) == 0)
			return true;
	}
	return false;
}

void
BacklogScanEnd(BacklogScan *scan)
{
	index_endscan(scan->scan);
	pfree(scan);
}

/*
 * Raises an ERROR for a value that its column's type does not read; one that has to do
 * with the value becomes that of a malformed token.
 */
static void
CheckKeyValue(Relation rel, const char *column, const JsonbValue *text)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	MemoryContext context = CurrentMemoryContext;

	if (attnum <= 0)
		return;
	PG_TRY();
	{
		(void) ReadKeyValue(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid, text);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		RaiseMalformedToken(psprintf("A value of its key is not one of column \"%s\": %s.",
									 column, error->message));
	}
	PG_END_TRY();
}

static const BacklogPart *
FindPart(const Partition *partition, int number)
{
	for (int i = 0; i < partition->nparts; i++)
		if (partition->parts[i].part == number)
			return &partition->parts[i];
	return NULL;
}

/*
 * The values of a part whose relation is gone are not looked at: its rows will not be,
 * either.
 */
void
CheckBacklogPosition(const Partition *partition, Position position)
{
	const BacklogPart *part;
	Relation	rel;
	int			nest_level;

	if (BacklogKeyPart(position.key) == 0)
		return;
	part = FindPart(partition, BacklogKeyPart(position.key));
	if (part == NULL)
		RaiseMalformedToken(partition->nparts > 0
							? "Its key names a part of the backlog that there is not."
							: "Its position is inside a backlog, but the table has none, or none any more.");
	if (JB_ROOT_COUNT(position.key) != part->nkeys + 1)
		RaiseMalformedToken(psprintf("Its key has %d values, but there must be one for each of (%s).",
									 (int) JB_ROOT_COUNT(position.key) - 1,
									 KeyColumnNames(part->key_columns, part->nkeys)));
	rel = try_relation_open(part->relid, AccessShareLock);
	if (rel == NULL)
		return;
	nest_level = NewGUCNestLevel();
	PinOutputSettings();
	for (int i = 0; i < part->nkeys; i++)
		CheckKeyValue(rel, part->key_columns[i],
					  getIthJsonbValueFromContainer(&position.key->root, i + 1));
	AtEOXact_GUC(true, nest_level);
	relation_close(rel, AccessShareLock);
}
