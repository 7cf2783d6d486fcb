/*
 * token.h
 *		Tokens and positions: where a reader or a delivery stands.
 */
#ifndef INCSINK_TOKEN_H
#define INCSINK_TOKEN_H

#include "postgres.h"

#include "common/compat.h"
#include "utils/jsonb.h"

/*
 * A pair, and a key beside it.  Above the backlog n is 0; inside it seq is 0, n counts
 * the backlog rows so far and the key says which was the last: a json array of its
 * values (strings, as their types write them).  The key takes no part in comparisons.
 *
 * Whoever keeps a position keeps its key: it is not copied with the struct.
 */
typedef struct Position
{
	int64		seq;
	int64		n;
	Jsonb	   *key;			/* NULL above the backlog and before its first row */
} Position;

#define POSITION_BEGINNING ((Position) {0, 0, NULL})

/* As an upper bound of a range: all of the backlog, and no number. */
#define POSITION_BACKLOG_END ((Position) {0, PG_INT64_MAX, NULL})

/* The key of a position behind the last row of the backlog: an empty array. */
extern Jsonb *BacklogOverKey(void);

/* Is nothing of a backlog left behind the position?  Numbers are read from there. */
extern bool BacklogIsOver(Position position);

static inline int
ComparePositions(Position a, Position b)
{
	if (a.seq != b.seq)
		return a.seq < b.seq ? -1 : 1;
	if (a.n != b.n)
		return a.n < b.n ? -1 : 1;
	return 0;
}

/*
 * "1234"; inside the backlog "0.0000000000000000017", which compares right as a number
 * and as text; "0" at the beginning.
 */
extern char *FormatPosition(Position position);

/* {"v": 1, "p": tag, "seq": "1234"}; inside the backlog with "n" and "key", too */
extern Jsonb *MakeToken(const char *tag, Position position);

/*
 * Takes a token apart.  Raises ERRCODE_INVALID_PARAMETER_VALUE for one that is
 * malformed or of another version.
 */
extern void ParseToken(Jsonb *token, char **tag, Position *position);

/* The same error, for what a token's key turns out to be. */
pg_noreturn extern void RaiseMalformedToken(const char *detail);

#endif							/* INCSINK_TOKEN_H */
