/*
 * compare.h
 *		The rows of a range now, and the lines of an object that has them.
 *
 * Both are read in pieces: memory is flat.
 */
#ifndef INCSINK_COMPARE_H
#define INCSINK_COMPARE_H

#include "postgres.h"

#include "catalog/partition.h"
#include "delivery/batch.h"
#include "delivery/lines.h"

/* How a range is read: see EncodeRange(). */
typedef struct RangeSource
{
	const Partition *partition;
	Oid			role;
	const Encoding *encoding;
	ByteBuffer	body;			/* for a piece of it; initialized by the caller */
	void		(*gone) (const Partition *partition);	/* raises the ERROR for a
														 * table that is gone */
} RangeSource;

typedef struct RangeRead
{
	int64		rows;
	Position	until;			/* how far it got, with its key */
	bool		ended;			/* to the end of the range */
} RangeRead;

/*
 * Reads (since, until], max_rows of it at most (but rows with one number go together), and
 * adds it to the lines.  Waits for locks.
 */
extern RangeRead ReadRange(RangeSource *source, Position since, Position until, int64 max_rows,
						   Lines *lines);

/* Adds what a file holds; 0, an errno or FILE_NOT_REGULAR. */
extern int	ReadObject(const char *path, Lines *lines);

typedef struct Comparison
{
	int			problem;		/* of ReadObject(): then nothing else counts */
	bool		is_torn;		/* the object ends in the middle of a line */
	bool		is_same;		/* byte for byte */
	int64		rows_in_table;
	int64		rows_at_sink;
	LineDifference difference;
	char		digest[SHA256_HEX_LENGTH + 1];	/* of the object */
} Comparison;

/* Compares a range above the backlog with the file that should have it. */
extern void CompareObject(RangeSource *source, Position since, Position until, const char *path,
						  Comparison *comparison);

#endif							/* INCSINK_COMPARE_H */
