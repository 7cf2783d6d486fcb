/*
 * delivery_state.h
 *		What the catalog remembers of a delivery's run: anything that is not simply
 *		waiting or sending, and its errors.
 */
#ifndef INCSINK_DELIVERY_STATE_H
#define INCSINK_DELIVERY_STATE_H

#include "postgres.h"

#include "utils/timestamp.h"

typedef struct DeliveryRecord
{
	const char *state;			/* "retrying", "open circuit", "halted",
								 * "waiting", or NULL: nothing to say */
	const char *reason;
	const char *hint;
	int			failures;
	TimestampTz retry_at;		/* 0 = none */
} DeliveryRecord;

/* NULL fields and zeros if there is no row; strings in "context". */
extern DeliveryRecord LoadDeliveryRecord(int64 sink_id, int64 partition_id, MemoryContext context);

/* Replaces the state; last_error stays. */
extern void StoreDeliveryRecord(int64 sink_id, int64 partition_id, const DeliveryRecord *record);

/*
 * Forgets halt and pause between attempts, so that the worker tries again at once with
 * what was mended; the last error stays.
 */
extern void ForgetFailure(int64 sink_id, int64 partition_id);

/* Notes an error as the last one and in delivery_error, which keeps the last 20. */
extern void StoreDeliveryError(int64 sink_id, int64 partition_id, const char *batch_id,
							   const char *message);

#endif							/* INCSINK_DELIVERY_STATE_H */
