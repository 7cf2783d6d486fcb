SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE ROLE regress_incsink_reader;

-- Which index gives a backlog its order.
CREATE FUNCTION order_of(relation regclass) RETURNS text LANGUAGE sql AS
$$SELECT concat_ws(' | ', array_to_string(key_columns, ', '), last_key) FROM incsink.backlog_def JOIN incsink.partition_state USING (partition_id) WHERE relid = relation$$;
CREATE FUNCTION attach(relation regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM incsink_attach(relation);
	RETURN COALESCE(order_of(relation), 'none');
END $$;

CREATE TABLE empty (id int PRIMARY KEY);
SELECT attach('empty');
CREATE TABLE no_key (id int);
INSERT INTO no_key VALUES (1), (2);
SELECT attach('no_key');
CREATE TABLE primary_key (a int UNIQUE NOT NULL, b int, c int, PRIMARY KEY (c, b));
INSERT INTO primary_key VALUES (1, 9, 2), (2, 8, 1);
SELECT attach('primary_key');
-- Fewest columns, then the older one.
CREATE TABLE fewest (a int NOT NULL, b int NOT NULL, c int NOT NULL, UNIQUE (a, b), UNIQUE (c), UNIQUE (b));
INSERT INTO fewest VALUES (1, 2, 3);
SELECT attach('fewest');
-- One that may be null, is deferrable, partial, over an expression, in two directions,
-- in an order that is not the column's own, or of a type whose text is not enough.
CREATE TYPE pair AS (a int, b int);
CREATE DOMAIN picky AS int CHECK (VALUE < 100);
CREATE TABLE unfit (nullable int UNIQUE, late int NOT NULL UNIQUE DEFERRABLE, positive int NOT NULL,
	expression int NOT NULL, plain text NOT NULL, composite pair NOT NULL UNIQUE, span int4range NOT NULL UNIQUE, id int NOT NULL,
	name regclass NOT NULL UNIQUE, names regtype[] NOT NULL UNIQUE, letter "char" NOT NULL UNIQUE, pickies picky[] NOT NULL UNIQUE);
CREATE UNIQUE INDEX ON unfit (positive) WHERE positive > 0;
CREATE UNIQUE INDEX ON unfit ((expression + 1));
CREATE UNIQUE INDEX ON unfit (plain COLLATE "POSIX");
CREATE UNIQUE INDEX ON unfit (plain text_pattern_ops);
CREATE UNIQUE INDEX ON unfit USING btree (id, plain DESC);
CREATE INDEX ON unfit (id);
INSERT INTO unfit VALUES (1, 1, 1, 1, 'a', (1, 1), '[1,2)', 1, 'pg_class', '{int}', E'\\303', '{1}');
SELECT attach('unfit');
-- INCLUDE columns are no key.
CREATE TABLE includes (id int NOT NULL, body text);
CREATE UNIQUE INDEX ON includes (id) INCLUDE (body);
INSERT INTO includes VALUES (3, 'c'), (1, 'a');
SELECT attach('includes');
SELECT relation, order_of(relation) FROM (SELECT relid::regclass AS relation FROM incsink.partition_state) s ORDER BY relation::text;

-- Rows come in the order of the key, whatever order they are stored in, and those with
-- numbers after them; each row's token is good to go on from.
CREATE TABLE logs (id int, gone int, body text NOT NULL, at timestamptz, PRIMARY KEY (id));
ALTER TABLE logs DROP COLUMN gone;
INSERT INTO logs SELECT i, 'row ' || i, '2024-02-29 12:00:00+00' FROM generate_series(10, 1, -1) i;
UPDATE logs SET body = 'changed before' WHERE id = 4;
SELECT attach('logs');
SELECT row_estimate BETWEEN 1 AND 200 AS estimated FROM incsink.backlog_def JOIN incsink.partition_state USING (partition_id) WHERE relid = 'logs'::regclass;
SELECT incsink_horizon('logs') - 'p' AS horizon, incsink_last_token('logs') - 'p' AS last;
SELECT count(*) FROM incsink_read_since('logs', incsink_horizon('logs'));
INSERT INTO logs SELECT i, 'new ' || i, now() FROM generate_series(11, 13) i;
INSERT INTO logs VALUES (0, 'new 0');
SELECT incsink_horizon('logs') - 'p' AS horizon;
-- The new row in front of the old ones is counted with them.
SELECT data->>'id' AS id, data->>'body' AS body, token - 'p' AS token FROM incsink_read_since('logs');
SELECT data, token - 'p' AS token FROM incsink_read_since(NULL::logs, max_rows => 3, columns => '{body}');
SELECT count(*) FROM incsink_read_since('logs', max_rows => 0);

CREATE FUNCTION read_on(relation regclass, rows int) RETURNS TABLE (read int, ids text) LANGUAGE plpgsql AS $$
DECLARE
	position jsonb;
	next jsonb;
BEGIN
	read := 0;
	LOOP
		read := read + 1;
		SELECT string_agg(data->>'id', ' ' ORDER BY n), (array_agg(token ORDER BY n))[count(*)] INTO ids, next
		FROM incsink_read_since(relation, position, max_rows => rows) WITH ORDINALITY AS r(data, token, n);
		EXIT WHEN next IS NULL;
		RETURN NEXT;
		position := next;
	END LOOP;
END $$;
SELECT * FROM read_on('logs', 1);
SELECT * FROM read_on('logs', 4);
SELECT * FROM read_on('logs', 10);
SELECT count(*) AS tokens, bool_and(found = 14 - n) AS all_good FROM (
	SELECT n, (SELECT count(*) FROM incsink_read_since('logs', token)) AS found
	FROM incsink_read_since('logs') WITH ORDINALITY AS r(data, token, n)) t;
-- The statement's and the transaction's own snapshot do not matter.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT count(*) FROM incsink_read_since('logs');
COMMIT;

-- Between two reads: what is deleted does not come; what is updated comes as it is then;
-- a row whose key goes up comes there, one whose key goes down or past the end does not.
SELECT token FROM incsink_read_since('logs', max_rows => 4) OFFSET 3 \gset
DELETE FROM logs WHERE id IN (2, 6);
UPDATE logs SET body = 'changed after' WHERE id IN (1, 7);
UPDATE logs SET id = -5 WHERE id = 5;
UPDATE logs SET id = 1000 WHERE id = 8;
DELETE FROM logs WHERE id = 10;
UPDATE logs SET id = 10 WHERE id = 3;
SELECT data->>'id' AS id, data->>'body' AS body, token - 'p' AS token FROM incsink_read_since('logs', :'token');
-- The rows of the position itself may be gone.
DELETE FROM logs WHERE id = 4;
SELECT string_agg(data->>'id', ' ' ORDER BY n) FROM incsink_read_since('logs', :'token') WITH ORDINALITY AS r(data, token, n);

-- Malformed tokens, each refused before a row is read.
CREATE FUNCTION try_token(relation regclass, token jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	RETURN (SELECT count(*) FROM incsink_read_since(relation, token || jsonb_build_object('p', incsink_horizon(relation)->>'p'))) || ' rows';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''));
END $$;
\pset format unaligned
\pset tuples_only on
SELECT t, try_token('logs', t) FROM unnest(ARRAY[
	'{"v": 1, "seq": "0"}',
	'{"v": 1, "seq": "0", "n": "0"}',
	'{"v": 1, "seq": "0", "n": "0", "key": []}',
	'{"v": 1, "seq": "0", "key": []}',
	'{"v": 1, "seq": "0", "n": "3", "key": []}',
	'{"v": 1, "seq": "0", "n": "3", "key": ["8"]}',
	'{"v": 1, "seq": "0", "n": "3", "key": ["99999"]}',
	'{"v": 1, "seq": "0", "n": "3"}',
	'{"v": 1, "seq": "0", "n": "0", "key": ["8"]}',
	'{"v": 1, "seq": "2", "n": "3", "key": ["8"]}',
	'{"v": 1, "seq": "2", "key": ["8"]}',
	'{"v": 1, "seq": "2", "key": []}',
	'{"v": 1, "seq": "0", "n": "3", "key": "8"}',
	'{"v": 1, "seq": "0", "n": "3", "key": {"1": "8"}}',
	'{"v": 1, "seq": "0", "n": "3", "key": null}',
	'{"v": 1, "seq": "0", "n": "3", "key": [8]}',
	'{"v": 1, "seq": "0", "n": "3", "key": [null]}',
	'{"v": 1, "seq": "0", "n": "3", "key": [["8"]]}',
	'{"v": 1, "seq": "0", "n": "3", "key": [2]}',
	'{"v": 1, "seq": "0", "n": "3", "key": ["8", "9"]}',
	'{"v": 1, "seq": "0", "n": "3", "key": ["eight"]}',
	'{"v": 1, "seq": "0", "n": "3", "key": ["99999999999"]}']::jsonb[]) AS t;
