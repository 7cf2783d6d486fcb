/*
 * batch.c
 *		Reads and encodes the rows of a range.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/compat.h"
#include "delivery/batch.h"
#include "miscadmin.h"
#include "sink/url.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

void
SetSinkEncoding(Encoding *encoding, const SinkDefinition *sink, const Partition *partition)
{
	const SinkOptions *options = sink->options;

	encoding->encoder = EncoderForFormat(options->format);
	if (options->compression != NULL)
		(void) CompressionByName(options->compression, &encoding->compression);
	if (encoding->compression != NULL)
		encoding->compression_level = (int) options->compression_level;
	if (encoding->encoder->describe_events != NULL)
	{
		KeyValues	values = {.sink = sink->name,.dataset = partition->dataset,
		.source = partition->source};

		encoding->event_source = ExpandPlaceholders(options->cloudevents_source, EXPAND_URL,
													&values, NULL);
		encoding->event_type = options->cloudevents_type;
	}
}

static void
AppendText(StringInfo json, const char *key, const char *value)
{
	if (value == NULL)
		return;
	appendStringInfo(json, ", \"%s\": ", key);
	escape_json(json, value);
}

Jsonb *
FormatEncoding(const Encoding *encoding)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"format\": ");
	escape_json(&json, encoding->encoder->format);
	if (encoding->columns != NULL)
	{
		appendStringInfoString(&json, ", \"columns\": [");
		for (int i = 0; i < encoding->ncolumns; i++)
		{
			if (i > 0)
				appendStringInfoString(&json, ", ");
			escape_json(&json, encoding->columns[i]);
		}
		appendStringInfoChar(&json, ']');
	}
	AppendText(&json, "filter", encoding->filter);
	if (encoding->compression != NULL)
	{
		AppendText(&json, "compression", encoding->compression->name);
		appendStringInfo(&json, ", \"compression_level\": \"%d\"", encoding->compression_level);
	}
	AppendText(&json, "event_source", encoding->event_source);
	AppendText(&json, "event_type", encoding->event_type);
	appendStringInfoChar(&json, '}');
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data)));
}

static JsonbValue *
GetKey(Jsonb *json, const char *key)
{
	return getKeyJsonValueFromContainer(&json->root, key, strlen(key), NULL);
}

static char *
GetKeyText(Jsonb *json, const char *key)
{
	JsonbValue *value = GetKey(json, key);

	if (value == NULL || value->type != jbvString)
		return NULL;
	return pnstrdup(value->val.string.val, value->val.string.len);
}

pg_noreturn static void
RaiseUnknownEncoding(const char *what, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a batch in flight has the %s \"%s\", which this version of incsink does not know",
					what, name ? name : ""),
			 errhint("Install the version of incsink that made it, or reset the sink.")));
}

static void
ParseColumns(const JsonbValue *columns, Encoding *encoding)
{
	JsonbContainer *array = columns->val.binary.data;

	encoding->ncolumns = JsonContainerSize(array);
	encoding->columns = palloc(sizeof(char *) * (encoding->ncolumns + 1));
	for (int i = 0; i < encoding->ncolumns; i++)
	{
		JsonbValue *item = getIthJsonbValueFromContainer(array, i);

		encoding->columns[i] = pnstrdup(item->val.string.val, item->val.string.len);
	}
}

/* Keys that the library of before did not write mean what it did. */
Encoding *
ParseEncoding(Jsonb *json)
{
	Encoding   *encoding = palloc0(sizeof(Encoding));
	char	   *format = GetKeyText(json, "format");
	char	   *compression = GetKeyText(json, "compression");
	char	   *level = GetKeyText(json, "compression_level");
	JsonbValue *columns = GetKey(json, "columns");

	encoding->encoder = format ? EncoderForFormat(format) : NULL;
	if (encoding->encoder == NULL)
		RaiseUnknownEncoding("format", format);
	if (compression != NULL && !CompressionByName(compression, &encoding->compression))
		RaiseUnknownEncoding("compression", compression);
	encoding->compression_level = level ? atoi(level) : 0;
	encoding->event_source = GetKeyText(json, "event_source");
	encoding->event_type = GetKeyText(json, "event_type");
	encoding->filter = GetKeyText(json, "filter");
	if (columns != NULL && columns->type == jbvBinary)
		ParseColumns(columns, encoding);
	return encoding;
}

/* How much of a body there is up to where the batch may end. */
typedef struct Boundary
{
	int64		rows;
	size_t		length;			/* of BodyWriter.rows */
} Boundary;

/* A body while its rows are read. */
typedef struct BodyWriter
{
	Reader	   *reader;
	const EncoderRoutine *routine;
	Encoder    *encoder;
	Compressor *compressor;		/* NULL without compression */
	ByteBuffer *rows;			/* encoded and not compressed yet; the body
								 * itself where nothing compresses it */
	ByteBuffer	uncompressed;
	int64		taken;			/* bytes that went from there to the compressor */
	Boundary	boundary;
	int			tie;			/* how many rows with the last number there are */
	RangeLimits limits;
	EncodedRange *range;
} BodyWriter;

static void
BeginBody(BodyWriter *writer, const Encoding *encoding, ByteBuffer *body)
{
	const AttrNumber *attnums;
	int			nattnums;

	ReaderColumns(writer->reader, &attnums, &nattnums);
	writer->routine = encoding->encoder;
	writer->encoder = writer->routine->begin(RelationGetDescr(ReaderRelation(writer->reader)),
											 attnums, nattnums);
	if (writer->routine->describe_events != NULL)
		writer->routine->describe_events(writer->encoder, encoding->event_source,
										 encoding->event_type);
	writer->rows = body;
	if (encoding->compression != NULL)
	{
		writer->compressor = CompressorBegin(encoding->compression, encoding->compression_level,
											 body);
		writer->rows = &writer->uncompressed;
		ByteBufferInit(writer->rows, 64 * 1024);
	}
}

