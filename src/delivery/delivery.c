/*
 * delivery.c
 *		The life of a delivery in memory: made, reloaded, due, destroyed.
 */
#include "postgres.h"

#include "catalog/delivery_state.h"
#include "common/settings.h"
#include "common/sql.h"
#include "delivery/delivery.h"
#include "delivery/steps.h"
#include "utils/memutils.h"

/* How long something that is locked, or memory that is short, is left alone. */
#define BUSY_PAUSE_MS 100
/* The same where looking has cost a wait (lock_timeout). */
#define LOCK_TIMEOUT_PAUSE_MS 1000

/*
 * From one batch to the next that is not full.  Where single rows are committed
 * without a pause, batches as small as the receiver is quick would cost the writers
 * more than their own commits; nobody sees 5 ms.
 */
#define FLUSH_PAUSE_MS 5

/* Bytes held for bodies by all deliveries of this process. */
static size_t memory_held = 0;

void
AccountBody(Delivery *delivery)
{
	memory_held += delivery->body.capacity;
	memory_held -= delivery->accounted;
	delivery->accounted = delivery->body.capacity;
}

void
ReleaseBody(Delivery *delivery)
{
	if (delivery->body.data != NULL)
		ByteBufferFree(&delivery->body);
	AccountBody(delivery);
	if (delivery->attempt_context != NULL)
		MemoryContextDelete(delivery->attempt_context);
	delivery->attempt_context = NULL;
	delivery->credentials = NULL;
}

char *
DeliveryFingerprint(const SinkDefinition *sink, const SinkTable *table)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "%s|%s|%s|%u|%s|%s|%s", sink->kind, sink->url,
					 sink->credentials ? sink->credentials : "", sink->owner,
					 JsonbToCString(NULL, &sink->raw_options->root, VARSIZE(sink->raw_options)),
					 table->epoch, table->filter ? table->filter : "");
	for (int i = 0; i < table->ncolumns; i++)
		appendStringInfo(&text, "|%s", table->columns[i]);
	return text.data;
}

Delivery *
DeliveryCreate(SinkDefinition *sink, SinkTable *table, PartitionRun *run, const SinkKind *kind,
			   HttpPool *pool)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "incsink delivery",
												  ALLOCSET_SMALL_SIZES);
	Delivery   *delivery = MemoryContextAllocZero(context, sizeof(Delivery));
	MemoryContext old = MemoryContextSwitchTo(context);

	delivery->context = context;
	delivery->sink_id = table->sink_id;
	delivery->partition_id = table->partition_id;
	delivery->sink = sink;
	delivery->table = table;
	delivery->run = run;
	delivery->kind = kind;
	delivery->pool = pool;
	delivery->pace = PaceAcquire(delivery->sink_id);
	delivery->fingerprint = DeliveryFingerprint(sink, table);
	delivery->reload_due = true;
	MemoryContextSwitchTo(old);
	return delivery;
}

/* Sets reason and hint, to be stored if "due"; strings are copied. */
void
SetReason(Delivery *delivery, const char *reason, const char *hint)
{
	if (delivery->reason != NULL)
		pfree(delivery->reason);
	if (delivery->hint != NULL)
		pfree(delivery->hint);
	delivery->reason = reason ? MemoryContextStrdup(delivery->context, reason) : NULL;
	delivery->hint = hint && *hint ? MemoryContextStrdup(delivery->context, hint) : NULL;
}

/* The same for a failure, which is also noted as the last error. */
void
SetFailure(Delivery *delivery, const char *reason, const char *hint)
{
	SetReason(delivery, reason, hint);
	if (delivery->error != NULL)
		pfree(delivery->error);
	delivery->error = MemoryContextStrdup(delivery->context, reason);
	delivery->record_due = true;
}

/* Halts for what neither time nor the receiver can mend. */
void
HaltDelivery(Delivery *delivery, const char *reason, const char *hint)
{
	delivery->status.state = DELIVERY_HALTED;
	delivery->status.retry_at = 0;
	delivery->status.failures = Max(delivery->status.failures, 1);
	SetFailure(delivery, reason, hint);
}

/* The batch in hand is done, or is to be read again. */
void
DropBatch(Delivery *delivery)
{
	if (delivery->batch_context != NULL)
		MemoryContextDelete(delivery->batch_context);
	delivery->batch_context = NULL;
	delivery->intent = NULL;
	delivery->encoding = NULL;
}

static void
ReloadBatch(Delivery *delivery)
{
	List	   *intents;

	ReleaseBody(delivery);
	DropBatch(delivery);
	delivery->batch_context = AllocSetContextCreate(delivery->context, "incsink batch",
													ALLOCSET_SMALL_SIZES);
	intents = LoadIntents(delivery->sink_id, delivery->partition_id,
						  delivery->batch_context);
	if (intents != NIL)
		delivery->intent = linitial(intents);
}

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

