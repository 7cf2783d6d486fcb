/*
 * object_name.h
 *		The names that the objects of a delivery's epoch have.
 */
#ifndef INCSINK_OBJECT_NAME_H
#define INCSINK_OBJECT_NAME_H

#include "postgres.h"

#include "catalog/partition.h"
#include "catalog/sink.h"
#include "common/token.h"

typedef struct ObjectPattern
{
	char	   *whole;			/* of ExpandKeyPattern() */
	char	  **parts;			/* the same, taken apart at "/" */
	int			nparts;
} ObjectPattern;

/* In CurrentMemoryContext. */
extern ObjectPattern *MakeObjectPattern(const SinkDefinition *sink, const Partition *partition,
										const char *epoch);

/* May something of that name be a part, from 0, of such a key? */
extern bool PartFitsPattern(const ObjectPattern *pattern, int part, const char *name);

/* Which range does the object of that key hold?  False if it is none of the epoch. */
extern bool RangeOfObject(const ObjectPattern *pattern, const char *key, Position *since,
						  Position *until);

#endif							/* INCSINK_OBJECT_NAME_H */
