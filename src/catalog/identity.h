/*
 * identity.h
 *		Which cluster, database and timeline exports were last confirmed for.
 *
 * A copy of a database must not go on by itself where the original stands: it would
 * send the same rows a second time.
 */
#ifndef INCSINK_IDENTITY_H
#define INCSINK_IDENTITY_H

#include "postgres.h"

typedef enum IdentityMatch
{
	IDENTITY_UNRECORDED,		/* nothing was attached yet */
	IDENTITY_SAME,
	IDENTITY_NEW_TIMELINE,		/* all the same but the timeline: promoted, or
								 * restored from an archive */
	IDENTITY_OTHER				/* another cluster, database or instance */
} IdentityMatch;

/* Need an open SqlSession; not in recovery. */
extern IdentityMatch CompareIdentity(void);

/* Records this database as the one to export from, at the first attach. */
extern void RecordIdentity(void);

/*
 * Confirms this database: records it, binds partitions to their tables, draws a new tag for every partition and a new
 * epoch for every delivery.  Intents in flight are finished under their old ids.
 */
extern void AdoptDatabase(void);

#endif							/* INCSINK_IDENTITY_H */
