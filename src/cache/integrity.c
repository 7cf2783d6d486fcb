/*
 * integrity.c
 *		Is a partition still what its positions were given out for?
 *
 * A sequence that was set back gives out numbers again: rows that take them stand
 * below watermarks and tokens and would never be seen.  A restart that was filled
 * again beyond the old numbers shows in none of them, only in the sequence's file,
 * which every RESTART and ALTER SEQUENCE replaces (commands/sequence.c,
 * AlterSequence and ResetSequence).  setval() keeps the file; there S tells.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "cache/integrity.h"
#include "cache/seq_index.h"

/* What a check found; both NULL while all is well. */
typedef struct Finding
{
	char	   *error;
	char	   *hint;
} Finding;

/* Names as they are now: the table may have been renamed since they were recorded. */
static void
NamesNow(const Partition *partition, const char **schema, const char **table)
{
	*table = get_rel_name(partition->relid);
	*schema = *table ? get_namespace_name(get_rel_namespace(partition->relid)) : NULL;
	if (*schema == NULL)
	{
		*schema = partition->schema_name;
		*table = partition->table_name;
	}
}

char *
QuotedTableName(const Partition *partition)
{
	const char *schema;
	const char *table;

	NamesNow(partition, &schema, &table);
	return quote_qualified_identifier(schema, table);
}

/* The same without quotes, for messages. */
static char *
TableName(const Partition *partition)
{
	const char *schema;
	const char *table;

	NamesNow(partition, &schema, &table);
	return psprintf("%s.%s", schema, table);
}

/* The same as a string literal, for regclass arguments. */
static char *
TableLiteral(const Partition *partition)
{
	return quote_literal_cstr(QuotedTableName(partition));
}

static bool
TableIsSound(const Partition *partition, Finding *finding)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(partition->relid));
	char		persistence;

	if (!HeapTupleIsValid(tuple))
	{
		finding->error = psprintf("table \"%s\" does not exist any more",
								  TableName(partition));
		finding->hint = psprintf("If it was dropped for good, run: SELECT incsink_forget_partition(%s, %s);",
								 quote_literal_cstr(partition->dataset),
								 quote_literal_cstr(partition->source));
		return false;
	}
	persistence = ((Form_pg_class) GETSTRUCT(tuple))->relpersistence;
	ReleaseSysCache(tuple);
	if (persistence != RELPERSISTENCE_PERMANENT)
	{
		finding->error = psprintf("table \"%s\" is not logged any more: its sequence restarts after a crash",
								  TableName(partition));
		finding->hint = psprintf("Run: ALTER TABLE %s SET LOGGED; then: SELECT incsink_confirm_sequence(%s);",
								 QuotedTableName(partition), TableLiteral(partition));
		return false;
	}
	return true;
}

/* Is the seq column there, and is it still fed by the sequence that was recorded? */
static bool
ColumnIsSound(const Partition *partition, AttrNumber *attnum, Finding *finding)
{
	Oid			owner;
	int32		column;
	HeapTuple	tuple;
	char		identity;

	*attnum = get_attnum(partition->relid, partition->seq_column);
	if (*attnum <= 0)
	{
		finding->error = psprintf("column \"%s\" of table \"%s\" does not exist any more",
								  partition->seq_column, TableName(partition));
		finding->hint = psprintf("If it was renamed, rename it back; if it was dropped, run: SELECT incsink_detach(%s, force => true); and attach the table again.",
								 TableLiteral(partition));
		return false;
	}
	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(partition->relid), Int16GetDatum(*attnum));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for attribute %d of relation %u", *attnum, partition->relid);
	identity = ((Form_pg_attribute) GETSTRUCT(tuple))->attidentity;
	ReleaseSysCache(tuple);
	if (identity != ATTRIBUTE_IDENTITY_ALWAYS)
	{
		finding->error = psprintf("column \"%s\" of table \"%s\" is not GENERATED ALWAYS AS IDENTITY any more",
								  partition->seq_column, TableName(partition));
		finding->hint = psprintf("Run: ALTER TABLE %s ALTER COLUMN %s %s; then: SELECT incsink_confirm_sequence(%s);",
								 QuotedTableName(partition), quote_identifier(partition->seq_column),
								 identity == '\0' ? "ADD GENERATED ALWAYS AS IDENTITY" : "SET GENERATED ALWAYS",
								 TableLiteral(partition));
		return false;
	}
	if (!sequenceIsOwned(partition->sequence, DEPENDENCY_INTERNAL, &owner, &column) ||
		owner != partition->relid || column != *attnum)
	{
		finding->error = psprintf("column \"%s\" of table \"%s\" is fed by another sequence than before",
								  partition->seq_column, TableName(partition));
		finding->hint = psprintf("Run: SELECT incsink_confirm_sequence(%s);", TableLiteral(partition));
		return false;
	}
	return true;
}

