/*
 * credentials.c
 *		Validator of the foreign-data wrapper: options of servers and user
 *		mappings.  Messages never hold a value of a mapping.
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"

#include "catalog/credentials.h"
#include "common/template.h"
#include "common/units.h"
#include "common/url.h"

PG_FUNCTION_INFO_V1(incsink_fdw_validator);

static const char *const server_options[] = {
	SERVER_OPTION_ORIGIN, SERVER_OPTION_PATH_PREFIX, NULL
};

static void
CheckOrigin(const char *origin)
{
	const char *problem;
	Url		   *url = SplitUrl(origin, &problem);

	if (url != NULL && strcmp(url->scheme, "http") != 0 && strcmp(url->scheme, "https") != 0)
		problem = "Its scheme is neither http nor https.";
	else if (url != NULL && (strchr(strstr(origin, "://") + 3, '/') != NULL || url->query != NULL))
		problem = "A path belongs in the option \"path_prefix\".";
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\"", SERVER_OPTION_ORIGIN),
				 errdetail("%s", problem),
				 errhint("Write scheme://host or scheme://host:port.")));
}

static void
CheckPathPrefix(const char *path)
{
	const char *problem = NULL;
	Url		   *url;

	if (path[0] != '/')
		problem = "It does not start with \"/\".";
	else if (strpbrk(path, "?{}") != NULL)
		problem = "It must hold neither a query nor placeholders.";
	else
	{
		url = SplitUrl(psprintf("http://host%s", path), &problem);
		(void) url;
	}
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\"", SERVER_OPTION_PATH_PREFIX),
				 errdetail("%s", problem)));
}

static void
CheckServerOptions(List *options)
{
	bool		has_origin = false;
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, SERVER_OPTION_ORIGIN) == 0)
		{
			CheckOrigin(defGetString(option));
			has_origin = true;
		}
		else if (strcmp(option->defname, SERVER_OPTION_PATH_PREFIX) == 0)
			CheckPathPrefix(defGetString(option));
		else
		{
			const char *nearest = NearestName(option->defname, server_options);

			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", option->defname),
					 nearest ? errhint("Perhaps you meant \"%s\".", nearest)
					 : errhint("Options of servers are \"origin\" and \"path_prefix\"; secrets are options of user mappings.")));
		}
	}
	if (!has_origin)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("option \"%s\" is required", SERVER_OPTION_ORIGIN),
				 errdetail("It says where the secrets of this server may be sent."),
				 errhint("Write OPTIONS (origin 'https://collector.example.com').")));
}

/* Like COPY FROM a file: the worker reads it with the rights of the server. */
static void
CheckSecretFile(const char *path)
{
	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set option \"%s\"", MAPPING_OPTION_SECRET_FILE),
				 errdetail("Only roles with privileges of the role \"pg_read_server_files\" may name files of the server.")));
	if (!is_absolute_path(path) || strlen(path) >= MAXPGPATH)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\"", MAPPING_OPTION_SECRET_FILE),
				 errdetail("It must be the absolute path of a file of the server.")));
}

static void
CheckMappingOption(const char *name, const char *value)
{
	const char *problem;

	if (!IsSecretName(name))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("invalid option \"%s\"", name),
				 errdetail("Names of secrets consist of lower-case letters, digits and underscores.")));
	problem = SecretProblem(name, value);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\"", name),
				 errdetail("%s", problem)));
	if (strcmp(name, MAPPING_OPTION_SECRET_FILE) == 0)
		CheckSecretFile(value);
}

static void
CheckMappingOptions(List *options)
{
	Secret	   *secrets = palloc(sizeof(Secret) * (list_length(options) + 1));
	int			nsecrets = 0;
	bool		has_file = false;
	const char *problem;
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		secrets[nsecrets].name = option->defname;
		secrets[nsecrets].value = defGetString(option);
		CheckMappingOption(option->defname, secrets[nsecrets++].value);
		has_file = has_file || strcmp(option->defname, MAPPING_OPTION_SECRET_FILE) == 0;
	}
	problem = CombinationProblem(secrets, nsecrets, has_file);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid options of a user mapping"),
				 errdetail("%s", problem)));
}

Datum
incsink_fdw_validator(PG_FUNCTION_ARGS)
{
	List	   *options = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);

	if (catalog == ForeignServerRelationId)
		CheckServerOptions(options);
	else if (catalog == UserMappingRelationId)
		CheckMappingOptions(options);
	else if (options != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("invalid option \"%s\"", ((DefElem *) linitial(options))->defname),
				 errdetail("Only servers and user mappings have options.")));
	PG_RETURN_VOID();
}
