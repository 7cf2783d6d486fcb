/*
 * sink_table.c
 *		Adds tables to sinks and removes them.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/timestamp.h"

#include "api/arguments.h"
#include "api/sink_access.h"
#include "api/sink_table.h"
#include "cache/current.h"
#include "cache/horizon.h"
#include "cache/reader.h"
#include "cache/row_filter.h"
#include "common/settings.h"
#include "common/sql.h"
#include "sink/url.h"

PG_FUNCTION_INFO_V1(incsink_add_table);
PG_FUNCTION_INFO_V1(incsink_remove_table);

/* How long open transactions may keep "now" from being known. */
#define NOW_PATIENCE_MS 1000

static char *
RelationName(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

static Partition *
AttachedPartition(Oid relid)
{
	Partition  *partition = LoadPartitionByRelation(relid, CurrentMemoryContext);

	if (partition == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not attached", get_rel_name(relid)),
				 errhint("Attach it first: SELECT incsink_attach('%s');", RelationName(relid))));
	return partition;
}

/*
 * Opens the table as a delivery will, and closes it again: what would halt the
 * delivery (an unknown column, a missing privilege, row-level security) is told
 * now.
 */
static void
CheckCanBeRead(const SinkDefinition *sink, const Partition *partition,
			   const TableExport *export)
{
	ReaderOptions options = {0};
	Reader	   *reader;

	options.role = sink->owner;
	options.columns = export->columns;
	options.ncolumns = export->ncolumns;
	options.filter = export->filter;
	options.wait_for_lock = true;
	if (ReaderOpen(partition, &options, &reader) == READER_OK)
		ReaderClose(reader);
}

/* Its numbers may change, by incsink_renumber, and are nobody's business. */
static void
CheckFilterColumns(Relation rel, const Partition *partition, const TableExport *export)
{
	AttrNumber	seq = get_attnum(RelationGetRelid(rel), partition->seq_column);

	if (!partition->adopted &&
		bms_is_member(seq - FirstLowInvalidHeapAttributeNumber, export->filter_columns))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("a row filter must not use column \"%s\"", partition->seq_column),
				 errdetail("It numbers the rows for incsink.")));
}

/*
 * Open transactions may still commit rows below what was drawn last; those have to
 * be exported, so the start is the horizon.  It is waited for a moment, because
 * the last one that is known may be long ago and rows after it would be exported
 * although they were there before.  Numbers that this transaction drew itself
 * would be waited for in vain.
 */
int64
FindStartOfNow(Partition *partition)
{
	CurrentState state = FindCurrentState(partition);
	int64		wanted = state.drawn_known ? state.last_drawn : state.horizon;

	if (state.horizon < wanted && !OwnTransactionHasDrawn(partition->sequence))
		state = WaitForHorizon(partition, NOW_PATIENCE_MS);
	if (state.horizon < wanted)
		ereport(NOTICE,
				(errmsg("export of table \"%s\" starts after number " INT64_FORMAT
						", although the last one drawn is " INT64_FORMAT,
						partition->table_name, state.horizon, wanted),
				 errdetail("Open transactions may still commit rows in between; rows there that were committed before are exported, too.")));
	return Min(state.horizon, wanted);
}

static Position
FindStart(const SinkDefinition *sink, Partition *partition, const char *start)
{
	bool		now = strcmp(start, "now") == 0;

	if (!now && strcmp(start, "beginning") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid start \"%s\"", start),
				 errhint("It must be \"beginning\" or \"now\".")));
	return StartPosition(partition, sink->name, start, now ? FindStartOfNow(partition) : 0);
}

/*
 * A name that is too long for a file would be seen with the first batch only.
 * Positions in a backlog make the longest ones.
 */
static void
CheckObjectKey(const SinkDefinition *sink, const Partition *partition)
{
	KeyValues	values = {0};

	if (sink->options->key == NULL)
		return;
	values.dataset = partition->dataset;
	values.source = partition->source;
	values.sink = sink->name;
	values.destination = "";
	values.instance = setting_instance ? setting_instance : "";
	values.epoch = "1-00000000";
	values.ext = sink->options->format;
	values.time = GetCurrentTimestamp();
	if (partition->backlog != NULL)
		values.since = values.until = POSITION_BACKLOG_END;
	(void) ExpandKey(sink->options->key, &values);
}

