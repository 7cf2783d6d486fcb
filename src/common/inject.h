/*
 * inject.h
 *		Named injection points, compiled in with -DINCSINK_INJECT only.
 *
 * Every commit and every I/O call in src/ stands beside a point, so that a test
 * can stop, fail or kill the process exactly there.  A point is armed by a file
 * in $PGDATA/incsink_inject/ named like the point, made by incsink_inject(point,
 * action); files work without shared memory, in every process, and survive the
 * kill of a server.
 *
 * Actions: "error" raises an ERROR; "kill" sends SIGKILL to this process;
 * "wait" makes <point>.reached and waits until the file is removed (interrupts
 * are served); "kill once"/"error once" disarm the point first; "errno N" makes
 * INCSINK_INJECT_ERRNO yield N, for I/O that must be seen failing.
 */
#ifndef INCSINK_INJECT_H
#define INCSINK_INJECT_H

#include "postgres.h"

#ifdef INCSINK_INJECT
extern void InjectionPoint(const char *name);
extern int	InjectionErrno(const char *name);

#define INCSINK_POINT(name) InjectionPoint(name)
/* errno to fail with instead of doing the call, or 0; never raises */
#define INCSINK_POINT_ERRNO(name) InjectionErrno(name)
#else
#define INCSINK_POINT(name) ((void) 0)
#define INCSINK_POINT_ERRNO(name) 0
#endif

#endif							/* INCSINK_INJECT_H */
