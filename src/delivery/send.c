/*
 * send.c
 *		From a committed intent to the verdict on its attempt.
 */
#include "postgres.h"

#include "common/inject.h"
#include "common/pg_prng.h"
#include "common/text.h"
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
 * Moves the state machine on.  The body goes: a retry reads the range again, so that
 * deliveries that are stuck hold no memory.
 */
void
TakeVerdict(Delivery *delivery, const Verdict *verdict)
{
	DeliveryEvent event = {.type = EVENT_VERDICT};
	DeliveryPolicy policy;

	event.now = GetCurrentTimestamp();
	event.verdict = verdict->class;
	event.retry_after = verdict->retry_after;
	event.fraction = pg_prng_double(&pg_global_prng_state);
	Assert(delivery->sink->options != NULL);	/* without, there are no attempts */
	policy.retry_initial = delivery->sink->options->retry_initial;
	policy.retry_max = delivery->sink->options->retry_max;

	delivery->attempt = NULL;
	if (DecideDelivery(&delivery->status, &event, &policy) != ACTION_RECORD)
		return;
	LogChange(delivery, verdict->message);
	ReleaseBody(delivery);
	SetFailure(delivery, verdict->message, verdict->hint);
}

static void
AttemptDone(void *arg, const Verdict *verdict)
{
	TakeVerdict((Delivery *) arg, verdict);
}

static void
FillBatch(Delivery *delivery)
{
	Batch	   *batch = &delivery->batch;

	batch->sink = delivery->sink;
	batch->partition = delivery->run->partition;
	batch->intent = delivery->intent;
	batch->encoder = delivery->encoding->encoder;
	batch->credentials = delivery->credentials;
	batch->body = &delivery->body;
	batch->digest = delivery->digest;
	batch->rows = delivery->body_rows;
	batch->owner = delivery->attempt_context;
}

/* An ERROR of start() means that nothing left: the definition cannot work. */
void
SendBatch(Delivery *delivery)
{
	MemoryContext old = CurrentMemoryContext;

	FillBatch(delivery);
	PG_TRY();
	{
		INCSINK_POINT("before-send");
		delivery->attempt = delivery->kind->start(delivery->pool, &delivery->batch,
												  AttemptDone, delivery);
	}
	PG_CATCH();
	{
		ErrorData  *error;
		Verdict		verdict = {.class = VERDICT_CONFIGURATION};

		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		FlushErrorState();
		ClipText(verdict.message, error->message, sizeof(verdict.message));
		ClipText(verdict.hint, error->hint ? error->hint : "", sizeof(verdict.hint));
		FreeErrorData(error);
		TakeVerdict(delivery, &verdict);
	}
	PG_END_TRY();
}
