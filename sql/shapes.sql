-- Odd tables, attached and read back.
SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE ROLE regress_incsink_reader;
SET incsink.attach_index_size = '1GB';

-- Names: quotes, dots, upper case, spaces, 63 bytes of unicode.
CREATE SCHEMA "Odd.Schema ""x""";
CREATE TABLE "Odd.Schema ""x"""."Tab.le 'y'" ("Id" int PRIMARY KEY, "a ""b"" c" text, "select" text, "é{}" text);
INSERT INTO "Odd.Schema ""x"""."Tab.le 'y'" VALUES (1, 'old', 'old', 'old');
SELECT incsink_attach('"Odd.Schema ""x"""."Tab.le ''y''"');
INSERT INTO "Odd.Schema ""x"""."Tab.le 'y'" VALUES (2, 'new', 'new', 'new');
SELECT data FROM incsink_read_since('"Odd.Schema ""x"""."Tab.le ''y''"');
SELECT data FROM incsink_read_since('"Odd.Schema ""x"""."Tab.le ''y''"', columns => ARRAY['a "b" c', 'é{}']);
SELECT dataset, schema_name, table_name FROM incsink.partitions;
CALL incsink_renumber('"Odd.Schema ""x"""."Tab.le ''y''"', every_row => true);
SELECT incsink_detach('"Odd.Schema ""x"""."Tab.le ''y''"', drop_column => true);
DROP SCHEMA "Odd.Schema ""x""" CASCADE;

CREATE TABLE "ααααααααααααααααααααααααααααααα" ("βββββββββββββββββββββββββββββββ" int PRIMARY KEY);
INSERT INTO "ααααααααααααααααααααααααααααααα" VALUES (1);
SELECT incsink_attach('"ααααααααααααααααααααααααααααααα"');
INSERT INTO "ααααααααααααααααααααααααααααααα" VALUES (2);
SELECT data FROM incsink_read_since('"ααααααααααααααααααααααααααααααα"');
SELECT incsink_detach('"ααααααααααααααααααααααααααααααα"', drop_column => true);
DROP TABLE "ααααααααααααααααααααααααααααααα";

-- Two schemas with a table of one name.
CREATE SCHEMA regress_incsink_a;
CREATE SCHEMA regress_incsink_b;
CREATE TABLE regress_incsink_a.t (v text);
CREATE TABLE regress_incsink_b.t (v text);
SELECT incsink_attach('regress_incsink_a.t'), incsink_attach('regress_incsink_b.t');
INSERT INTO regress_incsink_a.t VALUES ('a');
INSERT INTO regress_incsink_b.t VALUES ('b');
SELECT data FROM incsink_read_since('regress_incsink_a.t');
SELECT data FROM incsink_read_since('regress_incsink_b.t');
SET search_path = regress_incsink_b;
SELECT data FROM public.incsink_read_since('t');
RESET search_path;
DROP SCHEMA regress_incsink_a, regress_incsink_b CASCADE;
SELECT incsink_forget_partition('regress_incsink_a.t'), incsink_forget_partition('regress_incsink_b.t');

-- No other column at all.
CREATE TABLE nothing ();
INSERT INTO nothing DEFAULT VALUES;
SELECT incsink_attach('nothing');
INSERT INTO nothing DEFAULT VALUES;
INSERT INTO nothing DEFAULT VALUES;
SELECT data, token->>'seq' AS seq FROM incsink_read_since('nothing');
DROP TABLE nothing;
SELECT incsink_forget_partition('public.nothing');

-- 1,599 columns, the last place taken by the number; with 1,600 there is none.
DO $$
BEGIN
	EXECUTE (SELECT 'CREATE TABLE wide (' || string_agg('c' || g || ' int', ', ') || ')' FROM generate_series(1, 1599) AS g);
END $$;
SELECT incsink_attach('wide');
INSERT INTO wide (c1, c800, c1599) VALUES (1, 800, 1599);
SELECT data->'c1' AS c1, data->'c800' AS c800, data->'c1599' AS c1599, (SELECT count(*) FROM jsonb_object_keys(data))
	FROM incsink_read_since('wide');
SELECT incsink_detach('wide', drop_column => true);
SELECT severity, problem, hint FROM incsink_check_attach('wide') WHERE severity = 'error';
SELECT incsink_attach('wide');
DROP TABLE wide;

