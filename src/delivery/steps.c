/*
 * steps.c
 *		What a delivery does in the catalog, each step in a subtransaction.
 */
#include "postgres.h"

#include "catalog/delivery_state.h"
#include "common/inject.h"
#include "common/lock_holder.h"
#include "common/sql.h"
#include "common/subtransaction.h"
#include "common/text.h"
#include "delivery/steps.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * The longest that a cut reads: what a filter passes over takes time and fills no
 * batch.  Blob batches are large, and nobody in their worker is in a hurry.
 */
#define FORWARD_READ_MS 100
#define BLOB_READ_MS 5000

typedef void (*StepFunction) (Delivery *delivery, TimestampTz now);

/* The watermark's position and epoch as this transaction will leave them. */
static Position
StagedPosition(const Delivery *delivery)
{
	if (delivery->staged.advanced || delivery->staged.passed)
		return delivery->staged.position;
	return delivery->position;
}

/*
 * Raised where the catalog has moved on without this process: somebody reset or
 * dropped, or another process works on the delivery.  The catalog is right.
 */
static void
RaiseFenced(const Delivery *delivery)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("sink \"%s\" was changed while a batch was in flight", delivery->sink->name)));
}

/* Locks the row that stands for this delivery's watermarks and intents. */
static bool
LockDelivery(Delivery *delivery, TimestampTz now)
{
	if (LockSinkTable(delivery->sink_id, delivery->partition_id, true))
		return true;
	NoteBusy(delivery, now, NULL);
	return false;
}

/* Says nothing more of an earlier failure once things work. */
static void
ClearRecord(Delivery *delivery)
{
	DeliveryRecord nothing = {0};

	if (!delivery->has_record)
		return;
	StoreDeliveryRecord(delivery->sink_id, delivery->partition_id, &nothing);
}

static void
Acknowledge(Delivery *delivery)
{
	INCSINK_POINT("before-acknowledge");
	if (!AcknowledgeIntent(delivery->intent))
		RaiseFenced(delivery);
	ClearRecord(delivery);
	delivery->staged.advanced = true;
	delivery->staged.position = delivery->intent->until;
}

static void
AdvanceStep(Delivery *delivery, TimestampTz now)
{
	if (!LockDelivery(delivery, now))
		return;
	Acknowledge(delivery);
	NoteNotBusy(delivery);
}

/*
 * After EncodeRange: digest, memory, where the sink may point and its secret, both as
 * they are now.
 */
static void
FinishBody(Delivery *delivery, const EncodedRange *range)
{
	const char *server = delivery->sink->credentials;

	AccountBody(delivery);
	delivery->body_rows = range->rows;
	Sha256Hex(delivery->body.data, delivery->body.length, delivery->digest);
	delivery->row_bytes = (double) delivery->body.length / range->rows;

	if (delivery->attempt_context != NULL)
		MemoryContextDelete(delivery->attempt_context);
	delivery->attempt_context = AllocSetContextCreate(delivery->context, "incsink attempt",
													  ALLOCSET_SMALL_SIZES);
	delivery->credentials = NULL;
	CheckSinkRights(delivery->sink->url, delivery->sink->owner);
	if (server != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(delivery->attempt_context);

		delivery->credentials = LoadCredentials(server, delivery->sink->owner, delivery->sink->url);
		MemoryContextSwitchTo(old);
	}
}

/* False if the table is locked or was dropped this turn. */
static bool
EncodeBody(Delivery *delivery, TimestampTz now, const Encoding *encoding, Position since,
		   Position until, RangeLimits limits, EncodedRange *range)
{
	if (delivery->body.data == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(delivery->context);

		ByteBufferInit(&delivery->body, 64 * 1024);
		MemoryContextSwitchTo(old);
	}
	ByteBufferReset(&delivery->body);
	*range = EncodeRange(delivery->run->partition, delivery->sink->owner, encoding, since, until,
						 limits, &delivery->body);
	if (range->status == READER_OK)
		return true;
	NoteBusy(delivery, now, range->status == READER_BUSY
			 ? DescribeLockHolder(ReaderBusyRelation())
			 : "its table or the table's index is gone");
	return false;
}

