/*
 * machine.h
 *		What a delivery does next: one pure function of its state and an event.
 *
 * No I/O, no catalog, no clock: the caller carries the action out and tells the
 * outcome as the next event.  It also counts: what stands, is sent and is acknowledged
 * is the caller's to know, and up to date whenever it asks.
 *
 * With one batch at a time:
 *
 *	   waiting --rows, flush due--> [cut] --committed--> sending --acknowledged-->
 *	   [advance] --advanced--> waiting
 *	   sending --failed--> retrying --5 in a row--> open circuit; halted
 *	   retrying, open circuit, halted with a probe --time--> [attempt] --> sending
 */
#ifndef INCSINK_MACHINE_H
#define INCSINK_MACHINE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "sink/verdict.h"

typedef enum DeliveryState
{
	DELIVERY_WAITING,
	DELIVERY_SENDING,
	DELIVERY_RETRYING,
	DELIVERY_OPEN_CIRCUIT,
	DELIVERY_HALTED,
	DELIVERY_PAUSED
} DeliveryState;

typedef enum DeliveryEventType
{
	EVENT_TICK,					/* time has passed or rows have come */
	EVENT_COMMITTED,			/* an intent, or its new attempt, is durable */
	EVENT_VERDICT,				/* an attempt, or a step, has ended */
	EVENT_ADVANCED,				/* the watermark has moved, intents are gone */
	EVENT_FENCED				/* catalog and memory disagree: forget memory */
} DeliveryEventType;

typedef struct DeliveryEvent
{
	DeliveryEventType type;
	TimestampTz now;
	bool		flush_due;		/* TICK: rows wait and a trigger has fired */
	VerdictClass verdict;		/* VERDICT */
	int64		retry_after;	/* VERDICT: milliseconds the receiver asked
								 * for, 0 = did not */
	double		fraction;		/* VERDICT: random draw in [0, 1) */
	bool		overtaken;		/* VERDICT: of an attempt begun before the
								 * failure that the delivery stands in */
} DeliveryEvent;

typedef struct DeliveryPolicy
{
	int64		retry_initial;	/* milliseconds */
	int64		retry_max;
	int			max_in_flight;	/* batches that may stand at a time */
} DeliveryPolicy;

/* A delivery's batches whose intents stand in the catalog. */
typedef struct FlightCounts
{
	int			standing;		/* without an attempt under way */
	int			failed;			/* of those: whose last attempt failed */
	int			sending;
	int			probing;		/* of those: begun while something had failed */
	int			acknowledged;	/* the acknowledgement is in memory */
	int			leading;		/* of those: with only such ones below */
} FlightCounts;

typedef struct DeliveryStatus
{
	DeliveryState state;
	bool		enabled;		/* the sink is not paused */
	FlightCounts flights;
	int			failures;		/* in a row */
	TimestampTz retry_at;		/* 0 = none */
} DeliveryStatus;

typedef enum DeliveryAction
{
	ACTION_NONE,
	ACTION_CUT,					/* read rows, encode, commit an intent */
	ACTION_ATTEMPT,				/* encode the range of the lowest standing
								 * intent again, commit the attempt */
	ACTION_SEND,				/* let the bytes out */
	ACTION_ADVANCE,				/* commit the end of the leading intents, and
								 * the watermark */
	ACTION_RECORD,				/* store state and error for people and the
								 * next process */
	ACTION_RELOAD				/* read this delivery's catalog rows again */
} DeliveryAction;

#define CIRCUIT_FAILURES 5

extern DeliveryAction DecideDelivery(DeliveryStatus *status, const DeliveryEvent *event,
									 const DeliveryPolicy *policy);

static inline int
CountFlights(const DeliveryStatus *status)
{
	return status->flights.standing + status->flights.sending + status->flights.acknowledged;
}

/* "waiting", "sending", ...; NULL for an unknown name. */
extern const char *DeliveryStateName(DeliveryState state);
extern bool DeliveryStateByName(const char *name, DeliveryState *state);

#endif							/* INCSINK_MACHINE_H */
