-- Sinks: create, alter, drop, pause, resume; tables with columns and filters; flush.
SET client_min_messages = error;
CREATE EXTENSION incsink;
RESET client_min_messages;

CREATE TABLE logs (id bigint, level text, body text, at timestamptz, secret text);
CREATE TABLE orders (id bigint);
CREATE TABLE other (id bigint);
SET client_min_messages = warning;
SELECT incsink_attach('logs');
SELECT incsink_attach('orders', dataset => 'shop');
RESET client_min_messages;

-- What the catalog holds, without what is drawn at random.
CREATE VIEW exported AS
SELECT s.name AS sink, p.table_name, t.columns, t.filter, t.start,
	t.epoch ~ '^\d+-[0-9a-f]{8}$' AS epoch_ok, split_part(t.epoch, '-', 1) AS epoch_number,
	w.epoch = t.epoch AS same_epoch, w.seq
FROM incsink.sink_table_def t JOIN incsink.sink_def s USING (sink_id)
	LEFT JOIN incsink.partition_def p USING (partition_id)
	LEFT JOIN incsink.watermark w USING (sink_id, partition_id)
ORDER BY s.name COLLATE "C", p.table_name COLLATE "C";

-- Nothing is exported that is not listed.
SELECT incsink_create_sink('plain', 'http://localhost:1/ingest', enabled => false);
SELECT incsink_create_sink('listed', 'http://localhost:1/ingest', '{logs}', '{shop, later}',
	'{"flush_rows": 10, "retry_max": null}', enabled => false);
SELECT incsink_create_sink('files', 'file:///tmp/incsink_regress', tables => '{logs}',
	datasets => '{public.logs}', options => '{"start": "now"}', enabled => false);
SELECT sink, kind, url, credentials, owner = current_user AS mine, options, enabled, datasets
FROM incsink.sinks ORDER BY sink COLLATE "C";
SELECT * FROM exported;

-- A table that is attached later joins by its dataset.
CREATE TABLE later1 (id bigint);
SET client_min_messages = warning;
SELECT incsink_attach('later1', dataset => 'later');
RESET client_min_messages;
SELECT * FROM exported WHERE table_name = 'later1';

-- Names.
SELECT incsink_create_sink('plain', 'http://localhost/x');
SELECT incsink_create_sink('', 'http://localhost/x');
SELECT incsink_create_sink(repeat('x', 64), 'http://localhost/x');
SELECT incsink_create_sink(E'a\nb', 'http://localhost/x');

-- Nulls.
SELECT incsink_create_sink(NULL, 'http://localhost/x');
SELECT incsink_create_sink('x', NULL);
SELECT incsink_create_sink('x', 'http://localhost/x', tables => NULL);
SELECT incsink_create_sink('x', 'http://localhost/x', tables => '{NULL}');
SELECT incsink_create_sink('x', 'http://localhost/x', datasets => NULL);
SELECT incsink_create_sink('x', 'http://localhost/x', options => NULL);
SELECT incsink_create_sink('x', 'http://localhost/x', enabled => NULL);
SELECT incsink_alter_sink(NULL);
SELECT incsink_drop_sink(NULL);
SELECT incsink_drop_sink('x', NULL);
SELECT incsink_add_table(NULL, 'logs');
SELECT incsink_add_table('plain', NULL);
SELECT incsink_remove_table(NULL, 'logs');
SELECT incsink_remove_table('plain', NULL);
SELECT incsink_pause_sink(NULL);
SELECT incsink_resume_sink(NULL);
SELECT incsink_flush(NULL);
SELECT incsink_flush('plain', NULL);