SELECT try_token('no_key', '{"v": 1, "seq": "0", "n": "3", "key": ["8"]}');
SELECT try_token('no_key', '{"v": 1, "seq": "0", "n": "3", "key": []}');
\pset format aligned
\pset tuples_only off

-- The key index may be replaced, by one in the other direction, too; without one there is an error.
SELECT token FROM incsink_read_since('includes', max_rows => 1) \gset
DROP INDEX includes_id_body_idx;
SELECT data FROM incsink_read_since('includes', :'token');
CREATE UNIQUE INDEX ON includes (body);
CREATE UNIQUE INDEX ON includes (id, body);
SELECT data FROM incsink_read_since('includes');
SELECT data FROM incsink_read_since('includes', incsink_horizon('includes'));
CREATE UNIQUE INDEX ON includes (id DESC);
SELECT data FROM incsink_read_since('includes', :'token');
ALTER TABLE includes RENAME TO renamed;
SELECT data FROM incsink_read_since('renamed', :'token');

-- Keys mean what they meant, or there is an error: never another order without a word.
CREATE FUNCTION try_read(relation regclass, token jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
	context text;
BEGIN
	RETURN (SELECT string_agg(data->>'id', ' ' ORDER BY n) FROM incsink_read_since(relation, token) WITH ORDINALITY AS r(data, token, n));
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''), NULLIF(hint, ''), substring(context FROM 'value of column[^\n]*'));
END $$;
\pset format unaligned
\pset tuples_only on
CREATE TABLE retyped (id int PRIMARY KEY);
INSERT INTO retyped SELECT generate_series(1, 30);
SELECT attach('retyped');
SELECT key_types FROM incsink.backlog_def JOIN incsink.partition_state USING (partition_id) WHERE relid = 'retyped'::regclass;
SELECT token FROM incsink_read_since('retyped', max_rows => 27) OFFSET 26 \gset
ALTER TABLE retyped ALTER id TYPE text;
SELECT try_read('retyped', :'token');
SELECT try_read('retyped', NULL);
-- Wider is as good.
ALTER TABLE retyped ALTER id TYPE bigint USING id::bigint;
SELECT try_read('retyped', :'token');
ALTER TABLE retyped RENAME id TO nr;
SELECT try_read('retyped', :'token');
ALTER TABLE retyped RENAME nr TO id;
SELECT try_read('retyped', :'token');

