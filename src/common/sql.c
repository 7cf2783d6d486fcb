/*
 * sql.c
 *		Queries on incsink's own catalog, with kept plans.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "common/hash.h"
#include "common/sql.h"

#define SQL_MAX_ARGS 24

/* A kept plan, found by the address of the query's literal. */
typedef struct KeptPlan
{
	const char *query;			/* hash key */
	SPIPlanPtr	plan;
} KeptPlan;

static HTAB *kept_plans = NULL;

SqlArg
SqlNameArray(char **names, int count)
{
	Datum	   *elements;

	if (names == NULL)
		return SqlDatum(NAMEARRAYOID, (Datum) 0, true);
	elements = palloc(sizeof(Datum) * Max(count, 1));
	for (int i = 0; i < count; i++)
		elements[i] = SqlName(names[i]).value;
	return SqlDatum(NAMEARRAYOID,
					PointerGetDatum(construct_array(elements, count, NAMEOID,
													NAMEDATALEN, false, TYPALIGN_CHAR)),
					false);
}

/* An array of one dimension; without "nulls" it has none. */
static SqlArg
MakeArray(Oid array_type, Oid type, int length, bool byval, char align, Datum *elements, bool *nulls,
		  int count)
{
	int			dimensions[1] = {count};
	int			lower_bounds[1] = {1};
	ArrayType  *array = count == 0 ? construct_empty_array(type) :
		construct_md_array(elements, nulls, 1, dimensions, lower_bounds, type, length, byval, align);

	return SqlDatum(array_type, PointerGetDatum(array), false);
}

SqlArg
SqlTextArray(char **texts, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));
	bool	   *nulls = palloc(sizeof(bool) * Max(count, 1));

	for (int i = 0; i < count; i++)
	{
		nulls[i] = texts[i] == NULL;
		elements[i] = nulls[i] ? (Datum) 0 : CStringGetTextDatum(texts[i]);
	}
	return MakeArray(TEXTARRAYOID, TEXTOID, -1, false, TYPALIGN_INT, elements, nulls, count);
}

SqlArg
SqlInt8Array(const int64 *values, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		elements[i] = Int64GetDatum(values[i]);
	return MakeArray(INT8ARRAYOID, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, elements,
					 NULL, count);
}

SqlArg
SqlTimeArray(const TimestampTz *values, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		elements[i] = TimestampTzGetDatum(values[i]);
	return MakeArray(TIMESTAMPTZARRAYOID, TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL,
					 TYPALIGN_DOUBLE, elements, NULL, count);
}

SqlArg
SqlJsonbArray(Jsonb **values, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));
	bool	   *nulls = palloc(sizeof(bool) * Max(count, 1));

	for (int i = 0; i < count; i++)
	{
		nulls[i] = values[i] == NULL;
		elements[i] = nulls[i] ? (Datum) 0 : JsonbPGetDatum(values[i]);
	}
	return MakeArray(JSONBARRAYOID, JSONBOID, -1, false, TYPALIGN_INT, elements, nulls, count);
}

SqlArg
SqlDatum(Oid type, Datum value, bool isnull)
{
	SqlArg		arg;

	arg.type = type;
	arg.value = value;
	arg.isnull = isnull;
	return arg;
}

SqlArg
SqlInt8(int64 value)
{
	return SqlDatum(INT8OID, Int64GetDatum(value), false);
}

SqlArg
SqlInt4(int32 value)
{
	return SqlDatum(INT4OID, Int32GetDatum(value), false);
}

SqlArg
SqlBool(bool value)
{
	return SqlDatum(BOOLOID, BoolGetDatum(value), false);
}

SqlArg
SqlOid(Oid value)
{
	return SqlDatum(OIDOID, ObjectIdGetDatum(value), false);
}

SqlArg
SqlText(const char *value)
{
	return SqlDatum(TEXTOID, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}

SqlArg
SqlName(const char *value)
{
	NameData   *name;

	if (value == NULL)
		return SqlDatum(NAMEOID, (Datum) 0, true);
	name = palloc(sizeof(NameData));
	namestrcpy(name, value);
	return SqlDatum(NAMEOID, NameGetDatum(name), false);
}

SqlArg
SqlJsonb(Jsonb *value)
{
	return SqlDatum(JSONBOID, value ? JsonbPGetDatum(value) : (Datum) 0, value == NULL);
}

SqlArg
SqlTime(TimestampTz value)
{
	return SqlDatum(TIMESTAMPTZOID, TimestampTzGetDatum(value), value == 0);
}

/*
 * The owner of the schema is the superuser who ran CREATE EXTENSION.  Catalog
 * changes run as that role, so that callers need no privilege on the tables.
 */
Oid
CatalogOwner(void)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACENAME, CStringGetDatum("incsink"));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_SCHEMA),
				 errmsg("schema \"incsink\" does not exist"),
				 errhint("Run CREATE EXTENSION incsink in this database.")));
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	return owner;
}

Oid
ExtensionOid(void)
{
	return get_extension_oid("incsink", true);
}

bool
ExtensionIsInstalled(void)
{
	return OidIsValid(ExtensionOid());
}

Oid
CatalogRelation(const char *name)
{
	Oid			relid = get_relname_relid(name, get_namespace_oid("incsink", false));

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("catalog table \"incsink.%s\" does not exist", name),
				 errhint("Run ALTER EXTENSION incsink UPDATE, or create the extension again.")));
	return relid;
}

bool
CatalogIsAtLeast(int version)
{
	static const char *const came_with[] = {[2] = "leaf_def",[3] = "epoch_state",[4] = "dead_letter"};
	Oid			schema = get_namespace_oid("incsink", true);

	Assert(version < lengthof(came_with) && came_with[version] != NULL);
	return OidIsValid(schema) && OidIsValid(get_relname_relid(came_with[version], schema));
}

