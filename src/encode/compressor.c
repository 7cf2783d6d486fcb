/*
 * compressor.c
 *		A body in one of the content codings of HTTP, piece by piece.
 *
 * A body is compressed while its rows are encoded: what is not compressed yet is a
 * piece and the rows that may be taken back, not the whole body.
 */
#include "postgres.h"

#include "encode/compressor.h"
#include "miscadmin.h"

/* Input between two looks at interrupts. */
#define PIECE_SIZE (64 * 1024)

static const CompressionRoutine *const routines[] = {&GzipCompression, &ZstdCompression};

/* States that nobody uses: to make one costs as much as a small batch. */
static void *idle[lengthof(routines)];

struct Compressor
{
	const CompressionRoutine *routine;
	void	   *state;
	ByteBuffer *body;
	MemoryContextCallback callback;
};

bool
CompressionByName(const char *name, const CompressionRoutine **routine)
{
	*routine = NULL;
	for (int i = 0; i < lengthof(routines); i++)
		if (strcmp(routines[i]->name, name) == 0)
			*routine = routines[i];
	return *routine != NULL || strcmp(name, "none") == 0;
}

static void **
IdleState(const CompressionRoutine *routine)
{
	int			i = 0;

	while (routines[i] != routine)
		i++;
	return &idle[i];
}

/* Called at the end of the memory context, after an ERROR too. */
static void
ReleaseState(void *arg)
{
	Compressor *compressor = arg;
	void	  **place = IdleState(compressor->routine);

	if (*place == NULL)
		*place = compressor->state;
	else
		compressor->routine->destroy(compressor->state);
}

static void
RaiseOutOfMemory(const CompressionRoutine *routine)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 errdetail("Failed to prepare compression with %s.", routine->name)));
}

Compressor *
CompressorBegin(const CompressionRoutine *routine, int level, ByteBuffer *body)
{
	Compressor *compressor = palloc0(sizeof(Compressor));
	void	  **place = IdleState(routine);

	Assert(body->length == 0);
	compressor->routine = routine;
	compressor->body = body;
	compressor->state = *place ? *place : routine->create();
	*place = NULL;
	if (compressor->state == NULL)
		RaiseOutOfMemory(routine);
	compressor->callback.func = ReleaseState;
	compressor->callback.arg = compressor;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &compressor->callback);
	if (!routine->begin(compressor->state, level > 0 ? level : routine->default_level))
		RaiseOutOfMemory(routine);
	return compressor;
}

size_t
CompressorTake(Compressor *compressor, ByteBuffer *bytes, size_t length)
{
	size_t		taken = 0;

	for (; length - taken >= PIECE_SIZE; taken += PIECE_SIZE)
	{
		CHECK_FOR_INTERRUPTS();
		compressor->routine->piece(compressor->state, bytes->data + taken, PIECE_SIZE, false,
								   compressor->body);
	}
	if (taken > 0)
	{
		bytes->length -= taken;
		memmove(bytes->data, bytes->data + taken, bytes->length);
	}
	return taken;
}

void
CompressorFinish(Compressor *compressor, ByteBuffer *bytes)
{
	CompressorTake(compressor, bytes, bytes->length);
	compressor->routine->piece(compressor->state, bytes->data, bytes->length, false,
							   compressor->body);
	compressor->routine->piece(compressor->state, NULL, 0, true, compressor->body);
	bytes->length = 0;
}
