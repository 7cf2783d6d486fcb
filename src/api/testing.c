/*
 * testing.c
 *		SQL functions over the pure parts, in builds for tests only.
 */
#include "postgres.h"

#include "fmgr.h"

#ifdef INCSINK_INJECT

#include "cache/horizon.h"
#include "catalog/watermark.h"
#include "common/signature.h"
#include "common/sql.h"
#include "delivery/batch.h"
#include "delivery/machine.h"
#include "delivery/memory.h"
#include "delivery/pace.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "sink/forward.h"
#include "transport/http_places.h"
#include "transport/retry.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(incsink_test_decide);
PG_FUNCTION_INFO_V1(incsink_test_judge);
PG_FUNCTION_INFO_V1(incsink_test_retry_delay);
PG_FUNCTION_INFO_V1(incsink_test_retry_after);
PG_FUNCTION_INFO_V1(incsink_test_sign);
PG_FUNCTION_INFO_V1(incsink_test_places);
PG_FUNCTION_INFO_V1(incsink_test_pace);
PG_FUNCTION_INFO_V1(incsink_test_pace_limits);
PG_FUNCTION_INFO_V1(incsink_test_memory);
PG_FUNCTION_INFO_V1(incsink_test_acknowledge);
PG_FUNCTION_INFO_V1(incsink_test_pass);
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
	[VERDICT_TOO_LARGE] = "too large",
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

/*
 * One letter a flight, the lowest first: s standing, x the same and failed, f sent, p the
 * same after a failure, a acknowledged.
 */
static void
ReadFlights(const char *flags, FlightCounts *flights)
{
	for (; *flags != '\0'; flags++)
	{
		flights->standing += *flags == 's' || *flags == 'x';
		flights->failed += *flags == 'x';
		flights->sending += *flags == 'f' || *flags == 'p';
		flights->probing += *flags == 'p';
		flights->acknowledged += *flags == 'a';
		flights->leading += *flags == 'a' && flights->standing + flights->sending == 0;
	}
}

/*
 * Flags by letter, and the flights: e enabled, d flush_due, o overtaken, 4 as the width of
 * the window, which is 1 without it.
 */
static void
ReadFlags(const char *flags, DeliveryStatus *status, DeliveryEvent *event, DeliveryPolicy *policy)
{
	status->enabled = strchr(flags, 'e') != NULL;
	event->flush_due = strchr(flags, 'd') != NULL;
	event->overtaken = strchr(flags, 'o') != NULL;
	policy->max_in_flight = strchr(flags, '4') != NULL ? 4 : 1;
	ReadFlights(flags, &status->flights);
}

/*
 * (state, flags, failures, retry_in ms, event, verdict, retry_after ms)
 * -> "action: state failures retry_in", at a fixed now, with a ladder of 1 s
 * to 300 s and a draw of 0.5.
 */
Datum
incsink_test_decide(PG_FUNCTION_ARGS)
{
	const TimestampTz now = INT64CONST(1000000) * 1000000;
	DeliveryPolicy policy = {.retry_initial = 1000, .retry_max = 300000};
	DeliveryStatus status = {0};
	DeliveryEvent event = {0};
	DeliveryAction action;
	int64		retry_in = PG_GETARG_INT64(3);

	if (!DeliveryStateByName(text_to_cstring(PG_GETARG_TEXT_PP(0)), &status.state))
		elog(ERROR, "unknown state");
	ReadFlags(text_to_cstring(PG_GETARG_TEXT_PP(1)), &status, &event, &policy);
	status.failures = PG_GETARG_INT32(2);
	status.retry_at = retry_in == 0 ? 0 : TimestampTzPlusMilliseconds(now, retry_in);
	event.type = FindName(event_names, lengthof(event_names), text_to_cstring(PG_GETARG_TEXT_PP(4)));
	event.verdict = FindName(verdict_names, lengthof(verdict_names),
							 text_to_cstring(PG_GETARG_TEXT_PP(5)));
	event.retry_after = PG_GETARG_INT64(6);
	event.now = now;
	event.fraction = 0.5;
	action = DecideDelivery(&status, &event, &policy);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s: %s %d %lld", action_names[action],
											  DeliveryStateName(status.state), status.failures,
											  status.retry_at == 0 ? 0LL :
											  (long long) (status.retry_at - now) / 1000)));
}

/*
 * (status, retry_after or null, location or null, answer, flags, reuse_status) ->
 * "class retry_after[ sure]|message|hint".  Flags: r sent twice, m may be stored by an
 * earlier attempt, n failed before it left, b broken off.
 */
