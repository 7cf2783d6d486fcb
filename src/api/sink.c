/*
 * sink.c
 *		Creates, changes and drops sinks.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "api/arguments.h"
#include "api/sink_access.h"
#include "api/sink_table.h"
#include "catalog/credentials.h"
#include "catalog/dead_letter.h"
#include "catalog/delivery_state.h"
#include "catalog/epoch.h"
#include "common/shared.h"
#include "common/sql.h"
#include "common/template.h"
#include "sink/url.h"

PG_FUNCTION_INFO_V1(incsink_create_sink);
PG_FUNCTION_INFO_V1(incsink_alter_sink);
PG_FUNCTION_INFO_V1(incsink_drop_sink);
PG_FUNCTION_INFO_V1(incsink_pause_sink);
PG_FUNCTION_INFO_V1(incsink_resume_sink);

/* Names stand in headers and in object names. */
static void
CheckSinkName(const char *name)
{
	if (*name == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("the name of a sink must not be empty")));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("the name of a sink must be shorter than %d bytes", NAMEDATALEN)));
	for (const char *c = name; *c != '\0'; c++)
		if ((unsigned char) *c < 0x20 || *c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_NAME),
					 errmsg("the name of a sink must not hold control characters")));
}

/*
 * Whatever its placeholders ask for must be there now: later it would be found out
 * by a delivery.
 */
static void
CheckSecrets(const SinkDefinition *sink)
{
	Credentials *credentials = NULL;
	List	   *names = ListSecrets(NIL, sink->url, "the URL");
	ListCell   *cell;

	if (sink->credentials != NULL && strcmp(sink->kind, "forward") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sinks that write files take no credentials")));
	if (sink->credentials != NULL)
		credentials = LoadCredentials(sink->credentials, sink->owner, sink->url);
	for (int i = 0; i < sink->options->nheaders; i++)
	{
		names = ListSecrets(names, sink->options->headers[i].value, "a header");
		RefuseSecondAuthorization(sink->options->headers[i].name, credentials);
	}
	foreach(cell, names)
		(void) RequireSecret(lfirst(cell), credentials);
}

/* The whole of a definition, by the rights of the sink's owner. */
static void
CheckDefinition(SinkDefinition *sink)
{
	sink->options = ParseSinkOptions(sink->kind, sink->raw_options);
	CheckSinkUrl(sink->url, sink->owner);
	CheckSecrets(sink);
}

static void
InsertSink(SinkDefinition *sink)
{
	if (SqlRun("INSERT INTO incsink.sink_def"
			   " (sink_id, name, kind, url, credentials, owner, options, enabled)"
			   " VALUES (pg_catalog.nextval('incsink.object_id_seq'), $1, $2, $3, $4,"
			   " $5::pg_catalog.regrole, $6, $7)"
			   " ON CONFLICT (name) DO NOTHING RETURNING sink_id",
			   SqlText(sink->name), SqlText(sink->kind), SqlText(sink->url),
			   SqlName(sink->credentials), SqlOid(sink->owner), SqlJsonb(sink->raw_options),
			   SqlBool(sink->enabled)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("sink \"%s\" already exists", sink->name)));
	sink->sink_id = SqlGetInt8(0, 1);
}

/* Tables of the dataset that are attached already, but for those that were listed by themselves. */
static void
AddTablesOfDataset(const SinkDefinition *sink, const char *dataset)
{
	uint64		count;
	List	   *relations = NIL;
	ListCell   *cell;

	count = SqlRun("SELECT s.relid FROM incsink.partition_def AS d"
				   " JOIN incsink.partition_state AS s USING (partition_id)"
				   " WHERE d.dataset = $1 AND NOT EXISTS (SELECT FROM incsink.sink_table_def AS t"
				   "  WHERE t.sink_id = $2 AND t.partition_id = d.partition_id)"
				   " ORDER BY partition_id",
				   SqlText(dataset), SqlInt8(sink->sink_id));
	for (uint64 row = 0; row < count; row++)
		relations = lappend_oid(relations, SqlGetOid(row, 1));
	foreach(cell, relations)
		AddTable(sink, lfirst_oid(cell), &EXPORT_ALL);
}

/*
 * The row in sink_dataset_def comes first: its lock makes us wait for sessions that
 * are attaching tables, which JoinDatasetSinks() may have done without seeing us.
 */
static void
AddDatasets(const SinkDefinition *sink, const Datum *datasets, int count)
{
	for (int i = 0; i < count; i++)
		(void) SqlRun("INSERT INTO incsink.sink_dataset_def (sink_id, dataset) VALUES ($1, $2)"
					  " ON CONFLICT DO NOTHING",
					  SqlInt8(sink->sink_id), SqlText(TextDatumGetCString(datasets[i])));
	for (int i = 0; i < count; i++)
		AddTablesOfDataset(sink, TextDatumGetCString(datasets[i]));
}

Datum
incsink_create_sink(PG_FUNCTION_ARGS)
{
	SinkDefinition sink = {0};
	Datum	   *tables;
	Datum	   *datasets;
	int			ntables;
	int			ndatasets;
	SqlSession	session;

	sink.name = RequireText(fcinfo, 0, "name");
	sink.url = RequireText(fcinfo, 1, "url");
	tables = RequireArray(fcinfo, 2, "tables", &ntables);
	datasets = RequireArray(fcinfo, 3, "datasets", &ndatasets);
	RequireArgument(fcinfo, 4, "options");
	sink.raw_options = MergeOptions(NULL, PG_GETARG_JSONB_P(4));
	sink.credentials = OptionalName(fcinfo, 5);
	RequireArgument(fcinfo, 6, "enabled");
	sink.enabled = PG_GETARG_BOOL(6);
	sink.owner = GetUserId();
	CheckSinkName(sink.name);
	sink.kind = pstrdup(SinkKindOfUrl(sink.url));
	CheckDefinition(&sink);

	SqlBegin(&session);
	InsertSink(&sink);
	for (int i = 0; i < ntables; i++)
		AddTable(&sink, DatumGetObjectId(tables[i]), &EXPORT_ALL);
	AddDatasets(&sink, datasets, ndatasets);
	AnnounceChange();
	SqlEnd(&session);
	PG_RETURN_VOID();
}

typedef enum NewWatermark
{
	WATERMARK_NOT_GIVEN,
	WATERMARK_KEEP,
	WATERMARK_RESTART
} NewWatermark;

static NewWatermark
ParseWatermark(const char *text)
{
	if (text == NULL)
		return WATERMARK_NOT_GIVEN;
	if (strcmp(text, "keep") == 0)
		return WATERMARK_KEEP;
	if (strcmp(text, "restart") == 0)
		return WATERMARK_RESTART;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid watermark \"%s\"", text),
			 errhint("It must be \"keep\" or \"restart\".")));
}

