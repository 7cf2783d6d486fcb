/*
 * explicit_seq.c
 *		Statements that would bring their own numbers into an attached table.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "lib/stringinfo.h"
#include "parser/parsetree.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "cache/columns.h"
#include "cache/explicit_seq.h"
#include "cache/tree.h"
#include "cache/truncate_guard.h"
#include "catalog/identity.h"
#include "catalog/partition.h"
#include "common/settings.h"
#include "common/sql.h"

static bool
HasTruncateGuard(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (triggers == NULL || !triggers->trig_truncate_before_statement)
		return false;
	for (int i = 0; i < triggers->numtriggers; i++)
		if (strcmp(triggers->triggers[i].tgname, TRUNCATE_BEFORE_TRIGGER) == 0)
			return true;
	return false;
}

bool
RelationIsAttached(Relation rel)
{
	return HasTruncateGuard(rel) ||
		(rel->rd_rel->relispartition && OidIsValid(AttachedRoot(RelationGetRelid(rel))));
}

/* Is it partitioned, or a partition? */
static bool
IsPartOfTree(Relation rel)
{
	return rel->rd_rel->relispartition || rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
}

/* Is this the cluster and database that exports were confirmed for? */
static bool
DatabaseIsConfirmed(void)
{
	IdentityMatch match = CompareIdentity();

	return match == IDENTITY_SAME || match == IDENTITY_NEW_TIMELINE;
}

/* The attribute that must not be written to, or 0 if there is none. */
static AttrNumber
GuardedAttribute(Relation rel)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition = NULL;

	if (RecoveryInProgress() || !RelationIsAttached(rel) || !ExtensionIsInstalled())
		return InvalidAttrNumber;
	SqlBegin(&session);
	if (DatabaseIsConfirmed())
		partition = LoadPartitionByRelation(HasTruncateGuard(rel) ? RelationGetRelid(rel) :
											AttachedRoot(RelationGetRelid(rel)), context);
	SqlEnd(&session);
	return partition ? get_attnum(RelationGetRelid(rel), partition->seq_column) : InvalidAttrNumber;
}

/* Columns that a statement may give, "(a, b)". */
static char *
WritableColumns(Relation rel, AttrNumber guarded)
{
	TupleDesc	desc = RelationGetDescr(rel);
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || att->attgenerated || att->attnum == guarded)
			continue;
		appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", quote_identifier(NameStr(att->attname)));
	}
	return list.data;
}

static void
RaiseExplicitSeq(Relation rel, AttrNumber guarded, const char *command)
{
	ereport(ERROR,
			(errcode(ERRCODE_GENERATED_ALWAYS),
			 errmsg("cannot write to column \"%s\" of attached table \"%s\"",
					get_attname(RelationGetRelid(rel), guarded, false), RelationDisplayName(rel)),
			 errdetail("A row with a number that was passed already would never be exported."),
			 errhint("Leave the column out: %s %s (%s). A superuser who restores data may set incsink.allow_explicit_seq.",
					 command,
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)),
					 WritableColumns(rel, guarded))));
}

static bool
DrawsNumber(Node *expression)
{
	return IsA(expression, SetToDefault) || IsA(expression, NextValueExpr);
}

/* Does the expression bring a value?  A list of VALUES does if any of its rows does. */
static bool
BringsValue(Query *query, Node *expression)
{
	RangeTblEntry *source;
	ListCell   *cell;
	Var		   *var;

	if (DrawsNumber(expression))
		return false;
	if (!IsA(expression, Var))
		return true;
	var = (Var *) expression;
	source = var->varlevelsup == 0 ? rt_fetch(var->varno, query->rtable) : NULL;
	if (source == NULL || source->rtekind != RTE_VALUES)
		return true;
	foreach(cell, source->values_lists)
		if (!DrawsNumber(list_nth(lfirst(cell), var->varattno - 1)))
			return true;
	return false;
}

static bool
AssignsAttribute(Query *query, List *targets, AttrNumber attnum)
{
	ListCell   *cell;

	foreach(cell, targets)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!target->resjunk && target->resno == attnum)
			return BringsValue(query, (Node *) target->expr);
	}
	return false;
}

/*
 * The target lists of a statement that may bring values: that of an INSERT, those
 * of the INSERT actions of a MERGE.  NIL for nearly every statement.
 */
static List *
OverridingTargets(Query *query)
{
	List	   *lists = NIL;
	ListCell   *cell;

	if (query->commandType == CMD_INSERT && query->override == OVERRIDING_SYSTEM_VALUE)
		lists = list_make1(query->targetList);
	else if (query->commandType == CMD_MERGE)
		foreach(cell, query->mergeActionList)
		{
			MergeAction *action = lfirst_node(MergeAction, cell);

			if (action->commandType == CMD_INSERT && action->override == OVERRIDING_SYSTEM_VALUE)
				lists = lappend(lists, action->targetList);
		}
	return lists;
}

/*
 * One statement, without those inside its WITH.  Trees let it pass: pg_partman moves
 * rows so between leaves, with their numbers.
 */
static void
CheckStatement(Query *query)
{
	List	   *lists = OverridingTargets(query);
	Relation	rel;
	AttrNumber	guarded;
	ListCell   *cell;

	if (lists == NIL || query->resultRelation == 0)
		return;
	rel = table_open(rt_fetch(query->resultRelation, query->rtable)->relid, NoLock);
	guarded = IsPartOfTree(rel) ? InvalidAttrNumber : GuardedAttribute(rel);
	foreach(cell, lists)
		if (guarded > 0 && AssignsAttribute(query, lfirst(cell), guarded))
			RaiseExplicitSeq(rel, guarded, "INSERT INTO");
	table_close(rel, NoLock);
}

void
RefuseExplicitSeqInQuery(Query *query)
{
	ListCell   *cell;

	if (setting_allow_explicit_seq)
		return;
	if (query->commandType == CMD_UTILITY)
	{
		/* EXPLAIN ANALYZE runs what it explains. */
		query = UtilityContainsQuery(query->utilityStmt);
		if (query == NULL)
			return;
	}
	CheckStatement(query);
	/* Statements that write may stand in the outermost WITH only. */
	if (query->hasModifyingCTE)
		foreach(cell, query->cteList)
			CheckStatement(castNode(Query, lfirst_node(CommonTableExpr, cell)->ctequery));
}

/* Is the attribute among the columns that COPY takes?  Without a list all are. */
static bool
CopyTakesAttribute(CopyStmt *stmt, Relation rel, AttrNumber attnum)
{
	ListCell   *cell;

	if (stmt->attlist == NIL)
		return true;
	foreach(cell, stmt->attlist)
		if (get_attnum(RelationGetRelid(rel), strVal(lfirst(cell))) == attnum)
			return true;
	return false;
}

/* Takes the lock that COPY FROM takes next. */
void
RefuseExplicitSeqInCopy(CopyStmt *stmt)
{
	Oid			relid;
	Relation	rel;
	AttrNumber	guarded;

	if (setting_allow_explicit_seq || !stmt->is_from || stmt->relation == NULL)
		return;
	relid = RangeVarGetRelid(stmt->relation, RowExclusiveLock, true);
	if (!OidIsValid(relid))
		return;
	rel = table_open(relid, NoLock);
	guarded = GuardedAttribute(rel);
	if (guarded > 0 && CopyTakesAttribute(stmt, rel, guarded))
		RaiseExplicitSeq(rel, guarded, "COPY");
	table_close(rel, NoLock);
}
