/*
 * units.c
 *		Amounts with units as postgresql.conf writes them, and names that are
 *		nearly right.
 */
#include "postgres.h"

#include <math.h>

#include "utils/guc.h"
#include "utils/varlena.h"

#include "common/units.h"

typedef struct Unit
{
	const char *name;
	int64		factor;
} Unit;

/* Largest first; the last has factor 1. */
static const Unit duration_units[] = {
	{"d", INT64CONST(86400000)}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}
};
static const Unit size_units[] = {
	{"GB", INT64CONST(1) << 30}, {"MB", 1 << 20}, {"kB", 1 << 10}, {"B", 1}
};

/*
 * parse_real() rather than parse_int(), whose range ends at 2 GB, so that a value
 * beyond it is told its real bounds.
 */
bool
ParseAmount(AmountKind kind, const char *text, int64 *value, const char **hint)
{
	int			flags = 0;
	double		real;

	if (kind == AMOUNT_DURATION)
		flags = GUC_UNIT_MS;
	else if (kind == AMOUNT_SIZE)
		flags = GUC_UNIT_BYTE;
	*hint = NULL;
	if (!parse_real(text, &real, flags, hint))
		return false;

	/* A fraction is rounded where there are units and refused elsewhere. */
	if (kind == AMOUNT_PLAIN && real != rint(real))
		return false;
	real = rint(real);
	if (real >= (double) PG_INT64_MAX)
		*value = PG_INT64_MAX;
	else if (real <= (double) PG_INT64_MIN)
		*value = PG_INT64_MIN;
	else
		*value = (int64) real;
	return true;
}

char *
FormatAmount(AmountKind kind, int64 value)
{
	const Unit *units = kind == AMOUNT_DURATION ? duration_units : size_units;

	if (kind == AMOUNT_PLAIN || value == 0)
		return psprintf(INT64_FORMAT, value);
	while (value % units->factor != 0)
		units++;
	return psprintf(INT64_FORMAT "%s", value / units->factor, units->name);
}

/*
 * As the server does for columns (parser/parse_relation.c): at most three edits,
 * and no more than half of what was written.
 */
const char *
NearestName(const char *name, const char *const *known)
{
	int			length = strlen(name);
	int			allowed = Min(3, length / 2);
	const char *nearest = NULL;

	if (length >= NAMEDATALEN)
		return NULL;
	for (; *known != NULL; known++)
	{
		int			distance = varstr_levenshtein_less_equal(name, length,
															 *known, strlen(*known),
															 1, 1, 1, allowed, true);

		if (distance <= allowed)
		{
			nearest = *known;
			allowed = distance - 1;
			if (allowed < 0)
				break;
		}
	}
	return nearest;
}
