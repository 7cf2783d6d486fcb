/*
 * truncate_guard.h
 *		TRUNCATE ... RESTART IDENTITY must not give numbers out again.
 */
#ifndef INCSINK_TRUNCATE_GUARD_H
#define INCSINK_TRUNCATE_GUARD_H

#include "postgres.h"

#include "utils/rel.h"

/* Statement triggers of every attached table; the functions are named alike. */
#define TRUNCATE_BEFORE_TRIGGER "incsink_truncate_before"
#define TRUNCATE_AFTER_TRIGGER "incsink_truncate_after"

/* Notes what the sequence has given out; BEFORE, because AFTER sees the new file only. */
extern void NoteBeforeTruncate(Relation rel);

/* Sets a restarted sequence past what was noted and records its new file. */
extern void GuardAfterTruncate(Relation rel);

#endif							/* INCSINK_TRUNCATE_GUARD_H */
