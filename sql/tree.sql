SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE ROLE regress_incsink_tree;
GRANT CREATE ON SCHEMA public TO regress_incsink_tree;
RESET client_min_messages;

CREATE VIEW leaves AS SELECT dataset, table_name AS leaf, state, left_at_seq FROM incsink.leaves ORDER BY 1, 2;
CREATE VIEW guards AS SELECT tgrelid::regclass AS relation, tgname FROM pg_trigger WHERE tgname LIKE 'incsink%' ORDER BY 1, 2;
/* What a new reader gets, with each row's place. */
CREATE FUNCTION numbered(regclass) RETURNS TABLE (seq text, doc text) LANGUAGE sql
	AS $$SELECT token->>'seq', data::text FROM incsink_read_since($1)$$;
/* Rows of a tree, or of one table. */
CREATE FUNCTION stored(regclass) RETURNS TABLE (leaf text, id bigint, seq bigint) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT tableoid::regclass::text, id::bigint, ingest_seq FROM %s ORDER BY 3, 2', $1);
END $$;

-- Range: existing leaves, one of them with other columns in another order.
CREATE TABLE logs (id bigint, day date, body text) PARTITION BY RANGE (day);
CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
CREATE TABLE logs_2 (junk int, body text, day date, more int, id bigint);
ALTER TABLE logs_2 DROP COLUMN junk, DROP COLUMN more;
ALTER TABLE logs ATTACH PARTITION logs_2 FOR VALUES FROM ('2025-02-01') TO ('2025-03-01');
SELECT incsink_attach('logs_1');
SELECT incsink_attach('logs');
SELECT * FROM guards;
SELECT * FROM leaves;
SELECT dataset, table_name, leaves, had_rows, error FROM incsink.partitions;
INSERT INTO logs VALUES (1, '2025-01-05', 'one'), (2, '2025-02-05', 'two');
INSERT INTO logs_2 (id, day, body) VALUES (3, '2025-02-06', 'three');
COPY logs (id, day, body) FROM stdin (DELIMITER ' ');
4 2025-01-06 four
5 2025-02-07 five
\.
COPY logs_1 (id, day, body) FROM stdin (DELIMITER ' ');
6 2025-01-07 six
\.
SELECT * FROM stored('logs');
SELECT * FROM numbered('logs');
SELECT seqtypid::regtype, seqstart, seqincrement, seqmin, seqcache, seqcycle FROM pg_sequence
WHERE seqrelid = pg_get_serial_sequence('logs', 'ingest_seq')::regclass;

-- A row that moves to another leaf keeps its number.
UPDATE logs SET day = '2025-02-20' WHERE id = 1;
SELECT * FROM stored('logs') WHERE id = 1;

-- New leaves, by all commands that make one.
CREATE TABLE logs_3 PARTITION OF logs FOR VALUES FROM ('2025-03-01') TO ('2025-04-01');
CREATE TABLE logs_default PARTITION OF logs DEFAULT;
CREATE TABLE logs_4 (LIKE logs INCLUDING DEFAULTS);
ALTER TABLE logs ATTACH PARTITION logs_4 FOR VALUES FROM ('2025-04-01') TO ('2025-05-01');
CREATE TABLE logs_5 (ingest_seq bigint NOT NULL, id bigint, day date, body text);
ALTER TABLE logs ATTACH PARTITION logs_5 FOR VALUES FROM ('2025-05-01') TO ('2025-06-01');
CREATE SCHEMA regress_incsink_tree
	CREATE TABLE logs_6 PARTITION OF public.logs FOR VALUES FROM ('2025-06-01') TO ('2025-07-01');
SELECT * FROM leaves;
INSERT INTO logs_3 (id, day) VALUES (7, '2025-03-01');
INSERT INTO logs_4 (id, day) VALUES (8, '2025-04-01');
INSERT INTO logs_5 (id, day) VALUES (9, '2025-05-01');
INSERT INTO logs (id, day) VALUES (10, '2025-06-01'), (11, '2030-01-01');
SELECT * FROM stored('logs') WHERE id >= 7;

