/*
 * url.c
 *		Where a sink may point.
 */
#include "postgres.h"

#include <stdlib.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_tablespace.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "common/settings.h"
#include "common/template.h"
#include "common/url.h"
#include "sink/url.h"

const char *
SinkKindOfUrl(const char *text)
{
	Url		   *url = ParseUrl(text);

	if (strcmp(url->scheme, "http") == 0 || strcmp(url->scheme, "https") == 0)
		return "forward";
	if (strcmp(url->scheme, "file") == 0)
		return "blob";
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("URL scheme \"%s\" is not supported", url->scheme),
			 errhint("Supported are http, https and file.")));
}

char *
FileUrlDirectory(const char *text)
{
	char	   *directory = DecodeUrlPath(ParseUrl(text)->path);
	size_t		length = strlen(directory);

	if (length > 1 && directory[length - 1] == '/')
		directory[length - 1] = '\0';
	return directory;
}

/*
 * The path with symbolic links followed, as far as it exists: a link into the
 * data directory is found, and a directory that is made later is still checked.
 */
static char *
ResolvePath(const char *path)
{
	char	   *existing = pstrdup(path);
	char	   *real;
	char	   *result;

	while ((real = realpath(existing, NULL)) == NULL)
	{
		char	   *slash = strrchr(existing, '/');

		if (slash == NULL || slash == existing)
			return pstrdup(path);
		*slash = '\0';
	}
	result = psprintf("%s%s", real, path + strlen(existing));
	free(real);
	return result;
}

static void
CheckIsOutside(const char *path, const char *directory, const char *what)
{
	if (path_is_prefix_of_path(ResolvePath(directory), path))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("files may not be written into %s", what),
				 errhint("Choose a directory of its own.")));
}

static void
CheckIsOutsideTablespaces(const char *path)
{
	Relation	tablespaces = table_open(TableSpaceRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(tablespaces, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Oid			tablespace = ((Form_pg_tablespace) GETSTRUCT(tuple))->oid;
		char	   *location;

		location = text_to_cstring(DatumGetTextPP(DirectFunctionCall1(pg_tablespace_location,
																	  ObjectIdGetDatum(tablespace))));
		if (is_absolute_path(location))
			CheckIsOutside(path, location, "a tablespace");
	}
	table_endscan(scan);
	table_close(tablespaces, AccessShareLock);
}

static void
CheckMayWriteFiles(Oid owner)
{
	if (!has_privs_of_role(owner, ROLE_PG_WRITE_SERVER_FILES))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write files of the server"),
				 errdetail("The owner of the sink, \"%s\", is not a member of the role pg_write_server_files.",
						   GetUserNameFromId(owner, false))));
}

static void
CheckFileUrl(const Url *url, const char *text)
{
	char	   *directory = FileUrlDirectory(text);
	char	   *path;

	if (url->query != NULL || strpbrk(url->path, "{}") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid file URL"),
				 errdetail("It holds a query or placeholders."),
				 errhint("Placeholders belong in the option \"key\".")));
	if (strcmp(directory, "/") == 0 || strstr(directory, "//") != NULL ||
		strstr(url->path, "%2F") != NULL || strstr(url->path, "%2f") != NULL ||
		strlen(directory) >= MAXPGPATH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid file URL"),
				 errdetail("Its path must be canonical and name a directory below \"/\".")));
	if (!pg_verifymbstr(directory, strlen(directory), true))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid file URL"),
				 errdetail("Its path is not valid in the encoding of the server.")));
	path = ResolvePath(directory);
	CheckIsOutside(path, DataDir, "the data directory");
	CheckIsOutsideTablespaces(path);
}

static bool
UrlIsAllowed(const Url *url)
{
	char	   *list = pstrdup(setting_allowed_url_prefixes ? setting_allowed_url_prefixes : "");
	char	   *save;

	for (char *prefix = strtok_r(list, ", \t\r\n", &save); prefix != NULL;
		 prefix = strtok_r(NULL, ", \t\r\n", &save))
	{
		const char *problem;
		Url		   *allowed = SplitUrl(prefix, &problem);

		/* One that is malformed, or means less than it says, allows nothing. */
		if (allowed != NULL && allowed->query == NULL && UrlIsBelow(url, allowed))
			return true;
	}
	return false;
}

static void
CheckIsAllowed(const Url *url, Oid owner)
{
	if (superuser_arg(owner) || UrlIsAllowed(url))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for this URL"),
			 setting_allowed_url_prefixes == NULL || setting_allowed_url_prefixes[0] == '\0' ?
			 errdetail("Only sinks of superusers may point anywhere, as \"%s\" is empty.",
					   "incsink.allowed_url_prefixes")
			 : errdetail("It is not below one of the prefixes in \"%s\".",
						 "incsink.allowed_url_prefixes"),
			 errhint("A superuser can add a prefix, such as %s://%s:%d/.",
					 url->scheme, url->host, url->port)));
}

void
CheckSinkRights(const char *text, Oid owner)
{
	CheckIsAllowed(ParseUrl(text), owner);
	if (strcmp(SinkKindOfUrl(text), "blob") == 0)
		CheckMayWriteFiles(owner);
}

void
CheckSinkUrl(const char *text, Oid owner)
{
	CheckPlaceholders(text, "the URL");
	CheckSinkRights(text, owner);
	if (strcmp(SinkKindOfUrl(text), "blob") == 0)
		CheckFileUrl(ParseUrl(text), text);
}
