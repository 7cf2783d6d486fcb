-- Who may do what.
SET client_min_messages = error;
CREATE EXTENSION incsink;
DROP ROLE IF EXISTS regress_incsink_admin, regress_incsink_alice, regress_incsink_bob,
	regress_incsink_monitor, regress_incsink_reader;
RESET client_min_messages;
CREATE ROLE regress_incsink_alice;
CREATE ROLE regress_incsink_bob;
CREATE ROLE regress_incsink_monitor IN ROLE pg_monitor;
CREATE ROLE regress_incsink_reader IN ROLE pg_read_all_data;

-- Functions about sinks that everybody may call.
SELECT p.proname FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	JOIN pg_extension AS e ON e.oid = d.refobjid AND d.deptype = 'e'
WHERE e.extname = 'incsink' AND has_function_privilege('public', p.oid, 'EXECUTE')
	AND p.proname ~ '^incsink_(create|alter|drop|add|remove|pause|resume|flush|verify|options|fdw)'
ORDER BY p.proname COLLATE "C";
-- None runs as its owner with a search path that callers choose.
SELECT p.proname FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	JOIN pg_extension AS e ON e.oid = d.refobjid AND d.deptype = 'e'
WHERE e.extname = 'incsink' AND p.prosecdef
	AND NOT COALESCE(p.proconfig::text ~ 'search_path=pg_catalog, *pg_temp', false);
-- Every function and view says what it does.
SELECT p.proname FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	JOIN pg_extension AS e ON e.oid = d.refobjid AND d.deptype = 'e'
WHERE e.extname = 'incsink' AND obj_description(p.oid, 'pg_proc') IS NULL
ORDER BY p.proname COLLATE "C";
SELECT relname FROM pg_class
WHERE relnamespace = 'incsink'::regnamespace AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL
ORDER BY relname COLLATE "C";

CREATE TABLE logs (id int, body text, secret text);
CREATE TABLE policed (id int);
SET client_min_messages = warning;
SELECT incsink_attach('logs');
SELECT incsink_attach('policed');
RESET client_min_messages;
ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON policed TO regress_incsink_alice;

-- Without a grant: nothing.
SET ROLE regress_incsink_alice;
SELECT incsink_create_sink('a', 'http://localhost:1/x');
SELECT incsink_options();
SELECT incsink_flush('a');
CREATE SERVER s FOREIGN DATA WRAPPER incsink OPTIONS (origin 'http://localhost');
INSERT INTO incsink.sink_def (sink_id, name, kind, url, owner) VALUES (1, 'a', 'forward', 'http://x', 'postgres');
SELECT count(*) FROM incsink.watermark;
SELECT count(*) FROM incsink.status;
RESET ROLE;

-- With a grant, but no prefix is allowed.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_incsink_alice, regress_incsink_bob;
SET ROLE regress_incsink_alice;
SELECT incsink_create_sink('a', 'http://localhost:1/x');
SET incsink.allowed_url_prefixes = 'http://localhost:1';
RESET ROLE;

-- Prefixes.
SET incsink.allowed_url_prefixes = 'http://good.example.com, https://Good.example.com:8443/in/a , http://localhost:1/,
	file:///tmp/incsink_regress, http://query.example.com/a?b, nonsense, http://[::1]';
CREATE FUNCTION try_url(url text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	PERFORM incsink_create_sink('tried', url, enabled => false);
	PERFORM incsink_drop_sink('tried');
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''));
END $$;
SET ROLE regress_incsink_alice;
\a\t
SELECT url, try_url(url)
FROM (VALUES ('http://good.example.com'), ('http://good.example.com/'), ('http://good.example.com/x/{dataset}?y'),
	('HTTP://GOOD.example.COM:80/x'), ('https://good.example.com:8443/in/a'), ('https://good.example.com:8443/in/a/b'),
	('https://good.example.com:8443/in/a?b'), ('http://[::1]/x'),
	('https://good.example.com/'), ('http://good.example.com:81/'), ('http://good.example.com.evil/'),
	('http://good.example.com.'), ('http://evil/good.example.com/'), ('http://good.example.com@evil/'),
	('http://evil.good.example.com/'), ('https://good.example.com:8443/in/ab'), ('https://good.example.com:8443/in/'),
	('https://good.example.com:8443/IN/A'), ('https://good.example.com:8443/in/a/../b'),
	('https://good.example.com:8443/in/a/%2E%2e/b'), ('https://good.example.com:8443/in/%61'),
	('https://good.example.com:8443/in/a{dataset}'), ('https://good.example.com:8443/{dataset}/a'),
	('http://query.example.com/a'), ('nonsense'), ('file:///tmp/incsink_regress'))
	AS v (url);
RESET ROLE;
GRANT pg_write_server_files TO regress_incsink_alice;
SET ROLE regress_incsink_alice;
SELECT url, try_url(url)
FROM (VALUES ('file:///tmp/incsink_regress'), ('file:///tmp/incsink_regress/x'), ('file:///tmp/incsink_regress2'),
	('file:///tmp/incsink_regress/../x'), ('file:///tmp'), ('file:///tmp/%69ncsink_regress/x')) AS v (url);
