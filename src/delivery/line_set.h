/*
 * line_set.h
 *		Multisets of lines, by their digests, and how two of them differ.
 */
#ifndef INCSINK_LINE_SET_H
#define INCSINK_LINE_SET_H

#include "postgres.h"

typedef struct LineSet LineSet;

/* A line is known by so many bytes of its SHA-256. */
#define LINE_ID_LENGTH 16

/* In CurrentMemoryContext, which must outlive it; bounded by half of work_mem. */
extern LineSet *MakeLineSet(void);
extern void AddToLineSet(LineSet *set, const uint8 *id);
extern void FreeLineSet(LineSet *set);

typedef struct LineDifference
{
	int64		missing;		/* only in the table */
	int64		doubled;		/* at the sink more often than in the table, which
								 * has them */
	int64		unexpected;		/* at the sink, and not in the table at all */
} LineDifference;

/* Once for two sets; nothing can be added afterwards. */
extern LineDifference CompareLineSets(LineSet *table, LineSet *sink);

#endif							/* INCSINK_LINE_SET_H */