static const Encoding *
CurrentEncoding(const Delivery *delivery)
{
	Encoding   *encoding = palloc0(sizeof(Encoding));

	encoding->encoder = EncoderForFormat(delivery->sink->options->format);
	encoding->columns = delivery->table->columns;
	encoding->ncolumns = delivery->table->ncolumns;
	encoding->filter = delivery->table->filter;
	/* by way of its stored form: nothing then points into definitions that go */
	return ParseEncoding(FormatEncoding(encoding));
}

/*
 * The range begins where the last batch ended: numbers without a row to export that
 * the watermark has passed since then are taken in, so that names follow each other.
 */
static Intent *
MakeIntent(Delivery *delivery, const Encoding *encoding, const EncodedRange *range,
		   const char *epoch)
{
	Intent	   *intent = palloc0(sizeof(Intent));
	Batch		batch = {0};

	intent->sink_id = delivery->sink_id;
	intent->partition_id = delivery->partition_id;
	intent->destination = FRONT_DESTINATION;
	intent->epoch = pstrdup(epoch);
	intent->since = delivery->staged.advanced ? delivery->intent->until : delivery->sent;
	intent->since.key = NULL;	/* a label: reading begins at the watermark */
	intent->until = range->until;
	intent->row_count = range->rows;
	intent->byte_count = delivery->body.length;
	intent->digests = palloc(sizeof(char *));
	intent->digests[0] = pstrdup(delivery->digest);
	intent->ndigests = 1;
	intent->encoding = FormatEncoding(encoding);
	intent->created_at = GetCurrentTimestamp();
	intent->batch_id = MakeBatchId(intent);

	batch.sink = delivery->sink;
	batch.partition = delivery->run->partition;
	batch.intent = intent;
	batch.encoder = encoding->encoder;
	intent->object_key = delivery->kind->object_key(&batch);
	return intent;
}

/* The first batch of a new epoch waits until no intent of the old one is left. */
static const char *
EpochForCut(Delivery *delivery)
{
	if (strcmp(delivery->epoch, delivery->table->epoch) == 0)
		return delivery->epoch;
	if (!BeginEpoch(delivery->sink_id, delivery->partition_id,
					delivery->epoch, delivery->table->epoch))
		RaiseFenced(delivery);
	delivery->staged.epoch = delivery->table->epoch;
	return delivery->table->epoch;
}

/* Stages a batch that EncodeBody has filled: its intent is inserted. */
static void
StageBatch(Delivery *delivery, const Encoding *encoding, const EncodedRange *range,
		   const char *epoch)
{
	StagedStep *staged = &delivery->staged;

	FinishBody(delivery, range);
	PaceBook(delivery->pace, delivery->sink->options, range->rows, delivery->body.length,
			 GetCurrentTimestamp());
	staged->intent = MakeIntent(delivery, encoding, range, epoch);
	staged->encoding = encoding;
	INCSINK_POINT("before-intent");
	if (!InsertIntent(staged->intent, StagedPosition(delivery)))
		RaiseFenced(delivery);
	staged->committed = true;
}

/*
 * A read that found no row to export moves the watermark by itself.  One that was ended
 * by the clock before its first row moves nothing, and comes again.
 */
static void
StagePassed(Delivery *delivery, const char *epoch, Position since, Position until)
{
	bool		moved = ComparePositions(since, until) < 0;
	int64		sink_id = delivery->sink_id;
	int64		partition_id = delivery->partition_id;

	if (!moved && BacklogIsOver(until) == BacklogIsOver(since))
		return;
	if (moved ? !PassEmptyRange(sink_id, partition_id, epoch, since, until)
		: !FinishBacklog(sink_id, partition_id, epoch, since))
		RaiseFenced(delivery);
	ClearRecord(delivery);
	delivery->staged.passed = true;
	delivery->staged.position = until;
}

