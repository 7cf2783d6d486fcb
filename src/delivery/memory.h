/*
 * memory.h
 *		Who may hold how many bytes of bodies.
 *
 * All deliveries of a process share incsink.buffer_memory by dynamic thresholds (Choudhury
 * and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998): each may hold as much as is
 * left free.  However many of them are stuck, something stays free for the others, without
 * anybody having to know who is stuck.  The worst case is the setting and MINIMUM_BATCH for
 * each delivery, and a row that is larger than what is allowed.
 */
#ifndef INCSINK_MEMORY_H
#define INCSINK_MEMORY_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* What a delivery that holds nothing may always have. */
#define MINIMUM_BATCH INT64CONST(65536)

typedef struct MemoryShare
{
	int64		limit;
	int64		total;			/* held by all, "own" included */
	int64		own;			/* held by the delivery that asks */
	int64		reserved;		/* for another one, which is first in line */
} MemoryShare;

/* How large a new batch may become; below MINIMUM_BATCH it has to wait. */
extern int64 MemoryForBatch(const MemoryShare *share);

/*
 * What a batch of so many bytes needs to be made again.  It cannot be made smaller: one
 * that is larger than all there is goes when half of that is free.
 */
extern int64 MemoryNeed(int64 limit, int64 bytes);

/* May it be?  The first in line may have all that is free. */
extern bool MemoryForRetry(const MemoryShare *share, int64 need, bool is_first_in_line);

/* Notes in *accounted, and in the sum of all, that so many bytes are held now. */
extern void MemoryAccount(size_t *accounted, size_t held);
extern int64 MemoryHeldByAll(void);

/*
 * Is "who" the first in line, or has it become so now, for so many bytes?  They are kept
 * free from the others.  One that has not asked for a while has lost its place.
 */
extern bool MemoryWaitInLine(const void *who, int64 need, TimestampTz now);
extern void MemoryLeaveLine(const void *who);

/* What is kept free for the first in line, if that is another. */
extern int64 MemoryReserved(const void *who, TimestampTz now);

#endif							/* INCSINK_MEMORY_H */
