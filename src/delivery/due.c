/*
 * due.c
 *		When a delivery has something to do: flush triggers, rates, memory, retries.
 */
#include "postgres.h"

#include "common/shared.h"
#include "delivery/delivery.h"
#include "delivery/redeliver.h"
#include "delivery/reject.h"
#include "delivery/steps.h"
#include "utils/timestamp.h"

/* How long short memory is left alone. */
#define MEMORY_PAUSE_MS 100

/*
 * From one batch to the next that is not full.  Where single rows are committed
 * without a pause, batches as small as the receiver is quick would cost the writers
 * more than their own commits; nobody sees 5 ms.
 */
#define FLUSH_PAUSE_MS 5

/* Does the delivery stand in front of rows that the table had when it was attached? */
bool
BacklogIsLeft(const Delivery *delivery, Position position)
{
	return delivery->run->partition->backlog != NULL && !BacklogIsOver(position);
}

/* When the rows that wait are due by time alone. */
static TimestampTz
FlushTime(const Delivery *delivery)
{
	TimestampTz after_wait = TimestampTzPlusMilliseconds(delivery->waiting_since,
														 delivery->sink->options->flush_interval);
	TimestampTz after_pause = TimestampTzPlusMilliseconds(delivery->cut_at, FLUSH_PAUSE_MS);

	return Max(after_wait, after_pause);
}

/* Has a trigger fired for that many waiting numbers, which are an upper bound of rows? */
static bool
TriggerFires(const Delivery *delivery, int64 waiting, TimestampTz now, FlushTrigger *trigger)
{
	const SinkOptions *options = delivery->sink->options;

	if (waiting >= options->flush_rows)
		*trigger = FLUSH_ROWS;
	else if (waiting * delivery->row_bytes >= options->flush_bytes)
		*trigger = FLUSH_BYTES;
	else if (now >= FlushTime(delivery))
		*trigger = FLUSH_INTERVAL;
	else if (options->flush_interval > 0 && FlushIsRequested(delivery->sink_id))
		*trigger = FLUSH_REQUEST;
	else
		return false;
	return true;
}

/*
 * The triggers.  A backlog waits for nothing: it fills batches by itself.  Above it, once
 * a trigger has fired, everything up to the horizon of that moment goes, in as many
 * batches as it takes.  While the index on the numbers is being built they cannot be
 * read.
 */
static bool
FlushIsDue(Delivery *delivery, Position position, TimestampTz now)
{
	int64		horizon = delivery->run->tracker.horizon;
	int64		waiting = horizon - position.seq;

	if (delivery->run->readable && BacklogIsLeft(delivery, position))
	{
		delivery->trigger = FLUSH_BACKLOG;
		return true;
	}
	if (!delivery->run->readable || delivery->run->partition->preparing || waiting <= 0)
	{
		delivery->waiting_since = 0;
		return false;
	}
	if (position.seq < delivery->flush_until)
		return true;
	if (delivery->waiting_since == 0)
		delivery->waiting_since = now;
	if (!TriggerFires(delivery, waiting, now, &delivery->trigger))
		return false;
	delivery->flush_until = horizon;
	delivery->waiting_since = 0;
	return true;
}

/* Behind a trigger that has fired, or in a backlog. */
bool
MoreIsKnown(const Delivery *delivery)
{
	Position	position = ReadPosition(delivery);

	return position.seq < delivery->flush_until || BacklogIsLeft(delivery, position);
}

/* Of a delivery that would cut now: may it, at the rates of its sink? */
static bool
PaceAllows(Delivery *delivery, TimestampTz now)
{
	delivery->paced_until = PaceAsk(delivery->pace, delivery->sink->options,
									delivery->partition_id, delivery->cut_at, now);
	return delivery->paced_until == 0;
}

/* How large a batch may become that is cut now. */
int64
MemoryForCut(const Delivery *delivery, TimestampTz now)
{
	MemoryShare share = ShareOfMemory(delivery, now);

	return MemoryForBatch(&share);
}

