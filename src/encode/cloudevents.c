/*
 * cloudevents.c
 *		The format "cloudevents": a batch of CloudEvents 1.0, an event a row.
 *
 * CloudEvents 1.0.2, JSON Event Format, sections 3 and 4.  The row is the data
 * of its event.  What is the same for all events is prepared once; what differs
 * is the id, the row's position, which is the same in every batch that the row
 * is ever in.
 */
#include "postgres.h"

#include "encode/json.h"
#include "utils/builtins.h"

/* "0.", 19 digits, a dot and a count of ties fit. */
#define ID_ROOM 40

typedef struct JsonEvent
{
	char	   *behind_id;		/* ","source":... up to "data": */
	size_t		behind_id_length;
	char		id[ID_ROOM];
	size_t		id_length;
} JsonEvent;

#define BEFORE_ID "{\"specversion\":\"1.0\",\"id\":\""

static Encoder *
BeginRows(TupleDesc desc, const AttrNumber *attnums, int nattnums)
{
	Encoder    *encoder = JsonBeginRows(desc, attnums, nattnums, sizeof("}"));

	encoder->event = palloc0(sizeof(JsonEvent));
	return encoder;
}

#define PUT_LITERAL(at, text) JsonPut(at, text, sizeof(text) - 1)

/* Both are ASCII: names in the source are percent-encoded, the rest is by option. */
static void
DescribeEvents(Encoder *encoder, const char *source, const char *type)
{
	JsonEvent  *event = encoder->event;
	char	   *at = palloc(JSON_ESCAPED_ROOM(strlen(source) + strlen(type)) + 128);

	event->behind_id = at;
	at = PUT_LITERAL(at, "\",\"source\":\"");
	at = JsonEscapeBytes(at, source, strlen(source));
	at = PUT_LITERAL(at, "\",\"type\":\"");
	at = JsonEscapeBytes(at, type, strlen(type));
	at = PUT_LITERAL(at, "\",\"datacontenttype\":\"application/json\",\"data\":");
	event->behind_id_length = at - event->behind_id;
}

/* As Incsink-Until writes positions; the second of two with one number is "<seq>.2". */
static void
NameEvent(Encoder *encoder, Position position, int tie)
{
	JsonEvent  *event = encoder->event;

	if (position.seq == 0)
	{
		char	   *text = FormatPosition(position);

		event->id_length = strlcpy(event->id, text, ID_ROOM);
		pfree(text);
		return;
	}
	event->id_length = pg_lltoa(position.seq, event->id);
	if (tie > 1)
		event->id_length += sprintf(event->id + event->id_length, ".%d", tie);
}

static void
WriteRow(Encoder *encoder, TupleTableSlot *slot, ByteBuffer *buffer)
{
	JsonEvent  *event = encoder->event;
	char	   *at;

	ByteBufferReserve(buffer, JSON_ELEMENT_ROOM + sizeof(BEFORE_ID) + ID_ROOM +
					  event->behind_id_length + encoder->room);
	at = JsonBeginElement(encoder, buffer->data + buffer->length);
	at = PUT_LITERAL(at, BEFORE_ID);
	at = JsonPut(at, event->id, event->id_length);
	at = JsonPut(at, event->behind_id, event->behind_id_length);
	at = JsonWriteObject(encoder, slot, buffer, at);
	*at++ = '}';
	buffer->length = at - buffer->data;
}

const EncoderRoutine CloudEventsEncoder = {
	.format = "cloudevents",
	.content_type = "application/cloudevents-batch+json",
	.extension = "json",
	.tail = JSON_ARRAY_TAIL,
	.begin = BeginRows,
	.row = WriteRow,
	.finish = JsonFinishArray,
	.describe_events = DescribeEvents,
	.name_event = NameEvent,
};
