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
#include "lib/ilist.h"
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

typedef enum FlightState
{
	FLIGHT_STANDING,			/* in the catalog; no attempt is under way */
	FLIGHT_SENDING,
	FLIGHT_ACKNOWLEDGED			/* in memory; the catalog does not know yet */
} FlightState;

/* What becomes of a batch that was refused and is certainly not stored. */
typedef enum Remedy
{
	REMEDY_NONE,				/* it is sent again */
	REMEDY_SPLIT,
	REMEDY_ASIDE				/* its rows are put aside */
} Remedy;

typedef struct Delivery Delivery;

/* A batch that stands as an intent, and what this process knows of it. */
typedef struct Flight
{
	dlist_node	node;			/* in Delivery.flights */
	Delivery   *delivery;
	MemoryContext context;		/* owns this, and what a cut has made */
	Intent	   *intent;			/* NULL while it is being read */
	const Encoding *encoding;	/* NULL until its first attempt here */
	FlightState state;
	bool		failed;			/* its last attempt here */
	bool		undoubted;		/* its attempt began while nothing had failed */
	Remedy		remedy;			/* while it stands */
	int			refused_status; /* why, for people */
	const char *refusal;
	bool		memory_is_short;	/* it was cut where it was for want of memory */

	/* an attempt's body and what goes with it; rewritten by each attempt */
	ByteBuffer	body;			/* in the delivery's context */
	size_t		accounted;		/* of its capacity, in the memory of all */
	int64		body_rows;
	char		digest[SHA256_HEX_LENGTH + 1];
	MemoryContext attempt_context;	/* owns the credentials */
	Credentials *credentials;
	Batch		batch;			/* all of it, for the kind */
	Attempt    *attempt;
} Flight;

/* What the current transaction has done for a delivery, true once it commits. */
typedef struct StagedStep
{
	int			advanced;		/* leading flights whose intents are gone, the
								 * watermark moved */
	bool		passed;			/* watermark moved over an empty range */
	bool		read;			/* nothing found behind the flights that stand */
	bool		begun;			/* this turn has to do with it */
	bool		locked;			/* its row of sink_table_def */
	bool		unrecorded;		/* what was read is not in the catalog yet */
	bool		split;			/* a flight's intent gave way to two */
	bool		recorded;		/* state stored */
	bool		reloaded;		/* read from the catalog again */
	Position	position;		/* watermark after it, if advanced or passed;
								 * its key is a flight's */
	Position	read_position;	/* if read; its key is the cut's */
	Position	cut_since;		/* if unrecorded: the range that was read; the key */
	Position	cut_until;		/* of the end is the cut's */
	const char *epoch;			/* of the watermark after it, or NULL: as before */
	Flight	   *cut;			/* what was read, or NULL; with an intent if that
								 * was inserted */
	Flight	   *attempted;		/* whose new attempt is recorded, or NULL */
} StagedStep;

struct Delivery
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
	const Encoding *encoding;	/* of new batches; NULL until the first */
	Jsonb	   *encoding_json;	/* the same, as intents have it */
	int			max_in_flight;
	bool		keeps_refusals; /* a kind and a catalog for it */
	struct Redelivery *redelivery;	/* of rows that were put aside, or NULL */

	DeliveryStatus status;
	char	   *epoch;			/* of the watermark */
	Position	position;		/* watermark; its key is in the context */
	Position	sent;			/* end of the last batch acknowledged, without a key */
	dlist_head	flights;		/* in the order of their ranges, each beginning
								 * where the one before ends */
	MemoryContext intents_context;	/* owns those of them that were reloaded */
	Position	read_position;	/* if beyond the flights: nothing to export up to
								 * there; its key is in the context */

	/* flush triggers */
	TimestampTz waiting_since;	/* rows above the position were first seen; 0 =
								 * none wait */
	int64		flush_until;	/* a trigger fired: go on up to this seq */
	FlushTrigger trigger;		/* that one */
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
	char		error_batch[BATCH_ID_LENGTH + 1];	/* "" = of none */

	DeliveryState logged_state; /* that the server's log has */

	bool		reload_due;		/* once nothing is on its way */
	StagedStep	staged;
};

/*
 * Makes a delivery, which reads its position, intents and state in its first catalog
 * step.  All of it lives in a child of CurrentMemoryContext.
 */
extern Delivery *DeliveryCreate(SinkDefinition *sink, SinkTable *table, PartitionRun *run,
								const SinkKind *kind, HttpPool *pool);

/* Text that changes when the delivery must start over from the catalog. */
extern char *DeliveryFingerprint(const SinkDefinition *sink, const SinkTable *table);

/*
 * The same, defined anew.  What is on its way goes on; at rest everything is read again,
 * so that incsink_resume_sink() ends a halt.
 */
extern void DeliveryRedefine(Delivery *delivery, SinkDefinition *sink, SinkTable *table,
							 PartitionRun *run);

/*
 * Reads position, intents and state from the catalog; an attempt under way is cancelled.
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

/* Set whenever an attempt ends: DeliveryHasNews() or DeliveryDueAt() may be another. */
extern bool deliveries_have_news;

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
