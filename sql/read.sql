SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE ROLE regress_incsink_reader;
CREATE TABLE logs (id int, body text, at timestamptz, secret text, gone int);
ALTER TABLE logs DROP COLUMN gone;
INSERT INTO logs VALUES (0, 'before it was attached');
SELECT incsink_attach('logs');
RESET client_min_messages;

-- Nothing to read; the row that has no number, and no key, is mentioned.
SELECT * FROM incsink_read_since('logs');
SET client_min_messages = warning;
SELECT incsink_horizon('logs')->>'seq' AS horizon, incsink_last_token('logs')->>'seq' AS last;

INSERT INTO logs SELECT i, 'row ' || i, '2024-02-29 12:00:00.5+00'::timestamptz + i * interval '1 day', 'secret' FROM generate_series(1, 6) i;

-- Rows as jsonb, by name and by OID; never the number, which stands in the token.
SELECT data, token->>'seq' AS seq FROM incsink_read_since('logs');
SELECT count(*) FROM incsink_read_since('public.logs'::regclass);
SELECT count(*) FROM incsink_read_since('logs'::text);
-- As rows of the table, whose number is null; the same with columns left out.
SELECT (data).*, token->>'seq' AS seq FROM incsink_read_since(NULL::logs, max_rows => 2);
SELECT data, token->>'seq' AS seq FROM incsink_read_since(NULL::public.logs, columns => '{body,id}', max_rows => 2);
-- Columns and limits.
SELECT data FROM incsink_read_since('logs', columns => '{body,id}', max_rows => 1);
SELECT data FROM incsink_read_since('logs', columns => '{}', max_rows => 1);
SELECT count(*) FROM incsink_read_since('logs', max_rows => 0);
SELECT count(*) FROM incsink_read_since('logs', max_rows => 4);
SELECT count(*) FROM incsink_read_since('logs', wait => '0');
SELECT count(*) FROM incsink_read_since('logs', wait => '1 hour');

-- What is said wrongly is said before anything is read.
SELECT * FROM incsink_read_since(NULL::regclass);
SELECT * FROM incsink_read_since(NULL::text);
SELECT * FROM incsink_read_since('no_such_table');
SELECT * FROM incsink_read_since(0::regclass);
SELECT * FROM incsink_read_since('pg_class');
SELECT * FROM incsink_read_since(NULL::pg_class);
\set VERBOSITY sqlstate
SELECT * FROM incsink_read_since(1);
\set VERBOSITY default
SELECT * FROM incsink_read_since('logs', columns => '{id,nope}');
SELECT * FROM incsink_read_since('logs', columns => '{id,id}');
SELECT * FROM incsink_read_since('logs', columns => '{id,NULL}');
SELECT * FROM incsink_read_since('logs', columns => '{ingest_seq}');
SELECT * FROM incsink_read_since('logs', columns => '{ctid}');
SELECT * FROM incsink_read_since(NULL::logs, columns => '{ingest_seq}');
SELECT * FROM incsink_read_since('logs', max_rows => -1);
SELECT * FROM incsink_read_since('logs', wait => '-1 second');
SELECT incsink_horizon(NULL);
SELECT incsink_horizon('pg_class');
SELECT incsink_last_token(NULL);
SELECT incsink_last_token('pg_class');

-- No setting of the session changes what comes out.
SELECT string_agg(data::text, '' ORDER BY token->>'seq') AS plain FROM incsink_read_since('logs') \gset
SET DateStyle = 'German';
SET TimeZone = 'Asia/Tokyo';
SET bytea_output = escape;
SELECT string_agg(data::text, '' ORDER BY token->>'seq') = :'plain' AS same FROM incsink_read_since('logs');
SHOW DateStyle;
RESET DateStyle;
RESET TimeZone;
RESET bytea_output;

-- Deleted rows leave gaps; updated ones keep their number; a rolled back one is no row.
DELETE FROM logs WHERE id IN (2, 6);
UPDATE logs SET body = 'changed' WHERE id = 3;
BEGIN;
INSERT INTO logs VALUES (7, 'rolled back');
ROLLBACK;
INSERT INTO logs VALUES (8, 'after the gap');
SELECT data->>'id' AS id, data->>'body' AS body, token->>'seq' AS seq FROM incsink_read_since('logs');

