/*
 * policy.h
 *		What each status of an HTTP answer means: one table.
 *
 * incsink_answers() shows it, doc/reference.md has it, and tests compare the three.
 */
#ifndef INCSINK_POLICY_H
#define INCSINK_POLICY_H

#include "postgres.h"

#include "sink/verdict.h"

typedef struct AnswerPolicy
{
	int			first;			/* statuses, both included; 0 = no complete
								 * answer */
	int			last;
	VerdictClass class;
	bool		sure;			/* proves that the batch was not stored */
	bool		waits;			/* Retry-After counts */
	const char *hint;			/* what to do, or "" */
} AnswerPolicy;

/* Ranges follow each other without a gap; ends with a row whose hint is NULL. */
extern const AnswerPolicy answer_policy[];

/* The row of a status; that of no answer for what is none. */
extern const AnswerPolicy *PolicyOfStatus(long status);

/* What becomes of a batch that is answered so, for people. */
extern const char *OutcomeOfPolicy(const AnswerPolicy *policy);

#endif							/* INCSINK_POLICY_H */