-- Columns that are gone, and one that came later.
CREATE TABLE moulting (a int, b text DEFAULT 'b', c int PRIMARY KEY);
INSERT INTO moulting VALUES (1, 'x', 1);
ALTER TABLE moulting DROP COLUMN a;
SELECT incsink_attach('moulting');
INSERT INTO moulting (c) VALUES (2);
ALTER TABLE moulting ADD COLUMN d int DEFAULT 4;
ALTER TABLE moulting DROP COLUMN b;
INSERT INTO moulting VALUES (3, DEFAULT, 5);
SELECT data FROM incsink_read_since('moulting');
SELECT data FROM incsink_read_since(NULL::moulting);
DROP TABLE moulting;
SELECT incsink_forget_partition('public.moulting');

-- Generated columns, of the number too.
CREATE TABLE computed (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED);
INSERT INTO computed VALUES (1);
SELECT incsink_attach('computed');
ALTER TABLE computed ADD COLUMN label text GENERATED ALWAYS AS ('no. ' || ingest_seq::text) STORED;
INSERT INTO computed VALUES (2);
SELECT data FROM incsink_read_since('computed');
CALL incsink_renumber('computed', every_row => true);
SELECT data FROM incsink_read_since('computed');
DROP TABLE computed;
SELECT incsink_forget_partition('public.computed');

-- Virtual ones, from PostgreSQL 18 on, are not handed out: the others must be listed.
DO $$
BEGIN
	EXECUTE 'CREATE TABLE virtuals (a int PRIMARY KEY, v int GENERATED ALWAYS AS (a * 2) '
		|| CASE WHEN current_setting('server_version_num')::int < 180000 THEN 'STORED)' ELSE 'VIRTUAL)' END;
END $$;
CREATE FUNCTION about_virtual_columns() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('server_version_num')::int < 180000 THEN
		RETURN QUERY VALUES ('notice: Column "v" is a virtual generated column, which is not handed out.'), ('0A000');
		RETURN;
	END IF;
	RETURN QUERY SELECT severity || ': ' || problem FROM incsink_check_attach('virtuals') WHERE problem LIKE 'Column%';
	PERFORM incsink_attach('virtuals');
	BEGIN
		PERFORM incsink_read_since('virtuals');
	EXCEPTION WHEN feature_not_supported THEN
		RETURN NEXT SQLSTATE;
	END;
	PERFORM incsink_detach('virtuals', drop_column => true);
END $$;
INSERT INTO virtuals VALUES (1);
SELECT about_virtual_columns();
SELECT incsink_attach('virtuals');
INSERT INTO virtuals VALUES (2);
SELECT data FROM incsink_read_since('virtuals', columns => '{a}');
DROP TABLE virtuals;
DROP FUNCTION about_virtual_columns;
SELECT incsink_forget_partition('public.virtuals');

-- Privileges on columns: a reader gets what it may see, and no more.
CREATE TABLE guarded (id int PRIMARY KEY, secret text);
SELECT incsink_attach('guarded');
GRANT SELECT (id), INSERT (id) ON guarded TO regress_incsink_reader;
SET ROLE regress_incsink_reader;
INSERT INTO guarded (id) VALUES (1);
SELECT data FROM incsink_read_since('guarded', columns => '{id}');
SELECT data FROM incsink_read_since('guarded');
RESET ROLE;
DROP TABLE guarded;
SELECT incsink_forget_partition('public.guarded');

-- The application: INSERT without columns, SELECT *, views, row types, RETURNING, foreign keys.
CREATE TABLE app (id int PRIMARY KEY, v text);
CREATE VIEW app_view AS SELECT * FROM app;
CREATE FUNCTION app_rows() RETURNS SETOF app LANGUAGE sql AS 'SELECT * FROM app';
INSERT INTO app VALUES (1, 'a');
SELECT incsink_attach('app');
INSERT INTO app VALUES (2, 'b');
INSERT INTO app SELECT 3, 'c';
INSERT INTO app_view VALUES (4, 'd') RETURNING *;
SELECT * FROM app_view ORDER BY 1;
SELECT * FROM app ORDER BY 1;
SELECT * FROM app_rows() ORDER BY 1;
INSERT INTO app VALUES (5, 'e', 77);
INSERT INTO app SELECT * FROM app;
INSERT INTO app VALUES (2, 'B') ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v RETURNING id, v, ingest_seq;
CREATE TABLE app_details (app_id int REFERENCES app);
INSERT INTO app_details VALUES (1);
COPY app (id, v) FROM STDIN;
6	f
\.
COPY app TO STDOUT;
SELECT data FROM incsink_read_since('app');
DROP TABLE app, app_details CASCADE;
SELECT incsink_forget_partition('public.app');

