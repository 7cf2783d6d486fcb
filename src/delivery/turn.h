/*
 * turn.h
 *		The catalog work of many deliveries in one transaction.
 *
 * What each delivery does in the catalog is the same for all of them: lock, acknowledge,
 * insert an intent.  Done one by one the statements cost more than the batches, so a turn
 * makes each of them once for all that are due.  A statement that raises, or that moves
 * another number than it was asked to, is rolled back, and its deliveries take it one by
 * one: one that is sick costs the others that turn's speed and nothing else.
 */
#ifndef INCSINK_TURN_H
#define INCSINK_TURN_H

#include "postgres.h"

#include "delivery/delivery.h"

/* Deliveries of one turn, at most. */
#define TURN_DELIVERIES 1000

typedef struct Turn
{
	TimestampTz now;
	int			budget_ms;		/* for reading, before sends are due */
	Delivery  **due;
	int			count;
	int			handled;		/* of them; the others are left for the next turn, but
								 * for acknowledgements */
	Delivery  **touched;		/* need DeliveryCommitted() or DeliveryAborted() */
	int			ntouched;
} Turn;

/*
 * In a transaction; works in CurrentMemoryContext.  "due" is what DeliveryIsDue() said it of,
 * "touched" has room for as many.  Errors of deliveries become their state; whatever else
 * is raised leaves "touched" right.
 */
extern void TakeDeliveriesTurn(Turn *turn);

#endif							/* INCSINK_TURN_H */
