/*
 * incsink.c
 *		Load: settings, hooks, shared memory and the static launcher.
 *
 * Hooks do nothing but look at the statement until one concerns an attached table:
 * statements that must come first in a transaction (SET TRANSACTION) still do.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "tcop/utility.h"

#include "access/table.h"
#include "cache/explicit_seq.h"
#include "cache/tree.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "common/compat.h"
#include "common/settings.h"
#include "common/shared.h"
#include "common/sql.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static planner_hook_type previous_planner_hook = NULL;
static ExecutorStart_hook_type previous_start_hook = NULL;
static ProcessUtility_hook_type previous_utility_hook = NULL;
static object_access_hook_type previous_access_hook = NULL;

/* Sees what views, rules and function bodies have become, which parse analysis does not. */
static PlannedStmt *
PlannerHook(PLANNER_HOOK_PARAMETERS)
{
	RefuseExplicitSeqInQuery(parse);
	if (previous_planner_hook)
		return previous_planner_hook(PLANNER_HOOK_ARGUMENTS);
	return standard_planner(PLANNER_HOOK_ARGUMENTS);
}

/*
 * Notes a statement that is going to write to an attached table.  Before it runs: one
 * that fails has drawn numbers, too, and holds back those of others until the end of
 * its transaction.
 */
static void
StartHook(QueryDesc *queryDesc, int eflags)
{
	ListCell   *cell;

	if (previous_start_hook)
		previous_start_hook(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
	foreach(cell, queryDesc->estate->es_opened_result_relations)
	{
		ResultRelInfo *result = lfirst(cell);

		if (RelationIsAttached(result->ri_RelationDesc))
		{
			NoteWakeup();
			return;
		}
	}
}

/* COPY FROM opens its relation itself, so it is looked at by name once it is done. */
static void
NoteCopy(CopyStmt *copy)
{
	Oid			relid;
	Relation	relation;

	if (!copy->is_from || copy->relation == NULL)
		return;
	relid = RangeVarGetRelid(copy->relation, NoLock, true);
	relation = OidIsValid(relid) ? try_table_open(relid, NoLock) : NULL;
	if (relation == NULL)
		return;
	if (RelationIsAttached(relation))
		NoteWakeup();
	table_close(relation, NoLock);
}

static void
UtilityHook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			ProcessUtilityContext context, ParamListInfo params,
			QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *statement = pstmt->utilityStmt;
	volatile bool is_copy = IsA(statement, CopyStmt);
	volatile bool finishes_prepared = false;
	DropCounts	outer;

	if (is_copy)
		RefuseExplicitSeqInCopy((CopyStmt *) statement);
	else if (IsA(statement, TransactionStmt))
	{
		TransactionStmtKind kind = ((TransactionStmt *) statement)->kind;

		finishes_prepared = kind == TRANS_STMT_COMMIT_PREPARED || kind == TRANS_STMT_ROLLBACK_PREPARED;
	}

	outer = BeginDropCounts();
	PG_TRY();
	{
		if (previous_utility_hook)
			previous_utility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
		else
			standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		EndDropCounts(outer);
	}
	PG_END_TRY();

	/* A COMMIT may have freed its own statement: only the flags are used here. */
	if (finishes_prepared)
	{
		WakeWorkers(MyDatabaseId);

		/* It may have created the extension; PREPARE does not remember a request. */
		if (ExtensionIsInstalled())
			RequestWorkerAtCommit();
	}
	else if (is_copy)
		NoteCopy((CopyStmt *) statement);
}

/*
 * Rows of a leaf are counted before it is dropped.  DROP INDEX CONCURRENTLY must be
 * the first thing that its transaction does, and drops no leaf.
 */
static void
AccessHook(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (previous_access_hook)
		previous_access_hook(access, classId, objectId, subId, arg);
	if (access == OAT_DROP && classId == RelationRelationId && subId == 0 &&
		(((ObjectAccessDrop *) arg)->dropflags & PERFORM_DELETION_CONCURRENTLY) == 0)
		CountBeforeDrop(objectId);
}

static void
RegisterLauncher(void)
{
	BackgroundWorker worker;

	DescribeLauncher(&worker, InvalidOid);
	RegisterBackgroundWorker(&worker);
}

void
_PG_init(void)
{
	DefineSettings();
	if (process_shared_preload_libraries_in_progress)
	{
		RequestSharedMemory();
		if (!IsBinaryUpgrade)
			RegisterLauncher();
	}
	previous_planner_hook = planner_hook;
	planner_hook = PlannerHook;
	previous_start_hook = ExecutorStart_hook;
	ExecutorStart_hook = StartHook;
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = UtilityHook;
	previous_access_hook = object_access_hook;
	object_access_hook = AccessHook;
}
