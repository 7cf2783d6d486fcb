/*
 * epoch.c
 *		Where the epochs of deliveries began, and how far they have come.
 */
#include "postgres.h"

#include "catalog/epoch.h"
#include "common/sql.h"

/*
 * The next batch begins where the last one ended, but is read from the watermark: its
 * key tells which rows of a backlog are left.  A watermark above the backlog has none,
 * although the last batch may have ended inside.
 */
void
NoteEpoch(int64 sink_id, int64 partition_id)
{
	if (!CatalogIsAtLeast(3))
		return;
	(void) SqlRun("INSERT INTO incsink.epoch_state (sink_id, partition_id, destination, epoch, seq, n,"
				  " key, rows_exported)"
				  " SELECT w.sink_id, w.partition_id, w.destination, w.epoch, w.sent_seq, w.sent_n,"
				  " CASE WHEN w.seq = 0 THEN w.key WHEN w.sent_seq = 0 THEN $3 END, w.rows_exported"
				  " FROM incsink.watermark w"
				  " WHERE w.sink_id = $1 AND w.partition_id = $2 AND w.destination = ''"
				  " ON CONFLICT (sink_id, partition_id, destination) DO UPDATE SET"
				  " epoch = EXCLUDED.epoch, seq = EXCLUDED.seq, n = EXCLUDED.n, key = EXCLUDED.key,"
				  " rows_exported = EXCLUDED.rows_exported, began_at = EXCLUDED.began_at",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlJsonb(BacklogOverKey()));
	if (CatalogIsAtLeast(4))
		(void) SqlRun("UPDATE incsink.epoch_state e SET rows_rejected = w.rows_rejected"
					  " FROM incsink.watermark w WHERE e.sink_id = $1 AND e.partition_id = $2"
					  " AND w.sink_id = e.sink_id AND w.partition_id = e.partition_id"
					  " AND w.destination = e.destination AND e.rows_rejected <> w.rows_rejected",
					  SqlInt8(sink_id), SqlInt8(partition_id));
}

void
ForgetEpoch(int64 sink_id, int64 partition_id)
{
	if (CatalogIsAtLeast(3))
		(void) SqlRun("DELETE FROM incsink.epoch_state WHERE sink_id = $1 AND partition_id = $2",
					  SqlInt8(sink_id), SqlInt8(partition_id));
}

static List *
NamesInContext(char **names, int count, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	List	   *list = NIL;

	for (int i = 0; i < count; i++)
		list = lappend(list, names[i]);
	MemoryContextSwitchTo(old);
	return list;
}

/* Rows put aside since the epoch began; what was delivered later counts as exported. */
static int64
CountRejected(int64 sink_id, int64 partition_id)
{
	if (!CatalogIsAtLeast(4) ||
		SqlRun("SELECT w.rows_rejected OPERATOR(pg_catalog.-) e.rows_rejected"
			   " FROM incsink.watermark w JOIN incsink.epoch_state e"
			   " USING (sink_id, partition_id, destination, epoch)"
			   " WHERE w.sink_id = $1 AND w.partition_id = $2 AND w.destination = ''",
			   SqlInt8(sink_id), SqlInt8(partition_id)) == 0)
		return 0;
	return SqlGetInt8(0, 1);
}

EpochReach *
LoadEpochReach(int64 sink_id, int64 partition_id, MemoryContext context)
{
	EpochReach *reach;
	char	  **names;
	int			count;

	if (SqlRun("SELECT w.epoch, w.seq, w.n, w.key, e.seq, e.n, e.key,"
			   " w.rows_exported OPERATOR(pg_catalog.-) e.rows_exported,"
			   " ARRAY(SELECT i.object_key FROM incsink.intent i WHERE i.sink_id = w.sink_id"
			   "  AND i.partition_id = w.partition_id AND i.destination = w.destination"
			   "  AND i.object_key IS NOT NULL)"
			   " FROM incsink.watermark w LEFT JOIN incsink.epoch_state e"
			   " ON e.sink_id = w.sink_id AND e.partition_id = w.partition_id"
			   " AND e.destination = w.destination AND e.epoch = w.epoch"
			   " WHERE w.sink_id = $1 AND w.partition_id = $2 AND w.destination = ''",
			   SqlInt8(sink_id), SqlInt8(partition_id)) == 0)
		return NULL;
	reach = MemoryContextAllocZero(context, sizeof(EpochReach));
	reach->epoch = SqlGetText(0, 1, context);
	reach->until.seq = SqlGetInt8(0, 2);
	reach->until.n = SqlGetInt8(0, 3);
	reach->until.key = SqlGetJsonb(0, 4, context);
	reach->began_known = !SqlIsNull(0, 5);
	reach->began.seq = SqlGetInt8(0, 5);
	reach->began.n = SqlGetInt8(0, 6);
	reach->began.key = SqlGetJsonb(0, 7, context);
	reach->rows_exported = SqlGetInt8(0, 8);
	names = SqlGetTextArray(0, 9, context, &count);
	reach->in_flight = NamesInContext(names, count, context);
	reach->rows_rejected = CountRejected(sink_id, partition_id);
	return reach;
}