-- Triggers, also one that changes or drops rows; rules; a rule that sends rows elsewhere.
CREATE TABLE busy (id int, v text);
CREATE TABLE busy_log (id int, what text);
CREATE FUNCTION busy_before() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.v = 'drop' THEN RETURN NULL; END IF;
	NEW.v := upper(NEW.v);
	RETURN NEW;
END $$;
CREATE FUNCTION busy_after() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO busy_log VALUES (NEW.id, 'trigger');
	RETURN NULL;
END $$;
CREATE TRIGGER busy_before BEFORE INSERT ON busy FOR EACH ROW EXECUTE FUNCTION busy_before();
CREATE TRIGGER busy_after AFTER INSERT ON busy FOR EACH ROW EXECUTE FUNCTION busy_after();
CREATE RULE busy_also AS ON INSERT TO busy DO ALSO INSERT INTO busy_log VALUES (NEW.id, 'rule');
CREATE RULE busy_large AS ON INSERT TO busy WHERE NEW.id > 100 DO INSTEAD INSERT INTO busy_log VALUES (NEW.id, 'instead');
SELECT incsink_attach('busy'), incsink_attach('busy_log');
INSERT INTO busy VALUES (1, 'a'), (2, 'drop'), (101, 'c');
SELECT data FROM incsink_read_since('busy');
SELECT data FROM incsink_read_since('busy_log') ORDER BY data->>'what', data->>'id';
DROP TABLE busy, busy_log;
DROP FUNCTION busy_before, busy_after;
SELECT incsink_forget_partition('public.busy'), incsink_forget_partition('public.busy_log');

-- Inheritance: a child is a table like others; a parent is one without its children.
CREATE TABLE parent (v text);
CREATE TABLE child (more int) INHERITS (parent);
CREATE TABLE stranger () INHERITS (parent);
SELECT incsink_attach('child');
SELECT incsink_attach('parent');
SELECT incsink_attach('parent', force => true);
INSERT INTO parent (v) VALUES ('parent');
INSERT INTO child (v, more) VALUES ('child', 1);
INSERT INTO stranger (v) VALUES ('stranger');
COPY stranger FROM STDIN;
copied	0
\.
SELECT data FROM incsink_read_since('parent');
SELECT data FROM incsink_read_since('child');
UPDATE parent SET v = v || '!';
DELETE FROM parent WHERE v = 'parent!';
SELECT data FROM incsink_read_since('parent');
SELECT data FROM incsink_read_since('child');
TRUNCATE parent RESTART IDENTITY;
INSERT INTO parent (v) VALUES ('parent 2');
INSERT INTO child (v) VALUES ('child 2');
SELECT data, token->>'seq' AS seq FROM incsink_read_since('parent');
SELECT data, token->>'seq' AS seq FROM incsink_read_since('child');
-- Forced again, it uses the column that it has.
SELECT incsink_detach('parent');
SELECT incsink_attach('parent', force => true);
INSERT INTO parent (v) VALUES ('parent 3');
SELECT data, token->>'seq' AS seq FROM incsink_read_since('parent');
DROP TABLE parent CASCADE;
SELECT incsink_forget_partition('public.parent'), incsink_forget_partition('public.child');

-- Types of users: domains, enums, composites, arrays, ranges, and rows of many kilobytes.
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE typed (p positive PRIMARY KEY, m mood, c pair, many pair[], r int4range, big text);
INSERT INTO typed VALUES (1, 'sad', (1, 'x'), ARRAY[(1, 'y')::pair], '[1,3)', repeat('z', 100000));
SELECT incsink_attach('typed');
INSERT INTO typed VALUES (2, 'ok', (2, 'x'), ARRAY[(2, 'y')::pair], '[2,4)', repeat('z', 200000));
SELECT data - 'big' AS data, length(data->>'big') FROM incsink_read_since('typed');
DROP TABLE typed;
SELECT incsink_forget_partition('public.typed');
DROP TYPE mood, pair;
DROP DOMAIN positive;

-- Nothing is left of all that.
SELECT count(*) FROM incsink.partitions;
DROP FUNCTION IF EXISTS app_rows;
DROP EXTENSION incsink CASCADE;
DROP ROLE regress_incsink_reader;
