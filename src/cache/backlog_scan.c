/*
 * backlog_scan.c
 *		The rows of a relation between two keys of a backlog.
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

/* Text that was a value may be none any more: an enum's value was renamed. */
static void
ExplainUnreadable(void *arg)
{
	Form_pg_attribute att = arg;

	errhint("Undo what was done to the type of column \"%s\" until the backlog is over; or run incsink_renumber() with every_row => true: then all rows get numbers and go out once more.",
			NameStr(att->attname));
	errcontext("value of column \"%s\" at which a backlog is read on, or ends", NameStr(att->attname));
}

static Datum
ReadKeptValue(Form_pg_attribute att, const JsonbValue *text)
{
	ErrorContextCallback callback;
	Datum		value;

	callback.callback = ExplainUnreadable;
	callback.arg = att;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	value = ReadKeyValue(att->atttypid, text);
	error_context_stack = callback.previous;
	return value;
}

Datum *
BacklogKeyValues(TupleDesc desc, const KeyIndex *key, Jsonb *json)
{
	int			nest_level = NewGUCNestLevel();
	Datum	   *values = palloc(sizeof(Datum) * key->nkeys);

	if (JB_ROOT_COUNT(json) != key->nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a position inside a backlog has %d values, but its key has %d columns",
						(int) JB_ROOT_COUNT(json), key->nkeys)));
	PinOutputSettings();
	for (int i = 0; i < key->nkeys; i++)
		values[i] = ReadKeptValue(TupleDescAttr(desc, key->attnums[i] - 1),
								  getIthJsonbValueFromContainer(&json->root, i));
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
BacklogScanBegin(Relation rel, Relation index, const KeyIndex *key, const Backlog *backlog,
				 AttrNumber seq_attnum, Snapshot snapshot, Jsonb *since, Jsonb *until)
{
	BacklogScan *scan = palloc0(sizeof(BacklogScan));
	TupleDesc	desc = RelationGetDescr(rel);
	ScanKeyData bounds[2];
	int			nbounds = 0;

	if (since)
		SetBound(&bounds[nbounds++], index, key->nkeys, BTGreaterStrategyNumber,
				 BacklogKeyValues(desc, key, since));
	SetBound(&bounds[nbounds++], index, key->nkeys, BTLessEqualStrategyNumber,
			 until ? BacklogKeyValues(desc, key, until)
			 : BacklogKeyValues(desc, key, backlog->last_key));
	scan->direction = key->descending ? BackwardScanDirection : ForwardScanDirection;
	scan->seq_attnum = seq_attnum;
	scan->scan = IndexBeginScanCompat(rel, index, snapshot, nbounds);
	index_rescan(scan->scan, bounds, nbounds, NULL, 0);
	return scan;
}

/* Rows that have a number came after attach, or had it already. */
bool
BacklogScanNext(BacklogScan *scan, TupleTableSlot *slot, bool *has_number)
{
	bool		isnull;

	CHECK_FOR_INTERRUPTS();
	if (!index_getnext_slot(scan->scan, scan->direction, slot))
		return false;
	*has_number = DatumGetInt64(slot_getattr(slot, scan->seq_attnum, &isnull)) != 0;
	return true;
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

/* A table that is gone is for others to report. */
void
CheckBacklogPosition(const Partition *partition, Position position)
{
	const Backlog *backlog = partition->backlog;
	Relation	rel;
	int			nest_level;

	if (position.key == NULL || BacklogIsOver(position))
		return;
	if (backlog == NULL)
		RaiseMalformedToken("Its position is inside a backlog, but the table has none, or none any more.");
	if (JB_ROOT_COUNT(position.key) != backlog->nkeys)
		RaiseMalformedToken(psprintf("Its key has %d values, but there must be one for each of (%s).",
									 (int) JB_ROOT_COUNT(position.key),
									 KeyColumnNames(backlog->key_columns, backlog->nkeys)));
	rel = try_relation_open(partition->relid, AccessShareLock);
	if (rel == NULL)
		return;
	RequireKeyColumns(rel, backlog);
	nest_level = NewGUCNestLevel();
	PinOutputSettings();
	for (int i = 0; i < backlog->nkeys; i++)
		CheckKeyValue(rel, backlog->key_columns[i],
					  getIthJsonbValueFromContainer(&position.key->root, i));
	AtEOXact_GUC(true, nest_level);
	relation_close(rel, AccessShareLock);
}
