/*
 * lines.h
 *		The lines of a body that comes in pieces: counted and digested.
 */
#ifndef INCSINK_LINES_H
#define INCSINK_LINES_H

#include "postgres.h"

#include "common/digest.h"
#include "delivery/line_set.h"

typedef struct Lines
{
	int64		count;			/* of complete lines */
	bool		is_torn;		/* so far, the last one has no end */
	char		digest[SHA256_HEX_LENGTH + 1];	/* of all bytes; of EndLines() */
	/* private */
	Sha256	   *body;
	Sha256	   *line;			/* NULL without a set */
	LineSet    *set;
} Lines;

/* The ids of complete lines go into the set, if one is given. */
extern void BeginLines(Lines *lines, LineSet *set);
extern void AddLines(Lines *lines, const char *bytes, size_t length);
extern void EndLines(Lines *lines);

#endif							/* INCSINK_LINES_H */