static RangeLimits
CutLimits(const Delivery *delivery)
{
	RangeLimits limits = {
		.rows = delivery->sink->options->flush_rows,
		.bytes = delivery->sink->options->flush_bytes,
		.milliseconds = delivery->kind->class == WORKER_FORWARD ? FORWARD_READ_MS : BLOB_READ_MS,
	};

	PaceLimitBatch(delivery->sink->options, &limits);
	return limits;
}

static void
CutStep(Delivery *delivery, TimestampTz now)
{
	Position	since = StagedPosition(delivery);
	Position	until = {.seq = delivery->run->tracker.horizon};
	EncodedRange range;
	const Encoding *encoding;
	const char *epoch;
	MemoryContext old;

	if (!LockDelivery(delivery, now))
		return;
	if (BacklogIsLeft(delivery, since))
		until = POSITION_BACKLOG_END;
	epoch = EpochForCut(delivery);
	delivery->staged.context = AllocSetContextCreate(delivery->context, "incsink batch",
													 ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(delivery->staged.context);
	encoding = CurrentEncoding(delivery);
	if (EncodeBody(delivery, now, encoding, since, until, CutLimits(delivery), &range))
	{
		NoteNotBusy(delivery);
		if (range.rows > 0)
			StageBatch(delivery, encoding, &range, epoch);
		else
			StagePassed(delivery, epoch, since, range.until);
	}
	MemoryContextSwitchTo(old);
}

/*
 * The intent's range again, under its id, read from the watermark: numbers that it has
 * passed since the last batch held no row then.  If no row of it is left nothing is sent,
 * and nothing noted of it: the kind takes away what an attempt before may have begun.
 */
static void
AttemptStep(Delivery *delivery, TimestampTz now)
{
	EncodedRange range;

	if (!LockDelivery(delivery, now))
		return;
	if (delivery->encoding == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(delivery->batch_context);

		delivery->encoding = ParseEncoding(delivery->intent->encoding);
		MemoryContextSwitchTo(old);
	}
	if (!EncodeBody(delivery, now, delivery->encoding, delivery->position,
					delivery->intent->until, NO_LIMITS, &range))
		return;
	NoteNotBusy(delivery);
	delivery->staged.committed = true;
	delivery->body_rows = 0;
	if (range.rows == 0)
		return;
	FinishBody(delivery, &range);
	INCSINK_POINT("before-attempt");
	if (!NoteAttempt(delivery->intent, range.rows, delivery->body.length, delivery->digest))
		RaiseFenced(delivery);
}

static void
ReloadStep(Delivery *delivery, TimestampTz now)
{
	DeliveryReload(delivery);
	delivery->staged.reloaded = true;
}

/* Names who has locked one of its rows, by the transaction that stands in the row. */
static void
NameRowHolder(Delivery *delivery)
{
	if (SqlRun("SELECT COALESCE('process ' OPERATOR(pg_catalog.||) l.pid, 'a prepared transaction') FROM ("
			   "SELECT xmax FROM incsink.sink_table_def WHERE sink_id = $1 AND partition_id = $2"
			   " UNION ALL SELECT xmax FROM incsink.watermark WHERE sink_id = $1 AND partition_id = $2"
			   " UNION ALL SELECT xmax FROM incsink.intent WHERE sink_id = $1 AND partition_id = $2"
			   " UNION ALL SELECT xmax FROM incsink.delivery_state WHERE sink_id = $1 AND partition_id = $2) r"
			   " JOIN pg_catalog.pg_locks l ON l.locktype = 'transactionid' AND l.granted"
			   " AND l.transactionid = r.xmax"
			   " WHERE l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() LIMIT 1",
			   SqlInt8(delivery->sink_id), SqlInt8(delivery->partition_id)) > 0)
		SetReason(delivery, psprintf("a row of its catalog tables is locked by %s",
									 SqlGetText(0, 1, CurrentMemoryContext)), NULL);
}

/*
 * Has this turn got past the failure that is to be recorded?  Memory forgets it with the
 * commit, and nothing would take it out of the catalog again.  Its error stays the last.
 */
static bool
IsOvercome(const Delivery *delivery)
{
	return (delivery->staged.advanced || delivery->staged.passed) && !delivery->busy_recorded;
}

static void
RecordStep(Delivery *delivery, TimestampTz now)
{
	DeliveryRecord record = {0};

	if (delivery->busy_recorded && delivery->busy_row)
		NameRowHolder(delivery);
	if (!IsOvercome(delivery))
	{
		if (delivery->reason != NULL)
			record.state = DeliveryStateName(delivery->status.state);
		record.reason = delivery->reason;
		record.hint = delivery->hint;
		record.failures = delivery->status.failures;
		record.retry_at = delivery->status.retry_at;
	}
	StoreDeliveryRecord(delivery->sink_id, delivery->partition_id, &record);
	if (delivery->error != NULL)
		StoreDeliveryError(delivery->sink_id, delivery->partition_id,
						   delivery->intent ? delivery->intent->batch_id : NULL, delivery->error);
	delivery->staged.recorded = true;
}

/* Which failures of our own steps time may mend; by SQLSTATE, never by text. */
static VerdictClass
ClassifyError(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_TO_CATEGORY(ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION):
		case ERRCODE_TO_CATEGORY(ERRCODE_DATA_EXCEPTION):
		case ERRCODE_TO_CATEGORY(ERRCODE_FEATURE_NOT_SUPPORTED):
		case ERRCODE_TO_CATEGORY(ERRCODE_FDW_ERROR):
			return VERDICT_CONFIGURATION;
		case ERRCODE_TO_CATEGORY(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE):
			return sqlstate == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE ?
				VERDICT_CONFIGURATION : VERDICT_RETRY;
		default:
			return VERDICT_RETRY;
	}
}

