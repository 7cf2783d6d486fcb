/*
 * turn.c
 *		The catalog work of many deliveries in one transaction.
 */
#include "postgres.h"

#include "catalog/sink.h"
#include "common/inject.h"
#include "common/sql.h"
#include "common/subtransaction.h"
#include "delivery/redeliver.h"
#include "delivery/steps.h"
#include "delivery/turn.h"
#include "utils/timestamp.h"

/* A lock costs a write: deliveries that will not be read this turn take none. */
#define MIN_REACH 64

/* What one shared statement is about. */
typedef struct TurnGroup
{
	Delivery  **deliveries;
	int			count;
	bool	   *locked;			/* LockGroup's result */
	void		(*work) (struct TurnGroup *group);
} TurnGroup;

static void
CallShared(void *arg)
{
	TurnGroup	   *group = arg;
	SqlSession	session;

	SqlBegin(&session);
	group->work(group);
	SqlEnd(&session);
}

/* False if it was rolled back: each delivery has to do it by itself, and learns why. */
static bool
RunShared(void (*work) (TurnGroup *group), TurnGroup *group)
{
	ErrorData  *error;

	if (group->count == 0)
		return true;
	group->work = work;
	error = InSubtransaction(CallShared, group);
	if (error == NULL)
		return true;
	FreeErrorData(error);
	return false;
}

/* Raised to roll a shared statement back; nobody sees it. */
static void
RaiseOtherNumber(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg_internal("a shared statement has moved another number of deliveries")));
}

static TurnGroup
MakeGroup(int capacity)
{
	TurnGroup		group = {0};

	group.deliveries = palloc(sizeof(Delivery *) * Max(capacity, 1));
	return group;
}

static void
AddToGroup(TurnGroup *group, Delivery *delivery)
{
	group->deliveries[group->count++] = delivery;
}

/* ------------------------------------------------------------------ locks */

static void
TryLocks(TurnGroup *group)
{
	int64	   *sinks = palloc(sizeof(int64) * group->count);
	int64	   *partitions = palloc(sizeof(int64) * group->count);

	for (int i = 0; i < group->count; i++)
	{
		sinks[i] = group->deliveries[i]->sink_id;
		partitions[i] = group->deliveries[i]->partition_id;
	}
	(void) TryLockSinkTables(sinks, partitions, group->count, group->locked);
}

/*
 * Those that another session has locked are left alone for a moment.  If nothing at all can
 * be locked so, "group" is empty: each tries by itself.
 */
static void
LockGroup(TurnGroup *group, TimestampTz now)
{
	int			count = group->count;
	bool		done;

	group->locked = palloc0(sizeof(bool) * Max(count, 1));
	INCSINK_POINT("before-turn-lock");
	done = RunShared(TryLocks, group);
	group->count = 0;
	for (int i = 0; done && i < count; i++)
	{
		Delivery   *delivery = group->deliveries[i];

		delivery->staged.locked = group->locked[i];
		if (group->locked[i])
			AddToGroup(group, delivery);
		else
			NoteBusy(delivery, now, NULL);
	}
}

/* -------------------------------------------------------- acknowledgements */

static void
AcknowledgeAll(TurnGroup *group)
{
	Intent	  **intents;
	int			count = 0;

	for (int i = 0; i < group->count; i++)
		count += group->deliveries[i]->status.flights.leading;
	intents = palloc(sizeof(Intent *) * count);
	count = 0;
	for (int i = 0; i < group->count; i++)
		count += LeadingIntents(group->deliveries[i], intents + count);
	INCSINK_POINT("before-acknowledge");
	if (!AcknowledgeIntents(intents, count, group->count))
		RaiseOtherNumber();
}

/* What has more to do than to acknowledge does it by itself. */
static void
AdvanceGroup(const TurnGroup *locked, TimestampTz now)
{
	TurnGroup		plain = MakeGroup(locked->count);

	for (int i = 0; i < locked->count; i++)
	{
		Delivery   *delivery = locked->deliveries[i];

		if (delivery->status.flights.leading == 0)
			continue;
		if (AdvanceIsPlain(delivery))
			AddToGroup(&plain, delivery);
		else
			(void) RunStep(delivery, AdvanceStep, now);
	}
	if (RunShared(AcknowledgeAll, &plain))
	{
		for (int i = 0; i < plain.count; i++)
			StageAdvanced(plain.deliveries[i]);
		return;
	}
	for (int i = 0; i < plain.count; i++)
		(void) RunStep(plain.deliveries[i], AdvanceStep, now);
}

/* ----------------------------------------------------------------- batches */

