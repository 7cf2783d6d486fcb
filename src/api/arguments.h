/*
 * arguments.h
 *		Arguments of SQL functions that may not be null.
 */
#ifndef INCSINK_ARGUMENTS_H
#define INCSINK_ARGUMENTS_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/jsonb.h"

/* Raise ERRCODE_NULL_VALUE_NOT_ALLOWED with the argument's name. */
extern void RequireArgument(FunctionCallInfo fcinfo, int number, const char *name);
extern char *RequireText(FunctionCallInfo fcinfo, int number, const char *name);
/* Elements that are null are refused, too. */
extern Datum *RequireArray(FunctionCallInfo fcinfo, int number, const char *name, int *count);

/* NULL for the SQL null. */
extern char *OptionalText(FunctionCallInfo fcinfo, int number);
extern char *OptionalName(FunctionCallInfo fcinfo, int number);

#endif							/* INCSINK_ARGUMENTS_H */
