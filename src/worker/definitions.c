/*
 * definitions.c
 *		What a worker has to do: its partitions and deliveries, as defined now.
 */
#include "postgres.h"

#include "catalog/identity.h"
#include "common/settings.h"
#include "common/sql.h"
#include "common/worker_lock.h"
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
 * A promotion of this very server goes on by itself, under new epochs, which one
 * process draws; everything else that looks like a copy waits for
 * incsink_adopt_database().
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
			if (!records_partitions)
				return "the first worker has not yet drawn new epochs after the server's promotion";
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
		DeliveryRedefine(delivery, sink, table, run);
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
	ShareSet	shares;			/* of this process, with deliveries */
	ShareSet	held;			/* those of them that it has the lock of */
	uint32		workers[WORKER_INDEX];	/* with deliveries, by the setting */
} Definitions;

/* Kind of the sink of a delivery; NULL for one of a later release. */
static const SinkKind *
KindOf(const Definitions *definitions, const SinkTable *table)
{
	SinkDefinition *sink = FindSink(definitions->sinks, table->sink_id);

	return sink ? SinkKindByName(sink->kind) : NULL;
}

/* Who has something to do, and takes what is to be had of it here. */
static void
TakeShares(Definitions *definitions, WorkerClass class)
{
	ListCell   *cell;

	foreach(cell, definitions->tables)
	{
		SinkTable  *table = lfirst(cell);
		const SinkKind *kind = KindOf(definitions, table);
		int			share = ShareOf(table->sink_id, table->partition_id);

		if (kind == NULL)
			continue;
		definitions->workers[kind->class] |= 1 << WorkerOfShare(share);
		if (kind->class == class && ShareIsMine(share))
			definitions->shares |= SHARE_BIT(share);
	}
	definitions->held = WantShares(definitions->shares);
}

/* Is the delivery this process's? */
static bool
IsMine(const Definitions *definitions, const Workload *workload, const SinkTable *table)
{
	const SinkKind *kind = KindOf(definitions, table);
	int			share = ShareOf(table->sink_id, table->partition_id);

	return kind != NULL && kind->class == workload->class &&
		(definitions->held & SHARE_BIT(share)) != 0;
}

static void
ReadDefinitions(Definitions *definitions)
{
	SqlSession	session;

	memset(definitions, 0, sizeof(*definitions));
	definitions->context = AllocSetContextCreate(CurrentMemoryContext, "incsink definitions",
												 ALLOCSET_DEFAULT_SIZES);
	SqlBegin(&session);
	definitions->waiting_for = CheckIdentity();
	definitions->partitions = LoadPartitions(definitions->context);
	definitions->sinks = LoadSinks(definitions->context);
	definitions->tables = LoadSinkTables(definitions->context);
	SqlEnd(&session);
}

/* One process looks at all partitions; the others at those that they export. */
static bool
RunIsNeeded(const Definitions *definitions, const Workload *workload, int64 partition_id)
{
	ListCell   *cell;

	if (records_partitions)
		return true;
	foreach(cell, definitions->tables)
	{
		SinkTable  *table = lfirst(cell);

		if (table->partition_id == partition_id && IsMine(definitions, workload, table))
			return true;
	}
	return false;
}

static void
TakePartitions(Workload *workload, const Definitions *definitions)
{
	List	   *old_runs = workload->runs;
	ListCell   *cell;

	workload->runs = NIL;
	workload->preparing = false;
	foreach(cell, definitions->partitions)
	{
		Partition  *partition = lfirst(cell);

		if (!RunIsNeeded(definitions, workload, partition->partition_id))
			continue;
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
TakeDeliveries(Workload *workload, const Definitions *definitions)
{
	List	   *old = workload->deliveries;
	List	   *deliveries = NIL;
	ListCell   *cell;

	workload->deliveries = NIL;
	foreach(cell, definitions->tables)
	{
		SinkTable  *table = lfirst(cell);
		SinkDefinition *sink = FindSink(definitions->sinks, table->sink_id);
		PartitionRun *run;

		if (!IsMine(definitions, workload, table))
			continue;
		run = FindRun(workload->runs, table->partition_id);
		if (run != NULL)
			deliveries = lappend(deliveries, KeepOrMake(workload, &old, sink, table, run));
	}
	foreach(cell, old)
		DeliveryDestroy(lfirst(cell));
	list_free(old);
	workload->deliveries = deliveries;
}

static bool
HasRates(const SinkDefinition *sink)
{
	return sink->options != NULL &&
		(sink->options->max_rows_per_second > 0 || sink->options->max_bytes_per_second > 0);
}

/* A sink's rates are divided among the workers by the number of its deliveries there. */
static void
DividePaces(const Workload *workload, const Definitions *definitions)
{
	ListCell   *cell;

	foreach(cell, workload->deliveries)
	{
		Delivery   *delivery = lfirst(cell);
		ListCell   *other;
		int			count = 0;

		if (!HasRates(delivery->sink))
			continue;
		foreach(other, definitions->tables)
			if (((SinkTable *) lfirst(other))->sink_id == delivery->sink_id)
				count++;
		delivery->pace->deliveries = count;
	}
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
	TakeShares(&definitions, workload->class);
	MemoryContextSetParent(definitions.context, workload->context);
	old = MemoryContextSwitchTo(workload->context);
	workload->definitions = definitions.context;
	workload->waiting_for = definitions.waiting_for;
	workload->shares = definitions.shares;
	memcpy(workload->workers, definitions.workers, sizeof(workload->workers));
	TakePartitions(workload, &definitions);
	TakeDeliveries(workload, &definitions);
	DividePaces(workload, &definitions);
	FreeOldRuns(workload);
	ReleaseShares();
	if (old_definitions != NULL)
		MemoryContextDelete(old_definitions);
	MemoryContextSwitchTo(old);
}
