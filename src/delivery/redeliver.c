/*
 * redeliver.c
 *		Sends rows that were put aside again, beside the batches of their delivery.
 *
 * As with a batch, an attempt is noted and committed before its first byte leaves, and the
 * dead letter goes with its acknowledgement.  A lost answer leads to another attempt under
 * the same id.
 */
#include "postgres.h"

#include "catalog/dead_letter.h"
#include "catalog/credentials.h"
#include "common/inject.h"
#include "common/pg_prng.h"
#include "common/text.h"
#include "delivery/redeliver.h"
#include "delivery/steps.h"
#include "utils/memutils.h"

/* What the current transaction has done, true once it commits. */
typedef enum RedeliveryStage
{
	STAGE_NOTHING,
	STAGE_LOOKED,				/* the next one, if any, is in "next" */
	STAGE_NOTED,				/* an attempt is recorded */
	STAGE_ENDED,				/* the dead letter is gone, or rests */
	STAGE_ERROR					/* the error is recorded */
} RedeliveryStage;

typedef struct Redelivery
{
	Delivery   *delivery;
	bool		look_due;
	DeliveryStatus status;		/* of one batch, by the state machine */
	DeadLetter *letter;			/* NULL = none is to be sent */
	MemoryContext context;		/* owns it */
	DeadLetter *next;
	MemoryContext next_context;
	bool		may_be_stored;	/* by an attempt of this process */
	bool		error_due;		/* to be recorded, then: */
	bool		stops;
	char		error[1024];
	RedeliveryStage stage;

	MemoryContext attempt_context;
	ByteBuffer	body;			/* the letter's bytes */
	char		digest[SHA256_HEX_LENGTH + 1];
	Batch		batch;
	Attempt    *attempt;
} Redelivery;

void
LookForRedelivery(Delivery *delivery)
{
	if (delivery->redelivery == NULL)
	{
		delivery->redelivery = MemoryContextAllocZero(delivery->context, sizeof(Redelivery));
		delivery->redelivery->delivery = delivery;
	}
	delivery->redelivery->look_due = true;
}

static DeliveryAction
DecideRedelivery(Redelivery *redelivery, const DeliveryEvent *event)
{
	const SinkOptions *options = redelivery->delivery->sink->options;
	DeliveryPolicy policy = {options->retry_initial, options->retry_max, 1};

	redelivery->status.enabled = redelivery->delivery->status.enabled;
	return DecideDelivery(&redelivery->status, event, &policy);
}

bool
RedeliveryIsDue(const Delivery *delivery, TimestampTz now)
{
	const Redelivery *redelivery = delivery->redelivery;

	if (redelivery == NULL || !delivery->keeps_refusals || delivery->reload_due ||
		delivery->sink->options == NULL || delivery->look_again_at > now ||
		redelivery->attempt != NULL)
		return false;
	if (redelivery->status.flights.acknowledged > 0 || redelivery->error_due)
		return true;
	if (!delivery->status.enabled)
		return false;
	return redelivery->letter != NULL ? redelivery->status.retry_at <= now : redelivery->look_due;
}

TimestampTz
RedeliveryDueAt(const Delivery *delivery)
{
	const Redelivery *redelivery = delivery->redelivery;

	if (redelivery == NULL || redelivery->letter == NULL || redelivery->attempt != NULL ||
		!delivery->status.enabled)
		return 0;
	return redelivery->status.retry_at;
}

static void
LookStep(Redelivery *redelivery)
{
	Delivery   *delivery = redelivery->delivery;

	redelivery->next_context = AllocSetContextCreate(delivery->context, "incsink redelivery",
													 ALLOCSET_SMALL_SIZES);
	redelivery->next = LoadRedelivery(delivery->sink_id, delivery->partition_id,
									  redelivery->next_context);
	redelivery->stage = STAGE_LOOKED;
}

