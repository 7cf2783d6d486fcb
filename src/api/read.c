/*
 * read.c
 *		incsink_read_since(): rows above a token, in order, with a token each.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "api/arguments.h"
#include "api/partition_access.h"
#include "api/read_rows.h"
#include "cache/current.h"
#include "cache/reader.h"
#include "common/sql.h"
#include "encode/encoder.h"

PG_FUNCTION_INFO_V1(incsink_read_since);
PG_FUNCTION_INFO_V1(incsink_read_since_text);
PG_FUNCTION_INFO_V1(incsink_read_since_typed);

/* The columns listed, or NULL; names as text. */
static char **
ColumnNames(FunctionCallInfo fcinfo, int number, int *count)
{
	Datum	   *elements;
	char	  **names;

	*count = 0;
	if (PG_ARGISNULL(number))
		return NULL;
	elements = RequireArray(fcinfo, number, "columns", count);
	names = palloc(sizeof(char *) * (*count + 1));
	for (int i = 0; i < *count; i++)
		names[i] = TextDatumGetCString(elements[i]);
	return names;
}

/* An interval in milliseconds, for a wait: months as 30 days, nothing negative. */
static int64
WaitMilliseconds(FunctionCallInfo fcinfo, int number)
{
	Interval   *wait;

	if (PG_ARGISNULL(number))
		return 0;
	wait = PG_GETARG_INTERVAL_P(number);
	if (wait->time < 0 || wait->day < 0 || wait->month < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"wait\" must not be negative")));
	return wait->time / 1000 +
		((int64) wait->day + (int64) wait->month * DAYS_PER_MONTH) * SECS_PER_DAY * 1000;
}

/* Arguments from the second on are the same for all variants. */
static void
TakeArguments(FunctionCallInfo fcinfo, ReadRequest *request)
{
	request->since = PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1);
	request->columns = ColumnNames(fcinfo, 2, &request->ncolumns);
	request->max_rows = PG_ARGISNULL(3) ? PG_INT64_MAX : PG_GETARG_INT64(3);
	if (request->max_rows < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"max_rows\" must not be negative")));
	request->wait = WaitMilliseconds(fcinfo, 4);
}

/*
 * Opens the reader with the caller's rights; policies are for the executor.  The
 * caller has made sure that the partition is sound.
 */
static Reader *
OpenReader(const ReadRequest *request, const Partition *partition)
{
	ReaderOptions options = {0};
	Reader	   *reader;

	options.role = GetUserId();
	options.columns = request->columns;
	options.ncolumns = request->ncolumns;
	options.wait_for_lock = true;
	if (ReaderOpen(partition, &options, &reader) != READER_OK)
		RaiseBeingChanged(partition);
	return reader;
}

/*
 * Writes the rows of a range, "left" at most, and returns how many may still come.
 * Rows of leaves that have one number come together, whatever that makes of max_rows:
 * all but the last have the token from before them.
 */
static int64
CopyRange(Reader *reader, RowWriter *writer, const Partition *partition, Position since,
		  Position until, int64 left)
{
	TupleTableSlot *slot;
	Position	before = since;
	bool		tied = false;

	if (left <= 0)
		return 0;
	if (ReaderStart(reader, since, until) != READER_OK)
		RaiseBeingChanged(partition);
	while ((left > 0 || tied) && (slot = ReaderNext(reader)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(RowContext(writer));
		Position	position = ReaderPosition(reader);

		MemoryContextSwitchTo(old);
		tied = ReaderIsTied(reader);
		WriteRow(writer, slot, tied ? before : position);
		if (!tied)
			before = (Position) {.seq = position.seq};
		left--;
	}
	if (ReaderStopped(reader))
		RaiseBeingChanged(partition);
	return left;
}

/* Reads the range straight from the indexes: the backlog, then what has numbers. */
static void
ReadDirectly(const ReadRequest *request, const Partition *partition, Position since,
			 Position until, ReturnSetInfo *result)
{
	int			nest_level = NewGUCNestLevel();
	Reader	   *reader = OpenReader(request, partition);
	const AttrNumber *attnums;
	int			nattnums;
	RowWriter  *writer;
	int64		left = request->max_rows;

	PinOutputSettings();
	ReaderColumns(reader, &attnums, &nattnums);
	writer = BeginRows(result, partition, request->typed, ReaderRelation(reader),
					   RelationGetDescr(ReaderRelation(reader)), attnums, attnums, nattnums);
	if (IsInBacklog(partition, since))
	{
		CheckKeyPrivileges(partition, ReaderRelation(reader));
		left = CopyRange(reader, writer, partition, since, POSITION_BACKLOG_END, left);
		since = (Position) {.n = ReaderPosition(reader).n, .key = BacklogOverKey()};
	}
	if (!partition->preparing)
		(void) CopyRange(reader, writer, partition, since, until, left);
	EndRows(writer);
	ReaderClose(reader);
	AtEOXact_GUC(true, nest_level);
}

/*
 * The order of the steps is what makes the result complete and its tokens safe:
 * first the horizon, then the locks (a table that is rewritten meanwhile looks
 * empty to an older snapshot), then a snapshot, then rows, and the flush of all WAL
 * before any of them leaves.
 */
static void
ReadRange(const ReadRequest *request, const Partition *partition, Position since, Position until,
		  ReturnSetInfo *result)
{
	LockRelationOid(partition->relid, AccessShareLock);
	if (check_enable_rls(partition->relid, InvalidOid, true) == RLS_ENABLED)
		ReadThroughPolicies(request, partition, since, until, result);
	else
		ReadDirectly(request, partition, since, until, result);
	FlushAllWal();
}

/* Numbers cannot be read in order without their index. */
static void
RefusePreparing(const Partition *partition)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s.%s\" is being prepared: its index on \"%s\" is not built yet",
					partition->schema_name, partition->table_name, partition->seq_column),
			 errhint("incsink.partitions shows how far it is; what the table had when it was attached can be read already, from the beginning.")));
}

