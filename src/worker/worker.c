/*
 * worker.c
 *		The process that exports the rows of one database.
 *
 * It sleeps on its latch, on one descriptor that stands for all transfers, and on a
 * timer.  Woken, it takes a turn: one transaction for everything that the catalog
 * must know, then the sends.  No transaction, snapshot or lock is held while it
 * waits or sends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/compat.h"
#include "common/inject.h"
#include "common/settings.h"
#include "common/sql.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"
#include "worker/definitions.h"
#include "worker/index_worker.h"
#include "worker/slot.h"
#include "worker/worker.h"

#define TURN_BUDGET_MS 50		/* of catalog work before sends are due */
#define ERROR_PAUSE_MS 1000
#define WAKE_PAUSE_MS 5			/* between turns that only commits ask for */
#define RELOAD_EVERY_MS 60000	/* definitions that came by COPY invalidate
								 * nothing */

PGDLLEXPORT void IncsinkWorkerMain(Datum arg);

static Workload workload;
static MemoryContext turn_context;
static Oid	sink_relation;		/* whose invalidation means: definitions changed */
static TimestampTz error_pause_until = 0;
static TimestampTz loaded_at = 0;	/* definitions */
static List *touched;			/* deliveries of this turn */

static void
DefinitionsChanged(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == sink_relation)
		workload.stale = true;
}

/* Nothing is due while nothing may be done. */
static bool
MayExport(void)
{
	return workload.waiting_for == NULL && setting_enabled;
}

/* After a change of definitions: is there still something for this process? */
static void
ReloadDefinitions(void)
{
	workload.stale = false;
	loaded_at = 0;				/* until it has worked */
	TakeWish();
	AcceptInvalidationMessages();
	StayWithExtension();
	sink_relation = CatalogRelation("sink_def");
	WorkloadReload(&workload);
	loaded_at = GetCurrentTimestamp();
	ShowWaitingFor(setting_enabled ? workload.waiting_for : "incsink.enabled is off");
	if (workload.class == WORKER_FORWARD && workload.blob_sinks)
		AskForWorker(WORKER_BLOB);
	if (workload.class == WORKER_FORWARD && workload.preparing && MayExport())
		AskForWorker(WORKER_INDEX);
	if (workload.class == WORKER_BLOB && workload.deliveries == NIL)
		Leave(EXIT_NOTHING_TO_DO);
}

/*
 * The catalog work of all deliveries that are due, as far as the budget goes, from
 * where the last turn ended.  Those that were begun are in "touched"; true says that
 * some were left.
 */
static bool
RunDueDeliveries(TimestampTz now)
{
	static int	next = 0;
	int			count = list_length(workload.deliveries);

	for (int i = 0; i < count; i++)
	{
		Delivery   *delivery = list_nth(workload.deliveries, (next + i) % count);

		if (!DeliveryIsDue(delivery, now))
			continue;
		if (touched != NIL &&
			TimestampDifferenceExceeds(now, GetCurrentTimestamp(), TURN_BUDGET_MS))
		{
			next = (next + i) % count;
			return true;
		}
		touched = lappend(touched, delivery);
		DeliveryCatalogStep(delivery, now);
	}
	return false;
}

/* Returns true if another turn is due at once. */
static bool
TakeTurn(void)
{
	TimestampTz now = GetCurrentTimestamp();
	volatile int applied = 0;	/* of touched, after the commit */
	volatile bool committed = false;
	bool		more = false;

	MemoryContextReset(turn_context);
	touched = NIL;
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		pgstat_report_activity(STATE_RUNNING, "incsink turn");
		StayOwner();
		MemoryContextSwitchTo(turn_context);
		if (workload.stale || TimestampDifferenceExceeds(loaded_at, now, RELOAD_EVERY_MS))
			ReloadDefinitions();
		if (MayExport())
		{
			RefreshPartitions(&workload, now);
			more = RunDueDeliveries(now);
		}
		INCSINK_POINT("before-commit");
		CommitTransactionCommand();
		committed = true;
		INCSINK_POINT("after-commit");
		MemoryContextSwitchTo(turn_context);
		for (; applied < list_length(touched); applied++)
			more |= DeliveryCommitted(list_nth(touched, applied));
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(turn_context);
		error = CopyErrorData();
		EmitErrorReport();
		FlushErrorState();
		NoteError(error->message);
		AbortCurrentTransaction();
		MemoryContextSwitchTo(turn_context);

		if (!committed)
			loaded_at = 0;		/* definitions may be of this transaction */

		/* The catalog is right: what it has committed is read from it again. */
		for (int i = applied; i < list_length(touched); i++)
		{
			Delivery   *delivery = list_nth(touched, i);

			DeliveryAborted(delivery);
			if (committed)
				delivery->reload_due = true;
		}
		error_pause_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ERROR_PAUSE_MS);
		more = false;
	}
	PG_END_TRY();

	my_slot->turns++;
	my_slot->last_turn_time = now;
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return more;
}

