SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE ROLE regress_incsink_reader;

-- Leaves of several levels, whose columns stand in another order, or where a dropped
-- one stood; each has a backlog of its own key order.
CREATE TABLE logs (id int NOT NULL, gone int, body text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
ALTER TABLE logs DROP COLUMN gone;
CREATE TABLE logs_low PARTITION OF logs FOR VALUES FROM (0) TO (100);
CREATE TABLE logs_mid (body text, dropped int, id int NOT NULL);
ALTER TABLE logs_mid DROP COLUMN dropped;
CREATE UNIQUE INDEX ON logs_mid (id DESC);
ALTER TABLE logs ATTACH PARTITION logs_mid FOR VALUES FROM (100) TO (200);
CREATE TABLE logs_high PARTITION OF logs FOR VALUES FROM (200) TO (400) PARTITION BY RANGE (id);
CREATE TABLE logs_200 PARTITION OF logs_high FOR VALUES FROM (200) TO (300);
CREATE TABLE logs_300 PARTITION OF logs_high FOR VALUES FROM (300) TO (400);
CREATE TABLE logs_rest PARTITION OF logs DEFAULT;
INSERT INTO logs SELECT i, 'old ' || i FROM generate_series(310, 10, -100) i;
INSERT INTO logs SELECT i, 'old ' || i FROM generate_series(311, 11, -100) i;
INSERT INTO logs VALUES (1000, 'old');
SELECT incsink_attach('logs');
SELECT key_columns, last_key FROM incsink.backlog_def;
SELECT data, token - 'p' AS token FROM incsink_read_since('logs');

-- What comes then has numbers of one sequence, whichever leaf it goes to.
INSERT INTO logs VALUES (20, 'new'), (320, 'new'), (120, 'new'), (220, 'new'), (21, 'new'), (1001, 'new');
INSERT INTO logs_mid (id, body) VALUES (130, 'into the leaf');
INSERT INTO logs_300 (id, body) VALUES (330, 'into the leaf');
SELECT data, token - 'p' AS token FROM incsink_read_since('logs', '{"v": 1, "seq": "0", "key": []}' || jsonb_build_object('p', incsink_horizon('logs')->>'p'));
SELECT data, token - 'p' AS token FROM incsink_read_since(NULL::logs) OFFSET 9;
SELECT count(*), bool_and(found = 17 - n) AS all_good FROM (
	SELECT n, (SELECT count(*) FROM incsink_read_since('logs', token)) AS found
	FROM incsink_read_since('logs') WITH ORDINALITY AS r(data, token, n)) t;
-- Rows that move between leaves keep their number, and come once.
UPDATE logs SET id = 150 WHERE id = 20;
UPDATE logs SET id = 22 WHERE id = 320;
DELETE FROM logs WHERE id = 220;
SELECT data->>'id' AS id, token->>'seq' AS seq FROM incsink_read_since('logs') WHERE token->>'seq' <> '0';

-- Nothing keeps the numbers of leaves apart: no token stands between two equal ones.
CREATE FUNCTION read_on(relation regclass, rows int, since jsonb DEFAULT NULL) RETURNS TABLE (read int, ids text, token text) LANGUAGE plpgsql AS $$
DECLARE
	next jsonb;
BEGIN
	read := 0;
	LOOP
		read := read + 1;
		SELECT string_agg(r.data->>'id', ' ' ORDER BY n), string_agg(r.token->>'seq', ' ' ORDER BY n), (array_agg(r.token ORDER BY n))[count(*)] INTO ids, token, next
		FROM incsink_read_since(relation, since, max_rows => rows) WITH ORDINALITY AS r(data, token, n);
		EXIT WHEN next IS NULL;
		RETURN NEXT;
		since := next;
	END LOOP;
END $$;
SELECT incsink_horizon('logs') AS token \gset
INSERT INTO logs VALUES (30, 'one'), (230, 'two'), (131, 'three'), (31, 'four');
SET incsink.allow_explicit_seq = on;
INSERT INTO logs (id, body, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (331, 'three again', 11), (1002, 'three once more', 11), (32, 'four again', 12);
RESET incsink.allow_explicit_seq;
SELECT data->>'id' AS id, token->>'seq' AS seq FROM incsink_read_since('logs', :'token');
SELECT * FROM read_on('logs', 1, :'token');
SELECT * FROM read_on('logs', 2, :'token');
SELECT * FROM read_on('logs', 3, :'token');
SELECT * FROM read_on('logs', 5);

-- A leaf that has left is read until it is done, as far as it was part of the tree.
ALTER TABLE logs DETACH PARTITION logs_rest;
ALTER TABLE logs_mid RENAME TO was_mid;
ALTER TABLE logs DETACH PARTITION was_mid;
INSERT INTO was_mid (id, body, ingest_seq) VALUES (132, 'no part of it', 13);
ALTER TABLE logs ADD COLUMN more int DEFAULT 7;
INSERT INTO logs VALUES (33, 'after');
SELECT data, token->>'seq' AS seq FROM incsink_read_since('logs', :'token');
SELECT * FROM read_on('logs', 3);
DROP TABLE logs_rest;
SELECT data->>'id' AS id, token - 'p' AS token FROM incsink_read_since('logs');
ALTER TABLE was_mid ALTER body TYPE varchar;
SELECT count(*) FROM incsink_read_since('logs');
ALTER TABLE was_mid ALTER body TYPE text;
-- What it needs to be read is asked for by its name.
DO $$ BEGIN EXECUTE 'DROP INDEX ' || (SELECT string_agg(indexrelid::regclass::text, ', ') FROM pg_index WHERE indrelid = 'was_mid'::regclass AND indkey[0] = (SELECT attnum FROM pg_attribute WHERE attrelid = 'was_mid'::regclass AND attname = 'ingest_seq')); END $$;
SELECT count(*) FROM incsink_read_since('logs');
CREATE INDEX ON was_mid (ingest_seq) WHERE ingest_seq > 0;
SELECT count(*) FROM incsink_read_since('logs');
BEGIN;
ALTER TABLE was_mid DROP COLUMN ingest_seq;
SELECT count(*) FROM incsink_read_since('logs');
ROLLBACK;

-- Policies of the tree are asked; what is not in it any more is not theirs to show.
GRANT SELECT ON logs TO regress_incsink_reader;
ALTER TABLE logs ENABLE ROW LEVEL SECURITY;
CREATE POLICY most ON logs TO regress_incsink_reader USING (id <> 311);
SET ROLE regress_incsink_reader;
SELECT data->>'id' AS id, token - 'p' AS token FROM incsink_read_since('logs');
SELECT * FROM read_on('logs', 3);
SELECT * FROM read_on('logs', 1, :'token');
RESET ROLE;

-- In another tree it has numbers of that one's, also if they are low enough.
CREATE TABLE others (id int NOT NULL, body text) PARTITION BY RANGE (id);
SELECT incsink_attach('others');
TRUNCATE was_mid;
ALTER TABLE others ATTACH PARTITION was_mid FOR VALUES FROM (100) TO (200);
INSERT INTO others SELECT 140 + g, 'of others' FROM generate_series(1, 3) g;
SELECT data FROM incsink_read_since('others');
SELECT data FROM incsink_read_since('logs') WHERE data->>'body' = 'of others';
SELECT incsink_detach('others');
SELECT incsink_detach('logs', force => true);
DROP TABLE logs, others;
DROP FUNCTION read_on;
DROP EXTENSION incsink CASCADE;
DROP ROLE regress_incsink_reader;
