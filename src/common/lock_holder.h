/*
 * lock_holder.h
 *		Who holds a lock that is in the way, for people.
 */
#ifndef INCSINK_LOCK_HOLDER_H
#define INCSINK_LOCK_HOLDER_H

#include "postgres.h"

#include "storage/lock.h"

/* Process of a virtual transaction, or 0 (ended, or prepared). */
extern int	VirtualTransactionPid(VirtualTransactionId vxid);

/* "the table is locked by process N" of a relation that cannot be read now; palloc'd. */
extern char *DescribeLockHolder(Oid relid);

#endif							/* INCSINK_LOCK_HOLDER_H */
