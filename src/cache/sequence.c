/*
 * sequence.c
 *		What a sequence has given out, read past the lock that numbers are counted by.
 *
 * pg_sequence_last_value() and the view pg_sequences take RowExclusiveLock on the
 * sequence (commands/sequence.c, init_sequence), which is the very lock that the
 * horizon counts: a reader that used them would hold itself back.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_sequence.h"
#include "commands/sequence.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cache/horizon.h"
#include "common/compat.h"

/* The definition, as pg_sequence has it; false if it is gone. */
static bool
ReadSequenceDefinition(Oid sequence, SequenceReading *reading)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
	Form_pg_sequence form;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_sequence) GETSTRUCT(tuple);
	reading->increment = form->seqincrement;
	reading->cache = form->seqcache;
	reading->cycle = form->seqcycle;
	ReleaseSysCache(tuple);
	return true;
}

/*
 * The one tuple of a sequence stands first on its first page and is updated in
 * place under the buffer's lock (commands/sequence.c, read_seq_tuple).
 */
static int64
ReadLastDrawn(Relation rel)
{
	Buffer		buffer = ReadBuffer(rel, 0);
	Page		page;
	ItemId		item;
	HeapTupleData tuple;
	Form_pg_sequence_data data;
	int64		last_drawn;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	item = PageGetItemId(page, FirstOffsetNumber);
	if (!ItemIdIsNormal(item))
		elog(ERROR, "sequence \"%s\" has no tuple", RelationGetRelationName(rel));
	tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple.t_len = ItemIdGetLength(item);
	data = (Form_pg_sequence_data) GETSTRUCT(&tuple);
	last_drawn = data->is_called ? data->last_value : data->last_value - 1;
	UnlockReleaseBuffer(buffer);
	return last_drawn;
}

/*
 * The lock is let go at once: a reader's long transaction must not keep TRUNCATE
 * ... RESTART IDENTITY waiting.
 */
bool
ReadSequence(Oid sequence, SequenceReading *reading)
{
	Relation	rel;
	bool		known;

	if (!OidIsValid(sequence) || !ConditionalLockRelationOid(sequence, AccessShareLock))
		return false;
	rel = try_relation_open(sequence, NoLock);
	if (rel == NULL)
	{
		UnlockRelationOid(sequence, AccessShareLock);
		return false;
	}
	known = rel->rd_rel->relkind == RELKIND_SEQUENCE && ReadSequenceDefinition(sequence, reading);
	if (known)
	{
		reading->last_drawn = ReadLastDrawn(rel);
		reading->relfilenode = RelationFileNumberCompat(rel);
	}
	relation_close(rel, AccessShareLock);
	return known;
}
