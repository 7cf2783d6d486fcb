/*
 * slot.h
 *		What every process of a WorkerClass shares: its place, its end.
 */
#ifndef INCSINK_SLOT_H
#define INCSINK_SLOT_H

#include "postgres.h"

#include "common/compat.h"
#include "common/shared.h"
#include "worker/worker.h"

/* This process's; NULL before AttachSlot(). */
extern WorkerSlot *my_slot;

/* The extension's OID; set by FindExtension(). */
extern Oid	my_extension;

/* Between two looks whether the database, or a table, is wanted by others. */
#define DATABASE_LOOK_MS 250

/* Takes the slot that the launcher has chosen, until the process ends. */
extern void AttachSlot(int index, const WorkerArgs *args);

/* Settings of the process's own transactions.  Outside of one. */
extern void ApplyWorkerSettings(void);

/* Finds the extension and becomes its worker, or ends the process. */
extern void FindExtension(void);

/* In a transaction: ends the process if the extension is another one or gone. */
extern void StayWithExtension(void);

/*
 * In a transaction: takes ownership, also again after one that was aborted, which
 * lets go of it (ProcReleaseLocks() in storage/lmgr/proc.c); ends the process if
 * another has its number.
 */
extern void StayOwner(void);

/*
 * Ends the process with a word for the launcher.  What a transaction has done is
 * rolled back.  The first forward worker breaks off an index build when it leaves.
 */
pg_noreturn extern void Leave(WorkerExit reason);

/*
 * DROP, RENAME and TEMPLATE lock the database's own object and then wait five seconds
 * for everybody to leave (dbcommands.c, CountOtherDBBackends).  Allocates nothing
 * that stays.
 */
extern bool DatabaseIsWanted(Oid database);

/* Where not preloaded, the next launcher makes shared memory of its own and a worker in it. */
extern bool LauncherIsGone(void);

/*
 * To be called before a look whether there is something to do: a wish that comes
 * after it is not lost if the answer is no.
 */
extern void TakeWish(void);

/* Makes sure that there is that process for this database. */
extern void AskForWorker(WorkerClass class, int number);

/* For incsink.stat_worker. */
extern void NoteError(const char *message);
extern void ShowWaitingFor(const char *reason);

#endif							/* INCSINK_SLOT_H */
