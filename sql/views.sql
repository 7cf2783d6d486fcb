-- Views: what they show, and that nothing makes them fail.
SET client_min_messages = error;
CREATE EXTENSION incsink;
CREATE TABLE logs (id int);
CREATE TABLE orders (id int);
INSERT INTO orders VALUES (1);
SELECT incsink_attach('logs');
SELECT incsink_attach('orders', dataset => 'shop', source => 'north');
RESET client_min_messages;

-- Columns and what is said about them.
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'incsink'::regnamespace AND c.relkind = 'v' AND c.relname <> 'stat_horizon'
ORDER BY c.relname COLLATE "C", a.attnum;

-- Nothing yet.
SELECT * FROM incsink.sinks;
SELECT * FROM incsink.sink_tables;
SELECT * FROM incsink.stat_delivery;
SELECT * FROM incsink.status;
SELECT dataset, source, schema_name, table_name, table_exists, seq_column, adopted, had_rows, options,
	last_drawn, horizon, error, hint
FROM incsink.partitions ORDER BY dataset COLLATE "C";

-- Sinks that are paused.
SELECT incsink_create_sink('empty', 'http://localhost:1/x', enabled => false);
SELECT incsink_create_sink('all', 'http://localhost:1/x', '{logs}', '{later}', enabled => false);
SELECT incsink_add_table('all', 'orders', columns => '{id}', filter => 'id > 0', start => 'now');
INSERT INTO logs SELECT generate_series(1, 10);
SELECT sink, kind, state, reason, hint, deliveries, lag_rows, rows_exported, last_export_time, retry_at,
	last_error, last_error_time
FROM incsink.status ORDER BY sink COLLATE "C";
SELECT sink, dataset, source, destination, state, reason, hint, position, lag_rows, rows_exported, failures
FROM incsink.stat_delivery ORDER BY sink COLLATE "C", dataset COLLATE "C";
SELECT * FROM incsink.sink_tables ORDER BY sink COLLATE "C", dataset COLLATE "C";
SELECT sink, datasets FROM incsink.sinks ORDER BY sink COLLATE "C";

-- What a worker would find out, in a transaction that it does not see.
CREATE FUNCTION delivery(dataset text, OUT sink_id bigint, OUT partition_id bigint) LANGUAGE sql AS $$
	SELECT s.sink_id, p.partition_id FROM incsink.sink_def AS s, incsink.partition_def AS p
	WHERE s.name = 'all' AND p.dataset = $1;
$$;
BEGIN;
UPDATE incsink.sink_def SET enabled = true;
SELECT sink, dataset, state, reason FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination, epoch, since_seq, until_seq,
	row_count, byte_count, digests, encoding)
SELECT i, 'batch' || i, sink_id, partition_id, '', 'e', i, i + 3, 3, 30, '{}', '{}'
FROM delivery('public.logs'), generate_series(1, 4, 3) AS i;
UPDATE incsink.watermark AS w SET seq = 1, rows_exported = 1, bytes_exported = 10, last_export_time = '2024-01-01 UTC'
FROM delivery('public.logs') AS d WHERE w.sink_id = d.sink_id AND w.partition_id = d.partition_id;
SELECT dataset, state, reason, position, lag_rows, in_flight_batch, in_flight_rows, in_flight_since, in_flight_until
FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
SELECT sink, state, lag_rows, rows_exported, last_export_time = '2024-01-01 UTC' AS exported
FROM incsink.status WHERE sink = 'all';
SELECT sink, state, reason, hint FROM incsink.status WHERE sink = 'empty';
-- an error that was overcome
INSERT INTO incsink.delivery_state (sink_id, partition_id, destination, state, last_error, last_error_time)
SELECT sink_id, partition_id, '', '', 'it was down', '2024-01-01 UTC' FROM delivery('public.logs');
SELECT dataset, state, reason, last_error FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
-- the gravest one speaks for the sink
INSERT INTO incsink.delivery_state (sink_id, partition_id, destination, state, reason, hint, failures, retry_at,
	last_error, last_error_time)
SELECT sink_id, partition_id, '', 'retrying', 'it is down', 'Start it.', 3, '2024-01-02 UTC', 'still down',
	'2024-01-02 UTC' FROM delivery('shop');
SELECT dataset, state, reason, hint, failures, last_error FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
SELECT sink, state, reason, hint, retry_at = '2024-01-02 UTC' AS retry_at, last_error,
	last_error_time = '2024-01-02 UTC' AS last_error_time