-- URLs.
CREATE FUNCTION try_url(url text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM incsink_create_sink('tried', url, enabled => false);
	PERFORM incsink_drop_sink('tried');
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''), NULLIF(hint, ''));
END $$;
\a\t
SELECT url, try_url(url)
FROM (VALUES ('http://localhost'), ('https://collector.example.com:8443/ingest?tenant=a'),
	('HTTP://LOCALHOST/x'), ('http://[::1]:8080/x'), ('http://127.0.0.1/a%20b'),
	('http://localhost/{dataset}/{source}?b={batch_id}&e={epoch}&r={since}-{until}&d={destination}'),
	('http://localhost/{datset}'), ('http://localhost/{secret:token}'), ('http://localhost/{'),
	('http://{dataset}/x'), (''), ('localhost/x'), ('//localhost/x'), ('ftp://localhost/x'), ('s3://bucket/x'),
	('http:/localhost/x'), ('http:///x'), ('http://user:pass@localhost/x'), ('http://user@localhost/x'),
	('http://localhost:/x'), ('http://localhost:0/x'), ('http://localhost:65536/x'),
	('http://localhost:8o/x'), ('http://local host/x'), ('http://localhost/a b'), ('http://localhost/ä'),
	('http://locälhost/'), ('http://localhost\@evil/'), ('http://localhost#evil/'), ('http://localhost/x#y'),
	('http://localhost/%'), ('http://localhost/%0g'), ('http://localhost/%00'),
	('http://localhost/a/../b'), ('http://localhost/..'), ('http://localhost/a/./b'),
	('http://localhost/a/%2e%2E/b'), ('http://localhost/a%2f..%2fb'), ('http://localhost/a%5C..'),
	('http://localhost/a..b/.c'), ('http://localhost/.{destination}./b'), ('http://[::1/x'), ('http://[::1]x/'), ('http://[fe80::1%25lo]/'),
	(E'http://localhost/a\r\nX: y'),
	('file:///tmp/incsink_regress'), ('file:///tmp/incsink_regress/'), ('file:///tmp/a%20b'),
	('file://localhost/tmp/x'), ('file:/tmp/x'), ('file:///'), ('file://'), ('file:///tmp//x'),
	('file:///tmp/../x'), ('file:///tmp/x?y'), ('file:///tmp/{dataset}'), ('file:///tmp/a%2Fb'))
	AS v (url);
SELECT try_url('file://' || current_setting('data_directory'));
SELECT try_url('file://' || current_setting('data_directory') || '/incsink/files');
\a\t

-- Alter: options are merged, what is not given stays.
SELECT incsink_alter_sink('listed', options => '{"flush_rows": 20, "method": "PUT"}');
SELECT incsink_alter_sink('listed', options => '{"flush_rows": null, "headers": {"X-A": "1"}}');
SELECT options, url FROM incsink.sinks WHERE sink = 'listed';
SELECT incsink_alter_sink('listed');
SELECT incsink_alter_sink('listed', options => '{"flush_row": null}');
SELECT incsink_alter_sink('listed', options => '{"flush_rows": 0}');
SELECT incsink_alter_sink('listed', options => '{"key": "x"}');
SELECT incsink_alter_sink('none', options => '{}');
SELECT options FROM incsink.sinks WHERE sink = 'listed';

-- A new URL: keep or restart.
UPDATE incsink.watermark SET seq = 7, rows_exported = 5 WHERE sink_id =
	(SELECT sink_id FROM incsink.sink_def WHERE name = 'listed');
INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination, epoch, since_seq,
	until_seq, row_count, byte_count, digests, encoding)
SELECT 1000000 + partition_id, 'b', sink_id, partition_id, '', epoch, 7, 9, 2, 20, '{}', '{}'
FROM incsink.sink_table_def JOIN incsink.sink_def USING (sink_id) WHERE name = 'listed';
SELECT incsink_alter_sink('listed', 'http://localhost:2/ingest');
SELECT incsink_alter_sink('listed', 'http://localhost:2/ingest', watermark => 'no');
SELECT incsink_alter_sink('listed', watermark => 'keep');
SELECT incsink_alter_sink('listed', 'file:///tmp/incsink_regress', watermark => 'keep');
SELECT incsink_alter_sink('listed', 'http://localhost:1/ingest');
SELECT incsink_alter_sink('listed', 'http://localhost:2/ingest', watermark => 'keep');
SELECT url FROM incsink.sinks WHERE sink = 'listed';
SELECT * FROM exported WHERE sink = 'listed';
SELECT count(*) FROM incsink.intent;
SELECT incsink_alter_sink('listed', 'http://localhost:3/ingest', watermark => 'restart');
SELECT url FROM incsink.sinks WHERE sink = 'listed';
SELECT * FROM exported WHERE sink = 'listed';
SELECT sum(rows_exported) FROM incsink.watermark;
SELECT count(*) FROM incsink.intent;
-- again, at the same place
SELECT incsink_alter_sink('listed', 'http://localhost:3/ingest', watermark => 'restart');
SELECT table_name, epoch_number, seq FROM exported WHERE sink = 'listed';

