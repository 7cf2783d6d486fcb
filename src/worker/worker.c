/*
 * worker.c
 *		A process that exports rows of one database.
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
#include "delivery/memory.h"
#include "delivery/turn.h"
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
#include "worker/shares.h"
#include "worker/slot.h"
#include "worker/worker.h"

#define TURN_BUDGET_MS 50		/* of catalog work before sends are due */
#define ERROR_PAUSE_MS 1000
#define WAKE_PAUSE_MS 5			/* between turns that only commits ask for */
#define LOOK_EVERY_MS 100		/* at sequences of which no commit has told */
#define GATHER_MS 10			/* the longest that answers wait for others */
#define RELOAD_EVERY_MS 60000	/* definitions that came by COPY invalidate
								 * nothing */

PGDLLEXPORT void IncsinkWorkerMain(Datum arg);

static Workload workload;
static MemoryContext turn_context;
static Oid	sink_relation;		/* whose invalidation means: definitions changed */
static TimestampTz error_pause_until = 0;
static TimestampTz loaded_at = 0;	/* definitions */
static Turn turn;				/* of the deliveries, this one or the last */
static TimestampTz next_due;	/* by the last look at all deliveries; 0 = none is */
static TimestampTz gather_until;	/* answers may wait for others */

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

/* The first forward worker runs always; the others as long as there is something for them. */
static void
AskForOthers(void)
{
	for (int number = 0; number < setting_workers; number++)
	{
		if (number > 0 && (workload.workers[WORKER_FORWARD] & (1 << number)))
			AskForWorker(WORKER_FORWARD, number);
		if (workload.workers[WORKER_BLOB] & (1 << number))
			AskForWorker(WORKER_BLOB, number);
	}
	if (workload.preparing && MayExport())
		AskForWorker(WORKER_INDEX, 0);
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
	if (records_partitions)
		AskForOthers();
	else if (workload.shares == 0)
		Leave(EXIT_NOTHING_TO_DO);
}

/*
 * The catalog work of all deliveries that are due, as far as the budget goes, from where
 * the last turn ended; true says that some were left.
 */
static bool
RunDueDeliveries(TimestampTz now)
{
	static int	next = 0;
	int			count = list_length(workload.deliveries);
	int		   *places = palloc(sizeof(int) * TURN_DELIVERIES);
	int			i;

	turn.now = now;
	turn.budget_ms = TURN_BUDGET_MS;
	turn.due = palloc(sizeof(Delivery *) * TURN_DELIVERIES);
	turn.touched = palloc(sizeof(Delivery *) * TURN_DELIVERIES);
	turn.count = 0;
	for (i = 0; i < count && turn.count < TURN_DELIVERIES; i++)
	{
		int			place = (next + i) % count;
		Delivery   *delivery = list_nth(workload.deliveries, place);

		if (!DeliveryIsDue(delivery, now))
			continue;
		places[turn.count] = place;
		turn.due[turn.count++] = delivery;
	}
	if (turn.count == 0)
		return false;
	TakeDeliveriesTurn(&turn);
	if (turn.handled == turn.count && i == count)
		return false;
	next = turn.handled < turn.count ? places[turn.handled] : (next + i) % count;
	return true;
}

/*
 * Returns true if another turn is due at once.  "woken" says that rows may have come:
 * between turns that answers ask for, sequences that were at rest are looked at now and then.
 */
