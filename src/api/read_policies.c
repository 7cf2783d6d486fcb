/*
 * read_policies.c
 *		Reading under row-level security, through the executor.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "api/read_rows.h"
#include "cache/columns.h"
#include "encode/encoder.h"

/* Rows fetched at a time. */
#define FETCH_ROWS 1000

/*
 * SELECT of the columns and, last, the number, in its order.  The condition "> 0"
 * is that of the index.
 */
static char *
BuildQuery(Relation rel, const Partition *partition, const AttrNumber *attnums, int nattnums)
{
	StringInfoData query;
	const char *seq = quote_identifier(partition->seq_column);

	initStringInfo(&query);
	appendStringInfoString(&query, "SELECT ");
	for (int i = 0; i < nattnums; i++)
		appendStringInfo(&query, "%s, ",
						 quote_identifier(get_attname(RelationGetRelid(rel), attnums[i], false)));
	appendStringInfo(&query, "%s FROM ONLY %s WHERE %s OPERATOR(pg_catalog.>) $1"
					 " AND %s OPERATOR(pg_catalog.<=) $2 AND %s OPERATOR(pg_catalog.>) 0 ORDER BY %s",
					 seq, quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
													 RelationGetRelationName(rel)),
					 seq, seq, seq, seq);
	return query.data;
}

/* No statistics, and no size of the table, may turn the scan of the index into another. */
static void
PinPlan(void)
{
	static const char *const settings[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort"};

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i], "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* Writes what the last fetch brought; output functions see pinned settings. */
static void
WriteFetched(RowWriter *writer, TupleTableSlot *slot, int seq_place)
{
	int			nest_level = NewGUCNestLevel();

	PinOutputSettings();
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		Position	position = POSITION_BEGINNING;
		bool		isnull;

		ExecStoreHeapTuple(SPI_tuptable->vals[row], slot, false);
		position.seq = DatumGetInt64(slot_getattr(slot, seq_place, &isnull));
		WriteRow(writer, slot, position);
	}
	ExecClearTuple(slot);
	AtEOXact_GUC(true, nest_level);
}

/* Opens the query with the snapshot; a read-only cursor runs under the active one. */
static Portal
OpenQuery(const char *query, Snapshot snapshot, Position since, Position until)
{
	Oid			types[2] = {INT8OID, INT8OID};
	Datum		values[2] = {Int64GetDatum(since.seq), Int64GetDatum(until.seq)};
	int			nest_level = NewGUCNestLevel();
	Portal		portal;

	PinPlan();
	PushActiveSnapshot(snapshot);
	portal = SPI_cursor_open_with_args(NULL, query, 2, types, values, NULL, true,
									   CURSOR_OPT_NO_SCROLL);
	PopActiveSnapshot();
	AtEOXact_GUC(true, nest_level);
	return portal;
}

/*
 * Fetches until the query ends or max_rows are written.  The result's own memory
 * context is used for what must live as long.
 */
static void
WriteAll(const ReadRequest *request, const Partition *partition, Portal portal, Relation rel,
		 const AttrNumber *attnums, int nattnums, ReturnSetInfo *result)
{
	TupleDesc	desc = portal->tupDesc;
	AttrNumber *places = palloc(sizeof(AttrNumber) * (nattnums + 1));
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	RowWriter  *writer;
	int64		left = request->max_rows;

	for (int i = 0; i < nattnums; i++)
		places[i] = i + 1;
	writer = BeginRows(result, partition, request->typed, rel, desc, places, attnums, nattnums);
	while (left > 0)
	{
		SPI_cursor_fetch(portal, true, Min(left, FETCH_ROWS));
		if (SPI_processed == 0)
			break;
		left -= SPI_processed;
		WriteFetched(writer, slot, nattnums + 1);
		SPI_freetuptable(SPI_tuptable);
	}
	EndRows(writer);
	ExecDropSingleTupleTableSlot(slot);
}

void
ReadThroughPolicies(const ReadRequest *request, const Partition *partition, Snapshot snapshot,
					Position since, Position until, ReturnSetInfo *result)
{
	Relation	rel = relation_open(partition->relid, AccessShareLock);
	int			nattnums;
	AttrNumber *attnums = ResolveColumns(rel, partition, request->columns, request->ncolumns,
										 &nattnums);
	char	   *query = BuildQuery(rel, partition, attnums, nattnums);
	Portal		portal;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	portal = OpenQuery(query, snapshot, since, until);
	WriteAll(request, partition, portal, rel, attnums, nattnums, result);
	SPI_cursor_close(portal);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	relation_close(rel, NoLock);
}
