-- Options of sinks: every one of the table, at and beyond its bounds.
SET client_min_messages = error;
CREATE EXTENSION incsink;
RESET client_min_messages;

-- What becomes of a sink with these options; nothing is left behind.
CREATE FUNCTION try_options(kind text, options jsonb) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM incsink_create_sink('tried',
		CASE kind WHEN 'blob' THEN 'file:///tmp/incsink_regress' ELSE 'http://localhost/x' END,
		options => options, enabled => false);
	PERFORM incsink_drop_sink('tried');
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''), NULLIF(hint, ''));
END $$;

-- "5min" in milliseconds, "4MB" in bytes.
CREATE FUNCTION base_units(amount text, type text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT CASE WHEN type = 'duration'
			THEN (extract(epoch FROM regexp_replace(amount, '^0$', '0s')::interval) * 1000)::bigint
		WHEN type = 'size' THEN pg_size_bytes(amount)
		ELSE amount::bigint END;
$$;

\a\t
-- The table itself.
SELECT * FROM incsink_options() ORDER BY kind DESC, name COLLATE "C";
-- The same as doc/reference.md shows it; test/t/900_documentation.pl compares the two.
SELECT format('| `%s` | %s | %s | %s | %s | %s |', name,
	string_agg(kind, ', ' ORDER BY kind DESC), max(type),
	CASE WHEN count(DISTINCT default_value) = 1 THEN regexp_replace('`' || max(default_value) || '`', '^``$', '')
		ELSE string_agg(format('`%s` (%s)', default_value, kind), ', ' ORDER BY kind DESC) END,
	COALESCE(max(min || ' to ' || max), ''), max(description))
FROM incsink_options() GROUP BY name ORDER BY name COLLATE "C";
SELECT count(*) > 0 AND bool_and(kind = 'blob') FROM incsink_options('blob');
SELECT count(*) > 0 AND bool_and(kind = 'forward') FROM incsink_options('forward');

-- A default may be written out.
SELECT kind, name, try_options(kind, jsonb_build_object(name,
		CASE type WHEN 'headers' THEN default_value::jsonb ELSE to_jsonb(default_value) END))
FROM incsink_options() ORDER BY 1, 2;

-- Numbers: lowest, highest, the same as bare numbers, below, above.
SELECT o.kind, o.name, c.what, try_options(o.kind, jsonb_build_object(o.name, c.value)
		|| CASE o.name WHEN 'retry_initial' THEN '{"retry_max": "1d"}'::jsonb
			WHEN 'retry_max' THEN '{"retry_initial": "10ms"}' ELSE '{}' END)
FROM incsink_options() AS o,
	base_units(min, type) AS lowest, base_units(max, type) AS highest,
	LATERAL (VALUES (1, 'lowest', to_jsonb(min)), (2, 'highest', to_jsonb(max)),
		(3, 'lowest bare', to_jsonb(lowest)), (4, 'highest bare', to_jsonb(highest)),
		(5, 'below', to_jsonb(lowest - 1)), (6, 'above', to_jsonb(highest + 1)))
		AS c (nr, what, value)
WHERE o.min IS NOT NULL
ORDER BY o.kind, o.name, c.nr;

-- Values of a wrong type.
SELECT o.kind, o.name, c.value, try_options(o.kind, jsonb_build_object(o.name, c.value))
FROM incsink_options() AS o,
	(VALUES (jsonb 'true'), ('[]'), ('{"a": 1}'), ('"?"'), ('1.5')) AS c (value)
WHERE c.value <> '1.5' OR o.type NOT IN ('duration', 'size')
ORDER BY o.kind, o.name, c.value;

-- An option of the other kind; a name that is nearly right, one that is not.
SELECT DISTINCT ON (o.name) o.name, try_options(k.kind, jsonb_build_object(o.name, '1'))
FROM incsink_options() AS o, (VALUES ('forward'), ('blob')) AS k (kind)
WHERE NOT EXISTS (SELECT FROM incsink_options(k.kind) AS x WHERE x.name = o.name);
SELECT name, try_options(kind, jsonb_build_object(overlay(name PLACING '' FROM 2 FOR 1), '1'))
FROM incsink_options('forward') ORDER BY 1;
SELECT try_options('forward', '{"speed": 1}');
SELECT try_options('forward', '{"": 1}');
SELECT try_options('forward', jsonb_build_object(repeat('x', 1000), 1)) ~ 'unknown sink option';

-- Units.
SELECT value, try_options('forward', jsonb_build_object('flush_bytes', value))
FROM (VALUES ('4096'), ('4096B'), ('4kB'), (' 4 kB '), ('1.5MB'), ('0.5GB'), ('4KB'), ('4s'), ('4MBx'),
	(''), ('-4MB'), ('1e400'), ('NaN'), ('Infinity'), ('0x1000')) AS v (value);
SELECT value, try_options('forward', jsonb_build_object('request_timeout', value))
FROM (VALUES ('1000'), ('1000ms'), ('1s'), ('1.5s'), ('2min'), ('1h'), ('1d'), ('1us'), ('1week'),
	('4kB')) AS v (value);
SELECT value, try_options('forward', jsonb_build_object('flush_rows', value))
FROM (VALUES (jsonb '1000'), ('"1000"'), ('1e3'), ('1000.0'), ('1000.5'), ('"10k"'),
	('99999999999999999999')) AS v (value);

-- Words are taken in any case.
SELECT try_options('forward', '{"method": "put", "start": "NOW", "format": "NDJSON"}');
SELECT try_options('forward', '{"method": "GET"}');
SELECT try_options('forward', '{"method": "PSOT"}');

-- Together.
SELECT try_options('forward', '{"retry_initial": "10min"}');
SELECT try_options('forward', '{"retry_initial": "10s", "retry_max": "10s"}');

-- Formats and compression.
SELECT try_options('forward', '{"format": "CloudEvents", "compression": "GZIP", "compression_level": 9}');
SELECT try_options('blob', '{"format": "json"}');
SELECT try_options('blob', '{"compression": "gzip"}');
SELECT source, try_options('forward', jsonb_build_object('cloudevents_source', source))
FROM (VALUES (''), ('urn:x:{dataset}'), ('/{sink}/{since}'), ('/{secret:a}'), ('/a b'), ('/é'), ('/{{x}}'), ('/{sink')) AS s (source);
SELECT type, try_options('forward', jsonb_build_object('cloudevents_type', type))
FROM (VALUES (''), ('org.example.row.v1'), ('a b'), ('é')) AS t (type);

-- Not an object; null means the default.
SELECT try_options('forward', '[]');
SELECT try_options('forward', '1');
SELECT try_options('forward', 'null');
SELECT try_options('forward', '{"flush_rows": null}');
SELECT try_options('forward', '{"flush_row": null}');

-- Headers.
SELECT headers, try_options('forward', jsonb_build_object('headers', headers))
FROM (VALUES (jsonb '{"X-Team": "a b", "x.y!#$%&''*+-.^_`|~1": ""}'),
	('{"X-Batch": "{batch_id} {dataset} {source} {destination} {since} {until} {epoch} {{}}"}'),
	('{"X A": "b"}'), ('{"": "b"}'), ('{"X:": "b"}'), ('{"Ä": "b"}'),
	('{"X": "a\nb"}'), ('{"X": "a\r"}'), ('{"X": "a\u0001"}'), ('{"X": "a\tb"}'), ('{"X": "ä"}'),
	('{"X": null}'), ('{"X": 1}'), ('{"X": {"a": "b"}}'),
	('{"Content-Length": "1"}'), ('{"HOST": "x"}'), ('{"idempotency-key": "x"}'),
	('{"Incsink-Sink": "x"}'), ('{"incsink-anything": "x"}'), ('{"Content-Digest": "x"}'),
	('{"Transfer-Encoding": "x"}'), ('{"Content-Type": "x"}'), ('{"Expect": "x"}'),
	('{"X-A": "1", "x-a": "2"}'),
	('{"Authorization": "Basic eDp5"}'), ('{"authorization": "Basic {secret:basic}"}'),
	('{"Cookie": "a=b"}'), ('{"X": "{secret:Pass Word}"}'), ('{"X": "{secret:}"}'),
	('{"X": "{datset}"}'), ('{"X": "{time}"}'), ('{"X": "{date}"}'), ('{"X": "{"}'), ('{"X": "}"}'),
	('{"X": "{a{b}}"}')) AS v (headers);

-- Keys.
SELECT key, try_options('blob', jsonb_build_object('key', key))
FROM (VALUES ('{dataset}/{source}/{epoch}-{since}-{until}'),
	('{dataset}={source}, {sink}/{hour}/{instance}/{destination}/{date} {epoch}.{since}.{until}.{ext}'),
	('a{{b}}/{dataset}/{source}/{epoch}/{since}-{until}'),
	(''), ('x'), ('{dataset}/{source}/{epoch}/{since}'), ('{dataset}/{source}/{epoch}/{until}'),
	('{dataset}/{source}/{since}-{until}'), ('{dataset}/{epoch}-{since}-{until}'),
	('{source}/{epoch}-{since}-{until}'),
	('{dataset}{source}/{epoch}-{since}-{until}'), ('{dataset}-{source}/{epoch}-{since}-{until}'),
	('{dataset}/{sink}_{source}/{epoch}-{since}-{until}'),
	('/{dataset}/{source}/{epoch}-{since}-{until}'), ('{dataset}/{source}/{epoch}-{since}-{until}/'),
	('{dataset}//{source}/{epoch}-{since}-{until}'), ('../{dataset}/{source}/{epoch}-{since}-{until}'),
	('{dataset}/../{source}/{epoch}-{since}-{until}'), ('./{dataset}/{source}/{epoch}-{since}-{until}'),
	('{dataset}/.{instance}./{source}/{epoch}-{since}-{until}'),
	('{dataset}/.{source}/{epoch}-{since}-{until}'), ('a\b/{dataset}/{source}/{epoch}-{since}-{until}'),
	(E'a\nb/{dataset}/{source}/{epoch}-{since}-{until}'),
	('{dataset}/{source}/{epoch}-{since}-{until}.{extension}'), ('{batch_id}'), ('{untill}'),
	('{dataset}/{source}/{epoch}-{since}-{until}{'), ('{dataset}/{source}/{epoch}-{since}-{until}}'))
	AS v (key);


SELECT * FROM incsink_options('pull');

-- Attached tables have none.
\a\t
CREATE TABLE t (id int);
SELECT incsink_attach('t', options => '{"retain_for": "1d"}');

DROP TABLE t;
DROP FUNCTION try_options, base_units;
DROP EXTENSION incsink CASCADE;
