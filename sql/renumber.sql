-- Numbers for rows that have none, or wrong ones.
SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE ROLE regress_incsink_owner;
GRANT CREATE, USAGE ON SCHEMA public TO regress_incsink_owner;
SET incsink.attach_index_size = '1GB';
RESET client_min_messages;
\set VERBOSITY terse

-- Who may, and when.
CREATE TABLE loaded (v text);
INSERT INTO loaded SELECT 'old ' || g FROM generate_series(1, 5) AS g;
CALL incsink_renumber('loaded');
CALL incsink_renumber(NULL);
CALL incsink_renumber('loaded', NULL);
CALL incsink_renumber('loaded', batch_rows => 0);
CALL incsink_renumber(0);
SELECT incsink_attach('loaded');
SET ROLE regress_incsink_owner;
CALL incsink_renumber('loaded');
RESET ROLE;
GRANT EXECUTE ON PROCEDURE incsink_renumber TO regress_incsink_owner;
SET ROLE regress_incsink_owner;
CALL incsink_renumber('loaded');
RESET ROLE;
\set VERBOSITY default
BEGIN;
CALL incsink_renumber('loaded');
ROLLBACK;
\set VERBOSITY terse
CREATE PROCEDURE wrapped() LANGUAGE plpgsql AS $$ BEGIN CALL incsink_renumber('loaded'); END $$;
CREATE FUNCTION called() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL incsink_renumber('loaded'); END $$;
SELECT called();

-- Rows of a table without a key: no sink may export them from the beginning, ...
SELECT had_rows FROM incsink.partitions;
INSERT INTO loaded (v) SELECT 'new ' || g FROM generate_series(1, 2) AS g;
SELECT data FROM incsink_read_since('loaded');
SELECT incsink_create_sink('early', 'http://127.0.0.1:1/', tables => '{loaded}', enabled => false);
-- ... until they have numbers.  A procedure that is not in a transaction may call it.
CALL wrapped();
SELECT had_rows FROM incsink.partitions;
SELECT data FROM incsink_read_since('loaded');
SELECT incsink_create_sink('early', 'http://127.0.0.1:1/', tables => '{loaded}', enabled => false);
CALL incsink_renumber('loaded');
SELECT ingest_seq, v FROM loaded ORDER BY 1;

-- In many transactions, whatever the session's settings are.
CREATE TABLE many (id int, pad text);
INSERT INTO many SELECT g, repeat('x', 300) FROM generate_series(1, 1000) AS g;
SELECT incsink_attach('many');
SET default_transaction_isolation = serializable;
SET enable_tidscan = off;
SET search_path = pg_temp;
CALL public.incsink_renumber('public.many', batch_rows => 30);
RESET search_path;
RESET enable_tidscan;
RESET default_transaction_isolation;
SELECT count(*), count(DISTINCT ingest_seq), min(ingest_seq) FROM many;
SELECT count(DISTINCT xmin::text) BETWEEN 10 AND 200 AS some_transactions FROM many;
SHOW session_replication_role;
SHOW row_security;
SELECT count(*) FROM incsink_read_since('many');

