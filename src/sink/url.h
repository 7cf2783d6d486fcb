/*
 * url.h
 *		Where a sink may point, and the placeholders of its URL, headers and keys.
 */
#ifndef INCSINK_SINK_URL_H
#define INCSINK_SINK_URL_H

#include "postgres.h"

#include "catalog/credentials.h"
#include "common/token.h"
#include "datatype/timestamp.h"

/* "forward" for http and https, "blob" for file; raises for another scheme. */
extern const char *SinkKindOfUrl(const char *url);

/*
 * Checks that a sink of "owner" may point there: the form of the URL and its
 * placeholders, incsink.allowed_url_prefixes, pg_write_server_files, and that no
 * file goes into the data directory or a tablespace.  Raises an ERROR.
 */
extern void CheckSinkUrl(const char *url, Oid owner);

/* The part of it that may change afterwards; looks at no file system. */
extern void CheckSinkRights(const char *url, Oid owner);

/* The directory of a file URL. */
extern char *FileUrlDirectory(const char *url);

/* What placeholders of one batch stand for. */
typedef struct KeyValues
{
	const char *batch_id;
	const char *dataset;
	const char *source;
	const char *sink;
	const char *destination;
	const char *instance;
	const char *epoch;
	const char *ext;			/* without the dot */
	Position	since;
	Position	until;
	TimestampTz time;			/* the intent's: a retry makes the same key */
} KeyValues;

/*
 * The object key of a batch, in CurrentMemoryContext.  Every value is escaped so
 * that it is one part of a file name: everything but A-Z a-z 0-9 - _ . ~ is
 * percent-encoded, leading dots too, and a value that would be longer than 160
 * bytes ends in "!" and a hash.  since and until are padded to 19 digits.  date
 * and hour are UTC.  Raises ERRCODE_NAME_TOO_LONG for a part beyond 255 bytes.
 */
extern char *ExpandKey(const char *template, const KeyValues *values);

/*
 * The same with a mark, a control character, in each place of since, until, date and
 * hour: no template and no value holds one.
 */
#define KEY_MARK_SINCE '\001'
#define KEY_MARK_UNTIL '\002'
#define KEY_MARK_DATE '\003'
#define KEY_MARK_HOUR '\004'
extern char *ExpandKeyPattern(const char *template, const KeyValues *values);

/* A value as EXPAND_URL puts it into a URL; palloc'd. */
extern char *EscapeForUrl(const char *value);

typedef enum ExpandPlace
{
	EXPAND_URL,					/* values are percent-encoded */
	EXPAND_HEADER				/* values are made printable ASCII, secrets are
								 * taken as they are */
} ExpandPlace;

/*
 * A URL or header value with its placeholders filled in.  "credentials" may be
 * NULL.  Raises ERRCODE_UNDEFINED_OBJECT for a secret that is not there, with its
 * name.
 */
extern char *ExpandPlaceholders(const char *template, ExpandPlace place,
								const KeyValues *values, const Credentials *credentials);

/*
 * The secret of that name; raises as above when it is not there, and for one that must
 * not stand in URLs and headers.  NULL while it may be in a secret file that was not
 * read yet.
 */
extern const char *RequireSecret(const char *name, const Credentials *credentials);

/* Raises an ERROR for a header that the credentials bring, too. */
extern void RefuseSecondAuthorization(const char *header, const Credentials *credentials);

#endif							/* INCSINK_SINK_URL_H */