/* Nothing is left of a body without rows. */
static void
EndBody(BodyWriter *writer)
{
	writer->routine->finish(writer->encoder, writer->rows);
	writer->range->bytes = writer->taken + writer->rows->length;
	if (writer->compressor != NULL && writer->range->rows > 0)
		CompressorFinish(writer->compressor, writer->rows);
}

/* With what is still to come behind the rows. */
static int64
BodyBytes(const BodyWriter *writer)
{
	return writer->taken + writer->rows->length + writer->routine->tail;
}

static bool
IsFull(const BodyWriter *writer)
{
	return writer->range->rows >= writer->limits.rows || BodyBytes(writer) >= writer->limits.bytes;
}

/* The batch may end before the row in hand: what is there stays, and may be compressed. */
static void
SetBoundary(BodyWriter *writer)
{
	if (writer->compressor != NULL)
		writer->taken += CompressorTake(writer->compressor, writer->rows, writer->rows->length);
	writer->boundary = (Boundary) {writer->range->rows, writer->rows->length};
	writer->tie = 0;
}

/* Ends the batch behind the row before the last one read, or before its number. */
static void
TakeBack(BodyWriter *writer)
{
	writer->rows->length = writer->boundary.length;
	writer->range->rows = writer->boundary.rows;
	writer->range->until = ReaderPositionBefore(writer->reader);
}

static void
WriteRow(BodyWriter *writer, TupleTableSlot *slot)
{
	writer->tie++;
	if (writer->routine->name_event != NULL)
		writer->routine->name_event(writer->encoder, ReaderPlace(writer->reader), writer->tie);
	writer->routine->row(writer->encoder, slot, writer->rows);
}

/*
 * A row that would take the body over the limit is taken back and left for the next
 * batch; the first one always stays.  A batch never ends between rows with one number:
 * they go together, or back together.  True if the range was read to its end.
 */
static bool
WriteRows(BodyWriter *writer)
{
	TupleTableSlot *slot;

	while ((slot = ReaderNext(writer->reader)) != NULL)
	{
		if (!ReaderGoesOnTie(writer->reader))
		{
			SetBoundary(writer);
			if (writer->boundary.rows > 0 && IsFull(writer))
			{
				TakeBack(writer);
				return false;
			}
		}
		WriteRow(writer, slot);
		if (BodyBytes(writer) > writer->limits.bytes && writer->boundary.rows > 0)
		{
			TakeBack(writer);
			return false;
		}
		writer->range->rows++;
		if (IsFull(writer) && !ReaderIsTied(writer->reader))
		{
			writer->range->until = ReaderPosition(writer->reader);
			return false;
		}
	}
	if (!ReaderStopped(writer->reader))
		return true;
	writer->range->until = ReaderPosition(writer->reader);
	return false;
}

/* Where a range is that was read to its end: a backlog is over then. */
static Position
RangeEnd(Reader *reader, Position until)
{
	if (ComparePositions(until, POSITION_BACKLOG_END) != 0)
		return until;
	until.n = ReaderPosition(reader).n;
	until.key = BacklogOverKey();
	return until;
}

/* Everything that belongs to the read, in the owner's security context. */
static void
ReadAndEncode(const Partition *partition, const ReaderOptions *options, const Encoding *encoding,
			  Position since, Position until, RangeLimits limits, ByteBuffer *body,
			  EncodedRange *range)
{
	Reader	   *reader;
	BodyWriter	writer = {.limits = limits,.range = range};

	range->status = ReaderOpen(partition, options, &reader);
	if (range->status != READER_OK)
		return;
	writer.reader = reader;
	range->status = ReaderStart(reader, since, until);
	if (range->status == READER_OK)
	{
		PushActiveSnapshot(GetLatestSnapshot());	/* output functions may run
													 * queries */
		if (limits.milliseconds > 0)
			ReaderStopAfter(reader, limits.milliseconds);
		BeginBody(&writer, encoding, body);
		if (WriteRows(&writer))
			range->until = RangeEnd(reader, until);
		EndBody(&writer);
		PopActiveSnapshot();
	}
	ReaderClose(reader);
}

/* A position as the caller's memory context holds it. */
static Position
CopyPosition(Position position)
{
	if (position.key != NULL)
		position.key = DatumGetJsonbPCopy(JsonbPGetDatum(position.key));
	return position;
}

EncodedRange
EncodeRange(const Partition *partition, Oid role, const Encoding *encoding, Position since,
			Position until, RangeLimits limits, ByteBuffer *body)
{
	EncodedRange range = {0};
	ReaderOptions options = {0};
	Oid			saved_user;
	int			saved_context;
	MemoryContext scratch;
	MemoryContext old;

	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u, which owns the sink, does not exist", role),
				 errhint("Drop the sink and create it as another role.")));
	options.role = role;
	options.columns = encoding->columns;
	options.ncolumns = encoding->ncolumns;
	options.filter = encoding->filter;
	options.wait_for_lock = limits.wait_for_lock;
	range.until = since;

	scratch = AllocSetContextCreate(CurrentMemoryContext, "incsink read", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(scratch);
	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(role, saved_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	ReadAndEncode(partition, &options, encoding, since, until, limits, body, &range);
	SetUserIdAndSecContext(saved_user, saved_context);
	MemoryContextSwitchTo(old);
	range.until = CopyPosition(range.until);
	MemoryContextDelete(scratch);
	return range;
}