/* Makes that the watermark's position; its key is copied. */
void
KeepPosition(Delivery *delivery, Position position)
{
	Jsonb	   *old = delivery->position.key;

	if (position.key != NULL)
	{
		Jsonb	   *copy = MemoryContextAlloc(delivery->context, VARSIZE(position.key));

		memcpy(copy, position.key, VARSIZE(position.key));
		position.key = copy;
	}
	delivery->position = position;
	if (old != NULL)
		pfree(old);
}

/*
 * The intent begins where the last batch ended, and the watermark is not past it: an
 * acknowledgement will move it.
 */
static bool
IntentFits(const Delivery *delivery)
{
	const Intent *intent = delivery->intent;

	return strcmp(intent->epoch, delivery->epoch) == 0 &&
		ComparePositions(intent->since, delivery->sent) == 0 &&
		ComparePositions(intent->since, delivery->position) <= 0 &&
		ComparePositions(delivery->position, intent->until) < 0;
}

/* Does the delivery stand in front of rows that the table had when it was attached? */
bool
BacklogIsLeft(const Delivery *delivery, Position position)
{
	return delivery->run->partition->backlog != NULL && !BacklogIsOver(position);
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
	KeepPosition(delivery, watermark->position);
	delivery->sent = watermark->sent;
	if (delivery->row_bytes == 0 && watermark->rows_exported > 0)
		delivery->row_bytes = (double) watermark->bytes_exported / watermark->rows_exported;
	if (watermark->position.key != NULL)
		pfree(watermark->position.key);
	pfree(watermark);
	return true;
}

/*
 * A paused delivery is left as it is, whatever is wrong with it: it is read again, and
 * halts, when it is resumed.
 */
