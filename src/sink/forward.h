/*
 * forward.h
 *		What an HTTP answer means; pure, for the table of tests.
 */
#ifndef INCSINK_FORWARD_H
#define INCSINK_FORWARD_H

#include "postgres.h"

#include "catalog/credentials.h"
#include "sink/verdict.h"
#include "transport/http.h"
#include "utils/timestamp.h"

/* What an answer does not tell by itself. */
typedef struct AnswerSituation
{
	const Credentials *credentials; /* NULL = none */
	TimestampTz now;
	int64		retry_max;		/* milliseconds */
	int			reuse_status;	/* for an id that the receiver has, 0 = none */
	bool		may_be_stored;	/* by an attempt before this one */
} AnswerSituation;

/* Fills in the verdict on a finished transfer; secrets in the answer are blanked. */
extern void JudgeAnswer(const HttpResult *result, const AnswerSituation *situation,
						Verdict *verdict);

#endif							/* INCSINK_FORWARD_H */
