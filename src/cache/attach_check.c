/*
 * attach_check.c
 *		What attaching a table would break.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cache/attach.h"
#include "cache/columns.h"
#include "cache/horizon.h"
#include "cache/seq_index.h"
#include "catalog/partition.h"
#include "common/compat.h"
#include "common/sql.h"

/* From here on, building the index takes seconds under the table's lock: 1 GB. */
#define LARGE_TABLE_BLOCKS (1024 * 1024 * 1024 / BLCKSZ)

/* One check in progress. */
typedef struct Check
{
	Relation	rel;
	char	   *table;			/* quoted, for hints */
	List	   *problems;
} Check;

static void
AddProblem(Check *check, int level, int sqlstate, char *problem, char *hint)
{
	AttachProblem *entry = palloc(sizeof(AttachProblem));

	entry->level = level;
	entry->sqlstate = sqlstate;
	entry->problem = problem;
	entry->hint = hint;
	check->problems = lappend(check->problems, entry);
}

static void
CheckRelationKind(Check *check)
{
	switch (check->rel->rd_rel->relkind)
	{
		case RELKIND_RELATION:
			return;
		case RELKIND_PARTITIONED_TABLE:
			AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
					   "It is a partitioned table, which is not supported yet.",
					   "Attach a table that is not partitioned.");
			return;
		case RELKIND_VIEW:
		case RELKIND_MATVIEW:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is a view: rows are inserted elsewhere.",
					   "Attach the table that it reads from.");
			return;
		case RELKIND_FOREIGN_TABLE:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is a foreign table: its rows are in another server.",
					   "Attach the table there.");
			return;
		default:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE, "It is not a table.", NULL);
	}
}

static void
CheckPersistence(Check *check)
{
	switch (check->rel->rd_rel->relpersistence)
	{
		case RELPERSISTENCE_TEMP:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is a temporary table, which no other session can read.",
					   "Attach an ordinary table.");
			break;
		case RELPERSISTENCE_UNLOGGED:
			AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					   "It is an unlogged table: a crash empties it and restarts its sequences.",
					   psprintf("Run: ALTER TABLE %s SET LOGGED;", check->table));
			break;
	}
}

static void
CheckAncestry(Check *check)
{
	Oid			relid = RelationGetRelid(check->rel);

	if (check->rel->rd_rel->relispartition)
		AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
				   "It is a partition of another table, which is not supported yet.",
				   "Attach a table that is not partitioned.");
	else if (has_superclass(relid))
		AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
				   "It inherits from another table, whose queries would read it too.",
				   psprintf("Run: ALTER TABLE %s NO INHERIT ...; first.", check->table));
	if (check->rel->rd_rel->relkind == RELKIND_RELATION &&
		find_inheritance_children(relid, NoLock) != NIL)
		AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
				   "Other tables inherit from it; their rows would not be exported.",
				   "Detach the children with ALTER TABLE ... NO INHERIT first.");
	if (OidIsValid(check->rel->rd_rel->reloftype))
		AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
				   "It is a typed table, to which no column can be added.",
				   psprintf("Run: ALTER TABLE %s NOT OF; first.", check->table));
}

static void
CheckOwnership(Check *check)
{
	if (IsSystemRelation(check->rel) ||
		RelationGetNamespace(check->rel) == get_namespace_oid("incsink", true))
		AddProblem(check, ERROR, ERRCODE_INSUFFICIENT_PRIVILEGE, "It is a system table.", NULL);
	if (!pg_class_ownercheck(RelationGetRelid(check->rel), GetUserId()))
		AddProblem(check, ERROR, ERRCODE_INSUFFICIENT_PRIVILEGE,
				   psprintf("Role \"%s\" does not own it.", GetUserNameFromId(GetUserId(), false)),
				   psprintf("Let role \"%s\" attach it.",
							GetUserNameFromId(check->rel->rd_rel->relowner, false)));
}

static void
CheckNotAttached(Check *check)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;

	SqlBegin(&session);
	partition = LoadPartitionByRelation(RelationGetRelid(check->rel), context);
	SqlEnd(&session);
	if (partition)
		AddProblem(check, ERROR, ERRCODE_DUPLICATE_OBJECT,
				   psprintf("It is attached already, as dataset \"%s\", source \"%s\".",
							partition->dataset, partition->source),
				   NULL);
}

/*
 * CACHE, INCREMENT, CYCLE and MINVALUE of the identity's sequence, each a way for a
 * number to appear below one that was given out before.
 */
