/*
 * credentials.h
 *		Secrets of a sink: options of the user mapping of a foreign server.
 *
 * The server says where they may go, the mapping what they are.
 */
#ifndef INCSINK_CREDENTIALS_H
#define INCSINK_CREDENTIALS_H

#include "postgres.h"

#define CREDENTIALS_WRAPPER "incsink"	/* the foreign-data wrapper */

#define SERVER_OPTION_ORIGIN "origin"
#define SERVER_OPTION_PATH_PREFIX "path_prefix"
#define MAPPING_OPTION_BEARER "bearer"

typedef struct Secret
{
	char	   *name;
	char	   *value;
} Secret;

typedef struct Credentials
{
	char	   *server;
	char	   *bearer;			/* for Authorization: Bearer, or NULL */
	Secret	   *secrets;		/* all options of the mapping, bearer too */
	int			nsecrets;
} Credentials;

/*
 * The secrets that a sink of "owner" may send to "url" (with or without
 * placeholders), read anew at each call, in the current memory context.  Raises
 * an ERROR that holds no secret when the server is not there, "owner" has no
 * USAGE on it, the URL does not lie below its origin and path_prefix, or there is
 * a mapping for neither "owner" nor PUBLIC.  Needs a transaction.
 */
extern Credentials *LoadCredentials(const char *server, Oid owner, const char *url);

/* NULL when there is none of that name. */
extern const char *FindSecret(const Credentials *credentials, const char *name);

#endif							/* INCSINK_CREDENTIALS_H */