\a\t

-- The owner of the sink has to be able to read what is exported.
SELECT incsink_create_sink('a', 'http://localhost:1/x', '{logs}', enabled => false);
SELECT incsink_create_sink('a', 'http://localhost:1/x', datasets => '{public.logs}', enabled => false);
SELECT incsink_create_sink('a', 'http://localhost:1/x', enabled => false);
SELECT incsink_add_table('a', 'policed');
RESET ROLE;
GRANT SELECT (id) ON logs TO regress_incsink_alice;
SET ROLE regress_incsink_alice;
SELECT incsink_add_table('a', 'logs');
SELECT incsink_add_table('a', 'logs', columns => '{id, secret}');
SELECT incsink_add_table('a', 'logs', columns => '{id}', filter => 'secret IS NULL');
SELECT incsink_add_table('a', 'logs', columns => '{id}', filter => 'id > 1');
SELECT sink_id > 0 AS found FROM incsink.sink_def WHERE name = 'a' AND owner = 'regress_incsink_alice'::regrole;

-- What a filter runs while it is read, it runs as its author.
RESET ROLE;
CREATE FUNCTION spy(int) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN RAISE NOTICE 'spy runs as %', current_user; RETURN true; END $$;
CREATE DOMAIN spied AS int CHECK (spy(VALUE));
CREATE TYPE carrier AS (s spied);
SET ROLE regress_incsink_alice;
\set SHOW_CONTEXT never
SELECT incsink_remove_table('a', 'logs');
SELECT incsink_add_table('a', 'logs', columns => '{id}', filter => '(''(1)''::public.carrier) IS NULL');
SELECT incsink_add_table('a', 'logs', columns => '{id}');

-- Others may not touch it, superusers and members of the owner may.
SET ROLE regress_incsink_bob;
SELECT incsink_alter_sink('a', options => '{}');
SELECT incsink_pause_sink('a');
SELECT incsink_resume_sink('a');
SELECT incsink_add_table('a', 'logs');
SELECT incsink_remove_table('a', 'logs');
SELECT incsink_flush('a');
SELECT incsink_drop_sink('a');
RESET ROLE;
GRANT regress_incsink_alice TO regress_incsink_bob;
SET ROLE regress_incsink_bob;
SELECT incsink_pause_sink('a');
-- the sink stays its owner's, and the owner's rights count
SELECT incsink_alter_sink('a', 'http://evil/', watermark => 'keep');
RESET ROLE;
SELECT incsink_alter_sink('a', 'http://evil/', watermark => 'keep');
SELECT incsink_pause_sink('a');
SELECT owner FROM incsink.sinks WHERE sink = 'a';

-- Temporary objects do not stand in for the catalog.
SET ROLE regress_incsink_alice;
CREATE TEMPORARY TABLE sink_def (name text);
CREATE FUNCTION pg_temp.nextval(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0';
SET search_path = pg_temp, public;
SELECT incsink_create_sink('b', 'http://localhost:1/x', enabled => false);
SELECT incsink_drop_sink('b');
RESET search_path;
DROP TABLE pg_temp.sink_def;
RESET ROLE;

-- A read-only transaction.
BEGIN READ ONLY;
SELECT incsink_create_sink('b', 'http://localhost:1/x');
ROLLBACK;

-- Monitors see the views, not the tables; readers of all data see positions.
SET ROLE regress_incsink_monitor;
SELECT sink, state FROM incsink.status;
SELECT sink, owner FROM incsink.sinks;
SELECT sink, table_name, columns FROM incsink.sink_tables;
SELECT sink, dataset, state FROM incsink.stat_delivery;
SELECT dataset, source, error FROM incsink.partitions ORDER BY dataset COLLATE "C";
SELECT count(*) >= 0 AS visible FROM incsink.stat_worker;
SELECT count(*) FROM incsink.watermark;
SELECT count(*) FROM incsink.delivery_error;
RESET ROLE;
SET ROLE regress_incsink_reader;
SELECT count(*) FROM incsink.watermark;
SELECT count(*) FROM incsink.intent;
RESET ROLE;

-- A sink whose owner was dropped stays visible, and a superuser can drop it.
REASSIGN OWNED BY regress_incsink_alice TO CURRENT_USER;
DROP OWNED BY regress_incsink_alice;
DROP ROLE regress_incsink_alice;
SELECT sink, owner ~ '^\d+$' AS dropped FROM incsink.sinks;
SELECT sink, state FROM incsink.status;
SELECT incsink_drop_sink('a');

RESET incsink.allowed_url_prefixes;
DROP TABLE logs, policed;
DROP FUNCTION try_url;
DROP TYPE carrier;
DROP DOMAIN spied;
DROP FUNCTION spy;
DROP OWNED BY regress_incsink_bob;
DROP ROLE regress_incsink_bob, regress_incsink_monitor, regress_incsink_reader;
DROP EXTENSION incsink CASCADE;
