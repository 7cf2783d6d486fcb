/*
 * truncate_guard.c
 *		TRUNCATE ... RESTART IDENTITY must not give numbers out again.
 *
 * Both triggers run inside the one command (commands/tablecmds.c,
 * ExecuteTruncateGuts): BEFORE triggers of all tables, truncation, restart of the
 * sequences in new files, AFTER triggers.  An abort takes the new file away, and
 * with it everything that is done here.
 */
#include "postgres.h"


#include "cache/horizon.h"
#include "cache/truncate_guard.h"
#include "catalog/partition.h"
#include "common/hash.h"
#include "common/sql.h"

/* What a TRUNCATE in progress began with. */
typedef struct TruncateNote
{
	Oid			relid;			/* hash key */
	int64		last_drawn;
	bool		sound;			/* the sequence was the one on record */
} TruncateNote;

/*
 * A note left by a TRUNCATE that failed is written anew before it is read again.
 */
static HTAB *notes = NULL;

static TruncateNote *
MakeNote(Oid relid)
{
	if (notes == NULL)
		notes = MakeHash("incsink truncate notes", sizeof(Oid), sizeof(TruncateNote));
	return hash_search(notes, &relid, HASH_ENTER, NULL);
}

static void
ForgetNote(Oid relid)
{
	if (notes)
		(void) hash_search(notes, &relid, HASH_REMOVE, NULL);
}

/* The partition with its state as it is now, or NULL if the table is not attached here. */
static Partition *
LoadNow(Relation rel, MemoryContext context)
{
	Partition  *partition = LoadPartitionByRelation(RelationGetRelid(rel), context);

	if (partition)
		(void) RefreshPartitionState(partition);
	return partition;
}

/*
 * Without RESTART IDENTITY another session may hold the sequence; then there is
 * nothing to guard either.
 */
void
NoteBeforeTruncate(Relation rel)
{
	MemoryContext context = CurrentMemoryContext;
	SqlSession	session;
	Partition  *partition;
	SequenceReading reading;

	ForgetNote(RelationGetRelid(rel));
	SqlBegin(&session);
	partition = LoadNow(rel, context);
	if (partition && ReadSequence(partition->sequence, &reading))
	{
		TruncateNote *note = MakeNote(RelationGetRelid(rel));

		note->last_drawn = reading.last_drawn;
		note->sound = reading.relfilenode == partition->sequence_relfilenode &&
			reading.last_drawn >= partition->highest_seq;
	}
	SqlEnd(&session);
}

/*
 * A sequence that was not sound before stays recorded as it was, so that the turns
 * go on to report it.
 */
void
GuardAfterTruncate(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	MemoryContext context = CurrentMemoryContext;
	TruncateNote *note = notes ? hash_search(notes, &relid, HASH_FIND, NULL) : NULL;
	SqlSession	session;
	Partition  *partition;
	SequenceReading reading;

	if (note == NULL)
		return;
	SqlBegin(&session);
	partition = LoadNow(rel, context);
	if (partition && ReadSequence(partition->sequence, &reading))
	{
		if (reading.last_drawn < note->last_drawn)
			SqlRun("SELECT setval($1, $2, true)", SqlOid(partition->sequence),
				   SqlInt8(note->last_drawn));
		partition->highest_seq = Max(partition->highest_seq, note->last_drawn);
		partition->sequence_relfilenode = reading.relfilenode;
		if (note->sound)
			RecordSequence(partition);
	}
	SqlEnd(&session);
	ForgetNote(relid);
}