/* A batch that stands cannot be made smaller: it waits for its place in a line. */
static bool
MemoryForAttempt(const Delivery *delivery, TimestampTz now)
{
	MemoryShare share = ShareOfMemory(delivery, now);
	int64		need = MemoryNeed(share.limit, LowestStanding(delivery)->intent->byte_count);

	return MemoryForRetry(&share, need, false) ||
		MemoryForRetry(&share, need, MemoryWaitInLine(delivery, need, now));
}

static bool
MemoryIsShort(const Delivery *delivery, DeliveryAction action, TimestampTz now)
{
	if (action == ACTION_CUT)
		return MemoryForCut(delivery, now) < MINIMUM_BATCH;
	return action == ACTION_ATTEMPT && !MemoryForAttempt(delivery, now);
}

static DeliveryAction
DecideOn(const Delivery *delivery, DeliveryStatus *status, const DeliveryEvent *event)
{
	const SinkOptions *options = delivery->sink->options;
	DeliveryPolicy policy = {.max_in_flight = delivery->max_in_flight};

	if (options != NULL)
	{
		policy.retry_initial = options->retry_initial;
		policy.retry_max = options->retry_max;
	}
	return DecideDelivery(status, event, &policy);
}

DeliveryAction
Decide(Delivery *delivery, const DeliveryEvent *event)
{
	return DecideOn(delivery, &delivery->status, event);
}

/* Is there a place for a batch more, and no failure in the way? */
static bool
WindowIsOpen(const Delivery *delivery, const DeliveryStatus *status)
{
	int			count = CountFlights(status);

	if (count == 0)
		return true;
	return count < delivery->max_in_flight && status->failures == 0 &&
		status->flights.standing == 0 && MayCutBehindFlights(delivery);
}

static DeliveryAction
ActionFor(Delivery *delivery, DeliveryStatus *status, TimestampTz now)
{
	DeliveryEvent event = {.type = EVENT_TICK, .now = now};
	DeliveryAction action;

	delivery->paced_until = 0;
	if (delivery->sink->options == NULL)
		return ACTION_NONE;
	event.flush_due = status->enabled && WindowIsOpen(delivery, status) &&
		FlushIsDue(delivery, ReadPosition(delivery), now);
	action = DecideOn(delivery, status, &event);
	if (action == ACTION_CUT && !PaceAllows(delivery, now))
		return ACTION_NONE;
	if (action == ACTION_ATTEMPT && RemedyWaits(delivery))
		return ACTION_NONE;
	return action;
}

DeliveryAction
NextAction(Delivery *delivery, TimestampTz now)
{
	return ActionFor(delivery, &delivery->status, now);
}

/* In the transaction that advances: what comes next if it commits? */
static DeliveryAction
ActionAfterAdvance(Delivery *delivery, TimestampTz now)
{
	DeliveryStatus status = delivery->status;
	DeliveryEvent event = {.type = EVENT_ADVANCED, .now = now};

	status.flights = StagedFlights(delivery);
	(void) DecideOn(delivery, &status, &event);
	return ActionFor(delivery, &status, now);
}

/*
 * What is left to do for a delivery, once what it had acknowledged was committed (or could
 * not be: it waits for the next turn, then).
 */
DeliveryAction
NextActionOfTurn(Delivery *delivery, TimestampTz now)
{
	DeliveryAction action = ACTION_NONE;

	if (delivery->reload_due || delivery->look_again_at > now)
		return ACTION_NONE;
	if (delivery->staged.advanced > 0)
		action = ActionAfterAdvance(delivery, now);
	else if (delivery->status.flights.leading == 0)
		action = NextAction(delivery, now);
	if (!MemoryIsShort(delivery, action, now))
		return action;
	delivery->look_again_at = TimestampTzPlusMilliseconds(now, MEMORY_PAUSE_MS);
	return ACTION_NONE;
}

