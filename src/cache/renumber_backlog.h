/*
 * renumber_backlog.h
 *		What becomes of a backlog whose rows get numbers.
 */
#ifndef INCSINK_RENUMBER_BACKLOG_H
#define INCSINK_RENUMBER_BACKLOG_H

#include "postgres.h"

#include "catalog/partition.h"

/*
 * Before rows of the partition's table, or of its leaf or inner part "relid", get numbers:
 * may those without one get one, too?  Then no delivery reads the table's as a backlog
 * from the caller's commit on.  False: they are a backlog that some delivery has begun to
 * read or has passed, and would be exported twice; "every_row" wants just that, and
 * deliveries that have a batch of it in flight begin a new epoch.  Waits for the workers'
 * catalog locks.
 */
extern bool TakeBacklog(const Partition *partition, Oid relid, bool every_row);

/* All rows of the partition's table have numbers. */
extern void NoteNumberedRows(const Partition *partition);

#endif							/* INCSINK_RENUMBER_BACKLOG_H */
