/*
 * renumber_backlog.c
 *		What becomes of a backlog whose rows get numbers.
 */
#include "postgres.h"

#include "nodes/pg_list.h"

#include "cache/renumber_backlog.h"
#include "catalog/sink.h"
#include "common/shared.h"
#include "common/sql.h"
#include "common/token.h"

/* Keeps the workers from moving watermarks and intents until the end of the transaction. */
static void
LockSinkTables(int64 partition_id)
{
	(void) SqlRun("SELECT FROM incsink.sink_table_def WHERE partition_id = $1"
				  " ORDER BY sink_id FOR UPDATE", SqlInt8(partition_id));
}

/* Are all deliveries where they began, before the first row? */
static bool
IsUntouched(int64 partition_id)
{
	return SqlRun("SELECT FROM incsink.watermark WHERE partition_id = $1"
				  " AND (seq > 0 OR n > 0 OR key IS NOT NULL)"
				  " UNION ALL SELECT FROM incsink.intent WHERE partition_id = $1",
				  SqlInt8(partition_id)) == 0;
}

/*
 * Gives up what is in flight of the backlog: its rows come again under numbers.  The
 * receiver may have stored it, so what follows is a new epoch.
 */
static void
GiveUpIntents(int64 partition_id)
{
	uint64		count = SqlRun("SELECT DISTINCT t.sink_id, t.epoch FROM incsink.sink_table_def t"
							   " JOIN incsink.intent i ON i.sink_id = t.sink_id AND i.partition_id = t.partition_id"
							   " WHERE t.partition_id = $1 AND i.until_seq = 0", SqlInt8(partition_id));
	int64	   *sinks = palloc(sizeof(int64) * (count + 1));
	char	  **epochs = palloc(sizeof(char *) * (count + 1));

	for (uint64 row = 0; row < count; row++)
	{
		sinks[row] = SqlGetInt8(row, 1);
		epochs[row] = DrawEpoch(SqlGetText(row, 2, CurrentMemoryContext));
	}
	for (uint64 i = 0; i < count; i++)
	{
		(void) SqlRun("DELETE FROM incsink.intent WHERE sink_id = $1 AND partition_id = $2",
					  SqlInt8(sinks[i]), SqlInt8(partition_id));
		(void) SqlRun("UPDATE incsink.sink_table_def SET epoch = $3"
					  " WHERE sink_id = $1 AND partition_id = $2",
					  SqlInt8(sinks[i]), SqlInt8(partition_id), SqlText(epochs[i]));
		(void) SqlRun("UPDATE incsink.watermark SET epoch = $3, sent_seq = seq, sent_n = n"
					  " WHERE sink_id = $1 AND partition_id = $2",
					  SqlInt8(sinks[i]), SqlInt8(partition_id), SqlText(epochs[i]));
	}
}

/* Deliveries inside it go on with numbers; those at the beginning begin with these. */
static void
EndBacklog(int64 partition_id)
{
	GiveUpIntents(partition_id);
	(void) SqlRun("UPDATE incsink.watermark SET key = $2"
				  " WHERE partition_id = $1 AND seq = 0 AND key IS DISTINCT FROM $2 AND n > 0",
				  SqlInt8(partition_id), SqlJsonb(BacklogOverKey()));
	(void) SqlRun("DELETE FROM incsink.backlog_def WHERE partition_id = $1", SqlInt8(partition_id));
	InvalidateDefinitions();
}

/* A part without a relation is passed over. */
static void
EndBacklogPart(int64 partition_id, Oid relid)
{
	(void) SqlRun("UPDATE incsink.backlog_def SET relid = 0 WHERE partition_id = $1 AND relid = $2",
				  SqlInt8(partition_id), SqlOid(relid));
	InvalidateDefinitions();
}

bool
TakeBacklog(const Partition *partition, Oid relid, bool every_row)
{
	SqlSession	session;
	bool		take = true;

	if (partition->nparts == 0)
		return true;
	SqlBegin(&session);
	if (relid == partition->relid)
	{
		LockSinkTables(partition->partition_id);
		take = every_row || IsUntouched(partition->partition_id);
		if (take)
			EndBacklog(partition->partition_id);
	}
	else if (IsBacklogPart(partition, relid))
	{
		take = every_row;
		if (take)
			EndBacklogPart(partition->partition_id, relid);
	}
	SqlEnd(&session);
	return take;
}

void
NoteNumberedRows(const Partition *partition)
{
	SqlSession	session;

	if (!partition->had_rows)
		return;
	SqlBegin(&session);
	(void) SqlRun("UPDATE incsink.partition_def SET had_rows = false WHERE partition_id = $1 AND had_rows",
				  SqlInt8(partition->partition_id));
	InvalidateDefinitions();
	SqlEnd(&session);
	NoteWakeup();
}
