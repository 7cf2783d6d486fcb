/*
 * renumber.h
 *		Numbers for rows that have none, or wrong ones.
 */
#ifndef INCSINK_RENUMBER_H
#define INCSINK_RENUMBER_H

#include "postgres.h"

/*
 * Gives new numbers to rows of an attached table, or of a leaf of an attached tree:
 * those with 0 and those above the last number drawn; all with every_row.  Works in
 * ranges of blocks, each in a transaction of its own of about batch_rows rows, until a
 * pass finds nothing; commits in between, so it must be called outside of a
 * transaction block (CALL).  Fires no trigger but those ENABLE ALWAYS or REPLICA.
 * Says how far it is every 10 s.  A partition whose backlog has been numbered has no
 * backlog any more; a leaf that was not known becomes known.
 */
extern void RenumberTable(Oid relid, bool every_row, int batch_rows);

#endif							/* INCSINK_RENUMBER_H */
