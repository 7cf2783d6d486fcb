/*
 * sink.c
 *		Sinks and what they export, as the catalog knows them.
 */
#include "postgres.h"

#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"

#include "catalog/dead_letter.h"
#include "catalog/epoch.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/compat.h"
#include "common/shared.h"
#include "common/sql.h"

#define SINK_COLUMNS "sink_id, name, kind, url, credentials, owner::pg_catalog.oid, options, enabled"

/*
 * An option that this library does not take (an older one after a downgrade, a
 * row edited by hand) is an error of that sink and must not end the caller.
 * Parsing touches nothing but memory, so no subtransaction is needed to go on.
 */
static void
ParseOptionsOrError(SinkDefinition *sink, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);

	PG_TRY();
	{
		sink->options = ParseSinkOptions(sink->kind, sink->raw_options);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_INVALID_PARAMETER_VALUE)
			PG_RE_THROW();
		FlushErrorState();
		sink->options = NULL;
		sink->options_error = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
}

static SinkDefinition *
ReadSinkRow(uint64 row, MemoryContext context)
{
	SinkDefinition *sink = MemoryContextAllocZero(context, sizeof(SinkDefinition));

	sink->sink_id = SqlGetInt8(row, 1);
	sink->name = SqlGetText(row, 2, context);
	sink->kind = SqlGetText(row, 3, context);
	sink->url = SqlGetText(row, 4, context);
	sink->credentials = SqlGetText(row, 5, context);
	sink->owner = SqlGetOid(row, 6);
	sink->raw_options = SqlGetJsonb(row, 7, context);
	sink->enabled = SqlGetBool(row, 8);
	ParseOptionsOrError(sink, context);
	return sink;
}

SinkDefinition *
LoadSinkByName(const char *name, MemoryContext context)
{
	if (SqlRun("SELECT " SINK_COLUMNS " FROM incsink.sink_def WHERE name = $1",
			   SqlText(name)) == 0)
		return NULL;
	return ReadSinkRow(0, context);
}

List *
LoadSinks(MemoryContext context)
{
	uint64		count = SqlRun0("SELECT " SINK_COLUMNS " FROM incsink.sink_def ORDER BY sink_id");
	List	   *sinks = NIL;

	for (uint64 row = 0; row < count; row++)
	{
		SinkDefinition *sink = ReadSinkRow(row, context);
		MemoryContext old = MemoryContextSwitchTo(context);

		sinks = lappend(sinks, sink);
		MemoryContextSwitchTo(old);
	}
	return sinks;
}

List *
LoadSinkTables(MemoryContext context)
{
	uint64		count = SqlRun0("SELECT sink_id, partition_id, columns, filter, start, epoch, destinations"
								" FROM incsink.sink_table_def ORDER BY sink_id, partition_id");
	List	   *tables = NIL;

	for (uint64 row = 0; row < count; row++)
	{
		SinkTable  *table = MemoryContextAllocZero(context, sizeof(SinkTable));
		MemoryContext old;

		table->sink_id = SqlGetInt8(row, 1);
		table->partition_id = SqlGetInt8(row, 2);
		table->columns = SqlGetTextArray(row, 3, context, &table->ncolumns);
		table->filter = SqlGetText(row, 4, context);
		table->start = SqlGetText(row, 5, context);
		table->epoch = SqlGetText(row, 6, context);
		table->destinations = SqlGetInt4(row, 7);
		old = MemoryContextSwitchTo(context);
		tables = lappend(tables, table);
		MemoryContextSwitchTo(old);
	}
	return tables;
}

void
AddSinkTable(int64 sink_id, int64 partition_id, char **columns, int ncolumns,
			 const char *filter, const char *start, Position position)
{
	char	   *epoch = DrawEpoch(NULL);

	(void) SqlRun("INSERT INTO incsink.sink_table_def"
				  " (sink_id, partition_id, columns, filter, start, epoch)"
				  " VALUES ($1, $2, $3, $4, $5, $6)",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlNameArray(columns, ncolumns),
				  SqlText(filter), SqlText(start), SqlText(epoch));
	(void) SqlRun("INSERT INTO incsink.watermark (sink_id, partition_id, destination, epoch, seq,"
				  " n, key, sent_seq, sent_n) VALUES ($1, $2, '', $3, $4, $5, $6, $4, $5)",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlText(epoch),
				  SqlInt8(position.seq), SqlInt8(position.n), SqlJsonb(position.key));
	NoteEpoch(sink_id, partition_id);
}

/* A dead end for the sink, but not for its user. */
pg_noreturn static void
RaiseNoOrder(const Partition *partition, const char *sink)
{
	char	   *table = quote_qualified_identifier(partition->schema_name, partition->table_name);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("sink \"%s\" cannot export the rows that table \"%s\" had when it was attached",
					sink, partition->table_name),
			 errdetail("They have no number, and incsink knows no unique index on NOT NULL columns in whose order they could be read."),
			 errhint("Number them, CALL incsink_renumber(%s), or start with the rows that are new: by the option {\"start\": \"now\"}, or start => 'now' in incsink_add_table().",
					 quote_literal_cstr(table))));
}

