/*
 * url.h
 *		URLs of sinks, read strictly: what two programs could understand in two
 *		ways is refused.
 */
#ifndef INCSINK_COMMON_URL_H
#define INCSINK_COMMON_URL_H

#include "postgres.h"

/* Scheme and host in lower case; the port is that of the scheme if none is written. */
typedef struct Url
{
	char	   *scheme;
	char	   *host;			/* "" for file; [..] around IPv6 addresses */
	int			port;			/* 0 for file */
	char	   *path;			/* as written, "/" if empty */
	char	   *query;			/* as written, without "?"; NULL if none */
} Url;

/*
 * Takes a URL apart; {placeholders} may stand in path and query.  On NULL
 * *problem is a sentence about what is wrong with it, which quotes nothing that
 * could be a secret.
 */
extern Url *SplitUrl(const char *text, const char **problem);

/* The same, but raises ERRCODE_INVALID_PARAMETER_VALUE. */
extern Url *ParseUrl(const char *text);

/*
 * True if the url's scheme, host and port are those of the prefix, and its path
 * is the prefix's or below it.
 */
extern bool UrlIsBelow(const Url *url, const Url *prefix);

/* Decodes %XX. */
extern char *DecodeUrlPath(const char *path);

#endif							/* INCSINK_COMMON_URL_H */