-- Numbers from elsewhere: above the last one drawn, or none.
SET incsink.allow_explicit_seq = on;
INSERT INTO many (id, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (2001, 5000), (2002, 0), (2003, -7);
RESET incsink.allow_explicit_seq;
SELECT (incsink_last_token('many')->>'seq')::bigint AS before \gset
CALL incsink_renumber('many');
SELECT id, ingest_seq > :before AS new FROM many WHERE id > 2000 ORDER BY 1;
SELECT count(*), count(DISTINCT ingest_seq), min(ingest_seq) > 0 AS positive, max(ingest_seq) - :before AS drawn FROM many;
CALL incsink_renumber('many');

-- All rows again.
SELECT token AS before FROM incsink_read_since('many') ORDER BY (token->>'seq')::bigint DESC LIMIT 1 \gset
CALL incsink_renumber('many', every_row => true);
SELECT count(*) FROM incsink_read_since('many', since => :'before');
SELECT count(*), count(DISTINCT ingest_seq) FROM many;

-- Users' triggers and rules stay out of it; policies are an error.
CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fired'; END $$;
CREATE TRIGGER spoil BEFORE UPDATE ON loaded FOR EACH ROW EXECUTE FUNCTION spoil();
CREATE RULE spoil AS ON UPDATE TO loaded DO INSTEAD NOTHING;
CALL incsink_renumber('loaded', every_row => true);
DROP RULE spoil ON loaded;
ALTER TABLE loaded ENABLE ALWAYS TRIGGER spoil;
CALL incsink_renumber('loaded', every_row => true);
DROP TRIGGER spoil ON loaded;
ALTER TABLE loaded OWNER TO regress_incsink_owner;
ALTER TABLE loaded ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CALL incsink_renumber('loaded', every_row => true);
ALTER TABLE loaded DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;

-- It runs as the owner, also when a superuser calls it.
CREATE FUNCTION who(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_user <> 'regress_incsink_owner' THEN RAISE 'run by %', current_user; END IF;
	RETURN $1;
END $$;
SET ROLE regress_incsink_owner;
CREATE INDEX ON loaded (who(v));
RESET ROLE;
CALL incsink_renumber('loaded', every_row => true);
SET ROLE regress_incsink_owner;
CALL incsink_renumber('loaded');
RESET ROLE;
SELECT current_user = session_user AS same;

-- A backlog that nobody has begun to read gets numbers ...
CREATE TABLE keyed (id int PRIMARY KEY);
INSERT INTO keyed SELECT generate_series(1, 5);
SELECT incsink_attach('keyed');
SELECT incsink_create_sink('first', 'http://127.0.0.1:1/', tables => '{keyed}', enabled => false);
SELECT count(*) FROM incsink.backlog_def;
CALL incsink_renumber('keyed');
SELECT count(*) FROM incsink.backlog_def;
SELECT had_rows FROM incsink.partitions WHERE table_name = 'keyed';
SELECT data, token->>'seq' AS seq FROM incsink_read_since('keyed');
SELECT seq, n, key FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = 'first';
SELECT incsink_drop_sink('first');
SELECT incsink_detach('keyed', drop_column => true);

-- ... one that was begun, or passed, keeps its place, unless it is to be exported again.
SELECT incsink_attach('keyed');
SELECT incsink_create_sink('first', 'http://127.0.0.1:1/', tables => '{keyed}', enabled => false);
UPDATE incsink.watermark w SET n = 2, key = '["2"]', sent_n = 2 FROM incsink.sink_def s
	WHERE s.sink_id = w.sink_id AND s.name = 'first';
SELECT incsink_create_sink('second', 'http://127.0.0.1:1/', tables => '{keyed}', enabled => false);
INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination, epoch, since_seq, until_seq,
		until_n, until_key, row_count, byte_count, digests, encoding)
	SELECT -1, 'b', sink_id, partition_id, '', epoch, 0, 0, 3, '["3"]', 3, 10, '{d}', '{}'
	FROM incsink.sink_table_def JOIN incsink.sink_def USING (sink_id) WHERE name = 'second';
CREATE TEMP VIEW positions AS
	SELECT s.name, w.seq, w.n, w.key, w.sent_seq, w.sent_n, split_part(w.epoch, '-', 1) AS epoch, w.epoch = t.epoch AS same
	FROM incsink.watermark w JOIN incsink.sink_def s USING (sink_id)
		JOIN incsink.sink_table_def t USING (sink_id, partition_id)
	WHERE s.name IN ('first', 'second');
\set VERBOSITY default
CALL incsink_renumber('keyed');
\set VERBOSITY terse
SELECT ingest_seq, count(*) FROM keyed GROUP BY 1;
SELECT * FROM positions ORDER BY 1;
CALL incsink_renumber('keyed', every_row => true);
SELECT ingest_seq FROM keyed ORDER BY 1;
SELECT * FROM positions ORDER BY 1;
SELECT count(*) FROM incsink.intent;
SELECT had_rows FROM incsink.partitions WHERE table_name = 'keyed';
SELECT incsink_drop_sink('first');
SELECT incsink_drop_sink('second');

-- An adopted column; not one that others refer to.
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
SELECT incsink_attach('orders', adopt => 'id');
INSERT INTO orders (v) VALUES ('a'), ('b');
SET incsink.allow_explicit_seq = on;
INSERT INTO orders (id, v) OVERRIDING SYSTEM VALUE VALUES (900, 'c');
RESET incsink.allow_explicit_seq;
CALL incsink_renumber('orders');
SELECT * FROM orders ORDER BY id;
CREATE TABLE items (order_id bigint REFERENCES orders);
\set VERBOSITY default
CALL incsink_renumber('orders');
\set VERBOSITY terse

-- Trees, and one of their leaves.
CREATE TABLE tree (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (10);
CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (10) TO (20) PARTITION BY LIST (v);
CREATE TABLE tree_2_a PARTITION OF tree_2 FOR VALUES IN ('a');
CREATE TABLE tree_2_rest PARTITION OF tree_2 DEFAULT;
INSERT INTO tree SELECT g, chr(97 + g % 2) FROM generate_series(1, 19) AS g;
SELECT incsink_attach('tree');
SELECT data FROM incsink_read_since('tree');
CALL incsink_renumber('tree_2_a');
SELECT count(*) FROM incsink_read_since('tree');
SELECT had_rows FROM incsink.partitions WHERE table_name = 'tree';
CALL incsink_renumber('tree_2');
CALL incsink_renumber('tree');
SELECT count(*), count(DISTINCT ingest_seq), min(ingest_seq) > 0 AS numbered FROM tree;
SELECT had_rows FROM incsink.partitions WHERE table_name = 'tree';
INSERT INTO tree VALUES (3, 'new');
SELECT count(*) FROM incsink_read_since('tree');

-- With a key its rows are a backlog: rows of a part leave it as they get numbers.
CREATE TABLE keyed_tree (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE keyed_1 PARTITION OF keyed_tree FOR VALUES FROM (0) TO (10);
CREATE TABLE keyed_2 PARTITION OF keyed_tree FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE keyed_2_rest PARTITION OF keyed_2 DEFAULT;
INSERT INTO keyed_tree SELECT generate_series(1, 19);
SELECT incsink_attach('keyed_tree');
CALL incsink_renumber('keyed_1');
CALL incsink_renumber('keyed_2');
CALL incsink_renumber('keyed_2', every_row => true);
SELECT ingest_seq > 0 AS numbered, count(*) FROM keyed_tree GROUP BY 1 ORDER BY 1;
SELECT count(*), count(DISTINCT data) FROM incsink_read_since('keyed_tree');
CALL incsink_renumber('keyed_tree', every_row => true);
SELECT count(*) FROM incsink.backlog_def;
SELECT count(*), count(DISTINCT data) FROM incsink_read_since('keyed_tree');

-- A leaf that joined unseen, with numbers that were passed already.
SET client_min_messages = warning;
ALTER EVENT TRIGGER incsink_ddl_end DISABLE;
CREATE TABLE joins (LIKE tree);
INSERT INTO joins (id, v, ingest_seq) VALUES (21, 'x', 1), (22, 'x', 2), (23, 'x', 77777);
ALTER TABLE tree ATTACH PARTITION joins FOR VALUES FROM (20) TO (30);
ALTER EVENT TRIGGER incsink_ddl_end ENABLE ALWAYS;
RESET client_min_messages;
SELECT incsink_horizon('tree') AS before \gset
SELECT count(*) FROM incsink_read_since('tree');
CALL incsink_renumber('joins');
SELECT data FROM incsink_read_since('tree') WHERE data->>'v' = 'x';
INSERT INTO tree VALUES (24, 'y');
SELECT data FROM incsink_read_since('tree') WHERE data->>'v' = 'y';
SELECT count(*), count(DISTINCT ingest_seq) FROM tree;

-- What stands in the table when it is a subscription's target is in test/t/044_subscription.pl.
DROP PROCEDURE wrapped;
DROP FUNCTION called;
SET client_min_messages = warning;
DROP VIEW positions;
DROP TABLE loaded, many, keyed, items, orders, tree, keyed_tree;
DROP FUNCTION spoil, who;
DROP EXTENSION incsink CASCADE;
REVOKE ALL ON SCHEMA public FROM regress_incsink_owner;
DROP ROLE regress_incsink_owner;
