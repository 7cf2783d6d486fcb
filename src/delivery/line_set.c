/*
 * line_set.c
 *		Multisets of lines, by their digests, and how two of them differ.
 *
 * They are sorted on disk where memory does not do, and then merged.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

#include "common/compat.h"
#include "delivery/line_set.h"

StaticAssertDecl(UUID_LEN == LINE_ID_LENGTH, "a uuid holds the id of a line");

struct LineSet
{
	Tuplesortstate *sort;
	/* while it is read: the line that comes next, and how often it stands there */
	bool		at_end;
	pg_uuid_t	next;
	pg_uuid_t	line;
	int64		count;
};

LineSet *
MakeLineSet(void)
{
	LineSet    *set = palloc0(sizeof(LineSet));

	set->sort = tuplesort_begin_datum(UUIDOID,
									  lookup_type_cache(UUIDOID, TYPECACHE_LT_OPR)->lt_opr,
									  InvalidOid, false, Max(work_mem / 2, 64), NULL,
									  TUPLESORT_NONE);
	return set;
}

void
AddToLineSet(LineSet *set, const uint8 *id)
{
	pg_uuid_t	line;

	memcpy(line.data, id, LINE_ID_LENGTH);
	tuplesort_putdatum(set->sort, UUIDPGetDatum(&line), false);
}

void
FreeLineSet(LineSet *set)
{
	tuplesort_end(set->sort);
	pfree(set);
}

static void
Advance(LineSet *set)
{
	Datum		value;
	bool		isnull;

	set->at_end = !TuplesortGetDatumCompat(set->sort, &value, &isnull);
	if (set->at_end)
		return;
	set->next = *DatumGetUUIDP(value);
	pfree(DatumGetPointer(value));
}

/* Takes all lines that are equal to the next one; none at the end. */
static void
TakeEqual(LineSet *set)
{
	set->count = 0;
	set->line = set->next;
	while (!set->at_end && memcmp(&set->line, &set->next, sizeof(pg_uuid_t)) == 0)
	{
		CHECK_FOR_INTERRUPTS();
		set->count++;
		Advance(set);
	}
}

static void
BeginReading(LineSet *set)
{
	tuplesort_performsort(set->sort);
	Advance(set);
	TakeEqual(set);
}

/* Which of the two has the lower line?  Negative for the table, 0 for both. */
static int
CompareLines(const LineSet *table, const LineSet *sink)
{
	if (table->count == 0 || sink->count == 0)
		return table->count > 0 ? -1 : 1;
	return memcmp(&table->line, &sink->line, sizeof(pg_uuid_t));
}

LineDifference
CompareLineSets(LineSet *table, LineSet *sink)
{
	LineDifference difference = {0};

	BeginReading(table);
	BeginReading(sink);
	while (table->count > 0 || sink->count > 0)
	{
		int			order = CompareLines(table, sink);

		if (order < 0)
			difference.missing += table->count;
		else if (order > 0)
			difference.unexpected += sink->count;
		else
		{
			difference.missing += Max(table->count - sink->count, 0);
			difference.doubled += Max(sink->count - table->count, 0);
		}
		if (order <= 0)
			TakeEqual(table);
		if (order >= 0)
			TakeEqual(sink);
	}
	return difference;
}
