/*
 * kind.h
 *		A kind of sink is a table of functions.
 *
 * What a batch is, when it is read and what happens to its watermark is the
 * delivery's business; how its bytes leave and what an answer means is the kind's.
 */
#ifndef INCSINK_KIND_H
#define INCSINK_KIND_H

#include "postgres.h"

#include "catalog/credentials.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "catalog/watermark.h"
#include "common/shared.h"
#include "encode/encoder.h"
#include "sink/url.h"
#include "sink/verdict.h"
#include "transport/file.h"
#include "transport/http.h"

/* A batch on its way; everything pointed to outlives the attempt. */
typedef struct Batch
{
	const SinkDefinition *sink;
	const Partition *partition;
	const Intent *intent;
	const EncoderRoutine *encoder;
	const char *content_type;
	const char *content_encoding;	/* NULL = none */
	const Credentials *credentials; /* NULL = none */
	const ByteBuffer *body;
	const char *digest;			/* SHA-256 of the body, hex */
	int64		rows;			/* in the body */
	bool		probe;			/* the delivery has failed since it last worked */
	bool		may_be_stored;	/* by an attempt before this one */
	MemoryContext owner;		/* ends when the attempt is over or cancelled */
} Batch;

/* Told exactly once for a started attempt that is not cancelled.  Never throws. */
typedef void (*VerdictFunction) (void *arg, const Verdict *verdict);

/* An attempt under way; NULL where the kind is done before start returns. */
typedef HttpTransfer Attempt;

typedef struct SinkKind
{
	const char *name;			/* sink_def.kind */
	WorkerClass class;			/* which worker sends */

	/* Name of the object a batch becomes, in CurrentMemoryContext; may be NULL. */
	char	   *(*object_key) (const Batch *batch);

	/*
	 * Lets the batch out, outside any transaction.  Raises an ERROR only if
	 * nothing was sent.  A batch of no rows, which a retry may have become, is
	 * acknowledged without a send.
	 */
	Attempt    *(*start) (HttpPool *pool, const Batch *batch, VerdictFunction done, void *arg);
} SinkKind;

/* What the placeholders of a batch stand for. */
extern void FillKeyValues(const Batch *batch, KeyValues *values);

/* NULL for an unknown name. */
extern const SinkKind *SinkKindByName(const char *name);

extern const SinkKind ForwardKind;
extern const SinkKind BlobKind;

#endif							/* INCSINK_KIND_H */
