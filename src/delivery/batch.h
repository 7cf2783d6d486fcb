/*
 * batch.h
 *		Rows of a range as the body of a batch.
 */
#ifndef INCSINK_BATCH_H
#define INCSINK_BATCH_H

#include "postgres.h"

#include "cache/reader.h"
#include "catalog/sink.h"
#include "encode/compressor.h"
#include "encode/encoder.h"
#include "utils/jsonb.h"

/* How a batch is encoded; kept in its intent, so that a retry does the same. */
typedef struct Encoding
{
	const EncoderRoutine *encoder;
	const CompressionRoutine *compression;	/* NULL = none */
	int			compression_level;	/* 0 = the method's own */
	char	   *event_source;	/* for a format that names its rows, else NULL */
	char	   *event_type;
	char	  **columns;		/* NULL = all */
	int			ncolumns;
	char	   *filter;			/* NULL = none */
} Encoding;

/* Format and compression as the sink has them now; the rest is the table's. */
extern void SetSinkEncoding(Encoding *encoding, const SinkDefinition *sink,
							const Partition *partition);

extern Jsonb *FormatEncoding(const Encoding *encoding);
/* In CurrentMemoryContext; ERROR if it is of a format that this library lacks. */
extern Encoding *ParseEncoding(Jsonb *json);

typedef struct RangeLimits
{
	int64		rows;
	int64		bytes;			/* before compression; a single larger row
								 * still goes, alone */
	int			milliseconds;	/* 0 = as long as it takes */
	bool		wait_for_lock;	/* the worker never does */
} RangeLimits;

#define NO_LIMITS ((RangeLimits) {PG_INT64_MAX, PG_INT64_MAX, 0, false})

typedef struct EncodedRange
{
	ReaderStatus status;		/* other than READER_OK: nothing was read */
	int64		rows;			/* in the body */
	int64		bytes;			/* of the body before compression */
	Position	until;			/* how far it got: the last row's position at a
								 * limit (a row that the filter passed over
								 * counts), else the end of the range; for
								 * POSITION_BACKLOG_END that is the position
								 * behind the last row, with
								 * BacklogOverKey() */
} EncodedRange;

/*
 * Encodes the rows of (since, until] into body, which is empty, as the role given and with its
 * privileges, with a snapshot taken now.  Needs a transaction; takes the locks of the
 * relations, conditionally unless told to wait, and keeps them to the transaction's end.
 * Raises what ReaderOpen and the types' output functions raise.  The key in until lives in
 * CurrentMemoryContext.
 */
extern EncodedRange EncodeRange(const Partition *partition, Oid role, const Encoding *encoding,
								Position since, Position until, RangeLimits limits,
								ByteBuffer *body);

#endif							/* INCSINK_BATCH_H */
