/*
 * worker.h
 *		Between launcher and workers.
 */
#ifndef INCSINK_WORKER_H
#define INCSINK_WORKER_H

#include "postgres.h"

#include "common/shared.h"

/* In bgw_extra; bgw_main_arg is the number of the slot. */
typedef struct WorkerArgs
{
	Oid			database;
	WorkerClass class;
	int			number;
	dsm_handle	dynamic_shared; /* DSM_HANDLE_INVALID where preloaded */
} WorkerArgs;

#endif							/* INCSINK_WORKER_H */