/* Rows that take a number at or below the watermark would never be seen. */
static void
CheckPosition(Delivery *delivery)
{
	const Flight *last = LastFlight(delivery);
	int64		last_drawn = delivery->run->last_drawn;
	int64		highest = delivery->position.seq;

	if (last != NULL)
		highest = Max(highest, last->intent->until.seq);
	if (!delivery->status.enabled || !delivery->run->readable || highest <= last_drawn ||
		delivery->status.state == DELIVERY_HALTED)
		return;
	HaltDelivery(delivery,
				 psprintf("the watermark of this delivery stands at " INT64_FORMAT ", above " INT64_FORMAT ", the last number drawn",
						  highest, last_drawn),
				 "If the sequence of the table was set back, call incsink_confirm_sequence() and then incsink_resume_sink(). Otherwise remove the table from the sink and add it again with the start you want.");
}

/* Everything that may be begun is under way. */
static bool
IsFull(const Delivery *delivery)
{
	const FlightCounts *flights = &delivery->status.flights;

	return flights->leading == 0 &&
		(flights->sending >= delivery->max_in_flight ||
		 (flights->probing > 0 && delivery->status.failures > 0));
}

bool
DeliveryIsDue(Delivery *delivery, TimestampTz now)
{
	DeliveryAction action;

	if (delivery->look_again_at > now)
		return false;
	if (RedeliveryIsDue(delivery, now))
		return true;
	if (delivery->reload_due)
		return delivery->status.flights.sending == 0;
	if (IsFull(delivery))
		return delivery->record_due;
	delivery->look_again_at = 0;
	if (!delivery->run->readable)
		ForgetReadPosition(delivery);
	CheckPosition(delivery);
	if (delivery->record_due)
		return true;
	action = NextAction(delivery, now);
	if (action == ACTION_NONE)
		return false;
	if (action == ACTION_ATTEMPT && !delivery->run->readable)
		return false;
	if (MemoryIsShort(delivery, action, now))
	{
		delivery->look_again_at = TimestampTzPlusMilliseconds(now, MEMORY_PAUSE_MS);
		return false;
	}
	return true;
}

/* A batch that was refused waits for no answer, but for all else. */
static bool
RemedyIsNews(const Delivery *delivery, TimestampTz now)
{
	const DeliveryStatus *status = &delivery->status;

	if (status->retry_at > now || (status->state == DELIVERY_HALTED && status->retry_at == 0))
		return false;
	return RemedyIsDue(delivery) && delivery->run->readable && !IsFull(delivery);
}

bool
DeliveryHasNews(const Delivery *delivery, TimestampTz now)
{
	if (delivery->look_again_at > now)
		return false;
	if (RedeliveryIsDue(delivery, now))
		return true;
	if (delivery->reload_due)
		return delivery->status.flights.sending == 0;
	return delivery->status.flights.leading > 0 || delivery->record_due || RemedyIsNews(delivery, now);
}

static TimestampTz
BatchesDueAt(const Delivery *delivery)
{
	const DeliveryStatus *status = &delivery->status;

	if (delivery->sink->options == NULL || !status->enabled || IsFull(delivery))
		return 0;
	if (delivery->look_again_at > 0)
		return delivery->look_again_at;
	if (!delivery->run->readable)
		return 0;				/* that is looked at every poll interval */
	if (status->flights.standing > 0)
		return status->retry_at;
	if (!WindowIsOpen(delivery, status))
		return 0;
	if (delivery->paced_until > 0)
		return delivery->paced_until;
	if (delivery->waiting_since > 0)
		return Max(FlushTime(delivery), status->retry_at);
	return MoreIsKnown(delivery) ? status->retry_at : 0;
}

TimestampTz
DeliveryDueAt(const Delivery *delivery)
{
	TimestampTz batches = BatchesDueAt(delivery);
	TimestampTz redelivery = RedeliveryDueAt(delivery);

	if (batches == 0 || redelivery == 0)
		return Max(batches, redelivery);
	return Min(batches, redelivery);
}
