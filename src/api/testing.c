/*
 * testing.c
 *		SQL functions over the pure parts, in builds for tests only.
 */
#include "postgres.h"

#include "fmgr.h"

#ifdef INCSINK_INJECT

#include "cache/horizon.h"
#include "common/sql.h"
#include "delivery/batch.h"
#include "delivery/machine.h"
#include "delivery/pace.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "sink/forward.h"
#include "transport/retry.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(incsink_test_decide);
PG_FUNCTION_INFO_V1(incsink_test_judge);
PG_FUNCTION_INFO_V1(incsink_test_retry_delay);
PG_FUNCTION_INFO_V1(incsink_test_retry_after);
PG_FUNCTION_INFO_V1(incsink_test_pace);
PG_FUNCTION_INFO_V1(incsink_test_pace_limits);
PG_FUNCTION_INFO_V1(incsink_test_batches);
PG_FUNCTION_INFO_V1(incsink_test_encode);

static const char *const event_names[] = {
	[EVENT_TICK] = "tick",
	[EVENT_COMMITTED] = "committed",
	[EVENT_VERDICT] = "verdict",
	[EVENT_ADVANCED] = "advanced",
	[EVENT_FENCED] = "fenced",
};

static const char *const verdict_names[] = {
	[VERDICT_ACKNOWLEDGED] = "acknowledged",
	[VERDICT_RETRY] = "retry",
	[VERDICT_CREDENTIALS] = "credentials",
	[VERDICT_CONFIGURATION] = "configuration",
	[VERDICT_REJECTED] = "rejected",
};

static const char *const action_names[] = {
	[ACTION_NONE] = "none",
	[ACTION_CUT] = "cut",
	[ACTION_ATTEMPT] = "attempt",
	[ACTION_SEND] = "send",
	[ACTION_ADVANCE] = "advance",
	[ACTION_RECORD] = "record",
	[ACTION_RELOAD] = "reload",
};

static int
FindName(const char *const *names, int count, const char *name)
{
	for (int i = 0; i < count; i++)
	{
		if (strcmp(names[i], name) == 0)
			return i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown name \"%s\"", name)));
}

/* Flags by letter: e enabled, i has_intent, f in_flight, a acknowledged, d flush_due. */
static void
ReadFlags(const char *flags, DeliveryStatus *status, DeliveryEvent *event)
{
	status->enabled = strchr(flags, 'e') != NULL;
	status->has_intent = strchr(flags, 'i') != NULL;
	status->in_flight = strchr(flags, 'f') != NULL;
	status->acknowledged = strchr(flags, 'a') != NULL;
	event->flush_due = strchr(flags, 'd') != NULL;
}

/*
 * (state, flags, failures, retry_in ms, event, verdict, retry_after ms)
 * -> "action: state flags failures retry_in", at a fixed now, with a ladder of 1 s
 * to 300 s and a draw of 0.5.
 */
Datum
incsink_test_decide(PG_FUNCTION_ARGS)
{
	const TimestampTz now = INT64CONST(1000000) * 1000000;
	DeliveryPolicy policy = {1000, 300000};
	DeliveryStatus status = {0};
	DeliveryEvent event = {0};
	DeliveryAction action;
	int64		retry_in = PG_GETARG_INT64(3);

	if (!DeliveryStateByName(text_to_cstring(PG_GETARG_TEXT_PP(0)), &status.state))
		elog(ERROR, "unknown state");
	ReadFlags(text_to_cstring(PG_GETARG_TEXT_PP(1)), &status, &event);
	status.failures = PG_GETARG_INT32(2);
	status.retry_at = retry_in == 0 ? 0 : TimestampTzPlusMilliseconds(now, retry_in);
	event.type = FindName(event_names, lengthof(event_names), text_to_cstring(PG_GETARG_TEXT_PP(4)));
	event.verdict = FindName(verdict_names, lengthof(verdict_names),
							 text_to_cstring(PG_GETARG_TEXT_PP(5)));
	event.retry_after = PG_GETARG_INT64(6);
	event.now = now;
	event.fraction = 0.5;
	action = DecideDelivery(&status, &event, &policy);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s: %s %s%s%s%s %d %lld", action_names[action],
											  DeliveryStateName(status.state),
											  status.enabled ? "e" : "-",
											  status.has_intent ? "i" : "-",
											  status.in_flight ? "f" : "-",
											  status.acknowledged ? "a" : "-",
											  status.failures,
											  status.retry_at == 0 ? 0LL :
											  (long long) (status.retry_at - now) / 1000)));
}

