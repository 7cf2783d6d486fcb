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
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s.%s\" or its index on \"%s\" is being changed",
						partition->schema_name, partition->table_name, partition->seq_column),
				 errhint("Try again.")));
	return reader;
}

/* Reads the range straight from the index. */
static void
ReadDirectly(const ReadRequest *request, const Partition *partition, Snapshot snapshot,
			 Position since, Position until, ReturnSetInfo *result)
{
	int			nest_level = NewGUCNestLevel();
	Reader	   *reader = OpenReader(request, partition);
	const AttrNumber *attnums;
	int			nattnums;
	RowWriter  *writer;
	TupleTableSlot *slot;
	Position	position;
	int64		left = request->max_rows;

	PinOutputSettings();
	ReaderColumns(reader, &attnums, &nattnums);
	writer = BeginRows(result, partition, request->typed, ReaderRelation(reader),
					   RelationGetDescr(ReaderRelation(reader)), attnums, attnums, nattnums);
	ReaderStart(reader, snapshot, since, until);
	while (left-- > 0 && (slot = ReaderNext(reader, &position)) != NULL)
		WriteRow(writer, slot, position);
	EndRows(writer);
	ReaderClose(reader);
	AtEOXact_GUC(true, nest_level);
}

/*
 * The order of the steps is what makes the result complete and its tokens safe:
 * first the horizon, then the lock (a table that is rewritten meanwhile looks
 * empty to an older snapshot), then a snapshot, then the flush of all WAL, then
 * rows.
 */
static void
ReadRange(const ReadRequest *request, const Partition *partition, Position since, Position until,
		  ReturnSetInfo *result)
{
	Snapshot	snapshot;

	LockRelationOid(partition->relid, AccessShareLock);
	snapshot = TakeReadSnapshot();
	FlushAllWal();
	if (check_enable_rls(partition->relid, InvalidOid, true) == RLS_ENABLED)
		ReadThroughPolicies(request, partition, snapshot, since, until, result);
	else
		ReadDirectly(request, partition, snapshot, since, until, result);
	UnregisterSnapshot(snapshot);
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
