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
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cache/attach.h"
#include "cache/attach_check.h"
#include "cache/columns.h"
#include "cache/horizon.h"
#include "cache/seq_column.h"
#include "cache/seq_index.h"
#include "cache/storage.h"
#include "cache/tree.h"
#include "catalog/partition.h"
#include "common/compat.h"
#include "common/sql.h"

void
AddProblem(Check *check, int level, int sqlstate, char *problem, char *hint)
{
	AttachProblem *entry = palloc(sizeof(AttachProblem));

	entry->level = level;
	entry->forcible = false;
	entry->sqlstate = sqlstate;
	entry->problem = problem;
	entry->hint = hint;
	check->problems = lappend(check->problems, entry);
}

void
AddForcibleProblem(Check *check, int sqlstate, char *problem, char *hint)
{
	AttachProblem *entry;

	AddProblem(check, ERROR, sqlstate, problem, hint);
	entry = llast(check->problems);
	entry->forcible = true;
}

/* Leaves must be what an attached table must be. */
static void
CheckLeafKinds(Check *check)
{
	ListCell   *cell;

	foreach(cell, ListTreeLeaves(RelationGetRelid(check->rel)))
	{
		char	   *reason = UnfitLeafReason(lfirst_oid(cell));
		char	   *leaf = QuotedRelationName(lfirst_oid(cell));

		if (reason)
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   psprintf("Its partition %s is %s.", leaf, reason),
					   UnfitLeafRepair(lfirst_oid(cell)));
	}
}

static void
CheckRelationKind(Check *check)
{
	switch (check->rel->rd_rel->relkind)
	{
		case RELKIND_RELATION:
			return;
		case RELKIND_PARTITIONED_TABLE:
			CheckLeafKinds(check);
			return;
		case RELKIND_VIEW:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is a view: rows are inserted elsewhere.",
					   "Attach the table that it reads from.");
			return;
		case RELKIND_MATVIEW:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is a materialized view: each REFRESH makes all of its rows anew.",
					   "Attach the table that it reads from.");
			return;
		case RELKIND_FOREIGN_TABLE:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is a foreign table: its rows are in another server.",
					   "Attach the table there.");
			return;
		case RELKIND_TOASTVALUE:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is a TOAST table, which holds the large values of another table.",
					   "Attach that table.");
			return;
		case RELKIND_INDEX:
		case RELKIND_PARTITIONED_INDEX:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE,
					   "It is an index and not a table.", "Attach the table that it is on.");
			return;
		case RELKIND_SEQUENCE:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE, "It is a sequence and not a table.", NULL);
			return;
		default:
			AddProblem(check, ERROR, ERRCODE_WRONG_OBJECT_TYPE, "It is a type and not a table.", NULL);
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
	{
		char	   *root = QuotedRelationName(TopmostAncestor(relid));

		AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
				   psprintf("It is a partition of %s, and only the whole can be attached.", root),
				   psprintf("Run: SELECT incsink_attach(%s);", quote_literal_cstr(root)));
	}
	else if (has_superclass(relid))
		AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
				   "It inherits from another table: rows that are inserted into that one are not its rows.",
				   "Attach that table, too, after its children, if its rows are to be exported.");
	if (check->rel->rd_rel->relkind == RELKIND_RELATION &&
		find_inheritance_children(relid, NoLock) != NIL)
		AddForcibleProblem(check, ERRCODE_FEATURE_NOT_SUPPORTED,
						   "Other tables inherit from it; their rows would not be exported.",
						   "Detach the children with ALTER TABLE ... NO INHERIT first, or pass force => true; attach children whose rows are to be exported before.");
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

/*
 * Lowest or highest number in the open relation, or in the leaves of a tree; false if
 * there is none.  Leaves without an index of their own count as empty.
 */
static bool
NumberBound(Relation rel, const char *column, bool lowest, int64 *bound)
{
	bool		in_tree = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	bool		any = false;
	ListCell   *cell;

	foreach(cell, in_tree ? ListTreeLeaves(RelationGetRelid(rel)) : list_make1_oid(RelationGetRelid(rel)))
	{
		Relation	part = relation_open(lfirst_oid(cell), AccessShareLock);
		AttrNumber	attnum = get_attnum(lfirst_oid(cell), column);
		SeqIndex	index;
		int64		value;

		if (FindSeqIndex(lfirst_oid(cell), attnum, in_tree, &index) &&
			SeqIndexBound(part, &index, attnum, lowest, &value) &&
			(!any || (lowest ? value < *bound : value > *bound)))
		{
			*bound = value;
			any = true;
		}
		relation_close(part, NoLock);
	}
	return any;
}