/*
 * What was staged in the subtransaction that failed did not happen.  A lock that is
 * held is no failure of the delivery.
 */
static void
TakeError(Delivery *delivery, const ErrorData *error, const StagedStep *before, TimestampTz now)
{
	Verdict		verdict = {0};

	if (delivery->staged.context != NULL && delivery->staged.context != before->context)
		MemoryContextDelete(delivery->staged.context);
	delivery->staged = *before;
	if (error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE)
	{
		DeliveryEvent event = {.type = EVENT_FENCED};

		(void) DecideDelivery(&delivery->status, &event, NULL);
		delivery->reload_due = true;
		return;
	}
	if (before->advanced)
		return;					/* it comes again, in a turn without an
								 * acknowledgement that would wipe it out */
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		NoteLockTimeout(delivery, now);
		return;
	}
	verdict.class = ClassifyError(error->sqlerrcode);
	ClipText(verdict.message, error->message, sizeof(verdict.message));
	ClipText(verdict.hint, error->hint ? error->hint : "", sizeof(verdict.hint));
	TakeVerdict(delivery, &verdict);
}

typedef struct StepCall
{
	Delivery   *delivery;
	StepFunction step;
	TimestampTz now;
} StepCall;

static void
CallStep(void *arg)
{
	StepCall   *call = arg;
	SqlSession	session;

	SqlBegin(&session);
	call->step(call->delivery, call->now);
	SqlEnd(&session);
}

static bool
RunStep(Delivery *delivery, StepFunction step, TimestampTz now)
{
	StepCall	call = {delivery, step, now};
	StagedStep	before = delivery->staged;
	ErrorData  *error = InSubtransaction(CallStep, &call);

	if (error == NULL)
		return true;
	if (step == RecordStep || step == ReloadStep)
		NoteLockTimeout(delivery, now); /* both are still due */
	else
		TakeError(delivery, error, &before, now);
	FreeErrorData(error);
	return false;
}

/*
 * An acknowledgement and the next batch share the transaction, and so its commit.
 */
