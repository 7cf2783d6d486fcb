/*
 * options.c
 *		Parses the options of sinks by the table of their descriptions.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

#include "common/compat.h"
#include "common/option_table.h"
#include "common/options.h"
#include "common/template.h"
#include "common/units.h"

/* Headers that incsink or the HTTP client sets itself, in lower case. */
static const char *const own_headers[] = {
	"connection", "content-digest", "content-encoding", "content-length", "content-type",
	"expect", "host", "idempotency-key", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade", "webhook-id", "webhook-signature", "webhook-timestamp", NULL
};

/* Definitions are readable by everybody, so these may not stand there in clear. */
static const char *const secret_headers[] = {
	"authorization", "cookie", "proxy-authorization", NULL
};

pg_noreturn static void
RaiseUnknownOption(const char *name, int kinds)
{
	const char *names[64];
	int			count = 0;
	const char *nearest;

	for (const OptionDescription *option = option_table; option->name != NULL; option++)
		if (option->kinds & kinds)
			names[count++] = option->name;
	Assert(count < lengthof(names));
	names[count] = NULL;
	nearest = NearestName(name, names);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown sink option \"%s\"", name),
			 nearest ? errhint("Perhaps you meant \"%s\".", nearest)
			 : errhint("SELECT * FROM incsink_options() lists all options.")));
}

/* The words that a value of this option may be, for a message. */
static char *
DescribeValues(const OptionDescription *option)
{
	StringInfoData list;

	initStringInfo(&list);
	for (const char *const *value = option->values; *value != NULL; value++)
		appendStringInfo(&list, "%s\"%s\"", list.len > 0 ? ", " : "", *value);
	return list.data;
}

static char *
DescribeType(const OptionDescription *option)
{
	switch (option->type)
	{
		case OPTION_INTEGER:
			return "an integer";
		case OPTION_DURATION:
			return "a duration, such as \"30s\"";
		case OPTION_SIZE:
			return "a size, such as \"4MB\"";
		case OPTION_ENUM:
			return psprintf("%s%s", option->values[1] != NULL ? "one of " : "", DescribeValues(option));
		case OPTION_STRING:
			return "a string";
		case OPTION_HEADERS:
			return "an object of strings";
	}
	return NULL;				/* keep compilers quiet */
}

pg_noreturn static void
RaiseWrongType(const OptionDescription *option)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("sink option \"%s\" must be %s", option->name, DescribeType(option))));
}

static int64
ParseNumber(const OptionDescription *option, const char *text)
{
	AmountKind	kind = option->type == OPTION_DURATION ? AMOUNT_DURATION :
		option->type == OPTION_SIZE ? AMOUNT_SIZE : AMOUNT_PLAIN;
	const char *hint;
	int64		value;

	if (!ParseAmount(kind, text, &value, &hint))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for sink option \"%s\": \"%s\"", option->name, text),
				 errdetail("It must be %s.", DescribeType(option)),
				 hint ? errhint("%s", hint) : 0));
	if (value < option->min || value > option->max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value \"%s\" of sink option \"%s\" is out of range", text, option->name),
				 errdetail("It must be between %s and %s.",
						   FormatOptionNumber(option, option->min),
						   FormatOptionNumber(option, option->max))));
	return value;
}

static const char *
ParseEnum(const OptionDescription *option, const char *text)
{
	const char *nearest;

	for (const char *const *value = option->values; *value != NULL; value++)
		if (pg_strcasecmp(*value, text) == 0)
			return *value;
	nearest = NearestName(text, option->values);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for sink option \"%s\": \"%s\"", option->name, text),
			 errdetail("It must be %s.", DescribeType(option)),
			 nearest ? errhint("Perhaps you meant \"%s\".", nearest) : 0));
}

/* A token of RFC 9110 section 5.6.2. */
static bool
IsHeaderName(const char *name)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	if (*name == '\0')
		return false;
	for (; *name != '\0'; name++)
		if (!(*name >= 'a' && *name <= 'z') && !(*name >= 'A' && *name <= 'Z') &&
			!(*name >= '0' && *name <= '9') && strchr(others, *name) == NULL)
			return false;
	return true;
}

static bool
IsOneOfHeaders(const char *name, const char *const *headers)
{
	for (; *headers != NULL; headers++)
		if (pg_strcasecmp(name, *headers) == 0)
			return true;
	return false;
}