-- The own transaction's rows are in flight until it has ended.
BEGIN;
INSERT INTO logs VALUES (9, 'own');
SELECT max((token->>'seq')::int) FROM incsink_read_since('logs');
SELECT incsink_horizon('logs')->>'seq' AS horizon, incsink_last_token('logs')->>'seq' AS last;
SELECT dataset, source, relation, horizon, last_drawn, held_by_pid = pg_backend_pid() AS by_me,
	held_by_gid, held_since = now() AS since_now FROM incsink.stat_horizon;
SELECT * FROM incsink_read_since('logs', wait => '1 second');
ROLLBACK;
BEGIN;
SAVEPOINT s;
INSERT INTO logs VALUES (9, 'own, taken back');
ROLLBACK TO s;
SELECT incsink_horizon('logs')->>'seq' AS horizon, incsink_last_token('logs')->>'seq' AS last;
COMMIT;
SELECT dataset, horizon, last_drawn, held_by_pid, held_by_gid, held_since FROM incsink.stat_horizon;
-- A prepared one holds the horizon by its name.
BEGIN;
INSERT INTO logs VALUES (10, 'prepared');
PREPARE TRANSACTION 'regress incsink';
SELECT horizon, last_drawn, held_by_pid, held_by_gid, held_since IS NOT NULL AS since FROM incsink.stat_horizon;
INSERT INTO logs VALUES (11, 'after it');
SELECT max((token->>'seq')::int) FROM incsink_read_since('logs', wait => '20 ms');
COMMIT PREPARED 'regress incsink';
SELECT data->>'id' AS id, token->>'seq' AS seq FROM incsink_read_since('logs') OFFSET 5;

-- The statement's and the transaction's own snapshot do not matter.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM logs;
INSERT INTO logs VALUES (12, 'own');
SELECT max((token->>'seq')::int) FROM incsink_read_since('logs');
COMMIT;
BEGIN READ ONLY;
SELECT max((token->>'seq')::int) FROM incsink_read_since('logs');
COMMIT;

