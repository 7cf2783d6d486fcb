/*
 * integrity.h
 *		Is a partition still what its positions were given out for?
 */
#ifndef INCSINK_INTEGRITY_H
#define INCSINK_INTEGRITY_H

#include "postgres.h"

#include "cache/horizon.h"
#include "catalog/partition.h"

/*
 * Checks table, seq column, index and the incarnation of the sequence.  "reading"
 * is what ReadSequence() said after the partition was loaded, or NULL if it said
 * nothing; then only what does not need it is checked.  highest_position is the
 * highest seq of any watermark, intent or token at hand.
 *
 * False if positions cannot be trusted: *error says what is wrong and *hint how it
 * is mended (palloc'd).  Waits for no lock; the caller is in a transaction.  May
 * refresh what partition says of its sequence.
 */
extern bool CheckPartition(Partition *partition, const SequenceReading *reading,
						   int64 highest_position, char **error, char **hint);

/* "schema.table" of a partition, quoted where needed, for statements in hints. */
extern char *QuotedTableName(const Partition *partition);

#endif							/* INCSINK_INTEGRITY_H */
