/*
 * answer.c
 *		From an HTTP answer to a verdict.
 *
 * Nothing but a 2xx acknowledges: a redirect's page, a cached error and an answer
 * that breaks off do not.
 */
#include "postgres.h"

#include "sink/forward.h"
#include "sink/url.h"
#include "transport/retry.h"

#define SHOWN_ANSWER 300		/* bytes of an answer that people are shown */

#define RETRY_HINT \
	"Mend the receiver, or the url with incsink_alter_sink(). It is tried again by itself; incsink_resume_sink() tries at once."

static VerdictClass
ClassifyStatus(long status)
{
	if (status >= 200 && status < 300)
		return status == 207 ? VERDICT_REJECTED : VERDICT_ACKNOWLEDGED;
	if (status >= 300 && status < 400)
		return VERDICT_CONFIGURATION;
	switch (status)
	{
		case 400:
		case 413:
		case 422:
			return VERDICT_REJECTED;
		case 401:
		case 403:
		case 407:
			return VERDICT_CREDENTIALS;
		case 408:
		case 409:
		case 423:
		case 425:
		case 429:
			return VERDICT_RETRY;
		default:
			return status >= 400 && status < 500 ? VERDICT_CONFIGURATION : VERDICT_RETRY;
	}
}

static const char *
HintForStatus(long status)
{
	switch (status)
	{
		case 207:
			return "The receiver stored a part of the batch. Mend it there, then call incsink_resume_sink().";
		case 400:
		case 422:
			return "The receiver refuses the content. Mend the receiver or the rows, then call incsink_resume_sink().";
		case 413:
			return "Raise the receiver's limit, then call incsink_resume_sink(); lower the option flush_bytes for batches to come.";
		case 401:
		case 403:
			return "Correct the user mapping of the sink's credentials; it is read anew at each attempt.";
		case 404:
		case 410:
			return "Correct the url with incsink_alter_sink(), or the receiver.";
		case 405:
			return "Correct the option method with incsink_alter_sink(), or the receiver.";
		case 415:
			return "The receiver must accept application/x-ndjson.";
		default:
			if (status >= 300 && status < 400)
				return "Set the url to the place the receiver names; redirects are not followed.";
			return RETRY_HINT;
	}
}

/* Appends at most "limit" bytes of text from elsewhere as printable ASCII. */
static void
AppendForeign(char *out, size_t size, const char *text, size_t length, size_t limit)
{
	size_t		at = strlen(out);

	for (size_t i = 0; i < length && i < limit && at + 1 < size; i++)
		out[at++] = text[i] >= ' ' && text[i] <= '~' ? text[i] : text[i] == '\n' ? ' ' : '?';
	out[at] = '\0';
}

static void
BlankSecret(char *text, size_t length, const char *secret)
{
	size_t		secret_length = strlen(secret);
	char	   *end = text + length;
	char	   *found;

	if (secret_length == 0)
		return;
	while ((found = memmem(text, end - text, secret, secret_length)) != NULL)
	{
		memset(found, '*', secret_length);
		text = found + secret_length;
	}
}

/*
 * Appends what a receiver has said.  It may echo what it was sent: secrets are blanked
 * as they are and as they stand in a URL, in the whole of it, before it is cut.  Where
 * there is no memory for that nothing is shown.
 */
static void
AppendAnswer(char *out, size_t size, const char *text, size_t length,
			 const Credentials *credentials)
{
	char	   *copy;

	if (credentials == NULL)
	{
		AppendForeign(out, size, text, length, SHOWN_ANSWER);
		return;
	}
	copy = palloc_extended(length + 1, MCXT_ALLOC_NO_OOM);
	if (copy == NULL)
		return;
	memcpy(copy, text, length);
	for (int i = 0; i < credentials->nsecrets; i++)
	{
		const char *secret = credentials->secrets[i].value;
		char	   *escaped = EscapeForUrl(secret);

		BlankSecret(copy, length, secret);
		BlankSecret(copy, length, escaped);
		pfree(escaped);
	}
	AppendForeign(out, size, copy, length, SHOWN_ANSWER);
	pfree(copy);
}

static void
DescribeAnswer(const HttpResult *result, const Credentials *credentials, Verdict *verdict)
{
	size_t		size = sizeof(verdict->message);

	snprintf(verdict->message, size, "the receiver answered %ld", result->status);
	if (result->location != NULL && result->status >= 300 && result->status < 400)
	{
		strlcat(verdict->message, " with a redirect to ", size);
		AppendAnswer(verdict->message, size, result->location, strcspn(result->location, "?#"),
					 credentials);
	}
	if (result->answer_length > 0)
	{
		strlcat(verdict->message, ": ", size);
		AppendAnswer(verdict->message, size, result->answer, result->answer_length, credentials);
	}
}

void
JudgeAnswer(const HttpResult *result, const Credentials *credentials, TimestampTz now,
			int64 retry_max, Verdict *verdict)
{
	memset(verdict, 0, sizeof(*verdict));
	if (result->failure != HTTP_COMPLETE)
	{
		verdict->class = VERDICT_RETRY;
		AppendAnswer(verdict->message, sizeof(verdict->message), result->error,
					 strlen(result->error), credentials);
		strlcpy(verdict->hint, RETRY_HINT, sizeof(verdict->hint));
	}
	else
	{
		verdict->class = ClassifyStatus(result->status);
		if (verdict->class == VERDICT_ACKNOWLEDGED)
			return;
		DescribeAnswer(result, credentials, verdict);
		strlcpy(verdict->hint, HintForStatus(result->status), sizeof(verdict->hint));
	}
	if (result->retry_after != NULL)
		verdict->retry_after = RetryAfterDelay(result->retry_after, now, retry_max);
}