static bool
TakeTurn(bool woken)
{
	static TimestampTz looked_at = 0;
	TimestampTz now = GetCurrentTimestamp();
	volatile int applied = 0;	/* of touched, after the commit */
	volatile bool committed = false;
	bool		more = false;

	MemoryContextReset(turn_context);
	turn.ntouched = 0;
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		pgstat_report_activity(STATE_RUNNING, "incsink turn");
		StayOwner();
		if (StayWithShares(now))
			workload.stale = true;
		MemoryContextSwitchTo(turn_context);
		if (workload.stale || TimestampDifferenceExceeds(loaded_at, now, RELOAD_EVERY_MS))
			ReloadDefinitions();
		if (MayExport())
		{
			bool		look = woken ||
				TimestampDifferenceExceeds(looked_at, now, Min(setting_poll_interval, LOOK_EVERY_MS));

			RefreshPartitions(&workload, now, look);
			if (look)
				looked_at = now;
			more = RunDueDeliveries(now);
		}
		INCSINK_POINT("before-commit");
		CommitTransactionCommand();
		committed = true;
		INCSINK_POINT("after-commit");
		MemoryContextSwitchTo(turn_context);
		for (; applied < turn.ntouched; applied++)
			more |= DeliveryCommitted(turn.touched[applied]);
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
		for (int i = applied; i < turn.ntouched; i++)
		{
			Delivery   *delivery = turn.touched[i];

			DeliveryAborted(delivery);
			if (committed)
				delivery->reload_due = true;
		}
		error_pause_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ERROR_PAUSE_MS);
		more = false;
	}
	PG_END_TRY();

	deliveries_have_news = true;
	my_slot->turns++;
	my_slot->last_turn_time = now;
	gather_until = GetCurrentTimestamp();
	gather_until += Min(gather_until - now, GATHER_MS * INT64CONST(1000));
	my_slot->buffer_bytes = MemoryHeldByAll();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return more;
}

/*
 * After a turn, and when attempts have ended: has any delivery something for the catalog,
 * and when will one be due?  Between, nothing changes, and there may be many.
 *
 * One answer among many that are still to come waits for others as long as the last turn
 * took: turns of many deliveries cost little more than turns of one.
 */
static bool
AnyDeliveryHasNews(void)
{
	TimestampTz now = GetCurrentTimestamp();
	int			news = 0;
	int			sending = 0;
	ListCell   *cell;

	if (!deliveries_have_news || !MayExport())
		return false;
	next_due = 0;
	foreach(cell, workload.deliveries)
	{
		Delivery   *delivery = lfirst(cell);
		TimestampTz due;

		sending += delivery->status.flights.sending;
		if (DeliveryHasNews(delivery, now))
		{
			news++;
			continue;
		}
		due = DeliveryDueAt(delivery);
		if (due > 0 && (next_due == 0 || due < next_due))
			next_due = due;
	}
	deliveries_have_news = news > 0;
	if (news == 0)
		return false;
	if (news >= sending || now >= gather_until)
		return true;
	next_due = next_due == 0 ? gather_until : Min(next_due, gather_until);
	return false;
}

/* When the next turn is due without anybody waking us. */
static TimestampTz
NextTurn(TimestampTz last_turn)
{
	TimestampTz next = TimestampTzPlusMilliseconds(last_turn, setting_poll_interval);

	if (ShareLookDue() != 0)
		next = Min(next, ShareLookDue());
	if (next_due > 0 && MayExport())
		next = Min(next, next_due);
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
			HttpPoolSetLimits(pool, setting_max_connections, setting_max_connections_per_host);
			workload.stale = true;
		}
		if (DatabaseIsWanted(MyDatabaseId) || LauncherIsGone())
			Leave(EXIT_LEFT);
		if (records_partitions && workload.preparing)
			GiveWayToLocks();
		HttpPoolRun(pool);
		if (woken && TimestampDifferenceExceeds(last_turn, GetCurrentTimestamp(), WAKE_PAUSE_MS))
			turn_due = true;
		if (turn_due || AnyDeliveryHasNews() || NextTurn(last_turn) <= GetCurrentTimestamp())
		{
			if (error_pause_until <= GetCurrentTimestamp())
			{
				last_turn = GetCurrentTimestamp();
				turn_due = TakeTurn(woken);
				woken = false;
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
	pool = HttpPoolCreate(setting_max_connections, setting_max_connections_per_host);
	WorkloadInit(&workload, args.class, pool);
	WorkLoop(pool);
}
