/*
 * index_concurrently.c
 *		CREATE INDEX CONCURRENTLY from a background process.
 *
 * The statement is several transactions and must not run inside one, so SPI cannot
 * run it; it goes through a portal as a client's would.
 *
 * The lock that it takes on the table is taken before it, for the session: it is
 * waited for with a time limit, and while it is held no other build is under way,
 * so that an index which is not valid has been left by a process that is gone.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "cache/attach.h"
#include "cache/attach_lock.h"
#include "cache/index_concurrently.h"
#include "cache/seq_index.h"
#include "common/compat.h"
#include "common/inject.h"
#include "common/subtransaction.h"

/*
 * The server cancels an autovacuum that is in the way of one who has waited for
 * deadlock_timeout.
 */
#define ABOVE_DEADLOCK_TIMEOUT_MS 500

static MemoryContext build_context = NULL;	/* lives as long as a build */
static char *session_lock_timeout = NULL;	/* before the build */
static char *session_search_path = NULL;

/* Outside of a transaction, where a setting is not undone by one; NULL resets it. */
static void
SetForSession(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SET, true, 0, false);
}

/* Event triggers of users' expect the search_path of the database or role. */
static void
BeginBuild(void)
{
	if (build_context == NULL)
		build_context = AllocSetContextCreate(TopMemoryContext, "incsink index build",
											  ALLOCSET_DEFAULT_SIZES);
	session_lock_timeout = MemoryContextStrdup(TopMemoryContext, GetConfigOption("lock_timeout", false, false));
	session_search_path = MemoryContextStrdup(TopMemoryContext, GetConfigOption("search_path", false, false));
	SetForSession("search_path", NULL);
}

void
EndBuild(void)
{
	if (session_lock_timeout == NULL)
		return;
	SetForSession("lock_timeout", session_lock_timeout);
	SetForSession("search_path", session_search_path);
	pfree(session_lock_timeout);
	pfree(session_search_path);
	session_lock_timeout = NULL;
	session_search_path = NULL;
	debug_query_string = NULL;
	pgstat_report_activity(STATE_IDLE, NULL);
	MemoryContextReset(build_context);
}

static LockRelId
TableLock(Oid relid)
{
	LockRelId	lock = {relid, MyDatabaseId};

	return lock;
}

/* For InSubtransaction(), which leaves a session's lock alone. */
static void
LockForBuild(void *arg)
{
	LockRelId	lock = TableLock(*(Oid *) arg);

	LockRelationIdForSession(&lock, ShareUpdateExclusiveLock);
}

/* Needs a transaction; the lock stays after it. */
static void
LockTableForBuild(Oid relid)
{
	ErrorData  *error = InSubtransaction(LockForBuild, &relid);
	char	   *holders;

	AcceptInvalidationMessages();
	if (error == NULL)
		return;
	holders = error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ?
		DescribeLockHolders(relid, ShareUpdateExclusiveLock) : NULL;
	if (holders == NULL)
		ReThrowError(error);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("table \"%s.%s\" is locked by %s", get_namespace_name(get_rel_namespace(relid)),
					get_rel_name(relid), holders)));
}

/* Statements that make the index, in build_context; NIL if there is nothing to do. */
static List *
WriteStatements(Oid relid, const char *column, bool in_tree)
{
	AttrNumber	attnum = get_rel_name(relid) ? get_attnum(relid, column) : InvalidAttrNumber;
	SeqIndex	found;
	List	   *statements = NIL;
	ListCell   *cell;

	if (attnum <= 0 || FindSeqIndex(relid, attnum, in_tree, &found))
		return NIL;
	foreach(cell, ListMadeIndexes(relid, attnum, in_tree))
	{
		MadeIndex  *index = lfirst(cell);

		if (!index->finished && !index->joined)
			statements = lappend(statements, psprintf("DROP INDEX CONCURRENTLY %s",
													  QuotedRelationName(index->index)));
	}
	return lappend(statements, psprintf("CREATE %sINDEX CONCURRENTLY ON %s (%s) WHERE %s OPERATOR(pg_catalog.>) 0",
										in_tree ? "" : "UNIQUE ", QuotedRelationName(relid),
										quote_identifier(column), quote_identifier(column)));
}

/* Locks the table for the session and says what is to be done. */
static List *
PlanBuild(Oid relid, const char *column, bool in_tree)
{
	char		timeout[32];
	List	   *statements;
	MemoryContext old;

	snprintf(timeout, sizeof(timeout), "%d", DeadlockTimeout + ABOVE_DEADLOCK_TIMEOUT_MS);
	SetForSession("lock_timeout", timeout);
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	LockTableForBuild(relid);
	old = MemoryContextSwitchTo(build_context);
	statements = WriteStatements(relid, column, in_tree);
	MemoryContextSwitchTo(old);
	INCSINK_POINT("index-plan-commit");
	CommitTransactionCommand();
	SetForSession("lock_timeout", "0");
	return statements;
}

/* A list of one statement, as the parser gives it. */
static PlannedStmt *
ParseUtility(const char *statement)
{
	RawStmt    *raw = linitial_node(RawStmt, pg_parse_query(statement));
	PlannedStmt *planned = makeNode(PlannedStmt);

	planned->commandType = CMD_UTILITY;
	planned->canSetTag = true;
	planned->utilityStmt = raw->stmt;
	planned->stmt_location = raw->stmt_location;
	planned->stmt_len = raw->stmt_len;
	return planned;
}

/*
 * What exec_simple_query() does for a client: the statement's memory outlives the
 * transactions that it begins and ends.  After these an event trigger's queries get
 * their snapshot by the portal.
 */
static void
RunAtTopLevel(const char *statement)
{
	PlannedStmt *planned;
	QueryCompletion completion;
	Portal		portal;

	debug_query_string = statement;
	pgstat_report_activity(STATE_RUNNING, statement);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(build_context);
	planned = ParseUtility(statement);
	portal = CreatePortal("", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, statement, CreateCommandTag((Node *) planned),
					  list_make1(planned), NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	InitializeQueryCompletion(&completion);
	(void) PortalRunCompat(portal, None_Receiver, &completion);
	PortalDrop(portal, false);
	INCSINK_POINT("index-build-commit");
	CommitTransactionCommand();
	pgstat_report_stat(false);
}

void
BuildIndexConcurrently(Oid relid, const char *column, bool in_tree)
{
	LockRelId	lock = TableLock(relid);
	List	   *statements;
	ListCell   *cell;

	BeginBuild();
	statements = PlanBuild(relid, column, in_tree);
	foreach(cell, statements)
		RunAtTopLevel(lfirst(cell));
	UnlockRelationIdForSession(&lock, ShareUpdateExclusiveLock);
	EndBuild();
}
