/*
 * horizon.c
 *		Where the numbers of a partition stand, as tokens and for monitoring.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "api/arguments.h"
#include "api/partition_access.h"
#include "cache/current.h"
#include "cache/reader.h"
#include "common/sql.h"

PG_FUNCTION_INFO_V1(incsink_horizon);
PG_FUNCTION_INFO_V1(incsink_last_token);
PG_FUNCTION_INFO_V1(incsink_stat_horizon);

#define STAT_HORIZON_COLUMNS 9

/*
 * A token leaves: what it covers must survive a crash.  It is behind the backlog also
 * where no number has been drawn.
 */
static Datum
TokenAt(const Partition *partition, int64 seq)
{
	Position	position = {.seq = seq};

	if (seq == 0 && partition->backlog != NULL)
		position.key = BacklogOverKey();
	FlushAllWal();
	return JsonbPGetDatum(MakeToken(partition->tag, position));
}

Datum
incsink_horizon(PG_FUNCTION_ARGS)
{
	Partition  *partition;

	RequireArgument(fcinfo, 0, "relation");
	partition = RequireAttached(PG_GETARG_OID(0));
	return TokenAt(partition, FindCurrentState(partition).horizon);
}

Datum
incsink_last_token(PG_FUNCTION_ARGS)
{
	Partition  *partition;
	CurrentState state;

	RequireArgument(fcinfo, 0, "relation");
	partition = RequireAttached(PG_GETARG_OID(0));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the last number drawn is not known on a standby"),
				 errhint("Ask the primary.")));
	state = FindCurrentState(partition);
	if (!state.drawn_known)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the sequence of table \"%s.%s\" is locked by another session",
						partition->schema_name, partition->table_name),
				 errhint("Try again when that session's transaction has ended.")));
	return TokenAt(partition, state.last_drawn);
}

/* One row of incsink_stat_horizon(). */
typedef struct HorizonRow
{
	Partition  *partition;
	CurrentState state;
	bool		drawn_known;
	int32		held_by_pid;	/* 0: none */
	char	   *held_by_gid;
	TimestampTz held_since;		/* 0: nobody */
} HorizonRow;

/* The sequences whose horizon is behind, as an oid[]. */
static Datum
SequencesBehind(const HorizonRow *rows, int count, int *behind)
{
	Datum	   *sequences = palloc(sizeof(Datum) * Max(count, 1));

	*behind = 0;
	for (int i = 0; i < count; i++)
		if (rows[i].drawn_known && rows[i].state.horizon < rows[i].state.last_drawn)
			sequences[(*behind)++] = ObjectIdGetDatum(rows[i].partition->sequence);
	return PointerGetDatum(construct_array(sequences, *behind, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
}

/*
 * Asks for the oldest transaction that has drawn from each sequence.  That of a
 * prepared one is found by its transaction id: in pg_locks its virtual transaction
 * may still be that of the session which prepared it.
 */
static void
FindHolders(HorizonRow *rows, int count, MemoryContext context)
{
	int			behind;
	Datum		sequences = SequencesBehind(rows, count, &behind);
	uint64		found;

	if (behind == 0)
		return;
	found = SqlRun("SELECT DISTINCT ON (l.relation) l.relation, l.pid, p.gid,"
				   " COALESCE(a.xact_start, p.prepared)"
				   " FROM pg_catalog.pg_locks l"
				   " LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
				   " LEFT JOIN pg_catalog.pg_locks x ON l.pid IS NULL AND x.pid IS NULL"
				   " AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction"
				   " LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = x.transactionid"
				   " WHERE l.locktype = 'relation' AND l.granted AND l.relation = ANY ($1)"
				   " AND l.database = $2 AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock',"
				   " 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"
				   " ORDER BY l.relation, COALESCE(a.xact_start, p.prepared)",
				   SqlDatum(OIDARRAYOID, sequences, false), SqlOid(MyDatabaseId));
	for (uint64 holder = 0; holder < found; holder++)
		for (int i = 0; i < count; i++)
			if (rows[i].partition->sequence == SqlGetOid(holder, 1) &&
				rows[i].drawn_known && rows[i].state.horizon < rows[i].state.last_drawn)
			{
				rows[i].held_by_pid = SqlGetInt4(holder, 2);
				rows[i].held_by_gid = SqlGetText(holder, 3, context);
				rows[i].held_since = SqlGetTime(holder, 4);
			}
}

static void
PutHorizonRow(ReturnSetInfo *result, const HorizonRow *row)
{
	Datum		values[STAT_HORIZON_COLUMNS] = {0};
	bool		nulls[STAT_HORIZON_COLUMNS] = {false};
	const Partition *partition = row->partition;

	values[0] = Int64GetDatum(partition->partition_id);
	values[1] = CStringGetTextDatum(partition->dataset);
	values[2] = CStringGetTextDatum(partition->source);
	values[3] = ObjectIdGetDatum(partition->relid);
	nulls[3] = !OidIsValid(partition->relid);
	values[4] = Int64GetDatum(row->state.horizon);
	values[5] = Int64GetDatum(row->state.last_drawn);
	nulls[5] = !row->drawn_known;
	values[6] = Int32GetDatum(row->held_by_pid);
	nulls[6] = row->held_by_pid == 0;
	if (row->held_by_gid)
		values[7] = CStringGetTextDatum(row->held_by_gid);
	nulls[7] = row->held_by_gid == NULL;
	values[8] = TimestampTzGetDatum(row->held_since);
	nulls[8] = row->held_since == 0;
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
incsink_stat_horizon(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	HorizonRow *rows;
	List	   *partitions;
	int			count = 0;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	SqlBegin(&session);
	partitions = LoadPartitions(context);
	rows = MemoryContextAllocZero(context, sizeof(HorizonRow) * (list_length(partitions) + 1));
	foreach(cell, partitions)
	{
		HorizonRow *row = &rows[count++];

		row->partition = lfirst(cell);
		row->drawn_known = PeekHorizon(row->partition, &row->state);
	}
	FindHolders(rows, count, context);
	SqlEnd(&session);
	for (int i = 0; i < count; i++)
		PutHorizonRow((ReturnSetInfo *) fcinfo->resultinfo, &rows[i]);
	return (Datum) 0;
}
