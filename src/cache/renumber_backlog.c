/*
 * renumber_backlog.c
 *		What becomes of a backlog whose rows get numbers.
 */
#include "postgres.h"


#include "cache/renumber_backlog.h"
#include "catalog/epoch.h"
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
		NoteEpoch(sinks[i], partition_id);
	}
}

/*
 * All deliveries go on with numbers.  Also at the beginning the watermark changes: one
 * that is just reading the backlog is fenced off.
 */
static void
EndBacklog(int64 partition_id)
{
	GiveUpIntents(partition_id);
	(void) SqlRun("UPDATE incsink.watermark SET key = $2"
				  " WHERE partition_id = $1 AND seq = 0 AND key IS DISTINCT FROM $2",
				  SqlInt8(partition_id), SqlJsonb(BacklogOverKey()));
	(void) SqlRun("DELETE FROM incsink.backlog_def WHERE partition_id = $1", SqlInt8(partition_id));
	InvalidateDefinitions();
}

/*
 * The whole backlog ends at once: its deliveries would take its rows once more under
 * their numbers.  Until all have one, IsUnnumbered() in api/flush.c and the views say so:
 * the table had rows, and they are in no backlog.  Rows of a leaf leave it one by one, as
 * they get numbers; every_row asks for rows twice.
 */
bool
TakeBacklog(const Partition *partition, Oid relid, bool every_row)
{
	SqlSession	session;
	bool		take = true;

	if (partition->backlog == NULL)
		return true;
	SqlBegin(&session);
	if (relid == partition->relid)
	{
		LockSinkTables(partition->partition_id);
		take = every_row || IsUntouched(partition->partition_id);
		if (take)
			EndBacklog(partition->partition_id);
	}
	else
		take = every_row;
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
