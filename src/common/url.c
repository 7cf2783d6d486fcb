/*
 * url.c
 *		URLs of sinks, read strictly.
 *
 * Where sinks may point is bounded by comparing URLs, and libcurl, proxies and
 * servers each have their own idea of backslashes, "..", userinfo and white
 * space.  So a URL here is the common ground of all of them (RFC 3986 without
 * userinfo, fragments and dot segments), or an error.
 */
#include "postgres.h"

#include "common/url.h"

static bool
IsHexDigit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static int
HexValue(char c)
{
	return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

/* ASCII only: tolower() knows the locale's letters. */
static char *
LowerCase(const char *text, int length)
{
	char	   *result = pnstrdup(text, length);

	for (char *c = result; *c != '\0'; c++)
		*c = pg_ascii_tolower(*c);
	return result;
}

char *
DecodeUrlPath(const char *path)
{
	char	   *result = palloc(strlen(path) + 1);
	char	   *end = result;

	while (*path != '\0')
	{
		if (path[0] == '%' && IsHexDigit(path[1]) && IsHexDigit(path[2]))
		{
			*end++ = (char) (HexValue(path[1]) * 16 + HexValue(path[2]));
			path += 3;
		}
		else
			*end++ = *path++;
	}
	*end = '\0';
	return result;
}

/* Characters that every program reads as themselves. */
static const char *
CheckCharacters(const char *text)
{
	for (; *text != '\0'; text++)
	{
		if (*text <= 0x20 || *text > 0x7e || strchr("\"<>\\^`|", *text) != NULL)
			return "Spaces, control characters, backslashes, quotes and letters beyond ASCII must be percent-encoded.";
		if (*text == '#')
			return "A fragment is never sent.";
		if (*text == '%' && (!IsHexDigit(text[1]) || !IsHexDigit(text[2])))
			return "\"%\" must be followed by two hexadecimal digits.";
		if (*text == '%' && text[1] == '0' && text[2] == '0')
			return "\"%00\" is not allowed.";
	}
	return NULL;
}

/*
 * Dot segments, also encoded ones, and also those that appear when a server takes
 * "%2F" or "%5C" for a slash.
 */
static bool
HasDotSegment(const char *path)
{
	char	   *segment = DecodeUrlPath(path);

	while (*segment != '\0')
	{
		size_t		length = strcspn(segment, "/\\");

		if ((length == 1 && segment[0] == '.') ||
			(length == 2 && segment[0] == '.' && segment[1] == '.'))
			return true;
		segment += length;
		if (*segment != '\0')
			segment++;
	}
	return false;
}

/* What is left of the path when every value is empty. */
static char *
WithoutPlaceholders(const char *path)
{
	char	   *result = palloc(strlen(path) + 1);
	char	   *end = result;
	bool		inside = false;

	for (; *path != '\0'; path++)
	{
		if (*path == '{')
			inside = true;
		else if (*path == '}')
			inside = false;
		else if (!inside)
			*end++ = *path;
	}
	*end = '\0';
	return result;
}

static const char *
SplitPort(Url *url, const char *port)
{
	if (*port == '\0' || strlen(port) > 5 || port[strspn(port, "0123456789")] != '\0')
		return "The port is not a number.";
	url->port = atoi(port);
	if (url->port < 1 || url->port > 65535)
		return "The port is not between 1 and 65535.";
	return NULL;
}

static const char *
SplitAuthority(Url *url, char *authority)
{
	char	   *port;
	size_t		length;

	if (strchr(authority, '@') != NULL)
		return "User names and passwords do not belong in a URL.";
	if (authority[0] == '[')
	{
		length = strspn(authority + 1, "0123456789abcdef:.");
		if (length == 0 || authority[length + 1] != ']')
			return "The IPv6 address in brackets is malformed.";
		length += 2;
	}
	else
	{
		length = strspn(authority, "abcdefghijklmnopqrstuvwxyz0123456789-._");
		if (length == 0)
			return "The host is missing or malformed.";
	}
	port = authority + length;
	if (*port != '\0' && *port != ':')
		return "The host is malformed.";
	url->host = pnstrdup(authority, length);
	if (*port == ':')
		return SplitPort(url, port + 1);
	return NULL;
}

static const char *
SplitInto(Url *url, const char *text)
{
	const char *problem = CheckCharacters(text);
	const char *rest;
	size_t		length;

	if (problem != NULL)
		return problem;
	rest = strstr(text, "://");
	if (rest == NULL || rest == text)
		return "A URL has the form scheme://host/path.";
	url->scheme = LowerCase(text, rest - text);
	rest += 3;

	length = strcspn(rest, "/?");
	if (strcmp(url->scheme, "file") == 0)
	{
		if (length > 0 || *rest != '/')
			return "A file URL has the form file:///path.";
		url->host = "";
	}
	else
	{
		url->port = strcmp(url->scheme, "http") == 0 ? 80 : 443;
		problem = SplitAuthority(url, LowerCase(rest, length));
		if (problem != NULL)
			return problem;
	}
	rest += length;

	length = strcspn(rest, "?");
	url->path = length > 0 ? pnstrdup(rest, length) : "/";
	if (rest[length] == '?')
		url->query = pstrdup(rest + length + 1);
	if (HasDotSegment(url->path) || HasDotSegment(WithoutPlaceholders(url->path)))
		return "Its path must not hold \".\" or \"..\".";
	return NULL;
}

Url *
SplitUrl(const char *text, const char **problem)
{
	Url		   *url = palloc0(sizeof(Url));

	*problem = SplitInto(url, text);
	return *problem == NULL ? url : NULL;
}

/* The text is not quoted: what was meant as a password would reach the log. */
Url *
ParseUrl(const char *text)
{
	const char *problem;
	Url		   *url = SplitUrl(text, &problem);

	if (url == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid URL"),
				 errdetail("%s", problem),
				 strchr(text, '@') == NULL ? 0 :
				 errhint("Secrets are stored in the user mapping of a foreign server that the argument \"credentials\" names.")));
	return url;
}

bool
UrlIsBelow(const Url *url, const Url *prefix)
{
	size_t		length = strlen(prefix->path);

	if (strcmp(url->scheme, prefix->scheme) != 0 || strcmp(url->host, prefix->host) != 0 ||
		url->port != prefix->port)
		return false;
	if (strncmp(url->path, prefix->path, length) != 0)
		return false;
	return prefix->path[length - 1] == '/' || url->path[length] == '/' ||
		url->path[length] == '\0';
}
