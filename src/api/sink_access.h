/*
 * sink_access.h
 *		Sinks by name, for those who may change them.
 */
#ifndef INCSINK_API_SINK_ACCESS_H
#define INCSINK_API_SINK_ACCESS_H

#include "postgres.h"

#include "catalog/sink.h"

/*
 * The sink of that name, locked against others who change it, to the end of the
 * transaction.  Raises an ERROR if there is none or if "user" neither owns it nor
 * is a superuser.  Needs an open SqlSession.
 */
extern SinkDefinition *LockOwnSink(const char *name, Oid user);

/* The same without the lock. */
extern SinkDefinition *LoadOwnSink(const char *name, Oid user);

/* Raises an ERROR for options that do not parse. */
extern void RequireValidOptions(const SinkDefinition *sink);

/* What every function that changed a sink does at its end. */
extern void AnnounceChange(void);

#endif							/* INCSINK_API_SINK_ACCESS_H */
