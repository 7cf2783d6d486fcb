/*
 * detach.c
 *		Making a partition a table again, and forgetting one that is gone.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "lib/stringinfo.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cache/attach.h"
#include "cache/seq_index.h"
#include "cache/truncate_guard.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
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
 * Takes the partition out of the catalog.  Without "force" a sink that exports it
 * is a reason to refuse.  Needs an open SqlSession.
 */
static ExportingSinks
RemovePartition(const Partition *partition, bool force, MemoryContext context)
{
	ExportingSinks sinks = FindExportingSinks(partition->partition_id, context);

	if (sinks.count > 0 && !force)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot detach \"%s.%s\" because sinks export it",
						partition->schema_name, partition->table_name),
				 errdetail("Sinks: %s.", sinks.names),
				 errhint("Run incsink_remove_table() for each of them, or pass force => true; what they have not exported then stays unexported.")));
	for (int i = 0; i < sinks.count; i++)
		(void) RemoveSinkTable(sinks.ids[i], partition->partition_id);
	DeletePartition(partition->partition_id);
	ForgetPublishedHorizon(partition->partition_id);
	InvalidateDefinitions();
	return sinks;
}

/* Says what is left of the column, and how to remove it. */
static void
SayWhatIsLeft(const Partition *partition, bool dropped)
{
	AttrNumber	attnum = get_attnum(partition->relid, partition->seq_column);
	SeqIndex	index;
	bool		indexed = attnum > 0 && FindSeqIndex(partition->relid, attnum, &index);

	if (dropped || partition->adopted || attnum <= 0)
		ereport(NOTICE,
				(errmsg("table \"%s.%s\" is detached; nothing of incsink is left on it",
						partition->schema_name, partition->table_name)));
	else
		ereport(NOTICE,
				(errmsg("table \"%s.%s\" is detached", partition->schema_name, partition->table_name),
				 indexed ? errdetail("The column \"%s\" and the index \"%s\" are left, and go on numbering rows; they are used again when the table is attached again.",
									 partition->seq_column, get_rel_name(index.index))
				 : errdetail("The column \"%s\" is left, and goes on numbering rows.", partition->seq_column),
				 errhint("To remove what is left, run: ALTER TABLE %s DROP COLUMN %s;",
						 QuotedRelationName(partition->relid), quote_identifier(partition->seq_column))));
}

/* Takes away the guard and, if asked, the column with its identity and index. */
static void
RestoreTable(const Partition *partition, bool drop_column)
{
	char	   *table = QuotedRelationName(partition->relid);

	RunStatement("DROP TRIGGER IF EXISTS " TRUNCATE_BEFORE_TRIGGER " ON %s", table);
	RunStatement("DROP TRIGGER IF EXISTS " TRUNCATE_AFTER_TRIGGER " ON %s", table);
	if (drop_column)
		RunStatement("ALTER TABLE %s DROP COLUMN IF EXISTS %s", table,
					 quote_identifier(partition->seq_column));
}

void
DetachTable(Oid relid, bool drop_column, bool force)
{
	MemoryContext context = CurrentMemoryContext;
	int			nest_level = NewGUCNestLevel();
	SqlSession	session;
	Partition  *partition;

	RequireOwner(relid);
	LimitLockWait();
	LockRelationOid(relid, AccessExclusiveLock);
	SqlBegin(&session);
	partition = RequirePartition(relid, context);
	if (drop_column && partition->adopted)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("column \"%s\" of table \"%s.%s\" was adopted and is not dropped",
						partition->seq_column, partition->schema_name, partition->table_name),
				 errhint("Detach without drop_column.")));
	(void) RemovePartition(partition, force, context);
	SqlEnd(&session);
	RestoreTable(partition, drop_column);
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
	sinks = RemovePartition(partition, true, context);
	SqlEnd(&session);
	NoteWakeup();
	ereport(NOTICE,
			(errmsg("partition (\"%s\", \"%s\") is forgotten", dataset, source),
			 sinks.count > 0 ? errdetail("It was taken out of the sinks %s.", sinks.names) : 0));
}