Datum
incsink_test_judge(PG_FUNCTION_ARGS)
{
	HttpResult	result = {.failure = HTTP_COMPLETE, .error = "it failed"};
	char	   *flags = text_to_cstring(PG_GETARG_TEXT_PP(4));
	AnswerSituation situation = {
		.now = GetCurrentTimestamp(),
		.retry_max = 300000,
		.reuse_status = PG_GETARG_INT32(5),
		.may_be_stored = strchr(flags, 'm') != NULL,
	};
	Verdict		verdict;
	char	   *answer = text_to_cstring(PG_GETARG_TEXT_PP(3));

	result.status = PG_GETARG_INT32(0);
	result.retry_after = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	result.location = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	result.answer = answer;
	result.answer_length = strlen(answer);
	result.resent = strchr(flags, 'r') != NULL;
	if (strchr(flags, 'n') != NULL)
		result.failure = HTTP_NOT_SENT;
	if (strchr(flags, 'b') != NULL)
		result.failure = HTTP_AMBIGUOUS;
	JudgeAnswer(&result, &situation, &verdict);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %lld%s|%s|%s", verdict_names[verdict.class],
											  (long long) verdict.retry_after,
											  verdict.sure ? " sure" : "", verdict.message,
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

/* (secret, id, timestamp, body) -> signature */
Datum
incsink_test_sign(PG_FUNCTION_ARGS)
{
	char	   *body = text_to_cstring(PG_GETARG_TEXT_PP(3));

	PG_RETURN_TEXT_P(cstring_to_text(SignWebhook(text_to_cstring(PG_GETARG_TEXT_PP(0)),
												 text_to_cstring(PG_GETARG_TEXT_PP(1)),
												 PG_GETARG_INT64(2), body, strlen(body))));
}

typedef struct TestedPlace
{
	HttpPlace	place;
	char		name[8];
	bool		runs;
} TestedPlace;

/* A request of that name, "a1" or "a1?"; appended to "started" if it runs at once. */
static void
AskPlace(HttpPlaces *places, TestedPlace *request, const char *word, StringInfo started)
{
	char		host[HTTP_HOST_LENGTH] = {word[0]};

	strlcpy(request->name, word, Min(strcspn(word, "?") + 1, sizeof(request->name)));
	HttpPlaceAsk(places, &request->place, host, strchr(word, '?') != NULL);
	request->runs = HttpPlaceTake(places, &request->place);
	if (request->runs)
		appendStringInfo(started, " %s", request->name);
	else
		HttpPlaceQueue(places, &request->place);
}

static void
LeavePlace(HttpPlaces *places, TestedPlace *requests, const char *name)
{
	while (strcmp(requests->name, name) != 0)
		requests++;
	if (requests->runs)
		HttpPlaceRelease(places, &requests->place);
	else
		HttpPlaceUnqueue(places, &requests->place);
}

/*
 * (connections, connections per host, what happens) -> who got a place, in this order.
 * What happens are words: "a1" is a request to host a called a1, "a2?" a probe, "-a1"
 * ends it, or its waiting, "=8:2" sets other limits.
 */
Datum
incsink_test_places(PG_FUNCTION_ARGS)
{
	TestedPlace *requests = palloc0(sizeof(TestedPlace) * 100);
	char	   *words = text_to_cstring(PG_GETARG_TEXT_PP(2));
	int			nrequests = 0;
	HttpPlaces	places;
	StringInfoData started;

	HttpPlacesInit(&places, PG_GETARG_INT32(0), PG_GETARG_INT32(1));
	initStringInfo(&started);
	for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
	{
		HttpPlace  *place;
		int			max;
		int			max_per_host;

		if (sscanf(word, "=%d:%d", &max, &max_per_host) == 2)
			HttpPlacesSetLimits(&places, max, max_per_host);
		else if (word[0] == '-')
			LeavePlace(&places, requests, word + 1);
		else
			AskPlace(&places, &requests[nrequests++], word, &started);
		while ((place = HttpPlacesNext(&places)) != NULL)
		{
			((TestedPlace *) place)->runs = true;
			appendStringInfo(&started, " %s", ((TestedPlace *) place)->name);
		}
		appendStringInfoChar(&started, ',');
	}
	PG_RETURN_TEXT_P(cstring_to_text(started.data));
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

/* One word of incsink_test_memory. */
static void
MemoryWord(const char *word, int64 limit, size_t *held, StringInfo answers)
{
	const TimestampTz start = INT64CONST(1000000) * 1000000;
	static long at = 0;
	int			who = 0;
	char		what = 0;
	long		bytes = 0;
	MemoryShare share = {.limit = limit};

	if (sscanf(word, "%d%c%ld", &who, &what, &bytes) < 2 || who < 0 || who >= 2000)
		elog(ERROR, "cannot read \"%s\"", word);
	share.total = MemoryHeldByAll();
	share.own = held[who];
	share.reserved = MemoryReserved(&held[who], start + at * 1000);
	appendStringInfoString(answers, answers->len > 0 ? " " : "");
	switch (what)
	{
		case '+':
			bytes = Min(bytes, MemoryForBatch(&share));
			MemoryAccount(&held[who], held[who] + bytes);
			appendStringInfo(answers, "%ld", bytes);
			break;
		case '-':
			MemoryAccount(&held[who], 0);
			MemoryLeaveLine(&held[who]);
			appendStringInfoChar(answers, '-');
			break;
		case '@':
			at = bytes;
			appendStringInfoChar(answers, '@');
			break;
		case '?':
			bytes = MemoryNeed(limit, bytes);
			if (MemoryForRetry(&share, bytes,
							   MemoryWaitInLine(&held[who], bytes, start + at * 1000)))
			{
				MemoryLeaveLine(&held[who]);
				appendStringInfoString(answers, "yes");
			}
			else
				appendStringInfoString(answers, "no");
			break;
		default:
			elog(ERROR, "cannot read \"%s\"", word);
	}
}

/*
 * (limit, what happens) -> an answer to each word: "1+300000" has delivery 1 cut a batch of
 * up to so many bytes and says how many it may have; "1?300000" asks whether a retry may
 * have them; "1-" gives all back; "0@500" sets the time, in milliseconds.
 */
Datum
incsink_test_memory(PG_FUNCTION_ARGS)
{
	char	   *words = text_to_cstring(PG_GETARG_TEXT_PP(1));
	size_t	   *held = palloc0(sizeof(size_t) * 2000);
	StringInfoData answers;

	initStringInfo(&answers);
	MemoryWord("0@0", 0, held, &answers);
	resetStringInfo(&answers);
	for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
		MemoryWord(word, PG_GETARG_INT64(0), held, &answers);
	for (int i = 0; i < 2000; i++)
	{
		MemoryAccount(&held[i], 0);
		MemoryLeaveLine(&held[i]);
	}
	PG_RETURN_TEXT_P(cstring_to_text(answers.data));
}

/* An intent of a list by its number, or one that nobody has. */
static Intent *
IntentByNumber(List *intents, int64 intent_id)
{
	Intent	   *nobody;
	ListCell   *cell;

	foreach(cell, intents)
	{
		Intent	   *intent = lfirst(cell);

		if (intent->intent_id == intent_id)
			return intent;
	}
	nobody = palloc0(sizeof(Intent));
	nobody->intent_id = intent_id;
	nobody->epoch = pstrdup("");
	return nobody;
}

/* (sink, partition, intents, deliveries): acknowledges them; the caller rolls back on false */
Datum
incsink_test_acknowledge(PG_FUNCTION_ARGS)
{
	ArrayType  *numbers = PG_GETARG_ARRAYTYPE_P(2);
	int			count = ArrayGetNItems(ARR_NDIM(numbers), ARR_DIMS(numbers));
	Intent	  **intents = palloc(sizeof(Intent *) * Max(count, 1));
	SqlSession	session;
	List	   *standing;
	bool		moved;

	SqlBegin(&session);
	standing = LoadIntents(PG_GETARG_INT64(0), PG_GETARG_INT64(1), CurrentMemoryContext);
	for (int i = 0; i < count; i++)
		intents[i] = IntentByNumber(standing, ((int64 *) ARR_DATA_PTR(numbers))[i]);
	moved = AcknowledgeIntents(intents, count, PG_GETARG_INT32(3));
	SqlEnd(&session);
	PG_RETURN_BOOL(moved);
}

/* (sink, partition, epoch, since, until): the watermark passes numbers without a row */
Datum
incsink_test_pass(PG_FUNCTION_ARGS)
{
	Position	since = {.seq = PG_GETARG_INT64(3)};
	Position	until = {.seq = PG_GETARG_INT64(4)};
	SqlSession	session;
	bool		moved;

	SqlBegin(&session);
	moved = PassEmptyRange(PG_GETARG_INT64(0), PG_GETARG_INT64(1),
						   text_to_cstring(PG_GETARG_TEXT_PP(2)), since, until);
	SqlEnd(&session);
	PG_RETURN_BOOL(moved);
}

/* NDJSON, or the argument as an intent holds it. */
static Encoding
TestEncoding(FunctionCallInfo fcinfo, int argument)
{
	if (PG_NARGS() > argument)
		return *ParseEncoding(PG_GETARG_JSONB_P(argument));
	return (Encoding) {.encoder = EncoderForFormat("ndjson")};
}

/*
 * (relation, rows a batch, bytes a batch [, encoding]) -> "rows bytes milliseconds": what the
 * worker does from committed rows to body bytes in memory, without what follows.
 */
Datum
incsink_test_encode(PG_FUNCTION_ARGS)
{
	Encoding	encoding = TestEncoding(fcinfo, 3);
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
 * lines in bodies.  A range of the backlog that holds no row ends it.  With an encoding as
 * the fifth argument bodies are in hex, with their bytes before compression.
 */
Datum
incsink_test_batches(PG_FUNCTION_ARGS)
{
	Encoding	encoding = TestEncoding(fcinfo, 4);
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
		if (PG_NARGS() > 4)
			appendStringInfo(&lines, "%lld:", (long long) range.bytes);
		for (size_t i = 0; i < body.length; i++)
		{
			if (PG_NARGS() > 4)
				appendStringInfo(&lines, "%02x", (unsigned char) body.data[i]);
			else
				appendStringInfoChar(&lines, body.data[i] == '\n' ? ' ' : body.data[i]);
		}
		appendStringInfoChar(&lines, '\n');
	}
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}

#endif							/* INCSINK_INJECT */
