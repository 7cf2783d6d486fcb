/*
 * delivery_state.c
 *		The run of a delivery as far as people, and the next worker, must know it.
 */
#include "postgres.h"

#include "catalog/delivery_state.h"
#include "common/sql.h"

DeliveryRecord
LoadDeliveryRecord(int64 sink_id, int64 partition_id, MemoryContext context)
{
	DeliveryRecord record = {0};

	if (SqlRun("SELECT state, reason, hint, failures, retry_at FROM incsink.delivery_state"
			   " WHERE sink_id = $1 AND partition_id = $2 AND destination = '' AND state <> ''",
			   SqlInt8(sink_id), SqlInt8(partition_id)) == 0)
		return record;
	record.state = SqlGetText(0, 1, context);
	record.reason = SqlGetText(0, 2, context);
	record.hint = SqlGetText(0, 3, context);
	record.failures = SqlGetInt4(0, 4);
	record.retry_at = SqlGetTime(0, 5);
	return record;
}

void
StoreDeliveryRecord(int64 sink_id, int64 partition_id, const DeliveryRecord *record)
{
	(void) SqlRun("INSERT INTO incsink.delivery_state AS s (sink_id, partition_id, destination, state,"
				  " reason, hint, failures, retry_at, first_failure_time)"
				  " VALUES ($1, $2, '', $3, $4, $5, $6, $7,"
				  " CASE WHEN $6 > 0 THEN pg_catalog.clock_timestamp() END)"
				  " ON CONFLICT (sink_id, partition_id, destination) DO UPDATE SET"
				  " state = EXCLUDED.state, reason = EXCLUDED.reason, hint = EXCLUDED.hint,"
				  " failures = EXCLUDED.failures, retry_at = EXCLUDED.retry_at,"
				  " first_failure_time = CASE WHEN EXCLUDED.failures > 0"
				  " THEN COALESCE(s.first_failure_time, EXCLUDED.first_failure_time) END",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlText(record->state ? record->state : ""),
				  SqlText(record->reason), SqlText(record->hint), SqlInt4(record->failures),
				  SqlTime(record->retry_at));
}

void
ForgetFailure(int64 sink_id, int64 partition_id)
{
	(void) SqlRun("UPDATE incsink.delivery_state SET state = '', reason = NULL, hint = NULL,"
				  " failures = 0, first_failure_time = NULL, retry_at = NULL"
				  " WHERE sink_id = $1 AND partition_id = $2 AND state <> ''",
				  SqlInt8(sink_id), SqlInt8(partition_id));
}

void
StoreDeliveryError(int64 sink_id, int64 partition_id, const char *batch_id, const char *message)
{
	(void) SqlRun("INSERT INTO incsink.delivery_state (sink_id, partition_id, destination, state,"
				  " last_error, last_error_time)"
				  " VALUES ($1, $2, '', '', $3, pg_catalog.clock_timestamp())"
				  " ON CONFLICT (sink_id, partition_id, destination) DO UPDATE SET"
				  " last_error = EXCLUDED.last_error, last_error_time = EXCLUDED.last_error_time",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlText(message));
	(void) SqlRun("INSERT INTO incsink.delivery_error (error_id, sink_id, partition_id, destination,"
				  " batch_id, message)"
				  " VALUES (pg_catalog.nextval('incsink.object_id_seq'), $1, $2, '', $3, $4)",
				  SqlInt8(sink_id), SqlInt8(partition_id), SqlText(batch_id), SqlText(message));
	(void) SqlRun("DELETE FROM incsink.delivery_error WHERE sink_id = $1 AND partition_id = $2"
				  " AND error_id <= (SELECT error_id FROM incsink.delivery_error"
				  " WHERE sink_id = $1 AND partition_id = $2 ORDER BY error_id DESC OFFSET 20 LIMIT 1)",
				  SqlInt8(sink_id), SqlInt8(partition_id));
}
