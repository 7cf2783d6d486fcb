/*
 * verify_objects.c
 *		Blob sinks: every object of an epoch against the rows of its range.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "api/verify.h"
#include "sink/objects.h"
#include "sink/url.h"
#include "transport/file_list.h"

/* Positions that no object holds, inside a backlog. */
typedef struct Gap
{
	Position	since;
	Position	until;
} Gap;

typedef struct ObjectVerification
{
	Verification *verification;
	const char *directory;
	EpochReach *later;			/* read after the objects were listed */
	Position	reached;		/* objects, or what was read for want of one, hold
								 * everything up to here */
	char	   *reached_by;		/* key of the object that reaches there, or NULL */
	MemoryContext context;		/* of all this */
	MemoryContext scratch;		/* of one object */

	/* the backlog, until it is compared */
	bool		in_backlog;
	Position	backlog_until;
	LineSet    *backlog_lines;	/* of its objects */
	int64		backlog_rows;
	bool		backlog_unread; /* an object of it could not be read */
	List	   *backlog_gaps;
} ObjectVerification;

static void
EmitDirectory(void *arg, const char *key, int error_number)
{
	ObjectVerification *work = arg;
	VerifyRow	row = MakeVerifyRow(POSITION_BEGINNING, POSITION_BEGINNING);

	row.has_range = false;
	row.state = STATE_UNREADABLE;
	row.object = key;
	row.difference = UNKNOWN_DIFFERENCE;
	row.detail = psprintf("could not read the directory: %s", strerror(error_number));
	EmitVerifyRow(work->verification, &row);
}

static const char *
DescribeProblem(int problem)
{
	if (problem == FILE_NOT_REGULAR)
		return "it is not a regular file";
	return psprintf("could not read the file: %s", strerror(problem));
}

static char *
PathOf(const ObjectVerification *work, const Object *object)
{
	return psprintf("%s/%s", work->directory, object->key);
}

/* The objects hold everything up to the end of this one now. */
static void
Reach(ObjectVerification *work, const Object *object)
{
	if (ComparePositions(object->until, work->reached) <= 0)
		return;
	work->reached = object->until;
	if (work->reached_by != NULL)
		pfree(work->reached_by);
	work->reached_by = MemoryContextStrdup(work->context, object->key);
}

/* A range without an object: well, if there is no row in it. */
static void
VerifyGap(ObjectVerification *work, Position until)
{
	VerifyRow	row = MakeVerifyRow(work->reached, until);
	Lines		lines;

	BeginLines(&lines, NULL);
	row.rows_in_table = ReadRange(&work->verification->source, AboveBacklog(work->reached), until,
								  PG_INT64_MAX, &lines).rows;
	EndLines(&lines);
	row.rows_at_sink = 0;
	row.difference.missing = row.rows_in_table;
	if (row.rows_in_table > 0)
	{
		row.state = STATE_MISSING;
		row.detail = "there is no object for this range";
	}
	EmitVerifyRow(work->verification, &row);
	work->reached = until;
}

/* Rows of the range that are in objects before this one, too. */
static void
NoteOverlap(ObjectVerification *work, const Object *object, VerifyRow *row)
{
	if (ComparePositions(object->since, work->reached) >= 0 ||
		strcmp(row->state, STATE_UNREADABLE) == 0)
		return;
	if (work->reached_by == NULL)
	{
		row->state = STATE_UNEXPECTED;
		row->detail = "its range begins before the epoch does";
		return;
	}
	row->state = STATE_DOUBLED;
	row->detail = psprintf("its range overlaps that of \"%s\"", work->reached_by);
}

/* How many, at most what the object has. */
static void
CountOverlap(ObjectVerification *work, const Object *object, VerifyRow *row)
{
	Position	until = ComparePositions(object->until, work->reached) < 0 ?
		object->until : work->reached;
	Lines		lines;
	RangeRead	read;

	if (strcmp(row->state, STATE_DOUBLED) != 0 || until.seq <= object->since.seq)
		return;
	BeginLines(&lines, NULL);
	read = ReadRange(&work->verification->source, AboveBacklog(object->since), until,
					 PG_INT64_MAX, &lines);
	EndLines(&lines);
	row->difference.doubled = Max(row->difference.doubled, Min(read.rows, row->rows_at_sink));
}

static void
JudgeComparison(const Comparison *comparison, VerifyRow *row)
{
	row->rows_in_table = comparison->rows_in_table;
	row->rows_at_sink = comparison->rows_at_sink;
	row->difference = comparison->difference;
	row->digest = comparison->digest;
	if (comparison->is_same)
		return;
	row->state = StateOfDifference(row->rows_in_table, row->rows_at_sink, &row->difference);
	row->detail = DetailOfState(row->state);
	if (row->difference.missing == 0 && row->difference.doubled == 0 &&
		row->difference.unexpected == 0)
		row->detail = "the same lines stand there in another order";
	if (comparison->is_torn)
	{
		row->state = STATE_UNREADABLE;
		row->detail = "it ends in the middle of a line";
	}
}

