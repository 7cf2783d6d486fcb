/*
 * table_change.c
 *		What attach, detach and confirm share when they change a user's table.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "cache/attach.h"
#include "common/compat.h"

/*
 * Everybody who comes after a waiter for ACCESS EXCLUSIVE waits behind it: it must
 * give up soon.
 */
#define DEFAULT_LOCK_TIMEOUT "3s"

void
RequireOwner(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!pg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
}

void
LimitLockWait(void)
{
	if (LockTimeout == 0)
		(void) set_config_option("lock_timeout", DEFAULT_LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

void
RunStatement(const char *format,...)
{
	StringInfoData statement;
	va_list		args;
	int			needed;

	initStringInfo(&statement);
	for (;;)
	{
		va_start(args, format);
		needed = appendStringInfoVA(&statement, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&statement, needed);
	}
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(statement.data, false, 0) < 0)
		elog(ERROR, "statement failed: %s", statement.data);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	pfree(statement.data);
}

char *
QuotedRelationName(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

Partition *
RequirePartition(Oid relid, MemoryContext context)
{
	Partition  *partition = LoadPartitionByRelation(relid, context);

	if (partition == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s.%s\" is not attached",
						get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid))));
	return partition;
}