/* Reads the next batch of a delivery that is locked, or makes another attempt. */
static void
ReadMember(Delivery *delivery, TimestampTz now)
{
	DeliveryAction action = NextActionOfTurn(delivery, now);

	if (action == ACTION_CUT && EpochIsCurrent(delivery))
		(void) RunReadStep(delivery, CutRead, now);
	else if (action == ACTION_CUT)
		(void) RunStep(delivery, CutStep, now);
	else if (action == ACTION_ATTEMPT)
		(void) RunStep(delivery, AttemptStep, now);
}

static void
InsertAll(TurnGroup *group)
{
	Intent	  **intents = palloc(sizeof(Intent *) * group->count);
	Position   *positions = palloc(sizeof(Position) * group->count);

	for (int i = 0; i < group->count; i++)
	{
		intents[i] = group->deliveries[i]->staged.cut->intent;
		positions[i] = group->deliveries[i]->staged.cut_since;
	}
	INCSINK_POINT("before-intent");
	if (!InsertIntents(intents, positions, group->count))
		RaiseOtherNumber();
}

/* What was read is recorded: intents together, the rest one by one. */
static void
RecordGroup(const TurnGroup *locked, TimestampTz now)
{
	TurnGroup		cut = MakeGroup(locked->count);

	for (int i = 0; i < locked->count; i++)
	{
		Delivery   *delivery = locked->deliveries[i];

		if (!delivery->staged.unrecorded)
			continue;
		if (delivery->staged.cut->intent != NULL)
			AddToGroup(&cut, delivery);
		else
			(void) RunStep(delivery, CutRecord, now);
	}
	if (RunShared(InsertAll, &cut))
	{
		for (int i = 0; i < cut.count; i++)
			cut.deliveries[i]->staged.unrecorded = false;
		return;
	}
	for (int i = 0; i < cut.count; i++)
		(void) RunStep(cut.deliveries[i], CutRecord, now);
}

/* -------------------------------------------------------------------- turn */

static void
Begin(Turn *turn, Delivery *delivery)
{
	if (delivery->staged.begun)
		return;
	delivery->staged.begun = true;
	turn->touched[turn->ntouched++] = delivery;
}

/* Up to "end", in order, as far as the time goes; the first one always. */
static void
ReadDue(Turn *turn, int end)
{
	for (; turn->handled < end; turn->handled++)
	{
		Delivery   *delivery = turn->due[turn->handled];

		if (turn->handled > 0 &&
			TimestampDifferenceExceeds(turn->now, GetCurrentTimestamp(), turn->budget_ms))
			break;
		Begin(turn, delivery);
		if (delivery->staged.locked)
			ReadMember(delivery, turn->now);
		else if (delivery->look_again_at <= turn->now)
			DeliveryCatalogStep(delivery, turn->now);
	}
}

/*
 * Acknowledgements and new batches go together; what comes rarely (a delivery that is read
 * from the catalog again, a retry) by itself: ACTION_NONE.
 */
static DeliveryAction
ActionInGroup(Delivery *delivery, TimestampTz now)
{
	DeliveryAction action;

	if (delivery->reload_due || RedeliveryIsDue(delivery, now))
		return ACTION_NONE;
	action = NextAction(delivery, now);
	return action == ACTION_ADVANCE || action == ACTION_CUT ? action : ACTION_NONE;
}

/*
 * Puts together who takes part, and returns where the turn is to end at the latest.  All
 * acknowledgements do; of those that only cut, as many as there will be time for.
 */
static int
GatherGroup(Turn *turn, TurnGroup *group, int reach)
{
	int			end = turn->count;

	for (int i = 0; i < turn->count; i++)
	{
		DeliveryAction action = ActionInGroup(turn->due[i], turn->now);

		if (action == ACTION_CUT && i >= reach)
			end = Min(end, i);
		else if (action != ACTION_NONE)
		{
			Begin(turn, turn->due[i]);
			AddToGroup(group, turn->due[i]);
		}
	}
	return end;
}

void
TakeDeliveriesTurn(Turn *turn)
{
	static int	reach = MIN_REACH;	/* deliveries that there is time to read */
	TurnGroup	group = MakeGroup(turn->count);
	int			end;

	turn->handled = turn->ntouched = 0;
	end = GatherGroup(turn, &group, reach);
	LockGroup(&group, turn->now);
	AdvanceGroup(&group, turn->now);
	ReadDue(turn, end);
	reach = turn->handled < end ? Max(2 * turn->handled, MIN_REACH) : Min(2 * reach, TURN_DELIVERIES);
	RecordGroup(&group, turn->now);
	for (int i = 0; i < turn->ntouched; i++)
		StepRecord(turn->touched[i], turn->now);
}