FROM incsink.status WHERE sink = 'all';
UPDATE incsink.delivery_state SET state = 'halted', reason = 'not found', hint = 'Correct the URL.'
WHERE last_error = 'it was down';
SELECT sink, state, reason, hint, last_error FROM incsink.status WHERE sink = 'all';
-- destinations of their own
INSERT INTO incsink.watermark (sink_id, partition_id, destination, epoch, seq)
SELECT sink_id, partition_id, 'north', 'e', 1 FROM delivery('shop');
SELECT dataset, destination, state FROM incsink.stat_delivery ORDER BY dataset COLLATE "C", destination COLLATE "C";
-- a watermark that is missing
DELETE FROM incsink.watermark WHERE partition_id = (SELECT partition_id FROM delivery('public.logs'));
SELECT dataset, state, reason, position, lag_rows FROM incsink.stat_delivery WHERE dataset = 'public.logs';
DELETE FROM incsink.delivery_state;
SELECT dataset, state, reason, position, lag_rows FROM incsink.stat_delivery WHERE dataset = 'public.logs';
-- a table whose sequence is in disorder
UPDATE incsink.partition_state SET error = 'the sequence was restarted', hint = 'Repair it.';
SELECT dataset, reason, hint FROM incsink.stat_delivery WHERE destination = '' ORDER BY dataset COLLATE "C";
SELECT dataset, error, hint FROM incsink.partitions ORDER BY dataset COLLATE "C";
ROLLBACK;

-- Tables, sequences and roles that are gone.
BEGIN;
UPDATE incsink.partition_state SET relid = 4000000000 + partition_id, sequence_oid = 4100000000;
UPDATE incsink.sink_def SET owner = 4200000000::oid::regrole;
SELECT dataset, schema_name, table_name, table_exists, last_drawn, horizon IS NOT NULL AS horizon_known FROM incsink.partitions
ORDER BY dataset COLLATE "C";
SELECT dataset, state, position, lag_rows FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
SELECT sink, state, lag_rows FROM incsink.status ORDER BY sink COLLATE "C";
SELECT sink, owner FROM incsink.sinks ORDER BY sink COLLATE "C";
SELECT sink, schema_name, table_name FROM incsink.sink_tables ORDER BY dataset COLLATE "C";
DELETE FROM incsink.partition_state;
SELECT dataset, table_exists, horizon, error, hint FROM incsink.partitions ORDER BY dataset COLLATE "C";
SELECT dataset, state FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
UPDATE incsink.sink_def SET enabled = true;
SELECT dataset, state, reason, hint FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
UPDATE incsink.sink_def SET enabled = false;
DELETE FROM incsink.partition_def;
SELECT sink, dataset, state FROM incsink.stat_delivery;
SELECT sink, state FROM incsink.status ORDER BY sink COLLATE "C";
ROLLBACK;

-- Rows from before the table was attached, as far as they are exported.
BEGIN;
UPDATE incsink.sink_def SET enabled = true;
UPDATE incsink.watermark SET seq = 0, n = 0, key = NULL;
SELECT dataset, backlog_rows_done, backlog_rows_estimate, backlog_rows_per_second, extract(epoch FROM backlog_eta) AS eta
FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
INSERT INTO incsink.backlog_def (partition_id, key_columns, key_types, last_key, row_estimate)
SELECT partition_id, '{id}', '{integer}', '["9"]', 1500 FROM delivery('shop');
SELECT dataset, had_rows, backlog_rows FROM incsink.partitions ORDER BY dataset COLLATE "C";
SELECT dataset, backlog_rows_done, backlog_rows_estimate, backlog_rows_per_second, extract(epoch FROM backlog_eta) AS eta
FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
UPDATE incsink.watermark AS w SET n = 300, key = '["7"]', last_export_time = t.added_at + interval '10 seconds'
FROM incsink.sink_table_def AS t WHERE t.sink_id = w.sink_id AND t.partition_id = w.partition_id;
SELECT dataset, state, position, backlog_rows_done, backlog_rows_estimate, backlog_rows_per_second, extract(epoch FROM backlog_eta) AS eta
FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
SELECT sink, state, backlog_rows_left, extract(epoch FROM backlog_eta) AS eta FROM incsink.status ORDER BY sink COLLATE "C";
-- there are more than was thought
UPDATE incsink.watermark SET n = 3000;
SELECT dataset, backlog_rows_done, backlog_rows_estimate, extract(epoch FROM backlog_eta) AS eta FROM incsink.stat_delivery WHERE dataset = 'shop';
SELECT sink, backlog_rows_left, extract(epoch FROM backlog_eta) AS eta FROM incsink.status WHERE sink = 'all';
-- an index that is still to be built: what it had before is exported meanwhile
INSERT INTO incsink.index_task (partition_id) SELECT partition_id FROM delivery('shop');
SELECT dataset, state, reason FROM incsink.stat_delivery WHERE dataset = 'shop';
SELECT dataset, preparing, preparing_percent FROM incsink.partitions ORDER BY dataset COLLATE "C";
-- all of it is exported
UPDATE incsink.watermark SET key = '[]';
SELECT dataset, state, reason, hint, backlog_rows_done, backlog_rows_estimate, extract(epoch FROM backlog_eta) AS eta
FROM incsink.stat_delivery WHERE dataset = 'shop';
SELECT sink, state, backlog_rows_left, extract(epoch FROM backlog_eta) AS eta FROM incsink.status WHERE sink = 'all';
UPDATE incsink.index_task SET attempts = 2, last_error = 'process 1 is in the way', last_error_time = '2024-01-01 UTC';
SELECT dataset, state, reason, hint FROM incsink.stat_delivery WHERE dataset = 'shop';
SELECT dataset, source, schema_name, table_name, pid, relation, phase, percent, waits_for_pid, attempts, last_error
FROM incsink.stat_index;
UPDATE incsink.sink_def SET enabled = false;
SELECT dataset, state FROM incsink.stat_delivery WHERE dataset = 'shop';
-- numbers
DELETE FROM incsink.index_task;
UPDATE incsink.watermark SET seq = 1, n = 0, key = NULL;
SELECT dataset, position, backlog_rows_done, backlog_rows_estimate FROM incsink.stat_delivery WHERE dataset = 'shop';
ROLLBACK;

