/*
 * compressor.h
 *		A body in one of the content codings of HTTP.
 *
 * The bytes are a function of what is compressed, the method, its level and the
 * version of its library: no time stands in them, and pieces are cut at the same
 * places however the rows came.
 */
#ifndef INCSINK_COMPRESSOR_H
#define INCSINK_COMPRESSOR_H

#include "postgres.h"

#include "encode/encoder.h"

/* What a method's library has to be asked for; state is its own. */
typedef struct CompressionRoutine
{
	const char *name;			/* value of the option "compression", and
								 * Content-Encoding */
	int			default_level;

	/* NULL where memory ends. */
	void	   *(*create) (void);
	void		(*destroy) (void *state);

	/* Before the first piece; false where memory ends. */
	bool		(*begin) (void *state, int level);

	/*
	 * Appends to "body" what comes out of "length" bytes, or with last what is
	 * still inside.  Raises an ERROR that the library's answer explains.
	 */
	void		(*piece) (void *state, const char *bytes, size_t length, bool last,
						  ByteBuffer *body);
} CompressionRoutine;

extern const CompressionRoutine GzipCompression;
extern const CompressionRoutine ZstdCompression;

/* Sets NULL for "none"; false for an unknown name. */
extern bool CompressionByName(const char *name, const CompressionRoutine **routine);

typedef struct Compressor Compressor;

/*
 * Lives in CurrentMemoryContext, whose end frees what the library holds, too.  Level 0
 * is the method's own.  "body" must be empty.
 */
extern Compressor *CompressorBegin(const CompressionRoutine *routine, int level, ByteBuffer *body);

/*
 * Takes whole pieces out of the first "length" bytes of "bytes", moves the rest to the
 * front, and returns how many bytes that were.  Serves interrupts.
 */
extern size_t CompressorTake(Compressor *compressor, ByteBuffer *bytes, size_t length);

/* Takes all of it, and ends the body. */
extern void CompressorFinish(Compressor *compressor, ByteBuffer *bytes);

#endif							/* INCSINK_COMPRESSOR_H */