/* As for a batch: where the sink may point, and its secret, both as they are now. */
static void
PrepareAttempt(Redelivery *redelivery)
{
	const SinkDefinition *sink = redelivery->delivery->sink;
	DeadLetter *letter = redelivery->letter;
	Batch	   *batch = &redelivery->batch;
	const Encoding *encoding;
	MemoryContext old;

	if (redelivery->attempt_context != NULL)
		MemoryContextDelete(redelivery->attempt_context);
	redelivery->attempt_context = AllocSetContextCreate(redelivery->context, "incsink attempt",
														ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(redelivery->attempt_context);
	CheckSinkRights(sink->url, sink->owner);
	batch->credentials = sink->credentials == NULL ? NULL :
		LoadCredentials(sink->credentials, sink->owner, sink->url);
	encoding = ParseEncoding(letter->intent.encoding);
	batch->encoder = encoding->encoder;
	batch->content_type = encoding->encoder->content_type;
	batch->content_encoding = encoding->compression ? encoding->compression->name : NULL;
	MemoryContextSwitchTo(old);
	redelivery->body.data = letter->body;
	redelivery->body.length = letter->length;
	Sha256Hex(letter->body, letter->length, redelivery->digest);
}

static void
AttemptLetter(Redelivery *redelivery)
{
	PrepareAttempt(redelivery);
	INCSINK_POINT("before-redelivery");
	redelivery->stage = NoteRedelivery(redelivery->letter) ? STAGE_NOTED : STAGE_ENDED;
}

static void
FinishLetter(Redelivery *redelivery)
{
	INCSINK_POINT("before-redelivered");
	(void) FinishRedelivery(redelivery->letter);	/* discarded meanwhile: as well */
	redelivery->stage = STAGE_ENDED;
}

static void
RecordLetterError(Redelivery *redelivery)
{
	NoteRedeliveryError(redelivery->letter, redelivery->error, redelivery->stops);
	redelivery->stage = redelivery->stops ? STAGE_ENDED : STAGE_ERROR;
}

void
RedeliverStep(Delivery *delivery, TimestampTz now)
{
	Redelivery *redelivery = delivery->redelivery;

	if (!LockDelivery(delivery, now))
		return;
	NoteNotBusy(delivery);
	if (redelivery->letter == NULL)
		LookStep(redelivery);
	else if (redelivery->status.flights.acknowledged > 0)
		FinishLetter(redelivery);
	else if (redelivery->error_due)
		RecordLetterError(redelivery);
	else
		AttemptLetter(redelivery);
}

static void
SetCounts(Redelivery *redelivery, int standing, int sending, int acknowledged)
{
	FlightCounts counts = {
		.standing = standing,
		.failed = standing,
		.sending = sending,
		.acknowledged = acknowledged,
		.leading = acknowledged,
	};

	redelivery->status.flights = counts;
}

/* What is refused again rests, until somebody asks for it again. */
static void
TakeLetterVerdict(Redelivery *redelivery, const Verdict *verdict)
{
	bool		acknowledged = verdict->class == VERDICT_ACKNOWLEDGED;
	DeliveryEvent event = {
		.type = EVENT_VERDICT,
		.now = GetCurrentTimestamp(),
		.verdict = verdict->class,
		.retry_after = verdict->retry_after,
		.fraction = pg_prng_double(&pg_global_prng_state),
	};

	redelivery->attempt = NULL;
	SetCounts(redelivery, !acknowledged, 0, acknowledged);
	(void) DecideRedelivery(redelivery, &event);
	deliveries_have_news = true;
	if (acknowledged)
		return;
	redelivery->may_be_stored |= !verdict->sure;
	redelivery->stops = verdict->class == VERDICT_REJECTED || verdict->class == VERDICT_TOO_LARGE;
	strlcpy(redelivery->error, verdict->message, sizeof(redelivery->error));
	redelivery->error_due = true;
}

static void
LetterDone(void *arg, const Verdict *verdict)
{
	TakeLetterVerdict(arg, verdict);
}

/* Nothing has left: it could not be read or recorded, or the definition cannot work. */
void
RedeliveryFailed(Delivery *delivery, const ErrorData *error)
{
	Redelivery *redelivery = delivery->redelivery;
	Verdict		verdict = {.class = VERDICT_RETRY, .sure = true};

	RedeliveryAborted(delivery);
	if (redelivery->letter == NULL || redelivery->status.flights.acknowledged > 0 ||
		redelivery->error_due)
	{
		NoteLockTimeout(delivery, GetCurrentTimestamp());
		return;					/* it is still due */
	}
	ClipText(verdict.message, error->message, sizeof(verdict.message));
	TakeLetterVerdict(redelivery, &verdict);
}

static void
SendLetter(Redelivery *redelivery)
{
	Delivery   *delivery = redelivery->delivery;
	Batch	   *batch = &redelivery->batch;
	MemoryContext old = CurrentMemoryContext;
	DeliveryEvent event = {.type = EVENT_COMMITTED};

	batch->sink = delivery->sink;
	batch->partition = delivery->run->partition;
	batch->intent = &redelivery->letter->intent;
	batch->body = &redelivery->body;
	batch->digest = redelivery->digest;
	batch->rows = redelivery->letter->intent.row_count;
	batch->may_be_stored = redelivery->may_be_stored;
	batch->owner = redelivery->attempt_context;
	SetCounts(redelivery, 0, 1, 0);
	(void) DecideRedelivery(redelivery, &event);
	PG_TRY();
	{
		redelivery->attempt = delivery->kind->start(delivery->pool, batch, LetterDone, redelivery);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		FlushErrorState();
		RedeliveryFailed(delivery, error);
		FreeErrorData(error);
	}
	PG_END_TRY();
}

static void
DropLetter(Redelivery *redelivery)
{
	if (redelivery->context != NULL)
		MemoryContextDelete(redelivery->context);
	redelivery->context = redelivery->attempt_context = NULL;
	redelivery->letter = NULL;
	redelivery->error_due = redelivery->may_be_stored = false;
	memset(&redelivery->status, 0, sizeof(redelivery->status));
}

static void
TakeNext(Redelivery *redelivery)
{
	redelivery->look_due = false;
	redelivery->letter = redelivery->next;
	redelivery->context = redelivery->next_context;
	redelivery->next = NULL;
	redelivery->next_context = NULL;
	if (redelivery->letter == NULL)
		DropLetter(redelivery);
	else
		SetCounts(redelivery, 1, 0, 0);
}

bool
RedeliveryCommitted(Delivery *delivery)
{
	Redelivery *redelivery = delivery->redelivery;
	RedeliveryStage stage;

	if (redelivery == NULL || redelivery->stage == STAGE_NOTHING)
		return false;
	stage = redelivery->stage;
	redelivery->stage = STAGE_NOTHING;
	switch (stage)
	{
		case STAGE_LOOKED:
			TakeNext(redelivery);
			break;
		case STAGE_NOTED:
			SendLetter(redelivery);
			break;
		case STAGE_ENDED:
			DropLetter(redelivery);
			redelivery->look_due = true;
			break;
		case STAGE_ERROR:
			redelivery->error_due = false;
			break;
		case STAGE_NOTHING:
			break;
	}

	/* The delivery's own batches had no turn meanwhile. */
	return true;
}

void
RedeliveryAborted(Delivery *delivery)
{
	Redelivery *redelivery = delivery->redelivery;

	if (redelivery == NULL)
		return;
	redelivery->stage = STAGE_NOTHING;
	redelivery->next = NULL;
	if (redelivery->next_context != NULL)
		MemoryContextDelete(redelivery->next_context);
	redelivery->next_context = NULL;
}

void
RedeliveryFree(Delivery *delivery)
{
	Redelivery *redelivery = delivery->redelivery;

	if (redelivery != NULL && redelivery->attempt != NULL)
		HttpPoolCancel(delivery->pool, redelivery->attempt);
	delivery->redelivery = NULL;
}