-- Renamed and moved leaves are shown by their new names.
ALTER TABLE logs_5 RENAME TO logs_may;
ALTER TABLE regress_incsink_tree.logs_6 SET SCHEMA public;
SELECT schema_name, table_name FROM incsink.leaves ORDER BY 1, 2;

-- A table that brings rows is refused, whatever their numbers: none, a low, a high one.
CREATE TABLE brings (id bigint, day date, body text, ingest_seq bigint NOT NULL);
INSERT INTO brings VALUES (100, '2025-07-01', 'zero', 0);
ALTER TABLE logs ATTACH PARTITION brings FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
UPDATE brings SET ingest_seq = 3;
ALTER TABLE logs ATTACH PARTITION brings FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
UPDATE brings SET ingest_seq = 1000000;
ALTER TABLE logs ATTACH PARTITION brings FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
-- Drawn, but committed by another transaction: the horizon may have passed it.
UPDATE brings SET ingest_seq = nextval(pg_get_serial_sequence('logs', 'ingest_seq'));
ALTER TABLE logs ATTACH PARTITION brings FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
-- In the same transaction, but a number that it did not draw.
TRUNCATE brings;
BEGIN;
INSERT INTO brings VALUES (100, '2025-07-01', 'own', 5);
ALTER TABLE logs ATTACH PARTITION brings FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
ROLLBACK;
BEGIN;
INSERT INTO brings VALUES (100, '2025-07-01', 'own', nextval(pg_get_serial_sequence('logs', 'ingest_seq'))),
	(101, '2025-07-01', 'own', 1000000);
ALTER TABLE logs ATTACH PARTITION brings FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
ROLLBACK;
-- Filled and attached by one transaction that drew the numbers.
BEGIN;
INSERT INTO brings SELECT 100 + i, '2025-07-01', 'own', nextval(pg_get_serial_sequence('logs', 'ingest_seq'))
FROM generate_series(1, 2) i;
ALTER TABLE logs ATTACH PARTITION brings FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
COMMIT;
SELECT count(*), count(DISTINCT seq) FROM stored('logs') WHERE id > 100;
SELECT doc FROM numbered('logs') WHERE doc LIKE '%own%';

-- With the owner's consent it joins, and the partition stands still until it is renumbered.
CREATE TABLE consented (id bigint, day date, body text, ingest_seq bigint NOT NULL);
INSERT INTO consented VALUES (200, '2025-08-01', 'consented', 1), (201, '2025-08-01', 'consented', 0);
SET incsink.allow_explicit_seq = on;
ALTER TABLE logs ATTACH PARTITION consented FOR VALUES FROM ('2025-08-01') TO ('2025-09-01');
RESET incsink.allow_explicit_seq;
SELECT * FROM incsink_read_since('logs');
-- No other command fails because of it.
CREATE TABLE logs_9 PARTITION OF logs FOR VALUES FROM ('2025-09-01') TO ('2025-10-01');
SET client_min_messages = warning;
CALL incsink_renumber('consented', every_row => true);
RESET client_min_messages;
SELECT doc FROM numbered('logs') WHERE doc LIKE '%consented%';
SELECT leaf, state FROM leaves WHERE leaf IN ('consented', 'logs_9');

-- A leaf that leaves: its numbers are read on, and it may come back with them.
SELECT * FROM stored('logs_3');
ALTER TABLE logs DETACH PARTITION logs_3;
SELECT leaf, state, left_at_seq FROM leaves WHERE leaf = 'logs_3';
SELECT doc FROM numbered('logs') WHERE doc LIKE '%: 7%';
ALTER TABLE logs ATTACH PARTITION logs_3 FOR VALUES FROM ('2025-03-01') TO ('2025-04-01');
SELECT leaf, state, left_at_seq FROM leaves WHERE leaf = 'logs_3';
-- Not with what it got meanwhile.
ALTER TABLE logs DETACH PARTITION logs_3;
INSERT INTO logs_3 (id, day, ingest_seq) VALUES (300, '2025-03-02', 0);
ALTER TABLE logs ATTACH PARTITION logs_3 FOR VALUES FROM ('2025-03-01') TO ('2025-04-01');
UPDATE logs_3 SET ingest_seq = nextval(pg_get_serial_sequence('logs', 'ingest_seq')) WHERE id = 300;
ALTER TABLE logs ATTACH PARTITION logs_3 FOR VALUES FROM ('2025-03-01') TO ('2025-04-01');
SELECT doc FROM numbered('logs') WHERE doc LIKE '%: 300%';
DELETE FROM logs_3 WHERE id = 300;
ALTER TABLE logs ATTACH PARTITION logs_3 FOR VALUES FROM ('2025-03-01') TO ('2025-04-01');

