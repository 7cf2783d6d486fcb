/*
 * multi_status.h
 *		Answers with a status for each row (207).
 */
#ifndef INCSINK_MULTI_STATUS_H
#define INCSINK_MULTI_STATUS_H

#include "postgres.h"

/*
 * Does the answer say that every row was stored?  True if it is JSON in which each
 * member "status" is a number below 300 and no member "error" or "errors" is set (to
 * other than null, false, 0, "", [] or {}).  What cannot be read says nothing, and is
 * false.  Never throws.
 */
extern bool EveryRowWasStored(const char *answer, size_t length);

#endif							/* INCSINK_MULTI_STATUS_H */
