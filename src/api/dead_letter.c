/*
 * dead_letter.c
 *		What a sink's owner decides of batches and rows that a receiver refused.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "api/arguments.h"
#include "api/sink_access.h"
#include "catalog/dead_letter.h"
#include "catalog/delivery_state.h"
#include "catalog/split.h"
#include "common/sql.h"
#include "sink/policy.h"

PG_FUNCTION_INFO_V1(incsink_answers);
PG_FUNCTION_INFO_V1(incsink_resolve);
PG_FUNCTION_INFO_V1(incsink_redeliver);
PG_FUNCTION_INFO_V1(incsink_discard);

#define ANSWERS_COLUMNS 5

static char *
FormatStatuses(const AnswerPolicy *policy)
{
	if (policy->first == 0)
		return "no complete answer";
	if (policy->first == policy->last)
		return psprintf("%d", policy->first);
	return psprintf("%d to %d", policy->first, policy->last);
}

Datum
incsink_answers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (const AnswerPolicy *policy = answer_policy; policy->hint != NULL; policy++)
	{
		Datum		values[ANSWERS_COLUMNS];
		bool		nulls[ANSWERS_COLUMNS] = {false};

		values[0] = CStringGetTextDatum(FormatStatuses(policy));
		values[1] = CStringGetTextDatum(OutcomeOfPolicy(policy));
		values[2] = BoolGetDatum(policy->sure);
		values[3] = BoolGetDatum(policy->waits);
		values[4] = CStringGetTextDatum(policy->hint);
		nulls[4] = policy->hint[0] == '\0';
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* The delivery that an intent or dead letter is of, locked, with its sink. */
typedef struct OwnDelivery
{
	SinkDefinition *sink;
	int64		partition_id;
} OwnDelivery;

/* What the last query found: sink_id, partition_id, name of the sink. */
static OwnDelivery
LockOwnDelivery(Oid user)
{
	OwnDelivery delivery;
	int64		sink_id = SqlGetInt8(0, 1);
	char	   *name = SqlGetText(0, 3, CurrentMemoryContext);

	delivery.partition_id = SqlGetInt8(0, 2);
	delivery.sink = LoadOwnSink(name, user);
	(void) LockSinkTable(sink_id, delivery.partition_id, false);
	return delivery;
}

pg_noreturn static void
RaiseNoIntent(int64 intent_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("intent %lld does not exist", (long long) intent_id),
			 errdetail("Its batch was acknowledged or split, or its sink was restarted or dropped."),
			 errhint("The column \"hint\" of incsink.stat_delivery names the intent that a halted delivery waits for.")));
}

static OwnDelivery
LockDeliveryOfIntent(int64 intent_id, Oid user)
{
	if (SqlRun("SELECT i.sink_id, i.partition_id, s.name FROM incsink.intent i"
			   " JOIN incsink.sink_def s USING (sink_id) WHERE i.intent_id = $1",
			   SqlInt8(intent_id)) == 0)
		RaiseNoIntent(intent_id);
	return LockOwnDelivery(user);
}

/* A delivery that goes on by itself needs nobody's word, and may be sending. */
static void
RequireHalted(const OwnDelivery *delivery, int64 intent_id)
{
	DeliveryRecord record = LoadDeliveryRecord(delivery->sink->sink_id, delivery->partition_id,
											   CurrentMemoryContext);

	if (record.state != NULL && strcmp(record.state, "halted") == 0 && record.retry_at == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the delivery of intent %lld is not halted", (long long) intent_id),
			 errdetail("Sink \"%s\" sends its batch by itself.", delivery->sink->name)));
}

/* The watermark passes over it as over a batch that the receiver acknowledged. */
static void
ResolveAsStored(const OwnDelivery *delivery, int64 intent_id)
{
	List	   *intents = LoadIntents(delivery->sink->sink_id, delivery->partition_id,
									  CurrentMemoryContext);
	ListCell   *cell;

	foreach(cell, intents)
	{
		Intent	   *intent = lfirst(cell);

		if (intent->intent_id != intent_id)
			continue;
		if (foreach_current_index(cell) > 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("intent %lld is not the first of its delivery", (long long) intent_id),
					 errdetail("Earlier batches are not acknowledged yet."),
					 errhint("Call incsink_resume_sink(); once they are, it halts again.")));
		if (AcknowledgeIntent(intent))
			return;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("intent %lld does not fit the watermark of its delivery",
						(long long) intent_id)));
	}
	RaiseNoIntent(intent_id);
}