-- What a leaf must not be.
CREATE UNLOGGED TABLE bad (id bigint, day date, body text, ingest_seq bigint NOT NULL);
ALTER TABLE logs ATTACH PARTITION bad FOR VALUES FROM ('2025-10-01') TO ('2025-11-01');
DROP TABLE bad;
ALTER TABLE logs_4 SET UNLOGGED;
SELECT * FROM incsink_read_since('logs');
ALTER TABLE logs_4 SET LOGGED;
SELECT count(*) FROM numbered('logs');

-- Numbers of one's own: not by COPY; by INSERT, which is how rows are moved.
COPY logs FROM stdin;
400	2025-01-01	copied	9
\.
COPY logs_1 (id, day, ingest_seq) FROM stdin;
400	2025-01-01	9
\.
BEGIN;
WITH moved AS (DELETE FROM logs_1 WHERE id = 6 RETURNING *)
INSERT INTO logs OVERRIDING SYSTEM VALUE SELECT id, '2025-02-22', body, ingest_seq FROM moved;
SELECT * FROM stored('logs') WHERE id = 6;
COMMIT;
SELECT * FROM numbered('logs') WHERE doc LIKE '%six%';

-- TRUNCATE ... RESTART IDENTITY gives no number out again.
TRUNCATE logs RESTART IDENTITY;
INSERT INTO logs VALUES (500, '2025-01-01', 'after');
SELECT seq > 10 AS goes_on FROM stored('logs');
SELECT doc FROM numbered('logs');
TRUNCATE logs_1;
SELECT doc FROM numbered('logs');

-- Dropped leaves: with what no sink needs, and with what one does.
DROP TABLE logs_9;
SELECT * FROM incsink.loss;
INSERT INTO logs SELECT 600 + i, '2025-01-01', 'drop' FROM generate_series(1, 3) i;
DROP TABLE logs_1;
SELECT count(*) FROM incsink.loss;
SELECT incsink_create_sink('regress_sink', 'http://127.0.0.1:1/', tables => '{logs}', enabled => false);
SELECT * FROM stored('logs');
DROP TABLE logs_default;
CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
INSERT INTO logs SELECT 700 + i, '2025-01-01', 'lost' FROM generate_series(1, 4) i;
INSERT INTO logs VALUES (710, '2025-02-01', 'lost with a leaf that had left');
DROP INDEX IF EXISTS no_such_index;
DROP TABLE logs_1;
ALTER TABLE logs DETACH PARTITION logs_2;
DROP TABLE logs_2;
SELECT schema_name, table_name, row_count FROM incsink.loss ORDER BY 2;
SELECT rows_lost FROM incsink.partitions WHERE dataset = 'public.logs';
SELECT leaf FROM leaves;
SELECT incsink_drop_sink('regress_sink');
ALTER TABLE logs DETACH PARTITION logs_3;
/* The whole tree: the partition says so, and no leaf is a loss of its own. */
DROP TABLE logs;
SELECT * FROM leaves;
SELECT count(*) FROM incsink.loss;
SELECT incsink_forget_partition('public.logs');
SELECT count(*) FROM incsink.loss;
DROP TABLE logs_3;

