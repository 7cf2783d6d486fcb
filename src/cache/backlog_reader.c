/*
 * backlog_reader.c
 *		The rows of a backlog, in the order of its key.
 *
 * That of a tree is merged from scans of all leaves, so that a row which moves from leaf
 * to leaf meanwhile keeps its place.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "cache/backlog_reader.h"
#include "cache/columns.h"
#include "cache/reader.h"
#include "cache/storage.h"

/* A relation of them. */
typedef struct Source
{
	OpenStorage storage;
	KeyIndex	key;
	BacklogScan *scan;
	TupleTableSlot *row;		/* fetched last, one of storage.rows */
	bool		has_number;		/* it does */
} Source;

/* Where a row stands.  Its key is made when somebody asks. */
typedef struct Place
{
	int64		n;
	Source	   *source;
	TupleTableSlot *row;		/* NULL: where the range begins, and */
	Jsonb	   *key;			/* the key there */
} Place;

struct BacklogReader
{
	const Partition *partition;
	Relation	root;
	bool		wait;
	Jsonb	   *since;			/* or NULL: from the beginning */
	Jsonb	   *until;			/* or NULL: to the end */
	Source	   *sources;
	int			nsources;
	Snapshot	snapshot;
	binaryheap *heap;			/* sources with a row in hand */
	bool		is_returned;	/* the first one's row was handed out */
	/* rows */
	Place		last;
	Place		kept;
	Place		kept_before;	/* the last one with another key than kept */
	bool		goes_on_tie;	/* kept has the key of the one kept before it */
};

/* A slot of the source that holds none of the rows that may be asked for. */
static TupleTableSlot *
FreeSlot(const BacklogReader *reader, Source *source)
{
	TupleTableSlot **slot = source->storage.rows;

	while (*slot == reader->last.row || *slot == reader->kept.row ||
		   *slot == reader->kept_before.row)
		slot++;
	return *slot;
}

static bool
FetchNext(const BacklogReader *reader, Source *source)
{
	source->row = FreeSlot(reader, source);
	return BacklogScanNext(source->scan, source->row, &source->has_number);
}

static Jsonb *
KeyAt(const Place *place)
{
	if (place->row == NULL)
		return place->key;
	return BacklogKeyOf(&place->source->key, place->row);
}

static void
CloseSources(BacklogReader *reader)
{
	for (int i = 0; i < reader->nsources; i++)
	{
		if (reader->sources[i].scan)
			BacklogScanEnd(reader->sources[i].scan);
		CloseStorage(&reader->sources[i].storage);
	}
	reader->nsources = 0;
	if (reader->snapshot)
		UnregisterSnapshot(reader->snapshot);
	reader->snapshot = NULL;
	if (reader->heap)
		binaryheap_free(reader->heap);
	reader->heap = NULL;
}

static void
RaiseIndexGone(Relation rel, const Backlog *backlog)
{
	char	   *columns = KeyColumnNames(backlog->key_columns, backlog->nkeys);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" has no unique index on (%s) any more, in whose order its backlog is read",
					RelationDisplayName(rel), columns),
			 errhint("Create one, on columns that are NOT NULL: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s);",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)),
					 columns)));
}

static ReaderStatus
OpenSource(BacklogReader *reader, Source *source, Oid relid)
{
	OpenStorage *storage = &source->storage;
	const Backlog *backlog = reader->partition->backlog;
	ReaderStatus status = OpenStorageRelation(storage, relid, reader->root, reader->partition,
											  reader->wait);

	if (status != READER_OK)
		return status;
	RequireKeyColumns(storage->rel, backlog);
	if (!FindKeyIndex(storage->rel, backlog->key_columns, backlog->nkeys, &source->key))
		RaiseIndexGone(storage->rel, backlog);
	return OpenStorageIndex(storage, source->key.index, reader->wait);
}

/* Relations that the rows are in; those that left a tree may hold some, too. */
static List *
ListRelations(const BacklogReader *reader)
{
	List	   *relations = NIL;
	ListCell   *cell;

	if (!reader->partition->tree)
		return list_make1_oid(reader->partition->relid);
	foreach(cell, ListStorage(reader->partition, -1))
		relations = lappend_oid(relations, ((StoragePart *) lfirst(cell))->relid);
	return relations;
}

/* One that was dropped after it was listed has no rows left. */
static ReaderStatus
OpenSources(BacklogReader *reader, List *relations)
{
	ListCell   *cell;

	reader->sources = palloc0(sizeof(Source) * (list_length(relations) + 1));
	foreach(cell, relations)
	{
		Source	   *source = &reader->sources[reader->nsources++];
		ReaderStatus status;

		CHECK_FOR_INTERRUPTS();
		status = OpenSource(reader, source, lfirst_oid(cell));
		if (status == READER_GONE && source->storage.rel == NULL)
			reader->nsources--;
		else if (status != READER_OK)
			return status;
	}
	return READER_OK;
}

/*
 * The snapshot is newer than the locks, and the list of leaves than the snapshot: see
 * OpenTree() in number_scan.c.
 */
static ReaderStatus
OpenRelations(BacklogReader *reader)
{
	List	   *relations = ListRelations(reader);

	for (;;)
	{
		ReaderStatus status = OpenSources(reader, relations);
		List	   *now;

		if (status != READER_OK)
			return status;
		reader->snapshot = TakeReadSnapshot();
		now = ListRelations(reader);
		if (equal(relations, now))
			return READER_OK;
		CloseSources(reader);
		relations = now;
	}
}

