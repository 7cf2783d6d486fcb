/*
 * committed.c
 *		After the end of a turn's transaction: memory follows the catalog.
 */
#include "postgres.h"

#include "delivery/redeliver.h"
#include "delivery/reject.h"
#include "delivery/steps.h"
#include "utils/memutils.h"

static void
ApplyPosition(Delivery *delivery, const StagedStep *staged)
{
	DeliveryEvent event = {.type = EVENT_ADVANCED};

	if (staged->epoch != NULL)
	{
		pfree(delivery->epoch);
		delivery->epoch = MemoryContextStrdup(delivery->context, staged->epoch);
	}
	if (staged->advanced == 0 && !staged->passed)
		return;
	KeepPosition(delivery, &delivery->position, staged->position);
	for (int i = 0; i < staged->advanced; i++)
	{
		delivery->sent = FirstFlight(delivery)->intent->until;
		delivery->sent.key = NULL;
		DropFlights(delivery, 1);
	}
	(void) Decide(delivery, &event);
	if (delivery->status.flights.failed > 0)
		return;
	delivery->logged_state = DELIVERY_WAITING;
	SetReason(delivery, NULL, NULL);
	delivery->has_record = false;
}

static void
ApplyRecord(Delivery *delivery)
{
	delivery->record_due = false;
	delivery->has_record = delivery->reason != NULL && !delivery->busy_recorded;
	if (delivery->error != NULL)
		pfree(delivery->error);
	delivery->error = NULL;
}

/* What was cut stands now; what was read and made no batch goes. */
static void
ApplyCut(Delivery *delivery, const StagedStep *staged)
{
	if (staged->read)
		KeepPosition(delivery, &delivery->read_position, staged->read_position);
	if (staged->cut == NULL)
		return;
	if (staged->cut->intent == NULL)
	{
		FlightFree(staged->cut);
		return;
	}
	delivery->cut_at = staged->cut->intent->created_at;
	AddFlight(staged->cut);
}

/* The intent in memory has every digest that the one in the catalog has. */
static void
RememberDigest(Flight *flight)
{
	Intent	   *intent = flight->intent;
	char	  **digests;

	for (int i = 0; i < intent->ndigests; i++)
	{
		if (strcmp(intent->digests[i], flight->digest) == 0)
			return;
	}
	digests = MemoryContextAlloc(flight->context, sizeof(char *) * (intent->ndigests + 1));
	memcpy(digests, intent->digests, sizeof(char *) * intent->ndigests);
	digests[intent->ndigests] = MemoryContextStrdup(flight->context, flight->digest);
	intent->digests = digests;
	intent->ndigests++;
}

/* True if its attempt has ended already. */
static bool
LetOut(Flight *flight)
{
	Delivery   *delivery = flight->delivery;
	DeliveryEvent event = {.type = EVENT_COMMITTED};

	if (flight->body_rows > 0)
		RememberDigest(flight);
	flight->remedy = REMEDY_NONE;
	flight->undoubted = delivery->status.failures == 0;
	flight->failed = false;
	SetFlightState(flight, FLIGHT_SENDING);
	if (Decide(delivery, &event) == ACTION_SEND)
		SendFlight(flight);
	return flight->state != FLIGHT_SENDING;
}

/* Beside what is on its way: is there something that can be begun at once? */
static bool
CanGoOn(const Delivery *delivery)
{
	const DeliveryStatus *status = &delivery->status;

	if (!status->enabled || status->failures > 0 || CountFlights(status) == 0 ||
		status->flights.sending >= delivery->max_in_flight)
		return false;
	return status->flights.standing > 0 ||
		(CountFlights(status) < delivery->max_in_flight && MayCutBehindFlights(delivery) &&
		 MoreIsKnown(delivery));
}

bool
DeliveryCommitted(Delivery *delivery)
{
	StagedStep	staged = delivery->staged;
	Flight	   *sent = staged.attempted;
	bool		in_backlog;
	bool		more = staged.reloaded;

	memset(&delivery->staged, 0, sizeof(StagedStep));
	in_backlog = BacklogIsLeft(delivery, ReadPosition(delivery));
	if (staged.recorded)
		ApplyRecord(delivery);
	ApplyPosition(delivery, &staged);
	if (staged.passed || staged.read)
		more |= in_backlog || MoreIsKnown(delivery);
	if (staged.cut != NULL && staged.cut->intent != NULL)
		sent = staged.cut;
	ApplyCut(delivery, &staged);
	if (staged.attempted != NULL && staged.attempted->body_rows > 0)
		staged.attempted->intent->attempts++;
	if (staged.split)
		delivery->reload_due = true;
	if (sent != NULL)
		more |= LetOut(sent);
	ReleaseIdleBodies(delivery);
	if (sent != NULL || staged.advanced > 0)
		more |= CanGoOn(delivery);
	more |= RedeliveryCommitted(delivery);
	return more || staged.split || RemedyIsDue(delivery);
}

void
DeliveryAborted(Delivery *delivery)
{
	if (delivery->staged.cut != NULL)
		FlightFree(delivery->staged.cut);
	memset(&delivery->staged, 0, sizeof(StagedStep));
	RedeliveryAborted(delivery);
	ReleaseIdleBodies(delivery);
}
