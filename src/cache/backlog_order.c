/*
 * backlog_order.c
 *		Are the key columns of a backlog what they were when it got its order?
 *
 * Positions and the end of a backlog are keys as text.  In a column that got another
 * type or collation the same texts stand in another order, or for other values: to go on
 * would leave rows out without a word.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "cache/backlog.h"
#include "cache/columns.h"
#include "common/compat.h"
#include "common/pin.h"

/* Types that read and compare the same texts alike. */
static const struct
{
	const char *type;
	const char *like;
}			SameOrder[] = {
	{"smallint", "bigint"},
	{"integer", "bigint"},
	{"character varying", "text"},
};

/* What the default collation stands for in this database: "libc en_US.UTF-8". */
static char *
DefaultCollation(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	char		provider;
	Datum		locale;
	bool		isnull;
	char	   *result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for database %u", MyDatabaseId);
	provider = ((Form_pg_database) GETSTRUCT(tuple))->datlocprovider;
	locale = SysCacheGetAttr(DATABASEOID, tuple,
							 provider == COLLPROVIDER_LIBC ? Anum_pg_database_datcollate
							 : Anum_pg_database_datlocale, &isnull);
	result = psprintf("%s %s", collprovider_name(provider), isnull ? "" : TextDatumGetCString(locale));
	ReleaseSysCache(tuple);
	return result;
}

/* "integer", "text COLLATE ...": the names do not depend on the session's search_path. */
static char *
DescribeType(Form_pg_attribute att)
{
	int			nest_level = NewGUCNestLevel();
	char	   *type;

	PinOutputSettings();
	type = format_type_be(getBaseType(att->atttypid));
	if (att->attcollation == DEFAULT_COLLATION_OID)
		type = psprintf("%s COLLATE \"default\" (%s)", type, DefaultCollation());
	else if (OidIsValid(att->attcollation))
		type = psprintf("%s COLLATE %s", type, generate_collation_name(att->attcollation));
	AtEOXact_GUC(true, nest_level);
	return type;
}

char *
DescribeKeyType(Relation rel, AttrNumber attnum)
{
	return DescribeType(TupleDescAttr(RelationGetDescr(rel), attnum - 1));
}

/* The same with the type that stands for all that are ordered like it. */
static char *
OrderOf(const char *type)
{
	for (int i = 0; i < lengthof(SameOrder); i++)
	{
		size_t		length = strlen(SameOrder[i].type);

		if (strncmp(type, SameOrder[i].type, length) == 0 &&
			(type[length] == '\0' || type[length] == ' '))
			return psprintf("%s%s", SameOrder[i].like, type + length);
	}
	return pstrdup(type);
}

static bool
IsSameOrder(const char *type, const char *other)
{
	return strcmp(OrderOf(type), OrderOf(other)) == 0;
}

bool
KeyColumnsAreSame(Relation rel, const Backlog *backlog)
{
	for (int i = 0; i < backlog->nkeys; i++)
	{
		AttrNumber	attnum = get_attnum(RelationGetRelid(rel), backlog->key_columns[i]);

		if (attnum <= 0 || !IsSameOrder(DescribeKeyType(rel, attnum), backlog->key_types[i]))
			return false;
	}
	return true;
}

/* For hints: gives up the order of the backlog, as all rows get numbers. */
static char *
RenumberCommand(Relation rel)
{
	char	   *name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												  RelationGetRelationName(rel));

	return psprintf("CALL incsink_renumber(%s, every_row => true);", quote_literal_cstr(name));
}

static void
RequireKeyColumn(Relation rel, const char *column, const char *type)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	char	   *now;

	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("column \"%s\" of table \"%s\" does not exist any more, but its backlog is read in the order of it",
						column, RelationDisplayName(rel)),
				 errhint("If it was renamed, give it the name back until the backlog is over; or let all rows get numbers and go out once more: %s",
						 RenumberCommand(rel))));
	now = DescribeKeyType(rel, attnum);
	if (!IsSameOrder(now, type))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("column \"%s\" of table \"%s\", in whose order its backlog is read, has another type or collation than when the table was attached",
						column, RelationDisplayName(rel)),
				 errdetail("It was %s and is %s.", type, now),
				 errhint("Change it back until the backlog is over; or let all rows get numbers and go out once more: %s",
						 RenumberCommand(rel))));
}

void
RequireKeyColumns(Relation rel, const Backlog *backlog)
{
	for (int i = 0; i < backlog->nkeys; i++)
		RequireKeyColumn(rel, backlog->key_columns[i], backlog->key_types[i]);
}
