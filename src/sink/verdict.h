/*
 * verdict.h
 *		What a receiver's answer, or the failure of a step, means for a delivery.
 */
#ifndef INCSINK_VERDICT_H
#define INCSINK_VERDICT_H

#include "postgres.h"

typedef enum VerdictClass
{
	VERDICT_ACKNOWLEDGED,		/* stored, durably */
	VERDICT_RETRY,				/* may work later: 408, 409, 425, 429, 5xx,
								 * connection errors, disk full */
	VERDICT_CREDENTIALS,		/* 401, 403: as above, with the secret read
								 * anew */
	VERDICT_CONFIGURATION,		/* 404, 405, 410, 415, redirects, a missing
								 * privilege: halted, with a slow probe */
	VERDICT_REJECTED,			/* 400, 422, a foreign object in the way:
								 * halted, what a retry cannot mend */
	VERDICT_TOO_LARGE			/* 413: fewer rows may be taken */
} VerdictClass;

typedef struct Verdict
{
	VerdictClass class;
	bool		sure;			/* proven that the attempt did not store the
								 * batch */
	int			status;			/* of HTTP, 0 = none */
	int64		retry_after;	/* milliseconds the receiver asked for, 0 =
								 * did not */
	char		message[1024];	/* for people; no secret, valid in the
								 * server's encoding; "" if acknowledged */
	char		hint[512];		/* what to do, or "" */
} Verdict;

#endif							/* INCSINK_VERDICT_H */
