/*
 * horizon.h
 *		The highest seq below which nothing can appear any more.
 *
 * nextval(), however it is reached, locks the sequence in RowExclusiveLock before
 * it draws, for the top transaction, until that ends (commands/sequence.c,
 * init_sequence and lock_and_open_sequence).  So (1) S is read from the sequence, (2) then the
 * holders of such a lock are collected, (3) and when all of those have ended, S is
 * the horizon for every snapshot taken later.  Time-outs never move it.
 */
#ifndef INCSINK_HORIZON_H
#define INCSINK_HORIZON_H

#include "postgres.h"

#include "storage/lock.h"

/* What the sequence says of itself; read without the counted lock. */
typedef struct SequenceReading
{
	int64		last_drawn;		/* S: 0 before the first call */
	int64		increment;
	int64		cache;
	bool		cycle;
	Oid			relfilenode;
} SequenceReading;

/*
 * Reads the sequence under a conditional AccessShareLock.  False when that is not
 * to be had at once (TRUNCATE ... RESTART IDENTITY holds it) or the sequence is
 * gone: nothing is known then, and the horizon stays where it is.
 */
extern bool ReadSequence(Oid sequence, SequenceReading *reading);

#define HORIZON_CANDIDATES 8

typedef struct HorizonCandidate
{
	int64		seq;
	int			nholders;
	VirtualTransactionId *holders;	/* those that had not ended when last looked */
} HorizonCandidate;

/*
 * The horizon of one partition and the candidates on their way to become it, kept
 * from turn to turn so that it moves under constant load.  Lives in "context".
 */
typedef struct HorizonTracker
{
	Oid			sequence;
	int64		horizon;
	TimestampTz moved_at;
	int			ncandidates;
	HorizonCandidate candidates[HORIZON_CANDIDATES];
	MemoryContext context;
} HorizonTracker;

extern void HorizonTrackerInit(HorizonTracker *tracker, Oid sequence, int64 horizon,
							   MemoryContext context);
extern void HorizonTrackerReset(HorizonTracker *tracker);

/*
 * Takes a new candidate with the given reading's S, if S is above the newest, and
 * promotes what has ended.  Returns true if the horizon moved.  Must be called
 * before the snapshot that will read up to it is taken, in a transaction; takes no
 * heavyweight lock that waits.  The own transaction's numbers hold it back.
 */
extern bool HorizonAdvance(HorizonTracker *tracker, const SequenceReading *reading);

/*
 * Takes over a horizon that another process, or one before this, has found for the
 * same life of the sequence; a lower one changes nothing.
 */
extern void HorizonRaise(HorizonTracker *tracker, int64 horizon);

/* True if this transaction may have drawn a number that it can still commit. */
extern bool OwnTransactionHasDrawn(Oid sequence);

/* The same of any other, that is open or prepared. */
extern bool OthersHaveDrawn(Oid sequence);

#endif							/* INCSINK_HORIZON_H */
