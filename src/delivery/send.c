/*
 * send.c
 *		From a committed intent to the verdict on its attempt.
 */
#include "postgres.h"

#include "common/inject.h"
#include "common/pg_prng.h"
#include "common/text.h"
#include "delivery/reject.h"
#include "delivery/steps.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* The log has what somebody must see to, once; all the rest is in the views. */
static void
LogChange(Delivery *delivery, const char *message)
{
	DeliveryState state = delivery->status.state;

	if (state == delivery->logged_state ||
		(state != DELIVERY_HALTED && state != DELIVERY_OPEN_CIRCUIT))
		return;
	delivery->logged_state = state;
	ereport(LOG,
			(errmsg("sink \"%s\", dataset \"%s\": %s: %s", delivery->sink->name,
					delivery->run->partition->dataset, DeliveryStateName(state), message)));
}

/*
 * The body goes, unless the next batch is at hand, which takes the buffer over: a retry
 * reads the range again, so that deliveries that are stuck hold no memory.
 */
static void
EndAttempt(Flight *flight, const Verdict *verdict)
{
	bool		acknowledged = verdict->class == VERDICT_ACKNOWLEDGED;

	flight->attempt = NULL;
	flight->failed = !acknowledged && flight->remedy == REMEDY_NONE;
	SetFlightState(flight, acknowledged ? FLIGHT_ACKNOWLEDGED : FLIGHT_STANDING);
	if (!acknowledged || flight->delivery->status.flights.leading == 0)
		ReleaseBody(flight);
}

bool		deliveries_have_news = false;

/*
 * Moves the state machine on.  A batch that has a remedy is no failure: the receiver
 * works.
 */
void
TakeVerdict(Delivery *delivery, Flight *flight, Verdict *verdict)
{
	bool		has_remedy = flight != NULL && FindRemedy(flight, verdict);
	DeliveryEvent event = {.type = EVENT_VERDICT};

	deliveries_have_news = true;
	event.now = GetCurrentTimestamp();
	event.verdict = verdict->class;
	event.retry_after = verdict->retry_after;
	event.fraction = pg_prng_double(&pg_global_prng_state);
	Assert(delivery->sink->options != NULL);	/* without, there are no attempts */
	if (flight != NULL)
	{
		event.overtaken = flight->state == FLIGHT_SENDING && flight->undoubted &&
			delivery->status.failures > 0;
		EndAttempt(flight, verdict);
	}
	if (has_remedy)
		return;
	if (flight != NULL)
		flight->remedy = REMEDY_NONE;
	if (Decide(delivery, &event) != ACTION_RECORD)
		return;
	LogChange(delivery, verdict->message);
	SetFailure(delivery, flight, verdict->message, verdict->hint);
}

static void
AttemptDone(void *arg, const Verdict *verdict)
{
	Flight	   *flight = arg;
	Verdict		copy = *verdict;

	TakeVerdict(flight->delivery, flight, &copy);
}

static void
FillBatch(Flight *flight)
{
	Delivery   *delivery = flight->delivery;
	Batch	   *batch = &flight->batch;

	batch->sink = delivery->sink;
	batch->partition = delivery->run->partition;
	batch->intent = flight->intent;
	batch->encoder = flight->encoding->encoder;
	batch->content_type = flight->encoding->encoder->content_type;
	batch->content_encoding = flight->encoding->compression ? flight->encoding->compression->name : NULL;
	batch->credentials = flight->credentials;
	batch->body = &flight->body;
	batch->digest = flight->digest;
	batch->rows = flight->body_rows;
	batch->may_be_stored = MayBeStored(flight);
	batch->probe = delivery->status.failures > 0;
	batch->owner = flight->attempt_context;
}

/* An ERROR of start() means that nothing left: the definition cannot work. */
void
SendFlight(Flight *flight)
{
	Delivery   *delivery = flight->delivery;
	MemoryContext old = CurrentMemoryContext;

	FillBatch(flight);
	PG_TRY();
	{
		INCSINK_POINT("before-send");
		flight->attempt = delivery->kind->start(delivery->pool, &flight->batch, AttemptDone,
												flight);
	}
	PG_CATCH();
	{
		ErrorData  *error;
		Verdict		verdict = {.class = VERDICT_CONFIGURATION, .sure = true};

		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		FlushErrorState();
		ClipText(verdict.message, error->message, sizeof(verdict.message));
		ClipText(verdict.hint, error->hint ? error->hint : "", sizeof(verdict.hint));
		FreeErrorData(error);
		TakeVerdict(delivery, flight, &verdict);
	}
	PG_END_TRY();
}
