/*
 * watermark.c
 *		Watermarks: inserted when an epoch begins, advanced with its intents.
 */
#include "postgres.h"

#include "catalog/epoch.h"
#include "catalog/watermark.h"
#include "common/sql.h"

Watermark *
LoadWatermark(int64 sink_id, int64 partition_id, MemoryContext context)
{
	Watermark  *watermark;

	if (SqlRun("SELECT epoch, seq, n, sent_seq, sent_n, rows_exported, bytes_exported, key"
			   " FROM incsink.watermark"
			   " WHERE sink_id = $1 AND partition_id = $2 AND destination = ''",
			   SqlInt8(sink_id), SqlInt8(partition_id)) == 0)
		return NULL;
	watermark = MemoryContextAllocZero(context, sizeof(Watermark));
	watermark->epoch = SqlGetText(0, 1, context);
	watermark->position.seq = SqlGetInt8(0, 2);
	watermark->position.n = SqlGetInt8(0, 3);
	watermark->sent.seq = SqlGetInt8(0, 4);
	watermark->sent.n = SqlGetInt8(0, 5);
	watermark->rows_exported = SqlGetInt8(0, 6);
	watermark->bytes_exported = SqlGetInt8(0, 7);
	watermark->position.key = SqlGetJsonb(0, 8, context);
	return watermark;
}

/*
 * One statement, so that there is no state between "intent gone" and "watermark
 * moved".  The EXISTS makes the watermark move over a contiguous prefix only, the
 * WHERE of DO UPDATE keeps it in its epoch and from going back; a row that would
 * be inserted (a watermark that vanished) counts as not moved.
 */
bool
AcknowledgeIntent(const Intent *intent)
{
	return SqlRun("WITH done AS (DELETE FROM incsink.intent WHERE intent_id = $1 AND epoch = $2"
				  " RETURNING sink_id, partition_id, destination, epoch, since_seq, since_n,"
				  " until_seq, until_n, until_key, row_count, byte_count)"
				  " INSERT INTO incsink.watermark AS w (sink_id, partition_id, destination, epoch,"
				  " seq, n, key, sent_seq, sent_n, rows_exported, bytes_exported, batches_exported,"
				  " last_export_time)"
				  " SELECT d.sink_id, d.partition_id, d.destination, d.epoch, d.until_seq, d.until_n,"
				  " d.until_key, d.until_seq, d.until_n, d.row_count, d.byte_count, 1, pg_catalog.clock_timestamp()"
				  " FROM done d WHERE EXISTS (SELECT FROM incsink.watermark o"
				  " WHERE o.sink_id = d.sink_id AND o.partition_id = d.partition_id"
				  " AND o.destination = d.destination AND o.sent_seq = d.since_seq"
				  " AND o.sent_n = d.since_n AND (o.seq, o.n) >= (d.since_seq, d.since_n))"
				  " ON CONFLICT (sink_id, partition_id, destination) DO UPDATE SET seq = EXCLUDED.seq,"
				  " n = EXCLUDED.n, key = EXCLUDED.key, sent_seq = EXCLUDED.sent_seq,"
				  " sent_n = EXCLUDED.sent_n,"
				  " rows_exported = w.rows_exported + EXCLUDED.rows_exported,"
				  " bytes_exported = w.bytes_exported + EXCLUDED.bytes_exported,"
				  " batches_exported = w.batches_exported + 1,"
				  " last_export_time = EXCLUDED.last_export_time"
				  " WHERE w.epoch = EXCLUDED.epoch AND (w.seq, w.n) < (EXCLUDED.seq, EXCLUDED.n)"
				  " RETURNING w.seq",
				  SqlInt8(intent->intent_id), SqlText(intent->epoch)) == 1;
}

bool
PassEmptyRange(int64 sink_id, int64 partition_id, const char *epoch, Position since, Position until)
{
	return SqlRun("UPDATE incsink.watermark SET seq = $4, n = $5, key = $8"
				  " WHERE sink_id = $1 AND partition_id = $2 AND destination = '' AND epoch = $3"
				  " AND seq = $6 AND n = $7 AND (seq, n) < ($4, $5)",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlText(epoch),
				  SqlInt8(until.seq), SqlInt8(until.n), SqlInt8(since.seq), SqlInt8(since.n),
				  SqlJsonb(until.key)) == 1;
}

bool
FinishBacklog(int64 sink_id, int64 partition_id, const char *epoch, Position since)
{
	return SqlRun("UPDATE incsink.watermark SET key = $4"
				  " WHERE sink_id = $1 AND partition_id = $2 AND destination = '' AND epoch = $3"
				  " AND seq = 0 AND n = $5 AND key IS DISTINCT FROM $4",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlText(epoch),
				  SqlJsonb(BacklogOverKey()), SqlInt8(since.n)) == 1;
}

bool
BeginEpoch(int64 sink_id, int64 partition_id, const char *old_epoch, const char *epoch)
{
	if (SqlRun("UPDATE incsink.watermark w SET epoch = $4"
			   " WHERE w.sink_id = $1 AND w.partition_id = $2 AND w.destination = '' AND w.epoch = $3"
			   " AND NOT EXISTS (SELECT FROM incsink.intent i WHERE i.sink_id = w.sink_id"
			   " AND i.partition_id = w.partition_id)"
			   " AND EXISTS (SELECT FROM incsink.sink_table_def t WHERE t.sink_id = w.sink_id"
			   " AND t.partition_id = w.partition_id AND t.epoch = $4)",
			   SqlInt8(sink_id), SqlInt8(partition_id), SqlText(old_epoch), SqlText(epoch)) != 1)
		return false;
	NoteEpoch(sink_id, partition_id);
	return true;
}
