/*
 * index_tasks.c
 *		The index tasks of large tables, worked off by a process of their own.
 *
 * A task is a row of incsink.index_task; while it is there its partition is
 * preparing.  What was done of it shows in the indexes themselves, so a process that
 * comes after a crash begins where it finds them.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "cache/attach.h"
#include "cache/index_build.h"
#include "cache/index_concurrently.h"
#include "cache/seq_index.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/inject.h"
#include "common/shared.h"
#include "common/sql.h"
#include "common/subtransaction.h"

#define LOOK_EVERY_MS 2000		/* for tasks that are new, or done by hand */
#define FIRST_PAUSE_MS 1000
#define LONGEST_PAUSE_MS 60000
#define JOIN_LOCK_TIMEOUT "2s"

/* A task as it was found. */
typedef struct IndexTask
{
	Partition  *partition;
	List	   *unindexed;		/* OIDs of relations to build an index on */
	List	   *unjoined;		/* of UnjoinedLeaf */
} IndexTask;

/* Of tasks that failed in this process. */
typedef struct TaskPause
{
	int64		partition_id;
	int64		pause_ms;
	TimestampTz until;
} TaskPause;

static List *pauses = NIL;
static MemoryContext tasks_context = NULL;

static TaskPause *
FindPause(int64 partition_id)
{
	ListCell   *cell;

	foreach(cell, pauses)
	{
		TaskPause  *pause = lfirst(cell);

		if (pause->partition_id == partition_id)
			return pause;
	}
	return NULL;
}

static void
ForgetPause(int64 partition_id)
{
	TaskPause  *pause = FindPause(partition_id);

	if (pause == NULL)
		return;
	pauses = list_delete_ptr(pauses, pause);
	pfree(pause);
}

/* A build is not repeated for more than half of the time. */
static void
PauseTask(int64 partition_id, TimestampTz began)
{
	TimestampTz now = GetCurrentTimestamp();
	TaskPause  *pause = FindPause(partition_id);

	if (pause == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		pause = palloc0(sizeof(TaskPause));
		pause->partition_id = partition_id;
		pauses = lappend(pauses, pause);
		MemoryContextSwitchTo(old);
	}
	pause->pause_ms = pause->pause_ms == 0 ? FIRST_PAUSE_MS : Min(2 * pause->pause_ms, LONGEST_PAUSE_MS);
	pause->until = TimestampTzPlusMilliseconds(now, Max(pause->pause_ms, TimestampDifferenceMilliseconds(began, now)));
}

/* Is there a table whose numbers want an index? */
static bool
TaskHasTable(const Partition *partition)
{
	return get_rel_name(partition->relid) != NULL &&
		get_attnum(partition->relid, partition->seq_column) > 0;
}

/* A table that is to be found by incsink_adopt_database() keeps its task until then. */
static IndexTask *
LookAtTask(int64 partition_id)
{
	Partition  *partition = LoadPartition(partition_id, CurrentMemoryContext);
	IndexTask  *task;

	if (partition != NULL && !OidIsValid(partition->relid))
		return NULL;
	if (partition == NULL || !TaskHasTable(partition))
	{
		FinishIndexTask(partition_id);
		InvalidateDefinitions();
		return NULL;
	}
	task = palloc(sizeof(IndexTask));
	task->partition = partition;
	task->unindexed = list_concat(ListUnindexed(partition), ListUnindexedLeft(partition));
	task->unjoined = ListUnjoined(partition);
	return task;
}

/* All that can be worked on, in tasks_context; those whose table is gone are ended. */
static List *
ReadTasks(void)
{
	SqlSession	session;
	uint64		count;
	int64	   *ids;
	List	   *tasks = NIL;

	StartTransactionCommand();
	MemoryContextSwitchTo(tasks_context);
	SqlBegin(&session);
	count = CatalogIsAtLeast(2) ?
		SqlRun0("SELECT partition_id FROM incsink.index_task ORDER BY requested_at, partition_id") : 0;
	ids = palloc(sizeof(int64) * (count + 1));
	for (uint64 row = 0; row < count; row++)
		ids[row] = SqlGetInt8(row, 1);
	for (uint64 row = 0; row < count; row++)
	{
		IndexTask  *task = LookAtTask(ids[row]);

		if (task != NULL)
			tasks = lappend(tasks, task);
	}
	SqlEnd(&session);
	INCSINK_POINT("index-tasks-commit");
	CommitTransactionCommand();
	return tasks;
}

typedef struct JoinCall
{
	const UnjoinedLeaf *leaf;
	const char *column;
} JoinCall;

static void
JoinInSubtransaction(void *arg)
{
	JoinCall   *call = arg;

	JoinLeafIndex(call->leaf, call->column);
}