void
AddTable(const SinkDefinition *sink, Oid relid, const TableExport *export)
{
	Relation	rel = table_open(relid, AccessShareLock);
	Partition  *partition = AttachedPartition(relid);
	const char *start = export->start ? export->start : sink->options->start;

	if (SqlRun("SELECT 1 FROM incsink.sink_table_def WHERE sink_id = $1 AND partition_id = $2",
			   SqlInt8(sink->sink_id), SqlInt8(partition->partition_id)) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("sink \"%s\" exports table \"%s\" already",
						sink->name, RelationGetRelationName(rel)),
				 errhint("To change what is exported, remove the table and add it again.")));
	CheckFilterColumns(rel, partition, export);
	CheckCanBeRead(sink, partition, export);
	CheckObjectKey(sink, partition);
	AddSinkTable(sink->sink_id, partition->partition_id, export->columns, export->ncolumns,
				 export->filter, start, FindStart(sink, partition, start));
	table_close(rel, NoLock);
}

/* Shows where in the filter, not in the statement around it, the parser stopped. */
static void
FilterErrorContext(void *filter)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(filter);
	}
}

/*
 * Written out again, so that it means the same to the worker, whatever its
 * settings are.
 */
static char *
DeparseFilter(Relation rel, Node *condition)
{
	static const char *const settings[][2] = {
		{"search_path", "pg_catalog, pg_temp"}, {"DateStyle", "ISO, YMD"},
		{"IntervalStyle", "iso_8601"}, {"TimeZone", "UTC"}, {"extra_float_digits", "3"},
		{"bytea_output", "hex"}, {"quote_all_identifiers", "off"}
	};
	List	   *context = deparse_context_for(RelationGetRelationName(rel), RelationGetRelid(rel));
	int			nest_level = NewGUCNestLevel();
	char	   *result;

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	result = deparse_expression(condition, context, false, false);
	AtEOXact_GUC(true, nest_level);
	return result;
}

/*
 * Must run as the caller, outside of an SqlSession: a literal of a composite type
 * checks the constraints of domains in it while it is parsed.
 */
static void
PrepareFilter(Oid relid, char *filter, TableExport *export)
{
	Relation	rel = table_open(relid, AccessShareLock);
	ErrorContextCallback callback;
	Node	   *condition;

	callback.callback = FilterErrorContext;
	callback.arg = filter;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	condition = (Node *) make_ands_explicit(ParseRowFilter(rel, filter));
	error_context_stack = callback.previous;

	pull_varattnos(condition, 1, &export->filter_columns);
	export->filter = DeparseFilter(rel, condition);
	table_close(rel, NoLock);
}

static char **
ColumnNames(FunctionCallInfo fcinfo, int number, int *count)
{
	Datum	   *elements;
	char	  **names;

	if (PG_ARGISNULL(number))
		return NULL;
	elements = RequireArray(fcinfo, number, "columns", count);
	if (*count == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the column list is empty"),
				 errhint("Leave it out to export all columns.")));
	names = palloc(sizeof(char *) * *count);
	for (int i = 0; i < *count; i++)
		names[i] = NameStr(*DatumGetName(elements[i]));
	return names;
}

Datum
incsink_add_table(PG_FUNCTION_ARGS)
{
	char	   *name = RequireText(fcinfo, 0, "sink");
	Oid			user = GetUserId();
	char	   *filter = OptionalText(fcinfo, 3);
	TableExport export = EXPORT_ALL;
	SinkDefinition *sink;
	SqlSession	session;

	RequireArgument(fcinfo, 1, "relation");
	export.columns = ColumnNames(fcinfo, 2, &export.ncolumns);
	export.start = OptionalText(fcinfo, 4);

	SqlBegin(&session);
	(void) LockOwnSink(name, user);
	SqlEnd(&session);
	if (filter != NULL)
		PrepareFilter(PG_GETARG_OID(1), filter, &export);

	SqlBegin(&session);
	sink = LoadOwnSink(name, user);
	RequireValidOptions(sink);
	AddTable(sink, PG_GETARG_OID(1), &export);
	AnnounceChange();
	SqlEnd(&session);
	PG_RETURN_VOID();
}

Datum
incsink_remove_table(PG_FUNCTION_ARGS)
{
	char	   *name = RequireText(fcinfo, 0, "sink");
	Oid			user = GetUserId();
	SinkDefinition *sink;
	Partition  *partition;
	SqlSession	session;

	RequireArgument(fcinfo, 1, "relation");
	SqlBegin(&session);
	sink = LockOwnSink(name, user);
	partition = AttachedPartition(PG_GETARG_OID(1));
	if (!RemoveSinkTable(sink->sink_id, partition->partition_id))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("sink \"%s\" does not export table \"%s\"",
						name, get_rel_name(PG_GETARG_OID(1)))));
	AnnounceChange();
	SqlEnd(&session);
	PG_RETURN_VOID();
}
