/*
 * expand.c
 *		Fills in the placeholders of URLs, header values and object keys.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/timestamp.h"

#include "common/digest.h"
#include "common/template.h"
#include "sink/url.h"

/* NAME_MAX of the file systems of Linux. */
#define LONGEST_PART 255
#define LONGEST_VALUE 160
#define HASH_DIGITS 16

static bool
IsUnreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		c == '-' || c == '_' || c == '.' || c == '~';
}

static void
AppendEncoded(StringInfo out, unsigned char c)
{
	appendStringInfo(out, "%%%02X", c);
}

/*
 * "!" is always encoded in a value, so what is cut and hashed can be no other
 * value's name.
 */
static void
AppendKeyValue(StringInfo out, const char *value)
{
	StringInfoData encoded;
	bool		leading = true;
	int			cut;

	initStringInfo(&encoded);
	for (const char *c = value; *c != '\0'; c++)
	{
		leading = leading && *c == '.';
		if (IsUnreserved(*c) && !leading)
			appendStringInfoChar(&encoded, *c);
		else
			AppendEncoded(&encoded, *c);
	}
	if (encoded.len <= LONGEST_VALUE)
		appendStringInfoString(out, encoded.data);
	else
	{
		char		hash[SHA256_HEX_LENGTH + 1];

		Sha256Hex(value, strlen(value), hash);
		cut = LONGEST_VALUE - HASH_DIGITS - 1;
		while (encoded.data[cut - 1] == '%' || encoded.data[cut - 2] == '%')
			cut--;
		appendStringInfo(out, "%.*s!%.*s", cut, encoded.data, HASH_DIGITS, hash);
	}
	pfree(encoded.data);
}

/* Names sort in the order of positions. */
static void
AppendKeyPosition(StringInfo out, Position position)
{
	appendStringInfo(out, "%019lld", (long long) position.seq);
	if (position.n > 0)
		appendStringInfo(out, ".%019lld", (long long) position.n);
}

/* In UTC, whatever TimeZone says. */
static void
AppendKeyTime(StringInfo out, TimestampTz time, bool hour)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (timestamp2tm(time, NULL, &tm, &fsec, NULL, NULL) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	if (hour)
		appendStringInfo(out, "%02d", tm.tm_hour);
	else
		appendStringInfo(out, "%04d-%02d-%02d", tm.tm_year, tm.tm_mon, tm.tm_mday);
}

static const char *
FindValue(const KeyValues *values, const char *name)
{
	if (strcmp(name, "batch_id") == 0)
		return values->batch_id;
	if (strcmp(name, "dataset") == 0)
		return values->dataset;
	if (strcmp(name, "source") == 0)
		return values->source;
	if (strcmp(name, "sink") == 0)
		return values->sink;
	if (strcmp(name, "destination") == 0)
		return values->destination;
	if (strcmp(name, "instance") == 0)
		return values->instance;
	if (strcmp(name, "epoch") == 0)
		return values->epoch;
	if (strcmp(name, "ext") == 0)
		return values->ext;
	return NULL;
}

static void
AppendKeyPlaceholder(StringInfo out, const char *name, const KeyValues *values)
{
	const char *value;

	if (strcmp(name, "since") == 0)
		AppendKeyPosition(out, values->since);
	else if (strcmp(name, "until") == 0)
		AppendKeyPosition(out, values->until);
	else if (strcmp(name, "date") == 0 || strcmp(name, "hour") == 0)
		AppendKeyTime(out, values->time, name[0] == 'h');
	else
	{
		value = FindValue(values, name);
		if (value == NULL)
			elog(ERROR, "no value for placeholder \"{%s}\"", name);
		AppendKeyValue(out, value);
	}
}

/*
 * {instance} and {destination} can be empty; a part that they leave empty goes,
 * as object names have none.
 */
static char *
RemoveEmptyParts(char *key)
{
	char	   *end = key;
	char	   *start = key;

	for (char *c = key; *c != '\0'; c++)
		if (*c != '/' || (end != key && end[-1] != '/'))
			*end++ = *c;
	*end = '\0';
	while (*start != '\0')
	{
		size_t		length = strcspn(start, "/");

		if (length > LONGEST_PART)
			ereport(ERROR,
					(errcode(ERRCODE_NAME_TOO_LONG),
					 errmsg("part of an object key is too long: \"%.*s\"", (int) length, start),
					 errdetail("It has %zu bytes, %d are allowed.", length, LONGEST_PART),
					 errhint("Choose another \"key\" option, or shorter names.")));
		start += length;
		if (*start == '/')
			start++;
	}
	return key;
}

/* What differs between the batches of an epoch; false for what does not. */
static bool
AppendKeyMark(StringInfo out, const char *name)
{
	if (strcmp(name, "since") == 0)
		appendStringInfoChar(out, KEY_MARK_SINCE);
	else if (strcmp(name, "until") == 0)
		appendStringInfoChar(out, KEY_MARK_UNTIL);
	else if (strcmp(name, "date") == 0)
		appendStringInfoChar(out, KEY_MARK_DATE);
	else if (strcmp(name, "hour") == 0)
		appendStringInfoChar(out, KEY_MARK_HOUR);
	else
		return false;
	return true;
}