static void
ChangeUrl(SinkDefinition *sink, char *url, NewWatermark watermark)
{
	const char *kind = SinkKindOfUrl(url);

	if (strcmp(kind, sink->kind) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot change the kind of sink \"%s\" from \"%s\" to \"%s\"",
						sink->name, sink->kind, kind),
				 errhint("Create another sink.")));
	if (watermark == WATERMARK_NOT_GIVEN && strcmp(url, sink->url) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a new URL needs the argument \"watermark\""),
				 errdetail("The new place may or may not have what was exported already."),
				 errhint("Write watermark => 'keep' to go on where the sink stands, or watermark => 'restart' to export from the start of each table again.")));
	sink->url = url;
}

/*
 * A new epoch at the start of a table.  Counters go on: they count what was
 * exported, wherever to.  Rows that were put aside and are read again are not sent
 * twice: their dead letters go.
 */
static void
RestartTable(const SinkDefinition *sink, int64 partition_id)
{
	Partition  *partition = LoadPartition(partition_id, CurrentMemoryContext);
	Position	position = POSITION_BEGINNING;
	char	   *start;
	char	   *epoch;

	if (!LockSinkTable(sink->sink_id, partition_id, false))
		return;
	(void) SqlRun("SELECT start, epoch FROM incsink.sink_table_def"
				  " WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink->sink_id), SqlInt8(partition_id));
	start = SqlGetText(0, 1, CurrentMemoryContext);
	epoch = DrawEpoch(SqlGetText(0, 2, CurrentMemoryContext));
	if (partition != NULL && OidIsValid(partition->sequence))
		position = StartPosition(partition, sink->name, start,
								 strcmp(start, "now") == 0 ? FindStartOfNow(partition) : 0);
	(void) SqlRun("DELETE FROM incsink.intent WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink->sink_id), SqlInt8(partition_id));
	(void) SqlRun("DELETE FROM incsink.delivery_state WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink->sink_id), SqlInt8(partition_id));
	(void) SqlRun("DELETE FROM incsink.watermark"
				  " WHERE sink_id = $1 AND partition_id = $2 AND destination <> ''",
				  SqlInt8(sink->sink_id), SqlInt8(partition_id));
	(void) SqlRun("INSERT INTO incsink.watermark (sink_id, partition_id, destination, epoch, seq,"
				  " n, key, sent_seq, sent_n) VALUES ($1, $2, '', $3, $4, $5, $6, $4, $5)"
				  " ON CONFLICT (sink_id, partition_id, destination)"
				  " DO UPDATE SET epoch = EXCLUDED.epoch, seq = EXCLUDED.seq, n = EXCLUDED.n,"
				  " key = EXCLUDED.key, sent_seq = EXCLUDED.sent_seq, sent_n = EXCLUDED.sent_n",
				  SqlInt8(sink->sink_id), SqlInt8(partition_id), SqlText(epoch),
				  SqlInt8(position.seq), SqlInt8(position.n), SqlJsonb(position.key));
	(void) DropDeadLetters(sink->sink_id, partition_id, position);
	(void) SqlRun("UPDATE incsink.sink_table_def SET epoch = $3, destinations = 0"
				  " WHERE sink_id = $1 AND partition_id = $2",
				  SqlInt8(sink->sink_id), SqlInt8(partition_id), SqlText(epoch));
	NoteEpoch(sink->sink_id, partition_id);
}

/* Ids of the partitions that the sink exports. */
static List *
ListPartitions(const SinkDefinition *sink)
{
	uint64		count = SqlRun("SELECT partition_id FROM incsink.sink_table_def WHERE sink_id = $1"
							   " ORDER BY partition_id", SqlInt8(sink->sink_id));
	List	   *ids = NIL;

	for (uint64 row = 0; row < count; row++)
	{
		int64	   *id = palloc(sizeof(int64));

		*id = SqlGetInt8(row, 1);
		ids = lappend(ids, id);
	}
	return ids;
}

/*
 * Halts and pauses between attempts are forgotten, so that the worker tries again
 * at once with what was mended; the last error stays.
 */
static void
ForgetFailures(const SinkDefinition *sink)
{
	ListCell   *cell;

	foreach(cell, ListPartitions(sink))
	{
		int64		partition_id = *(int64 *) lfirst(cell);

		if (LockSinkTable(sink->sink_id, partition_id, false))
			ForgetFailure(sink->sink_id, partition_id);
	}
}

Datum
incsink_alter_sink(PG_FUNCTION_ARGS)
{
	char	   *name = RequireText(fcinfo, 0, "name");
	char	   *url = OptionalText(fcinfo, 1);
	char	   *credentials = OptionalName(fcinfo, 3);
	NewWatermark watermark = ParseWatermark(OptionalText(fcinfo, 4));
	Oid			user = GetUserId();
	SinkDefinition *sink;
	SqlSession	session;
	ListCell   *cell;

	if (watermark != WATERMARK_NOT_GIVEN && url == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the argument \"watermark\" needs a URL"),
				 errhint("Give the argument \"url\", too; it may be the present one.")));

	SqlBegin(&session);
	sink = LockOwnSink(name, user);
	if (url != NULL)
		ChangeUrl(sink, url, watermark);
	if (credentials != NULL)
		sink->credentials = *credentials != '\0' ? credentials : NULL;
	if (!PG_ARGISNULL(2))
		sink->raw_options = MergeOptions(sink->raw_options, PG_GETARG_JSONB_P(2));
	CheckDefinition(sink);
	(void) SqlRun("UPDATE incsink.sink_def SET url = $2, credentials = $3, options = $4"
				  " WHERE sink_id = $1",
				  SqlInt8(sink->sink_id), SqlText(sink->url), SqlName(sink->credentials),
				  SqlJsonb(sink->raw_options));
	if (watermark == WATERMARK_RESTART)
	{
		foreach(cell, ListPartitions(sink))
			RestartTable(sink, *(int64 *) lfirst(cell));
	}
	ForgetFailures(sink);
	AnnounceChange();
	SqlEnd(&session);
	PG_RETURN_VOID();
}

Datum
incsink_drop_sink(PG_FUNCTION_ARGS)
{
	char	   *name = RequireText(fcinfo, 0, "name");
	Oid			user = GetUserId();
	SinkDefinition *sink;
	SqlSession	session;
	ListCell   *cell;

	RequireArgument(fcinfo, 1, "if_exists");
	SqlBegin(&session);
	if (PG_GETARG_BOOL(1) && LoadSinkByName(name, CurrentMemoryContext) == NULL)
	{
		ereport(NOTICE,
				(errmsg("sink \"%s\" does not exist, skipping", name)));
		SqlEnd(&session);
		PG_RETURN_VOID();
	}
	sink = LockOwnSink(name, user);
	(void) SqlRun("DELETE FROM incsink.sink_dataset_def WHERE sink_id = $1",
				  SqlInt8(sink->sink_id));
	foreach(cell, ListPartitions(sink))
		(void) RemoveSinkTable(sink->sink_id, *(int64 *) lfirst(cell));
	(void) SqlRun("DELETE FROM incsink.sink_def WHERE sink_id = $1", SqlInt8(sink->sink_id));
	InvalidateDefinitions();
	SqlEnd(&session);
	PG_RETURN_VOID();
}

static void
SetEnabled(const char *name, bool enabled)
{
	Oid			user = GetUserId();
	SinkDefinition *sink;
	SqlSession	session;

	SqlBegin(&session);
	sink = LockOwnSink(name, user);
	(void) SqlRun("UPDATE incsink.sink_def SET enabled = $2 WHERE sink_id = $1 AND enabled <> $2",
				  SqlInt8(sink->sink_id), SqlBool(enabled));
	if (enabled)
		ForgetFailures(sink);
	AnnounceChange();
	SqlEnd(&session);
}

Datum
incsink_pause_sink(PG_FUNCTION_ARGS)
{
	SetEnabled(RequireText(fcinfo, 0, "name"), false);
	PG_RETURN_VOID();
}

Datum
incsink_resume_sink(PG_FUNCTION_ARGS)
{
	SetEnabled(RequireText(fcinfo, 0, "name"), true);
	PG_RETURN_VOID();
}