CREATE TABLE collated (body varchar(20) COLLATE "C", id int, PRIMARY KEY (body, id));
INSERT INTO collated VALUES ('a', 1), ('B', 2);
SELECT attach('collated');
SELECT key_types FROM incsink.backlog_def JOIN incsink.partition_state USING (partition_id) WHERE relid = 'collated'::regclass;
SELECT token FROM incsink_read_since('collated', max_rows => 1) \gset
SELECT try_read('collated', :'token');
ALTER TABLE collated ALTER body TYPE text COLLATE "C";
SELECT try_read('collated', :'token');
ALTER TABLE collated ALTER body TYPE text COLLATE "default";
SELECT regexp_replace(try_read('collated', :'token'), '\(.*\)', '(...)');
-- Under policies, too.
GRANT SELECT ON collated TO regress_incsink_reader;
ALTER TABLE collated ENABLE ROW LEVEL SECURITY;
CREATE POLICY everything ON collated TO regress_incsink_reader USING (true);
SET ROLE regress_incsink_reader;
SELECT regexp_replace(try_read('collated', :'token'), '\(.*\)', '(...)');
SELECT left(try_read('collated', NULL), 20);
RESET ROLE;
-- The database's own collation, which a restore may change.
CREATE TABLE by_name (name text PRIMARY KEY);
INSERT INTO by_name VALUES ('a');
SELECT attach('by_name');
SELECT key_types[1] = 'text COLLATE "default" (libc ' || datcollate || ')' FROM incsink.backlog_def JOIN incsink.partition_state USING (partition_id), pg_database
WHERE relid = 'by_name'::regclass AND datname = current_database();

