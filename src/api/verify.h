/*
 * verify.h
 *		Between the files of incsink_verify().  Private to src/api.
 */
#ifndef INCSINK_API_VERIFY_H
#define INCSINK_API_VERIFY_H

#include "postgres.h"

#include "nodes/execnodes.h"

#include "catalog/epoch.h"
#include "catalog/sink.h"
#include "delivery/compare.h"

/* One call: a sink and a table, and how far the delivery was at its beginning. */
typedef struct Verification
{
	SinkDefinition *sink;
	Partition  *partition;
	SinkTable  *table;
	EpochReach *reach;
	RangeSource source;
	int64		range_rows;
	ReturnSetInfo *result;
	MemoryContext row_context;	/* of what one row of it needs */
} Verification;

#define STATE_OK "ok"
#define STATE_CHANGED "changed"
#define STATE_MISSING "missing"
#define STATE_DOUBLED "doubled"
#define STATE_UNEXPECTED "unexpected"
#define STATE_IN_FLIGHT "in flight"
#define STATE_UNREADABLE "unreadable"

/* A row of the result; what is unknown is null in it. */
#define UNKNOWN_ROWS (-1)
#define UNKNOWN_DIFFERENCE ((LineDifference) {UNKNOWN_ROWS, UNKNOWN_ROWS, UNKNOWN_ROWS})

typedef struct VerifyRow
{
	bool		has_range;
	Position	since;
	Position	until;
	const char *state;
	const char *object;			/* or NULL */
	int64		rows_in_table;
	int64		rows_at_sink;
	LineDifference difference;
	const char *digest;			/* or NULL */
	const char *detail;			/* or NULL */
} VerifyRow;

/* One of a range, all well as far as is known. */
extern VerifyRow MakeVerifyRow(Position since, Position until);
extern void EmitVerifyRow(const Verification *verification, const VerifyRow *row);

/* Is anything of the backlog in the epoch, and up to where? */
extern bool CoversBacklog(const Verification *verification, Position began, Position *until);

/* As the beginning of a range of numbers. */
extern Position AboveBacklog(Position position);

/* How the difference between a table and a sink is called. */
extern const char *StateOfDifference(int64 rows_in_table, int64 rows_at_sink,
									 const LineDifference *difference);
extern const char *DetailOfState(const char *state);

/* The two kinds. */
extern void VerifyObjects(Verification *verification);
extern void VerifyRanges(Verification *verification);

#endif							/* INCSINK_API_VERIFY_H */
