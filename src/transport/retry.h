/*
 * retry.h
 *		When to try again: a ladder with full jitter, and Retry-After.
 */
#ifndef INCSINK_RETRY_H
#define INCSINK_RETRY_H

#include "postgres.h"

#include "datatype/timestamp.h"

/*
 * Milliseconds to wait before attempt number "failures" + 1 (failures >= 1):
 * uniformly drawn from (0, min(initial * 2^(failures - 1), max)], never less
 * than 1.  "fraction" is the random draw in [0, 1), so that tests are exact.
 */
extern int64 RetryDelay(int failures, int64 initial_ms, int64 max_ms, double fraction);

/*
 * Milliseconds that a Retry-After header asks for: delta seconds or any of the
 * three HTTP date forms of RFC 9110 section 5.6.7.  0 when it is absent,
 * malformed, zero, negative or in the past: the ladder decides then.  Never more
 * than max_ms.
 */
extern int64 RetryAfterDelay(const char *header, TimestampTz now, int64 max_ms);

#endif							/* INCSINK_RETRY_H */
