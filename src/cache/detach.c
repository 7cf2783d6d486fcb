/*
 * detach.c
 *		Making a partition a table again, and forgetting one that is gone.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cache/attach.h"
#include "cache/attach_lock.h"
#include "cache/index_build.h"
#include "cache/seq_index.h"
#include "cache/storage.h"
#include "cache/subscription.h"
#include "cache/truncate_guard.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/compat.h"
#include "common/shared.h"
#include "common/sql.h"

/* The sinks that export the partition. */
typedef struct ExportingSinks
{
	int			count;
	int64	   *ids;
	char	   *names;			/* "a", "b" */
} ExportingSinks;

static ExportingSinks
FindExportingSinks(int64 partition_id, MemoryContext context)
{
	ExportingSinks sinks = {0, NULL, NULL};
	StringInfoData names;
	uint64		count = SqlRun("SELECT t.sink_id, s.name FROM incsink.sink_table_def t"
							   " JOIN incsink.sink_def s ON s.sink_id = t.sink_id"
							   " WHERE t.partition_id = $1 ORDER BY s.name", SqlInt8(partition_id));
	MemoryContext old = MemoryContextSwitchTo(context);

	initStringInfo(&names);
	sinks.ids = palloc(sizeof(int64) * (count + 1));
	for (uint64 row = 0; row < count; row++)
	{
		sinks.ids[sinks.count++] = SqlGetInt8(row, 1);
		appendStringInfo(&names, "%s\"%s\"", row > 0 ? ", " : "", SqlGetText(row, 2, context));
	}
	sinks.names = names.data;
	MemoryContextSwitchTo(old);
	return sinks;
}

/*
 * Raises an ERROR if the partition cannot be detached so.  Needs an open SqlSession.
 */
static void
CheckCanBeDetached(const Partition *partition, bool drop_column, bool force)
{
	ExportingSinks sinks = FindExportingSinks(partition->partition_id, CurrentMemoryContext);

	if (drop_column && partition->adopted)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("column \"%s\" of table \"%s.%s\" was adopted and is not dropped",
						partition->seq_column, partition->schema_name, partition->table_name),
				 errhint("Detach without drop_column.")));
	if (sinks.count > 0 && !force)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot detach \"%s.%s\" because sinks export it",
						partition->schema_name, partition->table_name),
				 errdetail("Sinks: %s.", sinks.names),
				 errhint("Run incsink_remove_table() for each of them, or pass force => true; what they have not exported then stays unexported.")));
}

/*
 * Takes the partition out of the catalog, and of the sinks that export it.  Needs an
 * open SqlSession.
 */
static ExportingSinks
RemovePartition(const Partition *partition, MemoryContext context)
{
	ExportingSinks sinks = FindExportingSinks(partition->partition_id, context);

	for (int i = 0; i < sinks.count; i++)
		(void) RemoveSinkTable(sinks.ids[i], partition->partition_id);
	DeletePartition(partition->partition_id);
	ForgetPublishedHorizon(partition->partition_id);
	InvalidateDefinitions();
	return sinks;
}

/* The partial index of the column, "" if there is none; of the root on a tree. */
static const char *
LeftIndexName(const Partition *partition, AttrNumber attnum)
{
	SeqIndex	index;

	if (!FindSeqIndex(partition->relid, attnum, partition->tree, &index))
		return NULL;
	return get_rel_name(index.index);
}

/* Says what is left of the column, and how to remove it. */
static void
SayWhatIsLeft(const Partition *partition, bool dropped)
{
	AttrNumber	attnum = get_attnum(partition->relid, partition->seq_column);
	const char *index = attnum > 0 ? LeftIndexName(partition, attnum) : NULL;

	if (dropped || partition->adopted || attnum <= 0)
		ereport(NOTICE,
				(errmsg("table \"%s.%s\" is detached; nothing of incsink is left on it",
						partition->schema_name, partition->table_name)));
	else
		ereport(NOTICE,
				(errmsg("table \"%s.%s\" is detached", partition->schema_name, partition->table_name),
				 index ? errdetail("The column \"%s\" and the index \"%s\" are left, and go on numbering rows; they are used again when the table is attached again.",
								   partition->seq_column, index)
				 : errdetail("The column \"%s\" is left, and goes on numbering rows.", partition->seq_column),
				 errhint("To remove what is left, run: ALTER TABLE %s DROP COLUMN %s;",
						 QuotedRelationName(partition->relid), quote_identifier(partition->seq_column))));
}

static void
DropTrigger(Oid relid, const char *name)
{
	if (OidIsValid(get_trigger_oid(relid, name, true)))
		RunStatement("DROP TRIGGER %s ON %s", name, QuotedRelationName(relid));
}

static void
DropColumn(Oid relid, const char *column)
{
	if (get_attnum(relid, column) > 0)
		RunStatement("ALTER TABLE %s DROP COLUMN %s", QuotedRelationName(relid), quote_identifier(column));
}

