/*
 * seq_column.c
 *		The column ingest_seq and what feeds it.
 *
 * A new column costs no rewrite: its default 0 is kept in the catalog for the rows
 * that are there, and is taken away again before the first new row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_attrdef.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/primnodes.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cache/attach.h"
#include "cache/seq_column.h"
#include "cache/tree.h"
#include "common/compat.h"

/* What every sequence must be like whose numbers are positions. */
#define SEQUENCE_PROPERTIES "INCREMENT BY 1 MINVALUE 1 START WITH 1 CACHE 1 NO CYCLE"

static Oid
RelationOwner(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * The sequence must have the table's owner to be owned by a column, also where a
 * superuser attaches.  USAGE lets everybody draw who may insert, and no more: SELECT
 * and UPDATE (setval) stay with the owner.
 */
static void
AddSequenceAndDefault(Oid relid)
{
	char	   *table = QuotedRelationName(relid);
	Oid			owner = RelationOwner(relid);
	char	   *schema = get_namespace_name(get_rel_namespace(relid));
	char	   *sequence = quote_qualified_identifier(schema,
													  ChooseRelationName(get_rel_name(relid), SEQ_COLUMN,
																		 "seq", get_rel_namespace(relid), false));

	RunStatement("CREATE SEQUENCE %s AS pg_catalog.int8 " SEQUENCE_PROPERTIES, sequence);
	if (owner != GetUserId())
		RunStatement("ALTER SEQUENCE %s OWNER TO %s", sequence,
					 quote_identifier(GetUserNameFromId(owner, false)));
	RunStatement("ALTER SEQUENCE %s OWNED BY %s." SEQ_COLUMN, sequence, table);
	RunStatement("GRANT USAGE ON SEQUENCE %s TO PUBLIC", sequence);
	RunStatement("ALTER TABLE %s ALTER COLUMN " SEQ_COLUMN
				 " SET DEFAULT pg_catalog.nextval(%s::pg_catalog.regclass)",
				 table, quote_literal_cstr(sequence));
}

/*
 * BY DEFAULT on a tree: rows are moved between leaves by INSERT with their numbers
 * (pg_partman, partition_data_proc), as where there is only a default.
 *
 * Types are qualified: the statements run under the caller's search_path, as his event
 * triggers expect.  Leaves of a tree get the same by inheritance.
 */
void
AddSeqColumn(Oid relid)
{
	char	   *table = QuotedRelationName(relid);
	bool		tree = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE;

	RunStatement("ALTER TABLE %s ADD COLUMN " SEQ_COLUMN " pg_catalog.int8 NOT NULL DEFAULT 0", table);
	/* Children of ordinary inheritance keep the default: their rows have no number. */
	RunStatement("ALTER TABLE %s%s ALTER COLUMN " SEQ_COLUMN " DROP DEFAULT", tree ? "" : "ONLY ", table);
	if (tree && !TREE_HAS_IDENTITY)
		AddSequenceAndDefault(relid);
	else
		RunStatement("ALTER TABLE %s ALTER COLUMN " SEQ_COLUMN " ADD GENERATED %s AS IDENTITY"
					 " (" SEQUENCE_PROPERTIES ")", table, tree ? "BY DEFAULT" : "ALWAYS");
}

Oid
DefaultSequence(Relation rel, AttrNumber attnum)
{
	Node	   *node = build_column_default(rel, attnum);
	FuncExpr   *call;
	Const	   *argument;

	if (node == NULL || !IsA(node, FuncExpr))
		return InvalidOid;
	call = (FuncExpr *) node;
	if (call->funcid != F_NEXTVAL || !IsA(linitial(call->args), Const))
		return InvalidOid;
	argument = (Const *) linitial(call->args);
	return argument->constisnull ? InvalidOid : DatumGetObjectId(argument->constvalue);
}

/*
 * The identity of a partition is its root's.  The server's getIdentitySequence() takes
 * one that is being detached concurrently for one with ancestors, and crashes (17).
 */
static Oid
RootIdentitySequence(Relation rel, AttrNumber attnum)
{
	Oid			root = TopmostAncestor(RelationGetRelid(rel));
	AttrNumber	root_attnum = get_attnum(root, NameStr(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attname));
	ListCell   *cell;

	foreach(cell, getOwnedSequences(root))
	{
		Oid			owner;
		int32		column;

		if (sequenceIsOwned(lfirst_oid(cell), DEPENDENCY_INTERNAL, &owner, &column) &&
			owner == root && column == root_attnum)
			return lfirst_oid(cell);
	}
	return InvalidOid;
}

/* A tree that came from before 17 by pg_upgrade or a dump still has the default. */
Oid
SeqColumnSequence(Relation rel, AttrNumber attnum)
{
	if (attnum <= 0)
		return InvalidOid;
	if (TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attidentity != '\0')
		return rel->rd_rel->relispartition ? RootIdentitySequence(rel, attnum) :
			IdentitySequenceCompat(rel, attnum);
	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE && !rel->rd_rel->relispartition)
		return InvalidOid;
	return DefaultSequence(rel, attnum);
}

/* What ATExecCookedColumnDefault() of commands/tablecmds.c does. */
static void
ReplaceDefault(Oid relid, AttrNumber attnum, Expr *expr)
{
	Relation	rel = table_open(relid, AccessExclusiveLock);

	RemoveAttrDefault(relid, attnum, DROP_RESTRICT, false, true);
	(void) StoreAttrDefaultCompat(rel, attnum, (Node *) expr);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
SetNextvalDefault(Oid relid, AttrNumber attnum, Oid sequence)
{
	Const	   *argument = makeConst(REGCLASSOID, -1, InvalidOid, sizeof(Oid),
									 ObjectIdGetDatum(sequence), false, true);

	ReplaceDefault(relid, attnum,
				   (Expr *) makeFuncExpr(F_NEXTVAL, INT8OID, list_make1(argument),
										 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL));
}

void
SetUnnumberedDefault(Oid relid, AttrNumber attnum)
{
	ReplaceDefault(relid, attnum,
				   (Expr *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
									  Int64GetDatum(-1), false, FLOAT8PASSBYVAL));
}