void
RequireCatalog(int version)
{
	if (!CatalogIsAtLeast(version))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the catalog of incsink is of an earlier version than its library"),
				 errhint("Run: ALTER EXTENSION incsink UPDATE;")));
}

/*
 * pg_temp is named last: an unnamed one is searched first for relations, and a
 * temporary table must never stand in for a catalog table.
 */
void
SqlBegin(SqlSession *session)
{
	MemoryContext context = CurrentMemoryContext;

	GetUserIdAndSecContext(&session->saved_user, &session->saved_security_context);
	SetUserIdAndSecContext(CatalogOwner(),
						   session->saved_security_context | SECURITY_LOCAL_USERID_CHANGE);
	session->guc_nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	/* SPI asks for an outer snapshot, which a background worker does not have. */
	session->pushed_snapshot = !ActiveSnapshotSet();
	if (session->pushed_snapshot)
		PushActiveSnapshot(GetTransactionSnapshot());
	MemoryContextSwitchTo(context);
}

void
SqlEnd(SqlSession *session)
{
	MemoryContext context = CurrentMemoryContext;

	if (session->pushed_snapshot)
		PopActiveSnapshot();
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(context);
	AtEOXact_GUC(false, session->guc_nest_level);
	SetUserIdAndSecContext(session->saved_user, session->saved_security_context);
}

static SPIPlanPtr
KeepPlan(const char *query, int nargs, const SqlArg *args)
{
	KeptPlan   *kept;
	bool		found;
	Oid			types[SQL_MAX_ARGS];
	SPIPlanPtr	plan;

	if (kept_plans == NULL)
		kept_plans = MakeHash("incsink plans", sizeof(char *), sizeof(KeptPlan));
	kept = hash_search(kept_plans, &query, HASH_FIND, &found);
	if (found)
		return kept->plan;

	Assert(nargs <= SQL_MAX_ARGS);
	for (int i = 0; i < nargs; i++)
		types[i] = args[i].type;
	plan = SPI_prepare(query, nargs, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	kept = hash_search(kept_plans, &query, HASH_ENTER, &found);
	kept->plan = plan;
	return plan;
}

uint64
SqlRunArgs(const char *query, int nargs, const SqlArg *args)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		values[SQL_MAX_ARGS];
	char		nulls[SQL_MAX_ARGS];
	int			result;

	for (int i = 0; i < nargs; i++)
	{
		values[i] = args[i].value;
		nulls[i] = args[i].isnull ? 'n' : ' ';
	}
	result = SPI_execute_plan(KeepPlan(query, nargs, args), values, nulls, false, 0);
	if (result < 0)
		elog(ERROR, "query on the incsink catalog failed: %s", SPI_result_code_string(result));
	MemoryContextSwitchTo(context);
	return SPI_processed;
}

static Datum
SqlGet(uint64 row, int column, bool *isnull)
{
	Assert(SPI_tuptable != NULL && row < SPI_tuptable->numvals);
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

bool
SqlIsNull(uint64 row, int column)
{
	bool		isnull;

	(void) SqlGet(row, column, &isnull);
	return isnull;
}

int64
SqlGetInt8(uint64 row, int column)
{
	bool		isnull;
	Datum		value = SqlGet(row, column, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

int32
SqlGetInt4(uint64 row, int column)
{
	bool		isnull;
	Datum		value = SqlGet(row, column, &isnull);

	return isnull ? 0 : DatumGetInt32(value);
}

bool
SqlGetBool(uint64 row, int column)
{
	bool		isnull;
	Datum		value = SqlGet(row, column, &isnull);

	return isnull ? false : DatumGetBool(value);
}

Oid
SqlGetOid(uint64 row, int column)
{
	bool		isnull;
	Datum		value = SqlGet(row, column, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(value);
}

TimestampTz
SqlGetTime(uint64 row, int column)
{
	bool		isnull;
	Datum		value = SqlGet(row, column, &isnull);

	return isnull ? 0 : DatumGetTimestampTz(value);
}

char *
SqlGetText(uint64 row, int column, MemoryContext context)
{
	char	   *value = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);

	return value ? MemoryContextStrdup(context, value) : NULL;
}

Jsonb *
SqlGetJsonb(uint64 row, int column, MemoryContext context)
{
	bool		isnull;
	Datum		value = SqlGet(row, column, &isnull);
	MemoryContext old;
	Jsonb	   *copy;

	if (isnull)
		return NULL;
	old = MemoryContextSwitchTo(context);
	copy = DatumGetJsonbPCopy(value);
	MemoryContextSwitchTo(old);
	return copy;
}

char **
SqlGetTextArray(uint64 row, int column, MemoryContext context, int *count)
{
	bool		isnull;
	Datum		value = SqlGet(row, column, &isnull);
	ArrayType  *array;
	Oid			element;
	int16		length;
	bool		byval;
	char		align;
	Datum	   *elements;
	bool	   *nulls;
	char	  **result;

	*count = 0;
	if (isnull)
		return NULL;
	array = DatumGetArrayTypeP(value);
	element = ARR_ELEMTYPE(array);
	get_typlenbyvalalign(element, &length, &byval, &align);
	deconstruct_array(array, element, length, byval, align, &elements, &nulls, count);
	result = MemoryContextAlloc(context, sizeof(char *) * (*count + 1));
	for (int i = 0; i < *count; i++)
	{
		const char *element_text;

		if (element == NAMEOID)
			element_text = NameStr(*DatumGetName(elements[i]));
		else
			element_text = TextDatumGetCString(elements[i]);
		result[i] = MemoryContextStrdup(context, element_text);
	}
	result[*count] = NULL;
	return result;
}