static void
CheckSequence(Check *check, const char *column, Oid sequence)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
	FormData_pg_sequence form;
	const char *quoted = quote_identifier(column);

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for sequence %u", sequence);
	form = *(Form_pg_sequence) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);

	if (form.seqcache != 1)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Sessions draw numbers of column \"%s\" in advance (CACHE " INT64_FORMAT "), so a later row may have a lower one.",
							column, form.seqcache),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s SET CACHE 1;", check->table, quoted));
	if (form.seqincrement != 1)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Numbers of column \"%s\" go by " INT64_FORMAT " and not by 1.", column, form.seqincrement),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s SET INCREMENT BY 1;", check->table, quoted));
	if (form.seqcycle)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Numbers of column \"%s\" begin again at the end of the sequence (CYCLE).", column),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s SET NO CYCLE;", check->table, quoted));
	if (form.seqmin < 1)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Numbers of column \"%s\" may be as low as " INT64_FORMAT "; positions begin at 1.", column, form.seqmin),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s SET MINVALUE 1;", check->table, quoted));
}

/* Do the rows that are there fit the sequence? */
static void
CheckNumbers(Check *check, const char *column, AttrNumber attnum, Oid sequence,
			 const SeqIndex *index)
{
	int64		bound;
	SequenceReading reading;
	const char *quoted = quote_identifier(column);

	if (SeqIndexBound(check->rel, index, attnum, true, &bound) && bound < 1)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Column \"%s\" has values as low as " INT64_FORMAT "; positions begin at 1.", column, bound),
				   psprintf("Give these rows new numbers: UPDATE %s SET %s = DEFAULT WHERE %s < 1;",
							check->table, quoted, quoted));
	if (!ReadSequence(sequence, &reading))
		AddProblem(check, ERROR, ERRCODE_LOCK_NOT_AVAILABLE,
				   psprintf("The sequence of column \"%s\" is locked by another session.", column),
				   "Try again when that session's transaction has ended.");
	else if (SeqIndexBound(check->rel, index, attnum, false, &bound) && bound > reading.last_drawn)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("The sequence of column \"%s\" stands at " INT64_FORMAT ", but rows go up to " INT64_FORMAT ".",
							column, reading.last_drawn, bound),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s RESTART WITH " INT64_FORMAT ";",
							check->table, quoted, bound + 1));
}

/* The identity property; false if there is no sequence to look at. */
static bool
CheckIdentity(Check *check, const char *column, Form_pg_attribute att)
{
	const char *quoted = quote_identifier(column);

	if (att->atttypid != INT8OID)
	{
		AddProblem(check, ERROR, ERRCODE_DATATYPE_MISMATCH,
				   psprintf("Column \"%s\" is of type %s and not bigint.", column, format_type_be(att->atttypid)),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s TYPE bigint; (it rewrites the table).",
							check->table, quoted));
		return false;
	}
	if (att->attidentity == '\0')
	{
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Column \"%s\" is no identity column: anybody may give it a value.", column),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT, ALTER COLUMN %s SET NOT NULL; then: ALTER TABLE %s ALTER COLUMN %s ADD GENERATED ALWAYS AS IDENTITY (START WITH ...); with a number above those in the table.",
							check->table, quoted, quoted, check->table, quoted));
		return false;
	}
	if (att->attidentity != ATTRIBUTE_IDENTITY_ALWAYS)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Column \"%s\" is GENERATED BY DEFAULT: any INSERT may give it a value.", column),
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s SET GENERATED ALWAYS;", check->table, quoted));
	return true;
}

/* An existing column that is to serve as ingest_seq and stays the user's. */
static void
CheckAdopted(Check *check, const char *column)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(check->rel), column);
	SeqIndex	index;
	Oid			sequence;

	if (attnum <= 0)
	{
		AddProblem(check, ERROR, ERRCODE_UNDEFINED_COLUMN,
				   psprintf("It has no column \"%s\" to adopt.", column),
				   "Name a bigint identity column, or leave \"adopt\" away.");
		return;
	}
	if (!CheckIdentity(check, column, TupleDescAttr(RelationGetDescr(check->rel), attnum - 1)))
		return;
	sequence = IdentitySequenceCompat(check->rel, attnum);
	CheckSequence(check, column, sequence);
	if (!FindSeqIndex(RelationGetRelid(check->rel), attnum, &index) || index.partial)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Column \"%s\" has no valid unique index of its own over all rows.", column),
				   psprintf("Run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s);",
							check->table, quote_identifier(column)));
	else
		CheckNumbers(check, column, attnum, sequence, &index);
}

/*
 * A column of the name that attach gives: the one that an earlier attach made is
 * known by its partial index, and is used again.
 */
