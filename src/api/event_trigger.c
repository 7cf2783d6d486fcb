/*
 * event_trigger.c
 *		What the event triggers do: DDL on attached trees, new names, and new subscriptions.
 *
 * They see every CREATE TABLE, ALTER TABLE and DROP of the database, so they look at
 * as little as they can before they know that it concerns them; they raise what
 * SyncLeaves() refuses, and nothing of their own.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "commands/event_trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"

#include "cache/subscription.h"
#include "cache/tree.h"
#include "common/sql.h"

PG_FUNCTION_INFO_V1(incsink_ddl_end);
PG_FUNCTION_INFO_V1(incsink_sql_drop);

static EventTriggerData *
RequireEvent(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" is called by event triggers only",
						get_func_name(fcinfo->flinfo->fn_oid))));
	return (EventTriggerData *) fcinfo->context;
}

/* pg_upgrade brings the catalog's rows only later. */
static bool
IsIdle(void)
{
	return IsBinaryUpgrade || RecoveryInProgress() || !CatalogIsAtLeast(2);
}

/* A new table that is no partition of another is nobody's leaf. */
static bool
IsPlainCreate(Node *statement)
{
	return IsA(statement, CreateStmt) && ((CreateStmt *) statement)->partbound == NULL;
}

static bool
IsSubscriptionCommand(Node *statement)
{
	return IsA(statement, CreateSubscriptionStmt) || IsA(statement, AlterSubscriptionStmt);
}

/* OIDs in the first column of the last result, each once. */
static List *
ResultOids(uint64 count)
{
	List	   *oids = NIL;

	for (uint64 row = 0; row < count; row++)
		oids = list_append_unique_oid(oids, SqlGetOid(row, 1));
	return oids;
}

/* Tables that the command has created or altered; in the caller's context. */
static List *
ChangedTables(void)
{
	SqlSession	session;
	List	   *tables;

	SqlBegin(&session);
	tables = ResultOids(SqlRun0("SELECT objid FROM pg_catalog.pg_event_trigger_ddl_commands()"
								" WHERE classid = 'pg_catalog.pg_class'::pg_catalog.regclass"));
	SqlEnd(&session);
	return tables;
}

/* A dump that is made next finds an attached table by its new name. */
static void
TakeNewNames(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;

	SqlBegin(&session);
	partition = LoadPartitionByRelation(relid, context);
	if (partition)
		RefreshNames(partition);
	SqlEnd(&session);
}

static bool
IsSchemaCommand(Node *statement)
{
	return (IsA(statement, RenameStmt) && ((RenameStmt *) statement)->renameType == OBJECT_SCHEMA) ||
		(IsA(statement, AlterOwnerStmt) && ((AlterOwnerStmt *) statement)->objectType == OBJECT_SCHEMA);
}

/* A schema has got another name: any partition may be in it. */
static void
TakeNewSchemaNames(void)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	ListCell   *cell;

	SqlBegin(&session);
	foreach(cell, LoadPartitions(context))
		RefreshNames(lfirst(cell));
	SqlEnd(&session);
}

static void
SyncTable(Oid relid)
{
	char		relkind = get_rel_relkind(relid);
	Oid			root;

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE &&
		relkind != RELKIND_FOREIGN_TABLE)
		return;
	root = AttachedRoot(relid);
	if (OidIsValid(root))
		SyncLeaves(root);
	TakeNewNames(OidIsValid(root) ? root : relid);
}

Datum
incsink_ddl_end(PG_FUNCTION_ARGS)
{
	EventTriggerData *event = RequireEvent(fcinfo);
	ListCell   *cell;

	if (IsPlainCreate(event->parsetree) || IsIdle())
		PG_RETURN_NULL();
	if (IsSubscriptionCommand(event->parsetree))
		GuardSubscribedTables(get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)));
	else if (IsSchemaCommand(event->parsetree))
		TakeNewSchemaNames();
	else
		foreach(cell, ChangedTables())
			SyncTable(lfirst_oid(cell));
	PG_RETURN_NULL();
}

/* Leaves on record among what the command has dropped; in the caller's context. */
static List *
DroppedLeaves(void)
{
	SqlSession	session;
	List	   *leaves;

	SqlBegin(&session);
	leaves = ResultOids(SqlRun0("SELECT d.objid FROM pg_catalog.pg_event_trigger_dropped_objects() d"
								" WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass"
								" AND d.objsubid = 0 AND NOT d.is_temporary"
								" AND EXISTS (SELECT FROM incsink.leaf_def l WHERE l.relid = d.objid)"));
	SqlEnd(&session);
	return leaves;
}

/*
 * Fires for DROP FUNCTION and the like, too: a database without trees asks nothing
 * more than whether there are any.
 */
Datum
incsink_sql_drop(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	(void) RequireEvent(fcinfo);
	if (IsIdle() || !AnyLeafIsRecorded())
		PG_RETURN_NULL();
	foreach(cell, DroppedLeaves())
		NoteDroppedLeaf(lfirst_oid(cell));
	PG_RETURN_NULL();
}
