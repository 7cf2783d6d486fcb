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
#define MAPPING_OPTION_SECRET_FILE "secret_file"

typedef struct Secret
{
	char	   *name;
	char	   *value;
} Secret;

typedef struct Credentials
{
	char	   *server;
	char	   *secret_file;	/* file of the server that holds more, or NULL */
	bool		has_file;		/* what it holds is among these */

	/* Those with a meaning of their own, or NULL. */
	char	   *bearer;			/* Authorization: Bearer */
	char	   *username;		/* Authorization: Basic, with password */
	char	   *password;
	char	   *client_certificate; /* PEM */
	char	   *client_key;		/* PEM */
	char	   *client_key_password;
	char	   *signing_secret; /* whsec_... */
	char	   *signing_secret_previous;
	char	   *authorization;	/* what bearer or username make of it */

	Secret	   *secrets;		/* all, whatever their meaning, and what is made
								 * of them: none of it may be shown */
	int			nsecrets;
} Credentials;

/*
 * The secrets that a sink of "owner" may send to "url" (with or without
 * placeholders), read anew at each call, in the current memory context.  Raises
 * an ERROR that holds no secret when the server is not there, "owner" has no
 * USAGE on it, the URL does not lie below its origin and path_prefix, or there is
 * a mapping for neither "owner" nor PUBLIC.  Needs a transaction.  The secret file
 * is not read.
 */
extern Credentials *LoadCredentials(const char *server, Oid owner, const char *url);

/*
 * The same credentials with those of their secret file, which is read now, in the
 * current memory context; they point into the old ones.  Needs no transaction and
 * should have none.  NULL and a sentence for people, without a secret, when they
 * cannot be had or do not go together.
 */
extern Credentials *AddSecretFile(const Credentials *credentials, char **problem);

/* NULL when there is none of that name. */
extern const char *FindSecret(const Credentials *credentials, const char *name);

/* The option that makes the header Authorization, or NULL. */
extern const char *AuthorizationOption(const Credentials *credentials);

/* False for names whose values are for the transport, not for URLs and headers. */
extern bool SecretMayBePlaced(const char *name);

/* What is wrong with a value, as a sentence that does not quote it; NULL if nothing. */
extern const char *SecretProblem(const char *name, const char *value);

/* What is wrong with them together, likewise; missing ones may be in the file. */
extern const char *CombinationProblem(const Secret *secrets, int nsecrets, bool may_miss);

#endif							/* INCSINK_CREDENTIALS_H */
