/*
 * epoch.h
 *		Where the epochs of deliveries began, and how far they have come.
 *
 * All need an open SqlSession.
 */
#ifndef INCSINK_EPOCH_H
#define INCSINK_EPOCH_H

#include "postgres.h"

#include "common/token.h"
#include "nodes/pg_list.h"

/*
 * Notes that the epoch that stands in the delivery's watermark begins now, where its
 * next batch does.  Called wherever a watermark is made or its epoch changes, in the same
 * transaction.  Does nothing on a catalog before version 0.3.
 */
extern void NoteEpoch(int64 sink_id, int64 partition_id);

/* Called where the watermark is removed. */
extern void ForgetEpoch(int64 sink_id, int64 partition_id);

/* A delivery's epoch as one statement saw it. */
typedef struct EpochReach
{
	char	   *epoch;
	bool		began_known;	/* not of an epoch that began before version 0.3 */
	Position	began;			/* with its key */
	Position	until;			/* the watermark, with its key */
	int64		rows_exported;	/* since the epoch began; if that is known */
	int64		rows_rejected;	/* and put aside, likewise */
	List	   *in_flight;		/* names of the objects of its intents */
} EpochReach;

/* In "context"; NULL if there is no watermark. */
extern EpochReach *LoadEpochReach(int64 sink_id, int64 partition_id, MemoryContext context);

#endif							/* INCSINK_EPOCH_H */
