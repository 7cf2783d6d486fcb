/*
 * subtransaction.h
 *		A piece of work whose failure must not take the transaction with it.
 */
#ifndef INCSINK_SUBTRANSACTION_H
#define INCSINK_SUBTRANSACTION_H

#include "postgres.h"

/*
 * Calls work(arg) in a subtransaction.  NULL if it went well; otherwise it was
 * rolled back and the error is returned, for FreeErrorData().  Memory context and
 * resource owner are the caller's afterwards.
 */
extern ErrorData *InSubtransaction(void (*work) (void *arg), void *arg);

#endif							/* INCSINK_SUBTRANSACTION_H */
