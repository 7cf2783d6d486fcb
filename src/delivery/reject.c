/*
 * reject.c
 *		What a delivery does with a batch that the receiver has refused.
 *
 * A batch may be split, or its rows put aside, only if it is certain that it is not
 * stored and will not be: every attempt so far has a complete answer that proves it.  An
 * attempt without one (a lost answer, a process that died) may arrive after the halves.
 */
#include "postgres.h"

#include "catalog/dead_letter.h"
#include "catalog/delivery_state.h"
#include "catalog/split.h"
#include "common/inject.h"
#include "delivery/reject.h"
#include "delivery/steps.h"
#include "sink/policy.h"
#include "utils/memutils.h"

/* Of the attempt that has just been answered, too? */
static bool
EveryAttemptWasRefused(const Flight *flight)
{
	return flight->intent->refused >= flight->intent->attempts;
}

bool
MayBeStored(const Flight *flight)
{
	return flight->delivery->keeps_refusals &&
		flight->intent->refused < flight->intent->attempts - 1;
}

static bool
PutsAside(const Delivery *delivery)
{
	return strcmp(delivery->sink->options->on_reject, "dead_letter") == 0;
}

/* Rows that are refused one by one need no split to be found. */
static Remedy
RemedyFor(const Flight *flight, const Verdict *verdict)
{
	if (flight->body_rows > 1 &&
		(verdict->class == VERDICT_TOO_LARGE || PutsAside(flight->delivery)))
		return REMEDY_SPLIT;
	return PutsAside(flight->delivery) ? REMEDY_ASIDE : REMEDY_NONE;
}

static void
HintToResolve(const Flight *flight, Verdict *verdict)
{
	const Intent *intent = flight->intent;

	snprintf(verdict->hint, sizeof(verdict->hint),
			 "An attempt of this batch may have been stored. Look for the id %s at the receiver, then call"
			 " incsink_resolve(%lld, 'stored') if it has the batch, or else incsink_resolve(%lld, 'resend').",
			 intent->batch_id, (long long) intent->intent_id, (long long) intent->intent_id);
}

/* For people, when the rows are put aside. */
static void
KeepRefusal(Flight *flight, const Verdict *verdict)
{
	flight->refused_status = verdict->status;
	flight->refusal = MemoryContextStrdup(flight->context, verdict->message);
}

bool
FindRemedy(Flight *flight, Verdict *verdict)
{
	if (flight->state != FLIGHT_SENDING || !flight->delivery->keeps_refusals)
		return false;
	if (verdict->sure)
		flight->intent->refused++;
	if (verdict->class != VERDICT_TOO_LARGE && verdict->class != VERDICT_REJECTED)
		return false;
	if (!EveryAttemptWasRefused(flight))
	{
		HintToResolve(flight, verdict);
		return false;
	}
	flight->remedy = RemedyFor(flight, verdict);
	if (flight->remedy == REMEDY_NONE)
		return false;
	KeepRefusal(flight, verdict);
	return true;
}

static Remedy
LowestRemedy(const Delivery *delivery, Flight **flight)
{
	*flight = LowestStanding(delivery);
	return *flight == NULL ? REMEDY_NONE : (*flight)->remedy;
}

bool
RemedyWaits(const Delivery *delivery)
{
	Flight	   *flight;

	return LowestRemedy(delivery, &flight) == REMEDY_ASIDE && flight != FirstFlight(delivery);
}

bool
RemedyIsDue(const Delivery *delivery)
{
	Flight	   *flight;

	return LowestRemedy(delivery, &flight) != REMEDY_NONE && !RemedyWaits(delivery) &&
		delivery->status.enabled;
}

/*
 * Finds where the first half of the rows ends.  Rows that have one number stay together,
 * so the end may lie behind them: then the first number is tried.  False if there is no
 * place to split at (the rows have one number, or only one is left), or nothing was read.
 */
static bool
FindMiddle(Flight *flight, TimestampTz now, EncodedRange *half)
{
	Position	until = flight->intent->until;
	RangeLimits limits = NO_LIMITS;

	limits.rows = Max(flight->body_rows / 2, 1);
	for (;;)
	{
		if (!EncodeBody(flight, now, BeginningOf(flight), until, limits, half))
			return false;
		if (half->rows > 0 && ComparePositions(half->until, until) < 0)
			return true;
		if (limits.rows == 1)
			return false;
		limits.rows = 1;
	}
}

/* Without a place to split at the rows are refused as one. */
static void
RefuseAsOne(Flight *flight, const EncodedRange *range)
{
	if (range->status != READER_OK)
		return;
	flight->remedy = REMEDY_NONE;
	if (range->rows == 0)
		return;
	if (PutsAside(flight->delivery))
		flight->remedy = REMEDY_ASIDE;
	else
		HaltDelivery(flight->delivery, flight->refusal, PolicyOfStatus(flight->refused_status)->hint);
}

static void
SplitFlight(Flight *flight, TimestampTz now)
{
	Delivery   *delivery = flight->delivery;
	EncodedRange half = {0};

	if (!FindMiddle(flight, now, &half))
	{
		RefuseAsOne(flight, &half);
		return;
	}
	INCSINK_POINT("before-split");
	if (!SplitIntent(flight->intent, half.until, half.rows, flight->body.length))
		RaiseFenced(delivery);
	delivery->staged.split = true;
}

/*
 * The body as it was refused.  Rows that were changed meanwhile may be taken: they are
 * sent again instead.
 */
static void
PutFlightAside(Flight *flight, TimestampTz now)
{
	Delivery   *delivery = flight->delivery;
	Refusal		refusal = {flight->refused_status, flight->refusal};
	EncodedRange range;
	char		digest[SHA256_HEX_LENGTH + 1];

	if (!EncodeBody(flight, now, BeginningOf(flight), flight->intent->until, NO_LIMITS, &range))
		return;
	Sha256Hex(flight->body.data, flight->body.length, digest);
	if (range.rows == 0 || strcmp(digest, flight->digest) != 0)
	{
		flight->remedy = REMEDY_NONE;
		return;
	}
	INCSINK_POINT("before-put-aside");
	if (!PutAside(flight->intent, flight->body.data, flight->body.length, range.rows, &refusal))
		RaiseFenced(delivery);
	StoreDeliveryError(delivery->sink_id, delivery->partition_id, flight->intent->batch_id,
					   flight->refusal);
	delivery->staged.advanced++;
	delivery->staged.position = flight->intent->until;
	ClearRecord(delivery);
}

void
ApplyRemedy(Flight *flight, TimestampTz now)
{
	Delivery   *delivery = flight->delivery;
	MemoryContext old = MemoryContextSwitchTo(flight->context);

	if (flight->remedy == REMEDY_SPLIT)
		SplitFlight(flight, now);
	else
		PutFlightAside(flight, now);
	MemoryContextSwitchTo(old);
	AccountBody(flight);
	if (delivery->look_again_at <= now)
		NoteNotBusy(delivery);
}

void
NoteRefusals(const Delivery *delivery)
{
	dlist_iter	iter;

	if (!delivery->keeps_refusals)
		return;
	dlist_foreach(iter, unconstify(dlist_head *, &delivery->flights))
	{
		const Flight *flight = dlist_container(Flight, node, iter.cur);

		if (flight->state == FLIGHT_STANDING && flight->intent->refused > 0)
			(void) NoteRefused(flight->intent, flight->intent->refused);
	}
}
