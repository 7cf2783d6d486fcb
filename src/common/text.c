/*
 * text.c
 *		Text that people will read in a view, cut to its place.
 */
#include "postgres.h"

#include "common/text.h"
#include "mb/pg_wchar.h"

void
ClipText(char *out, const char *in, size_t size)
{
	size_t		length = strnlen(in, size - 1);

	length = pg_encoding_verifymbstr(GetDatabaseEncoding(), in, length);
	memcpy(out, in, length);
	out[length] = '\0';
}
