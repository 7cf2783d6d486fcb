/*
 * options.c
 *		The options of sinks, as a table to query.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "common/option_table.h"

PG_FUNCTION_INFO_V1(incsink_options);

#define OPTIONS_COLUMNS 8

static const char *
OptionUnit(OptionType type)
{
	if (type == OPTION_DURATION)
		return "ms";
	return type == OPTION_SIZE ? "B" : NULL;
}

/* "PUT" as the other word of an enum has no bounds; its words are listed instead. */
static char *
DescribeOption(const OptionDescription *option)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, option->description);
	for (const char *const *value = option->values; value != NULL && *value != NULL; value++)
		appendStringInfo(&text, "%s%s", value == option->values ? " (" : ", ", *value);
	if (option->values != NULL)
		appendStringInfoChar(&text, ')');
	return text.data;
}

static void
PutOption(ReturnSetInfo *rsinfo, const OptionDescription *option, const char *kind,
		  const char *default_value)
{
	Datum		values[OPTIONS_COLUMNS] = {0};
	bool		nulls[OPTIONS_COLUMNS] = {false};
	const char *unit = OptionUnit(option->type);

	values[0] = CStringGetTextDatum(option->name);
	values[1] = CStringGetTextDatum(kind);
	values[2] = CStringGetTextDatum(OptionTypeName(option->type));
	values[3] = CStringGetTextDatum(default_value);
	if (OptionIsNumber(option))
	{
		values[4] = CStringGetTextDatum(FormatOptionNumber(option, option->min));
		values[5] = CStringGetTextDatum(FormatOptionNumber(option, option->max));
	}
	nulls[4] = nulls[5] = !OptionIsNumber(option);
	if (unit != NULL)
		values[6] = CStringGetTextDatum(unit);
	nulls[6] = unit == NULL;
	values[7] = CStringGetTextDatum(DescribeOption(option));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
incsink_options(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			wanted = OPTION_FORWARD | OPTION_BLOB;

	if (!PG_ARGISNULL(0))
	{
		char	   *kind = text_to_cstring(PG_GETARG_TEXT_PP(0));

		wanted = OptionKindBit(kind);
		if (wanted == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("unknown kind of sink \"%s\"", kind),
					 errhint("Kinds are \"forward\" and \"blob\".")));
	}
	InitMaterializedSRF(fcinfo, 0);
	for (const OptionDescription *option = option_table; option->name != NULL; option++)
	{
		if (option->kinds & wanted & OPTION_FORWARD)
			PutOption(rsinfo, option, "forward", option->forward_default);
		if (option->kinds & wanted & OPTION_BLOB)
			PutOption(rsinfo, option, "blob", option->blob_default);
	}
	return (Datum) 0;
}
