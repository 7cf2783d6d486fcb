/*
 * confirm.c
 *		Taking a sequence that was restarted or altered for good again.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/genam.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cache/attach.h"
#include "cache/columns.h"
#include "cache/horizon.h"
#include "cache/integrity.h"
#include "cache/seq_column.h"
#include "cache/seq_index.h"
#include "cache/storage.h"
#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/compat.h"
#include "common/shared.h"
#include "common/sql.h"

static void
RaiseNoSequence(Relation rel, const Partition *partition)
{
	bool		by_default = partition->tree && !TREE_HAS_IDENTITY;

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 by_default ?
			 errmsg("column \"%s\" of table \"%s\" has no sequence for its default any more",
					partition->seq_column, RelationDisplayName(rel)) :
			 errmsg("column \"%s\" of table \"%s\" is not an identity column any more",
					partition->seq_column, RelationDisplayName(rel)),
			 by_default ?
			 errhint("Create one, OWNED BY the column, grant USAGE on it to those who insert, and run: ALTER TABLE %s ALTER COLUMN %s SET DEFAULT nextval('...');",
					 QuotedRelationName(partition->relid), quote_identifier(partition->seq_column)) :
			 errhint("Run: ALTER TABLE %s ALTER COLUMN %s ADD GENERATED ALWAYS AS IDENTITY;",
					 QuotedRelationName(partition->relid), quote_identifier(partition->seq_column))));
}

/*
 * The seq column's present sequence, which may be another than the one on record,
 * in *sequence.  Raises an ERROR for what a confirmation does not mend.
 */
static AttrNumber
FindSequence(Relation rel, const Partition *partition, Oid *sequence)
{
	AttrNumber	attnum = SeqAttribute(rel, partition);

	*sequence = SeqColumnSequence(rel, attnum);
	if (!OidIsValid(*sequence))
		RaiseNoSequence(rel, partition);
	return attnum;
}

/*
 * Reads the whole relation, with a snapshot of now.  Needs an open SqlSession, whose
 * role no policy stops.
 */
static int64
ScanForHighest(Relation rel, AttrNumber attnum)
{
	const char *column = quote_identifier(get_attname(RelationGetRelid(rel), attnum, false));
	char	   *query = psprintf("SELECT pg_catalog.max(%s) FROM ONLY %s", column,
								 QuotedRelationName(RelationGetRelid(rel)));
	MemoryContext context = CurrentMemoryContext;
	SPIPlanPtr	plan = SPI_prepare(query, 0, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64		highest;

	if (plan == NULL ||
		SPI_execute_snapshot(plan, NULL, NULL, snapshot, InvalidSnapshot, true, false, 0) < 0)
		elog(ERROR, "statement failed: %s", query);
	highest = SqlGetInt8(0, 1);
	UnregisterSnapshot(snapshot);
	MemoryContextSwitchTo(context);
	return highest;
}

/*
 * The highest number in the relation; 0 without rows.  Where there is no index yet,
 * because the partition is preparing, a scan must find it: CheckPartition() does not
 * miss the index then.  Otherwise 0 without one.
 */
static int64
HighestInRelation(Relation rel, const Partition *partition, AttrNumber attnum)
{
	SeqIndex	index;
	int64		highest = 0;

	if (FindSeqIndex(RelationGetRelid(rel), attnum, partition->tree, &index))
	{
		if (!SeqIndexBound(rel, &index, attnum, false, &highest))
			return 0;
	}
	else if (partition->preparing)
		highest = ScanForHighest(rel, attnum);
	return Max(highest, 0);
}

static int64
HighestInTable(Relation rel, const Partition *partition, AttrNumber attnum)
{
	int64		highest = 0;
	ListCell   *cell;

	if (!partition->tree)
		return HighestInRelation(rel, partition, attnum);
	foreach(cell, ListTreeLeaves(RelationGetRelid(rel)))
	{
		Relation	leaf = relation_open(lfirst_oid(cell), AccessShareLock);

		highest = Max(highest, HighestInRelation(leaf, partition, get_attnum(lfirst_oid(cell), partition->seq_column)));
		relation_close(leaf, NoLock);
	}
	return highest;
}

/*
 * The lock on the sequence keeps everybody from drawing, and waits for those who
 * have drawn: so all rows that carry a number are visible or gone.
 */
void
ConfirmSequence(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	int			nest_level = NewGUCNestLevel();
	SqlSession	session;
	Partition  *partition;
	Relation	rel;
	AttrNumber	attnum;
	SequenceReading reading;
	char	   *error;
	char	   *hint;

	RequireOwner(relid);
	LimitLockWait();
	rel = relation_open(relid, AccessShareLock);
	SqlBegin(&session);
	partition = RequirePartition(relid, context);
	attnum = FindSequence(rel, partition, &partition->sequence);
	LockRelationOid(partition->sequence, ShareRowExclusiveLock);
	(void) RefreshPartitionState(partition);
	if (!ReadSequence(partition->sequence, &reading))
		elog(ERROR, "could not read sequence %u", partition->sequence);
	partition->highest_seq = Max(Max(partition->highest_seq, reading.last_drawn),
								 Max(HighestPosition(partition->partition_id),
									 HighestInTable(rel, partition, attnum)));
	if (reading.last_drawn < partition->highest_seq)
		SqlRun("SELECT setval($1, $2, true)", SqlOid(partition->sequence),
			   SqlInt8(partition->highest_seq));
	partition->sequence_relfilenode = reading.relfilenode;
	reading.last_drawn = partition->highest_seq;
	if (!CheckPartition(partition, &reading, 0, &error, &hint))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s", error),
				 errhint("%s", hint)));
	RecordSequence(partition);
	RecordPartitionError(partition->partition_id, NULL, NULL);
	DrawTag(partition->partition_id);
	ForgetPublishedHorizon(partition->partition_id);
	InvalidateDefinitions();
	SqlEnd(&session);
	relation_close(rel, NoLock);
	NoteWakeup();
	AtEOXact_GUC(true, nest_level);
	ereport(WARNING,
			(errmsg("the sequence of table \"%s.%s\" is confirmed and goes on above " INT64_FORMAT,
					partition->schema_name, partition->table_name, partition->highest_seq),
			 errdetail("Rows that took lower numbers after a restart are not exported by sinks that had passed these numbers."),
			 errhint("If there are such rows, insert them again.")));
}
