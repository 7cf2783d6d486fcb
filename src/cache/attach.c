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

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cache/attach.h"
#include "cache/horizon.h"
#include "cache/truncate_guard.h"
#include "catalog/identity.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/compat.h"
#include "common/options.h"
#include "common/shared.h"
#include "common/sql.h"

/*
 * Is there any row (attnum 0), or any row with 0 in the column?  Read past
 * privileges and policies; the table is locked against everybody else.
 */
static bool
HasRow(Oid relid, AttrNumber attnum)
{
	Relation	rel = relation_open(relid, NoLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, attnum, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(0));
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, attnum > 0 ? 1 : 0, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	relation_close(rel, NoLock);
	return found;
}

/* Raises the first problem that forbids attaching; says the others. */
static void
RaiseProblems(const AttachRequest *request, List *problems)
{
	ListCell   *cell;

	foreach(cell, problems)
	{
		AttachProblem *problem = lfirst(cell);

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

/*
 * Adds column, identity and index.  Operator and type are qualified: the statement
 * runs under the caller's search_path, as his event triggers expect.
 */
static void
AddSeqColumn(Oid relid)
{
	char	   *table = QuotedRelationName(relid);
	char	   *index = ChooseRelationName(get_rel_name(relid), SEQ_COLUMN, "idx",
										   get_rel_namespace(relid), false);

	RunStatement("ALTER TABLE %s ADD COLUMN " SEQ_COLUMN " pg_catalog.int8 NOT NULL DEFAULT 0", table);
	RunStatement("ALTER TABLE %s ALTER COLUMN " SEQ_COLUMN " DROP DEFAULT", table);
	RunStatement("ALTER TABLE %s ALTER COLUMN " SEQ_COLUMN " ADD GENERATED ALWAYS AS IDENTITY"
				 " (INCREMENT BY 1 MINVALUE 1 START WITH 1 CACHE 1 NO CYCLE)", table);
	RunStatement("CREATE UNIQUE INDEX %s ON %s (" SEQ_COLUMN ")"
				 " WHERE " SEQ_COLUMN " OPERATOR(pg_catalog.>) 0", quote_identifier(index), table);
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
	partition->sequence = IdentitySequenceCompat(rel, get_attnum(request->relid, column));
	relation_close(rel, NoLock);
	if (!ReadSequence(partition->sequence, &reading))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the sequence of column \"%s\" is locked by another session", column),
				 errhint("Try again when that session's transaction has ended.")));
	partition->sequence_relfilenode = reading.relfilenode;
	partition->highest_seq = reading.last_drawn;
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
	JoinDatasetSinks(partition->partition_id, partition->dataset, partition->had_rows);
	InvalidateDefinitions();
	SqlEnd(&session);
}

static void
SayWhatWasDone(const Partition *partition, bool added)
{
	ereport(NOTICE,
			(errmsg("table \"%s.%s\" is attached as dataset \"%s\", source \"%s\"",
					partition->schema_name, partition->table_name,
					partition->dataset, partition->source),
			 added ? errdetail("Added the column \"%s\", a unique index on it and the triggers \"%s\" and \"%s\".",
							   partition->seq_column, TRUNCATE_BEFORE_TRIGGER, TRUNCATE_AFTER_TRIGGER)
			 : errdetail("Column \"%s\" numbers the rows. Added the triggers \"%s\" and \"%s\".",
						 partition->seq_column, TRUNCATE_BEFORE_TRIGGER, TRUNCATE_AFTER_TRIGGER),
			 partition->had_rows ?
			 errhint("Rows that are there already have no number and are not exported: sinks on this table must say start => 'now'.") : 0));
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
 * Adds what is missing and says whether the table has rows without a number.
 */
static bool
PrepareColumn(const AttachRequest *request, bool reuses)
{
	bool		had_rows;

	if (request->adopt)
		return false;
	if (reuses)
		return HasRow(request->relid, get_attnum(request->relid, SEQ_COLUMN));
	had_rows = HasRow(request->relid, InvalidAttrNumber);
	AddSeqColumn(request->relid);
	return had_rows;
}

void
AttachTable(AttachRequest *request)
{
	int			nest_level = NewGUCNestLevel();
	Partition  *partition;
	List	   *problems;
	bool		reuses;
	bool		had_rows;
	const char *column = request->adopt ? request->adopt : SEQ_COLUMN;

	RequireOwner(request->relid);
	CheckPartitionOptions(request->options);
	LimitLockWait();
	if (get_rel_relkind(request->relid) == RELKIND_RELATION)
		LockRelationOid(request->relid, AccessExclusiveLock);
	if (request->if_not_exists && IsAttachedAlready(request->relid))
	{
		AtEOXact_GUC(true, nest_level);
		return;
	}
	problems = CheckAttach(request->relid, request->adopt, &reuses);
	RaiseProblems(request, problems);
	ChooseNames(request);

	had_rows = PrepareColumn(request, reuses);
	AddTruncateGuard(request->relid, request->function_schema);
	partition = DescribePartition(request, column);
	partition->had_rows = had_rows;
	RecordPartition(partition, request);
	RequestWorkerAtCommit();
	NoteWakeup();
	AtEOXact_GUC(true, nest_level);
	SayWhatWasDone(partition, request->adopt == NULL && !reuses);
}
