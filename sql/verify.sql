-- incsink_verify: arguments, who may call it, and what it says of forward sinks.  What it
-- says of files is in test/t/050_verify.pl.
SET client_min_messages = error;
CREATE EXTENSION incsink;
CREATE TABLE logs (id int, v text);
CREATE TABLE other (id int);
CREATE TABLE plain (id int);
SELECT incsink_attach('logs');
SELECT incsink_attach('other');
RESET client_min_messages;
SELECT incsink_create_sink('central', 'http://localhost:1/x', '{logs}', enabled => false);
SELECT incsink_create_sink('files', 'file:///tmp/incsink_regress/there/is/none', '{logs}', enabled => false);

-- Nobody has it without a grant.
SELECT pg_get_function_arguments(oid), pg_get_function_result(oid), has_function_privilege('public', oid, 'EXECUTE')
FROM pg_proc WHERE proname = 'incsink_verify';

-- Arguments.
SELECT * FROM incsink_verify(NULL, 'logs');
SELECT * FROM incsink_verify('central', NULL);
SELECT * FROM incsink_verify('central', 'logs', NULL);
SELECT * FROM incsink_verify('central', 'logs', 0);
SELECT * FROM incsink_verify('central', 'logs', -1);
SELECT * FROM incsink_verify('none', 'logs');
SELECT * FROM incsink_verify('central', 'plain');
SELECT * FROM incsink_verify('central', 'other');
SELECT * FROM incsink_verify('central', 0);
SELECT * FROM incsink_verify('central', 'nothing');

-- An empty table, and one whose rows wait.
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('files', 'logs');
INSERT INTO logs SELECT i, 'row ' || i FROM generate_series(1, 25) AS i;
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');

-- What a worker would have done.
CREATE FUNCTION exported(sink text, up_to bigint, row_count bigint) RETURNS void LANGUAGE sql AS $$
	UPDATE incsink.watermark SET seq = up_to, sent_seq = up_to, rows_exported = row_count
	WHERE sink_id = (SELECT sink_id FROM incsink.sink_def WHERE name = sink);
$$;
SELECT exported('central', 25, 25);
SELECT since, until, state, object, rows_in_table, rows_at_sink, rows_missing, rows_doubled, rows_unexpected, detail
FROM incsink_verify('central', 'logs');
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing FROM incsink_verify('central', 'logs', 10);
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing FROM incsink_verify('central', 'logs', 1)
WHERE until <= 3;
SELECT since, until, state, rows_in_table FROM incsink_verify('central', 'logs', range_rows => 9223372036854775807);
-- the digest is that of the body
SELECT since, until, digest = (
	SELECT encode(sha256(convert_to(string_agg(format(E'{"id":%s,"v":"%s"}\n', id, v), '' ORDER BY ingest_seq), 'UTF8')), 'hex')
	FROM logs WHERE ingest_seq > since AND ingest_seq <= until) AS is_that
FROM incsink_verify('central', 'logs', 10);
-- numbers without rows
BEGIN;
DELETE FROM logs WHERE id BETWEEN 4 AND 15;
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs', 5);
ROLLBACK;
BEGIN;
DELETE FROM logs;
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs', 5);
ROLLBACK;
-- rows that wait are not looked at
SELECT exported('central', 20, 20);
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
-- fewer were exported than there are; more
SELECT exported('central', 25, 22);
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
SELECT exported('central', 25, 30);
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');

-- Where the epoch began.
CREATE VIEW began AS
SELECT s.name, e.destination, e.epoch = w.epoch AS same_epoch, e.seq, e.n, e.rows_exported, e.began_at <= now() AS has_time
FROM incsink.epoch_state AS e JOIN incsink.sink_def AS s USING (sink_id)
	LEFT JOIN incsink.watermark AS w USING (sink_id, partition_id, destination)
ORDER BY s.name COLLATE "C";
SELECT * FROM began;
SELECT incsink_alter_sink('central', url => 'http://localhost:1/y', watermark => 'keep');
SELECT * FROM began WHERE name = 'central';
SELECT incsink_alter_sink('central', url => 'http://localhost:1/x', watermark => 'restart');
SELECT * FROM began WHERE name = 'central';
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
SELECT exported('central', 25, 55);
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
BEGIN;
UPDATE incsink.epoch_state SET seq = 10, rows_exported = 40;
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs', 10);
-- of another epoch, or not known
UPDATE incsink.epoch_state SET epoch = '1-00000000';
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
DELETE FROM incsink.epoch_state;
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
ROLLBACK;
-- a watermark that is gone
BEGIN;
DELETE FROM incsink.watermark;
SELECT * FROM incsink_verify('central', 'logs');
ROLLBACK;
-- a start "now", a table that is taken out, a sink that is dropped
SELECT incsink_add_table('central', 'other', start => 'now');
SELECT incsink_create_sink('later', 'http://localhost:1/x', '{logs}', options => '{"start": "now"}', enabled => false);
SELECT * FROM began;
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('later', 'logs');
SELECT incsink_remove_table('central', 'other');
SELECT incsink_drop_sink('later');
SELECT * FROM began;

