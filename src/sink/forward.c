/*
 * forward.c
 *		Forward sinks: a batch is the body of one HTTP request.
 */
#include "postgres.h"

#include "common/digest.h"
#include "common/signature.h"
#include "sink/forward.h"
#include "sink/kind.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define OWN_HEADERS 24			/* at most, beside those of the option */

/* Lives from the start of an attempt to its end, in a context of its own. */
typedef struct ForwardAttempt
{
	MemoryContext context;
	const Credentials *credentials; /* with those of the secret file */
	int64		retry_max;
	int			reuse_status;
	bool		may_be_stored;
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
	AddHeader(request, "Content-Type", batch->content_type);
	if (batch->content_encoding != NULL)
		AddHeader(request, "Content-Encoding", batch->content_encoding);
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
}

/*
 * Standard Webhooks: the time is that of this attempt, and while keys are rotated there
 * is a signature by either.
 */
static void
AddSignature(HttpRequest *request, const Batch *batch, const Credentials *credentials)
{
	const char *secrets[] = {credentials->signing_secret, credentials->signing_secret_previous};
	int64		now = timestamptz_to_time_t(GetCurrentTimestamp());
	StringInfoData signatures;

	if (credentials->signing_secret == NULL)
		return;
	initStringInfo(&signatures);
	for (int i = 0; i < lengthof(secrets); i++)
		if (secrets[i] != NULL)
			appendStringInfo(&signatures, "%s%s", i > 0 ? " " : "",
							 SignWebhook(secrets[i], batch->intent->batch_id, now,
										 batch->body->data, batch->body->length));
	AddHeader(request, "Webhook-Id", batch->intent->batch_id);
	AddHeader(request, "Webhook-Timestamp", psprintf("%lld", (long long) now));
	AddHeader(request, "Webhook-Signature", signatures.data);
}

/*
 * The certificate with a mark of its key before it, in a line that readers of PEM pass
 * over: whoever has another key for it gets another connection.
 */
static char *
MarkCertificate(const char *certificate, const char *key)
{
	SignedPiece piece = {certificate, strlen(certificate)};
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	StringInfoData marked;

	HmacSha256(key, strlen(key), &piece, 1, digest);
	initStringInfo(&marked);
	for (int i = 0; i < lengthof(digest); i++)
		appendStringInfo(&marked, "%02x", digest[i]);
	appendStringInfo(&marked, "\n%s", certificate);
	return marked.data;
}

static void
AddCredentials(HttpRequest *request, const Batch *batch, const Credentials *credentials)
{
	if (credentials->authorization != NULL)
		AddHeader(request, "Authorization", credentials->authorization);
	AddSignature(request, batch, credentials);
	if (credentials->client_certificate == NULL || credentials->client_key == NULL)
		return;
	request->tls.client_certificate = MarkCertificate(credentials->client_certificate,
													  credentials->client_key);
	request->tls.client_key = credentials->client_key;
	request->tls.client_key_password = credentials->client_key_password;
}

/* A mapping that was changed since may bring what the option has, too. */
static void
CheckGivenOnce(const SinkOptions *options, const Credentials *credentials)
{
	for (int i = 0; i < options->nheaders; i++)
		RefuseSecondAuthorization(options->headers[i].name, credentials);
}

static void
SetLimits(const SinkOptions *options, HttpRequest *request)
{
	request->connect_timeout = (int) options->connect_timeout;
	request->request_timeout = (int) options->request_timeout;
	request->stall_timeout = (int) options->stall_timeout;
	request->answer_limit = options->answer_limit;
	if (options->ca_certificate[0] != '\0')
		request->tls.ca_certificate = options->ca_certificate;
	request->tls.only_1_3 = strcmp(options->tls_min_version, "1.3") == 0;
}

static void
BuildRequest(const Batch *batch, const Credentials *credentials, HttpRequest *request)
{
	const SinkOptions *options = batch->sink->options;
	KeyValues	values;

	FillKeyValues(batch, &values);
	CheckGivenOnce(options, credentials);
	memset(request, 0, sizeof(*request));
	request->method = options->method;
	request->url = ExpandPlaceholders(batch->sink->url, EXPAND_URL, &values, credentials);
	request->headers = palloc0(sizeof(HttpHeader) * (OWN_HEADERS + options->nheaders));
	AddOwnHeaders(request, batch, &values);
	if (credentials != NULL)
		AddCredentials(request, batch, credentials);
	for (int i = 0; i < options->nheaders; i++)
		AddHeader(request, options->headers[i].name,
				  ExpandPlaceholders(options->headers[i].value, EXPAND_HEADER, &values,
									 credentials));
	request->body = batch->body->data;
	request->body_length = batch->body->length;
	request->probe = batch->probe;
	SetLimits(options, request);
}

static void
ForwardDone(void *arg, const HttpResult *result)
{
	ForwardAttempt *attempt = arg;
	VerdictFunction done = attempt->done;
	void	   *done_arg = attempt->arg;
	Verdict		verdict;
	AnswerSituation situation = {
		.credentials = attempt->credentials,
		.now = GetCurrentTimestamp(),
		.retry_max = attempt->retry_max,
		.reuse_status = attempt->reuse_status,
		.may_be_stored = attempt->may_be_stored,
	};

	JudgeAnswer(result, &situation, &verdict);
	MemoryContextDelete(attempt->context);
	done(done_arg, &verdict);
}

/*
 * A secret file is read outside of transactions, at each attempt.  False, and the
 * verdict, when it cannot be used: that is like credentials that are refused.
 */
static bool
ReadSecrets(ForwardAttempt *attempt, Verdict *verdict)
{
	char	   *problem;

	if (attempt->credentials == NULL || attempt->credentials->secret_file == NULL)
		return true;
	attempt->credentials = AddSecretFile(attempt->credentials, &problem);
	if (attempt->credentials != NULL)
		return true;
	memset(verdict, 0, sizeof(*verdict));
	verdict->class = VERDICT_CREDENTIALS;
	strlcpy(verdict->message, problem, sizeof(verdict->message));
	strlcpy(verdict->hint, "Correct the file or the user mapping; both are read anew at each attempt.",
			sizeof(verdict->hint));
	return false;
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
	HttpTransfer *transfer = NULL;
	Verdict		verdict;
	bool		started;

	attempt->context = context;
	attempt->credentials = batch->credentials;
	attempt->retry_max = batch->sink->options->retry_max;
	attempt->reuse_status = (int) batch->sink->options->reuse_status;
	attempt->may_be_stored = batch->may_be_stored;
	attempt->done = done;
	attempt->arg = arg;
	started = ReadSecrets(attempt, &verdict);
	if (started)
	{
		BuildRequest(batch, attempt->credentials, &request);
		transfer = HttpPoolStart(pool, &request, ForwardDone, attempt);
	}
	MemoryContextSwitchTo(old);
	if (!started)
	{
		MemoryContextDelete(context);
		done(arg, &verdict);
	}
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