-- List, hash and several levels; a tree without any leaf at first.
CREATE TABLE regions (id bigint, region text, n int) PARTITION BY LIST (region);
SELECT incsink_attach('regions');
SELECT * FROM incsink_read_since('regions');
CREATE TABLE regions_eu PARTITION OF regions FOR VALUES IN ('de', 'fr') PARTITION BY HASH (id);
CREATE TABLE regions_eu_0 PARTITION OF regions_eu FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE regions_eu_1 PARTITION OF regions_eu FOR VALUES WITH (MODULUS 2, REMAINDER 1) PARTITION BY RANGE (n);
CREATE TABLE regions_eu_1_low PARTITION OF regions_eu_1 FOR VALUES FROM (MINVALUE) TO (10);
CREATE TABLE regions_eu_1_high PARTITION OF regions_eu_1 FOR VALUES FROM (10) TO (MAXVALUE);
CREATE TABLE regions_null PARTITION OF regions FOR VALUES IN (NULL);
SELECT * FROM leaves;
SELECT incsink_attach('regions_eu');
SELECT incsink_attach('regions_eu_1_low');
INSERT INTO regions SELECT i, CASE WHEN i % 3 = 0 THEN NULL ELSE 'de' END, i FROM generate_series(1, 20) i;
INSERT INTO regions_eu SELECT i, 'fr', i - 20 FROM generate_series(21, 30) i;
SELECT count(DISTINCT leaf), count(*), count(DISTINCT seq), min(seq), max(seq) FROM stored('regions');
SELECT count(*), array_agg(seq::int ORDER BY ordinality) = array_agg(ordinality::int ORDER BY ordinality) AS in_order
FROM numbered('regions') WITH ORDINALITY;
-- A branch leaves and comes back; one with rows of its own does not.
ALTER TABLE regions DETACH PARTITION regions_eu;
SELECT leaf, state FROM leaves;
SELECT count(*) FROM numbered('regions');
ALTER TABLE regions ATTACH PARTITION regions_eu FOR VALUES IN ('de', 'fr');
SELECT leaf, state FROM leaves;
CREATE TABLE branch (id bigint, region text, n int, ingest_seq bigint NOT NULL) PARTITION BY RANGE (id);
CREATE TABLE branch_1 PARTITION OF branch FOR VALUES FROM (1) TO (100);
CREATE TABLE branch_2 PARTITION OF branch FOR VALUES FROM (100) TO (200);
INSERT INTO branch VALUES (100, 'us', 1, 1);
ALTER TABLE regions ATTACH PARTITION branch FOR VALUES IN ('us');
DELETE FROM branch;
ALTER TABLE regions ATTACH PARTITION branch FOR VALUES IN ('us');
SELECT leaf, state FROM leaves WHERE leaf LIKE 'branch%';
INSERT INTO regions VALUES (150, 'us', 1);
INSERT INTO branch_2 (id, region, n) VALUES (151, 'us', 1);
SELECT * FROM stored('branch');

-- Rolled back, nothing has happened.
BEGIN;
DROP TABLE regions_eu_0;
ALTER TABLE regions DETACH PARTITION regions_null;
CREATE TABLE regions_more PARTITION OF regions FOR VALUES IN ('more');
SELECT leaf, state FROM leaves;
ROLLBACK;
SELECT leaf, state FROM leaves;
BEGIN;
SAVEPOINT s;
CREATE TABLE regions_more PARTITION OF regions FOR VALUES IN ('more');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM numbered('regions');

-- Foreign leaves.
CREATE FOREIGN DATA WRAPPER regress_incsink_wrapper;
CREATE SERVER regress_incsink_server FOREIGN DATA WRAPPER regress_incsink_wrapper;
CREATE FOREIGN TABLE regions_far PARTITION OF regions FOR VALUES IN ('far') SERVER regress_incsink_server;
CREATE FOREIGN TABLE regions_far (id bigint, region text, n int, ingest_seq bigint NOT NULL) SERVER regress_incsink_server;
ALTER TABLE regions ATTACH PARTITION regions_far FOR VALUES IN ('far');
SELECT incsink_detach('regions', drop_column => true);
ALTER FOREIGN TABLE regions_far DROP COLUMN ingest_seq;
ALTER TABLE regions ATTACH PARTITION regions_far FOR VALUES IN ('far');
SELECT * FROM incsink_check_attach('regions');
SELECT incsink_attach('regions');
DROP FOREIGN TABLE regions_far;
DROP SERVER regress_incsink_server;
DROP FOREIGN DATA WRAPPER regress_incsink_wrapper;

