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

static const char *const format_values[] = {"ndjson", "json", "cloudevents", NULL};
static const char *const compression_values[] = {"none", "gzip", "zstd", NULL};
static const char *const start_values[] = {"beginning", "now", NULL};
static const char *const method_values[] = {"POST", "PUT", NULL};
static const char *const on_reject_values[] = {"halt", "dead_letter", NULL};
static const char *const tls_version_values[] = {"1.2", "1.3", NULL};

#define DEFAULT_KEY \
	"{dataset}/source={source}/dt={date}/{sink}-e{epoch}-{since}-{until}.{ext}"

const OptionDescription option_table[] = {
	{"format", BOTH, OPTION_ENUM, "ndjson", "ndjson",
		0, 0, format_values, FIELD(format),
	"how rows are written in a request body; objects are always ndjson"},
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
	"encoded bytes, before compression, that fill a batch; a larger row goes alone"},
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
	{"max_in_flight", OPTION_FORWARD, OPTION_INTEGER, "1", NULL,
		1, 64, NULL, FIELD(max_in_flight),
	"batches of one table on their way at a time; with more than 1 the receiver must know batches by their id"},
	{"compression", OPTION_FORWARD, OPTION_ENUM, "none", NULL,
		0, 0, compression_values, FIELD(compression),
	"how request bodies are compressed"},
	{"compression_level", OPTION_FORWARD, OPTION_INTEGER, "0", NULL,
		0, 9, NULL, FIELD(compression_level),
	"1 is fastest, 9 makes the smallest bodies; 0 is 6 for gzip and 3 for zstd"},
	{"cloudevents_source", OPTION_FORWARD, OPTION_STRING, "/incsink/{sink}/{dataset}/{source}", NULL,
		0, 0, NULL, FIELD(cloudevents_source),
	"source of events, a URI reference that may hold {sink}, {dataset} and {source}"},
	{"cloudevents_type", OPTION_FORWARD, OPTION_STRING, "incsink.row", NULL,
		0, 0, NULL, FIELD(cloudevents_type),
	"type of events"},
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
	{"on_reject", OPTION_FORWARD, OPTION_ENUM, "halt", NULL,
		0, 0, on_reject_values, FIELD(on_reject),
	"what becomes of rows that the receiver refuses: they halt the delivery, or are put aside"},
	{"reuse_status", OPTION_FORWARD, OPTION_INTEGER, "0", NULL,
		0, 499, NULL, FIELD(reuse_status),
	"status, 400 to 499, with which the receiver answers a batch that it has already; 0 for none"},
	{"ca_certificate", OPTION_FORWARD, OPTION_STRING, "", NULL,
		0, 0, NULL, FIELD(ca_certificate),
	"certificates, in PEM, that the receiver's must be signed by; if empty, those the system trusts"},
	{"tls_min_version", OPTION_FORWARD, OPTION_ENUM, "1.2", NULL,
		0, 0, tls_version_values, FIELD(tls_min_version),
	"lowest version of TLS"},
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
