/*
 * template.c
 *		Text with {placeholders}: taken apart and checked.
 */
#include "postgres.h"

#include "common/compat.h"
#include "common/template.h"
#include "common/units.h"

/* In keys; the second list of names may be of any length and hold any letter. */
static const char *const key_names[] = {
	"dataset", "source", "sink", "epoch", "since", "until", "date", "hour", "ext",
	"instance", "destination", NULL
};
static const char *const free_key_names[] = {
	"dataset", "source", "sink", "instance", "destination", NULL
};
static const char *const required_key_names[] = {
	"dataset", "source", "epoch", "since", "until", NULL
};

/* In URLs and header values. */
static const char *const request_names[] = {
	"batch_id", "sink", "dataset", "source", "destination", "epoch", "since", "until",
	"instance", NULL
};

static bool
IsOneOf(const char *name, const char *const *names)
{
	for (; *names != NULL; names++)
		if (strcmp(name, *names) == 0)
			return true;
	return false;
}

static char *
JoinNames(const char *const *names)
{
	StringInfoData list;

	initStringInfo(&list);
	for (; *names != NULL; names++)
		appendStringInfo(&list, "%s{%s}", list.len > 0 ? ", " : "", *names);
	return list.data;
}

static List *
AddPart(List *parts, bool is_placeholder, const char *text, int length)
{
	TemplatePart *part = palloc(sizeof(TemplatePart));

	part->is_placeholder = is_placeholder;
	part->text = pnstrdup(text, length);
	return lappend(parts, part);
}

pg_noreturn static void
RaiseUnmatchedBrace(const char *what, const char *template)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unmatched brace in %s: \"%s\"", what, template),
			 errhint("Placeholders are written {name}; write \"{{\" or \"}}\" for a brace.")));
}

List *
ParseTemplate(const char *template, const char *what)
{
	List	   *parts = NIL;
	StringInfoData literal;
	const char *next = template;

	initStringInfo(&literal);
	while (*next != '\0')
	{
		const char *end;

		if ((*next == '{' || *next == '}') && next[1] == *next)
		{
			appendStringInfoChar(&literal, *next);
			next += 2;
			continue;
		}
		if (*next == '}')
			RaiseUnmatchedBrace(what, template);
		if (*next != '{')
		{
			appendStringInfoChar(&literal, *next++);
			continue;
		}
		end = next + 1 + strcspn(next + 1, "{}");
		if (*end != '}')
			RaiseUnmatchedBrace(what, template);
		if (literal.len > 0)
			parts = AddPart(parts, false, literal.data, literal.len);
		resetStringInfo(&literal);
		parts = AddPart(parts, true, next + 1, end - next - 1);
		next = end + 1;
	}
	if (literal.len > 0)
		parts = AddPart(parts, false, literal.data, literal.len);
	pfree(literal.data);
	return parts;
}

bool
IsSecretName(const char *name)
{
	return *name != '\0' && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

pg_noreturn static void
RaiseUnknownPlaceholder(const char *name, const char *what, const char *const *known)
{
	const char *nearest = NearestName(name, known);

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown placeholder \"{%s}\" in %s", name, what),
			 nearest ? errhint("Perhaps you meant \"{%s}\".", nearest)
			 : errhint("Known here are %s.", JoinNames(known))));
}

void
CheckPlaceholders(const char *template, const char *what)
{
	ListCell   *cell;

	foreach(cell, ParseTemplate(template, what))
	{
		TemplatePart *part = lfirst(cell);

		if (!part->is_placeholder || IsOneOf(part->text, request_names))
			continue;
		if (strncmp(part->text, SECRET_PREFIX, strlen(SECRET_PREFIX)) != 0)
			RaiseUnknownPlaceholder(part->text, what, request_names);
		if (!IsSecretName(part->text + strlen(SECRET_PREFIX)))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid secret name in placeholder \"{%s}\" of %s", part->text, what),
					 errdetail("Names of secrets consist of lower-case letters, digits and underscores.")));
	}
}

