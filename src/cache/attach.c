/*
 * attach.c
 *		Making a table a partition.
 *
 * A new column costs no rewrite: its default 0 is kept in the catalog for the rows
 * that are there, and is taken away again before the first new row.  Its identity
 * belongs to the user's table, so dumps carry it and nobody needs a privilege on a
 * sequence.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cache/attach.h"
#include "cache/attach_lock.h"
#include "cache/backlog.h"
#include "cache/horizon.h"
#include "cache/index_build.h"
#include "cache/seq_column.h"
#include "cache/storage.h"
#include "cache/subscription.h"
#include "cache/tree.h"
#include "cache/truncate_guard.h"
#include "catalog/identity.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/compat.h"
#include "common/options.h"
#include "common/shared.h"
#include "common/sql.h"

/* Raises the first problem that forbids attaching; says the others. */
static void
RaiseProblems(const AttachRequest *request, List *problems)
{
	ListCell   *cell;

	foreach(cell, problems)
	{
		AttachProblem *problem = lfirst(cell);

		if (problem->level == ERROR && problem->forcible && request->force)
			problem->level = WARNING;
		if (problem->level == ERROR)
			ereport(ERROR,
					(errcode(problem->sqlstate),
					 errmsg("cannot attach \"%s.%s\"",
							get_namespace_name(get_rel_namespace(request->relid)),
							get_rel_name(request->relid)),
					 errdetail("%s", problem->problem),
					 problem->hint ? errhint("%s", problem->hint) : 0));
	}
	foreach(cell, problems)
	{
		AttachProblem *problem = lfirst(cell);

		ereport(problem->level,
				(errmsg("attaching \"%s.%s\"",
						get_namespace_name(get_rel_namespace(request->relid)),
						get_rel_name(request->relid)),
				 errdetail("%s", problem->problem),
				 problem->hint ? errhint("%s", problem->hint) : 0));
	}
}

/* Names stand in headers and in object names. */
static void
CheckName(const char *argument, const char *name)
{
	if (*name == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("the %s must not be empty", argument)));
	for (const char *c = name; *c != '\0'; c++)
		if ((unsigned char) *c < 0x20 || *c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_NAME),
					 errmsg("the %s must not hold control characters", argument)));
}

/* Fills in the names that were left out, and refuses those that are taken. */
static void
ChooseNames(AttachRequest *request)
{
	Partition  *taken;
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;

	if (request->dataset == NULL)
		request->dataset = psprintf("%s.%s", get_namespace_name(get_rel_namespace(request->relid)),
									get_rel_name(request->relid));
	CheckName("dataset", request->dataset);
	CheckName("source", request->source);
	SqlBegin(&session);
	taken = LoadPartitionByName(request->dataset, request->source, context);
	SqlEnd(&session);
	if (taken)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("dataset \"%s\" has a partition with source \"%s\" already", request->dataset, request->source),
				 errdetail("It is the table \"%s.%s\".", taken->schema_name, taken->table_name),
				 errhint("Pass another source, or run incsink_forget_partition() if that table was dropped.")));
}

/* ENABLE ALWAYS: a replicated TRUNCATE ... RESTART IDENTITY restarts the sequence too. */
static void
AddTruncateGuard(Oid relid, const char *schema)
{
	static const char *const triggers[] = {TRUNCATE_BEFORE_TRIGGER, TRUNCATE_AFTER_TRIGGER};
	static const char *const times[] = {"BEFORE", "AFTER"};
	char	   *table = QuotedRelationName(relid);

	for (int i = 0; i < lengthof(triggers); i++)
	{
		RunStatement("CREATE OR REPLACE TRIGGER %s %s TRUNCATE ON %s FOR EACH STATEMENT"
					 " EXECUTE FUNCTION %s()", triggers[i], times[i], table,
					 quote_qualified_identifier(schema, triggers[i]));
		RunStatement("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", table, triggers[i]);
	}
}

/* What the catalog is to say, read from the table as it is now. */
static Partition *
DescribePartition(const AttachRequest *request, const char *column)
{
	Partition  *partition = palloc0(sizeof(Partition));
	Relation	rel = relation_open(request->relid, NoLock);
	SequenceReading reading;

	partition->dataset = request->dataset;
	partition->source = request->source;
	partition->schema_name = get_namespace_name(RelationGetNamespace(rel));
	partition->table_name = pstrdup(RelationGetRelationName(rel));
	partition->seq_column = pstrdup(column);
	partition->adopted = request->adopt != NULL;
	partition->relid = request->relid;
	partition->sequence = SeqColumnSequence(rel, get_attnum(request->relid, column));
	relation_close(rel, NoLock);
	if (!ReadSequence(partition->sequence, &reading))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the sequence of column \"%s\" is locked by another session", column),
				 errhint("Try again when that session's transaction has ended.")));
	partition->sequence_relfilenode = reading.relfilenode;
	partition->highest_seq = reading.last_drawn;
	if (!OthersHaveDrawn(partition->sequence))
		partition->recorded_horizon = reading.last_drawn;
	return partition;
}

static void
RecordPartition(Partition *partition, const AttachRequest *request)
{
	SqlSession	session;

	SqlBegin(&session);
	/* Another identity than this one waits for an adoption, by name. */
	if (CompareIdentity() == IDENTITY_UNRECORDED)
		RecordIdentity();
	InsertPartition(partition, request->options);
	if (partition->tree)
		RecordLeaves(partition);
	JoinDatasetSinks(partition->partition_id, partition->dataset);
	InvalidateDefinitions();
	SqlEnd(&session);
}

