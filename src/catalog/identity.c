/*
 * identity.c
 *		Which cluster, database and timeline exports were last confirmed for.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/identity.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/settings.h"
#include "common/sql.h"
#include "miscadmin.h"

static const char *
InstanceName(void)
{
	return setting_instance ? setting_instance : "";
}

IdentityMatch
CompareIdentity(void)
{
	bool		same;

	if (SqlRun0("SELECT system_identifier, database_oid, timeline, instance"
				" FROM incsink.database_state") == 0)
		return SqlRun0("SELECT FROM incsink.partition_def LIMIT 1") == 0 ? IDENTITY_UNRECORDED
			: IDENTITY_OTHER;	/* restored from a dump, which has no identity */
	same = SqlGetInt8(0, 1) == (int64) GetSystemIdentifier() &&
		SqlGetOid(0, 2) == MyDatabaseId &&
		strcmp(SqlGetText(0, 4, CurrentMemoryContext), InstanceName()) == 0;
	if (!same)
		return IDENTITY_OTHER;
	return SqlGetInt4(0, 3) == (int32) GetWALInsertionTimeLine() ? IDENTITY_SAME
		: IDENTITY_NEW_TIMELINE;
}

void
RecordIdentity(void)
{
	(void) SqlRun("INSERT INTO incsink.database_state (system_identifier, database_oid, timeline, instance)"
				  " VALUES ($1, $2, $3, $4) ON CONFLICT (singleton) DO UPDATE SET"
				  " system_identifier = EXCLUDED.system_identifier,"
				  " database_oid = EXCLUDED.database_oid, timeline = EXCLUDED.timeline,"
				  " instance = EXCLUDED.instance, recorded_at = pg_catalog.clock_timestamp()",
				  SqlInt8((int64) GetSystemIdentifier()), SqlOid(MyDatabaseId),
				  SqlInt4((int32) GetWALInsertionTimeLine()), SqlText(InstanceName()));
}

static void
DrawTags(void)
{
	uint64		count = SqlRun0("SELECT partition_id FROM incsink.partition_def");
	int64	   *ids = palloc(sizeof(int64) * Max(count, 1));

	for (uint64 row = 0; row < count; row++)
		ids[row] = SqlGetInt8(row, 1);
	for (uint64 i = 0; i < count; i++)
		(void) DrawTag(ids[i]);
}

static void
DrawEpochs(void)
{
	List	   *tables = LoadSinkTables(CurrentMemoryContext);
	ListCell   *cell;

	foreach(cell, tables)
	{
		SinkTable  *table = lfirst(cell);

		(void) SqlRun("UPDATE incsink.sink_table_def SET epoch = $3"
					  " WHERE sink_id = $1 AND partition_id = $2",
					  SqlInt8(table->sink_id), SqlInt8(table->partition_id),
					  SqlText(DrawEpoch(table->epoch)));
	}
}

void
AdoptDatabase(void)
{
	RecordIdentity();
	BindPartitions();
	DrawTags();
	DrawEpochs();
	InvalidateDefinitions();
}
