/*
 * json_row.c
 *		A row as a JSON object, for every format that has such.
 *
 * What is the same for every row, the names of the columns, is prepared once.
 * A row then costs one reservation of room for all that has a bound, and a
 * call of its writer for each value; nothing is allocated for the types that
 * json_types.c writes itself.
 */
#include "postgres.h"

#include "encode/json.h"
#include "utils/memutils.h"

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
 * JsonBeginRows
 *		Prepares the columns; see EncoderRoutine.begin.  "around" are the most
 *		bytes that a format writes before and behind the object.
 */
Encoder *
JsonBeginRows(TupleDesc desc, const AttrNumber *attnums, int nattnums, size_t around)
{
	Encoder    *encoder = palloc0(sizeof(Encoder));

	encoder->ncolumns = nattnums;
	encoder->columns = palloc0(Max(nattnums, 1) * sizeof(JsonColumn));
	encoder->scratch = AllocSetContextCreate(CurrentMemoryContext, "incsink row",
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

	/* backwards: what each leaves room for; the last one for the row's end */
	encoder->room = sizeof("{}") + around;
	for (int i = nattnums - 1; i >= 0; i--)
	{
		JsonColumn *column = &encoder->columns[i];

		column->behind = encoder->room;
		encoder->room += column->lead_length + JSON_BLOCK + column->room;
	}
	return encoder;
}

/*
 * JsonWriteObject
 *		Writes the object at "at", where there is room for encoder->room bytes
 *		less what the format has written of it.  Returns the place behind it.
 *
 * Values that are toasted are read: the caller has a snapshot.  If a value
 * raises an error, the buffer's length is not to be relied on: the caller puts
 * it back to what it was before the row, or drops the buffer.
 */
char *
JsonWriteObject(Encoder *encoder, TupleTableSlot *slot, ByteBuffer *buffer, char *at)
{
	if (encoder->last_attnum > 0)
		slot_getsomeattrs(slot, encoder->last_attnum);

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
	MemoryContextReset(encoder->scratch);
	return at;
}
