/*
 * compare.c
 *		The rows of a range now, and the lines of an object that has them.
 */
#include "postgres.h"

#include "delivery/compare.h"
#include "miscadmin.h"
#include "transport/file_list.h"

/* A piece of a range. */
#define PIECE_ROWS 50000
#define PIECE_BYTES (4 * 1024 * 1024)

/*
 * A piece may end with the last row of its range without knowing.  In a backlog positions
 * count rows, of which there may be others now: there only a piece without a row is the
 * last one.
 */
static bool
IsRangeEnd(const EncodedRange *piece, Position until)
{
	return piece->rows == 0 || (until.seq > 0 && piece->until.seq >= until.seq);
}

RangeRead
ReadRange(RangeSource *source, Position since, Position until, int64 max_rows, Lines *lines)
{
	RangeRead	read = {.until = since};

	while (!read.ended && read.rows < max_rows)
	{
		RangeLimits limits = {
			.rows = Min(max_rows - read.rows, PIECE_ROWS),
			.bytes = PIECE_BYTES,
			.wait_for_lock = true,
		};
		EncodedRange piece;

		CHECK_FOR_INTERRUPTS();
		ByteBufferReset(&source->body);
		piece = EncodeRange(source->partition, source->role, source->encoding, read.until, until,
							limits, &source->body);
		if (piece.status != READER_OK)
			source->gone(source->partition);
		AddLines(lines, source->body.data, source->body.length);
		if (read.until.key != NULL && read.until.key != since.key)
			pfree(read.until.key);
		read.rows += piece.rows;
		read.until = piece.until;
		read.ended = IsRangeEnd(&piece, until);
	}
	return read;
}

static void
TakeSlice(void *arg, const char *bytes, size_t length)
{
	AddLines(arg, bytes, length);
}

int
ReadObject(const char *path, Lines *lines)
{
	return ReadFileSlices(path, TakeSlice, lines);
}

/* Reads both sides, into sets if there are any. */
static void
ReadBoth(RangeSource *source, Position since, Position until, const char *path,
		 LineSet *table_set, LineSet *sink_set, Comparison *comparison)
{
	Lines		table;
	Lines		sink;

	BeginLines(&sink, sink_set);
	comparison->problem = ReadObject(path, &sink);
	EndLines(&sink);
	BeginLines(&table, table_set);
	(void) ReadRange(source, since, until, PG_INT64_MAX, &table);
	EndLines(&table);
	comparison->rows_in_table = table.count;
	comparison->rows_at_sink = sink.count;
	comparison->is_torn = sink.is_torn;
	comparison->is_same = comparison->problem == 0 && strcmp(table.digest, sink.digest) == 0;
	strlcpy(comparison->digest, sink.digest, sizeof(comparison->digest));
}

/* Only those that differ are read again, line by line. */
void
CompareObject(RangeSource *source, Position since, Position until, const char *path,
			  Comparison *comparison)
{
	LineSet    *table;
	LineSet    *sink;

	memset(comparison, 0, sizeof(Comparison));
	ReadBoth(source, since, until, path, NULL, NULL, comparison);
	if (comparison->is_same || comparison->problem != 0)
		return;
	table = MakeLineSet();
	sink = MakeLineSet();
	ReadBoth(source, since, until, path, table, sink, comparison);
	comparison->difference = CompareLineSets(table, sink);
	FreeLineSet(table);
	FreeLineSet(sink);
}