void
CheckEventSource(const char *template)
{
	static const char *const names[] = {"sink", "dataset", "source", NULL};
	static const char *const what = "option \"cloudevents_source\"";
	ListCell   *cell;

	if (*template == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", what)));
	foreach(cell, ParseTemplate(template, what))
	{
		TemplatePart *part = lfirst(cell);

		if (part->is_placeholder && !IsOneOf(part->text, names))
			RaiseUnknownPlaceholder(part->text, what, names);
		for (const unsigned char *c = (unsigned char *) part->text; *c != '\0'; c++)
			if (*c <= 0x20 || *c >= 0x7f || strchr("\"<>\\^`{|}", *c) != NULL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("invalid character in %s", what),
						 errdetail("It must be a URI reference: characters that URIs do not have are written as %%XX.")));
	}
}

List *
ListSecrets(List *secrets, const char *template, const char *what)
{
	ListCell   *cell;

	foreach(cell, ParseTemplate(template, what))
	{
		TemplatePart *part = lfirst(cell);

		if (part->is_placeholder &&
			strncmp(part->text, SECRET_PREFIX, strlen(SECRET_PREFIX)) == 0)
			secrets = lappend(secrets, part->text + strlen(SECRET_PREFIX));
	}
	return secrets;
}

/*
 * Values are escaped (see ExpandKey), so a key can leave its prefix by literal
 * text alone.  {instance} and {destination} may be empty, nothing else is.
 */
static void
CheckKeySegments(List *parts, const char *template)
{
	StringInfoData shape;
	const char *segment;
	ListCell   *cell;

	initStringInfo(&shape);
	foreach(cell, parts)
	{
		TemplatePart *part = lfirst(cell);

		if (!part->is_placeholder)
			appendStringInfoString(&shape, part->text);
		else if (strcmp(part->text, "instance") != 0 && strcmp(part->text, "destination") != 0)
			appendStringInfoChar(&shape, 'x');
	}
	for (const char *c = shape.data; *c != '\0'; c++)
		if ((unsigned char) *c < 0x20 || *c == 0x7f || *c == '\\')
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid character in option \"key\""),
					 errdetail("Control characters and backslashes are not allowed.")));
	if (template[0] == '/')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"key\" must not start with \"/\": \"%s\"", template),
				 errdetail("Keys are relative to the URL of the sink.")));
	for (segment = shape.data; segment != NULL; segment = strchr(segment, '/'))
	{
		if (*segment == '/')
			segment++;
		if (*segment == '.')
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a part of option \"key\" may start with a dot: \"%s\"", template),
					 errdetail("Parts between slashes must not be \".\" or \"..\" or hidden.")));
	}
	if (shape.len == 0 || shape.data[shape.len - 1] == '/' || strstr(template, "//") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"key\" has an empty part: \"%s\"", template),
				 errdetail("It must not end with \"/\" or hold \"//\".")));
	pfree(shape.data);
}

/*
 * Two names side by side could be told apart only by a character between them
 * that no escaped value holds: ("ab", "c") and ("a", "bc") would be one key.
 */
static void
CheckKeyIsInjective(List *parts)
{
	const char *previous = NULL;
	ListCell   *cell;

	foreach(cell, parts)
	{
		TemplatePart *part = lfirst(cell);

		if (part->is_placeholder)
		{
			if (!IsOneOf(part->text, free_key_names))
				continue;
			if (previous != NULL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("option \"key\" could give two batches one key"),
						 errdetail("Nothing tells where \"{%s}\" ends and \"{%s}\" begins.",
								   previous, part->text),
						 errhint("Write \"/\" or \"=\" between them.")));
			previous = part->text;
		}
		else if (part->text[strcspn(part->text, "/=:,;@+&$*'() ")] != '\0')
			previous = NULL;
	}
	for (const char *const *name = required_key_names; *name != NULL; name++)
	{
		bool		found = false;

		foreach(cell, parts)
		{
			TemplatePart *part = lfirst(cell);

			found = found || (part->is_placeholder && strcmp(part->text, *name) == 0);
		}
		if (!found)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"key\" could give two batches one key"),
					 errdetail("The placeholder \"{%s}\" is missing.", *name),
					 errhint("A key must hold %s.", JoinNames(required_key_names))));
	}
}

void
CheckKeyTemplate(const char *template)
{
	List	   *parts = ParseTemplate(template, "option \"key\"");
	ListCell   *cell;

	foreach(cell, parts)
	{
		TemplatePart *part = lfirst(cell);

		if (part->is_placeholder && !IsOneOf(part->text, key_names))
			RaiseUnknownPlaceholder(part->text, "option \"key\"", key_names);
	}
	CheckKeySegments(parts, template);
	CheckKeyIsInjective(parts);
}
