/*
 * token.h
 *		Tokens and positions: where a reader or a delivery stands.
 */
#ifndef INCSINK_TOKEN_H
#define INCSINK_TOKEN_H

#include "postgres.h"

#include "utils/jsonb.h"

/*
 * A pair.  Above the backlog n is 0; inside it seq is 0 and n counts the backlog
 * rows so far.
 */
typedef struct Position
{
	int64		seq;
	int64		n;
} Position;

#define POSITION_BEGINNING ((Position) {0, 0})

static inline int
ComparePositions(Position a, Position b)
{
	if (a.seq != b.seq)
		return a.seq < b.seq ? -1 : 1;
	if (a.n != b.n)
		return a.n < b.n ? -1 : 1;
	return 0;
}

/* "1234", or "0.17" inside the backlog; "0" at the beginning. */
extern char *FormatPosition(Position position);

/* {"v": 1, "p": tag, "seq": "1234"} */
extern Jsonb *MakeToken(const char *tag, Position position);

/*
 * Takes a token apart.  Raises ERRCODE_INVALID_PARAMETER_VALUE for one that is
 * malformed or of another version.
 */
extern void ParseToken(Jsonb *token, char **tag, Position *position);

#endif							/* INCSINK_TOKEN_H */
