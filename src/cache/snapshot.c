/*
 * snapshot.c
 *		What must be true of the moment at which rows are read.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "utils/snapmgr.h"

#include "cache/reader.h"
#include "common/inject.h"

/*
 * The snapshot of the calling statement, and in REPEATABLE READ every later one of
 * its transaction, is older than the horizon: rows below the horizon would be
 * missing from it.  GetLatestSnapshot() looks at the running transactions anew
 * under every isolation level.
 */
Snapshot
TakeReadSnapshot(void)
{
	return RegisterSnapshot(GetLatestSnapshot());
}

/*
 * The insert position that the server gives stands behind the header of a page of
 * which nothing else is written yet, when the last record filled the page before
 * it (access/transam/xlog.c, XLogBytePosToRecPtr); XLogFlush() calls such a
 * position an error.  It means the end of the page before.
 */
static XLogRecPtr
EndOfLastRecord(void)
{
	XLogRecPtr	position = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(position, wal_segment_size) == SizeOfXLogLongPHD)
		return position - SizeOfXLogLongPHD;
	if (position % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return position - SizeOfXLogShortPHD;
	return position;
}

void
FlushAllWal(void)
{
	if (RecoveryInProgress())
		return;
	INCSINK_POINT("before-read-flush");
	XLogFlush(EndOfLastRecord());
}
