/*
 * shares.c
 *		The shares of its class that this process works on.
 */
#include "postgres.h"

#include "common/compat.h"
#include "common/inject.h"
#include "common/settings.h"
#include "common/worker_lock.h"
#include "storage/lock.h"
#include "utils/timestamp.h"
#include "worker/shares.h"
#include "worker/slot.h"

#define LOOK_AGAIN_MS 250

static ShareSet wanted = 0;
static ShareSet held = 0;		/* when last looked */
static TimestampTz look_again_at = 0;

int
WorkerOfShare(int share)
{
	return share % setting_workers;
}

bool
ShareIsMine(int share)
{
	return WorkerOfShare(share) == my_slot->number || INCSINK_POINT_ERRNO("share-filter") != 0;
}

static void
SetTag(LOCKTAG *tag, int share)
{
	SetShareLockTag(tag, my_extension, my_slot->class, share);
}

static bool
HasLock(int share)
{
	LOCKTAG		tag;

	if (INCSINK_POINT_ERRNO("share-lock") != 0)
		return true;
	SetTag(&tag, share);
	return LockHeldByMeCompat(&tag, ExclusiveLock);
}

static bool
TakeLock(int share)
{
	LOCKTAG		tag;

	if (HasLock(share))
		return true;
	SetTag(&tag, share);
	return LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
}

ShareSet
WantShares(ShareSet shares)
{
	wanted = shares;
	for (int share = 0; share < SHARES; share++)
	{
		if ((wanted & SHARE_BIT(share)) == 0)
			continue;
		if (TakeLock(share))
			held |= SHARE_BIT(share);
		else
			held &= ~SHARE_BIT(share);
	}
	look_again_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOOK_AGAIN_MS);
	return held & wanted;
}

void
ReleaseShares(void)
{
	for (int share = 0; share < SHARES; share++)
	{
		LOCKTAG		tag;

		if ((held & ~wanted & SHARE_BIT(share)) == 0)
			continue;
		SetTag(&tag, share);
		if (LockHeldByMeCompat(&tag, ExclusiveLock))
			(void) LockRelease(&tag, ExclusiveLock, true);
	}
	held &= wanted;
}

bool
StayWithShares(TimestampTz now)
{
	ShareSet	before = held & wanted;
	bool		look = ShareLookDue() != 0 && look_again_at <= now;

	for (int share = 0; share < SHARES; share++)
	{
		ShareSet	bit = SHARE_BIT(share);

		if ((wanted & bit) == 0 || ((held & bit) == 0 && !look))
			continue;
		if (TakeLock(share))
			held |= bit;
		else
			held &= ~bit;
	}
	if (look)
		look_again_at = TimestampTzPlusMilliseconds(now, LOOK_AGAIN_MS);
	return (held & wanted) != before;
}

TimestampTz
ShareLookDue(void)
{
	return (wanted & ~held) != 0 ? look_again_at : 0;
}
