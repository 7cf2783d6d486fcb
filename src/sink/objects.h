/*
 * objects.h
 *		The objects that stand at a sink, in the order of their ranges.
 */
#ifndef INCSINK_OBJECTS_H
#define INCSINK_OBJECTS_H

#include "postgres.h"

#include "common/token.h"
#include "sink/object_name.h"

typedef struct ObjectList ObjectList;

typedef struct Object
{
	Position	since;
	Position	until;
	char	   *key;
} Object;

/* Told of a directory, relative to the sink's, that could not be read. */
typedef void (*ObjectFailure) (void *arg, const char *key, int error_number);

/*
 * Lists the objects that fit the pattern; in memory bounded by work_mem, however many
 * they are.  Raises an ERROR if the directory itself cannot be opened.
 */
extern ObjectList *ListObjects(const char *directory, const ObjectPattern *pattern,
							   ObjectFailure failed, void *arg);

/* The next one, by since, until and key, in CurrentMemoryContext; false after the last. */
extern bool NextObject(ObjectList *list, Object *object);

extern void EndObjects(ObjectList *list);

#endif							/* INCSINK_OBJECTS_H */