/* When the next turn is due without anybody waking us. */
static TimestampTz
NextTurn(TimestampTz last_turn)
{
	TimestampTz next = TimestampTzPlusMilliseconds(last_turn, setting_poll_interval);
	ListCell   *cell;

	if (!MayExport())
		return Max(next, error_pause_until);
	foreach(cell, workload.deliveries)
	{
		TimestampTz due = DeliveryDueAt(lfirst(cell));

		if (due > 0 && due < next)
			next = due;
	}
	return Max(next, error_pause_until);
}

/* Sleeps until the latch, a transfer or the time; true if the latch was set. */
static bool
WaitForEvents(WaitEventSet *events, HttpPool *pool, TimestampTz until)
{
	WaitEvent	occurred[2];
	long		timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
	long		transfers = HttpPoolTimeout(pool);
	int			count;
	bool		latch = false;

	timeout = Min(timeout, DATABASE_LOOK_MS);
	if (transfers >= 0)
		timeout = Min(timeout, transfers);
	count = WaitEventSetWait(events, timeout, occurred, lengthof(occurred), PG_WAIT_EXTENSION);
	for (int i = 0; i < count; i++)
	{
		if (occurred[i].events & WL_LATCH_SET)
			latch = true;
	}
	if (latch)
		ResetLatch(MyLatch);
	return latch;
}

static bool
AnyDeliveryHasNews(void)
{
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *cell;

	if (!MayExport())
		return false;
	foreach(cell, workload.deliveries)
	{
		if (DeliveryHasNews(lfirst(cell), now))
			return true;
	}
	return false;
}

static WaitEventSet *
MakeEvents(HttpPool *pool, bool with_latch)
{
	WaitEventSet *events = CreateWaitEventSetCompat(3);

	if (with_latch)
		AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(events, WL_SOCKET_READABLE, HttpPoolDescriptor(pool), NULL, NULL);
	return events;
}

/*
 * A first commit after some time is looked for at once.  Where one follows the other
 * a turn serves those of WAKE_PAUSE_MS: in the pause the latch is not waited for,
 * and setting it costs the committers nothing.
 */
static void
WorkLoop(HttpPool *pool)
{
	WaitEventSet *events = MakeEvents(pool, true);
	WaitEventSet *pause_events = MakeEvents(pool, false);
	bool		turn_due = true;
	bool		woken = false;
	TimestampTz last_turn = 0;

	for (;;)
	{
		/*
		 * pg_cancel_backend(): there is nothing to cancel that would not be
		 * done again.  (SIGINT must not be ignored: lock_timeout sends it.)
		 */
		QueryCancelPending = false;
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			workload.stale = true;
		}
		if (DatabaseIsWanted(MyDatabaseId) || LauncherIsGone())
			Leave(EXIT_LEFT);
		if (workload.class == WORKER_FORWARD && workload.preparing)
			GiveWayToLocks();
		HttpPoolRun(pool);
		if (woken && TimestampDifferenceExceeds(last_turn, GetCurrentTimestamp(), WAKE_PAUSE_MS))
			turn_due = true;
		if (turn_due || AnyDeliveryHasNews() || NextTurn(last_turn) <= GetCurrentTimestamp())
		{
			if (error_pause_until <= GetCurrentTimestamp())
			{
				last_turn = GetCurrentTimestamp();
				woken = false;
				turn_due = TakeTurn();
			}
		}
		if (turn_due && error_pause_until <= GetCurrentTimestamp())
			continue;
		if (woken && error_pause_until <= GetCurrentTimestamp())
			(void) WaitForEvents(pause_events, pool,
								 TimestampTzPlusMilliseconds(last_turn, WAKE_PAUSE_MS));
		else if (WaitForEvents(events, pool, NextTurn(last_turn)))
			woken = true;
	}
}

void
IncsinkWorkerMain(Datum arg)
{
	WorkerArgs	args;
	HttpPool   *pool;

	memcpy(&args, MyBgworkerEntry->bgw_extra, sizeof(args));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(args.database, InvalidOid, 0);
	AttachSlot(DatumGetInt32(arg), &args);
	ApplyWorkerSettings();

	workload.class = args.class;
	CacheRegisterRelcacheCallback(DefinitionsChanged, (Datum) 0);
	FindExtension();
	my_slot->phase = WORKER_RUNNING;
	if (shared->launcher)
		SetLatch(shared->launcher);

	if (args.class == WORKER_INDEX)
		IndexWorkerLoop();
	turn_context = AllocSetContextCreate(TopMemoryContext, "incsink turn", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(TopMemoryContext);
	pool = HttpPoolCreate(setting_max_connections);
	WorkloadInit(&workload, args.class, pool);
	WorkLoop(pool);
}
