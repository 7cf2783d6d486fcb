/*
 * machine.h
 *		What a delivery does next: one pure function of its state and an event.
 *
 * No I/O, no catalog, no clock: the caller carries the action out and tells the
 * outcome as the next event.
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
	EVENT_COMMITTED,			/* the intent, or its new attempt, is durable */
	EVENT_VERDICT,				/* the attempt has ended */
	EVENT_ADVANCED,				/* the watermark has moved, the intent is gone */
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
} DeliveryEvent;

typedef struct DeliveryPolicy
{
	int64		retry_initial;	/* milliseconds */
	int64		retry_max;
} DeliveryPolicy;

typedef struct DeliveryStatus
{
	DeliveryState state;
	bool		enabled;		/* the sink is not paused */
	bool		has_intent;		/* an intent stands in the catalog */
	bool		in_flight;		/* and an attempt of it is under way */
	bool		acknowledged;	/* and its acknowledgement is in memory */
	int			failures;		/* in a row */
	TimestampTz retry_at;		/* 0 = none */
} DeliveryStatus;

typedef enum DeliveryAction
{
	ACTION_NONE,
	ACTION_CUT,					/* read rows, encode, commit an intent */
	ACTION_ATTEMPT,				/* encode the intent's range again, commit the
								 * attempt */
	ACTION_SEND,				/* let the bytes out */
	ACTION_ADVANCE,				/* commit intent's end and watermark */
	ACTION_RECORD,				/* store state and error for people and the
								 * next process */
	ACTION_RELOAD				/* read this delivery's catalog rows again */
} DeliveryAction;

#define CIRCUIT_FAILURES 5

extern DeliveryAction DecideDelivery(DeliveryStatus *status, const DeliveryEvent *event,
									 const DeliveryPolicy *policy);

/* "waiting", "sending", ...; NULL for an unknown name. */
extern const char *DeliveryStateName(DeliveryState state);
extern bool DeliveryStateByName(const char *name, DeliveryState *state);

#endif							/* INCSINK_MACHINE_H */