CREATE TYPE color AS ENUM ('red', 'green', 'blue');
CREATE TABLE colored (id int, k color PRIMARY KEY);
INSERT INTO colored VALUES (1, 'red'), (2, 'green'), (3, 'blue');
SELECT attach('colored');
SELECT token FROM incsink_read_since('colored', max_rows => 1) \gset
ALTER TYPE color RENAME VALUE 'blue' TO 'azure';
SELECT try_read('colored', :'token');
ALTER TYPE color RENAME VALUE 'azure' TO 'blue';
SELECT try_read('colored', :'token');

\pset format aligned
\pset tuples_only off
-- Rows that cannot be read are not left out without a word.
SET client_min_messages = notice;
SELECT count(*) FROM incsink_read_since('no_key');
SELECT count(*) FROM incsink_read_since('no_key', incsink_horizon('no_key'));
SET client_min_messages = warning;
DO $$
BEGIN
	PERFORM incsink_detach(t) FROM unnest('{retyped,collated,by_name,colored}'::regclass[]) AS t;
END $$;
DROP TABLE retyped, collated, by_name, colored;
DROP TYPE color;
DROP FUNCTION try_read;

-- Keys of every kind, in the order of the index and out of it again.
CREATE FUNCTION same_order(relation regclass, ordering text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	expected text;
	ids text;
	key jsonb;
BEGIN
	PERFORM incsink_attach(relation);
	EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY %s) FROM %s', ordering, relation) INTO expected;
	SELECT string_agg(r.ids, ' ' ORDER BY read) INTO ids FROM read_on(relation, 2) r;
	SELECT (array_agg(token->'key' ORDER BY n))[2] INTO key
	FROM incsink_read_since(relation) WITH ORDINALITY AS r(data, token, n);
	RETURN concat_ws(' | ', CASE WHEN ids = expected THEN 'same' ELSE 'DIFFERENT: ' || ids || ' <> ' || expected END, key);
END $$;
SET TimeZone = 'Asia/Tokyo';
SET DateStyle = 'German';
SET IntervalStyle = 'sql_standard';
SET bytea_output = escape;
SET extra_float_digits = -10;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE k_text AS SELECT * FROM (VALUES (1, 'b'), (2, 'a'), (3, ''), (4, E'"quoted" \\ \n,'), (5, '€')) v(id, k);
CREATE TABLE k_uuid AS SELECT i AS id, md5(i::text)::uuid AS k FROM generate_series(1, 7) i;
CREATE TABLE k_timestamptz AS SELECT i AS id, '2024-02-29 12:00:00.000001+00'::timestamptz - i * interval '1 microsecond' AS k FROM generate_series(1, 5) i;
INSERT INTO k_timestamptz VALUES (6, 'infinity'), (7, '-infinity'), (8, '0044-03-15 BC');
CREATE TABLE k_numeric AS SELECT * FROM (VALUES (1, 1.50), (2, -3), (3, 'NaN'), (4, 1e30), (5, 'Infinity'), (6, '-Infinity'), (7, 0.000000000000000001)) v(id, k);
CREATE TABLE k_float AS SELECT * FROM (VALUES (1, 0.1::float8), (2, 0.1 + 1e-16), (3, 'NaN'), (4, '-Infinity'), (5, 1e300)) v(id, k);
CREATE TABLE k_interval AS SELECT * FROM (VALUES (1, interval '1 day'), (2, '-1 day +2 hours'), (3, '1 month -3 days')) v(id, k);
CREATE TABLE k_bytea AS SELECT * FROM (VALUES (1, '\x00ff'::bytea), (2, '\x'), (3, '\x5c27')) v(id, k);
CREATE TABLE k_enum AS SELECT * FROM (VALUES (1, 'happy'::mood), (2, 'sad'), (3, 'ok')) v(id, k);
CREATE TABLE k_domain AS SELECT i AS id, (100 - i)::picky AS k FROM generate_series(1, 3) i;
CREATE TABLE k_bpchar AS SELECT * FROM (VALUES (1, 'b'::char(3)), (2, 'a'), (3, 'abc')) v(id, k);
CREATE TABLE k_name AS SELECT * FROM (VALUES (1, 'b'::name), (2, 'a'), (3, 'B')) v(id, k);
CREATE TABLE k_array AS SELECT * FROM (VALUES (1, '{1,2}'::int[]), (2, '{}'), (3, '{1,NULL}'), (4, '{0,9}')) v(id, k);
CREATE TABLE k_bool AS SELECT * FROM (VALUES (1, true), (2, false)) v(id, k);
CREATE TABLE k_inet AS SELECT * FROM (VALUES (1, '10.0.0.1'::inet), (2, '10.0.0.0/8'), (3, '::1')) v(id, k);
CREATE TABLE k_descending AS SELECT i AS id, i % 3 AS k FROM generate_series(1, 3) i;
DO $$
DECLARE
	t text;
