/*
 * reload.c
 *		A delivery as the catalog has it: position, intents, state.
 */
#include "postgres.h"

#include "catalog/delivery_state.h"
#include "catalog/sink.h"
#include "common/inject.h"
#include "common/sql.h"
#include "delivery/delivery.h"
#include "delivery/steps.h"
#include "utils/memutils.h"

static void
ReloadRecord(Delivery *delivery)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "incsink record",
												  ALLOCSET_SMALL_SIZES);
	DeliveryRecord record = LoadDeliveryRecord(delivery->sink_id, delivery->partition_id, scratch);

	delivery->has_record = record.state != NULL;
	if (record.state == NULL || !DeliveryStateByName(record.state, &delivery->status.state))
		delivery->status.state = DELIVERY_WAITING;
	delivery->status.failures = record.failures;
	delivery->status.retry_at = record.retry_at;
	SetReason(delivery, record.reason, record.hint);
	MemoryContextDelete(scratch);
}

static Flight *
FindFlight(dlist_head *flights, int64 intent_id)
{
	dlist_iter	iter;

	dlist_foreach(iter, flights)
	{
		Flight	   *flight = dlist_container(Flight, node, iter.cur);

		if (flight->intent->intent_id == intent_id)
			return flight;
	}
	return NULL;
}

/*
 * What the receiver has acknowledged it has, if the intent still stands; and what it has
 * refused it has not.
 */
static void
TakeAcknowledgements(Delivery *delivery, dlist_head *old)
{
	dlist_iter	iter;

	dlist_foreach(iter, &delivery->flights)
	{
		Flight	   *flight = dlist_container(Flight, node, iter.cur);
		Flight	   *known = FindFlight(old, flight->intent->intent_id);

		if (known != NULL && known->state == FLIGHT_ACKNOWLEDGED)
			flight->state = FLIGHT_ACKNOWLEDGED;
		if (known != NULL && known->intent->attempts == flight->intent->attempts)
			flight->intent->refused = Max(flight->intent->refused, known->intent->refused);
	}
}

static void
FreeFlights(dlist_head *flights)
{
	while (!dlist_is_empty(flights))
		FlightFree(dlist_container(Flight, node, dlist_pop_head_node(flights)));
}

static void
MakeFlights(Delivery *delivery, List *intents)
{
	ListCell   *cell;

	foreach(cell, intents)
	{
		Flight	   *flight = FlightCreate(delivery);

		flight->intent = lfirst(cell);
		AddFlight(flight);
	}
}

/* All that can fail comes first: an ERROR leaves what is in memory as it was. */
static void
ReloadFlights(Delivery *delivery)
{
	dlist_head	old = DLIST_STATIC_INIT(old);
	MemoryContext old_intents = delivery->intents_context;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "incsink intents",
												  ALLOCSET_SMALL_SIZES);
	List	   *intents = LoadIntents(delivery->sink_id, delivery->partition_id, context);

	MemoryContextSetParent(context, delivery->context);
	delivery->intents_context = context;
	while (!dlist_is_empty(&delivery->flights))
		dlist_push_tail(&old, dlist_pop_head_node(&delivery->flights));
	ForgetReadPosition(delivery);
	MakeFlights(delivery, intents);
	TakeAcknowledgements(delivery, &old);
	FreeFlights(&old);
	if (old_intents != NULL)
		MemoryContextDelete(old_intents);
	if (intents == NIL)
	{
		MemoryContextDelete(context);
		delivery->intents_context = NULL;
	}
	RecountFlights(delivery);
}

/*
 * The first intent begins where the last batch ended, each other where the one before it
 * ends, and the watermark is not past the first: an acknowledgement will move it.
 */
static bool
IntentsFit(const Delivery *delivery)
{
	const Flight *first = FirstFlight(delivery);
	Position	end = delivery->sent;
	dlist_iter	iter;

	dlist_foreach(iter, unconstify(dlist_head *, &delivery->flights))
	{
		const Intent *intent = dlist_container(Flight, node, iter.cur)->intent;

		if (strcmp(intent->epoch, delivery->epoch) != 0 ||
			ComparePositions(intent->since, end) != 0 ||
			ComparePositions(intent->since, intent->until) >= 0)
			return false;
		end = intent->until;
	}
	return first == NULL || (ComparePositions(first->intent->since, delivery->position) <= 0 &&
							 ComparePositions(delivery->position, first->intent->until) < 0);
}

