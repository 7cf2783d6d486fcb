/*
 * split.c
 *		Intents whose batch was refused: what is known of that, and what takes their place.
 */
#include "postgres.h"

#include "catalog/split.h"
#include "common/sql.h"

/* The id of the batch of a part of the intent's range. */
static char *
PartId(const Intent *intent, Position since, Position until)
{
	Intent		part = *intent;

	part.since = since;
	part.until = until;
	return MakeBatchId(&part);
}

/*
 * The parts follow each other and end where the intent did: the second begins where the
 * first ends.  Its reading position is the first one's end, with the key.
 */
bool
SplitIntent(const Intent *intent, Position mid, int64 rows, int64 bytes)
{
	return SqlRun("WITH gone AS (DELETE FROM incsink.intent WHERE intent_id = $1 AND epoch = $2 RETURNING *)"
				  " INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination,"
				  " epoch, since_seq, since_n, until_seq, until_n, until_key, row_count, byte_count, digests,"
				  " encoding, object_key, attempts, created_at, flush_trigger)"
				  " SELECT pg_catalog.nextval('incsink.object_id_seq'), p.batch_id, g.sink_id,"
				  " g.partition_id, g.destination, g.epoch, p.since_seq, p.since_n, p.until_seq,"
				  " p.until_n, p.until_key, p.row_count, p.byte_count, '{}', g.encoding, g.object_key, 0,"
				  " g.created_at, g.flush_trigger FROM gone g, LATERAL (VALUES"
				  " (1, $3, g.since_seq, g.since_n, $5, $6, $7, $8, $9),"
				  " (2, $4, $5, $6, g.until_seq, g.until_n, g.until_key,"
				  "  GREATEST(g.row_count OPERATOR(pg_catalog.-) $8, 1),"
				  "  GREATEST(g.byte_count OPERATOR(pg_catalog.-) $9, 1)))"
				  " p (part, batch_id, since_seq, since_n, until_seq, until_n, until_key, row_count, byte_count)"
				  " WHERE (g.since_seq, g.since_n) < ($5, $6) AND ($5, $6) < (g.until_seq, g.until_n)"
				  " ORDER BY p.part",
				  SqlInt8(intent->intent_id), SqlText(intent->epoch),
				  SqlText(PartId(intent, intent->since, mid)), SqlText(PartId(intent, mid, intent->until)),
				  SqlInt8(mid.seq), SqlInt8(mid.n), SqlJsonb(mid.key),
				  SqlInt8(rows), SqlInt8(bytes)) == 2;
}

bool
NoteRefused(const Intent *intent, int refused)
{
	return SqlRun("UPDATE incsink.intent SET refused = $3 WHERE intent_id = $1 AND epoch = $2"
				  " AND attempts >= $3",
				  SqlInt8(intent->intent_id), SqlText(intent->epoch), SqlInt4(refused)) == 1;
}

bool
DeclareNotStored(int64 intent_id)
{
	return SqlRun("UPDATE incsink.intent SET refused = attempts WHERE intent_id = $1",
				  SqlInt8(intent_id)) == 1;
}
