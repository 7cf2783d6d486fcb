/*
 * subscription.h
 *		Tables that a subscription fills.
 *
 * Apply and initial-copy workers pass by every hook: a publisher whose table has the
 * column brings numbers of its own.  There, and only there, a BEFORE ROW trigger,
 * ENABLE REPLICA, draws a number for each replicated INSERT and keeps the old one on
 * UPDATE; it costs COPY its multi-insert.
 */
#ifndef INCSINK_SUBSCRIPTION_H
#define INCSINK_SUBSCRIPTION_H

#include "postgres.h"

#include "commands/trigger.h"

#define NUMBER_ROW_TRIGGER "incsink_number_row"

/* Does a subscription of this database fill the table, or one of its leaves? */
extern bool IsSubscriptionTarget(Oid relid);

/* Adds the trigger if it is missing; on a partitioned table its leaves get it, too. */
extern void AddNumberRowTrigger(Oid relid, const char *function_schema);

/*
 * Adds it to every attached table that a subscription fills, as far as their locks are
 * free at once; a WARNING names the others.  For the event trigger, after CREATE and
 * ALTER SUBSCRIPTION; the turn finds what is left (EnsureNumberRowTrigger).
 */
extern void GuardSubscribedTables(const char *function_schema);

/*
 * For a turn: adds the trigger if it is missing and the locks are free at once.  False
 * if it is still missing.  Changes the table with the rights of the catalog's owner.
 */
extern bool EnsureNumberRowTrigger(Oid relid);

/*
 * While incsink_renumber() writes numbers: the trigger lets those of its updates pass.
 * The caller takes it back, also after an error.
 */
extern void LetNewNumbersPass(bool pass);

/* What the trigger does: the row to store. */
extern HeapTuple NumberReplicatedRow(TriggerData *trigger);

#endif							/* INCSINK_SUBSCRIPTION_H */
