/*
 * template.h
 *		Text with {placeholders}: object keys, URLs and header values.
 *
 * "{{" and "}}" stand for a brace.  Which names are known depends on the place.
 */
#ifndef INCSINK_TEMPLATE_H
#define INCSINK_TEMPLATE_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

typedef struct TemplatePart
{
	bool		is_placeholder;
	char	   *text;			/* literal text without escapes, or the name */
} TemplatePart;

/*
 * Takes a template apart into a list of TemplatePart.  Raises
 * ERRCODE_INVALID_PARAMETER_VALUE for braces that do not match; "what" names the
 * template in messages, as in: option "key".
 */
extern List *ParseTemplate(const char *template, const char *what);

/* Prefix of placeholders that name a secret: {secret:NAME}. */
#define SECRET_PREFIX "secret:"

/* True if "name" may name a secret: [a-z0-9_]+. */
extern bool IsSecretName(const char *name);

/*
 * Checks a key template: known names, relative, no segment that could leave the
 * prefix, and never the same key for two batches.
 */
extern void CheckKeyTemplate(const char *template);

/* Checks the names used in a URL or a header value. */
extern void CheckPlaceholders(const char *template, const char *what);

/*
 * Checks the source of CloudEvents: a URI reference with known names, in which a value
 * stands percent-encoded.
 */
extern void CheckEventSource(const char *template);

/* Names of the secrets that a URL or header value uses, added to a list of strings. */
extern List *ListSecrets(List *secrets, const char *template, const char *what);

#endif							/* INCSINK_TEMPLATE_H */
