/*
 * encoder.h
 *		Rows as bytes: one struct of callbacks a format.
 *
 * A body is a function of the rows, the shape of the table and the options of
 * the sink alone: encoders never look at session settings.
 */
#ifndef INCSINK_ENCODER_H
#define INCSINK_ENCODER_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "executor/tuptable.h"

#include "common/pin.h"
#include "common/token.h"

/*
 * Growing byte buffer, unlike StringInfo not bound to 1 GB.  Owned by the
 * memory context it was made in; reused from batch to batch.
 */
typedef struct ByteBuffer
{
	char	   *data;
	size_t		length;			/* bytes used */
	size_t		capacity;		/* bytes allocated */
	MemoryContext context;
} ByteBuffer;

extern void ByteBufferInit(ByteBuffer *buffer, size_t capacity);
extern void ByteBufferReset(ByteBuffer *buffer);
extern void ByteBufferFree(ByteBuffer *buffer);
extern void ByteBufferGrow(ByteBuffer *buffer, size_t more);

/* Makes room for "more" bytes behind the used ones. */
static inline void
ByteBufferReserve(ByteBuffer *buffer, size_t more)
{
	if (unlikely(buffer->capacity - buffer->length < more))
		ByteBufferGrow(buffer, more);
}

static inline void
ByteBufferAppend(ByteBuffer *buffer, const void *bytes, size_t length)
{
	ByteBufferReserve(buffer, length);
	memcpy(buffer->data + buffer->length, bytes, length);
	buffer->length += length;
}

/* State of an encoder for one row shape; see EncoderRoutine.begin. */
typedef struct Encoder Encoder;

typedef struct EncoderRoutine
{
	const char *format;			/* value of the option "format" */
	const char *content_type;	/* of an HTTP body */
	const char *extension;		/* of an object's name, without the dot */
	size_t		tail;			/* most bytes that finish appends */

	/*
	 * Chooses a writer for each column to be written, in the given order. The
	 * attribute numbers point into desc, which must outlive the encoder.
	 * Everything is allocated in CurrentMemoryContext.
	 */
	Encoder    *(*begin) (TupleDesc desc, const AttrNumber *attnums, int nattnums);

	/*
	 * Appends one row.  The encoder deforms the slot itself, with
	 * slot_getsomeattrs().  Leaves nothing allocated in CurrentMemoryContext
	 * that grows with rows.  A row may be taken out of the buffer again if it
	 * is the last one, and not the only one, of its body.
	 */
	void		(*row) (Encoder *encoder, TupleTableSlot *slot, ByteBuffer *buffer);

	/* Appends what ends a body (nothing for NDJSON, or if there was no row). */
	void		(*finish) (Encoder *encoder, ByteBuffer *buffer);

	/*
	 * NULL, both, for a format whose rows have no names.  What all events have,
	 * before the first row; and which one the next row is: the tie-th of those
	 * with its number.
	 */
	void		(*describe_events) (Encoder *encoder, const char *source, const char *type);
	void		(*name_event) (Encoder *encoder, Position position, int tie);
} EncoderRoutine;

/* NULL for an unknown format. */
extern const EncoderRoutine *EncoderForFormat(const char *format);

extern const EncoderRoutine NdjsonEncoder;
extern const EncoderRoutine JsonArrayEncoder;
extern const EncoderRoutine CloudEventsEncoder;

#endif							/* INCSINK_ENCODER_H */