/* A leaf's index that does not fit its root's is read by all the same. */
static void
JoinLeaf(const UnjoinedLeaf *leaf, const char *column)
{
	JoinCall	call = {leaf, column};
	ErrorData  *error;
	int			nest_level;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	nest_level = NewGUCNestLevel();
	(void) set_config_option("lock_timeout", JOIN_LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	/* That of the database: event triggers of users look for their tables by it. */
	(void) set_config_option("search_path", NULL, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	error = InSubtransaction(JoinInSubtransaction, &call);
	if (error != NULL && (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
						  error->sqlerrcode == ERRCODE_QUERY_CANCELED))
		ReThrowError(error);
	if (error != NULL)
		ereport(LOG,
				(errmsg("the index of relation %u does not join that of relation %u: %s",
						leaf->leaf, leaf->parent, error->message)));
	AtEOXact_GUC(true, nest_level);
	PopActiveSnapshot();
	INCSINK_POINT("index-join-commit");
	CommitTransactionCommand();
	MemoryContextSwitchTo(tasks_context);
}

/* Looks again: leaves may have come meanwhile, or the table may be detached. */
static void
FinishTask(int64 partition_id)
{
	SqlSession	session;
	Partition  *partition;
	bool		done;

	StartTransactionCommand();
	MemoryContextSwitchTo(tasks_context);
	SqlBegin(&session);
	partition = LoadPartition(partition_id, tasks_context);
	done = partition != NULL && partition->preparing && TaskHasTable(partition) &&
		IndexesAreThere(partition);
	if (done)
	{
		FinishIndexTask(partition_id);
		InvalidateDefinitions();
	}
	SqlEnd(&session);
	INCSINK_POINT("index-finish-commit");
	CommitTransactionCommand();
	if (!done)
		return;
	ForgetPause(partition_id);
	ereport(LOG,
			(errmsg("the index on \"%s\" of table \"%s.%s\" is there: its new rows are exported",
					partition->seq_column, partition->schema_name, partition->table_name)));
}

static void
WorkOnTask(IndexTask *task)
{
	Partition  *partition = task->partition;
	List	   *unjoined = task->unjoined;
	ListCell   *cell;

	foreach(cell, task->unindexed)
		BuildIndexConcurrently(lfirst_oid(cell), partition->seq_column, partition->tree);
	if (partition->tree && task->unindexed != NIL)
	{
		StartTransactionCommand();
		MemoryContextSwitchTo(tasks_context);
		unjoined = ListUnjoined(partition);
		INCSINK_POINT("index-tasks-commit");
		CommitTransactionCommand();
	}
	foreach(cell, unjoined)
		JoinLeaf(lfirst(cell), partition->seq_column);
	FinishTask(partition->partition_id);
}

/* What people read in incsink.index_task; one line. */
static char *
DescribeFailure(const Partition *partition, const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		return pstrdup("the build was canceled, by somebody or for a session that waits to lock the table; it begins again");
	if (error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION)
		return psprintf("%s: %s Rows came with numbers of their own: delete them, or run: CALL incsink_renumber(%s, every_row => true);",
						error->message, error->detail ? error->detail : "",
						quote_literal_cstr(quote_qualified_identifier(partition->schema_name,
																	  partition->table_name)));
	return psprintf("%s%s%s", error->message, error->detail ? ": " : "",
					error->detail ? error->detail : "");
}

static void
StoreFailure(int64 partition_id, const char *text)
{
	SqlSession	session;

	SqlBegin(&session);
	SqlRun("UPDATE incsink.index_task SET attempts = attempts + 1, last_error = $2,"
		   " last_error_time = pg_catalog.clock_timestamp() WHERE partition_id = $1",
		   SqlInt8(partition_id), SqlText(text));
	SqlEnd(&session);
}

/* The extension may be gone: DROP EXTENSION breaks a build off. */
static void
RecordFailure(const Partition *partition, const ErrorData *error)
{
	char	   *text = DescribeFailure(partition, error);

	StartTransactionCommand();
	MemoryContextSwitchTo(tasks_context);
	if (ExtensionIsInstalled())
		StoreFailure(partition->partition_id, text);
	INCSINK_POINT("index-failure-commit");
	CommitTransactionCommand();
	ereport(LOG,
			(errmsg("could not build the index on \"%s\" of table \"%s.%s\": %s",
					partition->seq_column, partition->schema_name, partition->table_name, text)));
}

/*
 * An error ends this attempt.  Whoever canceled it is given time: further signals of
 * its are for a build that is over.
 */
static void
TryTask(IndexTask *task)
{
	TimestampTz began = GetCurrentTimestamp();
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		WorkOnTask(task);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(tasks_context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(tasks_context);
	}
	PG_END_TRY();
	EndBuild();
	if (error == NULL)
		return;
	QueryCancelPending = false;
	PauseTask(task->partition->partition_id, began);
	RecordFailure(task->partition, error);
}

long
BuildPendingIndexes(void)
{
	List	   *tasks;
	ListCell   *cell;
	bool		worked = false;

	if (tasks_context == NULL)
		tasks_context = AllocSetContextCreate(TopMemoryContext, "incsink index tasks",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(tasks_context);
	tasks = ReadTasks();
	foreach(cell, tasks)
	{
		IndexTask  *task = lfirst(cell);
		TaskPause  *pause = FindPause(task->partition->partition_id);

		if (pause != NULL && pause->until > GetCurrentTimestamp() &&
			(task->unindexed != NIL || task->unjoined != NIL))
			continue;
		TryTask(task);
		worked = true;
		break;
	}
	MemoryContextSwitchTo(TopMemoryContext);
	if (tasks == NIL)
		return -1;
	return worked ? 0 : LOOK_EVERY_MS;
}
