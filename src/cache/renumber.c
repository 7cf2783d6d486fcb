/*
 * renumber.c
 *		Numbers for rows that have none, or wrong ones.
 *
 * Every range of blocks is a transaction of its own, so that no lock is held for
 * long and a call that is broken off keeps what it did.  Rows that others have locked
 * are passed over and tried again; rows that others move meanwhile are found by the
 * next pass.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "cache/attach.h"
#include "cache/horizon.h"
#include "cache/renumber.h"
#include "cache/renumber_backlog.h"
#include "cache/storage.h"
#include "cache/subscription.h"
#include "cache/tree.h"
#include "catalog/partition.h"
#include "common/inject.h"
#include "common/shared.h"
#include "common/sql.h"

#define SAY_EVERY_MS 10000
#define BUSY_PAUSE_MS 1000
#define BUSY_LIMIT_MS 60000		/* without a single row that could be numbered */
#define WIDEST_RANGE 16384		/* blocks: 128 MB are looked at in a moment */

/* Which rows of a relation get a new number. */
typedef struct Selection
{
	bool		zeros;			/* those without one */
	int64		above;			/* and those above this one, ... */
	int64		upto;			/* ... up to this one; both 0: none of these */
} Selection;

/* One call; lives through the commits in between. */
typedef struct Renumbering
{
	Oid			called_for;
	bool		every_row;
	int			batch_rows;
	Partition  *partition;
	bool		zeros;			/* rows without a number get one */
	int64		start_seq;		/* S when the call began */
	List	   *leaves;			/* of Leaf, of a tree */

	/* the relation at hand */
	Oid			relid;
	Selection	selection;
	BlockNumber nblocks;
	BlockNumber width;			/* of the next range */
	int			pass;

	int64		numbered;		/* in all */
	TimestampTz said_at;
	TimestampTz moved_at;		/* when a row was numbered last */
} Renumbering;

/* What was found and done in a range, or in several. */
typedef struct Outcome
{
	int64		found;
	int64		numbered;
	bool		too_many;		/* nothing was done: take a narrower range */
} Outcome;

typedef struct BlockRange
{
	BlockNumber first;
	BlockNumber end;			/* exclusive */
} BlockRange;

/*
 * READ COMMITTED, whatever the session's default: a row that somebody has changed is
 * no error.  May be set before the first snapshot only.
 */
static void
CommitAndGoOn(void)
{
	INCSINK_POINT("renumber-before-commit");
	SPI_commit();
	(void) set_config_option("transaction_isolation", "read committed", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/* The partition of the table, or of the tree that it is a part of. */
static Partition *
FindPartition(Oid relid, MemoryContext context)
{
	Partition  *partition = LoadPartitionByRelation(relid, context);
	Oid			root;

	if (partition == NULL && get_rel_relispartition(relid))
	{
		root = AttachedRoot(relid);
		if (OidIsValid(root))
			partition = LoadPartitionByRelation(root, context);
	}
	return partition ? partition : RequirePartition(relid, context);
}

/* References would go on to point at numbers that are gone: nothing checks them here. */
static void
RefuseReferenced(const Partition *partition)
{
	if (!partition->adopted ||
		SqlRun("SELECT c.conname, c.conrelid FROM pg_catalog.pg_constraint c"
			   " JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = ANY (c.confkey)"
			   " WHERE c.contype = 'f' AND c.confrelid = $1 AND a.attname = $2 LIMIT 1",
			   SqlOid(partition->relid), SqlName(partition->seq_column)) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot renumber \"%s.%s\" because its column \"%s\" is referenced",
					partition->schema_name, partition->table_name, partition->seq_column),
			 errdetail("Foreign key \"%s\" of table %s refers to it.",
					   SqlGetText(0, 1, CurrentMemoryContext),
					   QuotedRelationName(SqlGetOid(0, 2))),
			 errhint("Give the rows new numbers yourself, and those that refer to them: UPDATE ... SET %s = DEFAULT.",
					 quote_identifier(partition->seq_column))));
}

/* Waits for a TRUNCATE ... RESTART IDENTITY that holds it. */
static int64
ReadLastDrawn(const Renumbering *renumbering)
{
	SequenceReading reading;

	LockRelationOid(renumbering->partition->sequence, AccessShareLock);
	if (!ReadSequence(renumbering->partition->sequence, &reading))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the sequence of table \"%s.%s\" is gone",
						renumbering->partition->schema_name, renumbering->partition->table_name),
				 errhint("SELECT error, hint FROM incsink.partitions says what to do.")));
	return reading.last_drawn;
}