/* (status, retry_after or null, location or null, answer) -> "class retry_after|message|hint" */
Datum
incsink_test_judge(PG_FUNCTION_ARGS)
{
	HttpResult	result = {.failure = HTTP_COMPLETE};
	Verdict		verdict;
	char	   *answer = text_to_cstring(PG_GETARG_TEXT_PP(3));

	result.status = PG_GETARG_INT32(0);
	result.retry_after = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	result.location = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	result.answer = answer;
	result.answer_length = strlen(answer);
	JudgeAnswer(&result, NULL, GetCurrentTimestamp(), 300000, &verdict);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %lld|%s|%s", verdict_names[verdict.class],
											  (long long) verdict.retry_after, verdict.message,
											  verdict.hint)));
}

Datum
incsink_test_retry_delay(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(RetryDelay(PG_GETARG_INT32(0), PG_GETARG_INT64(1), PG_GETARG_INT64(2),
							   PG_GETARG_FLOAT8(3)));
}

/* (header, now, max ms) */
Datum
incsink_test_retry_after(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(RetryAfterDelay(text_to_cstring(PG_GETARG_TEXT_PP(0)),
									PG_GETARG_TIMESTAMPTZ(1), PG_GETARG_INT64(2)));
}

/*
 * (rows a second, bytes a second, what happens) -> an answer to each question.  What
 * happens are words: "1?250" asks for partition 1 after 250 ms, "1!250:500:64000"
 * cuts its batch of 500 rows and 64000 bytes then.  Answers are "yes", or when to ask
 * again.
 */
Datum
incsink_test_pace(PG_FUNCTION_ARGS)
{
	const TimestampTz start = INT64CONST(1000000) * 1000000;
	SinkOptions options = {.max_rows_per_second = PG_GETARG_INT64(0),
	.max_bytes_per_second = PG_GETARG_INT64(1)};
	char	   *words = text_to_cstring(PG_GETARG_TEXT_PP(2));
	TimestampTz cut_at[10] = {0};
	Pace		pace = {0};
	StringInfoData answers;

	initStringInfo(&answers);
	for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
	{
		int			partition = word[0] - '0';
		long		at = 0;
		long		rows = 0;
		long		bytes = 0;
		TimestampTz now;
		TimestampTz again;

		if (partition < 1 || partition > 9 || sscanf(word + 2, "%ld:%ld:%ld", &at, &rows, &bytes) < 1)
			elog(ERROR, "cannot read \"%s\"", word);
		now = TimestampTzPlusMilliseconds(start, at);
		if (word[1] == '!')
		{
			PaceBook(&pace, &options, rows, bytes, now);
			cut_at[partition] = now;
			continue;
		}
		again = PaceAsk(&pace, &options, partition, cut_at[partition], now);
		appendStringInfo(&answers, again == 0 ? "%syes" : "%s%lld", answers.len > 0 ? " " : "",
						 (long long) (again - start) / 1000);
	}
	PG_RETURN_TEXT_P(cstring_to_text(answers.data));
}

/* (rows a second, bytes a second, flush_interval ms, flush_rows, flush_bytes) -> "rows bytes" */
Datum
incsink_test_pace_limits(PG_FUNCTION_ARGS)
{
	SinkOptions options = {.max_rows_per_second = PG_GETARG_INT64(0),
		.max_bytes_per_second = PG_GETARG_INT64(1),
	.flush_interval = PG_GETARG_INT64(2)};
	RangeLimits limits = {.rows = PG_GETARG_INT64(3),.bytes = PG_GETARG_INT64(4)};

	PaceLimitBatch(&options, &limits);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%lld %lld", (long long) limits.rows,
											  (long long) limits.bytes)));
}

