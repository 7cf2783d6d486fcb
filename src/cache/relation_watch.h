/*
 * relation_watch.h
 *		Has anything changed about the relations that an answer was found from?
 *
 * For answers that are asked for with every statement, or every turn: one who keeps
 * an answer watches the relations, notes WatchedChanges() before it looks, and looks
 * again when that is another number.
 */
#ifndef INCSINK_RELATION_WATCH_H
#define INCSINK_RELATION_WATCH_H

#include "postgres.h"

/* Before the look; a relation that is watched already costs a look into a hash table. */
extern void WatchRelation(Oid relid);

/* Grows with every change of the definition of any watched relation. */
extern uint64 WatchedChanges(void);

#endif							/* INCSINK_RELATION_WATCH_H */