Position
StartPosition(const Partition *partition, const char *sink, const char *start, int64 horizon)
{
	Position	now = {.seq = horizon};

	if (strcmp(start, "now") != 0)
	{
		if (partition->had_rows && partition->backlog == NULL)
			RaiseNoOrder(partition, sink);
		return POSITION_BEGINNING;
	}
	if (horizon == 0 && partition->backlog != NULL)
		now.key = BacklogOverKey();
	return now;
}

/* Nobody can send them again, and nobody else has them. */
static void
NoteDropped(int64 dead_letters)
{
	if (dead_letters > 0)
		ereport(NOTICE,
				(errmsg("dropped %lld dead letters", (long long) dead_letters),
				 errdetail("Rows that the receiver refused are not exported.")));
}

bool
RemoveSinkTable(int64 sink_id, int64 partition_id)
{
	if (!LockSinkTable(sink_id, partition_id, false))
		return false;
	(void) SqlRun("DELETE FROM incsink.intent WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink_id), SqlInt8(partition_id));
	(void) SqlRun("DELETE FROM incsink.watermark WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink_id), SqlInt8(partition_id));
	ForgetEpoch(sink_id, partition_id);
	(void) SqlRun("DELETE FROM incsink.delivery_state WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink_id), SqlInt8(partition_id));
	(void) SqlRun("DELETE FROM incsink.delivery_error WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink_id), SqlInt8(partition_id));
	NoteDropped(DropDeadLetters(sink_id, partition_id, POSITION_BEGINNING));
	(void) SqlRun("DELETE FROM incsink.sink_table_def WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink_id), SqlInt8(partition_id));
	return true;
}

static void
JoinSink(const SinkDefinition *sink, const Partition *partition)
{
	const char *start;

	if (sink->options == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("options of sink \"%s\" are invalid: %s", sink->name, sink->options_error),
				 errdetail("The sink lists dataset \"%s\".", partition->dataset)));
	start = sink->options->start;
	AddSinkTable(sink->sink_id, partition->partition_id, NULL, 0, NULL, start,
				 StartPosition(partition, sink->name, start, partition->recorded_horizon));
}

/*
 * The lock makes the other of two sessions wait, of which one attaches a table and
 * the other lists its dataset in a sink: neither would see the other's row.
 */
void
JoinDatasetSinks(int64 partition_id, const char *dataset)
{
	Partition  *partition;
	List	   *sinks = NIL;
	uint64		count;
	ListCell   *cell;

	LockRelationOid(CatalogRelation("sink_dataset_def"), ShareLock);
	count = SqlRun("SELECT " SINK_COLUMNS " FROM incsink.sink_def AS s WHERE EXISTS"
				   " (SELECT FROM incsink.sink_dataset_def AS d"
				   "  WHERE d.sink_id = s.sink_id AND d.dataset = $2)"
				   " AND NOT EXISTS (SELECT FROM incsink.sink_table_def AS t"
				   "  WHERE t.sink_id = s.sink_id AND t.partition_id = $1)"
				   " ORDER BY sink_id",
				   SqlInt8(partition_id), SqlText(dataset));
	if (count == 0)
		return;
	for (uint64 row = 0; row < count; row++)
		sinks = lappend(sinks, ReadSinkRow(row, CurrentMemoryContext));
	partition = LoadPartition(partition_id, CurrentMemoryContext);
	foreach(cell, sinks)
		JoinSink(lfirst(cell), partition);
	InvalidateDefinitions();
}

char *
RandomHex(int digits)
{
	static const char hex[] = "0123456789abcdef";
	char	   *result = palloc(digits + 1);

	if (!pg_strong_random(result, digits))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	for (int i = 0; i < digits; i++)
		result[i] = hex[result[i] & 0x0f];
	result[digits] = '\0';
	return result;
}

char *
DrawEpoch(const char *previous)
{
	uint64		number = previous == NULL ? 0 : strtou64(previous, NULL, 10);

	return psprintf(UINT64_FORMAT "-%s", number + 1, RandomHex(8));
}

int
TryLockSinkTables(const int64 *sink_ids, const int64 *partition_ids, int count, bool *locked)
{
	uint64		rows;

	memset(locked, 0, sizeof(bool) * count);
	rows = SqlRun("SELECT x.n FROM unnest($1, $2) WITH ORDINALITY AS x (sink_id, partition_id, n)"
				  " JOIN incsink.sink_table_def t ON t.sink_id = x.sink_id"
				  " AND t.partition_id = x.partition_id FOR UPDATE OF t SKIP LOCKED",
				  SqlInt8Array(sink_ids, count), SqlInt8Array(partition_ids, count));
	for (uint64 row = 0; row < rows; row++)
		locked[SqlGetInt8(row, 1) - 1] = true;
	return rows;
}

bool
LockSinkTable(int64 sink_id, int64 partition_id, bool skip_locked)
{
	bool		locked;

	if (skip_locked)
		return TryLockSinkTables(&sink_id, &partition_id, 1, &locked) > 0;
	return SqlRun("SELECT 1 FROM incsink.sink_table_def WHERE sink_id = $1 AND partition_id = $2"
				  " FOR UPDATE",
				  SqlInt8(sink_id), SqlInt8(partition_id)) > 0;
}

/* Workers listen to relcache invalidations of the table of sinks. */
void
InvalidateDefinitions(void)
{
	CacheInvalidateRelcacheByRelid(CatalogRelation("sink_def"));
	NoteWakeup();
}
