/*
 * multi_status.c
 *		Answers with a status for each row (207).
 *
 * The server's parser walks through the answer; it raises an ERROR for one that is too
 * deep and where there is no memory, which is caught here: the caller stands in the
 * middle of other transfers.
 */
#include "postgres.h"

#include "common/compat.h"
#include "common/jsonapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "sink/multi_status.h"
#include "utils/memutils.h"

#define LOWEST_FAILURE 300		/* status of a row that was not stored */

typedef enum Member
{
	MEMBER_OTHER,
	MEMBER_STATUS,
	MEMBER_ERROR
} Member;

typedef struct Walk
{
	Member		member;			/* whose value comes next */
	bool		in_errors;		/* in an array or object that must be empty */
	bool		failed;
} Walk;

/* A value begins that is an array or an object. */
static JsonActionResult
BeginContainer(void *state)
{
	Walk	   *walk = state;

	if (walk->member == MEMBER_STATUS)
		walk->failed = true;
	walk->in_errors = walk->member == MEMBER_ERROR;
	walk->member = MEMBER_OTHER;
	return JSON_ACTION_DONE;
}

static JsonActionResult
EndContainer(void *state)
{
	((Walk *) state)->in_errors = false;
	return JSON_ACTION_DONE;
}

static JsonActionResult
BeginMember(void *state, char *name, bool isnull)
{
	Walk	   *walk = state;

	walk->failed |= walk->in_errors;
	if (strcmp(name, "status") == 0)
		walk->member = MEMBER_STATUS;
	else if (strcmp(name, "error") == 0 || strcmp(name, "errors") == 0)
		walk->member = MEMBER_ERROR;
	else
		walk->member = MEMBER_OTHER;
	return JSON_ACTION_DONE;
}

static JsonActionResult
BeginElement(void *state, bool isnull)
{
	Walk	   *walk = state;

	walk->failed |= walk->in_errors;
	return JSON_ACTION_DONE;
}

/* A number may stand in a string: "201", or "201 Created". */
static bool
IsGoodStatus(const char *token)
{
	char	   *end;
	double		status = strtod(token, &end);

	return end != token && (*end == '\0' || *end == ' ') && status < LOWEST_FAILURE;
}

static bool
IsSet(const char *token, JsonTokenType type)
{
	switch (type)
	{
		case JSON_TOKEN_NULL:
		case JSON_TOKEN_FALSE:
			return false;
		case JSON_TOKEN_NUMBER:
			return strtod(token, NULL) != 0;
		case JSON_TOKEN_STRING:
			return *token != '\0';
		default:
			return true;
	}
}

static JsonActionResult
TakeScalar(void *state, char *token, JsonTokenType type)
{
	Walk	   *walk = state;

	if (walk->member == MEMBER_STATUS && type != JSON_TOKEN_NULL)
		walk->failed |= (type != JSON_TOKEN_NUMBER && type != JSON_TOKEN_STRING) ||
			!IsGoodStatus(token);
	if (walk->member == MEMBER_ERROR)
		walk->failed |= IsSet(token, type);
	walk->member = MEMBER_OTHER;
	return JSON_ACTION_DONE;
}

static bool
WalkThrough(char *answer, size_t length)
{
	Walk		walk = {0};
	JsonSemAction actions = {
		.semstate = &walk,
		.object_start = BeginContainer,
		.object_end = EndContainer,
		.array_start = BeginContainer,
		.array_end = EndContainer,
		.object_field_start = BeginMember,
		.array_element_start = BeginElement,
		.scalar = TakeScalar,
	};

	if (pg_encoding_verifymbstr(PG_UTF8, answer, (int) length) != (int) length)
		return false;
	return pg_parse_json(MakeJsonLexContextCompat(answer, (int) length), &actions) == JSON_SUCCESS &&
		!walk.failed;
}

bool
EveryRowWasStored(const char *answer, size_t length)
{
	MemoryContext old = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	volatile MemoryContext scratch = NULL;
	volatile bool stored = false;

	PG_TRY();
	{
		scratch = AllocSetContextCreate(old, "incsink multi-status", ALLOCSET_SMALL_SIZES);
		MemoryContextSwitchTo(scratch);
		stored = WalkThrough(pnstrdup(answer, length), length);
	}
	PG_CATCH();
	{
		FlushErrorState();
		InterruptHoldoffCount = holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	if (scratch != NULL)
		MemoryContextDelete(scratch);
	return stored;
}