static char *
ExpandKeyOrPattern(const char *template, const KeyValues *values, bool is_pattern)
{
	StringInfoData key;
	ListCell   *cell;

	initStringInfo(&key);
	foreach(cell, ParseTemplate(template, "option \"key\""))
	{
		TemplatePart *part = lfirst(cell);

		if (!part->is_placeholder)
			appendStringInfoString(&key, part->text);
		else if (!is_pattern || !AppendKeyMark(&key, part->text))
			AppendKeyPlaceholder(&key, part->text, values);
	}
	return RemoveEmptyParts(key.data);
}

char *
ExpandKey(const char *template, const KeyValues *values)
{
	return ExpandKeyOrPattern(template, values, false);
}

char *
ExpandKeyPattern(const char *template, const KeyValues *values)
{
	return ExpandKeyOrPattern(template, values, true);
}

/*
 * A value of dots alone is encoded twice: programs on the way take "%2E%2E" for
 * "..", and no name may lead out of the path that was allowed.
 */
static void
AppendUrlValue(StringInfo out, const char *value)
{
	bool		dots = value[strspn(value, ".")] == '\0';

	for (; *value != '\0'; value++)
	{
		if (dots)
			appendStringInfoString(out, "%252E");
		else if (IsUnreserved(*value))
			appendStringInfoChar(out, *value);
		else
			AppendEncoded(out, *value);
	}
}

char *
EscapeForUrl(const char *value)
{
	StringInfoData encoded;

	initStringInfo(&encoded);
	AppendUrlValue(&encoded, value);
	return encoded.data;
}

/* Printable ASCII stays, "%" does not, so that what was encoded can be told. */
static void
AppendHeaderValue(StringInfo out, const char *value)
{
	for (; *value != '\0'; value++)
	{
		if (*value >= 0x20 && *value <= 0x7e && *value != '%')
			appendStringInfoChar(out, *value);
		else
			AppendEncoded(out, *value);
	}
}

pg_noreturn static void
RaiseNoSecret(const char *name, const Credentials *credentials)
{
	if (credentials == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("placeholder \"{secret:%s}\" needs credentials", name),
				 errhint("Name a foreign server in the sink's \"credentials\".")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("the user mapping of server \"%s\" has no option \"%s\"",
					credentials->server, name),
			 credentials->has_file ?
			 errdetail("A placeholder of the sink names it, and secret file \"%s\" does not have it either.",
					   credentials->secret_file)
			 : errdetail("A placeholder of the sink names it."),
			 errhint("Add it with ALTER USER MAPPING ... OPTIONS (ADD %s ...).", name)));
}

const char *
RequireSecret(const char *name, const Credentials *credentials)
{
	const char *value;

	if (!SecretMayBePlaced(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("placeholder \"{secret:%s}\" cannot be used", name),
				 errdetail("This secret is never sent.")));
	value = FindSecret(credentials, name);
	if (value == NULL &&
		(credentials == NULL || credentials->secret_file == NULL || credentials->has_file))
		RaiseNoSecret(name, credentials);
	return value;
}

void
RefuseSecondAuthorization(const char *header, const Credentials *credentials)
{
	const char *option = AuthorizationOption(credentials);

	if (option != NULL && pg_strcasecmp(header, "authorization") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header \"Authorization\" is given twice"),
				 errdetail("The user mapping of server \"%s\" has the option \"%s\".",
						   credentials->server, option)));
}

static void
AppendRequestPlaceholder(StringInfo out, const char *name, ExpandPlace place,
						 const KeyValues *values, const Credentials *credentials)
{
	bool		is_secret = strncmp(name, SECRET_PREFIX, strlen(SECRET_PREFIX)) == 0;
	const char *value;

	if (is_secret)
		value = RequireSecret(name + strlen(SECRET_PREFIX), credentials);
	else if (strcmp(name, "since") == 0)
		value = FormatPosition(values->since);
	else if (strcmp(name, "until") == 0)
		value = FormatPosition(values->until);
	else
		value = FindValue(values, name);
	if (value == NULL)
		elog(ERROR, "no value for placeholder \"{%s}\"", name);

	if (place == EXPAND_URL)
		AppendUrlValue(out, value);
	else if (is_secret)
		appendStringInfoString(out, value);
	else
		AppendHeaderValue(out, value);
}

char *
ExpandPlaceholders(const char *template, ExpandPlace place,
				   const KeyValues *values, const Credentials *credentials)
{
	StringInfoData result;
	ListCell   *cell;

	initStringInfo(&result);
	foreach(cell, ParseTemplate(template, place == EXPAND_URL ? "the URL" : "a header"))
	{
		TemplatePart *part = lfirst(cell);

		if (part->is_placeholder)
			AppendRequestPlaceholder(&result, part->text, place, values, credentials);
		else
			appendStringInfoString(&result, part->text);
	}
	return result.data;
}