/*
 * (relation, rows a batch, bytes a batch) -> "rows bytes milliseconds": what the
 * worker does from committed rows to body bytes in memory, without what follows.
 */
Datum
incsink_test_encode(PG_FUNCTION_ARGS)
{
	Encoding	encoding = {.encoder = EncoderForFormat("ndjson")};
	RangeLimits limits = {PG_GETARG_INT64(1), PG_GETARG_INT64(2)};
	Position	position = POSITION_BEGINNING;
	Position	until = POSITION_BEGINNING;
	SequenceReading reading;
	Partition  *partition;
	ByteBuffer	body;
	SqlSession	session;
	instr_time	start;
	instr_time	duration;
	int64		rows = 0;
	int64		bytes = 0;
	int			guc_nest_level;

	SqlBegin(&session);
	partition = LoadPartitionByRelation(PG_GETARG_OID(0), fcinfo->flinfo->fn_mcxt);
	SqlEnd(&session);
	if (partition == NULL || !ReadSequence(partition->sequence, &reading))
		elog(ERROR, "not attached");
	guc_nest_level = NewGUCNestLevel();
	PinOutputSettings();
	ByteBufferInit(&body, 64 * 1024);
	until.seq = reading.last_drawn;
	INSTR_TIME_SET_CURRENT(start);
	while (position.seq < until.seq)
	{
		EncodedRange range;

		ByteBufferReset(&body);
		range = EncodeRange(partition, GetUserId(), &encoding, position, until, limits, &body);
		if (range.status != READER_OK)
			elog(ERROR, "busy");
		position = range.until;
		rows += range.rows;
		bytes += body.length;
	}
	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, start);
	AtEOXact_GUC(false, guc_nest_level);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%lld %lld %.3f", (long long) rows, (long long) bytes,
											  INSTR_TIME_GET_MILLISEC(duration))));
}

/*
 * (relation, rows a batch, bytes a batch, filter or null) -> a line a batch: "rows until
 * [key]: body", from the beginning to the last number drawn, with blanks for the ends of
 * lines in bodies.  A range of the backlog that holds no row ends it.
 */
Datum
incsink_test_batches(PG_FUNCTION_ARGS)
{
	Encoding	encoding = {.encoder = EncoderForFormat("ndjson")};
	RangeLimits limits = {PG_GETARG_INT64(1), PG_GETARG_INT64(2)};
	Position	position = POSITION_BEGINNING;
	SequenceReading reading;
	Partition  *partition;
	ByteBuffer	body;
	SqlSession	session;
	StringInfoData lines;
	bool		in_backlog;

	encoding.filter = PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3));
	SqlBegin(&session);
	partition = LoadPartitionByRelation(PG_GETARG_OID(0), fcinfo->flinfo->fn_mcxt);
	SqlEnd(&session);
	if (partition == NULL || !ReadSequence(partition->sequence, &reading))
		elog(ERROR, "not attached");
	in_backlog = partition->backlog != NULL;
	ByteBufferInit(&body, 1024);
	initStringInfo(&lines);
	while (in_backlog || position.seq < reading.last_drawn)
	{
		Position	until = {.seq = reading.last_drawn};
		EncodedRange range;

		ByteBufferReset(&body);
		range = EncodeRange(partition, GetUserId(), &encoding, position,
							in_backlog ? POSITION_BACKLOG_END : until, limits, &body);
		if (range.status != READER_OK)
			elog(ERROR, "busy");
		position = range.until;
		in_backlog = in_backlog && !BacklogIsOver(position);
		appendStringInfo(&lines, "%lld %s %s:", (long long) range.rows, FormatPosition(position),
						 position.key ? JsonbToCString(NULL, &position.key->root, 0) : "-");
		for (size_t i = 0; i < body.length; i++)
			appendStringInfoChar(&lines, body.data[i] == '\n' ? ' ' : body.data[i]);
		appendStringInfoChar(&lines, '\n');
	}
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}

#endif							/* INCSINK_INJECT */
