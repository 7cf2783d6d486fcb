/*
 * object_name.c
 *		The names that the objects of a delivery's epoch have.
 */
#include "postgres.h"

#include <ctype.h>

#include "common/int.h"
#include "sink/kind.h"
#include "sink/object_name.h"
#include "sink/url.h"

#define SEQ_DIGITS 19

/* What the marks of a pattern stood for so far. */
typedef struct Match
{
	Position	since;
	Position	until;
	bool		has_since;
	bool		has_until;
} Match;

ObjectPattern *
MakeObjectPattern(const SinkDefinition *sink, const Partition *partition, const char *epoch)
{
	ObjectPattern *pattern = palloc0(sizeof(ObjectPattern));
	Intent		intent = {.batch_id = "", .destination = FRONT_DESTINATION, .epoch = pstrdup(epoch)};
	Batch		batch = {.sink = sink, .partition = partition, .intent = &intent};
	KeyValues	values;
	char	   *save;

	batch.encoder = EncoderForFormat(sink->options->format);
	FillKeyValues(&batch, &values);
	pattern->whole = ExpandKeyPattern(sink->options->key, &values);
	pattern->parts = palloc(sizeof(char *) * (strlen(pattern->whole) + 1));
	for (char *part = strtok_r(pstrdup(pattern->whole), "/", &save); part != NULL;
		 part = strtok_r(NULL, "/", &save))
		pattern->parts[pattern->nparts++] = part;
	return pattern;
}

/* Exactly "count" digits; false if the text does not begin with them or they are too many. */
static bool
TakeDigits(const char *text, int count, int64 *value)
{
	*value = 0;
	for (int i = 0; i < count; i++)
	{
		if (!isdigit((unsigned char) text[i]) ||
			pg_mul_s64_overflow(*value, 10, value) ||
			pg_add_s64_overflow(*value, text[i] - '0', value))
			return false;
	}
	return true;
}

static bool MatchPattern(const char *pattern, const char *text, Match *match);

/* Goes on behind a position; a name may hold it twice. */
static bool
MatchRest(const char *pattern, const char *text, Position position, Match *match)
{
	Match		tried = *match;
	bool		is_since = *pattern == KEY_MARK_SINCE;

	if ((is_since && match->has_since && ComparePositions(match->since, position) != 0) ||
		(!is_since && match->has_until && ComparePositions(match->until, position) != 0))
		return false;
	if (is_since)
		tried.since = position;
	else
		tried.until = position;
	tried.has_since |= is_since;
	tried.has_until |= !is_since;
	if (!MatchPattern(pattern + 1, text, &tried))
		return false;
	*match = tried;
	return true;
}

/* Inside a backlog a position has a second half; a dot may also be the template's. */
static bool
MatchPosition(const char *pattern, const char *text, Match *match)
{
	Position	position = POSITION_BEGINNING;

	if (!TakeDigits(text, SEQ_DIGITS, &position.seq))
		return false;
	text += SEQ_DIGITS;
	if (position.seq == 0 && *text == '.' && TakeDigits(text + 1, SEQ_DIGITS, &position.n) &&
		position.n > 0 && MatchRest(pattern, text + 1 + SEQ_DIGITS, position, match))
		return true;
	position.n = 0;
	return MatchRest(pattern, text, position, match);
}

/* Length of a date or hour that the text begins with; 0 if it does not. */
static int
TimeLength(char mark, const char *text)
{
	int64		value;

	if (mark == KEY_MARK_HOUR)
		return TakeDigits(text, 2, &value) ? 2 : 0;
	return TakeDigits(text, 4, &value) && text[4] == '-' && TakeDigits(text + 5, 2, &value) &&
		text[7] == '-' && TakeDigits(text + 8, 2, &value) ? 10 : 0;
}

static bool
MatchPattern(const char *pattern, const char *text, Match *match)
{
	for (;; pattern++)
	{
		int			length = 1;

		if (*pattern == KEY_MARK_SINCE || *pattern == KEY_MARK_UNTIL)
			return MatchPosition(pattern, text, match);
		if (*pattern == KEY_MARK_DATE || *pattern == KEY_MARK_HOUR)
			length = TimeLength(*pattern, text);
		else if (*pattern != *text)
			return false;
		else if (*pattern == '\0')
			return true;
		if (length == 0)
			return false;
		text += length;
	}
}

bool
PartFitsPattern(const ObjectPattern *pattern, int part, const char *name)
{
	Match		match = {0};

	return part < pattern->nparts && MatchPattern(pattern->parts[part], name, &match);
}

bool
RangeOfObject(const ObjectPattern *pattern, const char *key, Position *since, Position *until)
{
	Match		match = {0};

	if (!MatchPattern(pattern->whole, key, &match) || !match.has_since || !match.has_until ||
		ComparePositions(match.since, match.until) >= 0)
		return false;
	*since = match.since;
	*until = match.until;
	return true;
}