static void
CheckHeader(const OptionHeader *headers, int count, const char *name, const char *value)
{
	char	   *what;

	if (!IsHeaderName(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid header name \"%s\"", name),
				 errdetail("Names of headers consist of letters, digits and \"!#$%%&'*+-.^_`|~\".")));
	if (IsOneOfHeaders(name, own_headers) || pg_strncasecmp(name, "incsink-", 8) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header \"%s\" cannot be set", name),
				 errdetail("It is set by incsink itself.")));
	for (int i = 0; i < count; i++)
		if (pg_strcasecmp(headers[i].name, name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("header \"%s\" is given twice", name),
					 errdetail("Upper and lower case do not make a difference.")));
	for (const unsigned char *c = (const unsigned char *) value; *c != '\0'; c++)
		if ((*c < 0x20 && *c != '\t') || *c > 0x7e)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value of header \"%s\"", name),
					 errdetail("Line ends, other control characters and letters beyond ASCII are not allowed.")));
	what = psprintf("header \"%s\"", name);
	CheckPlaceholders(value, what);
	if (IsOneOfHeaders(name, secret_headers) && ListSecrets(NIL, value, what) == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header \"%s\" must take its value from a secret", name),
				 errdetail("Options of sinks can be read by every role."),
				 errhint("Store the value as an option of the user mapping, and write {secret:NAME} here.")));
}

static void
ParseHeaders(const OptionDescription *option, JsonbContainer *object, SinkOptions *options)
{
	JsonbIterator *iterator = JsonbIteratorInit(object);
	JsonbValue	value;
	JsonbIteratorToken token;
	char	   *name = NULL;

	options->headers = palloc(sizeof(OptionHeader) * Max(JsonContainerSize(object), 1));
	options->nheaders = 0;
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		OptionHeader *header = &options->headers[options->nheaders];
		char	   *text;

		if (token == WJB_KEY)
			name = pnstrdup(value.val.string.val, value.val.string.len);
		if (token != WJB_VALUE)
			continue;
		if (value.type != jbvString)
			RaiseWrongType(option);
		text = pnstrdup(value.val.string.val, value.val.string.len);
		CheckHeader(options->headers, options->nheaders, name, text);
		header->name = name;
		header->value = text;
		options->nheaders++;
	}
}

/* A number or string as text; NULL for any other JSON value. */
static char *
ScalarAsText(const JsonbValue *value)
{
	if (value->type == jbvString)
		return pnstrdup(value->val.string.val, value->val.string.len);
	if (value->type == jbvNumeric)
		return numeric_normalize(value->val.numeric);
	return NULL;
}

static void
SetFromText(const OptionDescription *option, const char *text, SinkOptions *options)
{
	char	   *field = (char *) options + option->offset;

	if (OptionIsNumber(option))
		*(int64 *) field = ParseNumber(option, text);
	else if (option->type == OPTION_ENUM)
		*(char **) field = pstrdup(ParseEnum(option, text));
	else
		*(char **) field = pstrdup(text);
}

static void
SetFromJson(const OptionDescription *option, const JsonbValue *value, SinkOptions *options)
{
	char	   *text;

	if (option->type == OPTION_HEADERS)
	{
		if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
			RaiseWrongType(option);
		ParseHeaders(option, value->val.binary.data, options);
		return;
	}
	if (value->type == jbvNumeric && !OptionIsNumber(option))
		RaiseWrongType(option);
	text = ScalarAsText(value);
	if (text == NULL)
		RaiseWrongType(option);
	SetFromText(option, text, options);
}

static SinkOptions *
DefaultOptions(int kind)
{
	SinkOptions *options = palloc0(sizeof(SinkOptions));

	for (const OptionDescription *option = option_table; option->name != NULL; option++)
		if ((option->kinds & kind) && option->type != OPTION_HEADERS)
			SetFromText(option,
						kind == OPTION_FORWARD ? option->forward_default : option->blob_default,
						options);
	return options;
}

