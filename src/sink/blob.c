/*
 * blob.c
 *		Blob sinks: a batch is one object.  Here: a file.
 *
 * Files are written by a worker that sends nothing else: a disk that hangs delays no
 * forward transfer.
 */
#include "postgres.h"

#include <errno.h>

#include "common/text.h"
#include "sink/kind.h"

static char *
BlobObjectKey(const Batch *batch)
{
	KeyValues	values;

	FillKeyValues(batch, &values);
	return ExpandKey(batch->sink->options->key, &values);
}

/* What a person must mend is probed slowly, what may pass is retried. */
static void
JudgeFailure(const FilePutResult *result, Verdict *verdict)
{
	ClipText(verdict->message, result->error, sizeof(verdict->message));
	switch (result->error_number)
	{
		case EACCES:
		case EPERM:
		case EROFS:
		case ENOENT:
		case ENOTDIR:
		case ELOOP:
		case ENAMETOOLONG:
			verdict->class = VERDICT_CONFIGURATION;
			strlcpy(verdict->hint,
					"Make the directory writable for the operating system user of the server; it is tried again by itself.",
					sizeof(verdict->hint));
			break;
		default:
			verdict->class = VERDICT_RETRY;
			break;
	}
}

static void
JudgePut(const Batch *batch, const FilePutResult *result, Verdict *verdict)
{
	memset(verdict, 0, sizeof(*verdict));
	switch (result->outcome)
	{
		case FILE_PUT_STORED:
		case FILE_PUT_EXISTS_SAME:
			verdict->class = VERDICT_ACKNOWLEDGED;
			break;
		case FILE_PUT_EXISTS_OTHER:
			verdict->class = VERDICT_REJECTED;
			snprintf(verdict->message, sizeof(verdict->message),
					 "file \"%s\" exists and is not of this sink", batch->intent->object_key);
			strlcpy(verdict->hint,
					"Move that file away, then call incsink_resume_sink(). Two sinks must not share a directory and key template.",
					sizeof(verdict->hint));
			break;
		case FILE_PUT_FAILED:
			JudgeFailure(result, verdict);
			break;
	}
}

static void
PutBatch(const Batch *batch, Verdict *verdict)
{
	const Intent *intent = batch->intent;
	FilePutResult result;

	FilePut(FileUrlDirectory(batch->sink->url), intent->object_key, intent->batch_id,
			batch->body->data, batch->body->length,
			(const char *const *) intent->digests, intent->ndigests, &result);
	JudgePut(batch, &result, verdict);
}

/* Done before it returns. */
static Attempt *
BlobStart(HttpPool *pool, const Batch *batch, VerdictFunction done, void *arg)
{
	const Intent *intent = batch->intent;
	Verdict		verdict = {.class = VERDICT_ACKNOWLEDGED};

	if (batch->rows > 0)
		PutBatch(batch, &verdict);
	else
		FileForget(FileUrlDirectory(batch->sink->url), intent->object_key, intent->batch_id);
	done(arg, &verdict);
	return NULL;
}

const SinkKind BlobKind = {
	.name = "blob",
	.class = WORKER_BLOB,
	.object_key = BlobObjectKey,
	.start = BlobStart,
};