static bool
CheckNewColumn(Check *check)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(check->rel), SEQ_COLUMN);
	Form_pg_attribute att;
	SeqIndex	index;
	Oid			sequence;

	if (attnum <= 0)
		return false;
	att = TupleDescAttr(RelationGetDescr(check->rel), attnum - 1);
	if (att->atttypid != INT8OID || att->attidentity != ATTRIBUTE_IDENTITY_ALWAYS ||
		!FindSeqIndex(RelationGetRelid(check->rel), attnum, &index) || !index.partial)
	{
		AddProblem(check, ERROR, ERRCODE_DUPLICATE_COLUMN,
				   "It has a column \"" SEQ_COLUMN "\" that was not made by incsink.",
				   "Rename the column, or pass adopt => '" SEQ_COLUMN "' if it is an identity column of yours.");
		return false;
	}
	sequence = IdentitySequenceCompat(check->rel, attnum);
	CheckSequence(check, SEQ_COLUMN, sequence);
	CheckNumbers(check, SEQ_COLUMN, attnum, sequence, &index);
	AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
			   "It has the column \"" SEQ_COLUMN "\" that an earlier attach left; it will be used again.",
			   NULL);
	return true;
}

/* What replication into the table does. */
static void
CheckSubscriptions(Check *check)
{
	if (SqlRun("SELECT s.subname FROM pg_catalog.pg_subscription_rel r"
			   " JOIN pg_catalog.pg_subscription s ON s.oid = r.srsubid WHERE r.srrelid = $1",
			   SqlOid(RelationGetRelid(check->rel))) == 0)
		return;
	if (check->rel->rd_rel->relreplident == REPLICA_IDENTITY_FULL)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "A subscription fills it and it has REPLICA IDENTITY FULL: replicated updates would not find their rows.",
				   psprintf("Run: ALTER TABLE %s REPLICA IDENTITY DEFAULT; first.", check->table));
	else
		AddProblem(check, WARNING, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "A subscription fills it: should its publisher have a column of the same name, rows would come with numbers of their own.",
				   "Publish the table there with a column list that leaves the column out.");
}

/* Publications that would begin to send the new column. */
static void
CheckPublications(Check *check)
{
	uint64		count = SqlRun("SELECT p.pubname FROM pg_catalog.pg_publication p WHERE p.puballtables"
							   " OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r"
							   "  WHERE r.prpubid = p.oid AND r.prrelid = $1 AND r.prattrs IS NULL)"
							   " OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n"
							   "  WHERE n.pnpubid = p.oid AND n.pnnspid = $2) ORDER BY 1",
							   SqlOid(RelationGetRelid(check->rel)),
							   SqlOid(RelationGetNamespace(check->rel)));

	for (uint64 row = 0; row < count; row++)
		AddProblem(check, WARNING, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Publication \"%s\" will send the column \"" SEQ_COLUMN "\": a subscriber whose table lacks it stops with an error.",
							SqlGetText(row, 1, CurrentMemoryContext)),
				   "Add a bigint column of that name to the subscriber's table, or give the publication a column list.");
}

static void
CheckReplication(Check *check, bool adds_column)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	MemoryContext inside;

	SqlBegin(&session);
	inside = MemoryContextSwitchTo(context);
	CheckSubscriptions(check);
	if (adds_column)
		CheckPublications(check);
	MemoryContextSwitchTo(inside);
	SqlEnd(&session);
}

/* Things that attach goes through with, but that somebody will ask about. */
static void
CheckRemarks(Check *check, bool adds_column)
{
	if (check->rel->rd_rel->relrowsecurity)
		AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
				   "It has row-level security: a sink whose owner a policy applies to halts.",
				   "Let a role own the sinks that owns the table or has BYPASSRLS.");
	if (adds_column && RelationGetNumberOfBlocks(check->rel) > LARGE_TABLE_BLOCKS)
		AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
				   "It is large: building the index takes a while, and nobody can use the table meanwhile.",
				   "Attach it when it is little used, or adopt an identity column.");
}

List *
CheckAttach(Oid relid, const char *adopt, bool *reuses_column)
{
	Check		check = {NULL, NULL, NIL};
	bool		adds_column;

	*reuses_column = false;
	check.rel = try_relation_open(relid, AccessShareLock);
	if (check.rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	check.table = QuotedRelationName(relid);
	CheckRelationKind(&check);
	CheckPersistence(&check);
	CheckAncestry(&check);
	CheckOwnership(&check);
	/* The rest makes sense for the caller's own ordinary tables only. */
	if (check.problems == NIL)
	{
		CheckNotAttached(&check);
		if (check.problems == NIL)
		{
			if (adopt)
				CheckAdopted(&check, adopt);
			else
				*reuses_column = CheckNewColumn(&check);
			adds_column = adopt == NULL && !*reuses_column;
			CheckReplication(&check, adds_column);
			CheckRemarks(&check, adds_column);
		}
	}
	relation_close(check.rel, NoLock);
	return check.problems;
}
