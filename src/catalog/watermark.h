/*
 * watermark.h
 *		Positions of deliveries and the intents in front of them.
 *
 * An intent is committed and flushed before the first byte of its batch leaves; the
 * watermark moves only in the transaction that deletes the intent.  Callers hold
 * the row of sink_table_def (LockSinkTable) and an open SqlSession.
 */
#ifndef INCSINK_WATERMARK_H
#define INCSINK_WATERMARK_H

#include "postgres.h"

#include "common/token.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* The destination of a sink that has only one; its row is the front. */
#define FRONT_DESTINATION ""

typedef struct Watermark
{
	char	   *epoch;
	Position	position;
	Position	sent;			/* end of the last batch, at or below position;
								 * without a key */
	int64		rows_exported;
	int64		bytes_exported;
} Watermark;

/* What had a batch cut.  The catalog has names for them, and counts them. */
typedef enum FlushTrigger
{
	FLUSH_UNKNOWN,				/* an intent of an earlier version */
	FLUSH_INTERVAL,
	FLUSH_ROWS,
	FLUSH_BYTES,
	FLUSH_MEMORY,
	FLUSH_REQUEST,
	FLUSH_BACKLOG
} FlushTrigger;

/* "interval", "rows", ...; NULL for FLUSH_UNKNOWN, which unknown names are. */
extern const char *FlushTriggerName(FlushTrigger trigger);
extern FlushTrigger FlushTriggerByName(const char *name);

typedef struct Intent
{
	int64		intent_id;
	char	   *batch_id;		/* 32 hex digits */
	int64		sink_id;
	int64		partition_id;
	const char *destination;
	char	   *epoch;
	Position	since;			/* exclusive; without a key: reading begins at the
								 * watermark */
	Position	until;			/* inclusive; with its key */
	int64		row_count;
	int64		byte_count;
	char	  **digests;		/* SHA-256 in hex of every body it was sent with */
	int			ndigests;
	Jsonb	   *encoding;		/* format, columns, filter it is encoded with */
	char	   *object_key;		/* blob sinks, or NULL */
	int			attempts;
	int			refused;		/* of them, that are known not to have been
								 * stored; 0 before catalog version 0.4 */
	FlushTrigger trigger;
	TimestampTz created_at;
} Intent;

/* NULL if there is no row. */
extern Watermark *LoadWatermark(int64 sink_id, int64 partition_id, MemoryContext context);

/* Intents of a delivery in the order of their ranges. */
extern List *LoadIntents(int64 sink_id, int64 partition_id, MemoryContext context);

/* Draws a nonce and makes the id of a batch whose other fields are set. */
#define BATCH_ID_LENGTH 32
extern char *MakeBatchId(const Intent *intent);

/*
 * Inserts the intents, each with its first attempt, and sets their intent_id; at most
 * one of each delivery.  An intent must follow the last one of its delivery; where none
 * stands, the watermark must be in the intent's epoch and at the position that the batch
 * was read from.  False if that holds not for all of them: another process was here, and
 * the caller rolls back.  It commits before anything is sent.
 */
extern bool InsertIntents(Intent *const *intents, const Position *positions, int count);
extern bool InsertIntent(Intent *intent, Position position);

/*
 * Notes one more attempt, with a body of the given size and digest; a digest that
 * is new is added to the others; and of the attempts before how many are known not to have
 * been stored, as intent->refused says.  False if the intent is gone (fenced).
 */
extern bool NoteAttempt(const Intent *intent, int64 rows, int64 bytes, const char *digest);

/*
 * Deletes the intents and moves the watermarks of their deliveries over their ranges: of
 * each delivery, in any order, those that follow each other from where the last batch
 * ended.  False if some intent or watermark was not found as it must be (gone, of another
 * epoch, not the next): the caller rolls back, and asks for fewer to know which.
 */
extern bool AcknowledgeIntents(Intent *const *intents, int count, int deliveries);
extern bool AcknowledgeIntent(Intent *intent);

/*
 * Moves the watermark over a range that holds no row to export, without an intent;
 * the next batch takes the range in.  False as above, and where an intent stands: its
 * rows come first.
 */
extern bool PassEmptyRange(int64 sink_id, int64 partition_id, const char *epoch,
						   Position since, Position until);

/*
 * Notes that nothing is left of the backlog behind "since", which becomes a position
 * whose key is BacklogOverKey(); the pair stays as it is.
 */
extern bool FinishBacklog(int64 sink_id, int64 partition_id, const char *epoch, Position since);

/*
 * Gives the watermark the epoch of its sink_table_def row once no intent of the old one
 * is left.  False, with nothing done, if that row has another epoch by now: definitions in
 * memory may be older than a restart.
 */
extern bool BeginEpoch(int64 sink_id, int64 partition_id, const char *old_epoch, const char *epoch);

#endif							/* INCSINK_WATERMARK_H */
