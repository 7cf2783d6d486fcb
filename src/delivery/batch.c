/*
 * batch.c
 *		Reads and encodes the rows of a range.
 */
#include "postgres.h"

#include "access/xact.h"
#include "delivery/batch.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

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
	if (encoding->filter != NULL)
	{
		appendStringInfoString(&json, ", \"filter\": ");
		escape_json(&json, encoding->filter);
	}
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

Encoding *
ParseEncoding(Jsonb *json)
{
	Encoding   *encoding = palloc0(sizeof(Encoding));
	char	   *format = GetKeyText(json, "format");
	JsonbValue *columns = GetKey(json, "columns");

	encoding->encoder = format ? EncoderForFormat(format) : NULL;
	if (encoding->encoder == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a batch in flight has the format \"%s\", which this version of incsink does not know",
						format ? format : ""),
				 errhint("Install the version of incsink that made it, or reset the sink.")));
	encoding->filter = GetKeyText(json, "filter");
	if (columns != NULL && columns->type == jbvBinary)
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
	return encoding;
}

/* How much of a body there is up to where the batch may end. */
typedef struct Boundary
{
	int64		rows;
	size_t		length;
} Boundary;

static bool
IsFull(const EncodedRange *range, const ByteBuffer *body, RangeLimits limits)
{
	return range->rows >= limits.rows || body->length >= limits.bytes;
}

/* Ends the batch behind the row before the last one read, or before its number. */
static void
TakeBack(Reader *reader, Boundary boundary, ByteBuffer *body, EncodedRange *range)
{
	body->length = boundary.length;
	range->rows = boundary.rows;
	range->until = ReaderPositionBefore(reader);
}

/*
 * A row that would take the body over the limit is taken back and left for the next
 * batch; the first one always stays.  A batch never ends between rows with one number:
 * they go together, or back together.  True if the range was read to its end.
 */
static bool
EncodeRows(Reader *reader, const EncoderRoutine *routine, RangeLimits limits, ByteBuffer *body,
		   EncodedRange *range)
{
	const AttrNumber *attnums;
	int			nattnums;
	Encoder    *encoder;
	TupleTableSlot *slot;
	Boundary	boundary = {0};

	ReaderColumns(reader, &attnums, &nattnums);
	encoder = routine->begin(RelationGetDescr(ReaderRelation(reader)), attnums, nattnums);
	while ((slot = ReaderNext(reader)) != NULL)
	{
		if (!ReaderGoesOnTie(reader))
		{
			boundary = (Boundary) {range->rows, body->length};
			if (boundary.rows > 0 && IsFull(range, body, limits))
			{
				TakeBack(reader, boundary, body, range);
				break;
			}
		}
		routine->row(encoder, slot, body);
		if (body->length > limits.bytes && boundary.rows > 0)
		{
			TakeBack(reader, boundary, body, range);
			break;
		}
		range->rows++;
		if (IsFull(range, body, limits) && !ReaderIsTied(reader))
		{
			range->until = ReaderPosition(reader);
			break;
		}
	}
	routine->finish(encoder, body);
	if (slot == NULL && ReaderStopped(reader))
	{
		range->until = ReaderPosition(reader);
		return false;
	}
	return slot == NULL;
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

	range->status = ReaderOpen(partition, options, &reader);
	if (range->status != READER_OK)
		return;
	range->status = ReaderStart(reader, since, until);
	if (range->status == READER_OK)
	{
		PushActiveSnapshot(GetLatestSnapshot());	/* output functions may run
													 * queries */
		if (limits.milliseconds > 0)
			ReaderStopAfter(reader, limits.milliseconds);
		if (EncodeRows(reader, encoding->encoder, limits, body, range))
			range->until = RangeEnd(reader, until);
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
