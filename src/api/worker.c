/*
 * worker.c
 *		SQL functions about the worker and the database's identity.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/identity.h"
#include "common/shared.h"
#include "common/sql.h"
#include "common/worker_lock.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(incsink_version);
PG_FUNCTION_INFO_V1(incsink_start_worker);
PG_FUNCTION_INFO_V1(incsink_adopt_database);
PG_FUNCTION_INFO_V1(incsink_worker_slots);
PG_FUNCTION_INFO_V1(incsink_worker_locks);
PG_FUNCTION_INFO_V1(incsink_share);

Datum
incsink_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(INCSINK_VERSION));
}

/* Called by the install script too: there the warning tells what is missing. */
Datum
incsink_start_worker(PG_FUNCTION_ARGS)
{
	if (!SharedMemoryIsPreloaded())
		ereport(WARNING,
				(errmsg("incsink is not in shared_preload_libraries"),
				 errdetail("Exports run until the server is restarted, look for new rows every incsink.poll_interval, and statements that bring their own ingest_seq are not refused."),
				 errhint("Add incsink to shared_preload_libraries and restart the server.")));
	RequestWorkerAtCommit();
	PG_RETURN_VOID();
}

Datum
incsink_adopt_database(PG_FUNCTION_ARGS)
{
	SqlSession	session;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot adopt a database during recovery"),
				 errhint("Promote the server first.")));
	SqlBegin(&session);
	AdoptDatabase();
	SqlEnd(&session);
	RequestWorkerAtCommit();
	PG_RETURN_VOID();
}

static const char *
PhaseName(const WorkerSlot *slot)
{
	switch (slot->phase)
	{
		case WORKER_RUNNING:
			return slot->waiting_for[0] != '\0' ? "waiting" : "running";
		case WORKER_STARTING:
			return "starting";
		default:
			return "stopped";
	}
}

static void
PutSlot(Tuplestorestate *store, TupleDesc desc, const WorkerSlot *slot)
{
	Datum		values[11] = {0};
	bool		nulls[11] = {0};

	values[0] = Int32GetDatum(slot->pid);
	nulls[0] = slot->pid == 0;
	values[1] = CStringGetTextDatum(WorkerClassName(slot->class));
	values[2] = CStringGetTextDatum(PhaseName(slot));
	values[3] = TimestampTzGetDatum(slot->started_at);
	nulls[3] = slot->started_at == 0;
	values[4] = Int64GetDatum(slot->turns);
	values[5] = TimestampTzGetDatum(slot->last_turn_time);
	nulls[5] = slot->last_turn_time == 0;
	values[6] = CStringGetTextDatum(slot->last_error);
	nulls[6] = slot->last_error[0] == '\0';
	values[7] = TimestampTzGetDatum(slot->last_error_time);
	nulls[7] = nulls[6];
	values[8] = CStringGetTextDatum(slot->waiting_for);
	nulls[8] = slot->waiting_for[0] == '\0';
	/* not in catalogs before 0.4 */
	values[9] = Int32GetDatum(slot->number);
	values[10] = Int64GetDatum(slot->buffer_bytes);
	tuplestore_putvalues(store, desc, values, nulls);
}

Datum
incsink_worker_slots(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	WorkerSlot *copies;
	int			count = 0;

	InitMaterializedSRF(fcinfo, 0);
	if (shared == NULL)
		return (Datum) 0;
	copies = palloc(sizeof(WorkerSlot) * SHARED_WORKERS);
	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < SHARED_WORKERS; i++)
	{
		if (shared->workers[i].phase != WORKER_FREE && shared->workers[i].database == MyDatabaseId)
			copies[count++] = shared->workers[i];
	}
	LWLockRelease(&shared->lock);
	for (int i = 0; i < count; i++)
		PutSlot(result->setResult, result->setDesc, &copies[i]);
	return (Datum) 0;
}

/* Works without shared memory, and shows a process that does not go on. */
Datum
incsink_worker_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	WorkerLock *locks;
	int			count;

	InitMaterializedSRF(fcinfo, 0);
	locks = ListWorkerLocks(ExtensionOid(), &count);
	for (int i = 0; i < count; i++)
	{
		Datum		values[4];
		bool		nulls[4] = {false, false, locks[i].number < 0, locks[i].share < 0};

		values[0] = Int32GetDatum(locks[i].pid);
		values[1] = CStringGetTextDatum(WorkerClassName(locks[i].class));
		values[2] = Int32GetDatum(locks[i].number);
		values[3] = Int32GetDatum(locks[i].share);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
incsink_share(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(ShareOf(PG_GETARG_INT64(0), PG_GETARG_INT64(1)));
}
