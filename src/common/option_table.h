/*
 * option_table.h
 *		What the options of sinks are called, hold and default to.
 */
#ifndef INCSINK_OPTION_TABLE_H
#define INCSINK_OPTION_TABLE_H

#include "postgres.h"

#define OPTION_FORWARD	0x01
#define OPTION_BLOB		0x02

typedef enum OptionType
{
	OPTION_INTEGER,
	OPTION_DURATION,			/* milliseconds */
	OPTION_SIZE,				/* bytes */
	OPTION_ENUM,
	OPTION_STRING,
	OPTION_HEADERS				/* JSON object of strings */
} OptionType;

typedef struct OptionDescription
{
	const char *name;
	int			kinds;			/* of sinks that have it */
	OptionType	type;
	const char *forward_default;	/* as a user would write it */
	const char *blob_default;
	int64		min;			/* of numbers, in milliseconds or bytes */
	int64		max;
	const char *const *values;	/* of an enum, ended by NULL */
	size_t		offset;			/* of its field in SinkOptions */
	const char *description;
} OptionDescription;

extern const OptionDescription option_table[];	/* ended by a NULL name */

/* OPTION_FORWARD or OPTION_BLOB; 0 for another word. */
extern int	OptionKindBit(const char *kind);
extern const char *OptionTypeName(OptionType type);
extern bool OptionIsNumber(const OptionDescription *option);
/* A number as a user would write it, with its unit. */
extern char *FormatOptionNumber(const OptionDescription *option, int64 value);
extern const OptionDescription *FindOption(const char *name);

#endif							/* INCSINK_OPTION_TABLE_H */
