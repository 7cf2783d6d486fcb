/*
 * hash.c
 *		Hash tables that live as long as the process.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "common/hash.h"

#define FIRST_ENTRIES 16

HTAB *
MakeHash(const char *name, Size keysize, Size entrysize)
{
	HASHCTL		control = {0};

	control.keysize = keysize;
	control.entrysize = entrysize;
	control.hcxt = TopMemoryContext;
	return hash_create(name, FIRST_ENTRIES, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}
