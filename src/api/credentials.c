/*
 * credentials.c
 *		Validator of the foreign-data wrapper: options of servers and user
 *		mappings.  Messages never hold a value of a mapping.
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "fmgr.h"

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

/* Any secret may be asked for in a header, so each must be able to stand in one. */
static void
CheckMappingOptions(List *options)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);
		const char *value = defGetString(option);
		bool		is_bearer = strcmp(option->defname, MAPPING_OPTION_BEARER) == 0;

		if (!IsSecretName(option->defname))
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", option->defname),
					 errdetail("Names of secrets consist of lower-case letters, digits and underscores.")));
		if (*value == '\0')
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
					 errmsg("option \"%s\" must not be empty", option->defname)));
		for (const unsigned char *c = (const unsigned char *) value; *c != '\0'; c++)
			if (*c < 0x20 || *c == 0x7f || (is_bearer && (*c == ' ' || *c > 0x7e)))
				ereport(ERROR,
						(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
						 errmsg("invalid character in option \"%s\"", option->defname),
						 is_bearer ? errdetail("It must consist of visible ASCII characters.")
						 : errdetail("Line ends and other control characters are not allowed.")));
	}
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
