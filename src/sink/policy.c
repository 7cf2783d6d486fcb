/*
 * policy.c
 *		What each status of an HTTP answer means: one table.
 *
 * "sure" is the word on which a batch may be split or put aside: an answer that some
 * receivers give after they have stored a batch is not (409 for a known id, 303 after a
 * POST, any 5xx of a proxy).
 */
#include "postgres.h"

#include "sink/policy.h"

#define HIGHEST_STATUS 999		/* three digits: RFC 9110 section 15 */

#define MEND \
	"Mend the receiver, or the url with incsink_alter_sink(). It is tried again by itself; incsink_resume_sink() tries at once."
#define SECRET \
	"Correct the user mapping of the sink's credentials; it is read anew at each attempt."
#define PLACE \
	"Correct the url with incsink_alter_sink(), or the receiver."
#define MOVED \
	"Set the url to the place the receiver names; redirects are not followed."
#define CONTENT \
	"The receiver refuses the content. Mend the receiver or the rows, then call incsink_resume_sink(); with the option on_reject \"dead_letter\" such rows are put aside."
#define PARTLY \
	"The receiver stored a part of the batch. Mend it there, then call incsink_resume_sink()."
#define LARGE \
	"Raise the receiver's limit, then call incsink_resume_sink(). Batches of several rows are split; with the option on_reject \"dead_letter\" a row that is too large by itself is put aside."

const AnswerPolicy answer_policy[] = {
	{0, 0, VERDICT_RETRY, false, true, MEND},
	{200, 206, VERDICT_ACKNOWLEDGED, false, false, ""},
	{207, 207, VERDICT_REJECTED, false, false, PARTLY},
	{208, 299, VERDICT_ACKNOWLEDGED, false, false, ""},
	{300, 306, VERDICT_CONFIGURATION, false, false, MOVED},
	{307, 308, VERDICT_CONFIGURATION, true, false, MOVED},
	{309, 399, VERDICT_CONFIGURATION, false, false, MOVED},
	{400, 400, VERDICT_REJECTED, true, false, CONTENT},
	{401, 401, VERDICT_CREDENTIALS, true, true, SECRET},
	{402, 402, VERDICT_CONFIGURATION, true, false, MEND},
	{403, 403, VERDICT_CREDENTIALS, true, true, SECRET},
	{404, 404, VERDICT_CONFIGURATION, true, false, PLACE},
	{405, 405, VERDICT_CONFIGURATION, true, false,
	"Correct the option method with incsink_alter_sink(), or the receiver."},
	{406, 406, VERDICT_CONFIGURATION, true, false, MEND},
	{407, 407, VERDICT_CREDENTIALS, true, true,
	"A proxy in front of the receiver asks for credentials. Set the url to a place that does not, or mend the proxy."},
	{408, 409, VERDICT_RETRY, false, true, MEND},
	{410, 410, VERDICT_CONFIGURATION, true, false, PLACE},
	{411, 412, VERDICT_CONFIGURATION, true, false, MEND},
	{413, 413, VERDICT_TOO_LARGE, true, false, LARGE},
	{414, 414, VERDICT_CONFIGURATION, true, false, PLACE},
	{415, 415, VERDICT_CONFIGURATION, true, false,
	"The receiver must accept the content type of the sink's format and compression."},
	{416, 421, VERDICT_CONFIGURATION, true, false, MEND},
	{422, 422, VERDICT_REJECTED, true, false, CONTENT},
	{423, 423, VERDICT_RETRY, true, true, MEND},
	{424, 424, VERDICT_CONFIGURATION, true, false, MEND},
	{425, 425, VERDICT_RETRY, true, true, MEND},
	{426, 428, VERDICT_CONFIGURATION, true, false, MEND},
	{429, 429, VERDICT_RETRY, true, true, MEND},
	{430, 498, VERDICT_CONFIGURATION, true, false, MEND},
	{499, 499, VERDICT_CONFIGURATION, false, false, MEND},
	{500, HIGHEST_STATUS, VERDICT_RETRY, false, true, MEND},
	{-1, -1, VERDICT_RETRY, false, false, NULL}
};

const AnswerPolicy *
PolicyOfStatus(long status)
{
	for (const AnswerPolicy *policy = answer_policy; policy->hint != NULL; policy++)
		if (status >= policy->first && status <= policy->last)
			return policy;
	return &answer_policy[0];
}

const char *
OutcomeOfPolicy(const AnswerPolicy *policy)
{
	switch (policy->class)
	{
		case VERDICT_ACKNOWLEDGED:
			return "exported";
		case VERDICT_RETRY:
			return "sent again";
		case VERDICT_CREDENTIALS:
			return "sent again with the secret read anew";
		case VERDICT_CONFIGURATION:
			return "halted, with a probe every retry_max";
		case VERDICT_REJECTED:
			if (!policy->sure)
				return "exported if it says so of every row, else halted";
			return "halted, or its bad rows are put aside";
		case VERDICT_TOO_LARGE:
			return "split";
	}
	return NULL;				/* keep compilers quiet */
}
