/*
 * token.c
 *		Tokens and positions as text and jsonb.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/numeric.h"

#include "common/token.h"

#define TOKEN_VERSION "1"

/* Digits of INT64_MAX. */
#define MAX_SEQ_DIGITS 19

Jsonb *
BacklogOverKey(void)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("[]")));
}

bool
BacklogIsOver(Position position)
{
	return position.seq > 0 || (position.key != NULL && JB_ROOT_COUNT(position.key) == 0);
}

char *
FormatPosition(Position position)
{
	if (position.seq == 0 && position.n > 0)
		return psprintf("0.%0*lld", MAX_SEQ_DIGITS, (long long) position.n);
	return psprintf(INT64_FORMAT, position.seq);
}

/*
 * Built as text: the functions that build jsonb from parts differ between server
 * versions.
 */
Jsonb *
MakeToken(const char *tag, Position position)
{
	StringInfoData text;
	Datum		token;

	initStringInfo(&text);
	appendStringInfoString(&text, "{\"v\": " TOKEN_VERSION ", \"p\": ");
	escape_json(&text, tag);
	appendStringInfo(&text, ", \"seq\": \"" INT64_FORMAT "\"", position.seq);
	if (position.n > 0 || position.key != NULL)
		appendStringInfo(&text, ", \"n\": \"" INT64_FORMAT "\"", position.n);
	if (position.key != NULL)
	{
		appendStringInfoString(&text, ", \"key\": ");
		(void) JsonbToCString(&text, &position.key->root, VARSIZE(position.key));
	}
	appendStringInfoChar(&text, '}');
	token = DirectFunctionCall1(jsonb_in, CStringGetDatum(text.data));
	pfree(text.data);
	return DatumGetJsonbP(token);
}

void
RaiseMalformedToken(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("malformed token"),
			 errdetail("%s", detail),
			 errhint("Pass a token as a function of incsink returned it, or NULL to read from the beginning.")));
}

/* The string under "key" as a palloc'd C string; NULL if there is no such key. */
static char *
TokenString(Jsonb *token, const char *key)
{
	JsonbValue *value = getKeyJsonValueFromContainer(&token->root, key, strlen(key), NULL);

	if (value == NULL)
		return NULL;
	if (value->type != jbvString)
		RaiseMalformedToken(psprintf("The value of \"%s\" must be a string.", key));
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/* Digits only: no sign, no blank, nothing that rounds. */
static int64
TokenNumber(const char *key, const char *text)
{
	size_t		length = strlen(text);
	int64		number;

	if (length == 0 || length > MAX_SEQ_DIGITS || strspn(text, "0123456789") != length)
		RaiseMalformedToken(psprintf("The value of \"%s\" must be a number of at most %d digits, in quotes.",
									 key, MAX_SEQ_DIGITS));
	errno = 0;
	number = strtoi64(text, NULL, 10);
	if (errno == ERANGE)
		RaiseMalformedToken(psprintf("The value of \"%s\" is out of range.", key));
	return number;
}

/* Raises an ERROR unless the token says that it is of our version. */
static void
CheckTokenVersion(Jsonb *token)
{
	JsonbValue *value = getKeyJsonValueFromContainer(&token->root, "v", 1, NULL);
	char	   *version;

	if (value == NULL || value->type != jbvNumeric)
		RaiseMalformedToken("The version \"v\" must be a number.");
	version = DatumGetCString(DirectFunctionCall1(numeric_out,
												  NumericGetDatum(value->val.numeric)));
	if (strcmp(version, TOKEN_VERSION) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("token is of version %s, but only version %s is known", version, TOKEN_VERSION),
				 errhint("Read on with the version of incsink that made the token, or from the beginning.")));
}

/*
 * The key of a position inside a backlog, copied; NULL if the token has none.  What its
 * values mean is for CheckBacklogPosition().
 */
static Jsonb *
TokenKey(Jsonb *token)
{
	JsonbValue *value = getKeyJsonValueFromContainer(&token->root, "key", strlen("key"), NULL);
	JsonbContainer *array;

	if (value == NULL)
		return NULL;
	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data))
		RaiseMalformedToken("The value of \"key\" must be an array.");
	array = value->val.binary.data;
	for (uint32 i = 0; i < JsonContainerSize(array); i++)
	{
		if (getIthJsonbValueFromContainer(array, i)->type != jbvString)
			RaiseMalformedToken("The value of \"key\" must be an array of strings.");
	}
	return JsonbValueToJsonb(value);
}

/* A position is above the backlog, behind it, inside it, or before everything. */
static void
CheckTokenPosition(const Position *position)
{
	if (position->seq > 0 && (position->n > 0 || position->key != NULL))
		RaiseMalformedToken("Only one of \"seq\" and \"n\" may be above zero, and only \"n\" has a \"key\".");
	if (position->n > 0 && position->key == NULL)
		RaiseMalformedToken("Where \"n\" is above zero there must be a \"key\".");
	if (position->n == 0 && position->key != NULL && JB_ROOT_COUNT(position->key) > 0)
		RaiseMalformedToken("Where \"key\" has values \"n\" must be above zero.");
}

void
ParseToken(Jsonb *token, char **tag, Position *position)
{
	char	   *seq;
	char	   *n;

	if (!JB_ROOT_IS_OBJECT(token))
		RaiseMalformedToken("A token is an object with the keys \"v\", \"p\" and \"seq\".");
	CheckTokenVersion(token);

	*tag = TokenString(token, "p");
	seq = TokenString(token, "seq");
	n = TokenString(token, "n");
	if (*tag == NULL || **tag == '\0' || seq == NULL)
		RaiseMalformedToken("A token is an object with the keys \"v\", \"p\" and \"seq\".");
	position->seq = TokenNumber("seq", seq);
	position->n = n ? TokenNumber("n", n) : 0;
	position->key = TokenKey(token);
	CheckTokenPosition(position);
}