BEGIN
	FOR t IN SELECT relname FROM pg_class WHERE relname LIKE 'k\_%' AND relkind = 'r' LOOP
		EXECUTE format('ALTER TABLE %I ALTER k SET NOT NULL', t);
		EXECUTE format('CREATE UNIQUE INDEX ON %I (k %s)', t, CASE t WHEN 'k_descending' THEN 'DESC' ELSE '' END);
	END LOOP;
END $$;
SELECT relname, same_order(oid::regclass, 'k') FROM pg_class WHERE relname LIKE 'k\_%' AND relkind = 'r' ORDER BY relname;
-- Of several columns.
CREATE TABLE kk_two AS SELECT i AS id, i % 3 AS a, (7 - i)::text AS b FROM generate_series(1, 9) i;
ALTER TABLE kk_two ADD PRIMARY KEY (a, b);
CREATE TABLE kk_descending AS SELECT i AS id, i % 3 AS a, (7 - i)::text AS b, i % 2 = 0 AS c FROM generate_series(1, 9) i;
ALTER TABLE kk_descending ALTER a SET NOT NULL, ALTER b SET NOT NULL, ALTER c SET NOT NULL;
CREATE UNIQUE INDEX ON kk_descending (c DESC, a DESC, b DESC);
SELECT same_order('kk_two', 'a, b');
SELECT same_order('kk_descending', 'c, a, b');
RESET TimeZone;
RESET DateStyle;
RESET IntervalStyle;
RESET bytea_output;
RESET extra_float_digits;
-- A domain's constraint that has become stricter is not asked.
ALTER DOMAIN picky ADD CHECK (VALUE < 5) NOT VALID;
SELECT token FROM incsink_read_since('k_domain', max_rows => 1) \gset
SELECT data FROM incsink_read_since('k_domain', :'token');
-- Columns of the key stand where they stand.
CREATE TABLE dropped (x int, y int, id int NOT NULL UNIQUE, z int);
INSERT INTO dropped SELECT i, i, i, i FROM generate_series(1, 3) i;
ALTER TABLE dropped DROP COLUMN x;
SELECT attach('dropped');
ALTER TABLE dropped DROP COLUMN y, ADD COLUMN w int DEFAULT 7;
SELECT data, token->'key' AS key FROM incsink_read_since('dropped');

-- Privileges: tokens show the key, so it must be one of the columns that may be read.
GRANT SELECT (body) ON logs TO regress_incsink_reader;
SET ROLE regress_incsink_reader;
SELECT * FROM incsink_read_since('logs', columns => '{body}', max_rows => 1);
RESET ROLE;
GRANT SELECT (id, body) ON logs TO regress_incsink_reader;
SET ROLE regress_incsink_reader;
SELECT data FROM incsink_read_since('logs', columns => '{body}', max_rows => 1);
SELECT * FROM incsink_read_since('logs', max_rows => 1);
RESET ROLE;

