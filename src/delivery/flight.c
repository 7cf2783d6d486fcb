/*
 * flight.c
 *		The batches of a delivery that stand as intents, in the order of their ranges.
 */
#include "postgres.h"

#include "common/settings.h"
#include "delivery/delivery.h"
#include "delivery/steps.h"
#include "utils/memutils.h"

#define FIRST_BODY_BYTES (64 * 1024)

/* In a context of its own, which is the delivery's; not in the list yet. */
Flight *
FlightCreate(Delivery *delivery)
{
	MemoryContext context = AllocSetContextCreate(delivery->context, "incsink flight",
												  ALLOCSET_SMALL_SIZES);
	Flight	   *flight = MemoryContextAllocZero(context, sizeof(Flight));

	flight->delivery = delivery;
	flight->context = context;
	return flight;
}

static void
CancelAttempt(Flight *flight)
{
	if (flight->attempt != NULL)
		HttpPoolCancel(flight->delivery->pool, flight->attempt);
	flight->attempt = NULL;
}

/* Cancels its attempt.  Of one that is in the list, take it out first. */
void
FlightFree(Flight *flight)
{
	CancelAttempt(flight);
	ReleaseBody(flight);
	MemoryContextDelete(flight->context);
}

Flight *
FirstFlight(const Delivery *delivery)
{
	dlist_head *flights = unconstify(dlist_head *, &delivery->flights);

	return dlist_is_empty(flights) ? NULL : dlist_head_element(Flight, node, flights);
}

Flight *
LastFlight(const Delivery *delivery)
{
	dlist_head *flights = unconstify(dlist_head *, &delivery->flights);

	return dlist_is_empty(flights) ? NULL : dlist_tail_element(Flight, node, flights);
}

Flight *
PreviousFlight(Flight *flight)
{
	dlist_head *flights = &flight->delivery->flights;

	return dlist_has_prev(flights, &flight->node) ?
		dlist_container(Flight, node, dlist_prev_node(flights, &flight->node)) : NULL;
}

Flight *
LowestStanding(const Delivery *delivery)
{
	dlist_iter	iter;

	dlist_foreach(iter, unconstify(dlist_head *, &delivery->flights))
	{
		Flight	   *flight = dlist_container(Flight, node, iter.cur);

		if (flight->state == FLIGHT_STANDING)
			return flight;
	}
	return NULL;
}

static void
CountFlight(const Flight *flight, FlightCounts *counts)
{
	switch (flight->state)
	{
		case FLIGHT_STANDING:
			counts->standing++;
			if (flight->failed)
				counts->failed++;
			break;
		case FLIGHT_SENDING:
			counts->sending++;
			if (!flight->undoubted)
				counts->probing++;
			break;
		case FLIGHT_ACKNOWLEDGED:
			if (counts->standing + counts->sending == 0)
				counts->leading++;
			counts->acknowledged++;
			break;
	}
}

void
RecountFlights(Delivery *delivery)
{
	FlightCounts counts = {0};
	dlist_iter	iter;

	dlist_foreach(iter, &delivery->flights)
		CountFlight(dlist_container(Flight, node, iter.cur), &counts);
	delivery->status.flights = counts;
}

void
SetFlightState(Flight *flight, FlightState state)
{
	flight->state = state;
	RecountFlights(flight->delivery);
}

void
AddFlight(Flight *flight)
{
	dlist_push_tail(&flight->delivery->flights, &flight->node);
	RecountFlights(flight->delivery);
}

/* Drops the lowest ones. */
void
DropFlights(Delivery *delivery, int count)
{
	for (int i = 0; i < count; i++)
	{
		Flight	   *flight = FirstFlight(delivery);

		dlist_delete(&flight->node);
		FlightFree(flight);
	}
	RecountFlights(delivery);
}

/* Nothing is known any more of how those stand that the transaction leaves. */
void
ForgetAttempts(Delivery *delivery)
{
	int			gone = delivery->staged.advanced;
	dlist_iter	iter;

	dlist_foreach(iter, &delivery->flights)
	{
		Flight	   *flight = dlist_container(Flight, node, iter.cur);

		if (gone-- > 0)
			continue;
		CancelAttempt(flight);
		ReleaseBody(flight);
		flight->state = FLIGHT_STANDING;
	}
	RecountFlights(delivery);
}

/* Those whose intents the current transaction leaves. */
FlightCounts
StagedFlights(const Delivery *delivery)
{
	FlightCounts counts = delivery->status.flights;

	Assert(delivery->staged.advanced == 0 || delivery->staged.advanced == counts.leading);
	counts.acknowledged -= delivery->staged.advanced;
	counts.leading -= delivery->staged.advanced;
	return counts;
}

bool
FlightsAreLeft(const Delivery *delivery)
{
	FlightCounts counts = StagedFlights(delivery);

	return counts.standing + counts.sending + counts.acknowledged > 0;
}

/* The watermark's position as the current transaction will leave it. */
Position
StagedPosition(const Delivery *delivery)
{
	if (delivery->staged.advanced > 0 || delivery->staged.passed)
		return delivery->staged.position;
	return delivery->position;
}

