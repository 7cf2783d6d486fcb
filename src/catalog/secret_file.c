/*
 * secret_file.c
 *		Secrets in a file of the server: name=value, one a line.
 *
 * Blank lines and those that begin with "#" are passed over.  A value that begins as
 * PEM does goes on until its END line, and over further blocks that follow at once.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/credentials.h"
#include "catalog/secret_file.h"
#include "common/template.h"
#include "storage/fd.h"

#define LARGEST_FILE (64 * 1024)
#define PEM_BEGIN "-----BEGIN "
#define PEM_END "-----END "

static bool
StartsWith(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Everything of an open file that must be a plain one: a pipe could keep us waiting. */
static char *
ReadAll(int fd, const char *path, char **problem)
{
	char	   *content = palloc(LARGEST_FILE + 1);
	struct stat status;
	ssize_t		length = 0;
	ssize_t		got = 1;

	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
	{
		*problem = psprintf("secret file \"%s\" is not a regular file", path);
		return NULL;
	}
	while (got > 0 && length <= LARGEST_FILE)
	{
		got = read(fd, content + length, LARGEST_FILE + 1 - length);
		if (got < 0 && errno == EINTR)
			got = 1;
		else if (got > 0)
			length += got;
	}
	if (got < 0)
		*problem = psprintf("could not read secret file \"%s\": %m", path);
	else if (length > LARGEST_FILE)
		*problem = psprintf("secret file \"%s\" is larger than %d kB", path, LARGEST_FILE / 1024);
	else if (memchr(content, '\0', length) != NULL)
		*problem = psprintf("secret file \"%s\" holds a NUL byte", path);
	else
	{
		content[length] = '\0';
		return content;
	}
	return NULL;
}

static char *
ReadContent(const char *path, char **problem)
{
	int			fd = BasicOpenFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	char	   *content;

	if (fd < 0)
	{
		*problem = psprintf("could not open secret file \"%s\": %m", path);
		return NULL;
	}
	content = ReadAll(fd, path, problem);
	close(fd);
	return content;
}

/* Cuts the next line off, without its end. */
static char *
NextLine(char **rest, int *number)
{
	char	   *line = *rest;
	char	   *end;

	if (*line == '\0')
		return NULL;
	end = line + strcspn(line, "\n");
	*rest = *end == '\0' ? end : end + 1;
	*end = '\0';
	if (end > line && end[-1] == '\r')
		end[-1] = '\0';
	(*number)++;
	return line;
}

/* Without its END line a block goes on to the end of the file; TLS will refuse it. */
static char *
ReadPem(const char *first, char **rest, int *number)
{
	StringInfoData pem;
	char	   *line;

	initStringInfo(&pem);
	appendStringInfo(&pem, "%s\n", first);
	while ((line = NextLine(rest, number)) != NULL)
	{
		appendStringInfo(&pem, "%s\n", line);
		if (StartsWith(line, PEM_END) && !StartsWith(*rest, PEM_BEGIN))
			break;
	}
	return pem.data;
}

/* Blanks around a name or value go. */
static char *
Trim(char *text)
{
	char	   *end;

	while (*text == ' ' || *text == '\t')
		text++;
	end = text + strlen(text);
	while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	return text;
}

static bool
Contains(List *secrets, const char *name)
{
	ListCell   *cell;

	foreach(cell, secrets)
		if (strcmp(((Secret *) lfirst(cell))->name, name) == 0)
			return true;
	return false;
}

/* What is wrong with the line that begins an entry, or NULL and the entry. */
static const char *
ReadEntry(char *line, char **rest, int *number, List *before, Secret *secret)
{
	char	   *equals = strchr(line, '=');

	if (equals == NULL)
		return "it is not of the form name=value";
	*equals = '\0';
	secret->name = Trim(line);
	secret->value = Trim(equals + 1);
	if (!IsSecretName(secret->name) || strcmp(secret->name, MAPPING_OPTION_SECRET_FILE) == 0)
		return "it does not begin with the name of a secret";
	if (Contains(before, secret->name))
		return "its name stands in the file twice";
	if (StartsWith(secret->value, PEM_BEGIN))
		secret->value = ReadPem(secret->value, rest, number);
	return SecretProblem(secret->name, secret->value);
}

bool
ReadSecretFile(const char *path, List **secrets, char **problem)
{
	char	   *rest = ReadContent(path, problem);
	char	   *line;
	int			number = 0;

	*secrets = NIL;
	if (rest == NULL)
		return false;
	while ((line = NextLine(&rest, &number)) != NULL)
	{
		Secret	   *secret;
		const char *fault;
		int			begun_at = number;

		line = Trim(line);
		if (*line == '\0' || *line == '#')
			continue;
		secret = palloc(sizeof(Secret));
		fault = ReadEntry(line, &rest, &number, *secrets, secret);
		if (fault != NULL)
		{
			*problem = psprintf("line %d of secret file \"%s\" is not valid: %s",
								begun_at, path, fault);
			return false;
		}
		*secrets = lappend(*secrets, secret);
	}
	return true;
}
