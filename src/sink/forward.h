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

/* Fills in the verdict on a finished transfer; secrets in the answer are blanked. */
extern void JudgeAnswer(const HttpResult *result, const Credentials *credentials,
						TimestampTz now, int64 retry_max, Verdict *verdict);

#endif							/* INCSINK_FORWARD_H */