-- They were to be exported, and got numbers instead, but not all of them yet.
BEGIN;
UPDATE incsink.sink_def SET enabled = true;
SELECT dataset, had_rows, unnumbered, hint FROM incsink.partitions ORDER BY dataset COLLATE "C";
UPDATE incsink.sink_table_def SET start = 'beginning';
SELECT dataset, had_rows, unnumbered, hint FROM incsink.partitions ORDER BY dataset COLLATE "C";
SELECT dataset, state, reason, hint FROM incsink.stat_delivery ORDER BY dataset COLLATE "C";
-- also beside a delivery that is sending
INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination, epoch, since_seq, until_seq,
	row_count, byte_count, digests, encoding)
SELECT 1, 'batch', sink_id, partition_id, '', 'e', 1, 2, 1, 1, '{}', '{}' FROM delivery('public.logs');
SELECT state, reason, hint FROM incsink.status WHERE sink = 'all';
-- what halts it comes first
UPDATE incsink.partition_state SET error = 'the sequence was restarted', hint = 'Repair it.';
SELECT dataset, unnumbered, hint FROM incsink.partitions ORDER BY dataset COLLATE "C";
SELECT state, reason, hint FROM incsink.status WHERE sink = 'all';
ROLLBACK;

-- Leaves of partitioned tables, and what was lost with them.
SELECT * FROM incsink.leaves;
BEGIN;
INSERT INTO incsink.leaf_def (partition_id, relid, schema_name, table_name, left_at_seq)
SELECT partition_id, 'orders'::regclass, 'public', 'orders_1', NULL FROM delivery('shop')
UNION ALL SELECT partition_id, 4000000000, 'public', 'orders_2', 17 FROM delivery('shop');
INSERT INTO incsink.loss (partition_id, schema_name, table_name, row_count, lost_at)
SELECT partition_id, 'public', 'orders_' || i, 10 * i, '2024-01-01 UTC' FROM delivery('shop'), generate_series(1, 2) AS i;
SELECT * FROM incsink.leaves ORDER BY table_name;
SELECT dataset, leaves, rows_lost, last_loss_time = '2024-01-01 UTC' AS last_loss_time
FROM incsink.partitions ORDER BY dataset COLLATE "C";
ROLLBACK;

-- Who may look at all of them.
CREATE ROLE regress_monitor IN ROLE pg_monitor;
SET ROLE regress_monitor;
SELECT count(*) > 0 AS granted FROM incsink.status, incsink.stat_delivery, incsink.partitions, incsink.sinks,
	incsink.sink_tables, incsink.stat_worker, incsink.stat_horizon;
SELECT count(*) FROM incsink.leaves;
SELECT count(*) FROM incsink.stat_index;
SELECT count(*) FROM incsink.backlog_def;
SELECT count(*) FROM incsink.watermark;
RESET ROLE;
DROP ROLE regress_monitor;

-- A table that was renamed is shown by its name.
CREATE SCHEMA elsewhere;
ALTER TABLE logs RENAME TO diary;
ALTER TABLE diary SET SCHEMA elsewhere;
SELECT dataset, schema_name, table_name FROM incsink.partitions ORDER BY dataset COLLATE "C";

-- Looking at them takes no lock that would hold numbers back.
BEGIN;
SELECT count(*) FROM incsink.status, incsink.stat_delivery, incsink.partitions;
SELECT relation::regclass, mode FROM pg_locks
WHERE pid = pg_backend_pid() AND relation IN (SELECT oid FROM pg_class WHERE relkind = 'S') AND mode <> 'AccessShareLock';
COMMIT;

SELECT incsink_drop_sink(name) FROM incsink.sink_def;
SET client_min_messages = error;
DROP FUNCTION delivery;
DROP TABLE elsewhere.diary, orders;
DROP SCHEMA elsewhere;
DROP EXTENSION incsink CASCADE;
