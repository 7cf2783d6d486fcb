/*
 * attach_remarks.c
 *		What people should know of a table before they attach it.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "lib/stringinfo.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "cache/attach.h"
#include "cache/attach_check.h"
#include "cache/backlog.h"
#include "cache/storage.h"
#include "cache/subscription.h"
#include "cache/truncate_guard.h"
#include "common/compat.h"
#include "common/settings.h"
#include "common/sql.h"

/* ev_type of pg_rewrite, see CmdType in nodes/nodes.h */
#define INSERT_RULE "3"

/* Can the apply worker find a row of the relation by an index? */
static bool
HasReplicaKey(Relation rel)
{
	return OidIsValid(RelationGetReplicaIndex(rel)) || OidIsValid(PrimaryKeyIndexCompat(rel));
}

/*
 * The name of the relation, or of the first leaf of a partitioned table, that has no
 * such key; NULL if all have.  What the root has does not matter: rows are looked for
 * in the leaf that they are routed to.
 */
static char *
FindKeyless(const Check *check)
{
	char	   *keyless = NULL;
	ListCell   *cell;

	if (check->rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return HasReplicaKey(check->rel) ? NULL : check->table;
	foreach(cell, ListTreeLeaves(RelationGetRelid(check->rel)))
	{
		Relation	leaf = keyless ? NULL : try_table_open(lfirst_oid(cell), AccessShareLock);

		if (leaf == NULL)
			continue;
		if (!HasReplicaKey(leaf))
			keyless = QuotedRelationName(RelationGetRelid(leaf));
		table_close(leaf, NoLock);
	}
	return keyless;
}

/*
 * The apply worker finds rows by the primary key or the index of the replica identity,
 * whatever the publisher sends; without one of them it compares whole rows
 * (executor/execReplication.c, replication/logical/worker.c), and the number is not
 * the publisher's.
 */
static void
CheckSubscriptions(Check *check)
{
	char	   *keyless;

	if (!IsSubscriptionTarget(RelationGetRelid(check->rel)))
		return;
	keyless = FindKeyless(check);
	if (keyless)
		AddForcibleProblem(check, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   psprintf("A subscription fills it and %s has neither a primary key nor an index as replica identity: replicated updates and deletes would not find their rows any more.",
									keyless == check->table ? "it" : psprintf("its leaf %s", keyless)),
						   psprintf("Add a primary key to %s, or pass force => true if the publisher sends inserts only.", keyless));
	AddProblem(check, WARNING, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
			   "A subscription fills it: a trigger for each row will number what it brings, which makes loading it slower, by COPY too.",
			   NULL);
}

/*
 * Publications that would begin to send the new column, of the table itself or of one
 * of its leaves.
 */
static void
CheckPublications(Check *check)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	uint64		count;

	SqlBegin(&session);
	count = SqlRun("WITH tree AS (SELECT c.oid, c.relnamespace FROM pg_catalog.pg_class c"
				   " WHERE c.oid = $1 OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1)))"
				   " SELECT p.pubname FROM pg_catalog.pg_publication p WHERE p.puballtables"
				   " OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r JOIN tree t ON t.oid = r.prrelid"
				   "  WHERE r.prpubid = p.oid AND r.prattrs IS NULL)"
				   " OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n"
				   "  JOIN tree t ON t.relnamespace = n.pnnspid WHERE n.pnpubid = p.oid) ORDER BY 1",
				   SqlOid(RelationGetRelid(check->rel)));
	for (uint64 row = 0; row < count; row++)
		AddProblem(check, WARNING, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Publication \"%s\" will send the column \"" SEQ_COLUMN "\": a subscriber whose table lacks it stops with an error.",
							SqlGetText(row, 1, context)),
				   "Add a bigint column of that name to the subscriber's table, or give the publication a column list.");
	SqlEnd(&session);
}

void
CheckReplication(Check *check, bool adds_column)
{
	CheckSubscriptions(check);
	if (adds_column)
		CheckPublications(check);
}

/* A rule may send rows elsewhere, where nobody numbers them for this table. */
static void
CheckRules(Check *check)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	uint64		count;

	if (!check->rel->rd_rel->relhasrules)
		return;
	SqlBegin(&session);
	count = SqlRun("SELECT rulename FROM pg_catalog.pg_rewrite WHERE ev_class = $1"
				   " AND ev_type = '" INSERT_RULE "' AND is_instead AND ev_enabled <> 'D' ORDER BY 1",
				   SqlOid(RelationGetRelid(check->rel)));
	for (uint64 row = 0; row < count; row++)
		AddProblem(check, WARNING, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("Rule \"%s\" does something else instead of INSERT: rows that go to another table are not exported with this one.",
							SqlGetText(row, 1, context)),
				   "Attach the tables that the rows go to.");
	SqlEnd(&session);
}

static bool
IsOurs(const Trigger *trigger)
{
	return trigger->tgisinternal || strcmp(trigger->tgname, NUMBER_ROW_TRIGGER) == 0;
}

