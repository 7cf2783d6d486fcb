/*
 * jsonb.c
 *		jsonb values, straight from their stored form.
 *
 * The text is that of the type's output function, to the byte, blanks
 * included, but for the limit of 1 GB; it takes a third of the time.  The
 * stored form is described in the server's utils/jsonb.h; pg_upgrade depends
 * on it, so that it does not change from version to version.
 */
#include "postgres.h"

#include "encode/json.h"
#include "miscadmin.h"
#include "utils/jsonb.h"

/* Room for punctuation, or null, true, false, before and behind a value. */
#define TOKEN_ROOM		16

static char *WriteContainer(JsonColumn *column, JsonbContainer *container,
							ByteBuffer *buffer, char *at);

/*
 * WriteEntry
 *		Writes one value: a key, or an element of an object or array.
 *
 * "start" and "end" are its offsets in the data of its container.  Numbers and
 * containers are aligned there.  There are some bytes of room at "at".
 */
static inline char *
WriteEntry(JsonColumn *column, JEntry entry, char *data, uint32 start,
		   uint32 end, ByteBuffer *buffer, char *at)
{
	if (JBE_ISSTRING(entry))
		return JsonWriteString(column, data + start, end - start, buffer, at);
	if (JBE_ISNUMERIC(entry))
		return JsonWriteNumeric(column, PointerGetDatum(data + INTALIGN(start)),
								buffer, at);
	if (JBE_ISCONTAINER(entry))
		return WriteContainer(column, (JsonbContainer *) (data + INTALIGN(start)),
							  buffer, at);
	if (JBE_ISBOOL_TRUE(entry))
		return JsonPut(at, "true", 4);
	if (JBE_ISBOOL_FALSE(entry))
		return JsonPut(at, "false", 5);
	return JsonPut(at, "null", 4);
}

/*
 * WriteArray
 *		Writes the elements of an array, in brackets.  A scalar at the top is
 *		stored as an array of one element and stands for itself.
 */
static char *
WriteArray(JsonColumn *column, JsonbContainer *container, ByteBuffer *buffer,
		   char *at)
{
	uint32		count = JsonContainerSize(container);
	char	   *data = (char *) &container->children[count];
	bool		scalar = JsonContainerIsScalar(container);
	uint32		offset = 0;

	if (!scalar)
		*at++ = '[';
	for (uint32 i = 0; i < count; i++)
	{
		JEntry		entry = container->children[i];
		uint32		start = offset;

		at = JsonMakeRoom(column, buffer, at, TOKEN_ROOM);
		if (i > 0)
			at = JsonPut(at, ", ", 2);
		JBE_ADVANCE_OFFSET(offset, entry);
		at = WriteEntry(column, entry, data, start, offset, buffer, at);
	}
	at = JsonMakeRoom(column, buffer, at, TOKEN_ROOM);
	if (!scalar)
		*at++ = ']';
	return at;
}

/*
 * WriteObject
 *		Writes the pairs of an object.  All keys are stored before all values.
 */
static char *
WriteObject(JsonColumn *column, JsonbContainer *container, ByteBuffer *buffer,
			char *at)
{
	uint32		count = JsonContainerSize(container);
	JEntry	   *keys = container->children;
	JEntry	   *values = keys + count;
	char	   *data = (char *) (values + count);
	uint32		key_offset = 0;
	uint32		value_offset = getJsonbOffset(container, count);

	*at++ = '{';
	for (uint32 i = 0; i < count; i++)
	{
		uint32		start = key_offset;

		at = JsonMakeRoom(column, buffer, at, TOKEN_ROOM);
		if (i > 0)
			at = JsonPut(at, ", ", 2);
		JBE_ADVANCE_OFFSET(key_offset, keys[i]);
		at = WriteEntry(column, keys[i], data, start, key_offset, buffer, at);

		start = value_offset;
		at = JsonMakeRoom(column, buffer, at, TOKEN_ROOM);
		at = JsonPut(at, ": ", 2);
		JBE_ADVANCE_OFFSET(value_offset, values[i]);
		at = WriteEntry(column, values[i], data, start, value_offset, buffer, at);
	}
	at = JsonMakeRoom(column, buffer, at, TOKEN_ROOM);
	*at++ = '}';
	return at;
}

/*
 * WriteContainer
 *		Writes an object or an array.  Raises an error where they are nested
 *		too deeply for the stack.
 */
static char *
WriteContainer(JsonColumn *column, JsonbContainer *container,
			   ByteBuffer *buffer, char *at)
{
	check_stack_depth();
	if (JsonContainerIsArray(container))
		return WriteArray(column, container, buffer, at);
	return WriteObject(column, container, buffer, at);
}

/*
 * JsonWriteJsonb
 *		Writes a jsonb.  Its entries are aligned relative to its start, so one
 *		with a short header is copied, and a toasted one fetched, into the
 *		scratch context first.
 */
char *
JsonWriteJsonb(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	MemoryContext old = MemoryContextSwitchTo(column->scratch);
	Jsonb	   *jsonb = DatumGetJsonbP(value);

	MemoryContextSwitchTo(old);
	at = WriteContainer(column, &jsonb->root, buffer, at);
	if ((Pointer) jsonb != DatumGetPointer(value))
		pfree(jsonb);
	return at;
}