/* Definitions are readable by everybody: a key that slips in must not stay. */
static void
CheckAuthorities(const char *pem)
{
	if (*pem == '\0' ||
		(strstr(pem, "-----BEGIN CERTIFICATE-----") != NULL && strstr(pem, "PRIVATE KEY") == NULL))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for sink option \"ca_certificate\""),
			 errdetail("It must hold certificates in PEM, from -----BEGIN CERTIFICATE-----, and nothing else.")));
}

/* Objects are found, checked and read again by lines. */
static void
CheckFormat(int kind, const char *format)
{
	if (kind == OPTION_BLOB && strcmp(format, "ndjson") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sinks of kind \"blob\" do not write the format \"%s\"", format),
				 errhint("Objects are written as \"ndjson\".")));
}

static void
CheckEventType(const char *type)
{
	const char *c = type;

	while (*c > 0x20 && *c < 0x7f)
		c++;
	if (c == type || *c != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for sink option \"cloudevents_type\": \"%s\"", type),
				 errdetail("It must consist of printable ASCII characters without blanks.")));
}

/* What no single option can tell. */
static void
CheckTogether(int kind, const SinkOptions *options)
{
	if (options->retry_initial > options->retry_max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sink option \"retry_initial\" is greater than \"retry_max\""),
				 errdetail("They are %s and %s.",
						   FormatAmount(AMOUNT_DURATION, options->retry_initial),
						   FormatAmount(AMOUNT_DURATION, options->retry_max))));
	if (options->reuse_status != 0 && options->reuse_status < 400)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value \"%lld\" of sink option \"reuse_status\" is out of range",
						(long long) options->reuse_status),
				 errdetail("It must be between 400 and 499, or 0 for none.")));
	CheckFormat(kind, options->format);
	if (kind == OPTION_FORWARD)
	{
		CheckEventSource(options->cloudevents_source);
		CheckEventType(options->cloudevents_type);
	}
	if (kind == OPTION_BLOB)
		CheckKeyTemplate(options->key);
	else
		CheckAuthorities(options->ca_certificate);
}

static void
CheckIsObject(Jsonb *options)
{
	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options must be a JSON object"),
				 errhint("Write, for example, '{\"flush_rows\": 1000}'.")));
}

SinkOptions *
ParseSinkOptions(const char *kind, Jsonb *options)
{
	int			kind_bit = OptionKindBit(kind);
	SinkOptions *result = DefaultOptions(kind_bit);
	const OptionDescription *option = NULL;
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	value;

	CheckIsObject(options);
	iterator = JsonbIteratorInit(&options->root);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			char	   *name = pnstrdup(value.val.string.val, value.val.string.len);

			option = FindOption(name);
			if (option == NULL)
				RaiseUnknownOption(name, kind_bit);
			if (!(option->kinds & kind_bit))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("sinks of kind \"%s\" have no option \"%s\"", kind, name),
						 errhint("SELECT * FROM incsink_options('%s') lists those they have.", kind)));
		}
		else if (token == WJB_VALUE)
			SetFromJson(option, &value, result);
	}
	CheckTogether(kind_bit, result);
	return result;
}

/*
 * Nulls are taken out by name: jsonb_strip_nulls() would reach into headers,
 * where a null is a mistake.
 */
Jsonb *
MergeOptions(Jsonb *old, Jsonb *changes)
{
	Datum		result;
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	value;
	text	   *key = NULL;

	CheckIsObject(changes);
	result = old == NULL ? JsonbPGetDatum(changes) :
		DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(old), JsonbPGetDatum(changes));
	iterator = JsonbIteratorInit(&changes->root);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = cstring_to_text_with_len(value.val.string.val, value.val.string.len);
		if (token != WJB_VALUE || value.type != jbvNull)
			continue;
		if (FindOption(text_to_cstring(key)) == NULL)
			RaiseUnknownOption(text_to_cstring(key), OPTION_FORWARD | OPTION_BLOB);
		result = DirectFunctionCall2(jsonb_delete, result, PointerGetDatum(key));
	}
	return DatumGetJsonbP(result);
}

/* There are none yet: retention brings the first. */
void
CheckPartitionOptions(Jsonb *options)
{
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	value;

	CheckIsObject(options);
	iterator = JsonbIteratorInit(&options->root);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
		if (token == WJB_KEY)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("unknown table option \"%s\"",
							pnstrdup(value.val.string.val, value.val.string.len)),
					 errdetail("Attached tables have no options in this version.")));
}
