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
#include "catalog/secret_file.h"
#include "common/base64.h"
#include "common/compat.h"
#include "common/signature.h"
#include "common/url.h"

/* What a value must look like. */
typedef enum SecretForm
{
	FORM_TEXT,
	FORM_VISIBLE,				/* visible ASCII */
	FORM_USERNAME,
	FORM_CERTIFICATE,
	FORM_KEY,
	FORM_SIGNING_SECRET
} SecretForm;

typedef struct KnownSecret
{
	const char *name;
	SecretForm	form;
	bool		may_be_placed;	/* in URLs and headers */
	size_t		offset;			/* of its field in Credentials */
} KnownSecret;

#define FIELD(name) offsetof(Credentials, name)

static const KnownSecret known_secrets[] = {
	{"bearer", FORM_VISIBLE, true, FIELD(bearer)},
	{"username", FORM_USERNAME, true, FIELD(username)},
	{"password", FORM_TEXT, true, FIELD(password)},
	{"client_certificate", FORM_CERTIFICATE, false, FIELD(client_certificate)},
	{"client_key", FORM_KEY, false, FIELD(client_key)},
	{"client_key_password", FORM_TEXT, false, FIELD(client_key_password)},
	{"signing_secret", FORM_SIGNING_SECRET, false, FIELD(signing_secret)},
	{"signing_secret_previous", FORM_SIGNING_SECRET, false, FIELD(signing_secret_previous)},
};

static const KnownSecret *
FindKnownSecret(const char *name)
{
	for (int i = 0; i < lengthof(known_secrets); i++)
		if (strcmp(known_secrets[i].name, name) == 0)
			return &known_secrets[i];
	return NULL;
}

static SecretForm
FormOfSecret(const char *name)
{
	const KnownSecret *known = FindKnownSecret(name);

	return known == NULL ? FORM_TEXT : known->form;
}

bool
SecretMayBePlaced(const char *name)
{
	const KnownSecret *known = FindKnownSecret(name);

	return (known == NULL || known->may_be_placed) &&
		strcmp(name, MAPPING_OPTION_SECRET_FILE) != 0;
}

static const char *
PemProblem(SecretForm form, const char *value)
{
	if (form == FORM_CERTIFICATE)
	{
		if (strstr(value, "PRIVATE KEY-----") != NULL)
			return "A private key belongs in the option \"client_key\".";
		if (strstr(value, "-----BEGIN CERTIFICATE-----") == NULL)
			return "It must be a certificate in PEM, from -----BEGIN CERTIFICATE-----.";
	}
	else if (strstr(value, "-----BEGIN ") == NULL || strstr(value, "PRIVATE KEY-----") == NULL)
		return "It must be a private key in PEM, from -----BEGIN PRIVATE KEY-----.";
	return NULL;
}

/* All but PEM must be able to stand in a header. */
const char *
SecretProblem(const char *name, const char *value)
{
	SecretForm	form = FormOfSecret(name);
	bool		is_pem = form == FORM_CERTIFICATE || form == FORM_KEY;

	if (*value == '\0')
		return "It must not be empty.";
	for (const unsigned char *c = (const unsigned char *) value; *c != '\0'; c++)
	{
		if (form == FORM_VISIBLE && (*c <= ' ' || *c > '~'))
			return "It must consist of visible ASCII characters.";
		if ((*c < 0x20 || *c == 0x7f) && !(is_pem && strchr("\r\n\t", *c) != NULL))
			return "Line ends and other control characters are not allowed.";
	}
	if (is_pem)
		return PemProblem(form, value);
	if (form == FORM_USERNAME && strchr(value, ':') != NULL)
		return "A colon would end the name.";
	if (form == FORM_SIGNING_SECRET && DecodeSigningSecret(value, NULL) < 0)
		return "It must be \"whsec_\" and 24 to 64 bytes in base64.";
	return NULL;
}

