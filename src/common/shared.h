/*
 * shared.h
 *		Memory that backends, workers and the launcher share.
 *
 * Where incsink is preloaded it is part of the main shared memory segment; where
 * it is not, the launcher makes a dynamic segment for itself and its workers, and
 * backends have none: what they ask then is "not known", and workers poll.
 */
#ifndef INCSINK_SHARED_H
#define INCSINK_SHARED_H

#include "postgres.h"

#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

/* Forward transfers, slow file I/O and index builds are never in one process. */
typedef enum WorkerClass
{
	WORKER_FORWARD,
	WORKER_BLOB,
	WORKER_INDEX
} WorkerClass;

/* "forward", "blob" or "index": in views and names of processes. */
extern const char *WorkerClassName(WorkerClass class);

typedef enum WorkerPhase
{
	WORKER_FREE,				/* slot unused */
	WORKER_WANTED,				/* to be started by the launcher */
	WORKER_STARTING,			/* registered with the postmaster */
	WORKER_RUNNING,				/* has found the extension */
	WORKER_STOPPED				/* ended; exit says why */
} WorkerPhase;

typedef enum WorkerExit
{
	EXIT_FAILED,				/* an error, or killed: start again after a
								 * pause */
	EXIT_LEFT,					/* made room for a command on the database:
								 * look again soon */
	EXIT_NOTHING_TO_DO			/* no extension, or nothing of its class */
} WorkerExit;

typedef struct WorkerSlot
{
	WorkerPhase phase;
	WorkerExit	exit;
	bool		wanted;			/* since the worker last looked whether there
								 * is something to do */
	Oid			database;
	WorkerClass class;
	int			number;			/* below incsink.workers; index workers have 0 */
	pid_t		pid;
	Latch	   *latch;			/* of the running worker, in shared memory */
	TimestampTz started_at;
	TimestampTz next_start;		/* not before this; 0 = at once */
	int			failures;		/* in a row */
	int64		turns;
	TimestampTz last_turn_time;
	int64		buffer_bytes;	/* held in encoded batches after it */
	char		waiting_for[256];	/* why it exports nothing, or "" */
	char		last_error[256];
	TimestampTz last_error_time;
} WorkerSlot;

#define SHARED_WORKERS 256
#define SHARED_HORIZONS 4096

typedef struct PublishedEntry
{
	Oid			database;		/* InvalidOid = free */
	int64		partition_id;
	Oid			sequence;		/* ids are given out again when the extension is created anew */
	int64		horizon;
} PublishedEntry;

typedef struct SharedState
{
	LWLock		lock;			/* guards everything below */
	bool		was_standby;	/* standby.signal stood at the server's start */
	Latch	   *launcher;		/* NULL while there is none */
	int			slots_used;		/* slots from here on were never in use */
	WorkerSlot	workers[SHARED_WORKERS];
	PublishedEntry horizons[SHARED_HORIZONS];
} SharedState;

/* NULL in a backend of a server that did not preload incsink. */
extern SharedState *shared;

/*
 * Does this process write down what it finds at partitions?  One in a database does:
 * the first worker of class forward.
 */
extern bool records_partitions;

/* Hooks into the size and set-up of shared memory; for _PG_init. */
extern void RequestSharedMemory(void);
extern bool SharedMemoryIsPreloaded(void);

/* For a launcher without preloading, and its workers. */
extern dsm_handle CreateDynamicShared(void);
extern void AttachDynamicShared(dsm_handle handle);

/*
 * Finds or makes the slot of (database, class, number) and tells the launcher.  NULL
 * when all are taken.  Call with shared->lock held exclusively.
 */
extern WorkerSlot *WantWorker(Oid database, WorkerClass class, int number);

/* Sets the latches of this database's workers, or of all. */
extern void WakeWorkers(Oid database);

/*
 * This transaction wrote to an attached table or changed a definition: wakes the
 * workers of this database when it has ended and its locks are gone (a wake-up at
 * XACT_EVENT_COMMIT would come before).  An abort wakes too: it may have held the
 * horizon back.
 */
extern void NoteWakeup(void);

/* Horizon of a partition as a worker last published it; false if not known. */
extern bool PublishedHorizon(int64 partition_id, Oid sequence, int64 *horizon);
extern void PublishHorizon(int64 partition_id, Oid sequence, int64 horizon);
/* Forgets it: the sequence was restarted or the partition detached. */
extern void ForgetPublishedHorizon(int64 partition_id);

/*
 * In a transaction that creates the extension, attaches, or changes a sink: makes
 * sure that a worker runs for this database after commit, preloaded or not.
 */
extern void RequestWorkerAtCommit(void);

/* What the postmaster is told of a launcher, for one database or (InvalidOid) for all. */
extern void DescribeLauncher(BackgroundWorker *worker, Oid database);

/* Names of the entry points. */
#define LAUNCHER_FUNCTION "IncsinkLauncherMain"
#define WORKER_FUNCTION "IncsinkWorkerMain"

/* Heavyweight lock that a launcher for one database holds where not preloaded. */
extern void SetLauncherLockTag(LOCKTAG *tag, Oid database);

/*
 * Asks for an immediate flush of a sink by a lock, held to the end of the
 * transaction, that workers look for: it needs no shared memory, no commit, and
 * goes with its session.
 */
extern void RequestFlush(int64 sink_id);
extern bool FlushIsRequested(int64 sink_id);

#endif							/* INCSINK_SHARED_H */
