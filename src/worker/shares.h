/*
 * shares.h
 *		The shares of its class that this process works on.
 *
 * Worker number i of incsink.workers = n works on the shares s with s mod n = i, as
 * far as their locks are to be had: one that is held by another process, which has
 * not seen a change of the setting yet or is stopped, is asked for again and again.
 */
#ifndef INCSINK_SHARES_H
#define INCSINK_SHARES_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef uint64 ShareSet;

#define SHARE_BIT(share) (UINT64CONST(1) << (share))

/* The number of the worker whose share it is by the setting. */
extern int	WorkerOfShare(int share);

extern bool ShareIsMine(int share);

/*
 * In a transaction: from now on these are wanted.  Takes what is free; returns what
 * this process has of them.  What it has besides stays until ReleaseShares().
 */
extern ShareSet WantShares(ShareSet wanted);

/* Lets go of what is not wanted any more, once nothing is done for it. */
extern void ReleaseShares(void);

/*
 * In a transaction, each turn: takes again what an aborted one has let go of, and looks
 * for what others had.  True if this process has others than before.
 */
extern bool StayWithShares(TimestampTz now);

/* When to look for what others have, or 0 if nothing is missing. */
extern TimestampTz ShareLookDue(void);

#endif							/* INCSINK_SHARES_H */