static Renumbering *
BeginRenumbering(Oid relid, bool every_row, int batch_rows)
{
	MemoryContext context = CurrentMemoryContext;
	Renumbering *renumbering = palloc0(sizeof(Renumbering));
	SqlSession	session;

	renumbering->called_for = relid;
	renumbering->every_row = every_row;
	renumbering->batch_rows = batch_rows;
	renumbering->width = Max(batch_rows / 64, 1);
	renumbering->said_at = renumbering->moved_at = GetCurrentTimestamp();
	SqlBegin(&session);
	renumbering->partition = FindPartition(relid, context);
	RefuseReferenced(renumbering->partition);
	SqlEnd(&session);
	renumbering->start_seq = ReadLastDrawn(renumbering);
	renumbering->zeros = TakeBacklog(renumbering->partition, relid, every_row);
	if (renumbering->partition->tree)
		renumbering->leaves = LoadLeaves(renumbering->partition->partition_id);
	return renumbering;
}

/* The leaf on record; NULL for one that joined unseen. */
static Leaf *
FindLeaf(const Renumbering *renumbering, Oid relid)
{
	ListCell   *cell;

	foreach(cell, renumbering->leaves)
	{
		Leaf	   *leaf = lfirst(cell);

		if (leaf->relid == relid)
			return leaf;
	}
	return NULL;
}

static bool
IsKnown(const Renumbering *renumbering, Oid relid)
{
	Leaf	   *leaf;

	if (!renumbering->partition->tree)
		return true;
	leaf = FindLeaf(renumbering, relid);
	return leaf != NULL && !leaf->left;
}

/*
 * Nothing of a leaf that joined unseen was ever read, so all of its rows may get new
 * numbers; of one that came back, those that it did not have when it left.
 */
static Selection
SelectRows(const Renumbering *renumbering, Oid relid)
{
	Selection	selection = {.zeros = renumbering->zeros};
	Leaf	   *leaf = FindLeaf(renumbering, relid);

	if (renumbering->every_row || !IsKnown(renumbering, relid))
	{
		selection.upto = renumbering->start_seq;
		if (leaf && leaf->left && !renumbering->every_row)
			selection.above = leaf->left_at_seq;
		else
			selection.zeros = true;
	}
	return selection;
}

/* The condition for "last_drawn" as it is now: numbers above it came from elsewhere. */
static char *
SelectionCondition(const Renumbering *renumbering, int64 last_drawn)
{
	const char *column = quote_identifier(renumbering->partition->seq_column);
	const Selection *selection = &renumbering->selection;
	char	   *condition = psprintf("%s OPERATOR(pg_catalog.<) %d OR %s OPERATOR(pg_catalog.>) '" INT64_FORMAT "'::pg_catalog.int8",
									 column, selection->zeros ? 1 : 0, column, last_drawn);

	if (selection->upto > selection->above)
		condition = psprintf("%s OR %s OPERATOR(pg_catalog.>) '" INT64_FORMAT "'::pg_catalog.int8"
							 " AND %s OPERATOR(pg_catalog.<=) '" INT64_FORMAT "'::pg_catalog.int8",
							 condition, column, selection->above, column, selection->upto);
	return condition;
}

/* A leaf may lack the default, where the tree has no identity (before 17). */
static char *
NewNumber(const Renumbering *renumbering)
{
	AttrNumber	attnum = get_attnum(renumbering->relid, renumbering->partition->seq_column);
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(renumbering->relid),
										Int16GetDatum(attnum));
	char		identity;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table %s does not exist any more",
						renumbering->partition->seq_column, QuotedRelationName(renumbering->relid))));
	identity = ((Form_pg_attribute) GETSTRUCT(tuple))->attidentity;
	ReleaseSysCache(tuple);
	if (identity != '\0')
		return pstrdup("DEFAULT");
	return psprintf("pg_catalog.nextval('%u'::pg_catalog.oid::pg_catalog.regclass)",
					renumbering->partition->sequence);
}

static char *
RangeCondition(BlockRange range, const char *condition)
{
	return psprintf("ctid OPERATOR(pg_catalog.>=) '(%u,0)'::pg_catalog.tid"
					" AND ctid OPERATOR(pg_catalog.<) '(%u,0)'::pg_catalog.tid AND (%s)",
					range.first, range.end, condition);
}