-- Pause and resume; resuming forgets a halt, and so does altering, but not the last error.
INSERT INTO incsink.delivery_state (sink_id, partition_id, destination, state, reason, hint, failures, retry_at,
	last_error, last_error_time)
SELECT sink_id, partition_id, '', 'halted', 'r', 'h', 7, now(), 'e', now()
FROM incsink.sink_table_def JOIN incsink.sink_def USING (sink_id) WHERE name IN ('listed', 'files');
SELECT incsink_pause_sink('files');
SELECT count(*) FROM incsink.delivery_state WHERE state = 'halted';
SELECT incsink_resume_sink('files');
SELECT incsink_pause_sink('files');
SELECT DISTINCT s.name, d.state, d.reason, d.hint, d.failures, d.retry_at, d.last_error
FROM incsink.delivery_state AS d JOIN incsink.sink_def AS s USING (sink_id) WHERE s.name = 'files';
SELECT incsink_alter_sink('listed');
SELECT count(*) FROM incsink.delivery_state WHERE state = 'halted';
SELECT incsink_pause_sink('plain');
SELECT incsink_resume_sink('plain');
SELECT incsink_resume_sink('plain');
SELECT enabled FROM incsink.sinks WHERE sink = 'plain';
SELECT incsink_pause_sink('plain');
SELECT enabled FROM incsink.sinks WHERE sink = 'plain';
SELECT incsink_pause_sink('none');
SELECT incsink_resume_sink('none');

-- Tables.
SELECT incsink_add_table('plain', 'orders');
SELECT incsink_add_table('plain', 'orders');
SELECT incsink_add_table('plain', 'other');
SELECT incsink_add_table('plain', 'pg_class');
SELECT incsink_add_table('none', 'logs');
SELECT incsink_create_sink('x', 'http://localhost/x', '{other}');
SELECT incsink_create_sink('x', 'http://localhost/x', '{logs, logs}');
SELECT incsink_remove_table('plain', 'logs');
SELECT incsink_remove_table('plain', 'other');
SELECT incsink_remove_table('none', 'orders');
SELECT incsink_remove_table('plain', 'orders');
SELECT * FROM exported WHERE sink = 'plain';

-- Column lists.
SELECT incsink_add_table('plain', 'logs', columns => '{}');
SELECT incsink_add_table('plain', 'logs', columns => '{NULL}');
SELECT incsink_add_table('plain', 'logs', columns => '{id, nothing}');
SELECT incsink_add_table('plain', 'logs', columns => '{id, ctid}');
SELECT incsink_add_table('plain', 'logs', columns => '{id, body, id}');
SELECT incsink_add_table('plain', 'logs', columns => '{id, ingest_seq}');
SELECT incsink_add_table('plain', 'logs', columns => '{body, id}');
SELECT * FROM exported WHERE sink = 'plain';
SELECT incsink_remove_table('plain', 'logs');

-- Row filters are stored so that they mean the same whatever the settings are.
CREATE FUNCTION try_filter(relation regclass, filter text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	result text;
BEGIN
	PERFORM public.incsink_add_table('plain', relation, filter => filter);
	SELECT 'stored: ' || e.filter INTO result FROM public.exported e WHERE e.sink = 'plain';
	PERFORM public.incsink_remove_table('plain', relation);
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	-- what the parser adds of its own differs between versions
	IF sqlstate = '42883' THEN detail := ''; END IF;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''));
END $$;
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE DOMAIN even AS int CHECK (VALUE % 2 = 0);
CREATE TABLE typed (m mood, e even, d date, i interval, f float8, b bytea, n numeric, a int[], j jsonb,
	c text COLLATE "C", ts timestamp);
