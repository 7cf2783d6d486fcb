/*
 * settings.h
 *		Settings of postgresql.conf (GUCs), all named incsink.*.
 */
#ifndef INCSINK_SETTINGS_H
#define INCSINK_SETTINGS_H

#include "postgres.h"

#define DEFAULT_MAX_CONNECTIONS 256

extern PGDLLIMPORT bool setting_enabled;
extern PGDLLIMPORT int setting_poll_interval;	/* milliseconds */
extern PGDLLIMPORT int setting_buffer_memory;	/* kilobytes */
extern PGDLLIMPORT int setting_max_connections;
extern PGDLLIMPORT int setting_max_connections_per_host;
extern PGDLLIMPORT int setting_workers;
extern PGDLLIMPORT int setting_attach_index_size;	/* kilobytes */
extern PGDLLIMPORT char *setting_instance;
extern PGDLLIMPORT char *setting_allowed_url_prefixes;
extern PGDLLIMPORT bool setting_allow_explicit_seq;

extern void DefineSettings(void);

#endif							/* INCSINK_SETTINGS_H */