static int64
RunWithSnapshot(const char *query, Snapshot snapshot, bool count)
{
	SPIPlanPtr	plan = SPI_prepare(query, 0, NULL);
	bool		isnull;

	if (plan == NULL ||
		SPI_execute_snapshot(plan, NULL, NULL, snapshot, InvalidSnapshot, false, true, 0) < 0)
		elog(ERROR, "statement failed: %s", query);
	if (!count)
		return SPI_processed;
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * Both statements and the reading of the sequence belong to one snapshot, taken before
 * the reading: whatever number a row in it drew is then at or below what was read.
 */
static Outcome
NumberRows(const Renumbering *renumbering, BlockRange range)
{
	char	   *table = QuotedRelationName(renumbering->relid);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	char	   *where = RangeCondition(range, SelectionCondition(renumbering, ReadLastDrawn(renumbering)));
	Outcome		outcome = {0};

	outcome.found = RunWithSnapshot(psprintf("SELECT pg_catalog.count(*) FROM ONLY %s WHERE %s", table, where),
									snapshot, true);
	outcome.too_many = outcome.found > 2 * (int64) renumbering->batch_rows && range.end - range.first > 1;
	if (outcome.found > 0 && !outcome.too_many)
		outcome.numbered =
			RunWithSnapshot(psprintf("UPDATE ONLY %s SET %s = %s WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
									 "SELECT ctid FROM ONLY %s WHERE %s FOR UPDATE SKIP LOCKED))",
									 table, quote_identifier(renumbering->partition->seq_column),
									 NewNumber(renumbering), table, where),
							snapshot, false);
	UnregisterSnapshot(snapshot);
	return outcome;
}

/*
 * Users' triggers and rules stay out of it, policies are an error and not a silent
 * subset, and no plan scans the table once for every range.
 */
static void
SetForNumbering(void)
{
	static const char *const settings[][2] = {
		{"session_replication_role", "replica"},
		{"row_security", "off"},
		{"enable_tidscan", "on"},
	};

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* As the table's owner, like VACUUM: expressions of its indexes are the owner's code. */
static Outcome
NumberRowsAsOwner(const Renumbering *renumbering, Oid owner, BlockRange range)
{
	int			nest_level = NewGUCNestLevel();
	Oid			user;
	int			context;
	Outcome		outcome = {0};

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(owner, context | SECURITY_RESTRICTED_OPERATION);
	SetForNumbering();
	LetNewNumbersPass(true);
	PG_TRY();
	{
		if (SPI_connect() != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect failed");
		outcome = NumberRows(renumbering, range);
		if (SPI_finish() != SPI_OK_FINISH)
			elog(ERROR, "SPI_finish failed");
	}
	PG_FINALLY();
	{
		LetNewNumbersPass(false);
	}
	PG_END_TRY();
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(user, context);
	return outcome;
}

/*
 * Locks the relation, then the definition: so that a detach, which does it in the same
 * order, comes before or after the range, and a second call for the table, whose
 * numbers this one would take for foreign, takes turns with this one.
 * InvalidOid as owner: the relation is gone.
 */
static Oid
LockForRange(const Renumbering *renumbering)
{
	SqlSession	session;
	HeapTuple	tuple;
	Oid			owner = InvalidOid;

	LockRelationOid(renumbering->relid, RowExclusiveLock);
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(renumbering->relid));
	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	SqlBegin(&session);
	if (SqlRun("SELECT FROM incsink.partition_def WHERE partition_id = $1 FOR UPDATE",
			   SqlInt8(renumbering->partition->partition_id)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s.%s\" was detached meanwhile",
						renumbering->partition->schema_name, renumbering->partition->table_name)));
	SqlEnd(&session);
	return owner;
}

/* One transaction. */
static Outcome
NumberRange(Renumbering *renumbering, BlockRange range)
{
	Oid			owner = LockForRange(renumbering);
	Outcome		outcome = {0};

	if (OidIsValid(owner))
		outcome = NumberRowsAsOwner(renumbering, owner, range);
	if (outcome.numbered > 0)
	{
		renumbering->numbered += outcome.numbered;
		renumbering->moved_at = GetCurrentTimestamp();
		NoteWakeup();
	}
	CommitAndGoOn();
	return outcome;
}

static void
SayProgress(Renumbering *renumbering, BlockNumber block)
{
	TimestampTz now = GetCurrentTimestamp();
	char	   *name = get_rel_name(renumbering->relid);

	if (name == NULL || !TimestampDifferenceExceeds(renumbering->said_at, now, SAY_EVERY_MS))
		return;
	renumbering->said_at = now;
	ereport(INFO,
			(errmsg("renumbering \"%s\": pass %d at block %u of %u, " INT64_FORMAT " rows have new numbers",
					name, renumbering->pass, block, renumbering->nblocks, renumbering->numbered)));
}

/* Ranges as wide as batch_rows rows need. */
static void
AdaptWidth(Renumbering *renumbering, const Outcome *outcome)
{
	if (outcome->too_many || outcome->found > renumbering->batch_rows)
		renumbering->width = Max(renumbering->width / 2, 1);
	else if (outcome->found < renumbering->batch_rows / 2)
		renumbering->width = Min(renumbering->width * 2, WIDEST_RANGE);
}

/* Between two passes, if rows were locked. */
static void
PauseForBusy(const Renumbering *renumbering)
{
	if (TimestampDifferenceExceeds(renumbering->moved_at, GetCurrentTimestamp(), BUSY_LIMIT_MS))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("rows of table %s are locked by other transactions",
						QuotedRelationName(renumbering->relid)),
				 errdetail("All others have numbers. Those " INT64_FORMAT " that got new ones keep them.",
						   renumbering->numbered),
				 errhint("Call incsink_renumber() again when these transactions have ended; a trigger that is ENABLE ALWAYS must not suppress updates.")));
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, BUSY_PAUSE_MS,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static BlockNumber
CountBlocks(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	BlockNumber nblocks = 0;

	if (rel == NULL)
		return 0;
	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		nblocks = RelationGetNumberOfBlocks(rel);
	relation_close(rel, AccessShareLock);
	return nblocks;
}

