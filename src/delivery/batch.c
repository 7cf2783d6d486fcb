/*
 * batch.c
 *		Reads and encodes the rows of a range.
 */
#include "postgres.h"

#include "access/xact.h"
#include "delivery/batch.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

static void
PushKeyText(JsonbParseState **state, const char *key, const char *value)
{
	JsonbValue	item;

	item.type = jbvString;
	item.val.string.val = unconstify(char *, key);
	item.val.string.len = strlen(key);
	(void) pushJsonbValue(state, WJB_KEY, &item);
	if (value == NULL)
		return;
	item.val.string.val = unconstify(char *, value);
	item.val.string.len = strlen(value);
	(void) pushJsonbValue(state, WJB_VALUE, &item);
}

Jsonb *
FormatEncoding(const Encoding *encoding)
{
	JsonbParseState *state = NULL;
	JsonbValue *result;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	PushKeyText(&state, "format", encoding->encoder->format);
	if (encoding->columns != NULL)
	{
		PushKeyText(&state, "columns", NULL);
		(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
		for (int i = 0; i < encoding->ncolumns; i++)
		{
			JsonbValue	item;

			item.type = jbvString;
			item.val.string.val = encoding->columns[i];
			item.val.string.len = strlen(encoding->columns[i]);
			(void) pushJsonbValue(&state, WJB_ELEM, &item);
		}
		(void) pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	}
	if (encoding->filter != NULL)
		PushKeyText(&state, "filter", encoding->filter);
	result = pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(result);
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

/*
 * A row that would take the body over the limit is taken back and left for the next
 * batch; the first one always stays.  True if the range was read to its end.
 */
static bool
EncodeRows(Reader *reader, const EncoderRoutine *routine, RangeLimits limits, ByteBuffer *body,
		   EncodedRange *range)
{
	const AttrNumber *attnums;
	int			nattnums;
	Encoder    *encoder;
	TupleTableSlot *slot;
	Position	position;

	ReaderColumns(reader, &attnums, &nattnums);
	encoder = routine->begin(RelationGetDescr(ReaderRelation(reader)), attnums, nattnums);
	while ((slot = ReaderNext(reader, &position)) != NULL)
	{
		size_t		before = body->length;

		CHECK_FOR_INTERRUPTS();
		routine->row(encoder, slot, body);
		if (body->length > limits.bytes && range->rows > 0)
		{
			body->length = before;
			break;
		}
		range->rows++;
		range->until = position;
		if (range->rows >= limits.rows || body->length >= limits.bytes)
			break;
	}
	routine->finish(encoder, body);
	return slot == NULL;
}

/* Everything that belongs to the read, in the owner's security context. */
static void
ReadAndEncode(const Partition *partition, const ReaderOptions *options, const Encoding *encoding,
			  Position since, Position until, RangeLimits limits, ByteBuffer *body,
			  EncodedRange *range)
{
	Reader	   *reader;
	Snapshot	snapshot;

	range->status = ReaderOpen(partition, options, &reader);
	if (range->status != READER_OK)
		return;
	snapshot = TakeReadSnapshot();
	PushActiveSnapshot(snapshot);	/* output functions may run queries */
	ReaderStart(reader, snapshot, since, until);
	if (EncodeRows(reader, encoding->encoder, limits, body, range))
		range->until = until;
	ReaderClose(reader);
	PopActiveSnapshot();
	UnregisterSnapshot(snapshot);
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
	options.wait_for_lock = false;
	range.until = since;

	scratch = AllocSetContextCreate(CurrentMemoryContext, "incsink read", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(scratch);
	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(role, saved_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	ReadAndEncode(partition, &options, encoding, since, until, limits, body, &range);
	SetUserIdAndSecContext(saved_user, saved_context);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
	return range;
}
