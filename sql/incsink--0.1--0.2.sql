/* incsink 0.1 -> 0.2.  Leaves the catalog as incsink--0.2.sql makes it: test/t/039_upgrade.pl compares. */

\echo Use "ALTER EXTENSION incsink UPDATE TO '0.2'" to load this file. \quit

/*
 * ------------------------------------------------------------------
 * Catalog tables
 * ------------------------------------------------------------------
 */
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

ALTER TABLE incsink.sink_table_def ADD COLUMN added_at timestamptz NOT NULL DEFAULT pg_catalog.now();

SELECT pg_catalog.pg_extension_config_dump('incsink.backlog_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.leaf_def', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.loss', '');
SELECT pg_catalog.pg_extension_config_dump('incsink.index_task', '');

GRANT SELECT ON incsink.leaf_def, incsink.loss, incsink.index_task TO PUBLIC;
/* Positions hold keys, which are the users' data. */
GRANT SELECT ON incsink.backlog_def TO pg_read_all_data;

/*
 * ------------------------------------------------------------------
 * Functions
 * ------------------------------------------------------------------
 */
CREATE FUNCTION incsink_attach(relation regclass, dataset text DEFAULT NULL, source text DEFAULT 'default',
	adopt name DEFAULT NULL, options jsonb DEFAULT '{}', if_not_exists boolean DEFAULT false,
	force boolean DEFAULT false)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_attach';
COMMENT ON FUNCTION incsink_attach(regclass, text, text, name, jsonb, boolean, boolean) IS
	'attaches a table: numbers its new rows, so that sinks and readers get each exactly once; force attaches it in spite of what incsink_check_attach() calls dangerous';
REVOKE ALL ON FUNCTION incsink_attach(regclass, text, text, name, jsonb, boolean, boolean) FROM PUBLIC;

/*
 * What was granted on the function of before is granted on this one.  GRANT in the
 * script of an extension makes what is granted an initial privilege, which pg_dump
 * leaves out (recordExtensionInitPriv() in src/backend/catalog/aclchk.c): these are
 * none.  From PostgreSQL 17 roles in initial privileges have a dependency of type i.
 */
DO $$
DECLARE
	old_function	pg_catalog.regprocedure := '@extschema@.incsink_attach(pg_catalog.regclass, text, text, name, pg_catalog.jsonb, boolean)';
	new_function	pg_catalog.regprocedure := '@extschema@.incsink_attach(pg_catalog.regclass, text, text, name, pg_catalog.jsonb, boolean, boolean)';
	initial			pg_catalog.aclitem[];
	item			record;
BEGIN
	SELECT i.initprivs INTO STRICT initial FROM pg_catalog.pg_init_privs AS i
	WHERE i.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND i.objoid = new_function AND i.objsubid = 0;
	FOR item IN
		SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END AS grantee,
			CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
		FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
		WHERE p.oid = old_function AND a.privilege_type = 'EXECUTE' AND a.grantee <> p.proowner
	LOOP
		EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s%s', new_function, item.grantee, item.option);
	END LOOP;
	UPDATE pg_catalog.pg_init_privs AS i SET initprivs = initial
	WHERE i.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND i.objoid = new_function AND i.objsubid = 0;
	DELETE FROM pg_catalog.pg_shdepend AS d
	WHERE d.dbid = (SELECT b.oid FROM pg_catalog.pg_database AS b WHERE b.datname = pg_catalog.current_database())
		AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = new_function AND d.deptype = 'i'
		AND d.refobjid NOT IN (SELECT a.grantee FROM pg_catalog.aclexplode(initial) AS a);
END
$$;
DROP FUNCTION incsink_attach(regclass, text, text, name, jsonb, boolean);

CREATE PROCEDURE incsink_renumber(relation regclass, every_row boolean DEFAULT false, batch_rows integer DEFAULT 10000)
LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_renumber';
COMMENT ON PROCEDURE incsink_renumber(regclass, boolean, integer) IS
	'gives numbers to the rows of an attached table, or of one of its leaves, that have none, in transactions of batch_rows rows; every_row gives new ones to all';

CREATE FUNCTION incsink_number_row()
RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'incsink_number_row';
COMMENT ON FUNCTION incsink_number_row() IS 'trigger of attached tables that a subscription fills: numbers replicated rows here, whatever number they come with';

CREATE FUNCTION incsink_ddl_end()
RETURNS event_trigger LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'incsink_ddl_end';
COMMENT ON FUNCTION incsink_ddl_end() IS 'event trigger: notes leaves that join or leave attached partitioned tables, and tables that join subscriptions';

CREATE FUNCTION incsink_sql_drop()
RETURNS event_trigger LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'incsink_sql_drop';
COMMENT ON FUNCTION incsink_sql_drop() IS 'event trigger: notes leaves of attached partitioned tables that are dropped';

COMMENT ON FUNCTION incsink_read_since(regclass, jsonb, text[], bigint, interval) IS
	'rows of an attached table above a token, in the order of their numbers, each with the token to go on from; those that it had when it was attached come first';

REVOKE ALL ON PROCEDURE incsink_renumber(regclass, boolean, integer) FROM PUBLIC;

CREATE OR REPLACE FUNCTION incsink_stat_worker(OUT pid integer, OUT class text, OUT state text,
	OUT started_at timestamptz, OUT turns bigint, OUT last_turn_time timestamptz,
	OUT last_error text, OUT last_error_time timestamptz, OUT hint text)
	RETURNS SETOF record LANGUAGE sql VOLATILE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT * FROM @extschema@.incsink_worker_slots()
	UNION ALL
	SELECT a.pid, pg_catalog.split_part(a.backend_type, ' ', 2), 'running', a.backend_start,
		NULL, NULL, NULL, NULL,
		'Add incsink to shared_preload_libraries and restart: this worker ends with the server.'
	FROM pg_catalog.pg_stat_activity a
	WHERE a.backend_type IN ('incsink forward worker', 'incsink blob worker', 'incsink index worker')
		AND a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
		AND NOT EXISTS (SELECT FROM @extschema@.incsink_worker_slots())
	$$;

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

/*
 * ------------------------------------------------------------------
 * Views: columns are added behind those that there are, so that what users granted and built on them stays
 * ------------------------------------------------------------------
 */
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

CREATE OR REPLACE VIEW incsink.partitions AS
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
COMMENT ON COLUMN incsink.partitions.had_rows IS 'the table had rows when it was attached, which have no number';
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

CREATE OR REPLACE VIEW incsink.stat_delivery AS
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
		pg_catalog.ceil(GREATEST(b.row_estimate - b.rows_done, 0) / b.rate)) END AS backlog_eta
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
		SELECT x.intent_id, x.batch_id, x.row_count, x.since_seq, x.until_seq
		FROM incsink.intent AS x
		WHERE x.sink_id = w.sink_id AND x.partition_id = w.partition_id
			AND x.destination = w.destination
		ORDER BY x.since_seq, x.since_n
		LIMIT 1) AS i ON true
	LEFT JOIN incsink.stat_index AS k ON k.partition_id = t.partition_id
		LEFT JOIN LATERAL (
		SELECT w.n AS rows_done, y.row_estimate,
			CASE WHEN w.last_export_time > t.added_at THEN
				(w.n / EXTRACT(epoch FROM w.last_export_time - t.added_at))::pg_catalog.float8 END AS rate
		FROM incsink.backlog_def AS y
		WHERE y.partition_id = w.partition_id AND w.seq = 0 AND w.key IS DISTINCT FROM '[]') AS b ON true
		LEFT JOIN LATERAL (
		SELECT COALESCE('process ' || h.held_by_pid, 'the prepared transaction ' || h.held_by_gid) AS by
		WHERE h.horizon <= w.seq AND h.last_drawn > w.seq
			AND h.held_since < pg_catalog.clock_timestamp() - interval '10 seconds') AS held ON true;