/* Over all blocks that there are now: rows that others move meanwhile may be missed. */
static Outcome
NumberPass(Renumbering *renumbering)
{
	BlockRange	range = {0, 0};
	Outcome		sum = {0};

	renumbering->pass++;
	renumbering->nblocks = CountBlocks(renumbering->relid);
	while (range.first < renumbering->nblocks)
	{
		Outcome		outcome;

		CHECK_FOR_INTERRUPTS();
		SayProgress(renumbering, range.first);
		range.end = range.first + Min(renumbering->width, renumbering->nblocks - range.first);
		outcome = NumberRange(renumbering, range);
		AdaptWidth(renumbering, &outcome);
		if (outcome.too_many)
			continue;
		sum.found += outcome.found;
		sum.numbered += outcome.numbered;
		range.first = range.end;
	}
	return sum;
}

/* Passes until one finds nothing. */
static void
NumberAllRows(Renumbering *renumbering)
{
	Outcome		outcome;

	renumbering->pass = 0;
	renumbering->moved_at = GetCurrentTimestamp();
	while ((outcome = NumberPass(renumbering)).found > 0)
		if (outcome.numbered < outcome.found)
			PauseForBusy(renumbering);
}

/* On record first: the event trigger refuses changes of a leaf that is not. */
static void
TakeLeafIn(const Renumbering *renumbering, Oid relid)
{
	int			nest_level = NewGUCNestLevel();

	LimitLockWait();
	AcceptLeaf(renumbering->partition->partition_id, relid);
	SetLeafDefault(renumbering->partition, relid);
	AtEOXact_GUC(false, nest_level);
}

static void
NumberRelation(Renumbering *renumbering, Oid relid)
{
	bool		known = IsKnown(renumbering, relid);

	renumbering->relid = relid;
	renumbering->selection = SelectRows(renumbering, relid);
	NumberAllRows(renumbering);
	if (!known && get_rel_name(relid) != NULL)
		TakeLeafIn(renumbering, relid);
	CommitAndGoOn();
}

static void
SayEveryRow(const Renumbering *renumbering)
{
	if (renumbering->every_row)
		ereport(NOTICE,
				(errmsg("all rows of table %s get new numbers",
						QuotedRelationName(renumbering->called_for)),
				 errdetail("Sinks and readers get them again, as new rows.")));
	else if (!renumbering->zeros && renumbering->partition->backlog != NULL)
		ereport(NOTICE,
				(errmsg("rows that table %s had when it was attached keep their place",
						QuotedRelationName(renumbering->called_for)),
				 errdetail("They have no number and are exported in the order of their key; some were exported already."),
				 errhint("To export them again, as new rows, pass every_row => true.")));
}

void
RenumberTable(Oid relid, bool every_row, int batch_rows)
{
	Renumbering *renumbering;
	List	   *relations;
	ListCell   *cell;

	RequireCatalog(2);
	RequireOwner(relid);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	CommitAndGoOn();
	renumbering = BeginRenumbering(relid, every_row, batch_rows);
	SayEveryRow(renumbering);
	relations = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ?
		ListTreeLeaves(relid) : list_make1_oid(relid);
	CommitAndGoOn();
	foreach(cell, relations)
		NumberRelation(renumbering, lfirst_oid(cell));
	if (renumbering->zeros && relid == renumbering->partition->relid)
		NoteNumberedRows(renumbering->partition);
	ereport(NOTICE,
			(errmsg(INT64_FORMAT " rows have new numbers", renumbering->numbered)));
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
}