-- Columns and filter.
SELECT incsink_remove_table('central', 'logs');
SELECT incsink_add_table('central', 'logs', columns => '{id}', filter => 'id % 2 = 0');
SELECT exported('central', 25, 12);
SELECT since, until, state, rows_in_table, rows_at_sink, rows_missing, detail FROM incsink_verify('central', 'logs');
SELECT since, until, digest = (
	SELECT encode(sha256(convert_to(string_agg(format(E'{"id":%s}\n', id), '' ORDER BY ingest_seq), 'UTF8')), 'hex')
	FROM logs WHERE ingest_seq > since AND ingest_seq <= until AND id % 2 = 0) AS is_that
FROM incsink_verify('central', 'logs', 5);
SELECT incsink_remove_table('central', 'logs');
SELECT incsink_add_table('central', 'logs');
SELECT exported('central', 25, 25);

-- It changes nothing and locks nothing that would be in the way.
BEGIN READ ONLY;
SELECT state FROM incsink_verify('central', 'logs');
SELECT DISTINCT mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'
	AND relation IN (SELECT oid FROM pg_class WHERE relname ~ '^logs' OR relnamespace = 'incsink'::regnamespace);
SELECT pg_current_xact_id_if_assigned();
COMMIT;

-- Other objects of the same names.
CREATE TEMPORARY TABLE epoch_state (sink_id int);
CREATE TEMPORARY TABLE watermark (sink_id int);
CREATE FUNCTION pg_temp.count(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0';
SET search_path = pg_temp, public;
SELECT state FROM incsink_verify('central', 'logs');
RESET search_path;
DROP TABLE pg_temp.epoch_state, pg_temp.watermark;

-- Who may: the owner of the sink, and the owner's rights count.
SET client_min_messages = error;
DROP ROLE IF EXISTS regress_incsink_owner, regress_incsink_stranger;
RESET client_min_messages;
CREATE ROLE regress_incsink_owner;
CREATE ROLE regress_incsink_stranger;
SET ROLE regress_incsink_owner;
SELECT * FROM incsink_verify('central', 'logs');
RESET ROLE;
GRANT EXECUTE ON FUNCTION incsink_verify, incsink_create_sink TO regress_incsink_owner, regress_incsink_stranger;
GRANT SELECT ON logs TO regress_incsink_owner, regress_incsink_stranger;
SET incsink.allowed_url_prefixes = 'http://localhost:1/';
SET ROLE regress_incsink_owner;
SELECT incsink_create_sink('owned', 'http://localhost:1/x', '{logs}', enabled => false);
RESET ROLE;
SELECT exported('owned', 25, 25);
SET ROLE regress_incsink_owner;
SELECT since, until, state, rows_in_table, rows_at_sink FROM incsink_verify('owned', 'logs');
SELECT * FROM incsink_verify('central', 'logs');
SET ROLE regress_incsink_stranger;
SELECT * FROM incsink_verify('owned', 'logs');
SELECT count(*) FROM incsink.epoch_state;
RESET ROLE;
GRANT regress_incsink_owner TO regress_incsink_stranger;
REVOKE SELECT ON logs FROM regress_incsink_stranger;
SET ROLE regress_incsink_stranger;
SELECT DISTINCT state FROM incsink_verify('owned', 'logs');
RESET ROLE;
REVOKE SELECT ON logs FROM regress_incsink_owner;
SELECT * FROM incsink_verify('owned', 'logs');
GRANT SELECT (id) ON logs TO regress_incsink_owner;
SELECT * FROM incsink_verify('owned', 'logs');
GRANT SELECT ON logs TO regress_incsink_owner;
ALTER TABLE logs ENABLE ROW LEVEL SECURITY;
SELECT * FROM incsink_verify('owned', 'logs');
ALTER TABLE logs DISABLE ROW LEVEL SECURITY;
SELECT DISTINCT state FROM incsink_verify('owned', 'logs');

-- A column that is exported and gone, and a table.
SELECT incsink_add_table('central', 'other', columns => '{id}');
INSERT INTO other VALUES (1);
SELECT exported('central', 1, 1);
SELECT DISTINCT state FROM incsink_verify('central', 'other');
ALTER TABLE other DROP COLUMN id;
SELECT * FROM incsink_verify('central', 'other');
SELECT incsink_remove_table('central', 'other');
DROP TABLE other;
SELECT * FROM incsink_verify('central', 'other');
-- not in a transaction that sees but one moment
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM incsink_verify('central', 'logs');
ROLLBACK;

SELECT incsink_drop_sink(name) FROM incsink.sink_def;
SELECT count(*) FROM incsink.epoch_state;
SET client_min_messages = error;
DROP FUNCTION exported;
DROP VIEW began;
DROP TABLE logs, plain;
RESET incsink.allowed_url_prefixes;
DROP EXTENSION incsink CASCADE;
DROP OWNED BY regress_incsink_owner, regress_incsink_stranger;
DROP ROLE regress_incsink_owner, regress_incsink_stranger;
