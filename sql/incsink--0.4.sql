/* incsink 0.4: catalog tables, functions and views.  See doc/reference.md. */

\echo Use "CREATE EXTENSION incsink" to load this file. \quit

/*
 * Plain CREATE throughout: an object that somebody put in the way beforehand
 * makes the script fail instead of being adopted.
 */
CREATE SCHEMA incsink;
GRANT USAGE ON SCHEMA incsink TO PUBLIC;
COMMENT ON SCHEMA incsink IS 'catalog tables and views of incsink';

/*
 * ------------------------------------------------------------------
 * Catalog tables.  *_def holds what users define, *_state what the worker
 * finds out.  There are no foreign keys between them: whoever touches
 * watermarks or intents locks the row of sink_table_def first.
 * ------------------------------------------------------------------
 */
CREATE SEQUENCE incsink.object_id_seq;
COMMENT ON SEQUENCE incsink.object_id_seq IS 'ids of partitions, sinks, intents and recorded errors';

CREATE TABLE incsink.database_state (
	singleton			boolean PRIMARY KEY DEFAULT true CHECK (singleton),
	system_identifier	bigint NOT NULL,
	database_oid		oid NOT NULL,
	timeline			integer NOT NULL,
	instance			text NOT NULL,
	recorded_at			timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE incsink.database_state IS 'the cluster, database and timeline that exports were last confirmed for';

CREATE TABLE incsink.partition_def (
	partition_id	bigint PRIMARY KEY,
	dataset			text NOT NULL,
	source			text NOT NULL,
	schema_name		name NOT NULL,
	table_name		name NOT NULL,
	seq_column		name NOT NULL,
	adopted			boolean NOT NULL,
	had_rows		boolean NOT NULL,
	options			jsonb NOT NULL DEFAULT '{}',
	attached_at		timestamptz NOT NULL DEFAULT pg_catalog.now(),
	UNIQUE (dataset, source)
);
COMMENT ON TABLE incsink.partition_def IS 'attached tables, one row a partition';

CREATE TABLE incsink.partition_tag (
	partition_id	bigint NOT NULL,
	tag				text NOT NULL,
	last_horizon	bigint,
	drawn_at		timestamptz NOT NULL DEFAULT pg_catalog.now(),
	PRIMARY KEY (partition_id, tag)
);
COMMENT ON TABLE incsink.partition_tag IS 'tags that tokens of a partition carry; last_horizon is null for the tag in force';

CREATE TABLE incsink.partition_state (
	partition_id			bigint PRIMARY KEY,
	relid					oid NOT NULL UNIQUE,
	sequence_oid			oid NOT NULL,
	sequence_relfilenode	oid NOT NULL,
	highest_seq				bigint NOT NULL,
	recorded_horizon		bigint NOT NULL,
	recorded_at				timestamptz NOT NULL DEFAULT pg_catalog.now(),
	error					text,
	hint					text
) WITH (fillfactor = 50);
COMMENT ON TABLE incsink.partition_state IS 'what a partition is bound to in this database, its sequence''s incarnation and the last recorded horizon';

CREATE TABLE incsink.backlog_def (
	partition_id	bigint PRIMARY KEY,
	key_columns		name[] NOT NULL,
	key_types		text[] NOT NULL,
	last_key		jsonb NOT NULL,
	row_estimate	bigint NOT NULL
);
COMMENT ON TABLE incsink.backlog_def IS 'how the rows are read that partitions had when they were attached';
COMMENT ON COLUMN incsink.backlog_def.key_columns IS 'columns of the unique index in whose order the rows are read';
COMMENT ON COLUMN incsink.backlog_def.key_types IS 'their types and collations when the table was attached: in the order of others the rows cannot be read';
COMMENT ON COLUMN incsink.backlog_def.last_key IS 'highest key when the table was attached: the backlog ends there';

CREATE TABLE incsink.leaf_def (
	partition_id	bigint NOT NULL,
	relid			oid NOT NULL,
	schema_name		name NOT NULL,
	table_name		name NOT NULL,
	left_at_seq		bigint,
	PRIMARY KEY (partition_id, relid)
);
CREATE INDEX leaf_def_relid_idx ON incsink.leaf_def (relid);
COMMENT ON TABLE incsink.leaf_def IS 'leaves of attached partitioned tables, known by OID';
COMMENT ON COLUMN incsink.leaf_def.left_at_seq IS 'highest number that the leaf held when it left the tree, up to which it is still read; null while it is in the tree';

CREATE TABLE incsink.loss (
	partition_id	bigint NOT NULL,
	schema_name		name NOT NULL,
	table_name		name NOT NULL,
	row_count		bigint,
	lost_at			timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX loss_partition_idx ON incsink.loss (partition_id);
COMMENT ON TABLE incsink.loss IS 'leaves that were dropped before every sink had exported their rows';
COMMENT ON COLUMN incsink.loss.row_count IS 'rows that at least one sink had not exported; null if they were not counted';

CREATE TABLE incsink.index_task (
	partition_id	bigint PRIMARY KEY,
	requested_at	timestamptz NOT NULL DEFAULT pg_catalog.now(),
	attempts		integer NOT NULL DEFAULT 0,
	last_error		text,
	last_error_time	timestamptz
);
COMMENT ON TABLE incsink.index_task IS 'partitions whose index on the numbers is still to be built: they are preparing';

CREATE TABLE incsink.sink_def (
	sink_id		bigint PRIMARY KEY,
	name		text NOT NULL UNIQUE,
	kind		text NOT NULL,
	url			text NOT NULL,
	credentials	name,
	owner		regrole NOT NULL,
	options		jsonb NOT NULL DEFAULT '{}',
	enabled		boolean NOT NULL DEFAULT true,
	created_at	timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE incsink.sink_def IS 'sinks: where rows go and how';

CREATE TABLE incsink.sink_dataset_def (
	sink_id		bigint NOT NULL,
	dataset		text NOT NULL,
	PRIMARY KEY (sink_id, dataset)
);
COMMENT ON TABLE incsink.sink_dataset_def IS 'datasets listed by a sink; partitions attached later join it';

CREATE TABLE incsink.sink_table_def (
	sink_id			bigint NOT NULL,
	partition_id	bigint NOT NULL,
	columns			name[],
	filter			text,
	start			text NOT NULL,
	epoch			text NOT NULL,
	destinations	integer NOT NULL DEFAULT 0,
	added_at		timestamptz NOT NULL DEFAULT pg_catalog.now(),
	PRIMARY KEY (sink_id, partition_id)
);
COMMENT ON TABLE incsink.sink_table_def IS 'which partitions a sink exports; a row here promises a row in watermark';

CREATE TABLE incsink.watermark (
	sink_id				bigint NOT NULL,
	partition_id		bigint NOT NULL,
	destination			text NOT NULL,
	epoch				text NOT NULL,
	seq					bigint NOT NULL,
	n					bigint NOT NULL DEFAULT 0,
	key					jsonb,
	sent_seq			bigint NOT NULL DEFAULT 0,
	sent_n				bigint NOT NULL DEFAULT 0,
	rows_exported		bigint NOT NULL DEFAULT 0,
	bytes_exported		bigint NOT NULL DEFAULT 0,
	batches_exported	bigint NOT NULL DEFAULT 0,
	last_export_time	timestamptz,
	stats_reset			timestamptz,
	rows_rejected		bigint NOT NULL DEFAULT 0,
	flushes_interval	bigint NOT NULL DEFAULT 0,
	flushes_rows		bigint NOT NULL DEFAULT 0,
	flushes_bytes		bigint NOT NULL DEFAULT 0,
	flushes_memory		bigint NOT NULL DEFAULT 0,
	flushes_requested	bigint NOT NULL DEFAULT 0,
	flushes_backlog		bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (sink_id, partition_id, destination)
) WITH (fillfactor = 50);
COMMENT ON TABLE incsink.watermark IS 'positions of deliveries: everything up to (seq, n) is durably exported; destination '''' is the front';
COMMENT ON COLUMN incsink.watermark.sent_seq IS 'end of the last batch: the next one begins there, so that batches follow each other over numbers that hold no row to export';

CREATE TABLE incsink.epoch_state (
	sink_id			bigint NOT NULL,
	partition_id	bigint NOT NULL,
	destination		text NOT NULL,
	epoch			text NOT NULL,
	seq				bigint NOT NULL,
	n				bigint NOT NULL DEFAULT 0,
	key				jsonb,
	rows_exported	bigint NOT NULL,
	began_at		timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	rows_rejected	bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (sink_id, partition_id, destination)
);
COMMENT ON TABLE incsink.epoch_state IS 'where the epochs of deliveries began: incsink_verify() compares from there';
COMMENT ON COLUMN incsink.epoch_state.key IS 'inside a backlog: key of the last row before the epoch; an empty array if the backlog was over';
COMMENT ON COLUMN incsink.epoch_state.rows_exported IS 'what the watermark had counted then';

CREATE TABLE incsink.intent (
	intent_id		bigint PRIMARY KEY,
	batch_id		text NOT NULL,
	sink_id			bigint NOT NULL,
	partition_id	bigint NOT NULL,
	destination		text NOT NULL,
	epoch			text NOT NULL,
	since_seq		bigint NOT NULL,
	since_n			bigint NOT NULL DEFAULT 0,
	until_seq		bigint NOT NULL,
	until_n			bigint NOT NULL DEFAULT 0,
	until_key		jsonb,
	row_count		bigint NOT NULL,
	byte_count		bigint NOT NULL,
	digests			text[] NOT NULL,
	encoding		jsonb NOT NULL,
	object_key		text,
	attempts		integer NOT NULL DEFAULT 1,
	created_at		timestamptz NOT NULL DEFAULT pg_catalog.now(),
	flush_trigger	text,
	refused			integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX intent_delivery_idx ON incsink.intent (sink_id, partition_id, destination);
COMMENT ON TABLE incsink.intent IS 'batches that may have left: committed before their first byte is sent';
COMMENT ON COLUMN incsink.intent.flush_trigger IS 'what had the batch cut: interval, rows, bytes, memory, request or backlog';
COMMENT ON COLUMN incsink.intent.refused IS 'attempts whose answer proves that the batch was not stored; one is proven only when the next is noted';

CREATE TABLE incsink.dead_letter (
	dead_letter_id	bigint PRIMARY KEY,
	sink_id			bigint NOT NULL,
	partition_id	bigint NOT NULL,
	destination		text NOT NULL,
	epoch			text NOT NULL,
	batch_id		text NOT NULL,
	since_seq		bigint NOT NULL,
	since_n			bigint NOT NULL,
	until_seq		bigint NOT NULL,
	until_n			bigint NOT NULL,
	row_count		bigint NOT NULL,
	body			bytea NOT NULL,
	encoding		jsonb NOT NULL,
	status			integer,
	answer			text,
	rejected_at		timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	redeliver_epoch	text,
	redeliver_batch_id	text,
	redeliver_at	timestamptz,
	redeliver_attempts	integer NOT NULL DEFAULT 0,
	redeliver_error	text
);
CREATE INDEX dead_letter_delivery_idx ON incsink.dead_letter (sink_id, partition_id, destination);
COMMENT ON TABLE incsink.dead_letter IS 'rows that a receiver refused and that were put aside';
COMMENT ON COLUMN incsink.dead_letter.body IS 'the row as it was sent, before compression';
COMMENT ON COLUMN incsink.dead_letter.redeliver_epoch IS 'epoch and id under which it is sent again, however often';
COMMENT ON COLUMN incsink.dead_letter.redeliver_at IS 'when incsink_redeliver() was called; null if it is not to be sent';
COMMENT ON COLUMN incsink.dead_letter.redeliver_error IS 'why the last attempt failed';

CREATE TABLE incsink.delivery_state (
	sink_id				bigint NOT NULL,
	partition_id		bigint NOT NULL,
	destination			text NOT NULL,
	state				text NOT NULL,
	reason				text,
	hint				text,
	failures			integer NOT NULL DEFAULT 0,
	first_failure_time	timestamptz,
	retry_at			timestamptz,
	last_error			text,
	last_error_time		timestamptz,
	PRIMARY KEY (sink_id, partition_id, destination)
) WITH (fillfactor = 50);
COMMENT ON TABLE incsink.delivery_state IS 'deliveries that are not simply waiting or sending, and the last error of each';

CREATE TABLE incsink.delivery_error (
	error_id		bigint PRIMARY KEY,
	sink_id			bigint NOT NULL,
	partition_id	bigint NOT NULL,
	destination		text NOT NULL,
	error_time		timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	batch_id		text,
	message			text NOT NULL
);
CREATE INDEX delivery_error_delivery_idx ON incsink.delivery_error (sink_id, partition_id, destination, error_id);
COMMENT ON TABLE incsink.delivery_error IS 'the last 20 errors of each delivery';

/* Definitions and positions are part of a dump; what was found out at run time is not. */
SELECT pg_catalog.pg_extension_config_dump('incsink.object_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.partition_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.partition_tag', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.backlog_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.leaf_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.loss', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.index_task', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.sink_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.sink_dataset_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.sink_table_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.watermark', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.epoch_state', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.intent', '');

/* Definitions hold no secret: a dump by any role that may read the database works. */
GRANT SELECT ON incsink.object_id_seq, incsink.partition_def, incsink.partition_tag, incsink.leaf_def,
	incsink.loss, incsink.index_task, incsink.sink_def, incsink.sink_dataset_def, incsink.sink_table_def TO PUBLIC;
/* Positions hold keys, which are the users' data. */
GRANT SELECT ON incsink.backlog_def, incsink.watermark, incsink.epoch_state, incsink.intent, incsink.dead_letter TO pg_read_all_data;

/*
 * ------------------------------------------------------------------
 * Functions: attach and read
 * ------------------------------------------------------------------
 */
CREATE FUNCTION incsink_attach(relation regclass, dataset text DEFAULT NULL, source text DEFAULT 'default',
	adopt name DEFAULT NULL, options jsonb DEFAULT '{}', if_not_exists boolean DEFAULT false,
	force boolean DEFAULT false)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_attach';
COMMENT ON FUNCTION incsink_attach(regclass, text, text, name, jsonb, boolean, boolean) IS
	'attaches a table: numbers its new rows, so that sinks and readers get each exactly once; force attaches it in spite of what incsink_check_attach() calls dangerous';

CREATE FUNCTION incsink_detach(relation regclass, drop_column boolean DEFAULT false, force boolean DEFAULT false)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_detach';
COMMENT ON FUNCTION incsink_detach(regclass, boolean, boolean) IS
	'detaches a table and says what is left on it; force takes it out of the sinks that export it';

CREATE FUNCTION incsink_forget_partition(dataset text, source text DEFAULT 'default')
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_forget_partition';
COMMENT ON FUNCTION incsink_forget_partition(text, text) IS
	'forgets an attached table that was dropped';

CREATE FUNCTION incsink_confirm_sequence(relation regclass)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_confirm_sequence';
COMMENT ON FUNCTION incsink_confirm_sequence(regclass) IS
	'goes on after the sequence of an attached table was restarted or altered: sets it past all that was given out';

CREATE PROCEDURE incsink_renumber(relation regclass, every_row boolean DEFAULT false, batch_rows integer DEFAULT 10000)
LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_renumber';
COMMENT ON PROCEDURE incsink_renumber(regclass, boolean, integer) IS
	'gives numbers to the rows of an attached table, or of one of its leaves, that have none, in transactions of batch_rows rows; every_row gives new ones to all';

CREATE FUNCTION incsink_check_attach(relation regclass, adopt name DEFAULT NULL)
RETURNS TABLE (severity text, problem text, hint text)
LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_check_attach' ROWS 5;
COMMENT ON FUNCTION incsink_check_attach(regclass, name) IS
	'lists what attaching a table would break, or is refused for';

/* Called by the TRUNCATE triggers of attached tables, by whoever truncates. */
CREATE FUNCTION incsink_truncate_before()
RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_truncate_before';
COMMENT ON FUNCTION incsink_truncate_before() IS 'trigger of attached tables: notes the last number drawn';

CREATE FUNCTION incsink_truncate_after()
RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_truncate_after';
COMMENT ON FUNCTION incsink_truncate_after() IS 'trigger of attached tables: sets a restarted sequence past the last number drawn';

/* Called for rows that a subscription brings. */
CREATE FUNCTION incsink_number_row()
RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_number_row';
COMMENT ON FUNCTION incsink_number_row() IS 'trigger of attached tables that a subscription fills: numbers replicated rows here, whatever number they come with';

/* Leaves of attached partitioned tables come, leave and go by DDL. */
CREATE FUNCTION incsink_ddl_end()
RETURNS event_trigger LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'incsink_ddl_end';
COMMENT ON FUNCTION incsink_ddl_end() IS 'event trigger: notes leaves that join or leave attached partitioned tables, and tables that join subscriptions';

CREATE FUNCTION incsink_sql_drop()
RETURNS event_trigger LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'incsink_sql_drop';
COMMENT ON FUNCTION incsink_sql_drop() IS 'event trigger: notes leaves of attached partitioned tables that are dropped';

CREATE EVENT TRIGGER incsink_ddl_end ON ddl_command_end
	WHEN TAG IN ('ALTER SCHEMA', 'ALTER TABLE', 'CREATE FOREIGN TABLE', 'CREATE SCHEMA', 'CREATE TABLE', 'ALTER SUBSCRIPTION', 'CREATE SUBSCRIPTION')
	EXECUTE FUNCTION incsink_ddl_end();
ALTER EVENT TRIGGER incsink_ddl_end ENABLE ALWAYS;
CREATE EVENT TRIGGER incsink_sql_drop ON sql_drop EXECUTE FUNCTION incsink_sql_drop();
ALTER EVENT TRIGGER incsink_sql_drop ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER incsink_ddl_end IS 'keeps track of the leaves of attached partitioned tables';
COMMENT ON EVENT TRIGGER incsink_sql_drop IS 'keeps track of the leaves of attached partitioned tables that are dropped';

CREATE FUNCTION incsink_read_since(relation regclass, since jsonb DEFAULT NULL, columns text[] DEFAULT NULL,
	max_rows bigint DEFAULT NULL, wait interval DEFAULT NULL)
RETURNS TABLE (data jsonb, token jsonb)
LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_read_since' ROWS 1000;
COMMENT ON FUNCTION incsink_read_since(regclass, jsonb, text[], bigint, interval) IS
	'rows of an attached table above a token, in the order of their numbers, each with the token to go on from; those that it had when it was attached come first';

/* For string literals, which would fit the two others equally well. */
CREATE FUNCTION incsink_read_since(relation text, since jsonb DEFAULT NULL, columns text[] DEFAULT NULL,
	max_rows bigint DEFAULT NULL, wait interval DEFAULT NULL)
RETURNS TABLE (data jsonb, token jsonb)
LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_read_since_text' ROWS 1000;
COMMENT ON FUNCTION incsink_read_since(text, jsonb, text[], bigint, interval) IS
	'rows of an attached table above a token, the table given by name';

CREATE FUNCTION incsink_read_since(relation anyelement, since jsonb DEFAULT NULL, columns text[] DEFAULT NULL,
	max_rows bigint DEFAULT NULL, wait interval DEFAULT NULL)
RETURNS TABLE (data anyelement, token jsonb)
LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_read_since_typed' ROWS 1000;
COMMENT ON FUNCTION incsink_read_since(anyelement, jsonb, text[], bigint, interval) IS
	'rows of an attached table above a token, as rows of its type: incsink_read_since(NULL::schema.table, ...)';

CREATE FUNCTION incsink_horizon(relation regclass)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_horizon';
COMMENT ON FUNCTION incsink_horizon(regclass) IS
	'token of the highest number below which no row can appear any more';

CREATE FUNCTION incsink_last_token(relation regclass)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_last_token';
COMMENT ON FUNCTION incsink_last_token(regclass) IS
	'token of the last number drawn, to wait for';

CREATE FUNCTION incsink_stat_horizon(OUT partition_id bigint, OUT dataset text, OUT source text,
	OUT relation regclass, OUT horizon bigint, OUT last_drawn bigint,
	OUT held_by_pid integer, OUT held_by_gid text, OUT held_since timestamptz)
RETURNS SETOF record LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_stat_horizon' ROWS 100;
COMMENT ON FUNCTION incsink_stat_horizon() IS
	'horizon of every attached table, and the session or prepared transaction that holds it back';

/* Only those who are granted it change what is exported; reading needs SELECT on the table. */
REVOKE ALL ON FUNCTION incsink_attach(regclass, text, text, name, jsonb, boolean, boolean),
	incsink_detach(regclass, boolean, boolean), incsink_forget_partition(text, text),
	incsink_confirm_sequence(regclass), incsink_stat_horizon() FROM PUBLIC;
REVOKE ALL ON PROCEDURE incsink_renumber(regclass, boolean, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION incsink_stat_horizon() TO pg_monitor;

CREATE VIEW incsink.stat_horizon AS
	SELECT partition_id, dataset, source, relation, horizon, last_drawn, held_by_pid, held_by_gid, held_since
	FROM @extschema@.incsink_stat_horizon();
COMMENT ON VIEW incsink.stat_horizon IS
	'horizon of every attached table, and the session or prepared transaction that holds it back';
GRANT SELECT ON incsink.stat_horizon TO pg_monitor;

/*
 * ------------------------------------------------------------------
 * Functions: sinks
 * ------------------------------------------------------------------
 */
CREATE FUNCTION incsink_create_sink(name text, url text, tables regclass[] DEFAULT '{}',
		datasets text[] DEFAULT '{}', options jsonb DEFAULT '{}', credentials name DEFAULT NULL,
		enabled boolean DEFAULT true)
	RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_create_sink';
COMMENT ON FUNCTION incsink_create_sink(text, text, regclass[], text[], jsonb, name, boolean)
	IS 'creates a sink, which exports the tables and datasets listed to a URL';

CREATE FUNCTION incsink_alter_sink(name text, url text DEFAULT NULL, options jsonb DEFAULT NULL,
		credentials name DEFAULT NULL, watermark text DEFAULT NULL)
	RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_alter_sink';
COMMENT ON FUNCTION incsink_alter_sink(text, text, jsonb, name, text)
	IS 'changes a sink; options are merged, a null removes one, credentials '''' removes them; a new url needs watermark ''keep'' or ''restart''';

CREATE FUNCTION incsink_drop_sink(name text, if_exists boolean DEFAULT false)
	RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_drop_sink';
COMMENT ON FUNCTION incsink_drop_sink(text, boolean)
	IS 'drops a sink and forgets where it stood';

CREATE FUNCTION incsink_add_table(sink text, relation regclass, columns name[] DEFAULT NULL,
		filter text DEFAULT NULL, start text DEFAULT NULL)
	RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_add_table';
COMMENT ON FUNCTION incsink_add_table(text, regclass, name[], text, text)
	IS 'adds an attached table to a sink, with a column list and a row filter as in CREATE PUBLICATION';

CREATE FUNCTION incsink_remove_table(sink text, relation regclass)
	RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_remove_table';
COMMENT ON FUNCTION incsink_remove_table(text, regclass)
	IS 'removes a table from a sink and forgets where it stood';

CREATE FUNCTION incsink_pause_sink(name text)
	RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_pause_sink';
COMMENT ON FUNCTION incsink_pause_sink(text)
	IS 'stops the exports of a sink until incsink_resume_sink(); no row is lost';

CREATE FUNCTION incsink_resume_sink(name text)
	RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_resume_sink';
COMMENT ON FUNCTION incsink_resume_sink(text)
	IS 'goes on with the exports of a paused or halted sink';

CREATE FUNCTION incsink_flush(sink text, timeout interval DEFAULT '1 min')
	RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_flush';
COMMENT ON FUNCTION incsink_flush(text, interval)
	IS 'sends what waits and waits until all rows drawn before the call are acknowledged; false when the time is over';

CREATE FUNCTION incsink_verify(sink text, relation regclass, range_rows bigint DEFAULT 100000)
	RETURNS TABLE (since numeric, until numeric, state text, object text, rows_in_table bigint,
		rows_at_sink bigint, rows_missing bigint, rows_doubled bigint, rows_unexpected bigint,
		digest text, detail text)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'incsink_verify' ROWS 1000;
COMMENT ON FUNCTION incsink_verify(text, regclass, bigint)
	IS 'compares what a table holds, up to where a sink stands, with what the sink has of it; all is well if every state is ok';

CREATE FUNCTION incsink_options(kind text DEFAULT NULL, OUT name text, OUT kind text, OUT type text,
		OUT default_value text, OUT min text, OUT max text, OUT unit text, OUT description text)
	RETURNS SETOF record LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'incsink_options';
COMMENT ON FUNCTION incsink_options(text)
	IS 'the options of sinks of a kind, or of all kinds, with defaults and bounds';

CREATE FUNCTION incsink_answers(OUT answer text, OUT outcome text, OUT proves_not_stored boolean,
		OUT retry_after boolean, OUT hint text)
	RETURNS SETOF record LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'incsink_answers';
COMMENT ON FUNCTION incsink_answers()
	IS 'what a forward sink makes of each answer of a receiver';

CREATE FUNCTION incsink_resolve(intent_id bigint, outcome text)
	RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'incsink_resolve';
COMMENT ON FUNCTION incsink_resolve(bigint, text)
	IS 'ends the halt of a delivery whose batch may or may not be stored: "stored" moves on, "resend" sends it again as one that is not stored';

CREATE FUNCTION incsink_redeliver(dead_letter_id bigint)
	RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'incsink_redeliver';
COMMENT ON FUNCTION incsink_redeliver(bigint)
	IS 'has rows that were put aside sent again, as they were';

CREATE FUNCTION incsink_discard(dead_letter_id bigint)
	RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'incsink_discard';
COMMENT ON FUNCTION incsink_discard(bigint)
	IS 'forgets rows that were put aside';

CREATE FUNCTION incsink_fdw_validator(options text[], catalog oid)
	RETURNS void LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'incsink_fdw_validator';
COMMENT ON FUNCTION incsink_fdw_validator(text[], oid)
	IS 'checks the options of servers and user mappings that hold credentials of sinks';

CREATE FOREIGN DATA WRAPPER incsink VALIDATOR incsink_fdw_validator;
COMMENT ON FOREIGN DATA WRAPPER incsink
	IS 'credentials of sinks: servers say where secrets may go, user mappings hold them';

/* Who may create sinks is the administrator's to say. */
REVOKE ALL ON FUNCTION
	incsink_create_sink(text, text, regclass[], text[], jsonb, name, boolean),
	incsink_alter_sink(text, text, jsonb, name, text),
	incsink_drop_sink(text, boolean),
	incsink_add_table(text, regclass, name[], text, text),
	incsink_remove_table(text, regclass),
	incsink_pause_sink(text),
	incsink_resume_sink(text),
	incsink_flush(text, interval),
	incsink_verify(text, regclass, bigint),
	incsink_options(text),
	incsink_answers(),
	incsink_resolve(bigint, text),
	incsink_redeliver(bigint),
	incsink_discard(bigint),
	incsink_fdw_validator(text[], oid)
	FROM PUBLIC;

/*
 * ------------------------------------------------------------------
 * Functions: worker and database
 * ------------------------------------------------------------------
 */
CREATE FUNCTION incsink_version() RETURNS text
	LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION incsink_version() IS 'version of the incsink library that is loaded';

CREATE FUNCTION incsink_start_worker() RETURNS void
	LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
REVOKE ALL ON FUNCTION incsink_start_worker() FROM PUBLIC;
COMMENT ON FUNCTION incsink_start_worker() IS 'makes sure that a worker runs for this database after commit; needed by hand only after a restart without shared_preload_libraries';

CREATE FUNCTION incsink_adopt_database() RETURNS void
	LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
REVOKE ALL ON FUNCTION incsink_adopt_database() FROM PUBLIC;
COMMENT ON FUNCTION incsink_adopt_database() IS 'confirms that exports are to go on from this copy of the database, under new epochs';

CREATE FUNCTION incsink_worker_slots(OUT pid integer, OUT class text, OUT state text,
	OUT started_at timestamptz, OUT turns bigint, OUT last_turn_time timestamptz,
	OUT last_error text, OUT last_error_time timestamptz, OUT hint text, OUT number integer,
	OUT buffer_bytes bigint)
	RETURNS SETOF record LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
REVOKE ALL ON FUNCTION incsink_worker_slots() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION incsink_worker_slots() TO pg_monitor;
COMMENT ON FUNCTION incsink_worker_slots() IS 'workers of this database as shared memory has them; no row where incsink is not preloaded';

CREATE FUNCTION incsink_worker_locks(OUT pid integer, OUT class text, OUT number integer, OUT share integer)
	RETURNS SETOF record LANGUAGE C VOLATILE ROWS 64 AS 'MODULE_PATHNAME';
REVOKE ALL ON FUNCTION incsink_worker_locks() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION incsink_worker_locks() TO pg_monitor;
COMMENT ON FUNCTION incsink_worker_locks() IS 'which process is which worker of this database, and which one has which share of the deliveries';

CREATE FUNCTION incsink_share(sink_id bigint, partition_id bigint) RETURNS integer
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
REVOKE ALL ON FUNCTION incsink_share(bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION incsink_share(bigint, bigint) TO pg_monitor;
COMMENT ON FUNCTION incsink_share(bigint, bigint) IS 'share of the deliveries that one belongs to: worker number i of incsink.workers = n has the shares s with s % n = i';

CREATE FUNCTION incsink_stat_worker(OUT pid integer, OUT class text, OUT state text,
	OUT started_at timestamptz, OUT turns bigint, OUT last_turn_time timestamptz,
	OUT last_error text, OUT last_error_time timestamptz, OUT hint text, OUT number integer,
	OUT buffer_bytes bigint)
	RETURNS SETOF record LANGUAGE sql VOLATILE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT * FROM @extschema@.incsink_worker_slots()
	UNION ALL
	SELECT a.pid, pg_catalog.split_part(a.backend_type, ' ', 2), 'running', a.backend_start,
		NULL, NULL, NULL, NULL,
		'Add incsink to shared_preload_libraries and restart: this worker ends with the server.',
		(SELECT l.number FROM @extschema@.incsink_worker_locks() AS l
		 WHERE l.pid OPERATOR(pg_catalog.=) a.pid AND l.number IS NOT NULL), NULL
	FROM pg_catalog.pg_stat_activity a
	WHERE a.backend_type IN ('incsink forward worker', 'incsink blob worker', 'incsink index worker')
		AND a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
		AND NOT EXISTS (SELECT FROM @extschema@.incsink_worker_slots())
	$$;
REVOKE ALL ON FUNCTION incsink_stat_worker() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION incsink_stat_worker() TO pg_monitor;
COMMENT ON FUNCTION incsink_stat_worker() IS 'workers of this database; source of the view incsink.stat_worker';

/* The commit of CREATE EXTENSION starts the worker. */
SELECT @extschema@.incsink_start_worker();

/*
 * ------------------------------------------------------------------
 * Views
 * ------------------------------------------------------------------
 */
/* What pg_stat_progress_create_index says of an index that somebody builds by hand counts, too. */
/* A function, for the planner: catalog tables that were never analyzed look large to it. */
CREATE FUNCTION incsink_index_build(partition bigint, OUT pid integer, OUT relation regclass,
	OUT phase text, OUT percent integer, OUT waits_for_pid integer)
	RETURNS SETOF record LANGUAGE sql STABLE ROWS 1
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT p.pid, p.relid::pg_catalog.regclass, p.phase,
		CASE WHEN p.blocks_total > 0 THEN 100 * p.blocks_done / p.blocks_total
			WHEN p.tuples_total > 0 THEN 100 * p.tuples_done / p.tuples_total
			END::pg_catalog.int4,
		NULLIF(p.current_locker_pid, 0)::pg_catalog.int4
	FROM pg_catalog.pg_stat_progress_create_index AS p
		JOIN pg_catalog.pg_index AS x ON x.indexrelid = p.index_relid
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
		JOIN incsink.partition_def AS d ON d.partition_id = $1 AND a.attname = d.seq_column
	WHERE p.datname = pg_catalog.current_database()
		AND (EXISTS (SELECT FROM incsink.partition_state AS s
				WHERE s.partition_id = $1 AND s.relid = p.relid)
			OR EXISTS (SELECT FROM incsink.leaf_def AS l
				WHERE l.partition_id = $1 AND l.relid = p.relid))
	ORDER BY p.pid
	LIMIT 1
	$$;
REVOKE ALL ON FUNCTION incsink_index_build(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION incsink_index_build(bigint) TO pg_monitor;
COMMENT ON FUNCTION incsink_index_build(bigint) IS 'the build of a partition''s index that is under way; source of the view incsink.stat_index';

CREATE VIEW incsink.stat_index AS
SELECT k.partition_id,
	d.dataset,
	d.source,
	COALESCE(n.nspname, d.schema_name) AS schema_name,
	COALESCE(c.relname, d.table_name) AS table_name,
	g.pid,
	g.relation,
	g.phase,
	g.percent,
	g.waits_for_pid,
	k.requested_at,
	k.attempts,
	k.last_error,
	k.last_error_time
FROM incsink.index_task AS k
	LEFT JOIN incsink.partition_def AS d USING (partition_id)
	LEFT JOIN incsink.partition_state AS s USING (partition_id)
	LEFT JOIN pg_catalog.pg_class AS c ON c.oid = s.relid
	LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	LEFT JOIN LATERAL @extschema@.incsink_index_build(k.partition_id) AS g ON true;
COMMENT ON VIEW incsink.stat_index IS 'tables that are preparing: their index on the numbers is still to be built, and new rows are exported when it is there';
COMMENT ON COLUMN incsink.stat_index.pid IS 'process that builds it now; null if none does';
COMMENT ON COLUMN incsink.stat_index.relation IS 'table, or leaf of a partitioned one, whose index is being built';
COMMENT ON COLUMN incsink.stat_index.phase IS 'as in pg_stat_progress_create_index';
COMMENT ON COLUMN incsink.stat_index.percent IS 'how much of this phase is done';
COMMENT ON COLUMN incsink.stat_index.waits_for_pid IS 'process whose transaction the build waits for';
COMMENT ON COLUMN incsink.stat_index.attempts IS 'how often it has failed';
COMMENT ON COLUMN incsink.stat_index.last_error IS 'why the last try failed';

/*
 * A backlog ends when its rows begin to get numbers, and had_rows when all have one: in
 * between they are unnumbered.
 */
CREATE VIEW incsink.partitions AS
SELECT d.dataset,
	d.source,
	COALESCE(n.nspname, d.schema_name) AS schema_name,
	COALESCE(c.relname, d.table_name) AS table_name,
	c.oid IS NOT NULL AS table_exists,
	d.seq_column,
	d.adopted,
	d.had_rows,
	d.options,
	d.attached_at,
	h.last_drawn,
	COALESCE(h.horizon, s.recorded_horizon) AS horizon,
	CASE WHEN s.partition_id IS NULL THEN 'partition ("' || d.dataset || '", "' || d.source
			|| '") is not bound to a table of this database'
		ELSE s.error END AS error,
	CASE WHEN s.partition_id IS NULL THEN 'Run: SELECT incsink_adopt_database();'
		WHEN s.error IS NOT NULL THEN s.hint
		WHEN u.unnumbered THEN 'If it is not running: CALL incsink_renumber('
			|| pg_catalog.quote_literal(s.relid::pg_catalog.regclass::pg_catalog.text) || ');'
		END AS hint,
	k.partition_id IS NOT NULL AS preparing,
	k.percent AS preparing_percent,
	CASE WHEN c.relkind = 'p' THEN (SELECT pg_catalog.count(*) FROM incsink.leaf_def AS l
		WHERE l.partition_id = d.partition_id AND l.left_at_seq IS NULL) END AS leaves,
	(SELECT b.row_estimate FROM incsink.backlog_def AS b
		WHERE b.partition_id = d.partition_id) AS backlog_rows,
	x.rows_lost,
	x.last_loss_time,
	u.unnumbered
FROM incsink.partition_def AS d
	LEFT JOIN incsink.partition_state AS s USING (partition_id)
	LEFT JOIN pg_catalog.pg_class AS c ON c.oid = s.relid
	LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	LEFT JOIN @extschema@.incsink_stat_horizon() AS h USING (partition_id)
	LEFT JOIN incsink.stat_index AS k USING (partition_id)
	LEFT JOIN LATERAL (
		SELECT d.had_rows
			AND EXISTS (SELECT FROM incsink.sink_table_def AS t
				WHERE t.partition_id = d.partition_id AND t.start <> 'now')
			AND NOT EXISTS (SELECT FROM incsink.backlog_def AS b
				WHERE b.partition_id = d.partition_id) AS unnumbered) AS u ON true
	LEFT JOIN LATERAL (
		SELECT COALESCE(pg_catalog.sum(y.row_count), 0)::pg_catalog.int8 AS rows_lost,
			pg_catalog.max(y.lost_at) AS last_loss_time
		FROM incsink.loss AS y
		WHERE y.partition_id = d.partition_id) AS x ON true;
COMMENT ON VIEW incsink.partitions IS 'attached tables';
COMMENT ON COLUMN incsink.partitions.table_name IS 'name of the table now, or when it was last seen';
COMMENT ON COLUMN incsink.partitions.had_rows IS 'the table had rows when it was attached, which have no number';
COMMENT ON COLUMN incsink.partitions.last_drawn IS 'last number drawn for a row; null while it cannot be read';
COMMENT ON COLUMN incsink.partitions.horizon IS 'rows up to this number are safe to read: no open transaction can still commit one';
COMMENT ON COLUMN incsink.partitions.error IS 'why nothing is exported from the table; null if all is well';
COMMENT ON COLUMN incsink.partitions.hint IS 'what to do about it, or about unnumbered';
COMMENT ON COLUMN incsink.partitions.preparing IS 'its index on the numbers is still to be built; see incsink.stat_index';
COMMENT ON COLUMN incsink.partitions.preparing_percent IS 'how much of the present phase of building the index is done';
COMMENT ON COLUMN incsink.partitions.leaves IS 'leaves of a partitioned table; null for an ordinary one';
COMMENT ON COLUMN incsink.partitions.backlog_rows IS 'estimate, at attach, of the rows from before, if they can be exported';
COMMENT ON COLUMN incsink.partitions.unnumbered IS 'sinks wait for rows from before that have no number yet: incsink_renumber() is running, or was broken off';
COMMENT ON COLUMN incsink.partitions.rows_lost IS 'rows of leaves that were dropped before every sink had exported them, as far as they were counted';

CREATE VIEW incsink.leaves AS
SELECT d.dataset,
	d.source,
	COALESCE(n.nspname, l.schema_name) AS schema_name,
	COALESCE(c.relname, l.table_name) AS table_name,
	c.oid IS NOT NULL AS table_exists,
	CASE WHEN l.left_at_seq IS NULL THEN 'in tree' ELSE 'left' END AS state,
	l.left_at_seq
FROM incsink.leaf_def AS l
	LEFT JOIN incsink.partition_def AS d USING (partition_id)
	LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.relid
	LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace;
COMMENT ON VIEW incsink.leaves IS 'leaves of attached partitioned tables, and former ones whose rows are still read';
COMMENT ON COLUMN incsink.leaves.table_name IS 'name of the leaf now, or when it was last seen';
COMMENT ON COLUMN incsink.leaves.left_at_seq IS 'highest number that the leaf held when it left the tree: its rows up to there are still exported';

CREATE VIEW incsink.sinks AS
SELECT s.name AS sink,
	s.kind,
	s.url,
	s.credentials,
	COALESCE(r.rolname, s.owner::pg_catalog.oid::pg_catalog.text) AS owner,
	s.options,
	s.enabled,
	s.created_at,
	ARRAY(SELECT d.dataset FROM incsink.sink_dataset_def AS d
		WHERE d.sink_id = s.sink_id ORDER BY d.dataset) AS datasets
FROM incsink.sink_def AS s
	LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.owner;
COMMENT ON VIEW incsink.sinks IS 'sinks: where rows go and how';
COMMENT ON COLUMN incsink.sinks.credentials IS 'foreign server whose user mapping holds the secrets';
COMMENT ON COLUMN incsink.sinks.owner IS 'role that reads the rows';
COMMENT ON COLUMN incsink.sinks.options IS 'options that differ from their defaults; see incsink_options()';
COMMENT ON COLUMN incsink.sinks.datasets IS 'datasets whose tables join the sink when they are attached';

CREATE VIEW incsink.sink_tables AS
SELECT s.name AS sink,
	p.dataset,
	p.source,
	p.schema_name,
	p.table_name,
	t.columns,
	t.filter,
	t.start
FROM incsink.sink_table_def AS t
	JOIN incsink.sink_def AS s USING (sink_id)
	LEFT JOIN incsink.partition_def AS p USING (partition_id);
COMMENT ON VIEW incsink.sink_tables IS 'what each sink exports';
COMMENT ON COLUMN incsink.sink_tables.columns IS 'columns that are exported; null for all';
COMMENT ON COLUMN incsink.sink_tables.filter IS 'condition that rows must meet; null for none';

/* Rows are the users' data: those who may read them, and those who may send them again. */
CREATE VIEW incsink.dead_letters WITH (security_barrier) AS
SELECT l.dead_letter_id,
	s.name AS sink,
	p.dataset,
	p.source,
	l.destination,
	l.epoch,
	l.batch_id,
	l.since_seq,
	l.until_seq,
	l.row_count,
	l.body,
	l.status,
	l.answer,
	l.rejected_at,
	l.redeliver_at,
	l.redeliver_attempts,
	l.redeliver_error
FROM incsink.dead_letter AS l
	JOIN incsink.sink_def AS s USING (sink_id)
	LEFT JOIN incsink.partition_def AS p USING (partition_id)
WHERE pg_catalog.pg_has_role(s.owner::pg_catalog.oid, 'USAGE')
	OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE');
COMMENT ON VIEW incsink.dead_letters IS 'rows that a receiver refused and that were put aside, for owners of their sinks and members of pg_read_all_data';
COMMENT ON COLUMN incsink.dead_letters.batch_id IS 'id of the batch that was refused';
COMMENT ON COLUMN incsink.dead_letters.row_count IS 'rows in it: several only if they have one number';
COMMENT ON COLUMN incsink.dead_letters.body IS 'the row as it was sent, before compression';
COMMENT ON COLUMN incsink.dead_letters.status IS 'status of the answer that refused it';
COMMENT ON COLUMN incsink.dead_letters.redeliver_at IS 'when incsink_redeliver() was called; null if it is not to be sent';
COMMENT ON COLUMN incsink.dead_letters.redeliver_error IS 'why the last attempt failed';

CREATE VIEW incsink.stat_delivery AS
SELECT s.name AS sink,
	p.dataset,
	p.source,
	COALESCE(w.destination, '') AS destination,
	CASE WHEN NOT s.enabled THEN 'paused'
		WHEN e.error IS NOT NULL THEN 'halted'
		WHEN NULLIF(ds.state, '') IS NOT NULL THEN ds.state
		WHEN i.intent_id IS NOT NULL THEN 'sending'
		WHEN k.partition_id IS NOT NULL AND b.rows_done IS NULL THEN 'preparing'
		ELSE 'waiting' END AS state,
	CASE WHEN NOT s.enabled THEN 'incsink_pause_sink() was called, or the sink was created so'
		WHEN w.sink_id IS NULL THEN COALESCE(ds.reason, 'the watermark is missing')
		WHEN COALESCE(e.error, ds.reason) IS NOT NULL THEN COALESCE(e.error, ds.reason)
		WHEN k.partition_id IS NOT NULL AND b.rows_done IS NULL THEN
			CASE WHEN k.pid IS NOT NULL THEN 'the index on the numbers of ' || k.relation || ' is being built: ' || k.phase
					|| COALESCE(', ' || k.percent || ' %', '') || COALESCE(', waiting for process ' || k.waits_for_pid, '')
				WHEN k.last_error IS NOT NULL THEN 'the index on the numbers is not built yet: ' || k.last_error
				ELSE 'the index on the numbers is not built yet' END
		WHEN u.unnumbered THEN 'rows that the table had are not all numbered: incsink_renumber() is running or was broken off'
		WHEN held.by IS NOT NULL THEN 'rows are held back by ' || held.by || ', which has inserted and is open since '
			|| h.held_since
		END AS reason,
	CASE WHEN NOT s.enabled THEN 'Call incsink_resume_sink().'
		WHEN e.error IS NOT NULL THEN e.hint
		WHEN ds.reason IS NULL AND k.partition_id IS NOT NULL AND b.rows_done IS NULL THEN
			CASE WHEN k.waits_for_pid IS NOT NULL THEN 'End that transaction: COMMIT, ROLLBACK, or pg_terminate_backend().'
				WHEN k.pid IS NULL AND k.last_error IS NOT NULL THEN 'It is tried again. End what is in the way, or create the index yourself, CONCURRENTLY.'
				END
		WHEN ds.reason IS NULL AND u.unnumbered THEN 'If it is not running: CALL incsink_renumber('
			|| pg_catalog.quote_literal(ps.relid::pg_catalog.regclass::pg_catalog.text) || ');'
		WHEN ds.reason IS NULL AND held.by IS NOT NULL THEN 'End that transaction: COMMIT, ROLLBACK, or pg_terminate_backend().'
		ELSE ds.hint END AS hint,
	t.epoch,
	w.seq AS position,
	CASE WHEN h.last_drawn >= w.seq THEN h.last_drawn - w.seq
		WHEN h.last_drawn < w.seq THEN 0 END AS lag_rows,
	w.rows_exported,
	w.bytes_exported,
	w.batches_exported,
	w.last_export_time,
	COALESCE(ds.failures, 0) AS failures,
	ds.retry_at,
	ds.last_error,
	ds.last_error_time,
	w.stats_reset,
	i.batch_id AS in_flight_batch,
	i.row_count AS in_flight_rows,
	i.since_seq AS in_flight_since,
	i.until_seq AS in_flight_until,
	b.rows_done AS backlog_rows_done,
	b.row_estimate AS backlog_rows_estimate,
	b.rate AS backlog_rows_per_second,
	CASE WHEN b.rate > 0 THEN pg_catalog.make_interval(secs =>
		pg_catalog.ceil(GREATEST(b.row_estimate - b.rows_done, 0) / b.rate)) END AS backlog_eta,
	i.batches AS in_flight_batches,
	w.flushes_interval,
	w.flushes_rows,
	w.flushes_bytes,
	w.flushes_memory,
	w.flushes_requested,
	w.flushes_backlog,
	w.rows_rejected,
	(SELECT pg_catalog.count(*) FROM incsink.dead_letter AS l WHERE l.sink_id = w.sink_id
		AND l.partition_id = w.partition_id AND l.destination = w.destination) AS dead_letters,
	o.pid
FROM incsink.sink_table_def AS t
	JOIN incsink.sink_def AS s USING (sink_id)
	LEFT JOIN incsink.partition_def AS p USING (partition_id)
	LEFT JOIN incsink.partition_state AS ps USING (partition_id)
	LEFT JOIN LATERAL (
		SELECT CASE WHEN ps.partition_id IS NOT NULL THEN ps.error
				ELSE 'partition ("' || p.dataset || '", "' || p.source || '") is not bound to a table of this database'
				END AS error,
			CASE WHEN ps.partition_id IS NOT NULL THEN ps.hint
				ELSE 'Run: SELECT incsink_adopt_database();' END AS hint) AS e ON true
	LEFT JOIN LATERAL (
		SELECT p.had_rows AND t.start <> 'now' AND NOT EXISTS (SELECT FROM incsink.backlog_def AS y
			WHERE y.partition_id = t.partition_id) AS unnumbered) AS u ON true
	LEFT JOIN @extschema@.incsink_stat_horizon() AS h USING (partition_id)
	LEFT JOIN incsink.watermark AS w USING (sink_id, partition_id)
	LEFT JOIN incsink.delivery_state AS ds
		ON ds.sink_id = t.sink_id AND ds.partition_id = t.partition_id
			AND ds.destination = COALESCE(w.destination, '')
	LEFT JOIN LATERAL (
		SELECT x.intent_id, x.batch_id, x.row_count, x.since_seq, x.until_seq,
			pg_catalog.count(*) OVER () AS batches
		FROM incsink.intent AS x
		WHERE x.sink_id = w.sink_id AND x.partition_id = w.partition_id
			AND x.destination = w.destination
		ORDER BY x.since_seq, x.since_n
		LIMIT 1) AS i ON true
	LEFT JOIN incsink.stat_index AS k ON k.partition_id = t.partition_id
	LEFT JOIN @extschema@.incsink_worker_locks() AS o
		ON o.class = s.kind AND o.share = @extschema@.incsink_share(t.sink_id, t.partition_id)
	/* The empty key stands behind the backlog's last row. */
	LEFT JOIN LATERAL (
		SELECT w.n AS rows_done, y.row_estimate,
			CASE WHEN w.last_export_time > t.added_at THEN
				(w.n / EXTRACT(epoch FROM w.last_export_time - t.added_at))::pg_catalog.float8 END AS rate
		FROM incsink.backlog_def AS y
		WHERE y.partition_id = w.partition_id AND w.seq = 0 AND w.key IS DISTINCT FROM '[]') AS b ON true
	/* Transactions that are short are none of anybody's business. */
	LEFT JOIN LATERAL (
		SELECT COALESCE('process ' || h.held_by_pid, 'the prepared transaction ' || h.held_by_gid) AS by
		WHERE h.horizon <= w.seq AND h.last_drawn > w.seq
			AND h.held_since < pg_catalog.clock_timestamp() - interval '10 seconds') AS held ON true;
COMMENT ON VIEW incsink.stat_delivery IS 'where each delivery (a sink, a table, a destination) stands';
COMMENT ON COLUMN incsink.stat_delivery.state IS 'waiting, sending, retrying, open circuit, halted, paused or preparing';
COMMENT ON COLUMN incsink.stat_delivery.reason IS 'why it is not simply waiting or sending';
COMMENT ON COLUMN incsink.stat_delivery.hint IS 'what to do about it';
COMMENT ON COLUMN incsink.stat_delivery.epoch IS 'incarnation of the delivery, as receivers and object names have it';
COMMENT ON COLUMN incsink.stat_delivery.position IS 'rows up to this number are exported; 0 as long as rows from before the table was attached are';
COMMENT ON COLUMN incsink.stat_delivery.lag_rows IS 'numbers drawn after the position, also by transactions that are open or were rolled back; null while it cannot be read';
COMMENT ON COLUMN incsink.stat_delivery.failures IS 'failed attempts in a row';
COMMENT ON COLUMN incsink.stat_delivery.retry_at IS 'time of the next attempt';
COMMENT ON COLUMN incsink.stat_delivery.last_error IS 'last error, also if it has been overcome';
COMMENT ON COLUMN incsink.stat_delivery.in_flight_batch IS 'id of the batch that is being sent or will be sent again';
COMMENT ON COLUMN incsink.stat_delivery.in_flight_since IS 'the batch holds rows after this number';
COMMENT ON COLUMN incsink.stat_delivery.in_flight_until IS 'the batch holds rows up to this number';
COMMENT ON COLUMN incsink.stat_delivery.backlog_rows_done IS 'rows from before the table was attached that were read so far; null if there are none, or all were';
COMMENT ON COLUMN incsink.stat_delivery.backlog_rows_estimate IS 'how many there are, by the statistics of the table when it was attached';
COMMENT ON COLUMN incsink.stat_delivery.backlog_rows_per_second IS 'average since the table was added to the sink';
COMMENT ON COLUMN incsink.stat_delivery.backlog_eta IS 'time until the rest is exported, at that rate';
COMMENT ON COLUMN incsink.stat_delivery.in_flight_batches IS 'batches that are being sent or will be sent again; the columns above are of the first';
COMMENT ON COLUMN incsink.stat_delivery.flushes_interval IS 'exported batches that were cut because their oldest row had waited flush_interval';
COMMENT ON COLUMN incsink.stat_delivery.flushes_rows IS 'because flush_rows rows waited';
COMMENT ON COLUMN incsink.stat_delivery.flushes_bytes IS 'because flush_bytes bytes waited';
COMMENT ON COLUMN incsink.stat_delivery.flushes_memory IS 'because more waited than incsink.buffer_memory had room for';
COMMENT ON COLUMN incsink.stat_delivery.flushes_requested IS 'because of incsink_flush()';
COMMENT ON COLUMN incsink.stat_delivery.flushes_backlog IS 'of rows from before the table was attached, which wait for nothing';
COMMENT ON COLUMN incsink.stat_delivery.rows_rejected IS 'rows that the receiver refused and that were put aside, less those that were delivered since';
COMMENT ON COLUMN incsink.stat_delivery.dead_letters IS 'rows in incsink.dead_letters: the others were discarded';
COMMENT ON COLUMN incsink.stat_delivery.pid IS 'the worker that has the delivery, also if it is stopped; null while none has';

CREATE VIEW incsink.stat_worker AS
SELECT pid, class, state, started_at, turns, last_turn_time, last_error, last_error_time, hint, number,
	buffer_bytes
FROM @extschema@.incsink_stat_worker();
COMMENT ON VIEW incsink.stat_worker IS 'the background workers of this database';
COMMENT ON COLUMN incsink.stat_worker.number IS 'below incsink.workers; the first of class forward is 0 and looks after the partitions, too';
COMMENT ON COLUMN incsink.stat_worker.last_error IS 'why a worker ended or could not start, also if it has been overcome';
COMMENT ON COLUMN incsink.stat_worker.buffer_bytes IS 'memory that its deliveries held for encoded batches after its last turn; see incsink.buffer_memory';

/* The gravest delivery speaks for its sink, and where none does the worker. */
CREATE VIEW incsink.status AS
WITH delivery AS MATERIALIZED (
	SELECT d.*, pg_catalog.array_position(
			ARRAY['halted', 'open circuit', 'retrying', 'preparing', 'sending', 'waiting', 'paused'],
			d.state) AS gravity
	FROM incsink.stat_delivery AS d),
gravest AS (
	SELECT DISTINCT ON (sink) sink, state, reason, hint
	FROM delivery
	ORDER BY sink, state IN ('sending', 'waiting') AND reason IS NULL, gravity NULLS FIRST,
		reason NULLS LAST, dataset, source, destination),
total AS (
	SELECT sink,
		pg_catalog.count(*) AS deliveries,
		pg_catalog.sum(lag_rows)::pg_catalog.int8 AS lag_rows,
		pg_catalog.sum(GREATEST(backlog_rows_estimate - backlog_rows_done, 0))::pg_catalog.int8 AS backlog_rows_left,
		pg_catalog.max(backlog_eta) AS backlog_eta,
		pg_catalog.sum(rows_exported)::pg_catalog.int8 AS rows_exported,
		pg_catalog.max(last_export_time) AS last_export_time,
		pg_catalog.min(retry_at) AS retry_at
	FROM delivery
	GROUP BY sink),
latest AS (
	SELECT DISTINCT ON (sink) sink, last_error, last_error_time
	FROM delivery
	WHERE last_error_time IS NOT NULL
	ORDER BY sink, last_error_time DESC),
worker AS (
	SELECT DISTINCT ON (class) class, state, last_error, hint
	FROM incsink.stat_worker
	ORDER BY class, state = 'running' DESC, number)
SELECT s.name AS sink,
	s.kind,
	CASE WHEN NOT s.enabled THEN 'paused' ELSE COALESCE(g.state, 'waiting') END AS state,
	CASE WHEN NOT s.enabled THEN 'incsink_pause_sink() was called, or the sink was created so'
		WHEN t.sink IS NULL THEN 'it exports no table'
		WHEN g.reason IS NOT NULL AND g.state <> 'preparing' THEN g.reason
		WHEN pg_catalog.current_setting('incsink.enabled', true) = 'off' THEN 'incsink.enabled is off'
		WHEN k.state IS NULL THEN 'no worker is running'
		WHEN k.state = 'waiting' THEN 'the worker is waiting'
		WHEN k.state <> 'running' THEN COALESCE(k.last_error, 'the worker is ' || k.state)
		ELSE g.reason END AS reason,
	CASE WHEN NOT s.enabled THEN 'Call incsink_resume_sink().'
		WHEN t.sink IS NULL THEN 'Call incsink_add_table(), or attach a table with a dataset that it lists.'
		WHEN g.reason IS NOT NULL AND g.state <> 'preparing' THEN g.hint
		WHEN pg_catalog.current_setting('incsink.enabled', true) = 'off'
			THEN 'Set it to on in postgresql.conf and reload.'
		WHEN k.state IS NULL THEN 'Call incsink_start_worker().'
		WHEN k.state <> 'running' THEN k.hint
		ELSE g.hint END AS hint,
	COALESCE(t.deliveries, 0) AS deliveries,
	COALESCE(t.lag_rows, 0) AS lag_rows,
	COALESCE(t.rows_exported, 0) AS rows_exported,
	t.last_export_time,
	t.retry_at,
	l.last_error,
	l.last_error_time,
	COALESCE(t.backlog_rows_left, 0) AS backlog_rows_left,
	t.backlog_eta
FROM incsink.sink_def AS s
	LEFT JOIN gravest AS g ON g.sink = s.name
	LEFT JOIN total AS t ON t.sink = s.name
	LEFT JOIN latest AS l ON l.sink = s.name
	LEFT JOIN worker AS k ON k.class = s.kind
ORDER BY s.name;
COMMENT ON VIEW incsink.status IS 'where each sink stands, and why';
COMMENT ON COLUMN incsink.status.state IS 'gravest state of its deliveries; see incsink.stat_delivery';
COMMENT ON COLUMN incsink.status.reason IS 'why it is not simply waiting or sending';
COMMENT ON COLUMN incsink.status.hint IS 'what to do about it';
COMMENT ON COLUMN incsink.status.deliveries IS 'number of its rows in incsink.stat_delivery';
COMMENT ON COLUMN incsink.status.lag_rows IS 'numbers drawn after the positions of its deliveries';
COMMENT ON COLUMN incsink.status.backlog_rows_left IS 'estimate of the rows from before their tables were attached that its deliveries have still to export, beside lag_rows';
COMMENT ON COLUMN incsink.status.backlog_eta IS 'time until the slowest of its deliveries has exported them';

GRANT SELECT ON incsink.dead_letters TO PUBLIC;
GRANT SELECT ON incsink.partitions, incsink.leaves, incsink.sinks, incsink.sink_tables, incsink.stat_delivery,
	incsink.stat_index, incsink.status, incsink.stat_worker TO pg_monitor;
/* Functions in a view are run as its user. */
GRANT EXECUTE ON FUNCTION @extschema@.incsink_stat_horizon(), @extschema@.incsink_stat_worker()
	TO pg_monitor;
