/*
 * pace.h
 *		Rate limits of sinks: one bucket a sink, shared by its deliveries.
 *
 * What a batch costs is booked when it is cut, and the sink's next one is not cut
 * before that is paid off.  There is no timer: a delivery that has to wait knows when
 * to ask again.
 */
#ifndef INCSINK_PACE_H
#define INCSINK_PACE_H

#include "postgres.h"

#include "common/options.h"
#include "datatype/timestamp.h"
#include "delivery/batch.h"

typedef struct Pace
{
	int64		sink_id;		/* key of the table of them */
	int			users;			/* its deliveries in this process */
	int			deliveries;		/* in all, if more: this process has its part of
								 * the rates */
	TimestampTz free_at;		/* what was cut is paid off then */
	int64		next;			/* partition whose turn it is, or 0 */
	TimestampTz next_cut_at;	/* when that one was last cut */
	int64		max_rows_per_second;	/* rates that this was booked at */
	int64		max_bytes_per_second;
} Pace;

/* The pace of a sink, made with its first user and gone with its last. */
extern Pace *PaceAcquire(int64 sink_id);
extern void PaceRelease(Pace *pace);

/* Makes limits smaller, so that a batch costs no more than a moment of the rates. */
extern void PaceLimitBatch(const SinkOptions *options, RangeLimits *limits);

/*
 * 0 if the sink's next batch may be cut now, by the delivery of this partition, which
 * was last cut at "cut_at" (0 = never); otherwise when to ask again.  Among those that
 * have asked the one that was cut longest ago comes first.
 */
extern TimestampTz PaceAsk(Pace *pace, const SinkOptions *options, int64 partition_id,
						   TimestampTz cut_at, TimestampTz now);

/* Books a batch that was cut. */
extern void PaceBook(Pace *pace, const SinkOptions *options, int64 rows, int64 bytes,
					 TimestampTz now);

#endif							/* INCSINK_PACE_H */
