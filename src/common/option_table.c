/*
 * option_table.c
 *		What the options of sinks are called, hold and default to.
 *
 * doc/reference.md shows this table; the test options.sql compares the two.
 */
#include "postgres.h"

#include "common/option_table.h"
#include "common/options.h"
#include "common/units.h"

#define BOTH	(OPTION_FORWARD | OPTION_BLOB)
#define FIELD(name)	offsetof(SinkOptions, name)

#define MILLISECONDS	INT64CONST(1)
#define SECONDS	INT64CONST(1000)
#define HOURS	(3600 * SECONDS)
#define DAYS	(24 * HOURS)
#define KILOBYTES	INT64CONST(1024)
#define MEGABYTES	(1024 * KILOBYTES)
#define GIGABYTES	(1024 * MEGABYTES)

static const char *const format_values[] = {"ndjson", NULL};
static const char *const start_values[] = {"beginning", "now", NULL};
static const char *const method_values[] = {"POST", "PUT", NULL};

#define DEFAULT_KEY \
	"{dataset}/source={source}/dt={date}/{sink}-e{epoch}-{since}-{until}.{ext}"

const OptionDescription option_table[] = {
	{"format", BOTH, OPTION_ENUM, "ndjson", "ndjson",
		0, 0, format_values, FIELD(format),
	"how rows are written in a request body or object"},
	{"start", BOTH, OPTION_ENUM, "beginning", "beginning",
		0, 0, start_values, FIELD(start),
	"where tables that are added begin: with all their rows, or with rows committed from now on"},
	{"flush_interval", BOTH, OPTION_DURATION, "0", "5min",
		0, 1 * DAYS, NULL, FIELD(flush_interval),
	"how long the oldest waiting row may wait for a batch to fill; 0 sends what is there"},
	{"flush_rows", BOTH, OPTION_INTEGER, "5000", "1000000",
		1, 10000000, NULL, FIELD(flush_rows),
	"rows that fill a batch"},
	{"flush_bytes", BOTH, OPTION_SIZE, "4MB", "128MB",
		1 * KILOBYTES, 1 * GIGABYTES, NULL, FIELD(flush_bytes),
	"encoded bytes that fill a batch; a larger row goes alone"},
	{"max_rows_per_second", BOTH, OPTION_INTEGER, "0", "0",
		0, 1000000000, NULL, FIELD(max_rows_per_second),
	"rows a second that the sink exports at most, all of its tables together; 0 sets no limit"},
	{"max_bytes_per_second", BOTH, OPTION_SIZE, "0", "0",
		0, 1024 * GIGABYTES, NULL, FIELD(max_bytes_per_second),
	"encoded bytes a second that the sink exports at most, all of its tables together; 0 sets no limit"},
	{"retry_initial", BOTH, OPTION_DURATION, "1s", "1s",
		10 * MILLISECONDS, 1 * HOURS, NULL, FIELD(retry_initial),
	"upper bound of the pause after the first failure; it doubles with each further one"},
	{"retry_max", BOTH, OPTION_DURATION, "5min", "5min",
		10 * MILLISECONDS, 1 * DAYS, NULL, FIELD(retry_max),
	"longest pause between attempts, and between probes of an open circuit"},
	{"method", OPTION_FORWARD, OPTION_ENUM, "POST", NULL,
		0, 0, method_values, FIELD(method),
	"HTTP method of requests"},
	{"headers", OPTION_FORWARD, OPTION_HEADERS, "{}", NULL,
		0, 0, NULL, FIELD(headers),
	"further request headers, a JSON object of strings that may hold placeholders"},
	{"connect_timeout", OPTION_FORWARD, OPTION_DURATION, "10s", NULL,
		10 * MILLISECONDS, 1 * HOURS, NULL, FIELD(connect_timeout),
	"longest time to resolve, connect and shake hands"},
	{"request_timeout", OPTION_FORWARD, OPTION_DURATION, "1min", NULL,
		10 * MILLISECONDS, 1 * DAYS, NULL, FIELD(request_timeout),
	"longest time of a whole attempt"},
	{"stall_timeout", OPTION_FORWARD, OPTION_DURATION, "30s", NULL,
		10 * MILLISECONDS, 1 * DAYS, NULL, FIELD(stall_timeout),
	"longest time without a byte in either direction"},
	{"answer_limit", OPTION_FORWARD, OPTION_SIZE, "64kB", NULL,
		1 * KILOBYTES, 16 * MEGABYTES, NULL, FIELD(answer_limit),
	"bytes of an answer's body that are read"},
	{"key", OPTION_BLOB, OPTION_STRING, NULL, DEFAULT_KEY,
		0, 0, NULL, FIELD(key),
	"template of object names below the URL"},
	{NULL}
};

int
OptionKindBit(const char *kind)
{
	if (strcmp(kind, "forward") == 0)
		return OPTION_FORWARD;
	return strcmp(kind, "blob") == 0 ? OPTION_BLOB : 0;
}

const char *
OptionTypeName(OptionType type)
{
	switch (type)
	{
		case OPTION_INTEGER:
			return "integer";
		case OPTION_DURATION:
			return "duration";
		case OPTION_SIZE:
			return "size";
		case OPTION_ENUM:
			return "enum";
		case OPTION_STRING:
			return "string";
		case OPTION_HEADERS:
			return "headers";
	}
	return NULL;				/* keep compilers quiet */
}

bool
OptionIsNumber(const OptionDescription *option)
{
	return option->type == OPTION_INTEGER || option->type == OPTION_DURATION ||
		option->type == OPTION_SIZE;
}

char *
FormatOptionNumber(const OptionDescription *option, int64 value)
{
	return FormatAmount(option->type == OPTION_DURATION ? AMOUNT_DURATION :
						option->type == OPTION_SIZE ? AMOUNT_SIZE : AMOUNT_PLAIN,
						value);
}

const OptionDescription *
FindOption(const char *name)
{
	for (const OptionDescription *option = option_table; option->name != NULL; option++)
		if (strcmp(option->name, name) == 0)
			return option;
	return NULL;
}
