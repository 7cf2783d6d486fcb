/*
 * forward.c
 *		Forward sinks: a batch is the body of one HTTP request.
 */
#include "postgres.h"

#include "common/digest.h"
#include "sink/forward.h"
#include "sink/kind.h"
#include "utils/memutils.h"

#define OWN_HEADERS 16			/* at most, beside those of the option */

/* Lives from the start of an attempt to its end, in a context of its own. */
typedef struct ForwardAttempt
{
	MemoryContext context;
	const Credentials *credentials;
	int64		retry_max;
	VerdictFunction done;
	void	   *arg;
} ForwardAttempt;

static void
AddHeader(HttpRequest *request, const char *name, const char *value)
{
	HttpHeader *headers = unconstify(HttpHeader *, request->headers);

	headers[request->nheaders].name = name;
	headers[request->nheaders].value = value;
	request->nheaders++;
}

static void
AddNameHeader(HttpRequest *request, const char *header, const char *placeholder,
			  const KeyValues *values)
{
	AddHeader(request, header, ExpandPlaceholders(placeholder, EXPAND_HEADER, values, NULL));
}

/* What a receiver needs to recognize a batch, and to check it (RFC 9530 for the digest). */
static void
AddOwnHeaders(HttpRequest *request, const Batch *batch, const KeyValues *values)
{
	AddHeader(request, "Content-Type", batch->encoder->content_type);
	AddHeader(request, "Idempotency-Key", psprintf("\"%s\"", batch->intent->batch_id));
	AddHeader(request, "Content-Digest",
			  psprintf("sha-256=:%s:", Sha256HexToBase64(batch->digest)));
	AddNameHeader(request, "Incsink-Sink", "{sink}", values);
	AddNameHeader(request, "Incsink-Dataset", "{dataset}", values);
	AddNameHeader(request, "Incsink-Source", "{source}", values);
	if (values->destination[0] != '\0')
		AddNameHeader(request, "Incsink-Destination", "{destination}", values);
	AddHeader(request, "Incsink-Epoch", batch->intent->epoch);
	AddHeader(request, "Incsink-Since", FormatPosition(batch->intent->since));
	AddHeader(request, "Incsink-Until", FormatPosition(batch->intent->until));
	AddHeader(request, "Incsink-Rows", psprintf("%lld", (long long) batch->rows));
	AddHeader(request, "Incsink-Snapshot", "false");
	if (batch->credentials != NULL && batch->credentials->bearer != NULL)
		AddHeader(request, "Authorization", psprintf("Bearer %s", batch->credentials->bearer));
}

static void
BuildRequest(const Batch *batch, HttpRequest *request)
{
	const SinkOptions *options = batch->sink->options;
	KeyValues	values;

	FillKeyValues(batch, &values);
	memset(request, 0, sizeof(*request));
	request->method = options->method;
	request->url = ExpandPlaceholders(batch->sink->url, EXPAND_URL, &values, batch->credentials);
	request->headers = palloc0(sizeof(HttpHeader) * (OWN_HEADERS + options->nheaders));
	AddOwnHeaders(request, batch, &values);
	for (int i = 0; i < options->nheaders; i++)
		AddHeader(request, options->headers[i].name,
				  ExpandPlaceholders(options->headers[i].value, EXPAND_HEADER, &values,
									 batch->credentials));
	request->body = batch->body->data;
	request->body_length = batch->body->length;
	request->connect_timeout = (int) options->connect_timeout;
	request->request_timeout = (int) options->request_timeout;
	request->stall_timeout = (int) options->stall_timeout;
	request->answer_limit = options->answer_limit;
}

static void
ForwardDone(void *arg, const HttpResult *result)
{
	ForwardAttempt *attempt = arg;
	VerdictFunction done = attempt->done;
	void	   *done_arg = attempt->arg;
	Verdict		verdict;

	JudgeAnswer(result, attempt->credentials, GetCurrentTimestamp(), attempt->retry_max, &verdict);
	MemoryContextDelete(attempt->context);
	done(done_arg, &verdict);
}

/* The attempt's context hangs on the batch's owner: it goes with a cancelled transfer. */
static Attempt *
StartRequest(HttpPool *pool, const Batch *batch, VerdictFunction done, void *arg)
{
	MemoryContext context = AllocSetContextCreate(batch->owner, "incsink forward attempt",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ForwardAttempt *attempt = palloc0(sizeof(ForwardAttempt));
	HttpRequest request;
	HttpTransfer *transfer;

	attempt->context = context;
	attempt->credentials = batch->credentials;
	attempt->retry_max = batch->sink->options->retry_max;
	attempt->done = done;
	attempt->arg = arg;
	BuildRequest(batch, &request);
	transfer = HttpPoolStart(pool, &request, ForwardDone, attempt);
	MemoryContextSwitchTo(old);
	return transfer;
}

static Attempt *
ForwardStart(HttpPool *pool, const Batch *batch, VerdictFunction done, void *arg)
{
	Verdict		verdict = {.class = VERDICT_ACKNOWLEDGED};

	if (batch->rows > 0)
		return StartRequest(pool, batch, done, arg);
	done(arg, &verdict);
	return NULL;
}

static char *
ForwardObjectKey(const Batch *batch)
{
	return NULL;
}

const SinkKind ForwardKind = {
	.name = "forward",
	.class = WORKER_FORWARD,
	.object_key = ForwardObjectKey,
	.start = ForwardStart,
};
