/*
 * settings.c
 *		Settings of postgresql.conf.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "common/settings.h"
#include "common/worker_lock.h"

bool		setting_enabled = true;
int			setting_poll_interval = 1000;
int			setting_buffer_memory = 256 * 1024;
int			setting_max_connections = DEFAULT_MAX_CONNECTIONS;
int			setting_workers = 1;
int			setting_max_connections_per_host = 64;
int			setting_attach_index_size = 32 * 1024;
char	   *setting_instance = NULL;
char	   *setting_allowed_url_prefixes = NULL;
bool		setting_allow_explicit_seq = false;

void
DefineSettings(void)
{
	/*
	 * The master switch.  Off: nothing is read, sent or written anywhere in
	 * the cluster; start copies of a server with it off.
	 */
	DefineCustomBoolVariable("incsink.enabled",
							 "Exports rows in the background.",
							 "Start copies of a server with this switched off.",
							 &setting_enabled, true, PGC_SIGHUP, 0, NULL, NULL, NULL);

	/*
	 * How long the worker sleeps when nobody wakes it.  Where incsink is in
	 * shared_preload_libraries a commit wakes it and this is a safety net;
	 * elsewhere it is the latency of an export.
	 */
	DefineCustomIntVariable("incsink.poll_interval",
							"Longest time between two looks for new rows.",
							NULL,
							&setting_poll_interval, 1000, 10, 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

	/* Encoded batches in memory of one worker, of all its deliveries. */
	DefineCustomIntVariable("incsink.buffer_memory",
							"Memory for encoded batches of a worker.",
							"Its deliveries share it. Each may always hold a small batch.",
							&setting_buffer_memory, 256 * 1024, 1024, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);

	/* Each open connection takes a file descriptor of the worker. */
	DefineCustomIntVariable("incsink.max_connections",
							"Connections to collectors that a worker keeps open at most.",
							NULL,
							&setting_max_connections, DEFAULT_MAX_CONNECTIONS, 1, 10000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	/* Each counts in max_worker_processes while it has deliveries. */
	DefineCustomIntVariable("incsink.workers",
							"Workers of each class that share the deliveries of a database.",
							"One class sends to collectors, another writes files.",
							&setting_workers, 1, 1, WORKERS_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	/*
	 * One receiver that hangs, and those behind the same host and port, must
	 * not take all connections.
	 */
	DefineCustomIntVariable("incsink.max_connections_per_host",
							"Connections to one host and port that a worker keeps open at most.",
							NULL,
							&setting_max_connections_per_host, 64, 1, 10000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	/*
	 * Building an index reads the whole table, under a lock that keeps
	 * everybody out when it is done by incsink_attach() itself.
	 */
	DefineCustomIntVariable("incsink.attach_index_size",
							"Size of tables above which the index is built by a background worker.",
							"incsink_attach() itself builds it on smaller ones.",
							&setting_attach_index_size, 32 * 1024, 0, MAX_KILOBYTES,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);

	/*
	 * Tells copies of one data directory apart; it must not stand in the data
	 * directory that is copied.  All members of a Patroni cluster share one.
	 */
	DefineCustomStringVariable("incsink.instance",
							   "Name of this server among the copies of its data.",
							   "Exports wait for incsink_adopt_database() when it changes.",
							   &setting_instance, "", PGC_SIGHUP, 0, NULL, NULL, NULL);

	/*
	 * Where roles that are not superusers may point sinks.  A URL must start
	 * with one of the prefixes, at a boundary of the path.
	 */
	DefineCustomStringVariable("incsink.allowed_url_prefixes",
							   "URL prefixes that sinks of other than superusers may point at.",
							   "A comma-separated list. When empty, only superusers create sinks.",
							   &setting_allowed_url_prefixes, "", PGC_SUSET, 0, NULL, NULL, NULL);

	/* For restores; see incsink_attach() about numbers brought along. */
	DefineCustomBoolVariable("incsink.allow_explicit_seq",
							 "Lets statements bring their own ingest_seq into attached tables.",
							 "Rows numbered at or below a watermark are not exported.",
							 &setting_allow_explicit_seq, false, PGC_SUSET, 0, NULL, NULL, NULL);

	MarkGUCPrefixReserved("incsink");
}
