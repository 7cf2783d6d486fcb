/*
 * attach_check.h
 *		A check of a table that is to be attached, in progress.
 */
#ifndef INCSINK_ATTACH_CHECK_H
#define INCSINK_ATTACH_CHECK_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/rel.h"

typedef struct Check
{
	Relation	rel;
	char	   *table;			/* quoted, for hints */
	List	   *problems;		/* of AttachProblem */
} Check;

/*
 * What attach says itself in other words, when it is done, has this level: only
 * incsink_check_attach() shows it.
 */
#define REMARK DEBUG1

extern void AddProblem(Check *check, int level, int sqlstate, char *problem, char *hint);

/* The same for an ERROR that force => true makes a WARNING. */
extern void AddForcibleProblem(Check *check, int sqlstate, char *problem, char *hint);

/* What replication to and from the table will do. */
extern void CheckReplication(Check *check, bool adds_column);

/* What attach goes through with, but somebody will ask about. */
extern void CheckRemarks(Check *check, bool adds_column);

#endif							/* INCSINK_ATTACH_CHECK_H */
