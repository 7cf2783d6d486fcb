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
 * What stands goes before what is new, the lowest first.  After a failure one attempt at
 * a time feels the way; others that are under way end as they may.
 */
static DeliveryAction
DecideSend(const DeliveryStatus *status, bool flush_due, int max_in_flight)
{
	const FlightCounts *flights = &status->flights;

	if (flights->sending >= max_in_flight || (status->failures > 0 && flights->probing > 0))
		return ACTION_NONE;
	if (flights->standing > 0)
		return ACTION_ATTEMPT;
	if (CountFlights(status) > 0 && (status->failures > 0 || CountFlights(status) >= max_in_flight))
		return ACTION_NONE;

	/* What failed was not a batch (a table that could not be read): look again. */
	return flush_due ? ACTION_CUT : ACTION_NONE;
}

/*
 * An acknowledgement in memory is committed before anything else, paused or not:
 * the receiver has the batch.
 */
static DeliveryAction
DecideTick(DeliveryStatus *status, const DeliveryEvent *event, const DeliveryPolicy *policy)
{
	if (status->flights.leading > 0)
		return ACTION_ADVANCE;
	if (!status->enabled)
	{
		if (status->flights.sending == 0)
			status->state = DELIVERY_PAUSED;
		return ACTION_NONE;
	}
	if (status->state == DELIVERY_PAUSED)
		status->state = RestingState(status);
	if (status->state == DELIVERY_HALTED && status->retry_at == 0)
		return ACTION_NONE;
	if (status->retry_at > event->now)
		return ACTION_NONE;
	return DecideSend(status, event->flush_due, policy->max_in_flight);
}

/*
 * Retry-After is honoured when it asks for more than the ladder.  Batches that were under
 * way together and fail together are one failure.
 */
static void
NoteFailure(DeliveryStatus *status, const DeliveryEvent *event, const DeliveryPolicy *policy)
{
	int64		delay;
	bool		overtaken = event->overtaken && status->failures > 0;
	TimestampTz retry_at;

	if (!overtaken)
		status->failures++;
	if (status->failures >= CIRCUIT_FAILURES || event->verdict == VERDICT_CONFIGURATION)
		delay = policy->retry_max;
	else
		delay = RetryDelay(status->failures, policy->retry_initial, policy->retry_max,
						   event->fraction);
	if (event->retry_after > 0)
		delay = Max(delay, Min(event->retry_after, policy->retry_max));
	retry_at = TimestampTzPlusMilliseconds(event->now, delay);
	status->retry_at = overtaken ? Max(status->retry_at, retry_at) : retry_at;
	status->state = RestingState(status);
}

/* A halt stays one, whatever those that were under way beside it bring. */
static DeliveryAction
DecideVerdict(DeliveryStatus *status, const DeliveryEvent *event, const DeliveryPolicy *policy)
{
	bool		halted = event->overtaken && status->state == DELIVERY_HALTED;
	bool		for_good = halted && status->retry_at == 0;

	switch (event->verdict)
	{
		case VERDICT_ACKNOWLEDGED:
			return status->flights.leading > 0 ? ACTION_ADVANCE : ACTION_NONE;
		case VERDICT_RETRY:
		case VERDICT_CREDENTIALS:
			NoteFailure(status, event, policy);
			break;
		case VERDICT_CONFIGURATION:
			NoteFailure(status, event, policy);
			halted = true;
			break;
		case VERDICT_REJECTED:
		case VERDICT_TOO_LARGE:
			NoteFailure(status, event, policy);
			halted = for_good = true;
			break;
	}
	if (halted)
		status->state = DELIVERY_HALTED;
	if (for_good)
		status->retry_at = 0;
	return ACTION_RECORD;
}

/*
 * The failure is overcome, unless it was of a batch that still stands: the ones before
 * it say nothing of it.
 */
static void
NoteAdvance(DeliveryStatus *status)
{
	if (status->flights.failed > 0)
		return;
	status->failures = 0;
	status->retry_at = 0;
	status->state = status->flights.sending > 0 ? DELIVERY_SENDING : RestingState(status);
}

DeliveryAction
DecideDelivery(DeliveryStatus *status, const DeliveryEvent *event, const DeliveryPolicy *policy)
{
	switch (event->type)
	{
		case EVENT_TICK:
			return DecideTick(status, event, policy);

		case EVENT_COMMITTED:
			status->retry_at = 0;
			status->state = DELIVERY_SENDING;
			return ACTION_SEND;

		case EVENT_VERDICT:
			return DecideVerdict(status, event, policy);

		case EVENT_ADVANCED:
			NoteAdvance(status);
			return ACTION_NONE;

		case EVENT_FENCED:
			return ACTION_RELOAD;
	}
	return ACTION_NONE;
}