-- Policies: the reader gets the rows that he may see, and counts those.
GRANT SELECT ON logs, kk_two TO regress_incsink_reader;
ALTER TABLE logs ENABLE ROW LEVEL SECURITY;
CREATE POLICY odd ON logs TO regress_incsink_reader USING (id % 2 = 1 AND body NOT LIKE '%13');
ALTER TABLE kk_two ENABLE ROW LEVEL SECURITY;
CREATE POLICY not_one ON kk_two TO regress_incsink_reader USING (a <> 1);
INSERT INTO kk_two VALUES (99, 0, '0', DEFAULT);
SELECT string_agg(data->>'id', ' ' ORDER BY n) FROM incsink_read_since('logs') WITH ORDINALITY AS r(data, token, n);
SET ROLE regress_incsink_reader;
SELECT data->>'id' AS id, token - 'p' AS token FROM incsink_read_since('logs');
SELECT data, token - 'p' AS token FROM incsink_read_since(NULL::logs, columns => '{id}', max_rows => 2);
SELECT * FROM read_on('logs', 2);
SELECT data->>'id' AS id, token - 'p' AS token FROM incsink_read_since('kk_two');
SELECT * FROM read_on('kk_two', 2);
RESET ROLE;

-- A large one is read by the index: cost is that of the rows returned.
CREATE TABLE large (a int, b int, body text, PRIMARY KEY (a, b));
INSERT INTO large SELECT i / 100, i, repeat('x', 100) FROM generate_series(0, 19999) i;
SELECT attach('large');
CREATE FUNCTION blocks_read(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint + (plan->0->'Plan'->>'Shared Read Blocks')::bigint;
END $$;
SELECT token FROM incsink_read_since('large', max_rows => 10000) OFFSET 9999 \gset
SELECT :'token'::jsonb - 'p' AS token;
SELECT count(*) FROM incsink_read_since('large', :'token');
SELECT blocks_read(format('SELECT * FROM incsink_read_since(%L, %L, max_rows => 10)', 'large', :'token')) < 100 AS few;
SELECT count(*) FROM incsink_read_since('large');
SELECT count(DISTINCT token) FROM incsink_read_since('large');

-- Attached again: what has a number keeps it, what has none is the backlog.
SELECT incsink_detach('logs');
SELECT attach('logs');
SELECT string_agg(data->>'id', ' ' ORDER BY n) FROM incsink_read_since('logs') WITH ORDINALITY AS r(data, token, n);
SELECT incsink_detach('logs');
DELETE FROM logs WHERE ingest_seq = 0;
SELECT attach('logs');
-- Whether a large table has rows without a number is found out when they are read.
CREATE TABLE again (id int PRIMARY KEY, body text);
SELECT attach('again');
INSERT INTO again SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i;
ANALYZE again;
SELECT incsink_detach('again');
SELECT blocks_read($$SELECT incsink_attach('again')$$) < 2000 AS few;
SELECT order_of('again');
SELECT count(*), min(token->>'seq'), count(token->'n') AS backlog FROM incsink_read_since('again');
-- One whose rows are all gone has none.
SELECT incsink_detach('again');
DELETE FROM again;
SELECT attach('again');

DO $$
BEGIN
	PERFORM incsink_detach(relid::regclass, force => true) FROM incsink.partition_state;
END $$;
DROP TABLE empty, no_key, primary_key, fewest, unfit, renamed, logs, dropped, large, again;
DROP TABLE k_text, k_uuid, k_timestamptz, k_numeric, k_float, k_interval, k_bytea, k_enum, k_domain, k_bpchar,
	k_name, k_array, k_bool, k_inet, k_descending, kk_two, kk_descending;
DROP TYPE pair, mood;
DROP DOMAIN picky;
DROP FUNCTION order_of, attach, read_on, try_token, same_order, blocks_read;
DROP EXTENSION incsink CASCADE;
DROP ROLE regress_incsink_reader;
