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
#include "access/relation.h"
#include "catalog/dependency.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "cache/index_build.h"
#include "cache/integrity.h"
#include "cache/seq_column.h"
#include "cache/tree.h"

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

/* attidentity of a column that exists. */
static char
ColumnIdentity(Oid relid, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(attnum));
	char		identity;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for attribute %d of relation %u", attnum, relid);
	identity = ((Form_pg_attribute) GETSTRUCT(tuple))->attidentity;
	ReleaseSysCache(tuple);
	return identity;
}

/*
 * The sequence in the default of a tree's column, where there is no identity.  While
 * the table is being changed nothing is known: what is on record stands.
 */
static Oid
DefaultNow(const Partition *partition, AttrNumber attnum)
{
	Oid			sequence = partition->sequence;
	Relation	rel;

	if (!ConditionalLockRelationOid(partition->relid, AccessShareLock))
		return sequence;
	rel = try_relation_open(partition->relid, NoLock);
	if (rel)
	{
		sequence = SeqColumnSequence(rel, attnum);
		relation_close(rel, NoLock);
	}
	UnlockRelationOid(partition->relid, AccessShareLock);
	return sequence;
}

/* The column can be given any value. */
static void
DescribeLooseColumn(const Partition *partition, char identity, Finding *finding)
{
	bool		by_default = partition->tree && identity == '\0' && get_rel_name(partition->sequence);

	finding->error = psprintf(by_default ?
							  "column \"%s\" of table \"%s\" is not numbered by its sequence any more" :
							  "column \"%s\" of table \"%s\" is not GENERATED ALWAYS AS IDENTITY any more",
							  partition->seq_column, TableName(partition));
	finding->hint = psprintf("Run: ALTER TABLE %s ALTER COLUMN %s %s; then: SELECT incsink_confirm_sequence(%s);",
							 QuotedTableName(partition), quote_identifier(partition->seq_column),
							 by_default ?
							 psprintf("SET DEFAULT nextval(%s)", quote_literal_cstr(QuotedRelationName(partition->sequence))) :
							 identity == '\0' ? "ADD GENERATED ALWAYS AS IDENTITY" : "SET GENERATED ALWAYS",
							 TableLiteral(partition));
}

/*
 * Is the seq column there, and is it still fed by the sequence that was recorded?  By
 * an identity, or, on a tree from before 17, by a default.
 */
static bool
ColumnIsSound(const Partition *partition, Finding *finding)
{
	AttrNumber	attnum = get_attnum(partition->relid, partition->seq_column);
	Oid			owner;
	int32		column;
	char		identity;
	bool		by_default;

	if (attnum <= 0)
	{
		finding->error = psprintf("column \"%s\" of table \"%s\" does not exist any more",
								  partition->seq_column, TableName(partition));
		finding->hint = psprintf("If it was renamed, rename it back; if it was dropped, run: SELECT incsink_detach(%s, force => true); and attach the table again.",
								 TableLiteral(partition));
		return false;
	}
	identity = ColumnIdentity(partition->relid, attnum);
	by_default = partition->tree && identity == '\0' &&
		DefaultNow(partition, attnum) == partition->sequence;
	if (identity != ATTRIBUTE_IDENTITY_ALWAYS && !by_default &&
		!(partition->tree && identity == ATTRIBUTE_IDENTITY_BY_DEFAULT))
	{
		DescribeLooseColumn(partition, identity, finding);
		return false;
	}
	if (!sequenceIsOwned(partition->sequence, by_default ? DEPENDENCY_AUTO : DEPENDENCY_INTERNAL,
						 &owner, &column) ||
		owner != partition->relid || column != attnum)
	{
		finding->error = psprintf("column \"%s\" of table \"%s\" is fed by another sequence than before",
								  partition->seq_column, TableName(partition));
		finding->hint = psprintf("Run: SELECT incsink_confirm_sequence(%s);", TableLiteral(partition));
		return false;
	}
	return true;
}

/* While the partition is preparing nothing is read that would need the index. */
static bool
IndexIsSound(const Partition *partition, Finding *finding)
{
	const char *column = quote_identifier(partition->seq_column);
	const char *unique = partition->tree ? "" : "unique ";
	List	   *unindexed = partition->preparing ? NIL : ListUnindexed(partition);
	Oid			relid;
	char	   *table;
	char	   *schema;

	if (unindexed == NIL)
		return true;
	relid = linitial_oid(unindexed);
	table = get_rel_name(relid);
	schema = table ? get_namespace_name(get_rel_namespace(relid)) : NULL;
	if (schema == NULL)
		return true;			/* a leaf that was dropped meanwhile */
	finding->error = psprintf("table \"%s.%s\" has no valid %sindex on \"%s\" any more",
							  schema, table, unique, partition->seq_column);
	finding->hint = psprintf("Run: CREATE %sINDEX CONCURRENTLY ON %s (%s)%s;",
							 partition->tree ? "" : "UNIQUE ",
							 quote_qualified_identifier(schema, table),
							 column, partition->adopted ? "" : psprintf(" WHERE %s > 0", column));
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
	bool		sound;

	if (!OidIsValid(partition->relid))
	{
		*error = psprintf("partition (\"%s\", \"%s\") is not bound to a table of this database",
						  partition->dataset, partition->source);
		*hint = pstrdup("Run: SELECT incsink_adopt_database();");
		return false;
	}
	sound = TableIsSound(partition, &finding) &&
		ColumnIsSound(partition, &finding) &&
		(!partition->tree || LeavesAreSound(partition, &finding.error, &finding.hint)) &&
		IndexIsSound(partition, &finding);
	if (sound && reading)
		sound = DefinitionIsSound(partition, reading, &finding) &&
			(IncarnationIsSound(partition, reading, highest_position, &finding) ||
			 LookAgain(partition, highest_position, &finding));
	*error = finding.error;
	*hint = finding.hint;
	return sound;
}
