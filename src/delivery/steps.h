/*
 * steps.h
 *		Between the files of this folder: parts of a delivery's turn.
 */
#ifndef INCSINK_STEPS_H
#define INCSINK_STEPS_H

#include "delivery/delivery.h"

/* delivery.c */
extern DeliveryAction NextAction(Delivery *delivery, TimestampTz now);
extern void AccountBody(Delivery *delivery);
extern void ReleaseBody(Delivery *delivery);
extern void DropBatch(Delivery *delivery);
extern void SetReason(Delivery *delivery, const char *reason, const char *hint);
extern void SetFailure(Delivery *delivery, const char *reason, const char *hint);
extern void KeepPosition(Delivery *delivery, Position position);
extern bool BacklogIsLeft(const Delivery *delivery, Position position);
extern bool FlushIsDue(Delivery *delivery, Position position, TimestampTz now);
extern bool PaceAllows(Delivery *delivery, TimestampTz now);
extern void HaltDelivery(Delivery *delivery, const char *reason, const char *hint);
extern void NoteBusy(Delivery *delivery, TimestampTz now, const char *reason);
extern void NoteLockTimeout(Delivery *delivery, TimestampTz now);
extern void NoteNotBusy(Delivery *delivery);

/* send.c: lets the committed batch out; errors become its verdict */
extern void SendBatch(Delivery *delivery);

/* send.c: an ended attempt, or a failed step, becomes state */
extern void TakeVerdict(Delivery *delivery, const Verdict *verdict);

#endif							/* INCSINK_STEPS_H */
