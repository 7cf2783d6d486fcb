/*
 * reject.h
 *		What a delivery does with a batch that the receiver has refused.
 */
#ifndef INCSINK_REJECT_H
#define INCSINK_REJECT_H

#include "delivery/delivery.h"

/*
 * Notes what the verdict on a flight's attempt proves, and whether there is something to
 * do about it but to halt: then the flight has a remedy, and true is returned.  Otherwise
 * the verdict's hint may become another one.
 */
extern bool FindRemedy(Flight *flight, Verdict *verdict);

/* Is the lowest batch that stands one that has a remedy, whose turn it is? */
extern bool RemedyIsDue(const Delivery *delivery);

/* Has it one, and is it not its turn?  Rows are put aside in the order of their ranges. */
extern bool RemedyWaits(const Delivery *delivery);

/* Carries it out, instead of an attempt: the delivery is locked. */
extern void ApplyRemedy(Flight *flight, TimestampTz now);

/* Has an earlier attempt of the batch, as far as is known, perhaps been stored? */
extern bool MayBeStored(const Flight *flight);

/* Notes in the catalog what is known of the attempts of batches that stand. */
extern void NoteRefusals(const Delivery *delivery);

#endif							/* INCSINK_REJECT_H */
