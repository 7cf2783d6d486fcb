/*
 * backlog_reader.c
 *		The rows of a backlog: of all its parts, one part after the other.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cache/backlog_reader.h"
#include "cache/columns.h"
#include "cache/reader.h"

/* Where a row stands.  Its key is made when somebody asks, or its slot goes. */
typedef struct Place
{
	int64		n;
	TupleTableSlot *row;		/* NULL: the key is made */
	Jsonb	   *key;
} Place;

struct BacklogReader
{
	const Partition *partition;
	Relation	root;
	bool		wait;
	MemoryContext context;
	Jsonb	   *since;			/* or NULL: from the beginning */
	Jsonb	   *until;			/* or NULL: to the end */
	int			next;			/* number in partition->parts */
	bool		stopped;
	/* the part that is open */
	const BacklogPart *part;	/* NULL: none */
	KeyIndex	key;
	OpenStorage storage;
	Snapshot	snapshot;
	BacklogScan *scan;
	bool		is_peeked;		/* its next row is in the slot already */
	/* rows */
	Place		last;
	Place		kept;
	Place		kept_before;
};

/* A slot that holds neither the last row nor the one kept last. */
static TupleTableSlot *
FreeSlot(BacklogReader *reader)
{
	TupleTableSlot **slot = reader->storage.rows;

	while (*slot == reader->last.row || *slot == reader->kept.row)
		slot++;
	return *slot;
}

static Jsonb *
KeyAt(BacklogReader *reader, const Place *place)
{
	if (place->row == NULL)
		return place->key;
	return BacklogKeyOf(&reader->key, reader->part->part, place->row);
}

/* Makes the key of a place while there is the row to make it of. */
static void
SettlePlace(BacklogReader *reader, Place *place)
{
	MemoryContext old = MemoryContextSwitchTo(reader->context);

	place->key = KeyAt(reader, place);
	place->row = NULL;
	MemoryContextSwitchTo(old);
}

static void
ClosePart(BacklogReader *reader)
{
	if (reader->scan)
		BacklogScanEnd(reader->scan);
	reader->scan = NULL;
	CloseStorage(&reader->storage);
	if (reader->snapshot)
		UnregisterSnapshot(reader->snapshot);
	reader->snapshot = NULL;
	reader->part = NULL;
}

static void
LeavePart(BacklogReader *reader)
{
	if (reader->part == NULL)
		return;
	SettlePlace(reader, &reader->last);
	SettlePlace(reader, &reader->kept);
	reader->kept_before = reader->kept; /* its row may be overwritten; nobody asks */
	ClosePart(reader);
}

static void
RaiseIndexGone(Relation rel, const BacklogPart *part)
{
	char	   *columns = KeyColumnNames(part->key_columns, part->nkeys);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" has no unique index on (%s) any more, in whose order its backlog is read",
					RelationDisplayName(rel), columns),
			 errhint("Create one, on columns that are NOT NULL: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s);",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)),
					 columns)));
}

/* Is the part the one that the position's key names?  Then the key is a bound in it. */
static Jsonb *
BoundIn(const BacklogPart *part, Jsonb *key)
{
	return BacklogKeyPart(key) == part->part ? key : NULL;
}

/* Opens a part and begins its scan; the snapshot is newer than the lock. */
static ReaderStatus
OpenPart(BacklogReader *reader, const BacklogPart *part)
{
	OpenStorage *storage = &reader->storage;
	ReaderStatus status = OpenStorageRelation(storage, part->relid, reader->root,
											  reader->partition, reader->wait);

	reader->part = part;
	if (status != READER_OK)
		return status;
	if (!FindKeyIndex(storage->rel, part->key_columns, part->nkeys, &reader->key))
		RaiseIndexGone(storage->rel, part);
	status = OpenStorageIndex(storage, reader->key.index, reader->wait);
	if (status != READER_OK)
		return status;
	reader->snapshot = TakeReadSnapshot();
	reader->scan = BacklogScanBegin(storage->rel, storage->index, &reader->key, part,
									storage->seq_attnum, reader->snapshot,
									BoundIn(part, reader->since), BoundIn(part, reader->until));
	return READER_OK;
}

/* Goes on to the next part that is not gone; READER_GONE at the end of them. */
static ReaderStatus
EnterNextPart(BacklogReader *reader)
{
	int			until = BacklogKeyPart(reader->until);

	LeavePart(reader);
	while (reader->next < reader->partition->nparts)
	{
		const BacklogPart *part = &reader->partition->parts[reader->next++];
		ReaderStatus status;

		if (part->part < BacklogKeyPart(reader->since))
			continue;
		if (until > 0 && part->part > until)
			break;
		status = OpenPart(reader, part);
		if (status == READER_OK)
			return READER_OK;
		ClosePart(reader);
		if (status == READER_BUSY)
			return READER_BUSY;
	}
	return READER_GONE;
}

/*
 * Fetches the next row, of this part or a later one, into the free slot.  READER_GONE
 * when there is none.
 */
static ReaderStatus
FetchRow(BacklogReader *reader)
{
	while (reader->part == NULL || !BacklogScanNext(reader->scan, FreeSlot(reader)))
	{
		ReaderStatus status = EnterNextPart(reader);

		if (status != READER_OK)
			return status;
	}
	return READER_OK;
}

/* The first row is fetched now, so that a part that is locked is known before any row. */
ReaderStatus
BacklogReaderOpen(const Partition *partition, Relation root, bool wait, Position since,
				  Position until, BacklogReader **result)
{
	BacklogReader *reader = palloc0(sizeof(BacklogReader));
	ReaderStatus status;

	reader->partition = partition;
	reader->root = root;
	reader->wait = wait;
	reader->context = CurrentMemoryContext;
	reader->since = since.key;
	reader->until = until.key;
	reader->last.n = since.n;
	reader->last.key = since.key;
	reader->kept = reader->last;
	reader->kept_before = reader->last;
	status = FetchRow(reader);
	if (status == READER_BUSY)
	{
		pfree(reader);
		return READER_BUSY;
	}
	reader->is_peeked = status == READER_OK;
	*result = reader;
	return READER_OK;
}

TupleTableSlot *
BacklogReaderNext(BacklogReader *reader)
{
	TupleTableSlot *row;

	if (reader->is_peeked)
		reader->is_peeked = false;
	else if (reader->part == NULL)
		return NULL;
	else
	{
		ReaderStatus status = FetchRow(reader);

		reader->stopped = status == READER_BUSY;
		if (status != READER_OK)
			return NULL;
	}
	row = FreeSlot(reader);
	reader->last.n++;
	reader->last.row = row;
	return StorageRow(&reader->storage, row);
}

bool
BacklogReaderStopped(BacklogReader *reader)
{
	return reader->stopped;
}

void
BacklogReaderKeep(BacklogReader *reader)
{
	reader->kept_before = reader->kept;
	reader->kept = reader->last;
}

static Position
PositionAt(BacklogReader *reader, const Place *place)
{
	Position	position = {.n = place->n};

	position.key = KeyAt(reader, place);
	return position;
}

Position
BacklogReaderPosition(BacklogReader *reader)
{
	return PositionAt(reader, &reader->last);
}

Position
BacklogReaderPositionBefore(BacklogReader *reader)
{
	return PositionAt(reader, &reader->kept_before);
}

void
BacklogReaderClose(BacklogReader *reader)
{
	ClosePart(reader);
	pfree(reader);
}
