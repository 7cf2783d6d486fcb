/*
 * steps.c
 *		What a delivery does in the catalog, each step in a subtransaction.
 */
#include "postgres.h"

#include "catalog/delivery_state.h"
#include "common/inject.h"
#include "common/sql.h"
#include "common/subtransaction.h"
#include "common/text.h"
#include "delivery/redeliver.h"
#include "delivery/reject.h"
#include "delivery/steps.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * Raised where the catalog has moved on without this process: somebody reset or
 * dropped, or another process works on the delivery.  The catalog is right.
 */
void
RaiseFenced(const Delivery *delivery)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("sink \"%s\" was changed while a batch was in flight", delivery->sink->name)));
}

/* Locks the row that stands for this delivery's watermarks and intents. */
bool
LockDelivery(Delivery *delivery, TimestampTz now)
{
	if (delivery->staged.locked || LockSinkTable(delivery->sink_id, delivery->partition_id, true))
		return true;
	NoteBusy(delivery, now, NULL);
	return false;
}

/* Says nothing more of an earlier failure once things work, all of them. */
void
ClearRecord(Delivery *delivery)
{
	DeliveryRecord nothing = {0};

	if (!delivery->has_record || delivery->status.flights.failed > 0)
		return;
	StoreDeliveryRecord(delivery->sink_id, delivery->partition_id, &nothing);
}

/* Of the batches whose acknowledgements may be committed, in order; returns how many. */
int
LeadingIntents(const Delivery *delivery, Intent **intents)
{
	int			count = 0;
	dlist_iter	iter;

	dlist_foreach(iter, unconstify(dlist_head *, &delivery->flights))
	{
		Flight	   *flight = dlist_container(Flight, node, iter.cur);

		if (flight->state != FLIGHT_ACKNOWLEDGED)
			break;
		intents[count++] = flight->intent;
	}
	Assert(count == delivery->status.flights.leading);
	return count;
}

/* Their intents are gone, the watermark has moved. */
void
StageAdvanced(Delivery *delivery)
{
	StagedStep *staged = &delivery->staged;
	dlist_iter	iter;

	dlist_foreach(iter, &delivery->flights)
	{
		Flight	   *flight = dlist_container(Flight, node, iter.cur);

		if (flight->state != FLIGHT_ACKNOWLEDGED)
			break;
		staged->advanced++;
		staged->position = flight->intent->until;
	}
	NoteNotBusy(delivery);
}

/* Is anything known to be empty behind the batches that lead, and nothing between? */
static bool
PassIsDue(const Delivery *delivery)
{
	return CountFlights(&delivery->status) == delivery->status.flights.leading &&
		IsReadBeyond(delivery);
}

/* Nothing but the acknowledgement is to be committed. */
bool
AdvanceIsPlain(const Delivery *delivery)
{
	return !delivery->has_record && !PassIsDue(delivery);
}

/*
 * Over the batches that lead, and what is known to be empty behind them if nothing else
 * stands.
 */
void
AdvanceStep(Delivery *delivery, TimestampTz now)
{
	Intent	  **intents = palloc(sizeof(Intent *) * delivery->status.flights.leading);
	bool		pass = PassIsDue(delivery);

	if (!LockDelivery(delivery, now))
		return;
	INCSINK_POINT("before-acknowledge");
	if (!AcknowledgeIntents(intents, LeadingIntents(delivery, intents), 1))
		RaiseFenced(delivery);
	StageAdvanced(delivery);
	ClearRecord(delivery);
	if (pass)
		StagePassed(delivery, delivery->epoch, delivery->staged.position, delivery->read_position);
}

/*
 * A read that found no row to export moves the watermark by itself.  One that was ended
 * by the clock before its first row moves nothing, and comes again.
 */
void
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
	return (delivery->staged.advanced > 0 || delivery->staged.passed) &&
		delivery->status.flights.failed == 0 && !delivery->busy_recorded;
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
	NoteRefusals(delivery);
	if (delivery->error != NULL)
		StoreDeliveryError(delivery->sink_id, delivery->partition_id,
						   delivery->error_batch[0] != '\0' ? delivery->error_batch : NULL, delivery->error);
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
TakeError(Delivery *delivery, const ErrorData *error, StepFunction step, const StagedStep *before,
		  TimestampTz now)
{
	Verdict		verdict = {0};

	if (delivery->staged.cut != NULL)
		FlightFree(delivery->staged.cut);
	delivery->staged = *before;
	delivery->staged.cut = NULL;
	delivery->staged.unrecorded = false;
	if (step == RedeliverStep)
	{
		RedeliveryFailed(delivery, error);
		return;
	}
	if (error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE)
	{
		DeliveryEvent event = {.type = EVENT_FENCED};

		(void) Decide(delivery, &event);
		ForgetAttempts(delivery);
		delivery->reload_due = true;
		return;
	}
	if (before->advanced > 0)
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
	TakeVerdict(delivery, step == AttemptStep ? LowestStanding(delivery) : NULL, &verdict);
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

static void
CallReadStep(void *arg)
{
	StepCall   *call = arg;

	call->step(call->delivery, call->now);
}

static bool
CallInSubtransaction(void (*function) (void *arg), Delivery *delivery, StepFunction step, TimestampTz now)
{
	StepCall	call = {delivery, step, now};
	StagedStep	before = delivery->staged;
	ErrorData  *error = InSubtransaction(function, &call);

	if (error == NULL)
		return true;
	if (step == RecordStep)
		LeaveAlone(delivery, now, LOCK_TIMEOUT_PAUSE_MS);	/* nothing can be shown */
	else if (step == ReloadStep)
		NoteLockTimeout(delivery, now); /* both are still due */
	else
		TakeError(delivery, error, step, &before, now);
	FreeErrorData(error);
	return false;
}

bool
RunStep(Delivery *delivery, StepFunction step, TimestampTz now)
{
	return CallInSubtransaction(CallStep, delivery, step, now);
}

/* Of a step that needs no SqlSession. */
bool
RunReadStep(Delivery *delivery, StepFunction step, TimestampTz now)
{
	return CallInSubtransaction(CallReadStep, delivery, step, now);
}

void
StepRecord(Delivery *delivery, TimestampTz now)
{
	if (delivery->record_due && !delivery->staged.recorded)
		(void) RunStep(delivery, RecordStep, now);
}

/*
 * An acknowledgement and the next batch share the transaction, and so its commit.
 */
void
DeliveryCatalogStep(Delivery *delivery, TimestampTz now)
{
	DeliveryAction action;

	if (RedeliveryIsDue(delivery, now))
	{
		(void) RunStep(delivery, RedeliverStep, now);
		return;
	}
	if (delivery->reload_due)
	{
		(void) RunStep(delivery, ReloadStep, now);
		return;
	}
	if (NextAction(delivery, now) == ACTION_ADVANCE)
		(void) RunStep(delivery, AdvanceStep, now);
	action = NextActionOfTurn(delivery, now);
	if (action == ACTION_CUT)
		(void) RunStep(delivery, CutStep, now);
	else if (action == ACTION_ATTEMPT)
		(void) RunStep(delivery, AttemptStep, now);
	StepRecord(delivery, now);
}
