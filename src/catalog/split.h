/*
 * split.h
 *		Intents whose batch was refused: what is known of that, and what takes their place.
 *
 * Callers hold the row of sink_table_def (LockSinkTable), an open SqlSession, and a
 * catalog of version 0.4.
 */
#ifndef INCSINK_SPLIT_H
#define INCSINK_SPLIT_H

#include "postgres.h"

#include "catalog/watermark.h"

/*
 * Puts two intents that have not been attempted in the place of one, in one statement,
 * over (since, mid] and (mid, until], each with an id of its own; mid has its key.  Only
 * for a batch that is certainly not stored, neither now nor later.  False, with nothing
 * done, if the intent is gone (fenced).
 */
extern bool SplitIntent(const Intent *intent, Position mid, int64 rows, int64 bytes);

/* Notes how many of the intent's attempts are proven to have stored nothing. */
extern bool NoteRefused(const Intent *intent, int refused);

/*
 * Takes all attempts so far for refused, by the word of somebody who has looked.  False
 * if the intent is gone.
 */
extern bool DeclareNotStored(int64 intent_id);

#endif							/* INCSINK_SPLIT_H */
