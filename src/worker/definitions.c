/*
 * definitions.c
 *		What a worker has to do: its partitions and deliveries, as defined now.
 */
#include "postgres.h"

#include "catalog/identity.h"
#include "common/settings.h"
#include "common/sql.h"
#include "utils/memutils.h"
#include "worker/definitions.h"

void
WorkloadInit(Workload *workload, WorkerClass class, HttpPool *pool)
{
	memset(workload, 0, sizeof(*workload));
	workload->class = class;
	workload->pool = pool;
	workload->context = AllocSetContextCreate(TopMemoryContext, "incsink workload",
											  ALLOCSET_DEFAULT_SIZES);
	workload->stale = true;
}

/*
 * A promotion of this very server goes on by itself, under new epochs; everything
 * else that looks like a copy waits for incsink_adopt_database().
 */
static char *
CheckIdentity(void)
{
	switch (CompareIdentity())
	{
		case IDENTITY_UNRECORDED:
		case IDENTITY_SAME:
			return NULL;
		case IDENTITY_NEW_TIMELINE:
			if (!shared->was_standby)
				return "the server is on another timeline than exports were confirmed for: call incsink_adopt_database()";
			AdoptDatabase();
			return NULL;
		case IDENTITY_OTHER:
			break;
	}
	return "this database is a copy or was restored, or incsink.instance was changed: call incsink_adopt_database() where exports are to go on";
}

static PartitionRun *
FindRun(List *runs, int64 partition_id)
{
	ListCell   *cell;

	foreach(cell, runs)
	{
		PartitionRun *run = lfirst(cell);

		if (run->partition->partition_id == partition_id)
			return run;
	}
	return NULL;
}

/* A tracker survives as long as the sequence is the same, in the same file. */
static PartitionRun *
MakeRun(Partition *partition, List *old_runs)
{
	PartitionRun *run = FindRun(old_runs, partition->partition_id);

	if (run == NULL || run->tracker.sequence != partition->sequence ||
		run->partition->sequence_relfilenode != partition->sequence_relfilenode)
	{
		if (run != NULL)
			HorizonTrackerReset(&run->tracker);
		else
			run = palloc0(sizeof(PartitionRun));
		HorizonTrackerInit(&run->tracker, partition->sequence, 0, CurrentMemoryContext);
		run->last_drawn = -1;
	}
	run->partition = partition;
	run->checked_at = 0;
	return run;
}

static Delivery *
FindDelivery(List *deliveries, int64 sink_id, int64 partition_id)
{
	ListCell   *cell;

	foreach(cell, deliveries)
	{
		Delivery   *delivery = lfirst(cell);

		if (delivery->sink_id == sink_id && delivery->partition_id == partition_id)
			return delivery;
	}
	return NULL;
}

/*
 * A delivery with something in flight under the same definition goes on; one at
 * rest will read its state again, so that incsink_resume_sink() ends a halt.
 */
static Delivery *
KeepOrMake(Workload *workload, List **old, SinkDefinition *sink, SinkTable *table,
		   PartitionRun *run)
{
	Delivery   *delivery = FindDelivery(*old, table->sink_id, table->partition_id);
	MemoryContext context = MemoryContextSwitchTo(workload->definitions);
	char	   *fingerprint = DeliveryFingerprint(sink, table);

	MemoryContextSwitchTo(context);
	if (delivery != NULL && strcmp(delivery->fingerprint, fingerprint) == 0)
	{
		*old = list_delete_ptr(*old, delivery);
		delivery->sink = sink;
		delivery->table = table;
		delivery->run = run;
		delivery->status.enabled = sink->enabled;
		if (!delivery->status.in_flight && !delivery->status.acknowledged && !delivery->record_due)
			delivery->reload_due = true;
		return delivery;
	}
	return DeliveryCreate(sink, table, run, SinkKindByName(sink->kind), workload->pool);
}

static SinkDefinition *
FindSink(List *sinks, int64 sink_id)
{
	ListCell   *cell;

	foreach(cell, sinks)
	{
		SinkDefinition *sink = lfirst(cell);

		if (sink->sink_id == sink_id)
			return sink;
	}
	return NULL;
}

/* What the catalog says, in a context of its own. */
typedef struct Definitions
{
	MemoryContext context;
	char	   *waiting_for;
	List	   *partitions;
	List	   *sinks;
	List	   *tables;
} Definitions;

static void
ReadDefinitions(Definitions *definitions)
{
	SqlSession	session;

	definitions->context = AllocSetContextCreate(CurrentMemoryContext, "incsink definitions",
												 ALLOCSET_DEFAULT_SIZES);
	SqlBegin(&session);
	definitions->waiting_for = CheckIdentity();
	definitions->partitions = LoadPartitions(definitions->context);
	definitions->sinks = LoadSinks(definitions->context);
	definitions->tables = LoadSinkTables(definitions->context);
	SqlEnd(&session);
}

static void
TakePartitions(Workload *workload, List *partitions)
{
	List	   *old_runs = workload->runs;
	ListCell   *cell;

	workload->runs = NIL;
	workload->preparing = false;
	foreach(cell, partitions)
	{
		Partition  *partition = lfirst(cell);

		workload->runs = lappend(workload->runs, MakeRun(partition, old_runs));
		if (partition->preparing && OidIsValid(partition->relid))
			workload->preparing = true;
	}
	workload->old_runs = old_runs;
}

/* Once no delivery points to them any more. */
static void
FreeOldRuns(Workload *workload)
{
	ListCell   *cell;

	foreach(cell, workload->old_runs)
	{
		PartitionRun *run = lfirst(cell);

		if (list_member_ptr(workload->runs, run))
			continue;
		HorizonTrackerReset(&run->tracker);
		pfree(run);
	}
	list_free(workload->old_runs);
	workload->old_runs = NIL;
}

static void
TakeDeliveries(Workload *workload, List *sinks, List *tables)
{
	List	   *old = workload->deliveries;
	List	   *deliveries = NIL;
	ListCell   *cell;

	workload->deliveries = NIL;
	workload->blob_sinks = false;
	foreach(cell, tables)
	{
		SinkTable  *table = lfirst(cell);
		SinkDefinition *sink = FindSink(sinks, table->sink_id);
		PartitionRun *run = FindRun(workload->runs, table->partition_id);
		const SinkKind *kind = sink ? SinkKindByName(sink->kind) : NULL;

		if (kind == NULL || run == NULL)
			continue;
		if (kind->class == workload->class)
			deliveries = lappend(deliveries, KeepOrMake(workload, &old, sink, table, run));
		else if (kind->class == WORKER_BLOB)
			workload->blob_sinks = true;
	}
	foreach(cell, old)
		DeliveryDestroy(lfirst(cell));
	list_free(old);
	workload->deliveries = deliveries;
}

/*
 * Everything that can fail is done before anything is replaced: an ERROR leaves the
 * workload as it was.
 */
void
WorkloadReload(Workload *workload)
{
	Definitions definitions;
	MemoryContext old_definitions = workload->definitions;
	MemoryContext old;

	ReadDefinitions(&definitions);
	MemoryContextSetParent(definitions.context, workload->context);
	old = MemoryContextSwitchTo(workload->context);
	workload->definitions = definitions.context;
	workload->waiting_for = definitions.waiting_for;
	TakePartitions(workload, definitions.partitions);
	TakeDeliveries(workload, definitions.sinks, definitions.tables);
	FreeOldRuns(workload);
	if (old_definitions != NULL)
		MemoryContextDelete(old_definitions);
	MemoryContextSwitchTo(old);
}
