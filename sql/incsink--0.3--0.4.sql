/* incsink 0.3 -> 0.4.  Leaves the catalog as incsink--0.4.sql makes it: test/t/039_upgrade.pl compares. */

\echo Use "ALTER EXTENSION incsink UPDATE TO '0.4'" to load this file. \quit

ALTER TABLE incsink.watermark
	ADD COLUMN rows_rejected bigint NOT NULL DEFAULT 0,
	ADD COLUMN flushes_interval bigint NOT NULL DEFAULT 0,
	ADD COLUMN flushes_rows bigint NOT NULL DEFAULT 0,
	ADD COLUMN flushes_bytes bigint NOT NULL DEFAULT 0,
	ADD COLUMN flushes_memory bigint NOT NULL DEFAULT 0,
	ADD COLUMN flushes_requested bigint NOT NULL DEFAULT 0,
	ADD COLUMN flushes_backlog bigint NOT NULL DEFAULT 0;

/* Batches cut before have no trigger; attempts made before count as not refused. */
ALTER TABLE incsink.intent
	ADD COLUMN flush_trigger text,
	ADD COLUMN refused integer NOT NULL DEFAULT 0;
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

/* Rows are the users' data. */
GRANT SELECT ON incsink.dead_letter TO pg_read_all_data;

/* Functions that return a column more are made anew; meanwhile the views stand on nothing. */
CREATE OR REPLACE VIEW incsink.stat_worker AS
SELECT NULL::integer AS pid, NULL::text AS class, NULL::text AS state, NULL::timestamptz AS started_at,
	NULL::bigint AS turns, NULL::timestamptz AS last_turn_time, NULL::text AS last_error,
	NULL::timestamptz AS last_error_time, NULL::text AS hint, NULL::integer AS number,
	NULL::bigint AS buffer_bytes;
CREATE OR REPLACE VIEW incsink.status AS
SELECT NULL::text AS sink, NULL::text AS kind, NULL::text AS state, NULL::text AS reason, NULL::text AS hint,
	NULL::bigint AS deliveries, NULL::bigint AS lag_rows, NULL::bigint AS rows_exported,
	NULL::timestamptz AS last_export_time, NULL::timestamptz AS retry_at, NULL::text AS last_error,
	NULL::timestamptz AS last_error_time, NULL::bigint AS backlog_rows_left, NULL::interval AS backlog_eta;
DROP FUNCTION incsink_stat_worker();
DROP FUNCTION incsink_worker_slots();

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

ALTER TABLE incsink.epoch_state ADD COLUMN rows_rejected bigint NOT NULL DEFAULT 0;

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

REVOKE ALL ON FUNCTION
	incsink_answers(),
	incsink_resolve(bigint, text),
	incsink_redeliver(bigint),
	incsink_discard(bigint)
	FROM PUBLIC;

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
GRANT SELECT ON incsink.dead_letters TO PUBLIC;

/* Views that have more columns: the text from incsink--0.4.sql. */

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

CREATE OR REPLACE VIEW incsink.stat_worker AS
SELECT pid, class, state, started_at, turns, last_turn_time, last_error, last_error_time, hint, number,
	buffer_bytes
FROM @extschema@.incsink_stat_worker();
COMMENT ON VIEW incsink.stat_worker IS 'the background workers of this database';
COMMENT ON COLUMN incsink.stat_worker.number IS 'below incsink.workers; the first of class forward is 0 and looks after the partitions, too';
COMMENT ON COLUMN incsink.stat_worker.last_error IS 'why a worker ended or could not start, also if it has been overcome';
COMMENT ON COLUMN incsink.stat_worker.buffer_bytes IS 'memory that its deliveries held for encoded batches after its last turn; see incsink.buffer_memory';
