/*
 * columns.c
 *		Which columns of a partition leave it, and who may read them.
 *
 * The table access method checks no privilege at all: what the executor does in
 * ExecCheckRTPerms() for a query is done here for a direct scan.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_attribute.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "cache/columns.h"
#include "common/compat.h"

char *
RelationDisplayName(Relation rel)
{
	return psprintf("%s.%s", get_namespace_name(RelationGetNamespace(rel)),
					RelationGetRelationName(rel));
}

AttrNumber
SeqAttribute(Relation rel, const Partition *partition)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), partition->seq_column);

	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist any more",
						partition->seq_column, RelationDisplayName(rel)),
				 errhint("If it was renamed, give it its name again; if it was dropped, detach the table and attach it again.")));
	return attnum;
}

/* Raises an ERROR for a column that cannot be handed out. */
static void
CheckColumn(Relation rel, const Partition *partition, Form_pg_attribute att)
{
	if (!partition->adopted && strcmp(NameStr(att->attname), partition->seq_column) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("column \"%s\" of table \"%s\" is internal to incsink and is not handed out",
						partition->seq_column, RelationDisplayName(rel)),
				 errhint("A row's number stands in the token that comes with it.")));
	if (AttributeIsVirtual(att))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"%s\" is a virtual generated column, which is not supported yet",
						NameStr(att->attname), RelationDisplayName(rel)),
				 errhint("List the other columns.")));
}

/* Which attributes a list of names means. */
static Bitmapset *
ListedColumns(Relation rel, const Partition *partition, char **columns, int ncolumns)
{
	Bitmapset  *listed = NULL;

	for (int i = 0; i < ncolumns; i++)
	{
		AttrNumber	attnum = get_attnum(RelationGetRelid(rel), columns[i]);

		if (attnum <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of table \"%s\" does not exist",
							columns[i], RelationDisplayName(rel))));
		if (bms_is_member(attnum, listed))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("column \"%s\" is listed more than once", columns[i])));
		CheckColumn(rel, partition, TupleDescAttr(RelationGetDescr(rel), attnum - 1));
		listed = bms_add_member(listed, attnum);
	}
	return listed;
}

AttrNumber *
ResolveColumns(Relation rel, const Partition *partition, char **columns, int ncolumns,
			   int *nattnums)
{
	TupleDesc	desc = RelationGetDescr(rel);
	AttrNumber *attnums = palloc(sizeof(AttrNumber) * Max(desc->natts, 1));
	Bitmapset  *listed = columns ? ListedColumns(rel, partition, columns, ncolumns) : NULL;

	*nattnums = 0;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		if (columns ? !bms_is_member(att->attnum, listed)
			: (!partition->adopted && strcmp(NameStr(att->attname), partition->seq_column) == 0))
			continue;
		CheckColumn(rel, partition, att);
		attnums[(*nattnums)++] = att->attnum;
	}
	return attnums;
}

static void
CheckColumnPrivilege(Relation rel, Oid role, AttrNumber attnum)
{
	if (pg_attribute_aclcheck(RelationGetRelid(rel), attnum, role, ACL_SELECT) == ACLCHECK_OK)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for column \"%s\" of table \"%s\"",
					get_attname(RelationGetRelid(rel), attnum, false), RelationDisplayName(rel)),
			 errdetail("Role \"%s\" reads the rows and has no SELECT privilege on it.",
					   GetUserNameFromId(role, false)),
			 errhint("Grant SELECT on the table or on every column that is read.")));
}

void
CheckReadPrivileges(Relation rel, Oid role, const AttrNumber *attnums, int nattnums,
					Bitmapset *more)
{
	Oid			relid = RelationGetRelid(rel);
	int			member = -1;

	if (pg_class_aclcheck(relid, role, ACL_SELECT) == ACLCHECK_OK)
		return;
	/* As for a query that reads no column: a privilege on any one will do. */
	if (pg_attribute_aclcheck_all(relid, role, ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table \"%s\"", RelationDisplayName(rel)),
				 errdetail("Role \"%s\" reads the rows and has no SELECT privilege on it.",
						   GetUserNameFromId(role, false)),
				 errhint("Grant SELECT on the table or on every column that is read.")));
	for (int i = 0; i < nattnums; i++)
		CheckColumnPrivilege(rel, role, attnums[i]);
	while ((member = bms_next_member(more, member)) >= 0)
		CheckColumnPrivilege(rel, role, member + FirstLowInvalidHeapAttributeNumber);
}
