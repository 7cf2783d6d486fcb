/*
 * zstd.c
 *		Compression with zstd (RFC 8878), by libzstd.
 *
 * Levels go up to 9, whose window is within the 8 MB that RFC 9659 allows in HTTP,
 * and whose state takes little memory beside a batch.
 */
#include "postgres.h"

#include <zstd.h>

#include "encode/compressor.h"

/* Room that is made at once for what comes out. */
#define OUTPUT_ROOM (16 * 1024)

static void *
CreateState(void)
{
	return ZSTD_createCCtx();
}

static void
DestroyState(void *state)
{
	ZSTD_freeCCtx(state);
}

static bool
BeginBody(void *state, int level)
{
	return !ZSTD_isError(ZSTD_CCtx_reset(state, ZSTD_reset_session_and_parameters)) &&
		!ZSTD_isError(ZSTD_CCtx_setParameter(state, ZSTD_c_compressionLevel, level));
}

/* What is left inside is asked for until there is none; input until it is taken. */
static void
CompressPiece(void *state, const char *bytes, size_t length, bool last, ByteBuffer *body)
{
	ZSTD_inBuffer input = {.src = bytes,.size = length};
	size_t		left;

	do
	{
		ZSTD_outBuffer output;

		ByteBufferReserve(body, OUTPUT_ROOM);
		output.dst = body->data + body->length;
		output.size = body->capacity - body->length;
		output.pos = 0;
		left = ZSTD_compressStream2(state, &output, &input, last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not compress a body with zstd: %s", ZSTD_getErrorName(left))));
		body->length += output.pos;
	} while (last ? left > 0 : input.pos < input.size);
}

const CompressionRoutine ZstdCompression = {
	.name = "zstd",
	.default_level = 3,
	.create = CreateState,
	.destroy = DestroyState,
	.begin = BeginBody,
	.piece = CompressPiece,
};
