/*
 * buffer.c
 *		Bytes of a body while it is being made.
 *
 * A StringInfo ends at 1 GB; a body may hold one row that is larger, and its
 * limit is an option of the sink.  A buffer lives as long as its memory
 * context and keeps its memory from one batch to the next.
 */
#include "postgres.h"

#include "encode/encoder.h"
#include "utils/memutils.h"

/* Smallest allocation: a buffer made with capacity 0 can be appended to. */
#define MIN_CAPACITY	64

/*
 * ByteBufferInit
 *		Makes an empty buffer, owned by CurrentMemoryContext.
 */
void
ByteBufferInit(ByteBuffer *buffer, size_t capacity)
{
	buffer->context = CurrentMemoryContext;
	buffer->length = 0;
	buffer->capacity = Max(capacity, MIN_CAPACITY);
	buffer->data = MemoryContextAllocHuge(buffer->context, buffer->capacity);
}

/*
 * ByteBufferReset
 *		Empties the buffer and keeps its memory for the next batch.
 */
void
ByteBufferReset(ByteBuffer *buffer)
{
	buffer->length = 0;
}

/*
 * ByteBufferFree
 *		Gives the memory back.  The buffer is empty then and may be used again:
 *		the next append allocates anew in the same context.
 */
void
ByteBufferFree(ByteBuffer *buffer)
{
	if (buffer->data != NULL)
		pfree(buffer->data);
	buffer->data = NULL;
	buffer->length = 0;
	buffer->capacity = 0;
}

/*
 * ByteBufferGrow
 *		The slow half of ByteBufferReserve(): moves the bytes to a larger place.
 *
 * Doubles, so that appending stays linear in what is appended.  Raises an
 * error where memory ends, the buffer being unchanged then.
 */
void
ByteBufferGrow(ByteBuffer *buffer, size_t more)
{
	size_t		capacity;

	if (more > MaxAllocHugeSize - buffer->length)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("request body is too large"),
				 errdetail("A buffer of %zu bytes cannot be enlarged by %zu bytes.",
						   buffer->length, more)));

	capacity = Max(buffer->length + more, MIN_CAPACITY);
	if (buffer->capacity <= MaxAllocHugeSize / 2)
		capacity = Max(capacity, buffer->capacity * 2);

	if (buffer->data == NULL)
		buffer->data = MemoryContextAllocHuge(buffer->context, capacity);
	else
		buffer->data = repalloc_huge(buffer->data, capacity);
	buffer->capacity = capacity;
}
