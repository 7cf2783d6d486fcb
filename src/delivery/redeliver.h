/*
 * redeliver.h
 *		Sends rows that were put aside again, beside the batches of their delivery.
 *
 * One at a time, each as it was refused, under an id and an epoch of its own.  Failures
 * are its own, too: the delivery goes on whatever becomes of them.
 */
#ifndef INCSINK_REDELIVER_H
#define INCSINK_REDELIVER_H

#include "delivery/delivery.h"

/* Looks in the catalog, at the next turn, for what is to be sent again. */
extern void LookForRedelivery(Delivery *delivery);

extern bool RedeliveryIsDue(const Delivery *delivery, TimestampTz now);
extern TimestampTz RedeliveryDueAt(const Delivery *delivery);

/* Its part of a turn, in a subtransaction; what an ERROR of that means. */
extern void RedeliverStep(Delivery *delivery, TimestampTz now);
extern void RedeliveryFailed(Delivery *delivery, const ErrorData *error);

/* After the commit, which lets the rows out, and after an abort.  True: go on at once. */
extern bool RedeliveryCommitted(Delivery *delivery);
extern void RedeliveryAborted(Delivery *delivery);

/* Cancels what is in flight. */
extern void RedeliveryFree(Delivery *delivery);

#endif							/* INCSINK_REDELIVER_H */
