/*
 * subscription.c
 *		Tables that a subscription fills.
 *
 * Apply and table synchronisation workers run with session_replication_role =
 * replica (replication/logical/worker.c), store rows past the planner, the COPY
 * command and their hooks, and fire the triggers that are ENABLE REPLICA.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_subscription_rel.h"
#include "catalog/pg_trigger.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "nodes/makefuncs.h"
#include "nodes/pg_list.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cache/attach.h"
#include "cache/seq_column.h"
#include "cache/subscription.h"
#include "cache/tree.h"
#include "catalog/partition.h"
#include "common/hash.h"
#include "common/shared.h"
#include "common/sql.h"

/* The column that the trigger fills in a table; without one there is nothing to do. */
typedef struct NumberedColumn
{
	Oid			relid;			/* hash key */
	AttrNumber	attnum;			/* InvalidAttrNumber: not attached */
	Oid			sequence;
} NumberedColumn;

static HTAB *numbered_columns = NULL;

/* While incsink_renumber() writes numbers itself. */
static bool new_numbers_pass = false;

static bool
IsSubscribed(Oid relid)
{
	CatCList   *list = SearchSysCacheList1(SUBSCRIPTIONRELMAP, ObjectIdGetDatum(relid));
	bool		found = list->n_members > 0;

	ReleaseSysCacheList(list);
	return found;
}

/* The relation, and what is below it if it is partitioned; takes no lock. */
static List *
WholeTree(Oid relid)
{
	if (get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		return list_make1_oid(relid);
	return find_all_inheritors(relid, NoLock, NULL);
}

bool
IsSubscriptionTarget(Oid relid)
{
	List	   *relations = WholeTree(relid);
	bool		found = false;
	ListCell   *cell;

	foreach(cell, relations)
		found = found || IsSubscribed(lfirst_oid(cell));
	list_free(relations);
	return found;
}

/* Has the relation the trigger, and does it fire for replicated rows? */
static bool
HasNumberRowTrigger(Oid relid)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_trigger_tgname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(NUMBER_ROW_TRIGGER));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		char		enabled = ((Form_pg_trigger) GETSTRUCT(tuple))->tgenabled;

		found = enabled == TRIGGER_FIRES_ON_REPLICA || enabled == TRIGGER_FIRES_ALWAYS;
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	return found;
}

/* Leaves have triggers of their own, which follow the root's. */
static bool
NumberRowTriggerIsMissing(Oid relid)
{
	List	   *relations;
	bool		missing = false;
	ListCell   *cell;

	if (!IsSubscriptionTarget(relid))
		return false;
	relations = WholeTree(relid);
	foreach(cell, relations)
		missing = missing || !HasNumberRowTrigger(lfirst_oid(cell));
	list_free(relations);
	return missing;
}

/*
 * What CREATE OR REPLACE TRIGGER and ENABLE REPLICA TRIGGER do, leaves included, but no
 * event trigger fires: this runs inside of other commands and in the worker, under a
 * search_path that no user's trigger expects.  Leaves that join later take it over as
 * it is.
 */
void
AddNumberRowTrigger(Oid relid, const char *function_schema)
{
	CreateTrigStmt *statement = makeNode(CreateTrigStmt);

	statement->replace = true;
	statement->trigname = NUMBER_ROW_TRIGGER;
	statement->relation = makeRangeVar(get_namespace_name(get_rel_namespace(relid)),
									   get_rel_name(relid), -1);
	statement->funcname = list_make2(makeString(pstrdup(function_schema)),
									 makeString(pstrdup(NUMBER_ROW_TRIGGER)));
	statement->row = true;
	statement->timing = TRIGGER_TYPE_BEFORE;
	statement->events = TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE;
	(void) CreateTriggerFiringOn(statement, "", relid, InvalidOid, InvalidOid, InvalidOid,
								 InvalidOid, InvalidOid, NULL, false, false,
								 TRIGGER_FIRES_ON_REPLICA);
	CommandCounterIncrement();
}

/* What CREATE TRIGGER takes; false if one of them is not free. */
static bool
LockForTrigger(Oid relid)
{
	ListCell   *cell;

	foreach(cell, WholeTree(relid))
		if (!ConditionalLockRelationOid(lfirst_oid(cell), ShareRowExclusiveLock))
			return false;
	return get_rel_name(relid) != NULL;
}

/* Tables of all partitions of this database. */
static List *
AttachedTables(void)
{
	List	   *tables = NIL;
	SqlSession	session;
	uint64		count;

	SqlBegin(&session);
	count = SqlRun0("SELECT relid FROM incsink.partition_state ORDER BY partition_id");
	for (uint64 row = 0; row < count; row++)
		tables = lappend_oid(tables, SqlGetOid(row, 1));
	SqlEnd(&session);
	return tables;
}

