/*
 * ndjson.c
 *		The format "ndjson": one row, one line, one JSON object.
 *
 * What is the same for every row, the names of the columns, is prepared once.
 * A row then costs one reservation of room for all that has a bound, and a
 * call of its writer for each value; nothing is allocated for the types that
 * json_types.c writes itself.
 */
#include "postgres.h"

#include "encode/json.h"
#include "utils/memutils.h"

struct Encoder
{
	AttrNumber	last_attnum;	/* the row is deformed up to here */
	int			ncolumns;
	size_t		room;			/* most bytes of a row, see JsonColumn.behind */
	MemoryContext scratch;		/* reset after each row */
	JsonColumn	columns[FLEXIBLE_ARRAY_MEMBER];
};

/*
 * PrepareLead
 *		Spells what stands before the value of a column: {"name": or ,"name":
 */
static void
PrepareLead(JsonColumn *column, const char *name, char opening)
{
	size_t		length = strlen(name);
	char	   *at;

	if (column->convert)
		name = JsonConvertToUtf8(name, &length);

	/* in whole blocks, because it is copied in whole blocks */
	column->lead = palloc0(JSON_ESCAPED_ROOM(length) + JSON_BLOCK);
	at = column->lead;
	*at++ = opening;
	*at++ = '"';
	at = JsonEscapeBytes(at, name, length);
	*at++ = '"';
	*at++ = ':';
	column->lead_length = at - column->lead;
}

/*
 * PutLead
 *		Copies a lead; what is written behind its end will be overwritten.
 */
static inline char *
PutLead(const JsonColumn *column, char *at)
{
	int			copied = 0;

	do
	{
		memcpy(at + copied, column->lead + copied, JSON_BLOCK);
		copied += JSON_BLOCK;
	} while (unlikely(copied < column->lead_length));
	return at + column->lead_length;
}

/*
 * BeginRows
 *		Prepares the columns; see EncoderRoutine.begin.
 */
static Encoder *
BeginRows(TupleDesc desc, const AttrNumber *attnums, int nattnums)
{
	Encoder    *encoder = palloc0(offsetof(Encoder, columns) +
								  nattnums * sizeof(JsonColumn));

	encoder->ncolumns = nattnums;
	encoder->scratch = AllocSetContextCreate(CurrentMemoryContext,
											 "incsink ndjson row",
											 ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < nattnums; i++)
	{
		JsonColumn *column = &encoder->columns[i];
		Form_pg_attribute attribute = TupleDescAttr(desc, attnums[i] - 1);

		column->index = attnums[i] - 1;
		column->scratch = encoder->scratch;
		column->convert = JsonMustConvert();
		PrepareLead(column, NameStr(attribute->attname), i == 0 ? '{' : ',');
		JsonChooseWriter(column, attribute->atttypid);
		encoder->last_attnum = Max(encoder->last_attnum, attnums[i]);
	}

	/* backwards: what each leaves room for; the last one for the line's end */
	encoder->room = sizeof("{}\n");
	for (int i = nattnums - 1; i >= 0; i--)
	{
		JsonColumn *column = &encoder->columns[i];

		column->behind = encoder->room;
		encoder->room += column->lead_length + JSON_BLOCK + column->room;
	}
	return encoder;
}

/*
 * WriteRow
 *		Appends one line; see EncoderRoutine.row.
 *
 * Values that are toasted are read: the caller has a snapshot.  If a value
 * raises an error, the buffer's length is not to be relied on: the caller puts
 * it back to what it was before the row, or drops the buffer.
 */
static void
WriteRow(Encoder *encoder, TupleTableSlot *slot, ByteBuffer *buffer)
{
	char	   *at;

	if (encoder->last_attnum > 0)
		slot_getsomeattrs(slot, encoder->last_attnum);

	ByteBufferReserve(buffer, encoder->room);
	at = buffer->data + buffer->length;
	for (int i = 0; i < encoder->ncolumns; i++)
	{
		JsonColumn *column = &encoder->columns[i];

		at = PutLead(column, at);
		if (slot->tts_isnull[column->index])
			at = JsonPut(at, "null", 4);
		else
			at = column->write(column, slot->tts_values[column->index], buffer, at);
	}
	if (encoder->ncolumns == 0)
		*at++ = '{';
	*at++ = '}';
	*at++ = '\n';
	buffer->length = at - buffer->data;

	MemoryContextReset(encoder->scratch);
}

/*
 * FinishRows
 *		Each line has ended itself.
 */
static void
FinishRows(Encoder *encoder, ByteBuffer *buffer)
{
}

const EncoderRoutine NdjsonEncoder = {
	.format = "ndjson",
	.content_type = "application/x-ndjson",
	.extension = "ndjson",
	.begin = BeginRows,
	.row = WriteRow,
	.finish = FinishRows,
};
