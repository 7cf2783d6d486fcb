/*
 * intent.c
 *		Intents: the durable records of batches that may have left.
 */
#include "postgres.h"

#include "catalog/sink.h"
#include "catalog/watermark.h"
#include "commands/sequence.h"
#include "common/digest.h"
#include "common/sql.h"

static const char *const trigger_names[] = {
	[FLUSH_UNKNOWN] = NULL,
	[FLUSH_INTERVAL] = "interval",
	[FLUSH_ROWS] = "rows",
	[FLUSH_BYTES] = "bytes",
	[FLUSH_MEMORY] = "memory",
	[FLUSH_REQUEST] = "request",
	[FLUSH_BACKLOG] = "backlog",
};

const char *
FlushTriggerName(FlushTrigger trigger)
{
	return trigger_names[trigger];
}

FlushTrigger
FlushTriggerByName(const char *name)
{
	for (int i = FLUSH_UNKNOWN + 1; name != NULL && i < lengthof(trigger_names); i++)
	{
		if (strcmp(trigger_names[i], name) == 0)
			return (FlushTrigger) i;
	}
	return FLUSH_UNKNOWN;
}

#define LOAD_INTENTS(COLUMNS) \
	"SELECT intent_id, batch_id, destination, epoch, since_seq, since_n, until_seq, until_n," \
	" row_count, byte_count, digests, encoding, object_key, attempts, created_at, until_key" COLUMNS \
	" FROM incsink.intent WHERE sink_id = $1 AND partition_id = $2 ORDER BY since_seq, since_n"

