/*
 * delivery.c
 *		The life of a delivery in memory: made, redefined, halted, busy, destroyed.
 */
#include "postgres.h"

#include "delivery/delivery.h"
#include "delivery/redeliver.h"
#include "delivery/steps.h"
#include "utils/memutils.h"

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
	dlist_init(&delivery->flights);
	delivery->max_in_flight = 1;
	delivery->reload_due = true;
	LookForRedelivery(delivery);
	MemoryContextSwitchTo(old);
	return delivery;
}

void
DeliveryRedefine(Delivery *delivery, SinkDefinition *sink, SinkTable *table, PartitionRun *run)
{
	const FlightCounts *flights = &delivery->status.flights;

	delivery->sink = sink;
	delivery->table = table;
	delivery->run = run;
	delivery->status.enabled = sink->enabled;

	/* The sequence may have been set back and confirmed: what was empty may fill. */
	ForgetReadPosition(delivery);
	LookForRedelivery(delivery);
	if (delivery->record_due)
		return;
	if ((flights->sending == 0 && flights->leading == 0) || delivery->status.state == DELIVERY_HALTED)
		delivery->reload_due = true;
}

void
DeliveryDestroy(Delivery *delivery)
{
	DropFlights(delivery, CountFlights(&delivery->status));
	RedeliveryFree(delivery);
	PaceRelease(delivery->pace);
	MemoryContextDelete(delivery->context);
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

/* The same for a failure, which is also noted as the last error, of a batch or of none. */
void
SetFailure(Delivery *delivery, const Flight *flight, const char *reason, const char *hint)
{
	SetReason(delivery, reason, hint);
	if (delivery->error != NULL)
		pfree(delivery->error);
	delivery->error = MemoryContextStrdup(delivery->context, reason);
	strlcpy(delivery->error_batch, flight ? flight->intent->batch_id : "",
			sizeof(delivery->error_batch));
	delivery->record_due = true;
}

/* Halts for what neither time nor the receiver can mend. */
void
HaltDelivery(Delivery *delivery, const char *reason, const char *hint)
{
	delivery->status.state = DELIVERY_HALTED;
	delivery->status.retry_at = 0;
	delivery->status.failures = Max(delivery->status.failures, 1);
	SetFailure(delivery, FirstFlight(delivery), reason, hint);
}

void
LeaveAlone(Delivery *delivery, TimestampTz now, int milliseconds)
{
	delivery->look_again_at = TimestampTzPlusMilliseconds(now, milliseconds);
}

/*
 * Skips this delivery for a moment.  A lock that stays is shown, once; locks that
 * come and go cost no write.  Without a reason it is one on a row of the catalog.
 */
void
NoteBusy(Delivery *delivery, TimestampTz now, const char *reason)
{
	LeaveAlone(delivery, now, BUSY_PAUSE_MS);
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
	LeaveAlone(delivery, now, LOCK_TIMEOUT_PAUSE_MS);
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