/* Rows from before the table was attached that have no order to be read in. */
static void
MentionUnreadable(const Partition *partition)
{
	if (!partition->had_rows || partition->backlog != NULL)
		return;
	ereport(NOTICE,
			(errmsg("rows that table \"%s.%s\" had when it was attached and that have no number are not returned",
					partition->schema_name, partition->table_name),
			 errhint("Run: CALL incsink_renumber(%s); then they are.",
					 quote_literal_cstr(quote_qualified_identifier(partition->schema_name,
																   partition->table_name)))));
}

/* All variants end here: checks first, all of them before any row is read. */
static Datum
ReadSince(FunctionCallInfo fcinfo, ReadRequest *request)
{
	Partition  *partition = RequireAttached(request->relid);
	Position	since = POSITION_BEGINNING;
	Position	until = POSITION_BEGINNING;
	CurrentState state;

	CheckColumns(partition, request->columns, request->ncolumns);
	if (request->since)
		since = AcceptToken(partition, request->since);
	else
		MentionUnreadable(partition);
	if (partition->preparing && !IsInBacklog(partition, since))
		RefusePreparing(partition);
	state = FindCurrentState(partition);
	if (state.drawn_known && since.seq > state.last_drawn)
		RaiseTokenAhead(partition);
	if (request->wait > 0)
		state = WaitForHorizon(partition, request->wait);
	until.seq = state.horizon;
	InitMaterializedSRF(fcinfo, 0);
	ReadRange(request, partition, since, until, (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}

Datum
incsink_read_since(PG_FUNCTION_ARGS)
{
	ReadRequest request = {0};

	RequireArgument(fcinfo, 0, "relation");
	request.relid = PG_GETARG_OID(0);
	TakeArguments(fcinfo, &request);
	return ReadSince(fcinfo, &request);
}

/*
 * A bare string literal fits regclass and anyelement equally well, so that the
 * parser would not know which function is meant; it prefers one that takes text.
 */
Datum
incsink_read_since_text(PG_FUNCTION_ARGS)
{
	ReadRequest request = {0};

	RequireArgument(fcinfo, 0, "relation");
	request.relid = DatumGetObjectId(DirectFunctionCall1(text_regclass, PG_GETARG_DATUM(0)));
	TakeArguments(fcinfo, &request);
	return ReadSince(fcinfo, &request);
}

/* The type of the first argument, NULL::schema.table, says which table. */
Datum
incsink_read_since_typed(PG_FUNCTION_ARGS)
{
	ReadRequest request = {0};
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 0);

	request.relid = OidIsValid(type) ? get_typ_typrelid(type) : InvalidOid;
	if (!OidIsValid(request.relid))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the first argument must be of the row type of an attached table"),
				 errhint("Write NULL::schema.table, or pass the table as regclass for rows as jsonb.")));
	request.typed = true;
	TakeArguments(fcinfo, &request);
	return ReadSince(fcinfo, &request);
}
