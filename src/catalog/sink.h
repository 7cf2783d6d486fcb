/*
 * sink.h
 *		Sinks and what they export, as the catalog knows them.
 */
#ifndef INCSINK_SINK_CATALOG_H
#define INCSINK_SINK_CATALOG_H

#include "postgres.h"

#include "catalog/partition.h"
#include "common/options.h"
#include "common/token.h"
#include "nodes/pg_list.h"

typedef struct SinkDefinition
{
	int64		sink_id;
	char	   *name;
	char	   *kind;			/* "forward" or "blob" */
	char	   *url;
	char	   *credentials;	/* name of a foreign server, or NULL */
	Oid			owner;
	Jsonb	   *raw_options;
	SinkOptions *options;		/* NULL if they do not parse; then: */
	char	   *options_error;
	bool		enabled;
} SinkDefinition;

typedef struct SinkTable
{
	int64		sink_id;
	int64		partition_id;
	char	  **columns;		/* NULL = all */
	int			ncolumns;
	char	   *filter;			/* NULL = none */
	char	   *start;
	char	   *epoch;			/* for new intents */
	int			destinations;
} SinkTable;

/* All need an open SqlSession and allocate in "context". */
extern SinkDefinition *LoadSinkByName(const char *name, MemoryContext context); /* NULL if none */
extern List *LoadSinks(MemoryContext context);	/* of SinkDefinition */
extern List *LoadSinkTables(MemoryContext context); /* of SinkTable */

/*
 * Makes the sink_table_def row of (sink, partition), its epoch and its front in
 * incsink.watermark, in the caller's transaction, at the given position.  Called by
 * incsink_add_table and, for listed datasets, by incsink_attach.
 */
extern void AddSinkTable(int64 sink_id, int64 partition_id, char **columns, int ncolumns,
						 const char *filter, const char *start, Position position);

/*
 * Where "now" and "beginning" are: the horizon, behind the backlog; or before
 * everything.  An ERROR says what to do if the partition had rows that cannot be
 * read in order.
 */
extern Position StartPosition(const Partition *partition, const char *sink, const char *start,
							  int64 horizon);

/* Removes it with its watermarks, intents and states; false if there was none. */
extern bool RemoveSinkTable(int64 sink_id, int64 partition_id);

/* Adds a new partition to every sink that lists its dataset. */
extern void JoinDatasetSinks(int64 partition_id, const char *dataset);

/* Draws "<number>-<8 random hex digits>"; number goes up from that of "previous" (NULL = 1). */
extern char *DrawEpoch(const char *previous);

/* Lower-case hex digits of strong random bytes. */
extern char *RandomHex(int digits);

/*
 * Locks the sink_table_def row: whoever touches watermarks or intents does this
 * first.  With skip_locked false is returned when another holds it.  Also false
 * when there is no such row.
 */
extern bool LockSinkTable(int64 sink_id, int64 partition_id, bool skip_locked);

/*
 * The same for many rows, with skip_locked, in one statement: says which were locked, and
 * returns how many.
 */
extern int	TryLockSinkTables(const int64 *sink_ids, const int64 *partition_ids, int count,
							  bool *locked);

/* Tells workers of this database that definitions changed, at commit. */
extern void InvalidateDefinitions(void);

#endif							/* INCSINK_SINK_CATALOG_H */
