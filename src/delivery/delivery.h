/*
 * delivery.h
 *		The run of (sink, partition): what the state machine decides, carried out.
 *
 * A turn of the worker goes: in one transaction, for each delivery that has
 * something to do, DeliveryCatalogStep() in subtransactions of its own; after the
 * commit DeliveryCommitted() for each of them, which sends.  What happened in the
 * transaction is staged and becomes true in memory only after the commit, so that a
 * commit that fails is simply tried again.
 */
#ifndef INCSINK_DELIVERY_H
#define INCSINK_DELIVERY_H

#include "postgres.h"

#include "cache/horizon.h"
#include "common/digest.h"
#include "delivery/batch.h"
#include "delivery/machine.h"
#include "delivery/pace.h"
#include "sink/kind.h"

/* A partition as this worker sees it, shared by its deliveries. */
typedef struct PartitionRun
{
	Partition  *partition;
	HorizonTracker tracker;
	int64		last_drawn;		/* S when last read */
	bool		readable;		/* found whole this turn */
	TimestampTz checked_at;		/* last look at its integrity */
} PartitionRun;

/* What the current transaction has done for a delivery, true once it commits. */
typedef struct StagedStep
{
	bool		advanced;		/* acknowledged intent gone, watermark moved */
	bool		passed;			/* watermark moved over an empty range */
	bool		committed;		/* the intent, or its new attempt, is recorded */
	bool		recorded;		/* state stored */
	bool		reloaded;		/* read from the catalog again */
	Position	position;		/* watermark after it, if advanced or passed;
								 * its key is the intent's or the context's */
	const char *epoch;			/* of the watermark after it, or NULL: as before */
	MemoryContext context;		/* owns the new batch, or NULL: none */
	Intent	   *intent;			/* the new batch's */
	const Encoding *encoding;
} StagedStep;

typedef struct Delivery
{
	MemoryContext context;		/* everything of this delivery */
	int64		sink_id;
	int64		partition_id;
	char	   *fingerprint;	/* of the definitions that it was made from */
	SinkDefinition *sink;		/* of the worker's current definitions */
	SinkTable  *table;
	PartitionRun *run;
	const SinkKind *kind;
	HttpPool   *pool;
	Pace	   *pace;			/* of the sink */

	DeliveryStatus status;
	char	   *epoch;			/* of the watermark */
	Position	position;		/* watermark; its key is in the context */
	Position	sent;			/* end of the last batch, without a key */

	/* the batch in hand, if status.has_intent */
	MemoryContext batch_context;	/* owns the intent and its encoding */
	Intent	   *intent;
	const Encoding *encoding;	/* NULL until its first attempt here */

	/* an attempt's body and what goes with it; rewritten by each attempt */
	ByteBuffer	body;
	size_t		accounted;		/* of its capacity, in the memory of all */
	int64		body_rows;
	char		digest[SHA256_HEX_LENGTH + 1];
	MemoryContext attempt_context;	/* owns the credentials */
	Credentials *credentials;
	Batch		batch;			/* all of it, for the kind */
	Attempt    *attempt;

	/* flush triggers */
	TimestampTz waiting_since;	/* rows above the position were first seen; 0 =
								 * none wait */
	int64		flush_until;	/* a trigger fired: go on up to this seq */
	TimestampTz cut_at;			/* when the last batch was cut; 0 = none was */
	TimestampTz paced_until;	/* due, but for the sink's pace; 0 = is not */
	double		row_bytes;		/* average of what was encoded */

	/* skipped while something is locked */
	TimestampTz busy_since;		/* 0 = is not */
	TimestampTz look_again_at;
	bool		busy_recorded;
	bool		busy_row;		/* it is a row of the catalog, not the table */

	/* to be stored for people by the next catalog step */
	bool		record_due;
	bool		has_record;		/* delivery_state says something */
	char	   *reason;
	char	   *hint;
	char	   *error;			/* NULL = no new error */

	DeliveryState logged_state; /* that the server's log has */

	bool		reload_due;
	StagedStep	staged;
} Delivery;

/*
 * Makes a delivery, which reads its position, intents and state in its first catalog
 * step.  All of it lives in a child of CurrentMemoryContext.
 */
extern Delivery *DeliveryCreate(SinkDefinition *sink, SinkTable *table, PartitionRun *run,
								const SinkKind *kind, HttpPool *pool);

/* Text that changes when the delivery must start over from the catalog. */
extern char *DeliveryFingerprint(const SinkDefinition *sink, const SinkTable *table);

/*
 * Reads position, intents and state from the catalog; nothing must be in flight.
 * Needs an open SqlSession.
 */
extern void DeliveryReload(Delivery *delivery);

/* Cancels what is in flight and frees everything. */
extern void DeliveryDestroy(Delivery *delivery);

/*
 * Would DeliveryCatalogStep() have something to do now?  Fires flush triggers.
 * Needs a transaction.
 */
extern bool DeliveryIsDue(Delivery *delivery, TimestampTz now);

/* Has an attempt ended with something for the catalog to know? */
extern bool DeliveryHasNews(const Delivery *delivery, TimestampTz now);

/* When it will be due by time alone, or 0. */
extern TimestampTz DeliveryDueAt(const Delivery *delivery);

/* In a transaction; errors of this delivery are caught and become its state. */
extern void DeliveryCatalogStep(Delivery *delivery, TimestampTz now);

/*
 * After the commit: memory follows, and what was committed is sent.  True if that
 * attempt has ended already, so that there is something to do at once.
 */
extern bool DeliveryCommitted(Delivery *delivery);

/* After an abort: what was staged did not happen. */
extern void DeliveryAborted(Delivery *delivery);

#endif							/* INCSINK_DELIVERY_H */
