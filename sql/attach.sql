SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE ROLE regress_incsink_owner;
CREATE ROLE regress_incsink_other;
GRANT CREATE ON SCHEMA public TO regress_incsink_owner;
RESET client_min_messages;

CREATE VIEW attached AS SELECT d.dataset, d.source, d.schema_name, d.table_name, d.seq_column, d.adopted,
	d.had_rows, d.options, s.relid::regclass AS relid, s.sequence_oid::regclass AS sequence,
	s.highest_seq, s.recorded_horizon
FROM incsink.partition_def d JOIN incsink.partition_state s USING (partition_id) ORDER BY 1, 2;
CREATE VIEW guards AS SELECT tgrelid::regclass AS relation, tgname, tgenabled, tgtype
FROM pg_trigger WHERE tgname LIKE 'incsink%' ORDER BY 1, 2;

-- An empty table, and what attaching adds to it.
CREATE TABLE logs (id int PRIMARY KEY, body text);
SELECT incsink_attach('public.logs');
\d logs
\x on
SELECT * FROM attached;
\x off
SELECT * FROM guards;
SELECT seqtypid::regtype, seqstart, seqincrement, seqmin, seqcache, seqcycle FROM pg_sequence
WHERE seqrelid = 'logs_ingest_seq_seq'::regclass;
SELECT count(*), min(last_horizon) FROM incsink.partition_tag;
SELECT system_identifier = (SELECT system_identifier FROM pg_control_system()) AS same_system,
	database_oid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS same_database,
	timeline, instance FROM incsink.database_state;

-- Rows are numbered without anybody saying so.
INSERT INTO logs VALUES (1, 'a'), (2, 'b');
COPY logs (id, body) FROM stdin;
3	c
\.
INSERT INTO logs VALUES (4, 'd') RETURNING ingest_seq;
UPDATE logs SET body = 'B' WHERE id = 2 RETURNING ingest_seq;
SELECT id, ingest_seq FROM logs ORDER BY id;

-- Once only, unless it is said to be enough.
SELECT incsink_attach('logs');
SELECT incsink_attach('logs', if_not_exists => true);

-- A table with rows, of a name that needs quotes, in another schema; no rewrite.
CREATE SCHEMA "Regress; incsink";
CREATE TABLE "Regress; incsink"."A ""very"" long name, with 'quotes' and blanks, sixty three !" (id int, x text);
INSERT INTO "Regress; incsink"."A ""very"" long name, with 'quotes' and blanks, sixty three !" VALUES (1, 'old');
SELECT pg_relation_filenode('"Regress; incsink"."A ""very"" long name, with ''quotes'' and blanks, sixty three !"') AS before \gset
SELECT incsink_attach('"Regress; incsink"."A ""very"" long name, with ''quotes'' and blanks, sixty three !"',
	dataset => 'odd', source => 'eins');
INSERT INTO "Regress; incsink"."A ""very"" long name, with 'quotes' and blanks, sixty three !" VALUES (2, 'new');
SELECT *, pg_relation_filenode('"Regress; incsink"."A ""very"" long name, with ''quotes'' and blanks, sixty three !"') = :before AS same_file
FROM "Regress; incsink"."A ""very"" long name, with 'quotes' and blanks, sixty three !";
SELECT dataset, source, had_rows FROM attached;
SELECT incsink_detach('"Regress; incsink"."A ""very"" long name, with ''quotes'' and blanks, sixty three !"', drop_column => true);
SELECT * FROM "Regress; incsink"."A ""very"" long name, with 'quotes' and blanks, sixty three !";
DROP SCHEMA "Regress; incsink" CASCADE;

-- Names of partitions.
CREATE TABLE more (id int);
SELECT incsink_attach('more', dataset => 'public.logs');
SELECT incsink_attach('more', dataset => '');
SELECT incsink_attach('more', source => '');
SELECT incsink_attach('more', source => NULL);
SELECT incsink_attach('more', dataset => E'a\nb');
SELECT incsink_attach('more', options => '{"retain": 1}');
SELECT incsink_attach('more', options => NULL);
SELECT incsink_attach(NULL);
SELECT incsink_attach('no_such_table');
SELECT incsink_attach(0);
-- None of which left anything.
\d more
SELECT count(*) FROM incsink.partition_def;
SELECT incsink_attach('more', dataset => 'public.logs', source => 'second');
SELECT dataset, source, table_name FROM attached;
SELECT incsink_detach('more', drop_column => true);

