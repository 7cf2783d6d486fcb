/*
 * cut.c
 *		What reads rows: new batches, and new attempts of those that stand.
 */
#include "postgres.h"

#include "catalog/sink.h"
#include "common/inject.h"
#include "common/lock_holder.h"
#include "delivery/reject.h"
#include "delivery/steps.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * The longest that a cut reads: what a filter passes over takes time and fills no
 * batch.  Blob batches are large, and nobody in their worker is in a hurry.
 */
#define FORWARD_READ_MS 100
#define BLOB_READ_MS 5000

/*
 * After EncodeRange: digest, memory, where the sink may point and its secret, both as
 * they are now.
 */
static void
FinishBody(Flight *flight, const EncodedRange *range)
{
	Delivery   *delivery = flight->delivery;
	const char *server = delivery->sink->credentials;

	AccountBody(flight);
	flight->body_rows = range->rows;
	Sha256Hex(flight->body.data, flight->body.length, flight->digest);
	delivery->row_bytes = (double) range->bytes / range->rows;

	if (flight->attempt_context != NULL)
		MemoryContextDelete(flight->attempt_context);
	flight->attempt_context = AllocSetContextCreate(flight->context, "incsink attempt",
													  ALLOCSET_SMALL_SIZES);
	flight->credentials = NULL;
	CheckSinkRights(delivery->sink->url, delivery->sink->owner);
	if (server != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(flight->attempt_context);

		flight->credentials = LoadCredentials(server, delivery->sink->owner, delivery->sink->url);
		MemoryContextSwitchTo(old);
	}
}

/* False if the table is locked or was dropped this turn. */
bool
EncodeBody(Flight *flight, TimestampTz now, Position since, Position until, RangeLimits limits,
		   EncodedRange *range)
{
	Delivery   *delivery = flight->delivery;

	PrepareBody(flight);
	*range = EncodeRange(delivery->run->partition, delivery->sink->owner, flight->encoding,
						 since, until, limits, &flight->body);
	if (range->status == READER_OK)
		return true;
	NoteBusy(delivery, now, range->status == READER_BUSY
			 ? DescribeLockHolder(ReaderBusyRelation())
			 : "its table or the table's index is gone");
	return false;
}

/*
 * How new batches are encoded, made once: a delivery is of one definition.  By way of its
 * stored form: nothing then points into definitions that go.
 */
static const Encoding *
CurrentEncoding(Delivery *delivery)
{
	Encoding	encoding = {0};
	MemoryContext old;

	if (delivery->encoding != NULL)
		return delivery->encoding;
	SetSinkEncoding(&encoding, delivery->sink, delivery->run->partition);
	encoding.columns = delivery->table->columns;
	encoding.ncolumns = delivery->table->ncolumns;
	encoding.filter = delivery->table->filter;
	old = MemoryContextSwitchTo(delivery->context);
	delivery->encoding_json = FormatEncoding(&encoding);
	delivery->encoding = ParseEncoding(delivery->encoding_json);
	MemoryContextSwitchTo(old);
	return delivery->encoding;
}

/* Without a key: a label. */
static Position
EndOfLastBatch(const Delivery *delivery)
{
	const Flight *last = LastFlight(delivery);
	Position	end = last ? last->intent->until : delivery->sent;

	end.key = NULL;
	return end;
}

/*
 * The range begins where the last batch ended: numbers without a row to export that
 * the watermark has passed since then are taken in, so that names follow each other.
 */
static Intent *
MakeIntent(const Flight *flight, const EncodedRange *range, const char *epoch)
{
	const Delivery *delivery = flight->delivery;
	Intent	   *intent = palloc0(sizeof(Intent));
	Batch		batch = {0};

	intent->sink_id = delivery->sink_id;
	intent->partition_id = delivery->partition_id;
	intent->destination = FRONT_DESTINATION;
	intent->epoch = pstrdup(epoch);
	intent->since = EndOfLastBatch(delivery);
	intent->until = range->until;
	intent->row_count = range->rows;
	intent->byte_count = flight->body.length;
	intent->digests = palloc(sizeof(char *));
	intent->digests[0] = pstrdup(flight->digest);
	intent->ndigests = 1;
	intent->encoding = delivery->encoding_json;
	intent->trigger = flight->memory_is_short ? FLUSH_MEMORY : delivery->trigger;
	intent->created_at = GetCurrentTimestamp();
	intent->batch_id = MakeBatchId(intent);

	batch.sink = delivery->sink;
	batch.partition = delivery->run->partition;
	batch.intent = intent;
	batch.encoder = flight->encoding->encoder;
	intent->object_key = delivery->kind->object_key(&batch);
	return intent;
}

bool
EpochIsCurrent(const Delivery *delivery)
{
	return strcmp(delivery->epoch, delivery->table->epoch) == 0;
}

/* The first batch of a new epoch waits until no intent of the old one is left. */
static void
BeginEpochOfCut(Delivery *delivery)
{
	if (EpochIsCurrent(delivery))
		return;
	if (!BeginEpoch(delivery->sink_id, delivery->partition_id,
					delivery->epoch, delivery->table->epoch))
		RaiseFenced(delivery);
	delivery->staged.epoch = delivery->table->epoch;
}

static const char *
EpochOfCut(const Delivery *delivery)
{
	return delivery->staged.epoch ? delivery->staged.epoch : delivery->epoch;
}