COMMENT ON COLUMN incsink.stat_delivery.state IS 'waiting, sending, retrying, open circuit, halted, paused or preparing';
COMMENT ON COLUMN incsink.stat_delivery.position IS 'rows up to this number are exported; 0 as long as rows from before the table was attached are';
COMMENT ON COLUMN incsink.stat_delivery.backlog_rows_done IS 'rows from before the table was attached that were read so far; null if there are none, or all were';
COMMENT ON COLUMN incsink.stat_delivery.backlog_rows_estimate IS 'how many there are, by the statistics of the table when it was attached';
COMMENT ON COLUMN incsink.stat_delivery.backlog_rows_per_second IS 'average since the table was added to the sink';
COMMENT ON COLUMN incsink.stat_delivery.backlog_eta IS 'time until the rest is exported, at that rate';

CREATE OR REPLACE VIEW incsink.status AS
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
	FROM @extschema@.incsink_stat_worker()
	ORDER BY class, state = 'running' DESC)
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
COMMENT ON COLUMN incsink.status.backlog_rows_left IS 'estimate of the rows from before their tables were attached that its deliveries have still to export, beside lag_rows';
COMMENT ON COLUMN incsink.status.backlog_eta IS 'time until the slowest of its deliveries has exported them';

GRANT SELECT ON incsink.leaves, incsink.stat_index TO pg_monitor;

/* Last: they are called for what an update script drops, too. */
CREATE EVENT TRIGGER incsink_ddl_end ON ddl_command_end
	WHEN TAG IN ('ALTER SCHEMA', 'ALTER TABLE', 'CREATE FOREIGN TABLE', 'CREATE SCHEMA', 'CREATE TABLE', 'ALTER SUBSCRIPTION', 'CREATE SUBSCRIPTION')
	EXECUTE FUNCTION incsink_ddl_end();
ALTER EVENT TRIGGER incsink_ddl_end ENABLE ALWAYS;
CREATE EVENT TRIGGER incsink_sql_drop ON sql_drop EXECUTE FUNCTION incsink_sql_drop();
ALTER EVENT TRIGGER incsink_sql_drop ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER incsink_ddl_end IS 'keeps track of the leaves of attached partitioned tables';
COMMENT ON EVENT TRIGGER incsink_sql_drop IS 'keeps track of the leaves of attached partitioned tables that are dropped';