static void
ReloadFromCatalog(Delivery *delivery)
{
	bool		has_watermark;

	Assert(!delivery->status.in_flight);
	memset(&delivery->status, 0, sizeof(delivery->status));
	delivery->paced_until = 0;
	delivery->status.enabled = delivery->sink->enabled;
	ReloadRecord(delivery);
	ReloadBatch(delivery);
	delivery->status.has_intent = delivery->intent != NULL;
	has_watermark = ReloadPosition(delivery);
	if (!delivery->status.enabled)
		return;
	if (!has_watermark)
		HaltDelivery(delivery, "the watermark of this delivery is missing from incsink.watermark",
					 "Remove the table from the sink and add it again with the start you want.");
	else if (PositionLacksKey(delivery))
		HaltDelivery(delivery, "the watermark of this delivery lies inside the backlog and has no key",
					 "Remove the table from the sink and add it again with the start you want.");
	else if (delivery->intent != NULL && !IntentFits(delivery))
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

void
DeliveryDestroy(Delivery *delivery)
{
	if (delivery->attempt != NULL)
		HttpPoolCancel(delivery->pool, delivery->attempt);
	ReleaseBody(delivery);
	PaceRelease(delivery->pace);
	MemoryContextDelete(delivery->context);
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

/*
 * The triggers.  A backlog waits for nothing: it fills batches by itself.  Above it the
 * number of seqs between position and horizon is an upper bound of the rows that wait;
 * once a trigger has fired, everything up to the horizon of that moment goes, in as
 * many batches as it takes.  While the index on the numbers is being built they cannot
 * be read.
 */
bool
FlushIsDue(Delivery *delivery, Position position, TimestampTz now)
{
	const SinkOptions *options = delivery->sink->options;
	int64		horizon = delivery->run->tracker.horizon;
	int64		waiting = horizon - position.seq;

	if (delivery->run->readable && BacklogIsLeft(delivery, position))
		return true;
	if (!delivery->run->readable || delivery->run->partition->preparing || waiting <= 0)
	{
		delivery->waiting_since = 0;
		return false;
	}
	if (position.seq < delivery->flush_until)
		return true;
	if (delivery->waiting_since == 0)
		delivery->waiting_since = now;
	if (now < FlushTime(delivery) &&
		waiting < options->flush_rows &&
		waiting * delivery->row_bytes < options->flush_bytes &&
		!(options->flush_interval > 0 && FlushIsRequested(delivery->sink_id)))
		return false;
	delivery->flush_until = horizon;
	delivery->waiting_since = 0;
	return true;
}

/* Of a delivery that would cut now: may it, at the rates of its sink? */
bool
PaceAllows(Delivery *delivery, TimestampTz now)
{
	delivery->paced_until = PaceAsk(delivery->pace, delivery->sink->options,
									delivery->partition_id, delivery->cut_at, now);
	return delivery->paced_until == 0;
}

/* A delivery that holds nothing may always hold one batch if nobody holds any. */
static bool
MemoryIsShort(const Delivery *delivery)
{
	size_t		limit = (size_t) setting_buffer_memory * 1024;
	size_t		others = memory_held - delivery->accounted;

	return others > 0 && others + delivery->sink->options->flush_bytes > limit;
}

DeliveryAction
NextAction(Delivery *delivery, TimestampTz now)
{
	DeliveryEvent event = {.type = EVENT_TICK, .now = now};
	DeliveryAction action;

	delivery->paced_until = 0;
	if (delivery->sink->options == NULL)
		return ACTION_NONE;
	event.flush_due = !delivery->status.has_intent && delivery->status.enabled &&
		FlushIsDue(delivery, delivery->position, now);
	action = DecideDelivery(&delivery->status, &event, NULL);
	if (action == ACTION_CUT && !PaceAllows(delivery, now))
		return ACTION_NONE;
	return action;
}

/* Rows that take a number at or below the watermark would never be seen. */
static void
CheckPosition(Delivery *delivery)
{
	int64		last_drawn = delivery->run->last_drawn;
	int64		highest = delivery->position.seq;

	if (delivery->intent != NULL)
		highest = Max(highest, delivery->intent->until.seq);
	if (!delivery->status.enabled || !delivery->run->readable || highest <= last_drawn ||
		delivery->status.state == DELIVERY_HALTED)
		return;
	HaltDelivery(delivery,
				 psprintf("the watermark of this delivery stands at " INT64_FORMAT ", above " INT64_FORMAT ", the last number drawn",
						  highest, last_drawn),
				 "If the sequence of the table was set back, call incsink_confirm_sequence() and then incsink_resume_sink(). Otherwise remove the table from the sink and add it again with the start you want.");
}

bool
DeliveryIsDue(Delivery *delivery, TimestampTz now)
{
	DeliveryAction action;

	if (delivery->status.in_flight || delivery->look_again_at > now)
		return false;
	delivery->look_again_at = 0;
	CheckPosition(delivery);
	if (delivery->record_due || delivery->reload_due)
		return true;
	action = NextAction(delivery, now);
	if (action == ACTION_NONE)
		return false;
	if (action == ACTION_ATTEMPT && !delivery->run->readable)
		return false;
	if (action != ACTION_ADVANCE && MemoryIsShort(delivery))
	{
		delivery->look_again_at = TimestampTzPlusMilliseconds(now, BUSY_PAUSE_MS);
		return false;
	}
	return true;
}

bool
DeliveryHasNews(const Delivery *delivery, TimestampTz now)
{
	if (delivery->status.in_flight || delivery->look_again_at > now)
		return false;
	return delivery->status.acknowledged || delivery->record_due || delivery->reload_due;
}

TimestampTz
DeliveryDueAt(const Delivery *delivery)
{
	TimestampTz due = 0;

	if (delivery->status.in_flight || delivery->sink->options == NULL || !delivery->status.enabled)
		return 0;
	if (delivery->look_again_at > 0)
		due = delivery->look_again_at;
	else if (!delivery->run->readable)
		due = 0;				/* that is looked at every poll interval */
	else if (delivery->paced_until > 0)
		due = delivery->paced_until;
	else if (delivery->waiting_since > 0 && !delivery->status.has_intent)
		due = Max(FlushTime(delivery), delivery->status.retry_at);
	else if (delivery->status.has_intent || delivery->position.seq < delivery->flush_until ||
			 BacklogIsLeft(delivery, delivery->position))
		due = delivery->status.retry_at;
	return due;
}

/*
 * Skips this delivery for a moment.  A lock that stays is shown, once; locks that
 * come and go cost no write.  Without a reason it is one on a row of the catalog.
 */
void
NoteBusy(Delivery *delivery, TimestampTz now, const char *reason)
{
	delivery->look_again_at = TimestampTzPlusMilliseconds(now, BUSY_PAUSE_MS);
	if (delivery->busy_since == 0)
		delivery->busy_since = now;
	if (delivery->busy_recorded || delivery->has_record ||
		now < TimestampTzPlusMilliseconds(delivery->busy_since, 1000))
		return;
	SetReason(delivery, reason ? reason : "a row of its catalog tables is locked by another session",
			  NULL);
	delivery->busy_row = reason == NULL;
	delivery->busy_recorded = true;
	delivery->record_due = true;
}

void
NoteLockTimeout(Delivery *delivery, TimestampTz now)
{
	NoteBusy(delivery, now, NULL);
	delivery->look_again_at = TimestampTzPlusMilliseconds(now, LOCK_TIMEOUT_PAUSE_MS);
}

void
NoteNotBusy(Delivery *delivery)
{
	delivery->busy_since = 0;
	delivery->look_again_at = 0;
	if (!delivery->busy_recorded)
		return;
	SetReason(delivery, NULL, NULL);
	delivery->busy_recorded = false;
	delivery->record_due = true;
}