/* What becomes of the rows that are there; NULL if there are none. */
static char *
BacklogHint(const Partition *partition)
{
	if (!partition->had_rows)
		return NULL;
	if (partition->backlog != NULL)
		return psprintf("The rows that are there come first, in the order of (%s), in sinks that do not say start => 'now'.",
						KeyColumnNames(partition->backlog->key_columns, partition->backlog->nkeys));
	return psprintf("The rows that are there cannot be read in order: no unique index on NOT NULL columns serves. Sinks must say start => 'now', or run: CALL incsink_renumber(%s);",
					quote_literal_cstr(QuotedRelationName(partition->relid)));
}

static void
SayWhatWasDone(const Partition *partition, bool added)
{
	char	   *hint = BacklogHint(partition);

	ereport(NOTICE,
			(errmsg("table \"%s.%s\" is attached as dataset \"%s\", source \"%s\"",
					partition->schema_name, partition->table_name,
					partition->dataset, partition->source),
			 partition->preparing ?
			 errdetail("Added the column \"%s\" and the triggers \"%s\" and \"%s\"; the worker builds the index, and new rows are exported when it is there.",
					   partition->seq_column, TRUNCATE_BEFORE_TRIGGER, TRUNCATE_AFTER_TRIGGER) :
			 added ? errdetail("Added the column \"%s\", an index on it and the triggers \"%s\" and \"%s\".",
							   partition->seq_column, TRUNCATE_BEFORE_TRIGGER, TRUNCATE_AFTER_TRIGGER)
			 : errdetail("Column \"%s\" numbers the rows. Added the triggers \"%s\" and \"%s\".",
						 partition->seq_column, TRUNCATE_BEFORE_TRIGGER, TRUNCATE_AFTER_TRIGGER),
			 hint ? errhint("%s", hint) : 0));
}

/* For if_not_exists: true, with a NOTICE, if the table is attached already. */
static bool
IsAttachedAlready(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;

	SqlBegin(&session);
	partition = LoadPartitionByRelation(relid, context);
	SqlEnd(&session);
	if (partition == NULL)
		return false;
	ereport(NOTICE,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("table \"%s.%s\" is attached already, skipping",
					partition->schema_name, partition->table_name)));
	return true;
}

/*
 * What the table has now, before or (an earlier attach left the column) after rows got
 * numbers.  An adopted column numbers all of its rows.
 */
static void
DescribeRows(Partition *partition, Oid relid, bool reuses)
{
	Relation	rel = relation_open(relid, NoLock);
	const char *column = reuses ? SEQ_COLUMN : NULL;
	Backlog    *backlog = partition->tree ? DescribeTreeBacklog(rel, ListTreeLeaves(relid), column)
		: DescribeBacklog(rel, reuses ? get_attnum(relid, SEQ_COLUMN) : InvalidAttrNumber, NULL);

	relation_close(rel, NoLock);
	partition->had_rows = backlog != NULL;
	if (backlog != NULL && backlog->nkeys > 0)
		partition->backlog = backlog;
}

/* A leaf or branch that came while the tree was not attached may have come without it. */
static void
SetTreeDefaults(const Partition *partition)
{
	List	   *relations = find_all_inheritors(partition->relid, NoLock, NULL);
	ListCell   *cell;

	for_each_from(cell, relations, 1)
		SetLeafDefault(partition, lfirst_oid(cell));
}

/* Everything that is done to the table itself. */
static void
PrepareTable(const AttachRequest *request, Partition *rows, bool reuses)
{
	if (request->adopt == NULL)
	{
		DescribeRows(rows, request->relid, reuses);
		if (!reuses)
			AddSeqColumn(request->relid);
		rows->preparing = BuildOrPostponeIndex(request->relid, SEQ_COLUMN);
	}
	AddTruncateGuard(request->relid, request->function_schema);
	if (IsSubscriptionTarget(request->relid))
		AddNumberRowTrigger(request->relid, request->function_schema);
}

void
AttachTable(AttachRequest *request)
{
	int			nest_level = NewGUCNestLevel();
	Partition	rows = {0};
	Partition  *partition;
	bool		reuses;

	RequireCatalog(2);
	RequireOwner(request->relid);
	CheckPartitionOptions(request->options);
	rows.tree = get_rel_relkind(request->relid) == RELKIND_PARTITIONED_TABLE;
	if (rows.tree || get_rel_relkind(request->relid) == RELKIND_RELATION)
		LockTableForAttach(request->relid);
	if (request->if_not_exists && IsAttachedAlready(request->relid))
	{
		AtEOXact_GUC(true, nest_level);
		return;
	}
	LimitLockWait();
	RaiseProblems(request, CheckAttach(request->relid, request->adopt, &reuses));
	ChooseNames(request);

	PrepareTable(request, &rows, reuses);
	partition = DescribePartition(request, request->adopt ? request->adopt : SEQ_COLUMN);
	partition->had_rows = rows.had_rows;
	partition->backlog = rows.backlog;
	partition->preparing = rows.preparing;
	partition->tree = rows.tree;
	if (reuses && partition->tree)
		SetTreeDefaults(partition);
	RecordPartition(partition, request);
	RequestWorkerAtCommit();
	NoteWakeup();
	AtEOXact_GUC(true, nest_level);
	SayWhatWasDone(partition, request->adopt == NULL && !reuses);
}