-- What cannot be attached says why, and how to go on (incsink_check_attach lists it all).
CREATE TABLE tree (id int) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF tree DEFAULT;
CREATE TABLE child () INHERITS (more);
CREATE UNLOGGED TABLE unlogged (id int);
CREATE VIEW seen AS SELECT 1 AS id;
CREATE TABLE taken (ingest_seq int);
SELECT incsink_attach('leaf');
SELECT incsink_attach('more');
SELECT incsink_attach('unlogged');
SELECT incsink_attach('seen');
SELECT incsink_attach('taken');
SELECT incsink_attach('logs_pkey');
SELECT incsink_attach('pg_class');
DROP TABLE tree, child, unlogged, taken;
DROP VIEW seen;

-- An adopted column stays the user's.
CREATE TABLE keyed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text);
INSERT INTO keyed (body) VALUES ('before');
SELECT incsink_attach('keyed', adopt => 'body');
SELECT incsink_attach('keyed', adopt => 'id');
SELECT dataset, seq_column, adopted, had_rows, sequence, highest_seq FROM attached WHERE table_name = 'keyed';
INSERT INTO keyed (body) VALUES ('after');
\d keyed
SELECT data FROM incsink_read_since('keyed');
SELECT incsink_detach('keyed', drop_column => true);
SELECT incsink_detach('keyed');
\d keyed

-- TRUNCATE does not give numbers out again, whatever it says.
TRUNCATE logs;
INSERT INTO logs VALUES (1, 'x') RETURNING ingest_seq;
TRUNCATE logs, more RESTART IDENTITY;
INSERT INTO logs VALUES (1, 'x') RETURNING ingest_seq;
BEGIN;
INSERT INTO logs VALUES (2, 'y') RETURNING ingest_seq;
TRUNCATE logs RESTART IDENTITY;
INSERT INTO logs VALUES (2, 'y') RETURNING ingest_seq;
TRUNCATE logs RESTART IDENTITY;
INSERT INTO logs VALUES (2, 'y') RETURNING ingest_seq;
ROLLBACK;
INSERT INTO logs VALUES (2, 'y') RETURNING ingest_seq;
BEGIN;
SAVEPOINT s;
TRUNCATE logs RESTART IDENTITY;
ROLLBACK TO s;
INSERT INTO logs VALUES (3, 'z') RETURNING ingest_seq;
COMMIT;
-- The guard holds for replicas, too, and the sequence stays the one on record.
SET session_replication_role = replica;
TRUNCATE logs RESTART IDENTITY;
RESET session_replication_role;
INSERT INTO logs VALUES (1, 'r') RETURNING ingest_seq;
SELECT data, token->>'seq' AS seq FROM incsink_read_since('logs');
SELECT incsink_truncate_before();
CREATE TRIGGER wrong BEFORE INSERT ON logs FOR EACH ROW EXECUTE FUNCTION incsink_truncate_before();
INSERT INTO logs VALUES (9, 'w');
DROP TRIGGER wrong ON logs;

