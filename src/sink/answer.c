/*
 * answer.c
 *		From an HTTP answer to a verdict.
 *
 * Nothing but a 2xx acknowledges: a redirect's page, a cached error and an answer
 * that breaks off do not.
 */
#include "postgres.h"

#include "sink/forward.h"
#include "sink/multi_status.h"
#include "sink/policy.h"
#include "sink/url.h"
#include "transport/retry.h"

#define SHOWN_ANSWER 300		/* bytes of an answer that people are shown */

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

/*
 * Is that what the receiver answers for an id that it has already?  Only if an earlier
 * attempt may have been stored: whoever was refused before is refused again.
 */
static bool
IsKnownId(const HttpResult *result, const AnswerSituation *situation)
{
	return situation->reuse_status != 0 && result->status == situation->reuse_status &&
		(situation->may_be_stored || result->resent);
}

/* Is the batch stored, by a complete answer? */
static bool
IsAcknowledged(const HttpResult *result, const AnswerPolicy *policy,
			   const AnswerSituation *situation)
{
	if (policy->class == VERDICT_ACKNOWLEDGED || IsKnownId(result, situation))
		return true;
	return result->status == 207 && EveryRowWasStored(result->answer, result->answer_length);
}

static void
JudgeFailure(const HttpResult *result, const AnswerSituation *situation, Verdict *verdict)
{
	AppendAnswer(verdict->message, sizeof(verdict->message), result->error,
				 strlen(result->error), situation->credentials);
	verdict->sure = result->failure == HTTP_NOT_SENT && !result->resent;
}

/*
 * A request that went out twice proves nothing by its second answer: the first one may
 * have been stored.
 */
void
JudgeAnswer(const HttpResult *result, const AnswerSituation *situation, Verdict *verdict)
{
	bool		is_complete = result->failure == HTTP_COMPLETE;
	const AnswerPolicy *policy = PolicyOfStatus(is_complete ? result->status : 0);

	memset(verdict, 0, sizeof(*verdict));
	verdict->status = (int) result->status;
	verdict->class = policy->class;
	if (is_complete && IsAcknowledged(result, policy, situation))
	{
		verdict->class = VERDICT_ACKNOWLEDGED;
		return;
	}
	if (is_complete)
	{
		DescribeAnswer(result, situation->credentials, verdict);
		verdict->sure = policy->sure && !result->resent;
	}
	else
		JudgeFailure(result, situation, verdict);
	strlcpy(verdict->hint, policy->hint, sizeof(verdict->hint));
	if (policy->waits && result->retry_after != NULL)
		verdict->retry_after = RetryAfterDelay(result->retry_after, situation->now,
											   situation->retry_max);
}
