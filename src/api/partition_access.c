/*
 * partition_access.c
 *		Partitions and tokens as callers of read functions name them.
 */
#include "postgres.h"

#include "access/relation.h"
#include "miscadmin.h"
#include "storage/lockdefs.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"

#include "api/partition_access.h"
#include "cache/backlog.h"
#include "cache/columns.h"
#include "cache/tree.h"
#include "common/compat.h"
#include "common/sql.h"

pg_noreturn static void
RaiseNotAttached(Oid relid)
{
	Oid			root = get_rel_relispartition(relid) ? AttachedRoot(relid) : InvalidOid;

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s.%s\" is not attached",
					get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid)),
			 OidIsValid(root) ?
			 errhint("It is a partition of %s, which is: read that one.", QuotedRelationName(root))
			 : errhint("Its owner attaches it with incsink_attach().")));
}

Partition *
RequireAttached(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relid, GetUserId(), ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, name);
	SqlBegin(&session);
	partition = LoadPartitionByRelation(relid, context);
	SqlEnd(&session);
	if (partition == NULL)
		RaiseNotAttached(relid);
	return partition;
}

/* The lock is let go: a reader that waits for the horizon must not be in anybody's way. */
void
CheckColumns(const Partition *partition, char **columns, int ncolumns)
{
	Relation	rel = try_relation_open(partition->relid, AccessShareLock);
	int			nattnums;
	AttrNumber *attnums;

	if (rel == NULL)
		return;
	attnums = ResolveColumns(rel, partition, columns, ncolumns, &nattnums);
	CheckReadPrivileges(rel, GetUserId(), attnums, nattnums, NULL);
	relation_close(rel, AccessShareLock);
}

void
RaiseBeingChanged(const Partition *partition)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s.%s\" or its index on \"%s\" is being changed",
					partition->schema_name, partition->table_name, partition->seq_column),
			 errhint("Try again.")));
}

void
RaiseTokenAhead(const Partition *partition)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("token is above the last number drawn for table \"%s.%s\"",
					partition->schema_name, partition->table_name),
			 errhint("Pass a token as a function of incsink returned it, or NULL to read from the beginning.")));
}

bool
IsInBacklog(const Partition *partition, Position position)
{
	return partition->backlog != NULL && !BacklogIsOver(position);
}

void
CheckKeyPrivileges(const Partition *partition, Relation rel)
{
	const Backlog *backlog = partition->backlog;

	for (int i = 0; backlog != NULL && i < backlog->nkeys; i++)
	{
		AttrNumber	attnum = get_attnum(RelationGetRelid(rel), backlog->key_columns[i]);

		if (attnum > 0)
			CheckReadPrivileges(rel, GetUserId(), &attnum, 1, NULL);
	}
}

/*
 * A token of an earlier tag is good as far as the horizon had been recorded when
 * the tag was replaced: up to there both lives of the partition are the same.
 */
Position
AcceptToken(const Partition *partition, Jsonb *token)
{
	SqlSession	session;
	Position	position;
	char	   *tag;
	bool		known;
	bool		in_force = false;
	int64		last_horizon = 0;

	ParseToken(token, &tag, &position);
	SqlBegin(&session);
	known = FindTag(partition->partition_id, tag, &in_force, &last_horizon);
	SqlEnd(&session);
	if (!known)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("token is not one of table \"%s.%s\"",
						partition->schema_name, partition->table_name),
				 errdetail("It is of another table, or of the time before this one was detached."),
				 errhint("Pass NULL to read from the beginning.")));
	if (!in_force && position.seq > last_horizon)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("token is of an earlier life of table \"%s.%s\" and beyond what both have in common",
						partition->schema_name, partition->table_name),
				 errdetail("The sequence was restarted, or the database was restored or copied; tokens of before are good up to " INT64_FORMAT ".",
						   last_horizon),
				 errhint("Read from an older token, or pass NULL to read from the beginning.")));
	CheckBacklogPosition(partition, position);
	return position;
}
