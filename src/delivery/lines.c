/*
 * lines.c
 *		The lines of a body that comes in pieces: counted and digested.
 */
#include "postgres.h"

#include "delivery/lines.h"

void
BeginLines(Lines *lines, LineSet *set)
{
	memset(lines, 0, sizeof(Lines));
	lines->body = Sha256Begin();
	lines->set = set;
	if (set != NULL)
		lines->line = Sha256Begin();
}

static void
EndLine(Lines *lines)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	lines->count++;
	if (lines->set == NULL)
		return;
	Sha256Finish(lines->line, digest);
	AddToLineSet(lines->set, digest);
}

void
AddLines(Lines *lines, const char *bytes, size_t length)
{
	const char *end = bytes + length;

	Sha256Add(lines->body, bytes, length);
	while (bytes < end)
	{
		const char *newline = memchr(bytes, '\n', end - bytes);
		const char *stop = newline != NULL ? newline : end;

		if (lines->set != NULL)
			Sha256Add(lines->line, bytes, stop - bytes);
		lines->is_torn = newline == NULL;
		if (newline != NULL)
			EndLine(lines);
		bytes = newline != NULL ? newline + 1 : end;
	}
}

void
EndLines(Lines *lines)
{
	Sha256FinishHex(lines->body, lines->digest);
	Sha256Free(lines->body);
	if (lines->line != NULL)
		Sha256Free(lines->line);
	lines->body = lines->line = NULL;
}