/* By the keys of the rows in hand; types and collations are the same in all leaves. */
static int
CompareRows(const Source *first, TupleTableSlot *first_row, const Source *second,
			TupleTableSlot *second_row)
{
	Relation	index = first->storage.index;

	for (int i = 0; i < first->key.nkeys; i++)
	{
		bool		isnull;
		int32		order = DatumGetInt32(FunctionCall2Coll(index_getprocinfo(index, i + 1, BTORDER_PROC),
															index->rd_indcollation[i],
															slot_getattr(first_row, first->key.attnums[i], &isnull),
															slot_getattr(second_row, second->key.attnums[i], &isnull)));

		if (order != 0)
			return order;
	}
	return 0;
}

/* The lowest key comes first; of equal ones that of the older leaf, each time. */
static int
CompareForHeap(Datum a, Datum b, void *arg)
{
	Source	   *first = (Source *) DatumGetPointer(a);
	Source	   *second = (Source *) DatumGetPointer(b);
	int			order = CompareRows(first, first->row, second, second->row);

	if (order == 0)
		order = RelationGetRelid(first->storage.rel) < RelationGetRelid(second->storage.rel) ? -1 : 1;
	return -order;
}

static void
StartMerge(BacklogReader *reader)
{
	reader->heap = binaryheap_allocate(reader->nsources + 1, CompareForHeap, NULL);
	for (int i = 0; i < reader->nsources; i++)
	{
		Source	   *source = &reader->sources[i];

		source->scan = BacklogScanBegin(source->storage.rel, source->storage.index, &source->key,
										reader->partition->backlog, source->storage.seq_attnum,
										reader->snapshot, reader->since, reader->until);
		if (FetchNext(reader, source))
			binaryheap_add_unordered(reader->heap, PointerGetDatum(source));
	}
	binaryheap_build(reader->heap);
}

/* Fetches the row after the one handed out, if that was not done yet. */
static void
FetchAfterReturned(BacklogReader *reader)
{
	Source	   *source;

	if (!reader->is_returned)
		return;
	reader->is_returned = false;
	source = (Source *) DatumGetPointer(binaryheap_first(reader->heap));
	if (FetchNext(reader, source))
		binaryheap_replace_first(reader->heap, PointerGetDatum(source));
	else
		(void) binaryheap_remove_first(reader->heap);
}

ReaderStatus
BacklogReaderOpen(const Partition *partition, Relation root, bool wait, Position since,
				  Position until, BacklogReader **result)
{
	BacklogReader *reader = palloc0(sizeof(BacklogReader));
	ReaderStatus status;

	reader->partition = partition;
	reader->root = root;
	reader->wait = wait;
	reader->since = since.key;
	reader->until = BacklogIsOver(until) ? NULL : until.key;	/* NULL: to its end */
	reader->last.n = since.n;
	reader->last.key = since.key;
	reader->kept = reader->last;
	reader->kept_before = reader->last;
	status = OpenRelations(reader);
	if (status != READER_OK)
	{
		CloseSources(reader);
		pfree(reader);
		return status;
	}
	StartMerge(reader);
	*result = reader;
	return READER_OK;
}

TupleTableSlot *
BacklogReaderNext(BacklogReader *reader, bool *has_number)
{
	Source	   *source;

	FetchAfterReturned(reader);
	if (binaryheap_empty(reader->heap))
		return NULL;
	source = (Source *) DatumGetPointer(binaryheap_first(reader->heap));
	reader->is_returned = true;
	*has_number = source->has_number;
	reader->last.n++;
	reader->last.source = source;
	reader->last.row = source->row;
	return StorageRow(&source->storage, source->row);
}

/* Within one relation keys are unique. */
static bool
HasSameKey(const Place *place, const Place *other)
{
	return place->row != NULL && other->row != NULL && place->source != other->source &&
		CompareRows(place->source, place->row, other->source, other->row) == 0;
}

void
BacklogReaderKeep(BacklogReader *reader)
{
	reader->goes_on_tie = HasSameKey(&reader->kept, &reader->last);
	if (!reader->goes_on_tie)
		reader->kept_before = reader->kept;
	reader->kept = reader->last;
}

bool
BacklogReaderGoesOnTie(BacklogReader *reader)
{
	return reader->goes_on_tie;
}

bool
BacklogReaderIsTied(BacklogReader *reader)
{
	Source	   *next;

	if (reader->nsources == 1 || reader->last.row == NULL)
		return false;
	FetchAfterReturned(reader);
	if (binaryheap_empty(reader->heap))
		return false;
	next = (Source *) DatumGetPointer(binaryheap_first(reader->heap));
	return CompareRows(reader->last.source, reader->last.row, next, next->row) == 0;
}

static Position
PositionAt(const Place *place)
{
	Position	position = {.n = place->n};

	position.key = KeyAt(place);
	return position;
}

Position
BacklogReaderPosition(BacklogReader *reader)
{
	return PositionAt(&reader->last);
}

Position
BacklogReaderPositionBefore(BacklogReader *reader)
{
	return PositionAt(&reader->kept_before);
}

int64
BacklogReaderCount(BacklogReader *reader)
{
	return reader->last.n;
}

void
BacklogReaderClose(BacklogReader *reader)
{
	CloseSources(reader);
	pfree(reader);
}
