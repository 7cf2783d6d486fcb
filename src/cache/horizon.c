/*
 * horizon.c
 *		Candidates for the horizon, and what holds them back.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "cache/horizon.h"
#include "common/compat.h"

void
HorizonTrackerInit(HorizonTracker *tracker, Oid sequence, int64 horizon, MemoryContext context)
{
	memset(tracker, 0, sizeof(HorizonTracker));
	tracker->sequence = sequence;
	tracker->horizon = horizon;
	tracker->moved_at = GetCurrentTimestamp();
	tracker->context = context;
}

/* Frees the candidates from the first up to, not including, the one at "count". */
static void
DropCandidates(HorizonTracker *tracker, int count)
{
	for (int i = 0; i < count; i++)
		if (tracker->candidates[i].holders)
			pfree(tracker->candidates[i].holders);
	tracker->ncandidates -= count;
	memmove(tracker->candidates, tracker->candidates + count,
			sizeof(HorizonCandidate) * tracker->ncandidates);
}

/*
 * Forgets everything: the sequence has begun another life.  The horizon is 0 until
 * HorizonAdvance() finds one.
 */
void
HorizonTrackerReset(HorizonTracker *tracker)
{
	DropCandidates(tracker, tracker->ncandidates);
	tracker->horizon = 0;
	tracker->moved_at = GetCurrentTimestamp();
}

/*
 * Looks for the lock that nextval() takes or a stronger one.  LockHeldByMe() looks
 * for one mode only in 15 and 16.
 */
bool
OwnTransactionHasDrawn(Oid sequence)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, sequence);
	for (LOCKMODE mode = RowExclusiveLock; mode <= AccessExclusiveLock; mode++)
		if (LockHeldByMeCompat(&tag, mode))
			return true;
	return false;
}

bool
OthersHaveDrawn(Oid sequence)
{
	LOCKTAG		tag;
	int			count;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, sequence);
	pfree(GetLockConflicts(&tag, ShareLock, &count));
	return count > 0;
}

/*
 * Notes who may still commit a number up to candidate->seq.
 *
 * GetLockConflicts() finds holders in the main lock table and in the fast-path
 * slots of every backend, prepared transactions too, but never the caller; so the
 * own transaction is added by its own virtual id, which has not ended before it
 * has.  Waiters are not among them: they have drawn nothing.
 */
static void
CollectHolders(HorizonTracker *tracker, HorizonCandidate *candidate)
{
	LOCKTAG		tag;
	VirtualTransactionId *conflicts;
	int			nconflicts;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, tracker->sequence);
	conflicts = GetLockConflicts(&tag, ShareLock, &nconflicts);
	candidate->holders = MemoryContextAlloc(tracker->context,
											sizeof(VirtualTransactionId) * (nconflicts + 1));
	if (nconflicts > 0)
		memcpy(candidate->holders, conflicts, sizeof(VirtualTransactionId) * nconflicts);
	candidate->nholders = nconflicts;
	if (OwnTransactionHasDrawn(tracker->sequence))
	{
		GET_VXID_FROM_PGPROC(candidate->holders[nconflicts], *MyProc);
		candidate->nholders++;
	}
	pfree(conflicts);
}

/*
 * True if all holders have ended.  VirtualXactLock() looks for a transaction that
 * was prepared after it was noted (lmgr/lock.c, XactLockForVirtualXact), and takes
 * the id of one that was prepared before a restart.
 */
static bool
HoldersHaveEnded(HorizonCandidate *candidate)
{
	while (candidate->nholders > 0)
	{
		if (!VirtualXactLock(candidate->holders[candidate->nholders - 1], false))
			return false;
		candidate->nholders--;
	}
	return true;
}

/*
 * Makes the highest candidate whose holders have all ended the horizon.  Whoever
 * held the lock at an older candidate and goes on stands among the holders of
 * every newer one, so the older ones are settled with it.
 */
static bool
PromoteCandidates(HorizonTracker *tracker)
{
	for (int i = tracker->ncandidates - 1; i >= 0; i--)
	{
		if (!HoldersHaveEnded(&tracker->candidates[i]))
			continue;
		tracker->horizon = tracker->candidates[i].seq;
		tracker->moved_at = GetCurrentTimestamp();
		DropCandidates(tracker, i + 1);
		return true;
	}
	return false;
}

/* The highest seq that is the horizon or on its way to become it. */
static int64
NewestSeq(const HorizonTracker *tracker)
{
	return tracker->ncandidates > 0 ? tracker->candidates[tracker->ncandidates - 1].seq
		: tracker->horizon;
}

/*
 * Adds a candidate.  When there are too many the newest makes room: the old ones
 * have the fewest holders left, so one of them becomes the horizon however long
 * the load goes on.
 */
static void
AddCandidate(HorizonTracker *tracker, int64 seq)
{
	HorizonCandidate *candidate;

	if (tracker->ncandidates == HORIZON_CANDIDATES)
	{
		tracker->ncandidates--;
		pfree(tracker->candidates[tracker->ncandidates].holders);
	}
	candidate = &tracker->candidates[tracker->ncandidates];
	candidate->seq = seq;
	CollectHolders(tracker, candidate);
	tracker->ncandidates++;
}

/*
 * A sequence that stands below what was seen of it has been set back.  Nothing is
 * promoted then; whether it may have been is for CheckPartition() to say.
 */
bool
HorizonAdvance(HorizonTracker *tracker, const SequenceReading *reading)
{
	bool		moved;

	if (reading->last_drawn < NewestSeq(tracker))
	{
		DropCandidates(tracker, tracker->ncandidates);
		return false;
	}
	moved = PromoteCandidates(tracker);
	if (reading->last_drawn > NewestSeq(tracker))
	{
		AddCandidate(tracker, reading->last_drawn);
		moved |= PromoteCandidates(tracker);
	}
	return moved;
}

/* Candidates up to it are settled with it. */
void
HorizonRaise(HorizonTracker *tracker, int64 horizon)
{
	int			settled = 0;

	if (horizon <= tracker->horizon)
		return;
	while (settled < tracker->ncandidates && tracker->candidates[settled].seq <= horizon)
		settled++;
	DropCandidates(tracker, settled);
	tracker->horizon = horizon;
	tracker->moved_at = GetCurrentTimestamp();
}