List *
LoadIntents(int64 sink_id, int64 partition_id, MemoryContext context)
{
	List	   *intents = NIL;
	uint64		count;
	MemoryContext old;

	count = SqlRun(CatalogIsAtLeast(4) ? LOAD_INTENTS(", refused, flush_trigger")
				   : LOAD_INTENTS(", 0, NULL"),
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
		intent->refused = SqlGetInt4(row, 17);
		intent->trigger = FlushTriggerByName(SqlGetText(row, 18, CurrentMemoryContext));
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

/* Of many intents, as the arguments of a statement: an array a column. */
typedef struct IntentColumns
{
	int			count;
	int64	   *intent_id;
	char	  **batch_id;
	int64	   *sink_id;
	int64	   *partition_id;
	char	  **destination;
	char	  **epoch;
	int64	   *since_seq;
	int64	   *since_n;
	int64	   *until_seq;
	int64	   *until_n;
	Jsonb	  **until_key;
	int64	   *row_count;
	int64	   *byte_count;
	char	  **digest;			/* a batch that was cut has one */
	Jsonb	  **encoding;
	char	  **object_key;
	TimestampTz *created_at;
	char	  **trigger;
	int64	   *position_seq;
	int64	   *position_n;
	Jsonb	  **position_key;
} IntentColumns;

static void
AllocateColumns(IntentColumns *columns, int count)
{
	int64	  **const numbers[] = {&columns->intent_id, &columns->sink_id, &columns->partition_id,
		&columns->since_seq, &columns->since_n, &columns->until_seq, &columns->until_n,
		&columns->row_count, &columns->byte_count, &columns->created_at, &columns->position_seq,
	&columns->position_n};
	char	 ***const texts[] = {&columns->batch_id, &columns->destination, &columns->epoch,
	&columns->digest, &columns->object_key, &columns->trigger};
	Jsonb	 ***const documents[] = {&columns->until_key, &columns->encoding, &columns->position_key};

	columns->count = count;
	for (int i = 0; i < lengthof(numbers); i++)
		*numbers[i] = palloc(sizeof(int64) * count);
	for (int i = 0; i < lengthof(texts); i++)
		*texts[i] = palloc(sizeof(char *) * count);
	for (int i = 0; i < lengthof(documents); i++)
		*documents[i] = palloc(sizeof(Jsonb *) * count);
}

static void
SetColumns(IntentColumns *columns, int i, const Intent *intent, Position position)
{
	Assert(intent->ndigests == 1);
	columns->intent_id[i] = intent->intent_id;
	columns->batch_id[i] = intent->batch_id;
	columns->sink_id[i] = intent->sink_id;
	columns->partition_id[i] = intent->partition_id;
	columns->destination[i] = unconstify(char *, intent->destination);
	columns->epoch[i] = intent->epoch;
	columns->since_seq[i] = intent->since.seq;
	columns->since_n[i] = intent->since.n;
	columns->until_seq[i] = intent->until.seq;
	columns->until_n[i] = intent->until.n;
	columns->until_key[i] = intent->until.key;
	columns->row_count[i] = intent->row_count;
	columns->byte_count[i] = intent->byte_count;
	columns->digest[i] = intent->digests[0];
	columns->encoding[i] = intent->encoding;
	columns->object_key[i] = intent->object_key;
	columns->created_at[i] = intent->created_at;
	columns->trigger[i] = unconstify(char *, FlushTriggerName(intent->trigger));
	columns->position_seq[i] = position.seq;
	columns->position_n[i] = position.n;
	columns->position_key[i] = position.key;
}

/* The last parameter but those of the position, $18, is the trigger. */
#define INSERT_INTENTS(COLUMNS, VALUES) \
	"INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination, epoch," \
	" since_seq, since_n, until_seq, until_n, until_key, row_count, byte_count, digests, encoding," \
	" object_key, created_at" COLUMNS ")" \
	" SELECT x.intent_id, x.batch_id, x.sink_id, x.partition_id, x.destination, x.epoch," \
	" x.since_seq, x.since_n, x.until_seq, x.until_n, x.until_key, x.row_count, x.byte_count," \
	" ARRAY[x.digest], x.encoding, x.object_key, x.created_at" VALUES \
	" FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16," \
	" $17, $18, $19, $20, $21) AS x (intent_id, batch_id, sink_id, partition_id, destination, epoch," \
	" since_seq, since_n, until_seq, until_n, until_key, row_count, byte_count, digest, encoding," \
	" object_key, created_at, flush_trigger, position_seq, position_n, position_key)" \
	" JOIN incsink.watermark w ON w.sink_id = x.sink_id AND w.partition_id = x.partition_id" \
	" AND w.destination = x.destination AND w.epoch = x.epoch" \
	" LEFT JOIN LATERAL (SELECT i.epoch, i.until_seq, i.until_n FROM incsink.intent i" \
	" WHERE i.sink_id = x.sink_id AND i.partition_id = x.partition_id" \
	" AND i.destination = x.destination ORDER BY i.since_seq DESC, i.since_n DESC LIMIT 1) l ON true" \
	" WHERE CASE WHEN l.epoch IS NOT NULL THEN l.epoch = x.epoch" \
	" AND l.until_seq = x.since_seq AND l.until_n = x.since_n" \
	" ELSE w.sent_seq = x.since_seq AND w.sent_n = x.since_n" \
	" AND w.seq = x.position_seq AND w.n = x.position_n" \
	" AND w.key IS NOT DISTINCT FROM x.position_key END"

static uint64
InsertColumns(const IntentColumns *columns)
{
	int			count = columns->count;

	return SqlRun(CatalogIsAtLeast(4) ? INSERT_INTENTS(", flush_trigger", ", x.flush_trigger")
				  : INSERT_INTENTS("", ""),
				  SqlInt8Array(columns->intent_id, count), SqlTextArray(columns->batch_id, count),
				  SqlInt8Array(columns->sink_id, count), SqlInt8Array(columns->partition_id, count),
				  SqlTextArray(columns->destination, count), SqlTextArray(columns->epoch, count),
				  SqlInt8Array(columns->since_seq, count), SqlInt8Array(columns->since_n, count),
				  SqlInt8Array(columns->until_seq, count), SqlInt8Array(columns->until_n, count),
				  SqlJsonbArray(columns->until_key, count),
				  SqlInt8Array(columns->row_count, count), SqlInt8Array(columns->byte_count, count),
				  SqlTextArray(columns->digest, count), SqlJsonbArray(columns->encoding, count),
				  SqlTextArray(columns->object_key, count), SqlTimeArray(columns->created_at, count),
				  SqlTextArray(columns->trigger, count),
				  SqlInt8Array(columns->position_seq, count), SqlInt8Array(columns->position_n, count),
				  SqlJsonbArray(columns->position_key, count));
}

bool
InsertIntents(Intent *const *intents, const Position *positions, int count)
{
	IntentColumns columns;
	Oid			sequence = CatalogRelation("object_id_seq");

	AllocateColumns(&columns, count);
	for (int i = 0; i < count; i++)
	{
		intents[i]->intent_id = nextval_internal(sequence, false);
		intents[i]->attempts = 1;
		SetColumns(&columns, i, intents[i], positions[i]);
	}
	return InsertColumns(&columns) == count;
}

bool
InsertIntent(Intent *intent, Position position)
{
	return InsertIntents(&intent, &position, 1);
}

#define NOTE_ATTEMPT(COLUMNS) \
	"UPDATE incsink.intent SET attempts = attempts + 1, row_count = $4, byte_count = $5," \
	" digests = CASE WHEN digests OPERATOR(pg_catalog.@>) ARRAY[$3] THEN digests" \
	" ELSE pg_catalog.array_append(digests, $3) END" COLUMNS \
	" WHERE intent_id = $1 AND epoch = $2"

bool
NoteAttempt(const Intent *intent, int64 rows, int64 bytes, const char *digest)
{
	if (!CatalogIsAtLeast(4))
		return SqlRun(NOTE_ATTEMPT(""), SqlInt8(intent->intent_id), SqlText(intent->epoch),
					  SqlText(digest), SqlInt8(rows), SqlInt8(bytes)) == 1;
	return SqlRun(NOTE_ATTEMPT(", refused = $6"), SqlInt8(intent->intent_id), SqlText(intent->epoch),
				  SqlText(digest), SqlInt8(rows), SqlInt8(bytes), SqlInt4(intent->refused)) == 1;
}