void
DeliveryCatalogStep(Delivery *delivery, TimestampTz now)
{
	DeliveryAction action;

	if (delivery->reload_due)
	{
		(void) RunStep(delivery, ReloadStep, now);
		return;
	}
	action = NextAction(delivery, now);
	if (action == ACTION_ADVANCE && RunStep(delivery, AdvanceStep, now) &&
		delivery->staged.advanced)
		action = delivery->status.enabled &&
			FlushIsDue(delivery, delivery->staged.position, now) &&
			PaceAllows(delivery, now) ? ACTION_CUT : ACTION_NONE;
	if (action == ACTION_CUT)
		(void) RunStep(delivery, CutStep, now);
	else if (action == ACTION_ATTEMPT)
		(void) RunStep(delivery, AttemptStep, now);
	if (delivery->record_due)
		(void) RunStep(delivery, RecordStep, now);
}

static void
ApplyPosition(Delivery *delivery, const StagedStep *staged)
{
	DeliveryEvent event = {.type = EVENT_ADVANCED};

	if (staged->epoch != NULL)
	{
		pfree(delivery->epoch);
		delivery->epoch = MemoryContextStrdup(delivery->context, staged->epoch);
	}
	if (!staged->advanced && !staged->passed)
		return;
	KeepPosition(delivery, staged->position);
	if (staged->advanced)
	{
		delivery->sent = delivery->intent->until;
		delivery->sent.key = NULL;
	}
	(void) DecideDelivery(&delivery->status, &event, NULL);
	delivery->logged_state = DELIVERY_WAITING;
	SetReason(delivery, NULL, NULL);
	delivery->has_record = false;
	DropBatch(delivery);
}

/* The intent in memory has every digest that the one in the catalog has. */
static void
RememberDigest(Delivery *delivery)
{
	Intent	   *intent = delivery->intent;
	char	  **digests;

	for (int i = 0; i < intent->ndigests; i++)
	{
		if (strcmp(intent->digests[i], delivery->digest) == 0)
			return;
	}
	digests = MemoryContextAlloc(delivery->batch_context, sizeof(char *) * (intent->ndigests + 1));
	memcpy(digests, intent->digests, sizeof(char *) * intent->ndigests);
	digests[intent->ndigests] = MemoryContextStrdup(delivery->batch_context, delivery->digest);
	intent->digests = digests;
	intent->ndigests++;
}

bool
DeliveryCommitted(Delivery *delivery)
{
	StagedStep	staged = delivery->staged;
	DeliveryEvent event = {.type = EVENT_COMMITTED};
	bool		in_backlog = BacklogIsLeft(delivery, delivery->position);

	memset(&delivery->staged, 0, sizeof(StagedStep));
	if (staged.recorded)
	{
		delivery->record_due = false;
		delivery->has_record = delivery->reason != NULL && !delivery->busy_recorded;
		if (delivery->error != NULL)
			pfree(delivery->error);
		delivery->error = NULL;
	}
	ApplyPosition(delivery, &staged);
	if (staged.intent != NULL)
	{
		delivery->batch_context = staged.context;
		delivery->intent = staged.intent;
		delivery->cut_at = staged.intent->created_at;
		delivery->encoding = staged.encoding;
	}
	else if (staged.context != NULL)
		MemoryContextDelete(staged.context);

	if (staged.committed && delivery->body_rows > 0)
		RememberDigest(delivery);
	if (staged.committed &&
		DecideDelivery(&delivery->status, &event, NULL) == ACTION_SEND)
		SendBatch(delivery);
	else if (!delivery->status.in_flight)
		ReleaseBody(delivery);
	return staged.reloaded || (staged.committed && !delivery->status.in_flight) ||
		(staged.passed && (in_backlog || delivery->position.seq < delivery->flush_until));
}

void
DeliveryAborted(Delivery *delivery)
{
	if (delivery->staged.context != NULL)
		MemoryContextDelete(delivery->staged.context);
	memset(&delivery->staged, 0, sizeof(StagedStep));
}