/* Do the rows that are there fit the sequence? */
static void
CheckNumbers(Check *check, const char *column, Oid sequence)
{
	int64		bound;
	SequenceReading reading;
	const char *quoted = quote_identifier(column);

	if (NumberBound(check->rel, column, true, &bound) && bound < 1)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Column \"%s\" has values as low as " INT64_FORMAT "; positions begin at 1.", column, bound),
				   psprintf("Give these rows new numbers: UPDATE %s SET %s = DEFAULT WHERE %s < 1;",
							check->table, quoted, quoted));
	if (!ReadSequence(sequence, &reading))
		AddProblem(check, ERROR, ERRCODE_LOCK_NOT_AVAILABLE,
				   psprintf("The sequence of column \"%s\" is locked by another session.", column),
				   "Try again when that session's transaction has ended.");
	else if (NumberBound(check->rel, column, false, &bound) && bound > reading.last_drawn)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("The sequence of column \"%s\" stands at " INT64_FORMAT ", but rows go up to " INT64_FORMAT ".",
							column, reading.last_drawn, bound),
				   TupleDescAttr(RelationGetDescr(check->rel), get_attnum(RelationGetRelid(check->rel), column) - 1)->attidentity != '\0' ?
				   psprintf("Run: ALTER TABLE %s ALTER COLUMN %s RESTART WITH " INT64_FORMAT ";",
							check->table, quoted, bound + 1) :
				   psprintf("Run: ALTER SEQUENCE %s RESTART WITH " INT64_FORMAT ";",
							QuotedRelationName(sequence), bound + 1));
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
	if (att->attidentity == '\0' && check->rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE &&
		!TREE_HAS_IDENTITY)
	{
		AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
				   "A partitioned table can adopt a column from PostgreSQL 17 on: before, its partitions have no identity columns.",
				   "Leave \"adopt\" away.");
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

static void
CheckAdoptedIndex(Check *check, const char *column, Oid sequence)
{
	SeqIndex	index;

	if (!FindSeqIndex(RelationGetRelid(check->rel), get_attnum(RelationGetRelid(check->rel), column),
					  false, &index) || index.partial)
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Column \"%s\" has no valid unique index of its own over all rows.", column),
				   psprintf("Run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s);",
							check->table, quote_identifier(column)));
	else
		CheckNumbers(check, column, sequence);
}

/* In a tree numbers need not be unique: any index that begins with the column serves. */
static void
CheckAdoptedTreeIndexes(Check *check, const char *column, Oid sequence)
{
	bool		all = true;
	SeqIndex	index;
	ListCell   *cell;

	foreach(cell, lcons_oid(RelationGetRelid(check->rel), ListTreeLeaves(RelationGetRelid(check->rel))))
	{
		Oid			relid = lfirst_oid(cell);

		if (FindSeqIndex(relid, get_attnum(relid, column), true, &index) && !index.partial)
			continue;
		all = false;
		AddProblem(check, ERROR, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("%s has no valid index over all rows whose first column is \"%s\".",
							QuotedRelationName(relid), column),
				   psprintf("Run: CREATE INDEX ON %s (%s);", check->table, quote_identifier(column)));
		break;
	}
	if (all)
		CheckNumbers(check, column, sequence);
}

/* An existing column that is to serve as ingest_seq and stays the user's. */
static void
CheckAdopted(Check *check, const char *column)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(check->rel), column);
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
	if (check->rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		CheckAdoptedTreeIndexes(check, column, sequence);
	else
		CheckAdoptedIndex(check, column, sequence);
}

/*
 * Was the column made by attach?  Then there is what feeds it, and its partial index, or
 * (the table was detached while it was prepared) none.
 */
static bool
IsOwnColumn(Relation rel, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	bool		in_tree = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	Oid			sequence = SeqColumnSequence(rel, attnum);
	Oid			owner;
	int32		column;
	SeqIndex	index;

	if (att->atttypid != INT8OID || !OidIsValid(sequence) ||
		(FindSeqIndex(RelationGetRelid(rel), attnum, in_tree, &index) && !index.partial))
		return false;
	if (att->attidentity != '\0')
		return in_tree || att->attidentity == ATTRIBUTE_IDENTITY_ALWAYS;
	return in_tree &&
		sequenceIsOwned(sequence, DEPENDENCY_AUTO, &owner, &column) &&
		owner == RelationGetRelid(rel) && column == attnum;
}

/*
 * A column of the name that attach gives: the one that an earlier attach made is
 * known by its partial index, and is used again.
 */
static bool
CheckNewColumn(Check *check)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(check->rel), SEQ_COLUMN);
	Oid			sequence;

	if (attnum <= 0)
		return false;
	if (!IsOwnColumn(check->rel, attnum))
	{
		AddProblem(check, ERROR, ERRCODE_DUPLICATE_COLUMN,
				   "It has a column \"" SEQ_COLUMN "\" that was not made by incsink.",
				   "Rename the column, or pass adopt => '" SEQ_COLUMN "' if it is an identity column of yours.");
		return false;
	}
	sequence = SeqColumnSequence(check->rel, attnum);
	CheckSequence(check, SEQ_COLUMN, sequence);
	CheckNumbers(check, SEQ_COLUMN, sequence);
	AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
			   "It has the column \"" SEQ_COLUMN "\" that an earlier attach left; it will be used again.",
			   NULL);
	return true;
}

/* Is there an error that even force does not overrule? */
static bool
IsRefused(const Check *check)
{
	ListCell   *cell;

	foreach(cell, check->problems)
	{
		AttachProblem *problem = lfirst(cell);

		if (problem->level == ERROR && !problem->forcible)
			return true;
	}
	return false;
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
	/* The rest makes sense for the caller's own tables only. */
	if (!IsRefused(&check))
		CheckNotAttached(&check);
	if (!IsRefused(&check))
	{
		if (adopt)
			CheckAdopted(&check, adopt);
		else
			*reuses_column = CheckNewColumn(&check);
		adds_column = adopt == NULL && !*reuses_column && !IsRefused(&check);
		CheckReplication(&check, adds_column);
		CheckRemarks(&check, adds_column);
	}
	relation_close(check.rel, NoLock);
	return check.problems;
}
