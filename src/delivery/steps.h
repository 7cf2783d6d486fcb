/*
 * steps.h
 *		Between the files of this folder: parts of a delivery's turn.
 */
#ifndef INCSINK_STEPS_H
#define INCSINK_STEPS_H

#include "delivery/delivery.h"
#include "delivery/memory.h"

/* flight.c: the batches that stand */
extern Flight *FlightCreate(Delivery *delivery);
extern void FlightFree(Flight *flight);
extern Flight *FirstFlight(const Delivery *delivery);
extern Flight *LastFlight(const Delivery *delivery);
extern Flight *PreviousFlight(Flight *flight);
extern Flight *LowestStanding(const Delivery *delivery);
extern void RecountFlights(Delivery *delivery);
extern void SetFlightState(Flight *flight, FlightState state);
extern void AddFlight(Flight *flight);
extern void DropFlights(Delivery *delivery, int count);
extern void ForgetAttempts(Delivery *delivery);
extern FlightCounts StagedFlights(const Delivery *delivery);
extern bool FlightsAreLeft(const Delivery *delivery);

/* flight.c: where the next batch begins */
extern Position StagedPosition(const Delivery *delivery);
extern Position ReadPosition(const Delivery *delivery);
extern bool IsReadBeyond(const Delivery *delivery);
extern bool MayCutBehindFlights(const Delivery *delivery);
extern void KeepPosition(Delivery *delivery, Position *place, Position position);
extern void ForgetReadPosition(Delivery *delivery);

/* flight.c: their bodies */
extern void AccountBody(Flight *flight);
extern void ReleaseBody(Flight *flight);
extern void PrepareBody(Flight *flight);
extern void ReleaseIdleBodies(Delivery *delivery);
extern MemoryShare ShareOfMemory(const Delivery *delivery, TimestampTz now);

/* delivery.c */
extern void SetReason(Delivery *delivery, const char *reason, const char *hint);
extern void SetFailure(Delivery *delivery, const Flight *flight, const char *reason,
					   const char *hint);
extern void HaltDelivery(Delivery *delivery, const char *reason, const char *hint);
/* Pauses; the second where looking has cost a wait (lock_timeout). */
#define BUSY_PAUSE_MS 100
#define LOCK_TIMEOUT_PAUSE_MS 1000
extern void LeaveAlone(Delivery *delivery, TimestampTz now, int milliseconds);
extern void NoteBusy(Delivery *delivery, TimestampTz now, const char *reason);
extern void NoteLockTimeout(Delivery *delivery, TimestampTz now);
extern void NoteNotBusy(Delivery *delivery);

/* due.c */
extern DeliveryAction Decide(Delivery *delivery, const DeliveryEvent *event);
extern DeliveryAction NextAction(Delivery *delivery, TimestampTz now);
extern DeliveryAction NextActionOfTurn(Delivery *delivery, TimestampTz now);
extern int64 MemoryForCut(const Delivery *delivery, TimestampTz now);
extern bool BacklogIsLeft(const Delivery *delivery, Position position);
extern bool MoreIsKnown(const Delivery *delivery);

/*
 * cut.c: what reads rows, each in a subtransaction of its own.  A cut is CutRead(), which
 * needs the delivery's lock and no SqlSession, and CutRecord().
 */
extern void CutStep(Delivery *delivery, TimestampTz now);
extern void CutRead(Delivery *delivery, TimestampTz now);
extern void CutRecord(Delivery *delivery, TimestampTz now);
extern bool EpochIsCurrent(const Delivery *delivery);
extern void AttemptStep(Delivery *delivery, TimestampTz now);
extern bool EncodeBody(Flight *flight, TimestampTz now, Position since, Position until,
					   RangeLimits limits, EncodedRange *range);
extern Position BeginningOf(Flight *flight);

/* steps.c: errors become state; false then */
typedef void (*StepFunction) (Delivery *delivery, TimestampTz now);
extern bool RunStep(Delivery *delivery, StepFunction step, TimestampTz now);
extern bool RunReadStep(Delivery *delivery, StepFunction step, TimestampTz now);
extern void StepRecord(Delivery *delivery, TimestampTz now);

/* steps.c: acknowledgements */
extern void AdvanceStep(Delivery *delivery, TimestampTz now);
extern bool AdvanceIsPlain(const Delivery *delivery);
extern int	LeadingIntents(const Delivery *delivery, Intent **intents);
extern void StageAdvanced(Delivery *delivery);

/* steps.c */
extern bool LockDelivery(Delivery *delivery, TimestampTz now);
extern void ClearRecord(Delivery *delivery);
extern void StagePassed(Delivery *delivery, const char *epoch, Position since, Position until);
pg_noreturn extern void RaiseFenced(const Delivery *delivery);

/* send.c: lets the committed batch out; errors become its verdict */
extern void SendFlight(Flight *flight);

/* send.c: an ended attempt, or (without a flight) a failed step, becomes state */
extern void TakeVerdict(Delivery *delivery, Flight *flight, Verdict *verdict);

#endif							/* INCSINK_STEPS_H */
