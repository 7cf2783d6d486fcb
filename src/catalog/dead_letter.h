/*
 * dead_letter.h
 *		Rows that a receiver refused and that were put aside.
 *
 * Callers hold the row of sink_table_def (LockSinkTable) where they change anything, an
 * open SqlSession, and a catalog of version 0.4.
 */
#ifndef INCSINK_DEAD_LETTER_H
#define INCSINK_DEAD_LETTER_H

#include "postgres.h"

#include "catalog/watermark.h"

/* Why rows are put aside. */
typedef struct Refusal
{
	int			status;			/* of the answer, 0 = none */
	const char *answer;			/* for people, without secrets */
} Refusal;

/*
 * Puts the rows of an intent aside, as the body has them: the intent goes and the
 * watermark moves over its range, which counts as rejected and not as exported.  Only for
 * a batch that is certainly not stored.  False, with nothing to be kept, if it moved
 * nothing: see AcknowledgeIntent().
 */
extern bool PutAside(const Intent *intent, const char *body, size_t length, int64 rows,
					 const Refusal *refusal);

/* One that is to be sent again. */
typedef struct DeadLetter
{
	int64		dead_letter_id;
	Intent		intent;			/* of the redelivery: its epoch, its batch id, its
								 * attempts; without an intent_id */
	char	   *body;
	size_t		length;
} DeadLetter;

/* The delivery's next one to be sent again, or NULL. */
extern DeadLetter *LoadRedelivery(int64 sink_id, int64 partition_id, MemoryContext context);

/* Notes an attempt before it is made.  False if it is not to be sent any more. */
extern bool NoteRedelivery(const DeadLetter *letter);

/* It is stored: it goes, and its rows are exported instead of rejected. */
extern bool FinishRedelivery(const DeadLetter *letter);

/* An attempt has failed; with "stop" no other follows before somebody asks for it. */
extern void NoteRedeliveryError(const DeadLetter *letter, const char *error, bool stop);

/*
 * Has it sent again from now on, the first time under this epoch and id, and under the
 * same from then on: what an earlier attempt may have stored is known by them.
 */
extern bool RequestRedelivery(int64 dead_letter_id, const char *epoch, const char *batch_id);

/* False if there is none; else how often it was sent again. */
extern bool DiscardDeadLetter(int64 dead_letter_id, int *attempts);

/*
 * Deletes those of a delivery that hold rows behind the position, and returns how many.
 * Nothing, on an older catalog.
 */
extern int64 DropDeadLetters(int64 sink_id, int64 partition_id, Position position);

#endif							/* INCSINK_DEAD_LETTER_H */
