/*
 * verify_ranges.c
 *		Forward sinks: what their receivers should have, range by range.
 *
 * A receiver cannot be asked, but it can compare digests.
 */
#include "postgres.h"

#include "api/verify.h"

/*
 * A row of the result for each range of the span, as far as it holds rows, which are
 * counted; the end of the last one.
 */
static Position
EmitSpan(Verification *verification, Position since, Position until, int64 *rows)
{
	RangeRead	read = {.until = since};

	while (!read.ended)
	{
		Position	before = read.until;
		Lines		lines;
		VerifyRow	row;

		BeginLines(&lines, NULL);
		read = ReadRange(&verification->source, before, until, verification->range_rows, &lines);
		EndLines(&lines);
		if (read.rows == 0)
			break;
		row = MakeVerifyRow(before, read.until);
		row.rows_in_table = read.rows;
		row.digest = lines.digest;
		EmitVerifyRow(verification, &row);
		if (before.key != NULL && before.key != since.key)
			pfree(before.key);
		*rows += read.rows;
	}
	return read.until;
}

/* The whole of the epoch: what stands in the table against what was counted. */
static void
EmitTotal(const Verification *verification, Position began, int64 rows)
{
	const EpochReach *reach = verification->reach;
	VerifyRow	row = MakeVerifyRow(began, reach->until);

	row.rows_in_table = rows;
	if (!reach->began_known)
	{
		row.difference = UNKNOWN_DIFFERENCE;
		row.detail = "how many rows were exported is not known: the epoch began before version 0.3 of incsink";
	}
	else
	{
		int64		known = reach->rows_exported + reach->rows_rejected;

		row.rows_at_sink = reach->rows_exported;
		row.difference.missing = Max(rows - known, 0);
		if (rows > known)
		{
			row.state = STATE_MISSING;
			row.detail = "the table has more rows than were exported";
		}
		else if (rows < known)
			row.detail = psprintf(INT64_FORMAT " of the rows that were exported are not in the table any more",
								  known - rows);
		else if (reach->rows_rejected > 0)
			row.detail = psprintf(INT64_FORMAT " rows were refused by the receiver and put aside or discarded",
								  reach->rows_rejected);
	}
	EmitVerifyRow(verification, &row);
}

void
VerifyRanges(Verification *verification)
{
	const EpochReach *reach = verification->reach;
	Position	began = reach->began;
	Position	since;
	Position	backlog_end;
	int64		rows = 0;

	if (!reach->began_known && strcmp(verification->table->start, "now") == 0)
		began = AboveBacklog(began);
	since = began;
	if (CoversBacklog(verification, began, &backlog_end))
		since = EmitSpan(verification, began, backlog_end, &rows);
	if (reach->until.seq > since.seq)
		(void) EmitSpan(verification, AboveBacklog(since), reach->until, &rows);
	EmitTotal(verification, began, rows);
}
