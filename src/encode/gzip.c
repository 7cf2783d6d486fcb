/*
 * gzip.c
 *		Compression with gzip (RFC 1952), by zlib.
 */
#include "postgres.h"

#include <zlib.h>

#include "encode/compressor.h"

/* 15 bits of window, and 16 for a header of gzip: with no name and no time in it. */
#define WINDOW_BITS (15 + 16)
#define MEMORY_LEVEL 8

/* Room that is made at once for what comes out. */
#define OUTPUT_ROOM (16 * 1024)

typedef struct GzipState
{
	z_stream	stream;
	int			level;			/* 0 = not begun yet */
} GzipState;

static void *
CreateState(void)
{
	return calloc(1, sizeof(GzipState));
}

static void
DestroyState(void *arg)
{
	GzipState  *state = arg;

	if (state->level > 0)
		deflateEnd(&state->stream);
	free(state);
}

static bool
BeginBody(void *arg, int level)
{
	GzipState  *state = arg;

	if (state->level == level)
		return deflateReset(&state->stream) == Z_OK;
	if (state->level > 0)
		deflateEnd(&state->stream);
	state->level = 0;
	if (deflateInit2(&state->stream, level, Z_DEFLATED, WINDOW_BITS, MEMORY_LEVEL,
					 Z_DEFAULT_STRATEGY) != Z_OK)
		return false;
	state->level = level;
	return true;
}

/* Done when zlib has left room unused: nothing more comes out then. */
static void
CompressPiece(void *arg, const char *bytes, size_t length, bool last, ByteBuffer *body)
{
	z_stream   *stream = &((GzipState *) arg)->stream;
	int			result;

	stream->next_in = (Bytef *) bytes;
	stream->avail_in = length;
	do
	{
		size_t		room;

		ByteBufferReserve(body, OUTPUT_ROOM);
		room = Min(body->capacity - body->length, PG_INT32_MAX);
		stream->next_out = (Bytef *) body->data + body->length;
		stream->avail_out = room;
		result = deflate(stream, last ? Z_FINISH : Z_NO_FLUSH);
		if (result == Z_STREAM_ERROR)
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not compress a body with gzip: %s",
							stream->msg ? stream->msg : "inconsistent state")));
		body->length += room - stream->avail_out;
	} while (last ? result != Z_STREAM_END : stream->avail_out == 0);
}

const CompressionRoutine GzipCompression = {
	.name = "gzip",
	.default_level = 6,
	.create = CreateState,
	.destroy = DestroyState,
	.begin = BeginBody,
	.piece = CompressPiece,
};
