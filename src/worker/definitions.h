/*
 * definitions.h
 *		What a worker has to do: its partitions and deliveries, as defined now.
 */
#ifndef INCSINK_DEFINITIONS_H
#define INCSINK_DEFINITIONS_H

#include "postgres.h"

#include "delivery/delivery.h"

typedef struct Workload
{
	WorkerClass class;
	HttpPool   *pool;
	MemoryContext context;		/* owns partitions and deliveries */
	MemoryContext definitions;	/* owns what the catalog said last */
	List	   *runs;			/* of PartitionRun */
	List	   *old_runs;		/* during a reload */
	List	   *deliveries;		/* of Delivery */
	bool		stale;			/* a definition has changed */
	bool		blob_sinks;		/* some sink is for the other worker */
	bool		preparing;		/* some index is to be built */
	char	   *waiting_for;	/* why nothing is exported, or NULL */
} Workload;

extern void WorkloadInit(Workload *workload, WorkerClass class, HttpPool *pool);

/*
 * Reads the catalog again.  Deliveries whose definition is the same go on; others
 * are cancelled and start over from the catalog.  Needs a transaction; an ERROR leaves
 * everything as it was.
 */
extern void WorkloadReload(Workload *workload);

/*
 * Looks at every sequence and moves the horizons; records what it finds.  Needs a
 * transaction.
 */
extern void RefreshPartitions(Workload *workload, TimestampTz now);

#endif							/* INCSINK_DEFINITIONS_H */
