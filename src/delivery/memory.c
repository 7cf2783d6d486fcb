/*
 * memory.c
 *		Who may hold how many bytes of bodies.
 */
#include "postgres.h"

#include "delivery/memory.h"
#include "utils/timestamp.h"

/* Deliveries that wait for memory ask every 100 ms. */
#define LINE_MS 1000

static int64 held_by_all = 0;

/* The retry that waits for memory longest. */
static const void *first_in_line = NULL;
static int64 first_need;
static TimestampTz first_asked_at;

/* own + new <= limit - reserved - (total + new) */
int64
MemoryForBatch(const MemoryShare *share)
{
	int64		allowed = (share->limit - share->reserved - share->total - share->own) / 2;

	if (share->own == 0)
		allowed = Max(allowed, MINIMUM_BATCH);
	return Max(allowed, 0);
}

int64
MemoryNeed(int64 limit, int64 bytes)
{
	return bytes > limit ? limit / 2 : bytes;
}

bool
MemoryForRetry(const MemoryShare *share, int64 need, bool is_first_in_line)
{
	if (need <= MemoryForBatch(share) || share->total == share->own)
		return true;
	return is_first_in_line && need <= share->limit - share->total;
}

void
MemoryAccount(size_t *accounted, size_t held)
{
	held_by_all += (int64) held - (int64) *accounted;
	*accounted = held;
}

int64
MemoryHeldByAll(void)
{
	return held_by_all;
}

static bool
LineIsEmpty(TimestampTz now)
{
	return first_in_line == NULL || TimestampDifferenceExceeds(first_asked_at, now, LINE_MS);
}

bool
MemoryWaitInLine(const void *who, int64 need, TimestampTz now)
{
	if (first_in_line != who && !LineIsEmpty(now))
		return false;
	first_in_line = who;
	first_need = need;
	first_asked_at = now;
	return true;
}

void
MemoryLeaveLine(const void *who)
{
	if (first_in_line == who)
		first_in_line = NULL;
}

int64
MemoryReserved(const void *who, TimestampTz now)
{
	return first_in_line == who || LineIsEmpty(now) ? 0 : first_need;
}
