/*
 * json.h
 *		What the files of the JSON encoders share.  Private to src/encode.
 */
#ifndef INCSINK_JSON_H
#define INCSINK_JSON_H

#include "postgres.h"

#include "encode/encoder.h"
#include "fmgr.h"

typedef struct JsonColumn JsonColumn;

/*
 * Writes one value that is not NULL at "at" and returns the place behind it.
 *
 * There is room for column->room bytes at "at", and for the rest of the row
 * behind them.  A writer that may need more calls JsonMakeRoom(), which may
 * move the buffer.  buffer->length is stale in between: "at" is the truth.
 */
typedef char *(*JsonWriteValue) (JsonColumn *column, Datum value,
								 ByteBuffer *buffer, char *at);

/* Room of a column whose writer makes room itself: null, or the quotes. */
#define JSON_OPEN_ROOM		8

/* Length of "1970-01-01". */
#define JSON_DATE_LENGTH	10

struct JsonColumn
{
	JsonWriteValue write;
	int			index;			/* place in tts_values and tts_isnull */
	int			lead_length;
	char	   *lead;			/* {"name": or ,"name": padded to JSON_BLOCK */
	size_t		room;			/* most bytes of a value, unless it makes room */
	size_t		behind;			/* most bytes of what follows in the row */

	/* for some writers only */
	MemoryContext scratch;		/* reset after each row */
	bool		convert;		/* the server's encoding is not UTF-8 */
	uint32		cached_day;		/* the day that cached_date spells */
	char		cached_date[JSON_DATE_LENGTH];
	FmgrInfo	output;			/* output function, for any other type */
};

/* The columns of a row shape, with room for what a format writes around the object. */
struct Encoder
{
	AttrNumber	last_attnum;	/* the row is deformed up to here */
	int			ncolumns;
	JsonColumn *columns;
	size_t		room;			/* most bytes of a row, see JsonColumn.behind */
	MemoryContext scratch;		/* reset after each row */
	bool		begun;			/* the body has a row */
	struct JsonEvent *event;	/* cloudevents.c only */
};

/* Bytes are moved in blocks of this size; a copy may write one block too far. */
#define JSON_BLOCK			16

/*
 * Most bytes that JsonEscapeBytes() writes at all, "length" bytes being given:
 * \u0000 for each, and the block that is written too far.
 */
#define JSON_ESCAPED_ROOM(length)	((length) * 6 + JSON_BLOCK)

/* The same for JsonCompactBytes(). */
#define JSON_COMPACTED_ROOM(length) ((length) + JSON_BLOCK)

/*
 * Makes room for "need" bytes at "at", beside what the rest of the row needs.
 * Returns where "at" is now.
 */
static inline char *
JsonMakeRoom(const JsonColumn *column, ByteBuffer *buffer, char *at,
			 size_t need)
{
	buffer->length = at - buffer->data;
	ByteBufferReserve(buffer, need + column->behind);
	return buffer->data + buffer->length;
}

/* Copies what is known to fit. */
static inline char *
JsonPut(char *at, const char *text, size_t length)
{
	memcpy(at, text, length);
	return at + length;
}

/* json_row.c */
extern Encoder *JsonBeginRows(TupleDesc desc, const AttrNumber *attnums, int nattnums,
							  size_t around);
extern char *JsonWriteObject(Encoder *encoder, TupleTableSlot *slot, ByteBuffer *buffer, char *at);

/* json_array.c: rows as the elements of one array */
extern char *JsonBeginElement(Encoder *encoder, char *at);
extern void JsonFinishArray(Encoder *encoder, ByteBuffer *buffer);

/* Most bytes that those two write. */
#define JSON_ELEMENT_ROOM	2
#define JSON_ARRAY_TAIL		3

/* json_text.c */
extern char *JsonEscapeBytes(char *at, const char *bytes, size_t length);
extern char *JsonCompactBytes(char *at, const char *bytes, size_t length);
extern char *JsonWriteString(JsonColumn *column, const char *bytes,
							 size_t length, ByteBuffer *buffer, char *at);
extern char *JsonWriteCompacted(JsonColumn *column, const char *bytes,
								size_t length, ByteBuffer *buffer, char *at);
extern bool JsonMustConvert(void);
extern const char *JsonConvertToUtf8(const char *bytes, size_t *length);

/* json_time.c */
#define JSON_TIME_ROOM		48	/* "294276-12-31T23:59:59.999999+00:00" fits */

extern char *JsonWriteDate(JsonColumn *column, Datum value,
						   ByteBuffer *buffer, char *at);
extern char *JsonWriteTimestamp(JsonColumn *column, Datum value,
								ByteBuffer *buffer, char *at);
extern char *JsonWriteTimestampTz(JsonColumn *column, Datum value,
								  ByteBuffer *buffer, char *at);

/* jsonb.c */
extern char *JsonWriteJsonb(JsonColumn *column, Datum value,
							ByteBuffer *buffer, char *at);

/* json_types.c */
extern char *JsonWriteNumeric(JsonColumn *column, Datum value,
							  ByteBuffer *buffer, char *at);
extern void JsonChooseWriter(JsonColumn *column, Oid type);

#endif							/* INCSINK_JSON_H */
