/*
 * ndjson.c
 *		The format "ndjson": one row, one line, one JSON object.
 */
#include "postgres.h"

#include "encode/json.h"

static Encoder *
BeginRows(TupleDesc desc, const AttrNumber *attnums, int nattnums)
{
	return JsonBeginRows(desc, attnums, nattnums, sizeof("\n"));
}

static void
WriteRow(Encoder *encoder, TupleTableSlot *slot, ByteBuffer *buffer)
{
	char	   *at;

	ByteBufferReserve(buffer, encoder->room);
	at = JsonWriteObject(encoder, slot, buffer, buffer->data + buffer->length);
	*at++ = '\n';
	buffer->length = at - buffer->data;
}

/* Each line has ended itself. */
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
