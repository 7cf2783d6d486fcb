/*
 * options.h
 *		The options of sinks, described once.
 *
 * One table drives parsing, the errors for unknown and bad values, the function
 * incsink_options(), the reference page and a generated test.
 */
#ifndef INCSINK_OPTIONS_H
#define INCSINK_OPTIONS_H

#include "postgres.h"

#include "utils/jsonb.h"

typedef struct OptionHeader
{
	char	   *name;
	char	   *value;			/* may hold {placeholders} */
} OptionHeader;

/* Every option of every kind, parsed; durations in milliseconds, sizes in bytes. */
typedef struct SinkOptions
{
	char	   *format;			/* "ndjson", "json" or "cloudevents" */
	char	   *start;			/* "beginning" or "now": for tables added */
	int64		flush_interval;
	int64		flush_rows;
	int64		flush_bytes;
	int64		max_rows_per_second;	/* 0 = no limit */
	int64		max_bytes_per_second;
	int64		retry_initial;
	int64		retry_max;
	/* forward */
	int64		max_in_flight;
	char	   *compression;	/* "none", "gzip" or "zstd" */
	int64		compression_level;	/* 0 = the method's own */
	char	   *cloudevents_source; /* template */
	char	   *cloudevents_type;
	char	   *method;			/* "POST" or "PUT" */
	OptionHeader *headers;
	int			nheaders;
	int64		connect_timeout;
	int64		request_timeout;
	int64		stall_timeout;
	int64		answer_limit;
	char	   *on_reject;		/* "halt" or "dead_letter" */
	int64		reuse_status;	/* for an id that the receiver has, 0 = none */
	char	   *ca_certificate; /* PEM, "" = the system's */
	char	   *tls_min_version;	/* "1.2" or "1.3" */
	/* blob */
	char	   *key;			/* key template */
} SinkOptions;

/*
 * Parses the options of a sink of the given kind ("forward" or "blob") over the
 * defaults of that kind.  Raises ERRCODE_INVALID_PARAMETER_VALUE with the name,
 * the bounds and, for an unknown name, the nearest known one.
 */
extern SinkOptions *ParseSinkOptions(const char *kind, Jsonb *options);

/*
 * Merges changes over old options, key by key (a JSON null removes one), for
 * incsink_alter_sink().
 */
extern Jsonb *MergeOptions(Jsonb *old, Jsonb *changes);

/* Parses the options of a partition; raises likewise. */
extern void CheckPartitionOptions(Jsonb *options);

#endif							/* INCSINK_OPTIONS_H */
