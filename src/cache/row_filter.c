/*
 * row_filter.c
 *		Row filters.
 *
 * The worker evaluates what users wrote, so a filter may hold nothing that could
 * run code of theirs or give another answer the next time: the rules are those of
 * a publication's row filter (manual, "Logical Replication: Row Filters").
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_clause.h"
#include "parser/parse_collate.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "cache/row_filter.h"

static void
RaiseBadFilter(const char *filter, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("row filter \"%s\" is not allowed", filter),
			 errdetail("%s", detail),
			 errhint("A filter compares columns of the row with constants, by built-in immutable functions and operators, as in CREATE PUBLICATION.")));
}

/*
 * The expression as the grammar sees it.  What PL/pgSQL takes for an expression
 * may go on with FROM, WHERE and the like; a filter may not.
 */
static Node *
ParseExpression(const char *filter)
{
	List	   *statements = raw_parser(filter, RAW_PARSE_PLPGSQL_EXPR);
	SelectStmt *select = (SelectStmt *) linitial_node(RawStmt, statements)->stmt;
	ResTarget  *target;

	if (!IsA(select, SelectStmt) || list_length(select->targetList) != 1 ||
		select->distinctClause || select->fromClause || select->whereClause ||
		select->groupClause || select->havingClause || select->windowClause ||
		select->sortClause || select->limitOffset || select->limitCount ||
		select->lockingClause)
		RaiseBadFilter(filter, "It must be one expression.");
	target = linitial_node(ResTarget, select->targetList);
	if (target->name != NULL || target->indirection != NIL)
		RaiseBadFilter(filter, "It must be one expression without a name.");
	if (IsA(target->val, ColumnRef) &&
		IsA(llast(((ColumnRef *) target->val)->fields), A_Star))
		RaiseBadFilter(filter, "It must be one expression.");
	return target->val;
}

static bool
FunctionIsForbidden(Oid function, void *context)
{
	return function >= FirstNormalObjectId || func_volatile(function) != PROVOLATILE_IMMUTABLE;
}

/* Why a node may not stand in a filter, or NULL if it may. */
static const char *
ForbiddenBecause(Node *node)
{
	switch (nodeTag(node))
	{
		case T_Var:
			if (((Var *) node)->varattno < 0)
				return "It uses a system column.";
			if (((Var *) node)->varattno == 0)
				return "It uses the whole row.";
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			if (((OpExpr *) node)->opno >= FirstNormalObjectId)
				return "It uses an operator that is not built in.";
			break;
		case T_ScalarArrayOpExpr:
			if (((ScalarArrayOpExpr *) node)->opno >= FirstNormalObjectId)
				return "It uses an operator that is not built in.";
			break;
		case T_Const:
		case T_FuncExpr:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CollateExpr:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CaseTestExpr:
		case T_ArrayExpr:
		case T_RowExpr:
		case T_RowCompareExpr:
		case T_CoalesceExpr:
		case T_MinMaxExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_SubscriptingRef:
			break;
		case T_List:
			return NULL;
		default:
			return "It uses something else than simple expressions.";
	}
	if (check_functions_in_node(node, FunctionIsForbidden, NULL))
		return "It uses a function that is not both built in and immutable.";
	if (IsA(node, CaseWhen))
		return NULL;
	if (exprType(node) >= FirstNormalObjectId)
		return "It uses a type that is not built in.";
	if (exprCollation(node) >= FirstNormalObjectId || exprInputCollation(node) >= FirstNormalObjectId)
		return "It uses a collation that is not built in.";
	return NULL;
}

static bool
CheckFilterWalker(Node *node, void *filter)
{
	const char *reason;

	if (node == NULL)
		return false;
	reason = ForbiddenBecause(node);
	if (reason)
		RaiseBadFilter(filter, reason);
	return expression_tree_walker(node, CheckFilterWalker, filter);
}

/* An error's position is one in the filter, not in the statement of the client. */
static void
FilterErrorCallback(void *filter)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(filter);
	}
}

List *
ParseRowFilter(Relation rel, const char *filter)
{
	ParseState *pstate = make_parsestate(NULL);
	ParseNamespaceItem *item;
	Node	   *expression;
	ErrorContextCallback callback;
	int			nest_level = NewGUCNestLevel();

	callback.callback = FilterErrorCallback;
	callback.arg = unconstify(char *, filter);
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	pstate->p_sourcetext = filter;
	item = addRangeTableEntryForRelation(pstate, rel, AccessShareLock, NULL, false, true);
	addNSItemToQuery(pstate, item, true, true, true);
	expression = transformWhereClause(pstate, ParseExpression(filter), EXPR_KIND_WHERE, "row filter");
	assign_expr_collations(pstate, expression);
	(void) CheckFilterWalker(expression, unconstify(char *, filter));
	free_parsestate(pstate);
	error_context_stack = callback.previous;
	AtEOXact_GUC(true, nest_level);
	return make_ands_implicit((Expr *) expression);
}