void
GuardSubscribedTables(const char *function_schema)
{
	ListCell   *cell;

	foreach(cell, AttachedTables())
	{
		Oid			relid = lfirst_oid(cell);

		if (get_rel_name(relid) == NULL || !NumberRowTriggerIsMissing(relid))
			continue;
		if (LockForTrigger(relid))
			AddNumberRowTrigger(relid, function_schema);
		else
			ereport(WARNING,
					(errmsg("attached table %s has no trigger yet that numbers what the subscription brings",
							QuotedRelationName(relid)),
					 errdetail("The table is locked; the worker adds the trigger when it is not. Rows that come before may have numbers of the publisher's."),
					 errhint("Run: CALL incsink_renumber(%s); when the trigger is there.",
							 quote_literal_cstr(QuotedRelationName(relid)))));
	}
}

bool
EnsureNumberRowTrigger(Oid relid)
{
	SqlSession	session;
	char	   *schema;

	if (!CatalogIsAtLeast(2) || !NumberRowTriggerIsMissing(relid))
		return true;
	if (!LockForTrigger(relid))
		return false;
	SqlBegin(&session);
	SqlRun0("SELECT n.nspname FROM pg_catalog.pg_extension e"
			" JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'incsink'");
	schema = SqlGetText(0, 1, CurrentMemoryContext);
	AddNumberRowTrigger(relid, schema);
	SqlEnd(&session);
	return true;
}

void
LetNewNumbersPass(bool pass)
{
	new_numbers_pass = pass;
}

/* Definitions of the table have changed, maybe those of its column. */
static void
ForgetNumberedColumn(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	NumberedColumn *entry;

	if (OidIsValid(relid))
	{
		(void) hash_search(numbered_columns, &relid, HASH_REMOVE, NULL);
		return;
	}
	hash_seq_init(&status, numbered_columns);
	while ((entry = hash_seq_search(&status)) != NULL)
		(void) hash_search(numbered_columns, &entry->relid, HASH_REMOVE, NULL);
}

static void
MakeCache(void)
{
	numbered_columns = MakeHash("incsink numbered columns", sizeof(Oid), sizeof(NumberedColumn));
	CacheRegisterRelcacheCallback(ForgetNumberedColumn, (Datum) 0);
}

/* Asks the catalog, which a trigger must not do for every row. */
static NumberedColumn
LookUpNumberedColumn(Relation rel)
{
	MemoryContext context = CurrentMemoryContext;
	NumberedColumn column = {.relid = RelationGetRelid(rel)};
	SqlSession	session;
	Partition  *partition;

	SqlBegin(&session);
	partition = LoadPartitionByRelation(column.relid, context);
	if (partition == NULL && rel->rd_rel->relispartition)
	{
		Oid			root = AttachedRoot(column.relid);

		if (OidIsValid(root))
			partition = LoadPartitionByRelation(root, context);
	}
	SqlEnd(&session);
	if (partition)
	{
		column.attnum = Max(get_attnum(column.relid, partition->seq_column), InvalidAttrNumber);
		column.sequence = partition->sequence;
	}
	return column;
}

static NumberedColumn
FindNumberedColumn(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	NumberedColumn *entry;
	NumberedColumn column;

	if (numbered_columns == NULL)
		MakeCache();
	entry = hash_search(numbered_columns, &relid, HASH_FIND, NULL);
	if (entry)
		return *entry;
	column = LookUpNumberedColumn(rel);
	entry = hash_search(numbered_columns, &relid, HASH_ENTER, NULL);
	*entry = column;
	return column;
}

static HeapTuple
WithNumber(HeapTuple tuple, TupleDesc desc, AttrNumber attnum, int64 number)
{
	int			column = attnum;
	Datum		value = Int64GetDatum(number);
	bool		isnull = false;
	Datum		present = heap_getattr(tuple, attnum, desc, &isnull);

	if (!isnull && DatumGetInt64(present) == number)
		return tuple;
	isnull = false;
	return heap_modify_tuple_by_cols(tuple, desc, 1, &column, &value, &isnull);
}

/*
 * A table that is detached keeps what comes.  Apply workers pass by the hooks that
 * tell the worker of new rows, too.
 */
HeapTuple
NumberReplicatedRow(TriggerData *trigger)
{
	bool		updates = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event);
	HeapTuple	tuple = updates ? trigger->tg_newtuple : trigger->tg_trigtuple;
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	NumberedColumn column = FindNumberedColumn(trigger->tg_relation);
	Datum		number;
	bool		isnull;

	if (column.attnum == InvalidAttrNumber || (updates && new_numbers_pass))
		return tuple;
	if (!updates)
	{
		NoteWakeup();
		return WithNumber(tuple, desc, column.attnum, nextval_internal(column.sequence, false));
	}
	number = heap_getattr(trigger->tg_trigtuple, column.attnum, desc, &isnull);
	return isnull ? tuple : WithNumber(tuple, desc, column.attnum, DatumGetInt64(number));
}
