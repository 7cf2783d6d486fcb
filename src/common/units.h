/*
 * units.h
 *		Amounts with units as postgresql.conf writes them, and names that are
 *		nearly right.
 */
#ifndef INCSINK_UNITS_H
#define INCSINK_UNITS_H

#include "postgres.h"

typedef enum AmountKind
{
	AMOUNT_PLAIN,				/* a number without a unit */
	AMOUNT_DURATION,			/* milliseconds */
	AMOUNT_SIZE					/* bytes */
} AmountKind;

/*
 * Parses "5min", "4MB", "100": a bare number is milliseconds or bytes.  On false
 * *hint is NULL or says, translated, which units are known.
 */
extern bool ParseAmount(AmountKind kind, const char *text, int64 *value, const char **hint);

/* The shortest exact form: 300000 milliseconds are "5min". */
extern char *FormatAmount(AmountKind kind, int64 value);

/* The name of "known" (ended by NULL) that "name" was probably meant to be, or NULL. */
extern const char *NearestName(const char *name, const char *const *known);

#endif							/* INCSINK_UNITS_H */