/* Inside a backlog the key, not the count, says where reading begins. */
static bool
PositionLacksKey(const Delivery *delivery)
{
	Position	position = delivery->position;

	return BacklogIsLeft(delivery, position) && position.n > 0 && position.key == NULL;
}

/* False if there is no watermark. */
static bool
ReloadPosition(Delivery *delivery)
{
	Watermark  *watermark = LoadWatermark(delivery->sink_id, delivery->partition_id,
										  delivery->context);

	if (watermark == NULL)
		return false;
	if (delivery->epoch != NULL)
		pfree(delivery->epoch);
	delivery->epoch = watermark->epoch;
	KeepPosition(delivery, &delivery->position, watermark->position);
	delivery->sent = watermark->sent;
	if (delivery->row_bytes == 0 && watermark->rows_exported > 0)
		delivery->row_bytes = (double) watermark->bytes_exported / watermark->rows_exported;
	if (watermark->position.key != NULL)
		pfree(watermark->position.key);
	pfree(watermark);
	return true;
}

/* Other kinds, and the catalog of earlier versions, know one batch at a time. */
static int
WindowOf(const Delivery *delivery)
{
	const SinkOptions *options = delivery->sink->options;

	return options != NULL && options->max_in_flight > 1 && CatalogIsAtLeast(4) ?
		(int) options->max_in_flight : 1;
}

/*
 * Intents and watermark are read by two statements, and somebody who restarts the sink or
 * resolves an intent in between makes them look as if they did not fit: only what does
 * not fit under the lock does not fit.  False if there is no watermark.
 */
static bool
ReloadStanding(Delivery *delivery)
{
	bool		has_watermark;

	ReloadFlights(delivery);
	INCSINK_POINT("between-reloads");
	has_watermark = ReloadPosition(delivery);
	if (has_watermark && IntentsFit(delivery))
		return true;
	if (!LockSinkTable(delivery->sink_id, delivery->partition_id, true))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("sink \"%s\" is being changed", delivery->sink->name)));
	ReloadFlights(delivery);
	return ReloadPosition(delivery);
}

/*
 * A paused delivery is left as it is, whatever is wrong with it: it is read again, and
 * halts, when it is resumed.
 */
static void
ReloadFromCatalog(Delivery *delivery)
{
	bool		has_watermark;

	memset(&delivery->status, 0, sizeof(delivery->status));
	delivery->paced_until = 0;
	delivery->status.enabled = delivery->sink->enabled;
	delivery->max_in_flight = WindowOf(delivery);
	delivery->keeps_refusals = delivery->kind->class == WORKER_FORWARD && CatalogIsAtLeast(4);
	ReloadRecord(delivery);
	has_watermark = ReloadStanding(delivery);
	if (!delivery->status.enabled)
		return;
	if (!has_watermark)
		HaltDelivery(delivery, "the watermark of this delivery is missing from incsink.watermark",
					 "Remove the table from the sink and add it again with the start you want.");
	else if (PositionLacksKey(delivery))
		HaltDelivery(delivery, "the watermark of this delivery lies inside the backlog and has no key",
					 "Remove the table from the sink and add it again with the start you want.");
	else if (!IntentsFit(delivery))
		HaltDelivery(delivery, "the intent of this delivery does not fit its watermark",
					 "Remove the table from the sink and add it again with the start you want.");
	else if (delivery->sink->options == NULL)
		HaltDelivery(delivery, delivery->sink->options_error,
					 "Correct the options with incsink_alter_sink().");
}

/* An ERROR leaves it due: what is in memory until then is nothing to go on from. */
void
DeliveryReload(Delivery *delivery)
{
	delivery->reload_due = true;
	ReloadFromCatalog(delivery);
	delivery->reload_due = false;
}

