/*
 * attach.h
 *		Making a table a partition, and a table again.
 */
#ifndef INCSINK_ATTACH_H
#define INCSINK_ATTACH_H

#include "postgres.h"

#include "catalog/partition.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

/* The column that attach adds. */
#define SEQ_COLUMN "ingest_seq"

/* Something that attaching would break or that is good to know before. */
typedef struct AttachProblem
{
	int			level;			/* ERROR: attach refuses; WARNING, NOTICE: it says so */
	bool		forcible;		/* an ERROR that force => true makes a WARNING */
	int			sqlstate;
	char	   *problem;		/* a sentence */
	char	   *hint;			/* or NULL */
} AttachProblem;

/*
 * Lists them, of AttachProblem, in CurrentMemoryContext; the one source of what
 * incsink_check_attach() shows and of what incsink_attach() refuses.  Takes
 * AccessShareLock on the relation.  *reuses_column: the table has the column that
 * an earlier attach left, and it serves.
 */
extern List *CheckAttach(Oid relid, const char *adopt, bool *reuses_column);

typedef struct AttachRequest
{
	Oid			relid;
	char	   *dataset;		/* NULL: schema.table */
	char	   *source;
	char	   *adopt;			/* NULL: add a column */
	Jsonb	   *options;
	bool		if_not_exists;
	bool		force;
	char	   *function_schema;	/* where the trigger functions live */
} AttachRequest;

/*
 * All raise an ERROR, with nothing changed, for whatever they refuse; they change
 * the table with the caller's rights and the catalog with those of its owner.
 */
extern void AttachTable(AttachRequest *request);
extern void DetachTable(Oid relid, bool drop_column, bool force);

/* For a table that was dropped. */
extern void ForgetPartition(const char *dataset, const char *source);

/*
 * Takes the sequence as it is now for the partition's, after a restart or a change:
 * sets it past everything that was given out and puts a new tag in force.
 */
extern void ConfirmSequence(Oid relid);

/* What the above share; table_change.c */

/* The partition of a table, or an ERROR.  Needs an open SqlSession. */
extern Partition *RequirePartition(Oid relid, MemoryContext context);

/* Raises an ERROR unless the caller owns the table. */
extern void RequireOwner(Oid relid);

/* Sets lock_timeout for the calling GUC nest level, if the session has none. */
extern void LimitLockWait(void);

/* Runs one statement, given as a format, with the caller's rights. */
extern void RunStatement(const char *format,...) pg_attribute_printf(1, 2);

/* "schema"."table" of a relation that must exist, quoted where needed. */
extern char *QuotedRelationName(Oid relid);

#endif							/* INCSINK_ATTACH_H */
