/*
 * sink_access.c
 *		Sinks by name, for those who may change them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"

#include "api/sink_access.h"
#include "common/shared.h"
#include "common/sql.h"

static void
CheckOwnership(const SinkDefinition *sink, Oid user)
{
	if (superuser_arg(user) || has_privs_of_role(user, sink->owner))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("must be owner of sink \"%s\"", sink->name)));
}

SinkDefinition *
LoadOwnSink(const char *name, Oid user)
{
	SinkDefinition *sink = LoadSinkByName(name, CurrentMemoryContext);

	if (sink == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("sink \"%s\" does not exist", name)));
	CheckOwnership(sink, user);
	return sink;
}

/* Ownership is checked before the lock: others are not to be held up. */
SinkDefinition *
LockOwnSink(const char *name, Oid user)
{
	(void) LoadOwnSink(name, user);
	(void) SqlRun("SELECT 1 FROM incsink.sink_def WHERE name = $1 FOR UPDATE", SqlText(name));
	return LoadOwnSink(name, user);
}

void
RequireValidOptions(const SinkDefinition *sink)
{
	if (sink->options == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("options of sink \"%s\" are invalid: %s", sink->name, sink->options_error),
				 errhint("Correct them with incsink_alter_sink.")));
}

void
AnnounceChange(void)
{
	InvalidateDefinitions();
	RequestWorkerAtCommit();
}