/* Where the next batch is read from: behind all that stands, and what is empty there. */
Position
ReadPosition(const Delivery *delivery)
{
	if (!FlightsAreLeft(delivery))
		return StagedPosition(delivery);
	if (IsReadBeyond(delivery))
		return delivery->read_position;
	return LastFlight(delivery)->intent->until;
}

/* Does memory know that there is nothing to export behind the last batch? */
bool
IsReadBeyond(const Delivery *delivery)
{
	const Flight *last = LastFlight(delivery);

	return last != NULL && (ComparePositions(last->intent->until, delivery->read_position) < 0 ||
							(ComparePositions(last->intent->until, delivery->read_position) == 0 &&
							 BacklogIsOver(delivery->read_position)));
}

/*
 * May a batch be cut beside those that stand?  Numbers are read once nothing stands
 * that ends at a row of the backlog: the end of it is in no intent then, and a retry
 * must know.  A new epoch begins likewise.
 */
bool
MayCutBehindFlights(const Delivery *delivery)
{
	if (!FlightsAreLeft(delivery))
		return true;
	if (strcmp(delivery->epoch, delivery->table->epoch) != 0)
		return false;
	return BacklogIsLeft(delivery, ReadPosition(delivery)) ||
		!BacklogIsLeft(delivery, LastFlight(delivery)->intent->until);
}

/* Makes that the position, in the context of the delivery; its key is copied. */
void
KeepPosition(Delivery *delivery, Position *place, Position position)
{
	Jsonb	   *old = place->key;

	if (position.key != NULL)
	{
		Jsonb	   *copy = MemoryContextAlloc(delivery->context, VARSIZE(position.key));

		memcpy(copy, position.key, VARSIZE(position.key));
		position.key = copy;
	}
	*place = position;
	if (old != NULL)
		pfree(old);
}

void
ForgetReadPosition(Delivery *delivery)
{
	KeepPosition(delivery, &delivery->read_position, POSITION_BEGINNING);
}

/*
 * A buffer doubles when the row that is one too many is written to it.  What that row, which
 * was taken back, has left empty goes before it is counted.
 */
static void
TrimBody(ByteBuffer *body)
{
	size_t		capacity = Max(body->length, FIRST_BODY_BYTES);

	if (body->data == NULL || body->capacity / 2 < capacity)
		return;
	body->data = repalloc_huge(body->data, capacity);
	body->capacity = capacity;
}

void
AccountBody(Flight *flight)
{
	TrimBody(&flight->body);
	MemoryAccount(&flight->accounted, flight->body.capacity);
}

void
ReleaseBody(Flight *flight)
{
	if (flight->body.data != NULL)
		ByteBufferFree(&flight->body);
	AccountBody(flight);
	if (flight->attempt_context != NULL)
		MemoryContextDelete(flight->attempt_context);
	flight->attempt_context = NULL;
	flight->credentials = NULL;
}

/* The buffer of a batch that is acknowledged serves the next one. */
static bool
TakeSpareBody(Flight *flight)
{
	dlist_iter	iter;

	dlist_foreach(iter, &flight->delivery->flights)
	{
		Flight	   *other = dlist_container(Flight, node, iter.cur);

		if (other->state != FLIGHT_ACKNOWLEDGED || other->body.data == NULL)
			continue;
		flight->body = other->body;
		flight->accounted = other->accounted;
		memset(&other->body, 0, sizeof(ByteBuffer));
		other->accounted = 0;
		return true;
	}
	return false;
}

/* An empty one. */
void
PrepareBody(Flight *flight)
{
	MemoryContext old;

	if (flight->body.data == NULL && !TakeSpareBody(flight))
	{
		old = MemoryContextSwitchTo(flight->delivery->context);
		ByteBufferInit(&flight->body, FIRST_BODY_BYTES);
		MemoryContextSwitchTo(old);
	}
	ByteBufferReset(&flight->body);
}

/* Bodies that nothing needs any more: of all that are not on their way. */
void
ReleaseIdleBodies(Delivery *delivery)
{
	dlist_iter	iter;

	dlist_foreach(iter, &delivery->flights)
	{
		Flight	   *flight = dlist_container(Flight, node, iter.cur);

		if (flight->state != FLIGHT_SENDING)
			ReleaseBody(flight);
	}
}

/* Bodies that are acknowledged do not count: the next batch takes one over, the rest go. */
MemoryShare
ShareOfMemory(const Delivery *delivery, TimestampTz now)
{
	MemoryShare share = {
		.limit = INT64CONST(1024) * setting_buffer_memory,
		.total = MemoryHeldByAll(),
		.reserved = MemoryReserved(delivery, now),
	};
	dlist_iter	iter;

	dlist_foreach(iter, unconstify(dlist_head *, &delivery->flights))
	{
		const Flight *flight = dlist_container(Flight, node, iter.cur);

		if (flight->state == FLIGHT_ACKNOWLEDGED)
			share.total -= flight->accounted;
		else
			share.own += flight->accounted;
	}
	return share;
}
