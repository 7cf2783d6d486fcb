/*
 * dead_letter.c
 *		Rows that a receiver refused and that were put aside.
 */
#include "postgres.h"

#include "catalog/dead_letter.h"
#include "common/sql.h"

static SqlArg
SqlBytes(const char *bytes, size_t length)
{
	return SqlDatum(BYTEAOID, PointerGetDatum(cstring_to_text_with_len(bytes, (int) length)), false);
}

/*
 * One statement, as for an acknowledgement: there is no state in which rows are neither
 * in front of the watermark, nor put aside.
 */
bool
PutAside(const Intent *intent, const char *body, size_t length, int64 rows,
		 const Refusal *refusal)
{
	return SqlRun("WITH done AS (DELETE FROM incsink.intent WHERE intent_id = $1 AND epoch = $2 RETURNING *),"
				  " moved AS (UPDATE incsink.watermark w SET seq = d.until_seq, n = d.until_n,"
				  " key = d.until_key, sent_seq = d.until_seq, sent_n = d.until_n,"
				  " rows_rejected = w.rows_rejected + $3 FROM done d"
				  " WHERE w.sink_id = d.sink_id AND w.partition_id = d.partition_id"
				  " AND w.destination = d.destination AND w.epoch = d.epoch"
				  " AND w.sent_seq = d.since_seq AND w.sent_n = d.since_n"
				  " AND (w.seq, w.n) >= (d.since_seq, d.since_n)"
				  " AND (w.seq, w.n) < (d.until_seq, d.until_n) RETURNING d.*)"
				  " INSERT INTO incsink.dead_letter (dead_letter_id, sink_id, partition_id, destination,"
				  " epoch, batch_id, since_seq, since_n, until_seq, until_n, row_count, body, encoding,"
				  " status, answer)"
				  " SELECT pg_catalog.nextval('incsink.object_id_seq'), m.sink_id, m.partition_id,"
				  " m.destination, m.epoch, m.batch_id, m.since_seq, m.since_n, m.until_seq, m.until_n,"
				  " $3, $4, m.encoding, NULLIF($5, 0), $6 FROM moved m",
				  SqlInt8(intent->intent_id), SqlText(intent->epoch), SqlInt8(rows),
				  SqlBytes(body, length), SqlInt4(refusal->status), SqlText(refusal->answer)) == 1;
}

/* Copies the body of the last result's first row. */
static void
GetBody(DeadLetter *letter, int column, MemoryContext context)
{
	bool		isnull;
	bytea	   *value = DatumGetByteaPP(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
													  column, &isnull));

	letter->length = VARSIZE_ANY_EXHDR(value);
	letter->body = MemoryContextAllocHuge(context, letter->length + 1);
	memcpy(letter->body, VARDATA_ANY(value), letter->length);
}

DeadLetter *
LoadRedelivery(int64 sink_id, int64 partition_id, MemoryContext context)
{
	DeadLetter *letter;
	Intent	   *intent;

	if (SqlRun("SELECT dead_letter_id, redeliver_batch_id, destination, redeliver_epoch, since_seq,"
			   " since_n, until_seq, until_n, row_count, encoding, redeliver_attempts, redeliver_at, body"
			   " FROM incsink.dead_letter WHERE sink_id = $1 AND partition_id = $2"
			   " AND redeliver_at IS NOT NULL ORDER BY redeliver_at, dead_letter_id LIMIT 1",
			   SqlInt8(sink_id), SqlInt8(partition_id)) == 0)
		return NULL;
	letter = MemoryContextAllocZero(context, sizeof(DeadLetter));
	letter->dead_letter_id = SqlGetInt8(0, 1);
	intent = &letter->intent;
	intent->sink_id = sink_id;
	intent->partition_id = partition_id;
	intent->batch_id = SqlGetText(0, 2, context);
	intent->destination = SqlGetText(0, 3, context);
	intent->epoch = SqlGetText(0, 4, context);
	intent->since.seq = SqlGetInt8(0, 5);
	intent->since.n = SqlGetInt8(0, 6);
	intent->until.seq = SqlGetInt8(0, 7);
	intent->until.n = SqlGetInt8(0, 8);
	intent->row_count = SqlGetInt8(0, 9);
	intent->encoding = SqlGetJsonb(0, 10, context);
	intent->attempts = SqlGetInt4(0, 11);
	intent->created_at = SqlGetTime(0, 12);
	GetBody(letter, 13, context);
	intent->byte_count = letter->length;
	return letter;
}

bool
NoteRedelivery(const DeadLetter *letter)
{
	return SqlRun("UPDATE incsink.dead_letter SET redeliver_attempts = redeliver_attempts + 1"
				  " WHERE dead_letter_id = $1 AND redeliver_at IS NOT NULL",
				  SqlInt8(letter->dead_letter_id)) == 1;
}

bool
FinishRedelivery(const DeadLetter *letter)
{
	return SqlRun("WITH done AS (DELETE FROM incsink.dead_letter WHERE dead_letter_id = $1"
				  " RETURNING sink_id, partition_id, destination, row_count, body)"
				  " UPDATE incsink.watermark w SET rows_exported = w.rows_exported + d.row_count,"
				  " rows_rejected = w.rows_rejected - d.row_count,"
				  " bytes_exported = w.bytes_exported + pg_catalog.octet_length(d.body),"
				  " batches_exported = w.batches_exported + 1,"
				  " last_export_time = pg_catalog.clock_timestamp() FROM done d"
				  " WHERE w.sink_id = d.sink_id AND w.partition_id = d.partition_id"
				  " AND w.destination = d.destination",
				  SqlInt8(letter->dead_letter_id)) == 1;
}

void
NoteRedeliveryError(const DeadLetter *letter, const char *error, bool stop)
{
	(void) SqlRun("UPDATE incsink.dead_letter SET redeliver_error = $2,"
				  " redeliver_at = CASE WHEN NOT $3 THEN redeliver_at END WHERE dead_letter_id = $1",
				  SqlInt8(letter->dead_letter_id), SqlText(error), SqlBool(stop));
}

bool
RequestRedelivery(int64 dead_letter_id, const char *epoch, const char *batch_id)
{
	return SqlRun("UPDATE incsink.dead_letter SET redeliver_epoch = COALESCE(redeliver_epoch, $2),"
				  " redeliver_batch_id = COALESCE(redeliver_batch_id, $3),"
				  " redeliver_at = COALESCE(redeliver_at, pg_catalog.clock_timestamp())"
				  " WHERE dead_letter_id = $1",
				  SqlInt8(dead_letter_id), SqlText(epoch), SqlText(batch_id)) == 1;
}

bool
DiscardDeadLetter(int64 dead_letter_id, int *attempts)
{
	if (SqlRun("DELETE FROM incsink.dead_letter WHERE dead_letter_id = $1 RETURNING redeliver_attempts",
			   SqlInt8(dead_letter_id)) == 0)
		return false;
	*attempts = SqlGetInt4(0, 1);
	return true;
}

int64
DropDeadLetters(int64 sink_id, int64 partition_id, Position position)
{
	if (!CatalogIsAtLeast(4))
		return 0;
	return SqlRun("DELETE FROM incsink.dead_letter WHERE sink_id = $1 AND partition_id = $2"
				  " AND (until_seq, until_n) > ($3, $4)",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlInt8(position.seq),
				  SqlInt8(position.n));
}