-- Attached by its owner, detached, attached again: the column is used on.
GRANT EXECUTE ON FUNCTION incsink_attach, incsink_detach TO regress_incsink_tree;
GRANT SELECT ON guards TO regress_incsink_tree;
SET ROLE regress_incsink_tree;
CREATE TABLE own (id bigint NOT NULL, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE own_1 PARTITION OF own FOR VALUES FROM (0) TO (100);
CREATE TABLE own_2 PARTITION OF own FOR VALUES FROM (100) TO (200);
INSERT INTO own SELECT i, 'before' FROM generate_series(1, 150, 50) i;
SELECT incsink_attach('own');
INSERT INTO own VALUES (2, 'after');
SELECT doc FROM numbered('own');
SELECT incsink_detach('own');
SELECT * FROM guards WHERE relation = 'own'::regclass;
INSERT INTO own VALUES (3, 'between');
CREATE TABLE own_3 PARTITION OF own FOR VALUES FROM (200) TO (300);
SELECT incsink_attach('own');
INSERT INTO own VALUES (4, 'again'), (200, 'again');
SELECT doc FROM numbered('own');
ALTER TABLE own DETACH PARTITION own_3;
SELECT incsink_detach('own', drop_column => true);
SELECT count(*) FROM pg_attribute WHERE attname = 'ingest_seq' AND attrelid IN ('own'::regclass, 'own_1'::regclass, 'own_3'::regclass);
SELECT count(*) FROM pg_class WHERE relname LIKE 'own%seq%';
RESET ROLE;
SELECT incsink_attach('own');
SELECT relowner::regrole FROM pg_class WHERE oid = pg_get_serial_sequence('own', 'ingest_seq')::regclass;
/* Whoever may insert may draw. */
GRANT INSERT ON own TO PUBLIC;
CREATE ROLE regress_incsink_writer;
GRANT regress_incsink_writer TO CURRENT_USER;
SET ROLE regress_incsink_writer;
INSERT INTO own VALUES (50, 'written by another role');
RESET ROLE;
DROP TABLE own, own_3;
SELECT incsink_forget_partition('public.own');

-- A user's event trigger finds its tables, whatever is done to leaves.
CREATE TABLE ddl_log (tag text);
CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO ddl_log VALUES (tg_tag); END$$;
CREATE TABLE again (id bigint) PARTITION BY RANGE (id);
SELECT incsink_attach('again');
CREATE EVENT TRIGGER log_ddl ON ddl_command_end EXECUTE FUNCTION log_ddl();
CREATE TABLE again_1 (id bigint, ingest_seq bigint NOT NULL);
ALTER TABLE again ATTACH PARTITION again_1 FOR VALUES FROM (0) TO (100);
INSERT INTO again_1 (id) VALUES (1);
ALTER TABLE again DETACH PARTITION again_1;
ALTER TABLE again ATTACH PARTITION again_1 FOR VALUES FROM (0) TO (100);
INSERT INTO again_1 (id) VALUES (2);
SELECT * FROM stored('again');
SELECT tag, count(*) FROM ddl_log GROUP BY tag ORDER BY tag COLLATE "C";
DROP EVENT TRIGGER log_ddl;
DROP FUNCTION log_ddl();
DROP TABLE ddl_log;

-- Leaves and branches that come while it is not attached are numbered when it is again.
SELECT incsink_detach('again');
CREATE TABLE again_2 (id bigint, ingest_seq bigint NOT NULL);
ALTER TABLE again ATTACH PARTITION again_2 FOR VALUES FROM (100) TO (200);
CREATE TABLE again_b PARTITION OF again FOR VALUES FROM (200) TO (400) PARTITION BY RANGE (id);
CREATE TABLE again_b_1 PARTITION OF again_b FOR VALUES FROM (200) TO (300);
SELECT incsink_attach('again');
INSERT INTO again_2 (id) VALUES (100);
INSERT INTO again_b (id) VALUES (200);
SELECT * FROM stored('again');
SELECT * FROM numbered('again') WHERE doc ~ '[12]00';

-- Without the column no leaf is noted, and no command fails because of it.
BEGIN;
ALTER TABLE again RENAME COLUMN ingest_seq TO another;
CREATE TABLE again_4 PARTITION OF again FOR VALUES FROM (400) TO (500);
ALTER TABLE again DETACH PARTITION again_1;
ROLLBACK;

-- A schema is renamed: its tables are known by their new names at once.
BEGIN;
CREATE SCHEMA regress_incsink_before;
ALTER TABLE again SET SCHEMA regress_incsink_before;
ALTER TABLE again_1 SET SCHEMA regress_incsink_before;
ALTER SCHEMA regress_incsink_before RENAME TO regress_incsink_after;
SELECT schema_name, table_name FROM incsink.partition_def WHERE table_name = 'again';
SELECT schema_name, table_name FROM incsink.leaf_def WHERE table_name LIKE 'again%' ORDER BY 2;
ROLLBACK;

-- A branch that has left does not keep its table from being dropped.
ALTER TABLE again DETACH PARTITION again_b;
DROP TABLE again;
SELECT leaf FROM leaves WHERE leaf LIKE 'again%';
DROP TABLE again_b;
SELECT incsink_forget_partition('public.again');

-- What was restarted is confirmed.
CREATE TABLE confirmed (id bigint) PARTITION BY HASH (id);
CREATE TABLE confirmed_0 PARTITION OF confirmed FOR VALUES WITH (MODULUS 1, REMAINDER 0);
SELECT incsink_attach('confirmed');
INSERT INTO confirmed SELECT generate_series(1, 5);
SELECT count(*) FROM numbered('confirmed');
SELECT pg_get_serial_sequence('confirmed', 'ingest_seq') AS sequence \gset
ALTER SEQUENCE :sequence RESTART;
SELECT * FROM incsink_read_since('confirmed');
SELECT incsink_confirm_sequence('confirmed');
INSERT INTO confirmed VALUES (6);
SELECT * FROM stored('confirmed');
DROP TABLE confirmed;
SELECT incsink_forget_partition('public.confirmed');

-- What a leaf held is counted when it is dropped, whatever was done to it before.
CREATE TABLE counted (id int) PARTITION BY LIST (id);
CREATE TABLE counted_1 PARTITION OF counted FOR VALUES IN (1);
SELECT incsink_attach('counted');
SELECT incsink_create_sink('behind', 'http://localhost:1/x', tables => '{counted}', enabled => false);
INSERT INTO counted SELECT 1 FROM generate_series(1, 10);
REINDEX TABLE CONCURRENTLY counted_1;
INSERT INTO counted SELECT 1 FROM generate_series(1, 7);
DROP TABLE counted_1;
SELECT table_name, row_count FROM incsink.loss WHERE table_name = 'counted_1';
SELECT incsink_drop_sink('behind'), incsink_detach('counted', drop_column => true);
DROP TABLE counted;

-- Without a tree the event triggers are silent, and other partitioned tables are nobody's business.
CREATE TABLE other (id int) PARTITION BY LIST (id);
CREATE TABLE other_1 PARTITION OF other FOR VALUES IN (1);
INSERT INTO other VALUES (1);
COPY other FROM stdin;
1
\.
ALTER TABLE other DETACH PARTITION other_1;
ALTER TABLE other ATTACH PARTITION other_1 FOR VALUES IN (1);
DROP TABLE other;
SELECT * FROM leaves;
SELECT incsink_ddl_end();
DROP EXTENSION incsink CASCADE;
CREATE TABLE other (id int) PARTITION BY LIST (id);
DROP TABLE other;

SET client_min_messages = warning;
DROP SCHEMA regress_incsink_tree;
DROP TABLE regions;
DROP FUNCTION numbered, stored;
DROP VIEW guards;
DROP OWNED BY regress_incsink_tree, regress_incsink_writer;
DROP ROLE regress_incsink_tree, regress_incsink_writer;
