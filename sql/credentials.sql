-- Credentials: servers say where secrets may go, user mappings hold them.
SET client_min_messages = error;
CREATE EXTENSION incsink;
DROP ROLE IF EXISTS regress_incsink_admin, regress_incsink_other;
RESET client_min_messages;
CREATE ROLE regress_incsink_admin SUPERUSER;
SET ROLE regress_incsink_admin;

-- Servers.
CREATE SERVER bad FOREIGN DATA WRAPPER incsink;
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (path_prefix '/');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com', orgin 'x');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (orgin 'https://c.example.com');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com', bearer 'x');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin '');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'c.example.com');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'file:///tmp');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com/');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com?x');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com#x');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://user:hidden@c.example.com');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://{dataset}');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com', path_prefix 'a');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com', path_prefix '');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com', path_prefix '/a/../b');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com', path_prefix '/a?b');
CREATE SERVER bad FOREIGN DATA WRAPPER incsink OPTIONS (origin 'https://c.example.com', path_prefix '/{dataset}');
CREATE SERVER collector FOREIGN DATA WRAPPER incsink
	OPTIONS (origin 'https://c.example.com:8443', path_prefix '/tenant/a');
ALTER SERVER collector OPTIONS (DROP origin);
CREATE SERVER open FOREIGN DATA WRAPPER incsink OPTIONS (origin 'http://localhost');
ALTER FOREIGN DATA WRAPPER incsink OPTIONS (ADD anything 'x');
CREATE FOREIGN TABLE ft (id int) SERVER open OPTIONS (x 'y');
-- there is nothing to read
CREATE FOREIGN TABLE ft (id int) SERVER open;
SELECT * FROM ft;
DROP FOREIGN TABLE ft;

-- User mappings; messages hold no value.
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS ("Api-Key" 'hidden');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (bearer '');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (bearer 'hid den');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (bearer 'hidden-ä');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (bearer E'hidden\n');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (api_key E'hidden\r\nX: y');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (username 'hid:den', password 'x');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (username 'hidden');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (username 'hidden', password 'x', bearer 'x');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (client_certificate 'hidden', client_key 'hidden');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS
	(client_certificate E'-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nhidden');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (client_key 'hidden');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (client_key E'-----BEGIN PRIVATE KEY-----\nhidden');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (signing_secret 'hidden');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (signing_secret 'whsec_aGlkZGVu');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (signing_secret 'whsec_not base64 not base64 not base64 not b==');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector
	OPTIONS (signing_secret_previous 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (secret_file 'secrets');
-- with a file the rest may be there
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (secret_file '/nowhere/secrets', username 'x', bearer 'x');
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (secret_file '/nowhere/secrets', username 'x');
SELECT incsink_create_sink('s', 'https://c.example.com:8443/tenant/a', credentials => 'collector', enabled => false,
	options => '{"headers": {"X-Key": "{secret:api_key}"}}');
SELECT incsink_drop_sink('s');
DROP USER MAPPING FOR CURRENT_USER SERVER collector;

-- A sink needs the server, a mapping, and a URL below the server's.
SELECT incsink_create_sink('s', 'https://c.example.com:8443/tenant/a', credentials => 'none', enabled => false);
SELECT incsink_create_sink('s', 'https://c.example.com:8443/tenant/a', credentials => 'collector', enabled => false);
CREATE USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (bearer 'hidden', api_key 'hidden two');
SELECT incsink_create_sink('s', 'https://c.example.com:8443/tenant/a', credentials => 'collector', enabled => false);
SELECT incsink_drop_sink('s');

CREATE FUNCTION try_url(url text, server name DEFAULT 'collector') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	PERFORM incsink_create_sink('tried', url, credentials => server, enabled => false);
	PERFORM incsink_drop_sink('tried');
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''));
END $$;
\a\t
SELECT url, try_url(url)
FROM (VALUES ('https://c.example.com:8443/tenant/a/'), ('https://c.example.com:8443/tenant/a/{dataset}'),
	('https://c.example.com:8443/tenant/a?x=y'), ('HTTPS://C.EXAMPLE.COM:8443/tenant/a/b'),
	('https://c.example.com/tenant/a'), ('http://c.example.com:8443/tenant/a'),
	('https://c.example.com.evil:8443/tenant/a'), ('https://d.example.com:8443/tenant/a'),
	('https://c.example.com:8443/'), ('https://c.example.com:8443'), ('https://c.example.com:8443/tenant'),
	('https://c.example.com:8443/tenant/ab'), ('https://c.example.com:8443/tenant/b'),
	('https://c.example.com:8443/tenant/a{dataset}'), ('https://c.example.com:8443/tenant/{dataset}'),
	('https://c.example.com:8443/tenant/a/../b'), ('https://c.example.com:8443/tenant/a/%2e%2e/b'),
	('https://c.example.com:8443/tenant/%61'), ('https://c.example.com:8443/Tenant/a'),
	('https://c.example.com:8443//tenant/a'),
	('https://c.example.com:8443/tenant/a?key={secret:api_key}'),
	('https://c.example.com:8443/tenant/a/{secret:nothing}'), ('file:///tmp/incsink_regress')) AS v (url);
