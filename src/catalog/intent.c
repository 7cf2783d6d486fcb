/*
 * intent.c
 *		Intents: the durable records of batches that may have left.
 */
#include "postgres.h"

#include "catalog/sink.h"
#include "catalog/watermark.h"
#include "common/digest.h"
#include "common/sql.h"
#include "utils/array.h"

List *
LoadIntents(int64 sink_id, int64 partition_id, MemoryContext context)
{
	List	   *intents = NIL;
	uint64		count;
	MemoryContext old;

	count = SqlRun("SELECT intent_id, batch_id, destination, epoch, since_seq, since_n, until_seq,"
				   " until_n, row_count, byte_count, digests, encoding, object_key, attempts, created_at,"
				   " until_key"
				   " FROM incsink.intent WHERE sink_id = $1 AND partition_id = $2"
				   " ORDER BY since_seq, since_n",
				   SqlInt8(sink_id), SqlInt8(partition_id));
	for (uint64 row = 0; row < count; row++)
	{
		Intent	   *intent = MemoryContextAllocZero(context, sizeof(Intent));

		intent->intent_id = SqlGetInt8(row, 1);
		intent->batch_id = SqlGetText(row, 2, context);
		intent->sink_id = sink_id;
		intent->partition_id = partition_id;
		intent->destination = SqlGetText(row, 3, context);
		intent->epoch = SqlGetText(row, 4, context);
		intent->since.seq = SqlGetInt8(row, 5);
		intent->since.n = SqlGetInt8(row, 6);
		intent->until.seq = SqlGetInt8(row, 7);
		intent->until.n = SqlGetInt8(row, 8);
		intent->row_count = SqlGetInt8(row, 9);
		intent->byte_count = SqlGetInt8(row, 10);
		intent->digests = SqlGetTextArray(row, 11, context, &intent->ndigests);
		intent->encoding = SqlGetJsonb(row, 12, context);
		intent->object_key = SqlGetText(row, 13, context);
		intent->attempts = SqlGetInt4(row, 14);
		intent->created_at = SqlGetTime(row, 15);
		intent->until.key = SqlGetJsonb(row, 16, context);
		old = MemoryContextSwitchTo(context);
		intents = lappend(intents, intent);
		MemoryContextSwitchTo(old);
	}
	return intents;
}

/*
 * A SHA-256 over everything that tells this batch from every other, and a nonce, so
 * that a clone of the database that draws its own never makes the same.
 */
char *
MakeBatchId(const Intent *intent)
{
	char	   *text;
	char		digest[SHA256_HEX_LENGTH + 1];

	text = psprintf("%lld|%s|%lld|%s|%s|%s|%s", (long long) intent->sink_id, intent->epoch,
					(long long) intent->partition_id, intent->destination,
					FormatPosition(intent->since), FormatPosition(intent->until), RandomHex(32));
	Sha256Hex(text, strlen(text), digest);
	return pnstrdup(digest, BATCH_ID_LENGTH);
}

static Datum
DigestArray(const Intent *intent)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(intent->ndigests, 1));

	for (int i = 0; i < intent->ndigests; i++)
		elements[i] = CStringGetTextDatum(intent->digests[i]);
	return PointerGetDatum(construct_array(elements, intent->ndigests, TEXTOID, -1, false, TYPALIGN_INT));
}

bool
InsertIntent(Intent *intent, Position position)
{
	intent->attempts = 1;
	if (SqlRun("INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination,"
			   " epoch, since_seq, since_n, until_seq, until_n, row_count, byte_count, digests,"
			   " encoding, object_key, created_at, until_key)"
			   " SELECT pg_catalog.nextval('incsink.object_id_seq'), $1, $2, $3, $4, $5, $6, $7, $8,"
			   " $9, $10, $11, $12, $13, $14, $15, $16 FROM incsink.watermark w"
			   " WHERE w.sink_id = $2 AND w.partition_id = $3 AND w.destination = $4 AND w.epoch = $5"
			   " AND w.seq = $17 AND w.n = $18 AND w.key IS NOT DISTINCT FROM $19"
			   " AND NOT EXISTS (SELECT FROM incsink.intent i WHERE i.sink_id = $2 AND i.partition_id = $3"
			   " AND i.destination = $4) RETURNING intent_id",
			   SqlText(intent->batch_id), SqlInt8(intent->sink_id), SqlInt8(intent->partition_id),
			   SqlText(intent->destination), SqlText(intent->epoch),
			   SqlInt8(intent->since.seq), SqlInt8(intent->since.n),
			   SqlInt8(intent->until.seq), SqlInt8(intent->until.n),
			   SqlInt8(intent->row_count), SqlInt8(intent->byte_count),
			   SqlDatum(TEXTARRAYOID, DigestArray(intent), false), SqlJsonb(intent->encoding),
			   SqlText(intent->object_key), SqlTime(intent->created_at),
			   SqlJsonb(intent->until.key), SqlInt8(position.seq), SqlInt8(position.n),
			   SqlJsonb(position.key)) == 0)
		return false;
	intent->intent_id = SqlGetInt8(0, 1);
	return true;
}

bool
NoteAttempt(const Intent *intent, int64 rows, int64 bytes, const char *digest)
{
	return SqlRun("UPDATE incsink.intent SET attempts = attempts + 1, row_count = $4, byte_count = $5,"
				  " digests = CASE WHEN digests OPERATOR(pg_catalog.@>) ARRAY[$3] THEN digests"
				  " ELSE pg_catalog.array_append(digests, $3) END"
				  " WHERE intent_id = $1 AND epoch = $2",
				  SqlInt8(intent->intent_id), SqlText(intent->epoch), SqlText(digest),
				  SqlInt8(rows), SqlInt8(bytes)) == 1;
}
