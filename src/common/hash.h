/*
 * hash.h
 *		Hash tables that live as long as the process.
 */
#ifndef INCSINK_HASH_H
#define INCSINK_HASH_H

#include "postgres.h"

#include "utils/hsearch.h"

/* The key is the entry's first field, compared byte by byte: it must have no padding. */
extern HTAB *MakeHash(const char *name, Size keysize, Size entrysize);

#endif							/* INCSINK_HASH_H */