/*
 * Takes away the guard and, if asked, the column with its identity and index.  Tables
 * that left a tree have the column, too; what belongs to others is left to them.
 */
static void
RestoreTable(const Partition *partition, List *left_leaves, bool drop_column)
{
	ListCell   *cell;

	DropTrigger(partition->relid, TRUNCATE_BEFORE_TRIGGER);
	DropTrigger(partition->relid, TRUNCATE_AFTER_TRIGGER);
	DropTrigger(partition->relid, NUMBER_ROW_TRIGGER);
	if (!drop_column)
	{
		if (!partition->tree)
			DropUnfinishedIndexes(partition->relid, partition->seq_column);
		return;
	}
	foreach(cell, left_leaves)
		if (pg_class_ownercheck(lfirst_oid(cell), GetUserId()))
			DropColumn(lfirst_oid(cell), partition->seq_column);
	DropColumn(partition->relid, partition->seq_column);
}

/* Tables that left the tree and are still there.  Needs an open SqlSession. */
static List *
ListLeftLeaves(const Partition *partition)
{
	List	   *left = NIL;
	ListCell   *cell;

	if (!partition->tree)
		return NIL;
	foreach(cell, LoadLeaves(partition->partition_id))
	{
		Leaf	   *leaf = lfirst(cell);

		if (leaf->left && get_rel_relkind(leaf->relid) == RELKIND_RELATION)
			left = lappend_oid(left, leaf->relid);
	}
	return left;
}

/*
 * A build of the index holds its lock for as long as it takes, and is for nothing
 * now.  Its process breaks it off and goes on with other tables.  Needs an open
 * SqlSession.
 */
static void
EndIndexBuild(const Partition *partition)
{
	if (partition->preparing)
		SqlRun("SELECT pg_catalog.pg_cancel_backend(a.pid)"
			   " FROM pg_catalog.pg_stat_activity a WHERE a.datid = (SELECT d.oid FROM pg_catalog.pg_database d"
			   "  WHERE d.datname = pg_catalog.current_database())"
			   " AND a.backend_type = 'incsink index worker'"
			   " AND EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND l.granted"
			   "  AND l.database = a.datid AND (l.relation = $1 OR l.relation IN ("
			   "   SELECT f.relid FROM incsink.leaf_def f WHERE f.partition_id = $2)))",
			   SqlOid(partition->relid), SqlInt8(partition->partition_id));
}

/*
 * Locks the table, after the partition's index builder has been told to go, which it
 * is not for a call that will be refused: what the catalog said before may be
 * different then.
 */
static void
LockTableForDetach(Oid relid, bool drop_column, bool force)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;

	if (CatalogIsAtLeast(2))
	{
		SqlBegin(&session);
		partition = LoadPartitionByRelation(relid, context);
		if (partition)
		{
			CheckCanBeDetached(partition, drop_column, force);
			EndIndexBuild(partition);
		}
		SqlEnd(&session);
	}
	if (drop_column && get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE)
		LockTableForAttach(relid);
	else
		LockRelationOid(relid, AccessExclusiveLock);
}

void
DetachTable(Oid relid, bool drop_column, bool force)
{
	MemoryContext context = CurrentMemoryContext;
	int			nest_level = NewGUCNestLevel();
	SqlSession	session;
	Partition  *partition;
	List	   *left_leaves;

	RequireOwner(relid);
	LimitLockWait();
	LockTableForDetach(relid, drop_column, force);
	SqlBegin(&session);
	partition = RequirePartition(relid, context);
	CheckCanBeDetached(partition, drop_column, force);
	left_leaves = ListLeftLeaves(partition);
	(void) RemovePartition(partition, context);
	SqlEnd(&session);
	RestoreTable(partition, left_leaves, drop_column);
	NoteWakeup();
	AtEOXact_GUC(true, nest_level);
	SayWhatIsLeft(partition, drop_column);
}

void
ForgetPartition(const char *dataset, const char *source)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;
	ExportingSinks sinks;

	SqlBegin(&session);
	partition = LoadPartitionByName(dataset, source, context);
	if (partition == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("dataset \"%s\" has no partition with source \"%s\"", dataset, source)));
	if (OidIsValid(partition->relid) &&
		SearchSysCacheExists1(RELOID, ObjectIdGetDatum(partition->relid)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s.%s\" still exists", partition->schema_name, partition->table_name),
				 errhint("Run: SELECT incsink_detach(%s);",
						 quote_literal_cstr(QuotedRelationName(partition->relid)))));
	sinks = RemovePartition(partition, context);
	SqlEnd(&session);
	NoteWakeup();
	ereport(NOTICE,
			(errmsg("partition (\"%s\", \"%s\") is forgotten", dataset, source),
			 sinks.count > 0 ? errdetail("It was taken out of the sinks %s.", sinks.names) : 0));
}