/* An object above the backlog. */
static void
VerifyObject(ObjectVerification *work, const Object *object)
{
	VerifyRow	row = MakeVerifyRow(object->since, object->until);
	Comparison	comparison;

	if (ComparePositions(object->since, work->reached) > 0)
		VerifyGap(work, object->since);
	CompareObject(&work->verification->source, AboveBacklog(object->since), object->until,
				  PathOf(work, object), &comparison);
	row.object = object->key;
	if (comparison.problem != 0)
	{
		row.state = STATE_UNREADABLE;
		row.rows_in_table = comparison.rows_in_table;
		row.difference = UNKNOWN_DIFFERENCE;
		row.detail = DescribeProblem(comparison.problem);
	}
	else
		JudgeComparison(&comparison, &row);
	NoteOverlap(work, object, &row);
	CountOverlap(work, object, &row);
	EmitVerifyRow(work->verification, &row);
	Reach(work, object);
}

/* Counts the lines of an object whose rows cannot be told by themselves. */
static void
CountObject(ObjectVerification *work, const Object *object, LineSet *set, VerifyRow *row)
{
	Lines		lines;
	int			problem;

	BeginLines(&lines, set);
	problem = ReadObject(PathOf(work, object), &lines);
	EndLines(&lines);
	row->object = object->key;
	if (problem != 0 || lines.is_torn)
	{
		row->state = STATE_UNREADABLE;
		row->detail = problem != 0 ? DescribeProblem(problem) : "it ends in the middle of a line";
	}
	if (problem == 0)
	{
		row->rows_at_sink = lines.count;
		row->digest = pstrdup(lines.digest);
	}
	row->difference = UNKNOWN_DIFFERENCE;
}

static void
BeginBacklog(ObjectVerification *work)
{
	MemoryContext old = MemoryContextSwitchTo(work->context);

	work->in_backlog = true;
	work->backlog_lines = MakeLineSet();
	MemoryContextSwitchTo(old);
}

static void
NoteBacklogGap(ObjectVerification *work, Position until)
{
	MemoryContext old = MemoryContextSwitchTo(work->context);
	Gap		   *gap = palloc(sizeof(Gap));

	*gap = (Gap) {work->reached, until};
	work->backlog_gaps = lappend(work->backlog_gaps, gap);
	work->reached = until;
	MemoryContextSwitchTo(old);
}

static void
VerifyBacklogObject(ObjectVerification *work, const Object *object)
{
	VerifyRow	row = MakeVerifyRow(object->since, object->until);

	if (ComparePositions(object->since, work->reached) > 0)
		NoteBacklogGap(work, object->since);
	CountObject(work, object, work->backlog_lines, &row);
	if (row.rows_at_sink == UNKNOWN_ROWS)
		work->backlog_unread = true;
	else
		work->backlog_rows += row.rows_at_sink;
	NoteOverlap(work, object, &row);
	if (strcmp(row.state, STATE_DOUBLED) == 0)
		row.difference.doubled = row.rows_at_sink;
	EmitVerifyRow(work->verification, &row);
	Reach(work, object);
}

/* Where a batch was expected and none is: rows are missing if any of the backlog are. */
static void
EmitBacklogGaps(ObjectVerification *work, bool rows_missing)
{
	ListCell   *cell;

	foreach(cell, work->backlog_gaps)
	{
		const Gap  *gap = lfirst(cell);
		VerifyRow	row = MakeVerifyRow(gap->since, gap->until);

		row.rows_at_sink = 0;
		row.difference = UNKNOWN_DIFFERENCE;
		row.state = rows_missing ? STATE_MISSING : STATE_OK;
		row.detail = rows_missing ? "there is no object for this range" :
			"there is no object for this range, and no row of the backlog is missing";
		EmitVerifyRow(work->verification, &row);
	}
}

/* The backlog now, as a whole, against all of its objects. */
static void
CompareBacklog(ObjectVerification *work, Position began, VerifyRow *row)
{
	LineSet    *set = MakeLineSet();
	Lines		lines;
	RangeRead	read;

	BeginLines(&lines, set);
	read = ReadRange(&work->verification->source, began, work->backlog_until, PG_INT64_MAX, &lines);
	EndLines(&lines);
	if (row->until.n == began.n)
		row->until.n = read.until.n;	/* no object says it */
	row->rows_in_table = read.rows;
	row->rows_at_sink = work->backlog_rows;
	row->difference = CompareLineSets(set, work->backlog_lines);
	FreeLineSet(set);
	if (row->difference.missing == 0 && row->difference.doubled == 0 &&
		row->difference.unexpected == 0)
		return;
	row->state = StateOfDifference(row->rows_in_table, row->rows_at_sink, &row->difference);
	row->detail = DetailOfState(row->state);
}

