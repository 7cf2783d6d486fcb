/*
 * json_array.c
 *		The format "json": one JSON array, an object a row.
 *
 * Each row stands on a line of its own.  What separates two rows is written
 * before the second, so that a row can be taken back without a trace.
 */
#include "postgres.h"

#include "encode/json.h"

/* The first row of a body is never taken back: it has begun for good. */
char *
JsonBeginElement(Encoder *encoder, char *at)
{
	*at++ = encoder->begun ? ',' : '[';
	*at++ = '\n';
	encoder->begun = true;
	return at;
}

void
JsonFinishArray(Encoder *encoder, ByteBuffer *buffer)
{
	if (encoder->begun)
		ByteBufferAppend(buffer, "\n]\n", JSON_ARRAY_TAIL);
}

static Encoder *
BeginRows(TupleDesc desc, const AttrNumber *attnums, int nattnums)
{
	return JsonBeginRows(desc, attnums, nattnums, JSON_ELEMENT_ROOM);
}

static void
WriteRow(Encoder *encoder, TupleTableSlot *slot, ByteBuffer *buffer)
{
	char	   *at;

	ByteBufferReserve(buffer, encoder->room);
	at = JsonBeginElement(encoder, buffer->data + buffer->length);
	at = JsonWriteObject(encoder, slot, buffer, at);
	buffer->length = at - buffer->data;
}

const EncoderRoutine JsonArrayEncoder = {
	.format = "json",
	.content_type = "application/json",
	.extension = "json",
	.tail = JSON_ARRAY_TAIL,
	.begin = BeginRows,
	.row = WriteRow,
	.finish = JsonFinishArray,
};
