/*
 * current.h
 *		The horizon as a session that is no worker knows it.
 */
#ifndef INCSINK_CURRENT_H
#define INCSINK_CURRENT_H

#include "postgres.h"

#include "catalog/partition.h"

typedef struct CurrentState
{
	bool		drawn_known;	/* false: the sequence is locked, or we are a standby */
	int64		last_drawn;
	int64		horizon;
} CurrentState;

/*
 * The best that can be said now without waiting: the horizon that a worker
 * published or the one computed here, whichever is higher; on a standby the last
 * one that the primary recorded.  Raises an ERROR when CheckPartition() finds
 * the partition unsound.
 */
extern CurrentState FindCurrentState(Partition *partition);

/*
 * Waits until the horizon has reached what was drawn when it was called, for
 * "timeout" milliseconds at most.  Holds no lock meanwhile.  Raises an ERROR if the
 * own transaction holds the horizon back.
 */
extern CurrentState WaitForHorizon(Partition *partition, int64 timeout);

/* For one who only shows it: raises nothing, needs no sound partition. */
extern bool PeekHorizon(const Partition *partition, CurrentState *state);

#endif							/* INCSINK_CURRENT_H */
