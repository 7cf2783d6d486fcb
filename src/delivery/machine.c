/*
 * machine.c
 *		The state machine of a delivery.
 */
#include "postgres.h"

#include "delivery/machine.h"
#include "transport/retry.h"
#include "utils/timestamp.h"

static const char *const state_names[] = {
	[DELIVERY_WAITING] = "waiting",
	[DELIVERY_SENDING] = "sending",
	[DELIVERY_RETRYING] = "retrying",
	[DELIVERY_OPEN_CIRCUIT] = "open circuit",
	[DELIVERY_HALTED] = "halted",
	[DELIVERY_PAUSED] = "paused",
};

const char *
DeliveryStateName(DeliveryState state)
{
	return state_names[state];
}

bool
DeliveryStateByName(const char *name, DeliveryState *state)
{
	for (int i = 0; i < lengthof(state_names); i++)
	{
		if (strcmp(state_names[i], name) == 0)
		{
			*state = (DeliveryState) i;
			return true;
		}
	}
	return false;
}

/* The state that a delivery without anything in flight is in. */
static DeliveryState
RestingState(const DeliveryStatus *status)
{
	if (!status->enabled)
		return DELIVERY_PAUSED;
	if (status->failures >= CIRCUIT_FAILURES)
		return DELIVERY_OPEN_CIRCUIT;
	return status->failures > 0 ? DELIVERY_RETRYING : DELIVERY_WAITING;
}

/*
 * An acknowledgement in memory is committed before anything else, paused or not:
 * the receiver has the batch.
 */
static DeliveryAction
DecideTick(DeliveryStatus *status, const DeliveryEvent *event)
{
	if (status->in_flight)
		return ACTION_NONE;
	if (status->acknowledged)
		return ACTION_ADVANCE;
	if (!status->enabled)
	{
		status->state = DELIVERY_PAUSED;
		return ACTION_NONE;
	}
	if (status->state == DELIVERY_PAUSED)
		status->state = RestingState(status);
	if (status->state == DELIVERY_HALTED && status->retry_at == 0)
		return ACTION_NONE;
	if (status->retry_at > event->now)
		return ACTION_NONE;
	if (status->has_intent)
		return ACTION_ATTEMPT;

	/* What failed was not a batch (a table that could not be read): look again. */
	return event->flush_due ? ACTION_CUT : ACTION_NONE;
}

/* Retry-After is honoured when it asks for more than the ladder. */
static void
NoteFailure(DeliveryStatus *status, const DeliveryEvent *event, const DeliveryPolicy *policy)
{
	int64		delay;

	status->failures++;
	if (status->failures >= CIRCUIT_FAILURES || event->verdict == VERDICT_CONFIGURATION)
		delay = policy->retry_max;
	else
		delay = RetryDelay(status->failures, policy->retry_initial, policy->retry_max,
						   event->fraction);
	if (event->retry_after > 0)
		delay = Max(delay, Min(event->retry_after, policy->retry_max));
	status->retry_at = TimestampTzPlusMilliseconds(event->now, delay);
	status->state = RestingState(status);
}

static DeliveryAction
DecideVerdict(DeliveryStatus *status, const DeliveryEvent *event, const DeliveryPolicy *policy)
{
	status->in_flight = false;
	switch (event->verdict)
	{
		case VERDICT_ACKNOWLEDGED:
			status->acknowledged = true;
			return ACTION_ADVANCE;
		case VERDICT_RETRY:
		case VERDICT_CREDENTIALS:
			NoteFailure(status, event, policy);
			break;
		case VERDICT_CONFIGURATION:
			NoteFailure(status, event, policy);
			status->state = DELIVERY_HALTED;
			break;
		case VERDICT_REJECTED:
			NoteFailure(status, event, policy);
			status->state = DELIVERY_HALTED;
			status->retry_at = 0;
			break;
	}
	return ACTION_RECORD;
}

DeliveryAction
DecideDelivery(DeliveryStatus *status, const DeliveryEvent *event, const DeliveryPolicy *policy)
{
	switch (event->type)
	{
		case EVENT_TICK:
			return DecideTick(status, event);

		case EVENT_COMMITTED:
			status->has_intent = true;
			status->in_flight = true;
			status->retry_at = 0;
			status->state = DELIVERY_SENDING;
			return ACTION_SEND;

		case EVENT_VERDICT:
			return DecideVerdict(status, event, policy);

		case EVENT_ADVANCED:
			status->has_intent = false;
			status->acknowledged = false;
			status->failures = 0;
			status->retry_at = 0;
			status->state = RestingState(status);
			return ACTION_NONE;

		case EVENT_FENCED:
			status->has_intent = false;
			status->in_flight = false;
			status->acknowledged = false;
			return ACTION_RELOAD;
	}
	return ACTION_NONE;
}