/* Makes a batch of what EncodeBody has filled. */
static void
FinishBatch(Flight *flight, const EncodedRange *range)
{
	Delivery   *delivery = flight->delivery;

	FinishBody(flight, range);
	PaceBook(delivery->pace, delivery->sink->options, range->rows, flight->body.length,
			 GetCurrentTimestamp());
	flight->intent = MakeIntent(flight, range, EpochOfCut(delivery));
}

/* A read behind batches that stand found nothing: memory keeps that until they are gone. */
static void
StageRead(Delivery *delivery, Position since, Position until)
{
	if (ComparePositions(since, until) >= 0 && BacklogIsOver(until) == BacklogIsOver(since))
		return;
	delivery->staged.read = true;
	delivery->staged.read_position = until;
}

static RangeLimits
CutLimits(const Delivery *delivery, TimestampTz now)
{
	int64		allowed = Max(MemoryForCut(delivery, now), 1);
	RangeLimits limits = {
		.rows = delivery->sink->options->flush_rows,
		.bytes = Min(delivery->sink->options->flush_bytes, allowed),
		.milliseconds = delivery->kind->class == WORKER_FORWARD ? FORWARD_READ_MS : BLOB_READ_MS,
	};

	PaceLimitBatch(delivery->sink->options, &limits);
	return limits;
}

/* Would it have gone on, but for the memory? */
static bool
IsCutByMemory(const Delivery *delivery, const RangeLimits *limits, const EncodedRange *range,
			  Position until)
{
	RangeLimits wanted = *limits;

	wanted.bytes = delivery->sink->options->flush_bytes;
	PaceLimitBatch(delivery->sink->options, &wanted);
	if (limits->bytes >= wanted.bytes || range->rows >= limits->rows)
		return false;
	if (ComparePositions(until, POSITION_BACKLOG_END) == 0)
		return !BacklogIsOver(range->until);
	return ComparePositions(range->until, until) < 0;
}

void
CutRead(Delivery *delivery, TimestampTz now)
{
	StagedStep *staged = &delivery->staged;
	Position	since = ReadPosition(delivery);
	Position	until = {.seq = delivery->run->tracker.horizon};
	RangeLimits limits = CutLimits(delivery, now);
	EncodedRange range;
	Flight	   *flight;
	MemoryContext old;

	if (BacklogIsLeft(delivery, since))
		until = POSITION_BACKLOG_END;
	flight = staged->cut = FlightCreate(delivery);
	flight->encoding = CurrentEncoding(delivery);
	old = MemoryContextSwitchTo(flight->context);
	if (EncodeBody(flight, now, since, until, limits, &range))
	{
		NoteNotBusy(delivery);
		flight->memory_is_short = IsCutByMemory(delivery, &limits, &range, until);
		if (range.rows > 0)
			FinishBatch(flight, &range);
		staged->unrecorded = true;
		staged->cut_since = since;
		staged->cut_until = range.until;
	}
	MemoryContextSwitchTo(old);
}

void
CutRecord(Delivery *delivery, TimestampTz now)
{
	StagedStep *staged = &delivery->staged;

	if (staged->cut->intent != NULL)
	{
		INCSINK_POINT("before-intent");
		if (!InsertIntent(staged->cut->intent, staged->cut_since))
			RaiseFenced(delivery);
	}
	else if (FlightsAreLeft(delivery))
		StageRead(delivery, staged->cut_since, staged->cut_until);
	else
		StagePassed(delivery, EpochOfCut(delivery), staged->cut_since, staged->cut_until);
	staged->unrecorded = false;
}

void
CutStep(Delivery *delivery, TimestampTz now)
{
	if (!LockDelivery(delivery, now))
		return;
	BeginEpochOfCut(delivery);
	CutRead(delivery, now);
	if (delivery->staged.unrecorded)
		CutRecord(delivery, now);
}

/* In what it was cut with, whatever the sink's definition is by now. */
static void
TakeIntentsEncoding(Flight *flight)
{
	MemoryContext old;

	if (flight->encoding != NULL)
		return;
	old = MemoryContextSwitchTo(flight->context);
	flight->encoding = ParseEncoding(flight->intent->encoding);
	MemoryContextSwitchTo(old);
}

/*
 * Where the rows of a batch that stands begin: with the first one, at the watermark,
 * since numbers that it has passed since the last batch held no row then.
 */
Position
BeginningOf(Flight *flight)
{
	const Flight *previous = PreviousFlight(flight);

	return previous ? previous->intent->until : flight->delivery->position;
}

/*
 * The range of the lowest intent that stands again, under its id.  If no row of it is left
 * nothing is sent, and nothing noted of it: the kind takes away what an attempt before may
 * have begun.
 */
void
AttemptStep(Delivery *delivery, TimestampTz now)
{
	Flight	   *flight = LowestStanding(delivery);
	EncodedRange range;

	if (!LockDelivery(delivery, now))
		return;
	TakeIntentsEncoding(flight);
	if (RemedyIsDue(delivery))
	{
		ApplyRemedy(flight, now);
		return;
	}
	if (!EncodeBody(flight, now, BeginningOf(flight), flight->intent->until, NO_LIMITS, &range))
		return;
	NoteNotBusy(delivery);
	MemoryLeaveLine(delivery);
	delivery->staged.attempted = flight;
	flight->body_rows = 0;
	if (range.rows == 0)
		return;
	FinishBody(flight, &range);
	INCSINK_POINT("before-attempt");
	if (!NoteAttempt(flight->intent, range.rows, flight->body.length, flight->digest))
		RaiseFenced(delivery);
}
