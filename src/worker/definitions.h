/*
 * definitions.h
 *		What a worker has to do: its partitions and deliveries, as defined now.
 */
#ifndef INCSINK_DEFINITIONS_H
#define INCSINK_DEFINITIONS_H

#include "postgres.h"

#include "delivery/delivery.h"
#include "worker/shares.h"

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
	ShareSet	shares;			/* that have deliveries and are this process's by the
								 * setting */
	uint32		workers[WORKER_INDEX];	/* for each class, the numbers that have
										 * deliveries by the setting */
	bool		preparing;		/* some index is to be built */
	char	   *waiting_for;	/* why nothing is exported, or NULL */
} Workload;

extern void WorkloadInit(Workload *workload, WorkerClass class, HttpPool *pool);

/*
 * Reads the catalog again, and takes the shares that are this process's.  Deliveries
 * whose definition is the same go on; others are cancelled and start over from the
 * catalog.  Needs a transaction; an ERROR leaves everything as it was.
 */
extern void WorkloadReload(Workload *workload);

/*
 * Looks at the sequences and moves the horizons; records what it finds, if
 * that is this process's to do.  With "look" at
 * all of them, without it at those that something is still to be found out of.  Needs a
 * transaction.
 */
extern void RefreshPartitions(Workload *workload, TimestampTz now, bool look);

#endif							/* INCSINK_DEFINITIONS_H */
