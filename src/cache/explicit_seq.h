/*
 * explicit_seq.h
 *		Statements that would bring their own numbers into an attached table.
 *
 * GENERATED ALWAYS stops INSERT and UPDATE, but not OVERRIDING SYSTEM VALUE and not
 * COPY.  A row with a number at or below a position that was read already would
 * never be seen; these checks, called from hooks, refuse the statement instead.  In
 * trees only COPY is refused: an INSERT with numbers is how rows are moved there.
 */
#ifndef INCSINK_EXPLICIT_SEQ_H
#define INCSINK_EXPLICIT_SEQ_H

#include "postgres.h"

#include "nodes/parsenodes.h"
#include "utils/rel.h"

/*
 * Is the open relation attached, or in a tree that is?  Looks at its cached triggers
 * and, for a partition, at an answer that is kept, so that hooks may ask for every
 * statement.
 */
extern bool RelationIsAttached(Relation rel);

/*
 * Raise ERRCODE_GENERATED_ALWAYS for a statement that gives values to the seq
 * column of an attached table.  Let it pass with incsink.allow_explicit_seq and in
 * a database that incsink does not export from yet (a restore).
 *
 * The query's relations must be locked, as they are after parse analysis and in
 * the planner.  Only a planner hook sees what rules, views and SQL-standard
 * function bodies turn into.
 */
extern void RefuseExplicitSeqInQuery(Query *query);
extern void RefuseExplicitSeqInCopy(CopyStmt *stmt);

#endif							/* INCSINK_EXPLICIT_SEQ_H */