const char *
CombinationProblem(const Secret *secrets, int nsecrets, bool may_miss)
{
	Credentials given = {.secrets = unconstify(Secret *, secrets), .nsecrets = nsecrets};

#define GIVEN(name) (FindSecret(&given, name) != NULL)
	if (GIVEN("bearer") && GIVEN("username"))
		return "The options \"bearer\" and \"username\" exclude each other.";
	if (may_miss)
		return NULL;
	if (GIVEN("username") && !GIVEN("password"))
		return "The option \"username\" needs \"password\".";
	if (GIVEN("client_certificate") != GIVEN("client_key"))
		return "The options \"client_certificate\" and \"client_key\" need each other.";
	if (GIVEN("signing_secret_previous") && !GIVEN("signing_secret"))
		return "The option \"signing_secret_previous\" needs \"signing_secret\".";
#undef GIVEN
	return NULL;
}

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

/* The value of "Authorization: Basic" (RFC 7617). */
static char *
EncodeBasic(const char *username, const char *password)
{
	char	   *plain = psprintf("%s:%s", username, password);
	int			size = pg_b64_enc_len(strlen(plain)) + 1;
	char	   *encoded = palloc0(size);

	if (pg_b64_encode((const void *) plain, strlen(plain), encoded, size) < 0)
		elog(ERROR, "could not encode the credentials of server");
	return encoded;
}

static void
AddSecret(Credentials *credentials, char *name, char *value)
{
	Secret	   *secret = &credentials->secrets[credentials->nsecrets++];
	const KnownSecret *known = FindKnownSecret(name);

	secret->name = name;
	secret->value = value;
	if (known != NULL)
		*(char **) ((char *) credentials + known->offset) = value;
}

/*
 * What goes into the header Authorization.  The encoded name and password stand among
 * the secrets, under a name that no placeholder can have, so that an echo of them is
 * not shown.  Made once all is there: a place was left for it.
 */
static void
MakeAuthorization(Credentials *credentials)
{
	if (credentials->bearer != NULL)
		credentials->authorization = psprintf("Bearer %s", credentials->bearer);
	else if (credentials->username != NULL && credentials->password != NULL)
	{
		char	   *encoded = EncodeBasic(credentials->username, credentials->password);

		credentials->authorization = psprintf("Basic %s", encoded);
		AddSecret(credentials, "Authorization", encoded);
	}
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
	credentials->secrets = palloc(sizeof(Secret) * (list_length(options) + 1));
	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, MAPPING_OPTION_SECRET_FILE) == 0)
			credentials->secret_file = pstrdup(defGetString(option));
		else
			AddSecret(credentials, pstrdup(option->defname), pstrdup(defGetString(option)));
	}
	if (credentials->secret_file == NULL)
		MakeAuthorization(credentials);
	return credentials;
}

Credentials *
AddSecretFile(const Credentials *credentials, char **problem)
{
	Credentials *result;
	List	   *added;
	ListCell   *cell;
	const char *fault;

	if (!ReadSecretFile(credentials->secret_file, &added, problem))
		return NULL;
	result = palloc(sizeof(Credentials));
	*result = *credentials;
	result->has_file = true;
	result->secrets = palloc(sizeof(Secret) * (credentials->nsecrets + list_length(added) + 1));
	memcpy(result->secrets, credentials->secrets, sizeof(Secret) * credentials->nsecrets);
	foreach(cell, added)
	{
		Secret	   *secret = lfirst(cell);

		if (FindSecret(credentials, secret->name) != NULL)
		{
			*problem = psprintf("\"%s\" stands in secret file \"%s\" and in the user mapping of server \"%s\"",
								secret->name, credentials->secret_file, credentials->server);
			return NULL;
		}
		AddSecret(result, secret->name, secret->value);
	}
	fault = CombinationProblem(result->secrets, result->nsecrets, false);
	if (fault != NULL)
	{
		*problem = psprintf("secret file \"%s\" and the user mapping of server \"%s\" do not go together: %s",
							credentials->secret_file, credentials->server, fault);
		return NULL;
	}
	MakeAuthorization(result);
	return result;
}

const char *
FindSecret(const Credentials *credentials, const char *name)
{
	for (int i = 0; credentials != NULL && i < credentials->nsecrets; i++)
		if (strcmp(credentials->secrets[i].name, name) == 0)
			return credentials->secrets[i].value;
	return NULL;
}

const char *
AuthorizationOption(const Credentials *credentials)
{
	if (credentials == NULL)
		return NULL;
	return credentials->bearer != NULL ? "bearer" :
		credentials->username != NULL ? "username" : NULL;
}