SET client_min_messages = warning;
SELECT incsink_attach('typed');
RESET client_min_messages;
CREATE FUNCTION mine(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR public.=== (FUNCTION = texteq, LEFTARG = text, RIGHTARG = text);
\a\t
SELECT filter, try_filter('logs', filter)
FROM (VALUES ('id > 10'), ('level IN (''warn'', ''error'') AND body IS NOT NULL'),
	('"level" = ''x'' OR NOT (id = 1)'), ('lower(level) LIKE ''e%'''), ('true'), ('false'),
	('at >= ''2024-05-01 00:00''::timestamptz'), ('coalesce(id, 0) <> 3'),
	('CASE WHEN id > 1 THEN level = ''a'' ELSE false END'), ('logs.id = 1'), ('public.logs.id = 1'),
	('level COLLATE "C" > ''a'''), ('length(body) + 1 > 5'),
	(''), ('id'), ('id >'), ('id > 1; DROP TABLE logs'), ('id > 1) OR (true'), ('id = 1 FROM other'),
	('id = 1 WHERE true'), ('id = 1 AS x'), ('id = 1, true'), ('*'), ('nothing = 1'), ('other.id = 1'),
	('id = $1'), ('id = (SELECT 1)'), ('EXISTS (SELECT FROM other)'), ('count(*) > 1'),
	('row_number() OVER () > 1'), ('generate_series(1, 2) > 1'), ('mine(level)'), ('public.mine(level)'),
	('level OPERATOR(public.===) ''a'''), ('random() > 0.5'), ('at > now()'), ('at > current_timestamp'),
	('current_user = level'), ('id = nextval(''x'')'), ('ctid = ''(0,1)'''), ('tableoid = 1'),
	('logs IS NULL'), ('ingest_seq > 5'), ('at::text = ''x'''), ('id::text = ''1'''))
	AS v (filter);
SELECT filter, try_filter('typed', filter)
FROM (VALUES ('d > ''2024-03-04'''), ('ts > ''2024-03-04 05:06'''), ('i > ''-1 day +2 hours'''),
	('f > 0.1'), ('b = ''\x00ff'''), ('n > 1.50'), ('a[1] = 2'), ('a && ''{1,2}'''), ('j ->> ''k'' = ''v'''),
	('c = ''x'''), ('m = ''good'''), ('m IS NULL'), ('e = 2'), ('n::public.even = 2'),
	('ROW(n, f) = ROW(1, 2)'), ('(n, f) < (1, 2)'), ('GREATEST(n, 1) > 2'), ('n IS DISTINCT FROM 2'),
	('NULLIF(n, 1) = 2'), ('n = ANY (''{1,2}'')'))
	AS v (filter);
SET DateStyle = 'German';
SET IntervalStyle = 'sql_standard';
SET TimeZone = 'Asia/Tokyo';
SET search_path = '';
SELECT public.try_filter('public.typed', filter)
FROM (VALUES ('d > ''04.03.2024'''), ('ts > ''04.03.2024 05:06'''), ('i > ''-1 2:00:00'''),
	('d = ''2024-01-02''::pg_catalog.date')) AS v (filter);
SELECT public.try_filter('public.logs', 'at > ''01.05.2024 00:00''');
RESET DateStyle;
RESET IntervalStyle;
RESET TimeZone;
RESET search_path;
\a\t

-- An error inside a filter is shown there.
SELECT incsink_add_table('plain', 'logs', filter => 'id > 1 AND AND');
SELECT incsink_add_table('plain', 'logs', filter => 'id > 1 AND nothing');

-- Start.
SELECT incsink_add_table('plain', 'logs', start => 'tomorrow');
INSERT INTO logs (id) SELECT generate_series(1, 5);
SELECT incsink_add_table('plain', 'logs', start => 'now');
SELECT incsink_add_table('plain', 'orders', start => 'beginning');
SELECT table_name, start, seq FROM exported WHERE sink = 'plain';
SELECT incsink_remove_table('plain', 'logs');
-- own rows are not committed yet: they will be exported
BEGIN;
INSERT INTO logs (id) VALUES (6);
SELECT incsink_add_table('plain', 'logs', start => 'now');
COMMIT;
SELECT table_name, start, seq FROM exported WHERE sink = 'plain';
-- restarting it goes to the present
SELECT incsink_alter_sink('plain', 'http://localhost:1/ingest', watermark => 'restart');
SELECT table_name, start, epoch_number, seq FROM exported WHERE sink = 'plain';

-- Without a key a table that had rows cannot be exported from its beginning.
INSERT INTO other VALUES (1);
SET client_min_messages = warning;
SELECT incsink_attach('other', dataset => 'shop2');
RESET client_min_messages;
SELECT incsink_add_table('plain', 'other');
SELECT incsink_create_sink('x', 'http://localhost/x', datasets => '{shop2}');
SELECT incsink_add_table('plain', 'other', start => 'now');
SELECT table_name, start, seq FROM exported WHERE sink = 'plain' AND table_name = 'other';
CREATE TABLE full2 (id int);
INSERT INTO full2 VALUES (1);
SELECT incsink_create_sink('y', 'http://localhost/x', datasets => '{shop3}', enabled => false);
SELECT incsink_attach('full2', dataset => 'shop3');
SELECT incsink_alter_sink('y', options => '{"start": "now"}');
SET client_min_messages = warning;
SELECT incsink_attach('full2', dataset => 'shop3');
RESET client_min_messages;
SELECT table_name, start, seq FROM exported WHERE sink = 'y';

-- With one it can: before the first row, or behind the last.
CREATE TABLE full3 (a int, b text, PRIMARY KEY (a, b));
INSERT INTO full3 VALUES (1, 'x'), (2, 'y');
SELECT incsink_create_sink('backlog', 'http://localhost/x', datasets => '{shop4}', enabled => false);
SET client_min_messages = warning;
SELECT incsink_attach('full3', dataset => 'shop4');
RESET client_min_messages;
SELECT incsink_add_table('y', 'full3', start => 'now');
SELECT incsink_add_table('plain', 'full3', start => 'beginning');
CREATE VIEW positions AS
SELECT s.name, t.start, split_part(t.epoch, '-', 1) AS epoch_number, w.seq, w.n, w.key, w.sent_seq, w.sent_n
FROM incsink.sink_table_def t JOIN incsink.sink_def s USING (sink_id)
	JOIN incsink.partition_def p USING (partition_id) JOIN incsink.watermark w USING (sink_id, partition_id)
WHERE p.dataset = 'shop4' ORDER BY s.name COLLATE "C";
SELECT * FROM positions;
UPDATE incsink.watermark SET n = 1, key = '["1", "x"]', sent_n = 1
WHERE partition_id = (SELECT partition_id FROM incsink.partition_def WHERE dataset = 'shop4');
SELECT incsink_alter_sink('plain', 'http://localhost:1/ingest', watermark => 'restart');
SELECT incsink_alter_sink('y', 'http://localhost/x', watermark => 'restart');
SELECT incsink_alter_sink('backlog', 'http://localhost/y', watermark => 'keep');
SELECT * FROM positions;

-- Long names: cut and hashed in object names.
SET client_min_messages = warning;
SELECT incsink_create_sink('long', 'file:///tmp/incsink_regress', enabled => false,
	options => '{"key": "{dataset}={source}={sink}={epoch}={since}={until}"}');
CREATE TABLE "ääääääääääääääääääääääääääääääÄ" (id int);
SELECT incsink_attach('"ääääääääääääääääääääääääääääääÄ"', source => repeat('x', 100));
RESET client_min_messages;
SELECT incsink_add_table('long', '"ääääääääääääääääääääääääääääääÄ"');

-- Flush refuses what it would wait for in vain.
SELECT incsink_flush('none');
SELECT incsink_flush('plain');
SELECT incsink_flush('plain', '-1 second');
SELECT incsink_create_sink('empty', 'http://localhost:1/x');
SELECT incsink_flush('empty');
BEGIN;
INSERT INTO orders VALUES (1);
SELECT incsink_flush('empty');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT incsink_flush('empty');
ROLLBACK;
-- the numbers of a rolled back transaction hold nothing up, other rows do
SELECT incsink_add_table('empty', 'orders');
SELECT incsink_flush('empty', '10 seconds');
INSERT INTO orders VALUES (2);
SELECT incsink_flush('empty', '200 milliseconds');

-- Drop.
SELECT incsink_drop_sink('none');
SELECT incsink_drop_sink('none', if_exists => true);
SELECT incsink_drop_sink(name) FROM incsink.sink_def ORDER BY name COLLATE "C";
SELECT (SELECT count(*) FROM incsink.sink_def), (SELECT count(*) FROM incsink.sink_dataset_def),
	(SELECT count(*) FROM incsink.sink_table_def), (SELECT count(*) FROM incsink.watermark),
	(SELECT count(*) FROM incsink.intent), (SELECT count(*) FROM incsink.delivery_state),
	(SELECT count(*) FROM incsink.delivery_error);

DROP TABLE logs, orders, other, later1, typed, full2, full3, "ääääääääääääääääääääääääääääääÄ";
DROP OPERATOR public.=== (text, text);
DROP FUNCTION mine, try_filter, try_url;
DROP VIEW exported, positions;
DROP TYPE mood;
DROP DOMAIN even;
DROP EXTENSION incsink CASCADE;