CREATE USER MAPPING FOR PUBLIC SERVER open OPTIONS (token 'hidden');
SELECT url, try_url(url, 'open')
FROM (VALUES ('http://localhost'), ('http://localhost:80/a/b?c'), ('http://localhost:81/'),
	('http://localhost/{secret:token}')) AS v (url);
\a\t

-- Headers take their values from secrets by name.
SELECT incsink_create_sink('s', 'https://c.example.com:8443/tenant/a', credentials => 'collector',
	options => '{"headers": {"X-Key": "{secret:api_key}"}}', enabled => false);
SELECT incsink_alter_sink('s', options => '{"headers": {"X-Key": "{secret:other}"}}');
SELECT incsink_alter_sink('s', options => '{"headers": {"Authorization": "{secret:api_key}"}}');
-- what is never sent has no place there, and no header is given twice
SELECT incsink_alter_sink('s', options => '{"headers": {"X-Key": "{secret:client_key}"}}');
SELECT incsink_alter_sink('s', options => '{"headers": {"X-Key": "{secret:signing_secret}"}}');
SELECT incsink_alter_sink('s', options => '{"headers": {"X-Key": "{secret:secret_file}"}}');
SELECT incsink_alter_sink('s', options => '{"headers": {"Webhook-Id": "x"}}');
ALTER USER MAPPING FOR CURRENT_USER SERVER collector OPTIONS (DROP bearer, ADD username 'hidden', ADD password 'hidden');
SELECT incsink_alter_sink('s', options => '{"headers": {"Authorization": "{secret:api_key}"}}');
SELECT incsink_alter_sink('s', credentials => 'open');
SELECT incsink_alter_sink('s', credentials => '');
SELECT incsink_alter_sink('s', 'http://localhost/x', watermark => 'keep');
SELECT incsink_alter_sink('s', options => '{"headers": null}', credentials => '');
SELECT credentials, options FROM incsink.sinks WHERE sink = 's';
SELECT incsink_alter_sink('s', credentials => 'collector');
-- authorities are for everybody to see, keys are not
SELECT incsink_alter_sink('s', options => '{"ca_certificate": "hidden"}');
SELECT incsink_alter_sink('s', options => '{"ca_certificate": "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n"}');
SELECT incsink_alter_sink('s', options => '{"tls_min_version": "1.1"}');
-- nothing that everybody can read holds a secret
SELECT count(*) FROM incsink.sink_def AS d WHERE d::text LIKE '%hidden%';

-- A server of another wrapper.
CREATE FOREIGN DATA WRAPPER regress_incsink_dummy;
CREATE SERVER foreign_one FOREIGN DATA WRAPPER regress_incsink_dummy;
SELECT incsink_alter_sink('s', credentials => 'foreign_one');
DROP FOREIGN DATA WRAPPER regress_incsink_dummy CASCADE;

-- The owner of the sink needs USAGE, and its own mapping or that of PUBLIC.
CREATE ROLE regress_incsink_other;
GRANT EXECUTE ON FUNCTION incsink_create_sink, incsink_drop_sink TO regress_incsink_other;
SET incsink.allowed_url_prefixes = 'https://c.example.com:8443/, http://localhost/';
SET ROLE regress_incsink_other;
SELECT try_url('https://c.example.com:8443/tenant/a');
SET ROLE regress_incsink_admin;
GRANT USAGE ON FOREIGN SERVER collector, open TO regress_incsink_other;
SET ROLE regress_incsink_other;
SELECT try_url('https://c.example.com:8443/tenant/a');
SELECT try_url('http://localhost/{secret:token}', 'open');
-- secrets of others are not to be seen
SELECT umoptions FROM pg_user_mappings WHERE srvname IN ('collector', 'open');
SET ROLE regress_incsink_admin;
RESET incsink.allowed_url_prefixes;

SELECT incsink_drop_sink('s');
DROP FUNCTION try_url;
DROP SERVER collector CASCADE;
DROP SERVER open CASCADE;
REVOKE ALL ON FUNCTION incsink_create_sink, incsink_drop_sink FROM regress_incsink_other;
RESET ROLE;
DROP ROLE regress_incsink_admin, regress_incsink_other;
DROP EXTENSION incsink CASCADE;
