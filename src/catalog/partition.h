/*
 * partition.h
 *		Attached tables as the catalog knows them.
 */
#ifndef INCSINK_PARTITION_H
#define INCSINK_PARTITION_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/*
 * Rows that the table, or the leaves of a partitioned one, had when it was attached:
 * they have number 0 and are read in the order of a unique index.
 */
typedef struct Backlog
{
	char	  **key_columns;
	char	  **key_types;		/* of each, with its collation: DescribeKeyType() */
	int			nkeys;
	Jsonb	   *last_key;		/* highest key at attach */
	int64		row_estimate;
} Backlog;

typedef struct Partition
{
	int64		partition_id;
	char	   *dataset;
	char	   *source;
	char	   *schema_name;	/* as of attach or the last turn; for messages */
	char	   *table_name;
	char	   *seq_column;		/* "ingest_seq" or the adopted column */
	bool		adopted;
	bool		had_rows;		/* has rows with ingest_seq = 0 */
	Backlog    *backlog;		/* how these rows are read; NULL: they are not */
	bool		tree;			/* partitioned: its leaves hold the rows */
	bool		preparing;		/* its index on the numbers is being built */
	char	   *tag;			/* the one in force, for new tokens */
	Oid			relid;			/* InvalidOid: not bound in this database */
	Oid			sequence;
	Oid			sequence_relfilenode;
	int64		highest_seq;	/* highest S ever seen */
	int64		recorded_horizon;
	TimestampTz recorded_at;
	char	   *error;			/* integrity failure found by a turn, or NULL */
	char	   *hint;
} Partition;

/* All need an open SqlSession and allocate in "context". */
extern Partition *LoadPartition(int64 partition_id, MemoryContext context);
extern Partition *LoadPartitionByRelation(Oid relid, MemoryContext context);
extern List *LoadPartitions(MemoryContext context);

/* Records what a turn found; no change, no WAL. */
extern void RecordHorizon(const Partition *partition, int64 horizon, int64 highest_seq);
extern void RecordPartitionError(int64 partition_id, const char *error, const char *hint);

/* NULL if the pair is free. */
extern Partition *LoadPartitionByName(const char *dataset, const char *source, MemoryContext context);

/*
 * Records the names that the table and its leaves have now:
 * after a restore they are found by name.  Waits for nobody.
 */
extern void RefreshNames(const Partition *partition);

/*
 * Reads what TRUNCATE and turns change (incarnation of the sequence, highest seq,
 * recorded horizon) as it is now, whatever the isolation level.  False if the
 * partition is gone.  Needs no SqlSession.
 */
extern bool RefreshPartitionState(Partition *partition);

/* Puts a new tag in force and returns it. */
extern char *DrawTag(int64 partition_id);
/* False if the partition never had the tag; *last_horizon counts for one not in force. */
extern bool FindTag(int64 partition_id, const char *tag, bool *in_force, int64 *last_horizon);

/*
 * Attach and detach.  InsertPartition() fills partition_id and tag, and stores
 * backlog and preparing, too.
 */
extern void InsertPartition(Partition *partition, Jsonb *options);
extern void DeletePartition(int64 partition_id);

/*
 * Finds the tables of partitions that are not bound in this database, by name: a
 * dump carries the definitions and the tables, but no OIDs.
 */
extern void BindPartitions(void);

/* Records sequence, relfilenode and, if it is higher, highest_seq. */
extern void RecordSequence(const Partition *partition);

/* The index is built: the partition is not preparing any more. */
extern void FinishIndexTask(int64 partition_id);

/* The highest seq of all watermarks and intents of the partition. */
extern int64 HighestPosition(int64 partition_id);

#endif							/* INCSINK_PARTITION_H */
