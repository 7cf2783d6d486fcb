/*
 * arguments.c
 *		Arguments of SQL functions.
 */
#include "postgres.h"

#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "api/arguments.h"

void
RequireArgument(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be null", name)));
}

char *
RequireText(FunctionCallInfo fcinfo, int number, const char *name)
{
	RequireArgument(fcinfo, number, name);
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

Datum *
RequireArray(FunctionCallInfo fcinfo, int number, const char *name, int *count)
{
	ArrayType  *array;
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *elements;

	RequireArgument(fcinfo, number, name);
	array = PG_GETARG_ARRAYTYPE_P(number);
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not hold nulls", name)));
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &by_value, &alignment);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, by_value, alignment,
					  &elements, NULL, count);
	return elements;
}

char *
OptionalText(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(number));
}

char *
OptionalName(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number) ? NULL : pstrdup(NameStr(*PG_GETARG_NAME(number)));
}