Datum
incsink_resolve(PG_FUNCTION_ARGS)
{
	char	   *outcome = RequireText(fcinfo, 1, "outcome");
	bool		is_stored = strcmp(outcome, "stored") == 0;
	Oid			user = GetUserId();
	int64		intent_id;
	OwnDelivery delivery;
	SqlSession	session;

	RequireArgument(fcinfo, 0, "intent_id");
	intent_id = PG_GETARG_INT64(0);
	if (!is_stored && strcmp(outcome, "resend") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid outcome \"%s\"", outcome),
				 errhint("It must be \"stored\" or \"resend\".")));
	RequireCatalog(4);

	SqlBegin(&session);
	delivery = LockDeliveryOfIntent(intent_id, user);
	RequireHalted(&delivery, intent_id);
	if (is_stored)
		ResolveAsStored(&delivery, intent_id);
	else if (!DeclareNotStored(intent_id))
		RaiseNoIntent(intent_id);
	ForgetFailure(delivery.sink->sink_id, delivery.partition_id);
	AnnounceChange();
	SqlEnd(&session);
	PG_RETURN_VOID();
}

pg_noreturn static void
RaiseNoDeadLetter(int64 dead_letter_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("dead letter %lld does not exist", (long long) dead_letter_id),
			 errhint("SELECT * FROM incsink.dead_letters lists those there are.")));
}

static OwnDelivery
LockDeliveryOfLetter(int64 dead_letter_id, Oid user)
{
	if (SqlRun("SELECT l.sink_id, l.partition_id, s.name FROM incsink.dead_letter l"
			   " JOIN incsink.sink_def s USING (sink_id) WHERE l.dead_letter_id = $1",
			   SqlInt8(dead_letter_id)) == 0)
		RaiseNoDeadLetter(dead_letter_id);
	return LockOwnDelivery(user);
}

/*
 * The delivery's number and digits of its own: to a receiver that follows epochs it is
 * as new as the delivery is, and nothing of that one.
 */
static char *
DrawRedeliverEpoch(const OwnDelivery *delivery)
{
	char	   *epoch;

	if (SqlRun("SELECT epoch FROM incsink.sink_table_def WHERE sink_id = $1 AND partition_id = $2",
			   SqlInt8(delivery->sink->sink_id), SqlInt8(delivery->partition_id)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sink \"%s\" does not export the table any more", delivery->sink->name)));
	epoch = SqlGetText(0, 1, CurrentMemoryContext);
	return psprintf("%.*s-%s", (int) strcspn(epoch, "-"), epoch, RandomHex(8));
}

Datum
incsink_redeliver(PG_FUNCTION_ARGS)
{
	Oid			user = GetUserId();
	int64		dead_letter_id;
	OwnDelivery delivery;
	SqlSession	session;

	RequireArgument(fcinfo, 0, "dead_letter_id");
	dead_letter_id = PG_GETARG_INT64(0);
	RequireCatalog(4);
	SqlBegin(&session);
	delivery = LockDeliveryOfLetter(dead_letter_id, user);
	if (!RequestRedelivery(dead_letter_id, DrawRedeliverEpoch(&delivery), RandomHex(BATCH_ID_LENGTH)))
		RaiseNoDeadLetter(dead_letter_id);
	AnnounceChange();
	SqlEnd(&session);
	PG_RETURN_VOID();
}

Datum
incsink_discard(PG_FUNCTION_ARGS)
{
	Oid			user = GetUserId();
	int64		dead_letter_id;
	int			attempts;
	SqlSession	session;

	RequireArgument(fcinfo, 0, "dead_letter_id");
	dead_letter_id = PG_GETARG_INT64(0);
	RequireCatalog(4);
	SqlBegin(&session);
	(void) LockDeliveryOfLetter(dead_letter_id, user);
	if (!DiscardDeadLetter(dead_letter_id, &attempts))
		RaiseNoDeadLetter(dead_letter_id);
	if (attempts > 0)
		ereport(NOTICE,
				(errmsg("dead letter %lld was sent again before", (long long) dead_letter_id),
				 errdetail("The receiver may have its rows.")));
	AnnounceChange();
	SqlEnd(&session);
	PG_RETURN_VOID();
}