static bool
IndexIsSound(const Partition *partition, AttrNumber attnum, Finding *finding)
{
	SeqIndex	found;
	const char *column = quote_identifier(partition->seq_column);

	if (FindSeqIndex(partition->relid, attnum, &found))
		return true;
	finding->error = psprintf("table \"%s\" has no valid unique index on \"%s\" any more",
							  TableName(partition), partition->seq_column);
	if (partition->adopted)
		finding->hint = psprintf("Run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s);",
								 QuotedTableName(partition), column);
	else
		finding->hint = psprintf("Run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s) WHERE %s > 0;",
								 QuotedTableName(partition), column, column);
	return false;
}

/* CACHE, INCREMENT and CYCLE, each of which lets a number appear below S. */
static bool
DefinitionIsSound(const Partition *partition, const SequenceReading *reading, Finding *finding)
{
	const char *wanted;

	if (reading->cache != 1)
	{
		finding->error = psprintf("sessions draw numbers of table \"%s\" in advance (CACHE " INT64_FORMAT "): rows would be missed",
								  TableName(partition), reading->cache);
		wanted = "SET CACHE 1";
	}
	else if (reading->increment != 1)
	{
		finding->error = psprintf("the sequence of table \"%s\" counts by " INT64_FORMAT " and not by 1",
								  TableName(partition), reading->increment);
		wanted = "SET INCREMENT BY 1";
	}
	else if (reading->cycle)
	{
		finding->error = psprintf("the sequence of table \"%s\" would begin again at its end (CYCLE)",
								  TableName(partition));
		wanted = "SET NO CYCLE";
	}
	else
		return true;
	finding->hint = psprintf("Run: ALTER TABLE %s ALTER COLUMN %s %s; then: SELECT incsink_confirm_sequence(%s);",
							 QuotedTableName(partition), quote_identifier(partition->seq_column),
							 wanted, TableLiteral(partition));
	return false;
}

static bool
IncarnationIsSound(const Partition *partition, const SequenceReading *reading,
				   int64 highest_position, Finding *finding)
{
	int64		highest = Max(partition->highest_seq, highest_position);

	if (reading->last_drawn < highest)
		finding->error = psprintf("the sequence of table \"%s\" stands at " INT64_FORMAT ", below " INT64_FORMAT " that was given out already",
								  TableName(partition),
								  reading->last_drawn, highest);
	else if (reading->relfilenode != partition->sequence_relfilenode)
		finding->error = psprintf("the sequence of table \"%s\" was restarted or altered: numbers may have been given out twice",
								  TableName(partition));
	else
		return true;
	finding->hint = psprintf("Run: SELECT incsink_confirm_sequence(%s); it sets the sequence past every number that was given out.",
							 TableLiteral(partition));
	return false;
}

/*
 * Looks a second time, at state and sequence as they are under the sequence's lock:
 * a TRUNCATE ... RESTART IDENTITY may have committed between the two, and a
 * transaction in REPEATABLE READ sees the state as it was before.
 */
static bool
LookAgain(Partition *partition, int64 highest_position, Finding *finding)
{
	SequenceReading reading;
	bool		sound = true;

	if (!ConditionalLockRelationOid(partition->sequence, AccessShareLock))
		return true;			/* being truncated: nothing is known now */
	finding->error = finding->hint = NULL;
	if (RefreshPartitionState(partition) && ReadSequence(partition->sequence, &reading))
		sound = IncarnationIsSound(partition, &reading, highest_position, finding);
	UnlockRelationOid(partition->sequence, AccessShareLock);
	return sound;
}

bool
CheckPartition(Partition *partition, const SequenceReading *reading, int64 highest_position,
			   char **error, char **hint)
{
	Finding		finding = {NULL, NULL};
	AttrNumber	attnum;
	bool		sound;

	if (!OidIsValid(partition->relid))
	{
		*error = psprintf("partition (\"%s\", \"%s\") is not bound to a table of this database",
						  partition->dataset, partition->source);
		*hint = pstrdup("Run: SELECT incsink_adopt_database();");
		return false;
	}
	sound = TableIsSound(partition, &finding) &&
		ColumnIsSound(partition, &attnum, &finding) &&
		IndexIsSound(partition, attnum, &finding);
	if (sound && reading)
		sound = DefinitionIsSound(partition, reading, &finding) &&
			(IncarnationIsSound(partition, reading, highest_position, &finding) ||
			 LookAgain(partition, highest_position, &finding));
	*error = finding.error;
	*hint = finding.hint;
	return sound;
}
