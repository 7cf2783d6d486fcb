/*
 * objects.c
 *		The objects that stand at a sink, in the order of their ranges.
 *
 * They are sorted as text: the four numbers of a range, each of 19 digits, and the key.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"

#include "common/compat.h"
#include "sink/objects.h"
#include "transport/file_list.h"

#define NUMBER_DIGITS 19

struct ObjectList
{
	const ObjectPattern *pattern;
	Tuplesortstate *sort;
	ObjectFailure failed;
	void	   *arg;
};

static bool
MayBePart(void *arg, int level, const char *name)
{
	ObjectList *list = arg;

	return PartFitsPattern(list->pattern, level, name);
}

static void
AddObject(void *arg, const char *key)
{
	ObjectList *list = arg;
	Position	since;
	Position	until;
	char	   *line;
	text	   *value;

	if (!RangeOfObject(list->pattern, key, &since, &until))
		return;
	line = psprintf("%019lld%019lld%019lld%019lld%s",
					(long long) since.seq, (long long) since.n,
					(long long) until.seq, (long long) until.n, key);
	value = cstring_to_text(line);
	tuplesort_putdatum(list->sort, PointerGetDatum(value), false);
	pfree(value);
	pfree(line);
}

static void
TellFailure(void *arg, const char *key, int error_number)
{
	ObjectList *list = arg;

	list->failed(list->arg, key, error_number);
}

ObjectList *
ListObjects(const char *directory, const ObjectPattern *pattern, ObjectFailure failed, void *arg)
{
	ObjectList *list = palloc0(sizeof(ObjectList));
	FileVisitor visitor = {
		.depth = pattern->nparts,
		.matches = MayBePart,
		.found = AddObject,
		.failed = TellFailure,
		.arg = list,
	};

	list->pattern = pattern;
	list->failed = failed;
	list->arg = arg;
	list->sort = tuplesort_begin_datum(TEXTOID,
									   lookup_type_cache(TEXTOID, TYPECACHE_LT_OPR)->lt_opr,
									   C_COLLATION_OID, false, work_mem, NULL, TUPLESORT_NONE);
	VisitFiles(directory, &visitor);
	tuplesort_performsort(list->sort);
	return list;
}

static int64
TakeNumber(char **at)
{
	int64		value = 0;

	for (int i = 0; i < NUMBER_DIGITS; i++)
		value = value * 10 + (*(*at)++ - '0');
	return value;
}

bool
NextObject(ObjectList *list, Object *object)
{
	Datum		value;
	bool		isnull;
	char	   *at;

	if (!TuplesortGetDatumCompat(list->sort, &value, &isnull))
		return false;
	at = text_to_cstring(DatumGetTextPP(value));
	pfree(DatumGetPointer(value));
	memset(object, 0, sizeof(Object));
	object->since.seq = TakeNumber(&at);
	object->since.n = TakeNumber(&at);
	object->until.seq = TakeNumber(&at);
	object->until.n = TakeNumber(&at);
	object->key = at;
	return true;
}

void
EndObjects(ObjectList *list)
{
	tuplesort_end(list->sort);
	pfree(list);
}
