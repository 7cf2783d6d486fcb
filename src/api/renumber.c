/*
 * renumber.c
 *		CALL incsink_renumber().
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/parsenodes.h"

#include "api/arguments.h"
#include "cache/renumber.h"

PG_FUNCTION_INFO_V1(incsink_renumber);

/* It commits, which the session must allow: not in a block, a function or a DO in one. */
static void
RequireNonatomicCall(FunctionCallInfo fcinfo)
{
	if (fcinfo->context && IsA(fcinfo->context, CallContext) &&
		!castNode(CallContext, fcinfo->context)->atomic)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("incsink_renumber() cannot run inside a transaction block"),
			 errdetail("It commits after each batch of rows."),
			 errhint("Run CALL incsink_renumber(...) outside of a transaction block and not from a function.")));
}

Datum
incsink_renumber(PG_FUNCTION_ARGS)
{
	RequireArgument(fcinfo, 0, "relation");
	RequireArgument(fcinfo, 1, "every_row");
	RequireArgument(fcinfo, 2, "batch_rows");
	if (PG_GETARG_INT32(2) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"batch_rows\" must be at least 1")));
	RequireNonatomicCall(fcinfo);
	RenumberTable(PG_GETARG_OID(0), PG_GETARG_BOOL(1), PG_GETARG_INT32(2));
	PG_RETURN_VOID();
}
