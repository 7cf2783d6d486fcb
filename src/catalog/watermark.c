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
 * moved".  Intents of a delivery must join on each other without a gap, and the first one
 * on the watermark's last batch, so that it moves over a contiguous prefix only; the last
 * condition keeps it from going back.  A watermark that vanished is not made anew.
 */
#define ACKNOWLEDGE(TRIGGER, COUNTS, COLUMNS) \
	"WITH done AS (DELETE FROM incsink.intent i USING unnest($1, $2) AS a (intent_id, epoch)" \
	" WHERE i.intent_id = a.intent_id AND i.epoch = a.epoch" \
	" RETURNING i.sink_id, i.partition_id, i.destination, i.epoch, i.since_seq, i.since_n," \
	" i.until_seq, i.until_n, i.until_key, i.row_count, i.byte_count" TRIGGER ")," \
	" run AS (SELECT d.*, pg_catalog.lag(d.until_seq) OVER follow AS before_seq," \
	" pg_catalog.lag(d.until_n) OVER follow AS before_n," \
	" pg_catalog.lead(d.since_seq) OVER follow IS NULL AS is_last FROM done d" \
	" WINDOW follow AS (PARTITION BY d.sink_id, d.partition_id, d.destination, d.epoch" \
	" ORDER BY d.since_seq, d.since_n))," \
	" prefix AS (SELECT r.sink_id, r.partition_id, r.destination, r.epoch," \
	" pg_catalog.bool_and(r.before_seq IS NULL OR" \
	" (r.since_seq, r.since_n) = (r.before_seq, r.before_n)) AS is_contiguous," \
	" pg_catalog.min(r.since_seq) FILTER (WHERE r.before_seq IS NULL) AS since_seq," \
	" pg_catalog.min(r.since_n) FILTER (WHERE r.before_seq IS NULL) AS since_n," \
	" pg_catalog.max(r.until_seq) FILTER (WHERE r.is_last) AS until_seq," \
	" pg_catalog.max(r.until_n) FILTER (WHERE r.is_last) AS until_n," \
	" (pg_catalog.array_agg(r.until_key) FILTER (WHERE r.is_last))[1] AS until_key," \
	" pg_catalog.sum(r.row_count)::int8 AS rows, pg_catalog.sum(r.byte_count)::int8 AS bytes," \
	" pg_catalog.count(*) AS batches" COUNTS \
	" FROM run r GROUP BY r.sink_id, r.partition_id, r.destination, r.epoch)," \
	" moved AS (UPDATE incsink.watermark w SET seq = p.until_seq, n = p.until_n, key = p.until_key," \
	" sent_seq = p.until_seq, sent_n = p.until_n, rows_exported = w.rows_exported + p.rows," \
	" bytes_exported = w.bytes_exported + p.bytes, batches_exported = w.batches_exported + p.batches," \
	" last_export_time = pg_catalog.clock_timestamp()" COLUMNS \
	" FROM prefix p WHERE w.sink_id = p.sink_id AND w.partition_id = p.partition_id" \
	" AND w.destination = p.destination AND w.epoch = p.epoch AND p.is_contiguous" \
	" AND w.sent_seq = p.since_seq AND w.sent_n = p.since_n AND (w.seq, w.n) >= (p.since_seq, p.since_n)" \
	" AND (w.seq, w.n) < (p.until_seq, p.until_n) RETURNING 1)" \
	" SELECT (SELECT pg_catalog.count(*) FROM done), (SELECT pg_catalog.count(*) FROM moved)"

#define COUNT_OF(NAME, COLUMN) \
	", pg_catalog.count(*) FILTER (WHERE r.flush_trigger = '" NAME "') AS " COLUMN
#define COUNT_INTO(COLUMN) ", " COLUMN " = w." COLUMN " + p." COLUMN

/* The names are those of FlushTriggerName(). */
static const char *const acknowledge =
ACKNOWLEDGE(", i.flush_trigger",
			COUNT_OF("interval", "flushes_interval") COUNT_OF("rows", "flushes_rows")
			COUNT_OF("bytes", "flushes_bytes") COUNT_OF("memory", "flushes_memory")
			COUNT_OF("request", "flushes_requested") COUNT_OF("backlog", "flushes_backlog"),
			COUNT_INTO("flushes_interval") COUNT_INTO("flushes_rows") COUNT_INTO("flushes_bytes")
			COUNT_INTO("flushes_memory") COUNT_INTO("flushes_requested")
			COUNT_INTO("flushes_backlog"));
static const char *const acknowledge_before_4 = ACKNOWLEDGE("", "", "");

bool
AcknowledgeIntents(Intent *const *intents, int count, int deliveries)
{
	int64	   *ids = palloc(sizeof(int64) * count);
	char	  **epochs = palloc(sizeof(char *) * count);

	for (int i = 0; i < count; i++)
	{
		ids[i] = intents[i]->intent_id;
		epochs[i] = intents[i]->epoch;
	}
	(void) SqlRun(CatalogIsAtLeast(4) ? acknowledge : acknowledge_before_4,
				  SqlInt8Array(ids, count), SqlTextArray(epochs, count));
	return SqlGetInt8(0, 1) == count && SqlGetInt8(0, 2) == deliveries;
}

bool
AcknowledgeIntent(Intent *intent)
{
	return AcknowledgeIntents(&intent, 1, 1);
}

/* Of the delivery whose watermark a statement moves: $1 and $2. */
#define NO_INTENT \
	" AND NOT EXISTS (SELECT FROM incsink.intent i WHERE i.sink_id = $1 AND i.partition_id = $2" \
	" AND i.destination = '')"

bool
PassEmptyRange(int64 sink_id, int64 partition_id, const char *epoch, Position since, Position until)
{
	return SqlRun("UPDATE incsink.watermark SET seq = $4, n = $5, key = $8"
				  " WHERE sink_id = $1 AND partition_id = $2 AND destination = '' AND epoch = $3"
				  " AND seq = $6 AND n = $7 AND (seq, n) < ($4, $5)" NO_INTENT,
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlText(epoch),
				  SqlInt8(until.seq), SqlInt8(until.n), SqlInt8(since.seq), SqlInt8(since.n),
				  SqlJsonb(until.key)) == 1;
}

bool
FinishBacklog(int64 sink_id, int64 partition_id, const char *epoch, Position since)
{
	return SqlRun("UPDATE incsink.watermark SET key = $4"
				  " WHERE sink_id = $1 AND partition_id = $2 AND destination = '' AND epoch = $3"
				  " AND seq = 0 AND n = $5 AND key IS DISTINCT FROM $4" NO_INTENT,
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