-- Reading a large table touches what is returned, not the table.
INSERT INTO logs (id, body) SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i;
ANALYZE logs;
SELECT incsink_horizon('logs') AS token \gset
INSERT INTO logs (id, body) SELECT i, 'new' FROM generate_series(1, 10) i;
CREATE FUNCTION blocks_read(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint + (plan->0->'Plan'->>'Shared Read Blocks')::bigint;
END $$;
SELECT count(*) FROM incsink_read_since('logs', :'token');
SELECT blocks_read(format('SELECT * FROM incsink_read_since(%L, %L)', 'logs', :'token')) < 60 AS few;

-- Privileges on the table or on every column read.
SET ROLE regress_incsink_reader;
SELECT * FROM incsink_read_since('logs');
SELECT incsink_horizon('logs');
SELECT incsink_last_token('logs');
RESET ROLE;
GRANT SELECT (id, body) ON logs TO regress_incsink_reader;
SET ROLE regress_incsink_reader;
SELECT * FROM incsink_read_since('logs', max_rows => 1);
SELECT * FROM incsink_read_since('logs', columns => '{id,secret}', max_rows => 1);
SELECT data FROM incsink_read_since('logs', columns => '{id,body}', max_rows => 1);
SELECT data FROM incsink_read_since(NULL::logs, columns => '{id,body}', max_rows => 1);
SELECT incsink_horizon('logs')->>'seq' AS horizon;
RESET ROLE;
GRANT SELECT ON logs TO regress_incsink_reader;
SET ROLE regress_incsink_reader;
SELECT data FROM incsink_read_since('logs', max_rows => 1);
RESET ROLE;

-- Policies: the reader gets the rows that he may see, with the tokens of all.
ALTER TABLE logs ENABLE ROW LEVEL SECURITY;
CREATE POLICY odd ON logs TO regress_incsink_reader USING (id % 2 = 1 AND body LIKE 'row%');
SELECT count(*) FROM incsink_read_since('logs');
SET ROLE regress_incsink_reader;
SELECT data, token->>'seq' AS seq FROM incsink_read_since('logs');
SELECT data, token->>'seq' AS seq FROM incsink_read_since('logs', columns => '{at,id}', max_rows => 1);
SELECT data, token->>'seq' AS seq FROM incsink_read_since(NULL::logs, columns => '{id}');
SELECT count(*) FROM incsink_read_since('logs', columns => '{}');
SELECT * FROM incsink_read_since('logs', columns => '{nope}');
SELECT blocks_read(format('SELECT * FROM incsink_read_since(%L, %L)', 'logs', :'token')) < 200 AS few;
SET row_security = off;
SELECT * FROM incsink_read_since('logs');
RESET row_security;
RESET ROLE;
ALTER TABLE logs DISABLE ROW LEVEL SECURITY;
DROP POLICY odd ON logs;

-- Many rows and large ones.
INSERT INTO logs (id, body) SELECT 100000 + i, repeat(md5(i::text), 40000) FROM generate_series(1, 3) i;
SELECT length(data->>'body'), token->>'seq' = (SELECT max(ingest_seq)::text FROM logs) AS last
FROM incsink_read_since('logs') OFFSET 20018;
SELECT count(*), count(DISTINCT token->>'seq') FROM incsink_read_since('logs');
SELECT count(*) FROM incsink_read_since('logs') r JOIN logs l ON (r.token->>'seq')::bigint = l.ingest_seq AND (r.data->>'id')::int = l.id;
SELECT count(*) FROM logs WHERE ingest_seq > 0;

-- Columns come and go, and are named as they please.
ALTER TABLE logs DROP COLUMN secret, DROP COLUMN at, ADD COLUMN "Quoted ""name""" int DEFAULT 7;
INSERT INTO logs (id, body) VALUES (-1, NULL);
SELECT data FROM incsink_read_since('logs') ORDER BY (token->>'seq')::int DESC LIMIT 1;
SELECT data FROM incsink_read_since(NULL::logs) ORDER BY (token->>'seq')::int DESC LIMIT 1;
ALTER TABLE logs DROP COLUMN id, DROP COLUMN body, DROP COLUMN "Quoted ""name""";
SELECT DISTINCT data FROM incsink_read_since('logs');
DROP TABLE logs;

-- Every kind of value that jsonb can hold comes back as it went in.
CREATE TABLE kinds (b bool, i2 int2, i8 int8, f8 float8, n numeric, t text, ts timestamp, d date, u uuid,
	j json, jb jsonb, by bytea, a int[], r int4range, g int GENERATED ALWAYS AS (i2 * 2) STORED);
SET client_min_messages = warning;
SELECT incsink_attach('kinds');
RESET client_min_messages;
INSERT INTO kinds VALUES (true, -1, 9007199254740993, 0.1, 'NaN', E'"\\\n\u20ac', 'infinity', '0044-03-15 BC',
	'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', E'{"a" :\n 1}', '{"b": [1, null]}', '\x00ff', '{1,NULL}', '[1,5)');
INSERT INTO kinds DEFAULT VALUES;
\x on
SELECT data FROM incsink_read_since('kinds');
SELECT data FROM incsink_read_since(NULL::kinds);
\x off
DROP TABLE kinds;

-- An adopted column is handed out with the others.
CREATE TABLE keyed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text);
INSERT INTO keyed (body) VALUES ('before');
SET client_min_messages = warning;
SELECT incsink_attach('keyed', adopt => 'id');
RESET client_min_messages;
INSERT INTO keyed (body) VALUES ('after');
SELECT data, token->>'seq' AS seq FROM incsink_read_since('keyed');
SELECT data FROM incsink_read_since(NULL::keyed, columns => '{id}');
DROP TABLE keyed;

-- The flush of all WAL knows where a page's header stands behind the last record.
CREATE TABLE flushed (id int);
SET client_min_messages = warning;
SELECT incsink_attach('flushed');
CREATE FUNCTION flush_at_page_ends() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	hits int := 0;
BEGIN
	FOR i IN 1..200000 LOOP
		PERFORM pg_logical_emit_message(false, 'x', repeat('y', i % 199));
		IF (pg_current_wal_insert_lsn() - '0/0') % 8192 IN (24, 40) THEN
			PERFORM incsink_horizon('flushed');
			hits := hits + 1;
			EXIT WHEN hits = 20;
		END IF;
	END LOOP;
	RETURN hits = 20;
END $$;
SELECT flush_at_page_ends();
RESET client_min_messages;
DROP FUNCTION flush_at_page_ends;
DROP TABLE flushed;

-- Tables that were dropped are shown without a number.
SELECT count(*), count(last_drawn) FROM incsink.stat_horizon;
SELECT incsink_forget_partition(dataset, source) FROM incsink.partition_def ORDER BY dataset;
DROP FUNCTION blocks_read;
DROP EXTENSION incsink CASCADE;
DROP ROLE regress_incsink_reader;
