/*
 * attach.c
 *		Attaches and detaches tables, and the triggers of their TRUNCATE guard.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#include "api/arguments.h"
#include "cache/attach.h"
#include "cache/truncate_guard.h"
#include "common/sql.h"

PG_FUNCTION_INFO_V1(incsink_attach);
PG_FUNCTION_INFO_V1(incsink_detach);
PG_FUNCTION_INFO_V1(incsink_forget_partition);
PG_FUNCTION_INFO_V1(incsink_confirm_sequence);
PG_FUNCTION_INFO_V1(incsink_check_attach);
PG_FUNCTION_INFO_V1(incsink_truncate_before);
PG_FUNCTION_INFO_V1(incsink_truncate_after);

static Oid
RequireRelation(FunctionCallInfo fcinfo)
{
	RequireArgument(fcinfo, 0, "relation");
	return PG_GETARG_OID(0);
}

/* The trigger functions live in the schema of the function that is called. */
Datum
incsink_attach(PG_FUNCTION_ARGS)
{
	AttachRequest request;

	RequireCatalog(2);	/* that of 0.1 passes fewer arguments */
	request.relid = RequireRelation(fcinfo);
	request.dataset = OptionalText(fcinfo, 1);
	request.source = RequireText(fcinfo, 2, "source");
	request.adopt = OptionalName(fcinfo, 3);
	RequireArgument(fcinfo, 4, "options");
	request.options = PG_GETARG_JSONB_P(4);
	RequireArgument(fcinfo, 5, "if_not_exists");
	request.if_not_exists = PG_GETARG_BOOL(5);
	RequireArgument(fcinfo, 6, "force");
	request.force = PG_GETARG_BOOL(6);
	request.function_schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	AttachTable(&request);
	PG_RETURN_VOID();
}

Datum
incsink_detach(PG_FUNCTION_ARGS)
{
	Oid			relid = RequireRelation(fcinfo);

	RequireArgument(fcinfo, 1, "drop_column");
	RequireArgument(fcinfo, 2, "force");
	DetachTable(relid, PG_GETARG_BOOL(1), PG_GETARG_BOOL(2));
	PG_RETURN_VOID();
}

Datum
incsink_forget_partition(PG_FUNCTION_ARGS)
{
	char	   *dataset = RequireText(fcinfo, 0, "dataset");
	char	   *source = RequireText(fcinfo, 1, "source");

	ForgetPartition(dataset, source);
	PG_RETURN_VOID();
}

Datum
incsink_confirm_sequence(PG_FUNCTION_ARGS)
{
	ConfirmSequence(RequireRelation(fcinfo));
	PG_RETURN_VOID();
}

static const char *
SeverityName(int level)
{
	switch (level)
	{
		case ERROR:
			return "error";
		case WARNING:
			return "warning";
		default:
			return "notice";
	}
}

/* One row a problem: severity, problem, hint. */
Datum
incsink_check_attach(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			relid = RequireRelation(fcinfo);
	char	   *adopt = OptionalName(fcinfo, 1);
	bool		reuses_column;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, CheckAttach(relid, adopt, &reuses_column))
	{
		AttachProblem *problem = lfirst(cell);
		Datum		values[3] = {0};
		bool		nulls[3] = {false, false, problem->hint == NULL};

		values[0] = CStringGetTextDatum(SeverityName(problem->level));
		values[1] = CStringGetTextDatum(problem->problem);
		if (problem->hint)
			values[2] = CStringGetTextDatum(problem->hint);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* The table that a TRUNCATE trigger fires for. */
static Relation
TruncatedRelation(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_STATEMENT(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" is called by TRUNCATE triggers only",
						get_func_name(fcinfo->flinfo->fn_oid))));
	return trigger->tg_relation;
}

Datum
incsink_truncate_before(PG_FUNCTION_ARGS)
{
	NoteBeforeTruncate(TruncatedRelation(fcinfo));
	return PointerGetDatum(NULL);
}

Datum
incsink_truncate_after(PG_FUNCTION_ARGS)
{
	GuardAfterTruncate(TruncatedRelation(fcinfo));
	return PointerGetDatum(NULL);
}