/* Such a trigger may give a row another number, and nobody would notice. */
static void
CheckTriggers(Check *check)
{
	TriggerDesc *triggers = check->rel->trigdesc;
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (IsOurs(trigger) || !TRIGGER_FOR_ROW(trigger->tgtype) || !TRIGGER_FOR_BEFORE(trigger->tgtype) ||
			!(TRIGGER_FOR_INSERT(trigger->tgtype) || TRIGGER_FOR_UPDATE(trigger->tgtype)))
			continue;
		appendStringInfo(&names, "%s\"%s\"", names.len > 0 ? ", " : "", trigger->tgname);
	}
	if (names.len > 0)
		AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
				   psprintf("It has triggers that may change rows before they are stored: %s.", names.data),
				   "They must leave the number alone: a row with a lower one would not be exported.");
}

/* They have no value in the row that is read. */
static void
CheckVirtualColumns(Check *check)
{
	TupleDesc	desc = RelationGetDescr(check->rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && AttributeIsVirtual(att))
			AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
					   psprintf("Column \"%s\" is a virtual generated column, which is not handed out.",
								NameStr(att->attname)),
					   "List the other columns where you add the table to a sink or read it, or make the column STORED.");
	}
}

static void
CheckRoomForColumn(Check *check)
{
	if (OidIsValid(check->rel->rd_rel->reloftype))
		AddProblem(check, ERROR, ERRCODE_FEATURE_NOT_SUPPORTED,
				   "It is a typed table, to which no column can be added.",
				   psprintf("Run: ALTER TABLE %s NOT OF; first, or adopt a bigint identity column that it has.", check->table));
	if (RelationGetNumberOfAttributes(check->rel) >= MaxHeapAttributeNumber)
		AddProblem(check, ERROR, ERRCODE_TOO_MANY_COLUMNS,
				   psprintf("It has %d columns, those that were dropped included, and no room for another.",
							RelationGetNumberOfAttributes(check->rel)),
				   "Adopt a bigint identity column that it has, or create the table anew without the dropped columns.");
}

/* What an added column changes for those who use the table. */
static void
CheckNewcomer(Check *check)
{
	Oid			extension = getExtensionOfObject(RelationRelationId, RelationGetRelid(check->rel));

	CheckRoomForColumn(check);
	AddProblem(check, REMARK, ERRCODE_SUCCESSFUL_COMPLETION,
			   "It gets one more column, \"" SEQ_COLUMN "\", at the end: SELECT * shows it, and COPY FROM needs a column list that leaves it out.",
			   NULL);
	if (OidIsValid(extension))
		AddProblem(check, WARNING, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   psprintf("It belongs to the extension \"%s\": a dump will not have the column.",
							get_extension_name(extension)),
				   "Attach it again after a restore.");
}

/* Blocks of the relation, or of all that is below it. */
static uint64
CountTableBlocks(Relation rel)
{
	uint64		blocks = 0;
	ListCell   *cell;

	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return RelationGetNumberOfBlocks(rel);
	foreach(cell, find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL))
	{
		Relation	part = RelationIdGetRelation(lfirst_oid(cell));

		if (part == NULL)
			continue;
		if (RELKIND_HAS_STORAGE(part->rd_rel->relkind))
			blocks += RelationGetNumberOfBlocks(part);
		RelationClose(part);
	}
	return blocks;
}

/* How its rows, those that it has and those that come, get their order. */
static void
CheckRows(Check *check)
{
	uint64		blocks = CountTableBlocks(check->rel);
	KeyIndex	key;

	if (blocks > 0 && !ChooseKeyIndex(check->rel, &key))
		AddProblem(check, REMARK, ERRCODE_SUCCESSFUL_COMPLETION,
				   "It has no unique index on NOT NULL columns only, in whose order the rows that it has could be exported.",
				   psprintf("Add a primary key first; or CALL incsink_renumber(%s) afterwards; or let sinks start with the rows that are new.",
							quote_literal_cstr(check->table)));
	if (blocks * (BLCKSZ / 1024) > (uint64) setting_attach_index_size)
		AddProblem(check, REMARK, ERRCODE_SUCCESSFUL_COMPLETION,
				   "It is large: the worker builds the index on the numbers, while everybody goes on using the table.",
				   "New rows are exported when the index is there, and those that the table has before.");
}

void
CheckRemarks(Check *check, bool adds_column)
{
	if (check->rel->rd_rel->relrowsecurity)
		AddProblem(check, NOTICE, ERRCODE_SUCCESSFUL_COMPLETION,
				   "It has row-level security: a sink whose owner a policy applies to halts.",
				   "Let a role own the sinks that owns the table or has BYPASSRLS.");
	CheckRules(check);
	CheckTriggers(check);
	CheckVirtualColumns(check);
	if (adds_column)
	{
		CheckNewcomer(check);
		CheckRows(check);
	}
}
