/*
 * verify.c
 *		incsink_verify(): what a table holds, and what a sink has of it.
 *
 * It sends nothing and changes nothing: rows are read as the worker reads them, files are
 * opened for reading.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "api/arguments.h"
#include "api/partition_access.h"
#include "api/sink_access.h"
#include "api/verify.h"
#include "common/compat.h"
#include "common/pin.h"
#include "common/sql.h"

PG_FUNCTION_INFO_V1(incsink_verify);

#define VERIFY_COLUMNS 11

VerifyRow
MakeVerifyRow(Position since, Position until)
{
	VerifyRow	row = {
		.has_range = true,
		.since = since,
		.until = until,
		.state = STATE_OK,
		.rows_in_table = UNKNOWN_ROWS,
		.rows_at_sink = UNKNOWN_ROWS,
	};

	return row;
}

static Datum
PositionDatum(Position position)
{
	return DirectFunctionCall3(numeric_in, CStringGetDatum(FormatPosition(position)),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

void
EmitVerifyRow(const Verification *verification, const VerifyRow *row)
{
	const char *const texts[] = {row->state, row->object, row->digest, row->detail};
	const int	text_columns[] = {2, 3, 9, 10};
	const int64 counts[] = {
		row->rows_in_table, row->rows_at_sink, row->difference.missing, row->difference.doubled,
		row->difference.unexpected
	};
	Datum		values[VERIFY_COLUMNS] = {0};
	bool		nulls[VERIFY_COLUMNS] = {0};
	MemoryContext old = MemoryContextSwitchTo(verification->row_context);

	nulls[0] = nulls[1] = !row->has_range;
	if (row->has_range)
	{
		values[0] = PositionDatum(row->since);
		values[1] = PositionDatum(row->until);
	}
	for (int i = 0; i < lengthof(texts); i++)
	{
		nulls[text_columns[i]] = texts[i] == NULL;
		if (texts[i] != NULL)
			values[text_columns[i]] = CStringGetTextDatum(texts[i]);
	}
	for (int i = 0; i < lengthof(counts); i++)
	{
		nulls[4 + i] = counts[i] == UNKNOWN_ROWS;
		values[4 + i] = Int64GetDatum(counts[i]);
	}
	tuplestore_putvalues(verification->result->setResult, verification->result->setDesc,
						 values, nulls);
	MemoryContextSwitchTo(old);
	MemoryContextReset(verification->row_context);
}

bool
CoversBacklog(const Verification *verification, Position began, Position *until)
{
	Position	watermark = verification->reach->until;

	*until = BacklogIsOver(watermark) ? POSITION_BACKLOG_END : watermark;
	return verification->partition->backlog != NULL && !BacklogIsOver(began) &&
		ComparePositions(began, *until) < 0;
}

Position
AboveBacklog(Position position)
{
	if (position.seq == 0)
		position.key = BacklogOverKey();
	return position;
}

const char *
StateOfDifference(int64 rows_in_table, int64 rows_at_sink, const LineDifference *difference)
{
	if (rows_in_table > rows_at_sink)
		return STATE_MISSING;
	return difference->doubled > 0 ? STATE_DOUBLED : STATE_CHANGED;
}

const char *
DetailOfState(const char *state)
{
	if (strcmp(state, STATE_MISSING) == 0)
		return "the table has rows that the sink has not";
	if (strcmp(state, STATE_DOUBLED) == 0)
		return "lines stand there more often than in the table, if no row that is equal to another was deleted since";
	if (strcmp(state, STATE_CHANGED) == 0)
		return "rows were updated or deleted since, or what the sink exports has changed";
	return NULL;
}

/*
 * The watermark is read anew while the call runs, which a snapshot of the whole
 * transaction would not show; and a standby learns later than its files what was sent.
 */
static void
CheckTransaction(void)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("incsink_verify cannot run during recovery"),
				 errhint("Call it on the primary.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("incsink_verify needs isolation level READ COMMITTED")));
}

static SinkTable *
FindSinkTable(const SinkDefinition *sink, const Partition *partition)
{
	ListCell   *cell;

	foreach(cell, LoadSinkTables(CurrentMemoryContext))
	{
		SinkTable  *table = lfirst(cell);

		if (table->sink_id == sink->sink_id && table->partition_id == partition->partition_id)
			return table;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("sink \"%s\" does not export table \"%s\"", sink->name,
					partition->table_name),
			 errhint("View incsink.sink_tables shows what it exports.")));
}

/* In an SqlSession: what is to be compared. */
static void
LoadVerification(Verification *verification, const char *name, Oid user)
{
	verification->sink = LoadOwnSink(name, user);
	RequireValidOptions(verification->sink);
	verification->table = FindSinkTable(verification->sink, verification->partition);
	verification->reach = LoadEpochReach(verification->sink->sink_id,
										 verification->partition->partition_id,
										 CurrentMemoryContext);
	if (verification->reach == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the watermark of sink \"%s\" for table \"%s\" is missing", name,
						verification->partition->table_name),
				 errhint("incsink.stat_delivery says what to do.")));
}

/* As the next batch would be encoded, in lines: digests are those of lines. */
static void
PrepareSource(Verification *verification)
{
	Encoding   *encoding = palloc0(sizeof(Encoding));
	RangeSource *source = &verification->source;

	encoding->encoder = &NdjsonEncoder;
	encoding->columns = verification->table->columns;
	encoding->ncolumns = verification->table->ncolumns;
	encoding->filter = verification->table->filter;
	source->partition = verification->partition;
	source->role = verification->sink->owner;
	source->encoding = encoding;
	source->gone = RaiseBeingChanged;
	ByteBufferInit(&source->body, 64 * 1024);
}

Datum
incsink_verify(PG_FUNCTION_ARGS)
{
	Verification verification = {0};
	char	   *name = RequireText(fcinfo, 0, "sink");
	Oid			user = GetUserId();
	SqlSession	session;

	RequireArgument(fcinfo, 1, "relation");
	RequireArgument(fcinfo, 2, "range_rows");
	verification.range_rows = PG_GETARG_INT64(2);
	if (verification.range_rows <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"range_rows\" must be greater than 0")));
	CheckTransaction();
	verification.partition = RequireAttached(PG_GETARG_OID(1));
	InitMaterializedSRF(fcinfo, 0);
	verification.result = (ReturnSetInfo *) fcinfo->resultinfo;
	verification.row_context = AllocSetContextCreate(CurrentMemoryContext, "incsink verify row",
													 ALLOCSET_DEFAULT_SIZES);

	SqlBegin(&session);
	PinOutputSettings();
	LoadVerification(&verification, name, user);
	PrepareSource(&verification);
	if (strcmp(verification.sink->kind, "blob") == 0)
		VerifyObjects(&verification);
	else
		VerifyRanges(&verification);
	SqlEnd(&session);
	return (Datum) 0;
}