/* A row for the backlog as a whole, if it can be read now from where the epoch began. */
static void
FinishBacklog(ObjectVerification *work)
{
	Verification *verification = work->verification;
	EpochReach *reach = verification->reach;
	Position	began = reach->began;
	Position	watermark = reach->until;
	VerifyRow	row;

	if (!work->in_backlog)
		return;
	work->in_backlog = false;
	if (watermark.seq == 0 && ComparePositions(work->reached, watermark) < 0)
		NoteBacklogGap(work, watermark);
	row = MakeVerifyRow(began, work->reached);
	if (CoversBacklog(verification, began, &work->backlog_until) &&
		(began.n == 0 || began.key != NULL))
		CompareBacklog(work, began, &row);
	else
	{
		row.rows_at_sink = work->backlog_rows;
		row.difference = UNKNOWN_DIFFERENCE;
		row.detail = verification->partition->backlog == NULL ?
			"the rows that these objects hold have numbers now" :
			"where in the backlog the epoch began is not known";
	}
	EmitBacklogGaps(work, row.difference.missing > 0);
	EmitVerifyRow(verification, &row);
	FreeLineSet(work->backlog_lines);
}

static bool
IsInFlight(const EpochReach *reach, const char *key)
{
	ListCell   *cell;

	foreach(cell, reach->in_flight)
	{
		if (strcmp(lfirst(cell), key) == 0)
			return true;
	}
	return false;
}

/*
 * An object above the watermark.  One that was acknowledged while the objects were listed
 * is left for the next call.
 */
static void
VerifyAhead(ObjectVerification *work, const Object *object)
{
	VerifyRow	row = MakeVerifyRow(object->since, object->until);
	bool		in_flight = IsInFlight(work->later, object->key);

	if (!in_flight && ComparePositions(object->until, work->later->until) <= 0)
		return;
	CountObject(work, object, NULL, &row);
	if (!in_flight)
	{
		row.state = STATE_UNEXPECTED;
		row.detail = "it is above the watermark, and no batch in flight has this name";
	}
	else if (row.detail == NULL)
	{
		row.state = STATE_IN_FLIGHT;
		row.detail = "it is stored, and not acknowledged yet";
	}
	EmitVerifyRow(work->verification, &row);
}

static void
VerifyNext(ObjectVerification *work, const Object *object)
{
	if (ComparePositions(object->until, work->verification->reach->until) > 0)
		VerifyAhead(work, object);
	else if (object->until.seq == 0)
	{
		if (!work->in_backlog)
			BeginBacklog(work);
		VerifyBacklogObject(work, object);
	}
	else
	{
		if (work->in_backlog && object->since.seq == 0 &&
			ComparePositions(object->since, work->reached) > 0)
			NoteBacklogGap(work, object->since);
		FinishBacklog(work);
		VerifyObject(work, object);
	}
}

/* Where the epoch began; with the first object, if that is not on record. */
static void
BeginAt(ObjectVerification *work, const Object *first)
{
	EpochReach *reach = work->verification->reach;
	Position	backlog_end;

	if (!reach->began_known)
		reach->began = first != NULL ? first->since : reach->until;
	work->reached = reach->began;
	work->reached.key = NULL;
	if (CoversBacklog(work->verification, reach->began, &backlog_end))
		BeginBacklog(work);
}

/*
 * The watermark was read before the objects are listed: what it covers was there by then.
 * Whether something above it is in flight is asked afterwards.
 */
static ObjectList *
BeginObjects(ObjectVerification *work)
{
	Verification *verification = work->verification;
	const EpochReach *reach = verification->reach;
	ObjectList *list;

	list = ListObjects(work->directory,
					   MakeObjectPattern(verification->sink, verification->partition, reach->epoch),
					   EmitDirectory, work);
	work->later = LoadEpochReach(verification->sink->sink_id,
								 verification->partition->partition_id, work->context);
	if (work->later == NULL || strcmp(work->later->epoch, reach->epoch) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("sink \"%s\" was changed meanwhile", verification->sink->name),
				 errhint("Try again.")));
	return list;
}

void
VerifyObjects(Verification *verification)
{
	ObjectVerification work = {.verification = verification, .context = CurrentMemoryContext};
	const SinkDefinition *sink = verification->sink;
	ObjectList *list;
	Object		object;
	bool		found;

	CheckSinkRights(sink->url, sink->owner);
	work.directory = FileUrlDirectory(sink->url);
	work.scratch = AllocSetContextCreate(work.context, "incsink verify", ALLOCSET_DEFAULT_SIZES);
	list = BeginObjects(&work);
	found = NextObject(list, &object);
	BeginAt(&work, found ? &object : NULL);
	while (found)
	{
		MemoryContextSwitchTo(work.scratch);
		VerifyNext(&work, &object);
		MemoryContextReset(work.scratch);
		found = NextObject(list, &object);
		MemoryContextSwitchTo(work.context);
	}
	EndObjects(list);
	FinishBacklog(&work);
	if (verification->reach->until.seq > work.reached.seq)
		VerifyGap(&work, verification->reach->until);
}
