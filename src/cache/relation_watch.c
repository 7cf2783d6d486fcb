/*
 * relation_watch.c
 *		Counts relcache invalidations of relations that somebody asked about.
 *
 * ATTACH and DETACH PARTITION invalidate parent and child, CREATE and DROP TRIGGER
 * the table (commands/tablecmds.c, trigger.c); unrelated relations cost one look into
 * a hash table each.
 */
#include "postgres.h"

#include "utils/inval.h"

#include "cache/relation_watch.h"
#include "common/hash.h"

/* OIDs; none is ever taken out: a dropped one costs a few bytes. */
static HTAB *watched = NULL;
static uint64 changes = 0;

/* InvalidOid: any relation may have changed. */
static void
NoteChange(Datum argument, Oid relid)
{
	if (!OidIsValid(relid) || hash_search(watched, &relid, HASH_FIND, NULL))
		changes++;
}

void
WatchRelation(Oid relid)
{
	if (watched == NULL)
	{
		watched = MakeHash("incsink watched relations", sizeof(Oid), sizeof(Oid));
		CacheRegisterRelcacheCallback(NoteChange, (Datum) 0);
	}
	(void) hash_search(watched, &relid, HASH_ENTER, NULL);
}

uint64
WatchedChanges(void)
{
	return changes;
}
