/*
 * credentials.c
 *		Secrets of a sink: options of the user mapping of a foreign server.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/syscache.h"

#include "catalog/credentials.h"
#include "common/compat.h"
#include "common/url.h"

/* The mapping of a role, else that of PUBLIC; false if there is neither. */
static bool
LoadMappingOptions(Oid server, Oid role, List **options)
{
	HeapTuple	tuple;
	Datum		value;
	bool		isnull;

	tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(role),
							ObjectIdGetDatum(server));
	if (!HeapTupleIsValid(tuple))
		tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid),
								ObjectIdGetDatum(server));
	if (!HeapTupleIsValid(tuple))
		return false;
	value = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple,
							Anum_pg_user_mapping_umoptions, &isnull);
	*options = isnull ? NIL : untransformRelOptions(value);
	ReleaseSysCache(tuple);
	return true;
}

static const char *
FindOptionValue(List *options, const char *name, const char *otherwise)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, name) == 0)
			return defGetString(option);
	}
	return otherwise;
}

static ForeignServer *
FindServer(const char *name, Oid owner)
{
	ForeignServer *server = GetForeignServerByName(name, true);

	if (server == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("server \"%s\" does not exist", name),
				 errhint("Create it with CREATE SERVER ... FOREIGN DATA WRAPPER incsink OPTIONS (origin ...).")));
	if (strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, CREDENTIALS_WRAPPER) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("server \"%s\" is not of foreign-data wrapper \"%s\"",
						name, CREDENTIALS_WRAPPER)));
	if (pg_foreign_server_aclcheck(server->serverid, owner, ACL_USAGE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\" may not use server \"%s\"",
						GetUserNameFromId(owner, false), name),
				 errhint("GRANT USAGE ON FOREIGN SERVER to the owner of the sink.")));
	return server;
}

/* A secret goes to its server's origin and below its path, and nowhere else. */
static void
CheckUrlOfServer(const ForeignServer *server, const char *url)
{
	const char *origin = FindOptionValue(server->options, SERVER_OPTION_ORIGIN, NULL);
	const char *path = FindOptionValue(server->options, SERVER_OPTION_PATH_PREFIX, "/");

	if (origin == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("server \"%s\" has no option \"%s\"", server->servername,
						SERVER_OPTION_ORIGIN)));
	if (!UrlIsBelow(ParseUrl(url), ParseUrl(psprintf("%s%s", origin, path))))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("secrets of server \"%s\" may not be sent to this URL",
						server->servername),
				 errdetail("They may go to %s%s and below.", origin, path)));
}

Credentials *
LoadCredentials(const char *server_name, Oid owner, const char *url)
{
	ForeignServer *server = FindServer(server_name, owner);
	Credentials *credentials = palloc0(sizeof(Credentials));
	List	   *options;
	ListCell   *cell;

	CheckUrlOfServer(server, url);
	if (!LoadMappingOptions(server->serverid, owner, &options))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("server \"%s\" has no user mapping for role \"%s\"",
						server_name, GetUserNameFromId(owner, false)),
				 errhint("CREATE USER MAPPING for the owner of the sink or for PUBLIC.")));
	credentials->server = pstrdup(server_name);
	credentials->secrets = palloc(sizeof(Secret) * Max(list_length(options), 1));
	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);
		Secret	   *secret = &credentials->secrets[credentials->nsecrets++];

		secret->name = pstrdup(option->defname);
		secret->value = pstrdup(defGetString(option));
		if (strcmp(secret->name, MAPPING_OPTION_BEARER) == 0)
			credentials->bearer = secret->value;
	}
	return credentials;
}

const char *
FindSecret(const Credentials *credentials, const char *name)
{
	for (int i = 0; credentials != NULL && i < credentials->nsecrets; i++)
		if (strcmp(credentials->secrets[i].name, name) == 0)
			return credentials->secrets[i].value;
	return NULL;
}