-- Nobody brings numbers along.
INSERT INTO logs (id, ingest_seq) VALUES (10, 1);
INSERT INTO logs OVERRIDING SYSTEM VALUE VALUES (10, 'x', 1);
INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE SELECT 10, 1;
INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (10, DEFAULT), (11, 1);
WITH w AS (INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (10, 1) RETURNING id) SELECT * FROM w;
MERGE INTO logs USING (VALUES (10)) AS s (id) ON logs.id = s.id
	WHEN NOT MATCHED THEN INSERT (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (s.id, 1);
EXPLAIN ANALYZE INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (10, 1);
UPDATE logs SET ingest_seq = 1;
COPY logs FROM '/dev/null';
COPY logs (ingest_seq, id) FROM '/dev/null';
COPY logs (id, body) FROM '/dev/null';
-- Neither through a view, a rule or a function that was made before.
CREATE VIEW through AS SELECT id, ingest_seq FROM logs;
INSERT INTO through OVERRIDING SYSTEM VALUE VALUES (10, 1);
CREATE RULE instead AS ON INSERT TO through DO INSTEAD
	INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (NEW.id, NEW.ingest_seq);
INSERT INTO through VALUES (10, 1);
CREATE FUNCTION standard() RETURNS void BEGIN ATOMIC
	INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (10, 1);
END;
\set SHOW_CONTEXT never
SELECT standard();
\set SHOW_CONTEXT errors
DROP VIEW through;
DROP FUNCTION standard;
-- A number that is drawn is no number brought along.
INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (10, DEFAULT), (11, DEFAULT);
INSERT INTO logs (id, ingest_seq) OVERRIDING USER VALUE VALUES (12, 1);
INSERT INTO logs (id) OVERRIDING SYSTEM VALUE VALUES (13);
SELECT min(ingest_seq) > 8 AS drawn FROM logs WHERE id >= 10;
-- Restores may, and databases that nothing is exported from.
SET incsink.allow_explicit_seq = on;
BEGIN;
INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (14, 1);
COPY logs (id, ingest_seq) FROM stdin;
15	2
\.
ROLLBACK;
RESET incsink.allow_explicit_seq;
BEGIN;
UPDATE incsink.database_state SET database_oid = 1;
INSERT INTO logs (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (14, 1);
ROLLBACK;
SET ROLE regress_incsink_other;
SET incsink.allow_explicit_seq = on;
RESET ROLE;

-- The net below the guard: whatever is done to the sequence is seen, and can be mended.
BEGIN;
UPDATE incsink.partition_state SET highest_seq = 10 WHERE relid = 'logs'::regclass;
ALTER TABLE logs ALTER COLUMN ingest_seq RESTART;
SELECT count(*) FROM incsink_read_since('logs');
ROLLBACK;
ALTER TABLE logs ALTER COLUMN ingest_seq RESTART;
SELECT incsink_confirm_sequence('logs');
SELECT count(*) FROM incsink_read_since('logs');
BEGIN;
ALTER TABLE logs ALTER COLUMN ingest_seq RESTART WITH 1000;
SELECT count(*) FROM incsink_read_since('logs');
ROLLBACK;
SELECT setval('logs_ingest_seq_seq', 1);
SELECT incsink_horizon('logs');
SELECT incsink_confirm_sequence('logs');
ALTER TABLE logs ALTER COLUMN ingest_seq SET CACHE 20;
SELECT incsink_last_token('logs');
SELECT incsink_confirm_sequence('logs');
ALTER TABLE public.logs ALTER COLUMN ingest_seq SET CACHE 1;
SELECT incsink_last_token('logs');
SELECT incsink_confirm_sequence('logs');
ALTER TABLE logs ALTER COLUMN ingest_seq SET INCREMENT BY 2;
SELECT incsink_last_token('logs');
ALTER TABLE public.logs ALTER COLUMN ingest_seq SET INCREMENT BY 1 SET CYCLE;
SELECT incsink_last_token('logs');
ALTER TABLE public.logs ALTER COLUMN ingest_seq SET NO CYCLE;
SET client_min_messages = error;
SELECT incsink_confirm_sequence('logs');
RESET client_min_messages;
ALTER TABLE logs ALTER COLUMN ingest_seq SET GENERATED BY DEFAULT;
SELECT incsink_last_token('logs');
ALTER TABLE logs ALTER COLUMN ingest_seq DROP IDENTITY;
SELECT incsink_last_token('logs');
SELECT incsink_confirm_sequence('logs');
ALTER TABLE public.logs ALTER COLUMN ingest_seq ADD GENERATED ALWAYS AS IDENTITY;
SELECT incsink_last_token('logs');
SELECT incsink_confirm_sequence('logs');
INSERT INTO logs VALUES (20, 'after all that') RETURNING ingest_seq > 10 AS above;
SELECT data->>'id' AS id FROM incsink_read_since('logs') ORDER BY (token->>'seq')::bigint DESC LIMIT 1;
DROP INDEX logs_ingest_seq_idx;
SELECT incsink_last_token('logs');
CREATE UNIQUE INDEX CONCURRENTLY ON public.logs (ingest_seq) WHERE ingest_seq > 0;
SELECT count(*) > 0 AS reads FROM incsink_read_since('logs');
ALTER TABLE logs RENAME COLUMN ingest_seq TO renamed;
SELECT incsink_last_token('logs');
ALTER TABLE logs RENAME COLUMN renamed TO ingest_seq;
ALTER TABLE logs SET UNLOGGED;
SELECT incsink_last_token('logs');
ALTER TABLE logs SET LOGGED;
SET client_min_messages = error;
SELECT incsink_confirm_sequence('logs');
RESET client_min_messages;
SELECT incsink_confirm_sequence('more');
SELECT incsink_confirm_sequence(NULL);

-- Rewrites change nothing.
VACUUM FULL logs;
CLUSTER logs USING logs_pkey;
ALTER TABLE logs ALTER COLUMN id TYPE bigint;
REINDEX TABLE logs;
SELECT count(*) > 0 AS reads FROM incsink_read_since('logs');

-- Privileges: functions are granted, tables are owned.
SET ROLE regress_incsink_other;
SELECT incsink_attach('more');
SELECT incsink_detach('logs');
SELECT incsink_forget_partition('public.logs');
SELECT incsink_confirm_sequence('logs');
SELECT * FROM incsink_stat_horizon();
RESET ROLE;
GRANT EXECUTE ON FUNCTION incsink_attach, incsink_detach, incsink_confirm_sequence
	TO regress_incsink_other, regress_incsink_owner;
SET ROLE regress_incsink_other;
SELECT incsink_attach('more');
SELECT incsink_detach('logs');
SELECT incsink_confirm_sequence('logs');
SET ROLE regress_incsink_owner;
CREATE TABLE owned (id int);
SELECT incsink_attach('owned');
INSERT INTO owned VALUES (1);
GRANT INSERT, TRUNCATE ON owned TO regress_incsink_other;
SET ROLE regress_incsink_other;
-- No privilege on the sequence is needed, nor on the catalog.
INSERT INTO owned VALUES (2);
TRUNCATE owned;
INSERT INTO owned VALUES (3);
SET ROLE regress_incsink_owner;
TRUNCATE owned RESTART IDENTITY;
INSERT INTO owned VALUES (4);
SELECT data, token->>'seq' AS seq FROM incsink_read_since('owned');
SELECT incsink_detach('owned', drop_column => true);
DROP TABLE owned;
RESET ROLE;

-- Detach refuses while sinks export the table.
SELECT incsink_create_sink('first "one"', 'file:///tmp/incsink_regress', tables => '{public.logs}', enabled => false);
SELECT incsink_create_sink('second', 'file:///tmp/incsink_regress', tables => '{public.logs}', enabled => false);
SELECT incsink_detach('logs');
SELECT incsink_detach('logs', force => true);
SELECT (SELECT count(*) FROM incsink.sink_table_def) AS sink_tables, (SELECT count(*) FROM incsink.watermark) AS watermarks;
SELECT * FROM guards;
SELECT incsink_detach('logs');
SELECT incsink_detach('logs', NULL);
SELECT incsink_detach(NULL);
-- Attached again, the column goes on; rows of meanwhile are numbered, too.
INSERT INTO logs VALUES (30, 'meanwhile');
SELECT incsink_attach('logs');
SELECT had_rows FROM attached;
SELECT data->>'id' AS id FROM incsink_read_since('logs') ORDER BY (token->>'seq')::bigint DESC LIMIT 1;

-- A table that was dropped.
SELECT incsink_forget_partition('public.logs');
SELECT incsink_forget_partition('public.logs', 'other');
SELECT incsink_forget_partition(NULL);
SELECT incsink_create_sink('third', 'file:///tmp/incsink_regress', tables => '{public.logs}', enabled => false);
DROP TABLE logs;
SELECT table_name, relid IS NULL AS gone FROM incsink.partition_def LEFT JOIN incsink.partition_state USING (partition_id);
SELECT incsink_forget_partition('public.logs');
SELECT count(*) FROM incsink.partition_def;

-- Datasets that a sink lists take tables attached later.
SELECT incsink_create_sink('fourth', 'file:///tmp/incsink_regress', datasets => '{later}', enabled => false);
SELECT incsink_attach('more', dataset => 'later');
SELECT count(*) FROM incsink.sink_table_def;
SELECT incsink_detach('more', force => true, drop_column => true);
-- One that starts now takes none of the rows that an adopted column has numbered before.
CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text);
INSERT INTO numbered (body) VALUES ('one'), ('two'), ('three');
SELECT incsink_alter_sink('fourth', options => '{"start": "now"}');
SELECT incsink_attach('numbered', dataset => 'later', adopt => 'id');
SELECT seq FROM incsink.watermark JOIN incsink.partition_def USING (partition_id) WHERE table_name = 'numbered';
SELECT incsink_detach('numbered', force => true);
DROP TABLE numbered;
-- In one transaction with what went before and after.
BEGIN;
CREATE TABLE fresh (id int);
INSERT INTO fresh VALUES (1);
SELECT incsink_attach('fresh');
INSERT INTO fresh VALUES (2);
SELECT * FROM fresh ORDER BY id;
SELECT had_rows FROM attached;
ROLLBACK;
SELECT count(*) FROM incsink.partition_def;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM more;
FETCH c;
SELECT incsink_attach('more');
ROLLBACK;

SELECT incsink_drop_sink(name) FROM incsink.sink_def ORDER BY name;
-- Every function says what it does, and who may call it.
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'incsink'
WHERE obj_description(p.oid, 'pg_proc') IS NULL;

-- Detached before its index was there, a table can be attached again.
CREATE TABLE prepared (id int PRIMARY KEY);
INSERT INTO prepared VALUES (1);
BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL incsink.attach_index_size = 0;
SELECT incsink_attach('prepared');
SELECT incsink_detach('prepared');
INSERT INTO prepared VALUES (2);
SET LOCAL incsink.attach_index_size = '32MB';
SELECT incsink_attach('prepared');
INSERT INTO prepared VALUES (3);
COMMIT;
SELECT indexdef FROM pg_indexes WHERE tablename = 'prepared' ORDER BY indexname COLLATE "C";
SELECT data->>'id' AS id, token->>'seq' AS seq FROM incsink_read_since('prepared');

DROP TABLE more, keyed, prepared;
DROP VIEW attached, guards;
DROP EXTENSION incsink CASCADE;
DROP OWNED BY regress_incsink_owner, regress_incsink_other;
DROP ROLE regress_incsink_owner, regress_incsink_other;
