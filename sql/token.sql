SET client_min_messages = warning;
CREATE EXTENSION incsink;
CREATE TABLE one (id int);
CREATE TABLE two (id int);
SELECT incsink_attach('one');
SELECT incsink_attach('two');
RESET client_min_messages;
INSERT INTO one SELECT generate_series(1, 5);
INSERT INTO two SELECT generate_series(1, 5);

CREATE FUNCTION tag(relation regclass) RETURNS text LANGUAGE sql AS
$$SELECT incsink_horizon(relation)->>'p'$$;
CREATE FUNCTION try_token(token jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM incsink_read_since('one'::regclass, replace(token::text, 'TAG', tag('one'))::jsonb);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', sqlstate || ' ' || sqlerrm, NULLIF(detail, ''), NULLIF(hint, ''));
END $$;

-- A token is what it should be.
SELECT incsink_horizon('one') - 'p' AS token, incsink_horizon('one')->>'p' ~ '^[0-9a-f]{16}$' AS tag_ok;
SELECT incsink_last_token('one') - 'p' AS token;
SELECT tag('one') = tag('one') AS stays, tag('one') <> tag('two') AS differs;

\pset format unaligned
\pset tuples_only on
-- Malformed in every way that there is.
SELECT t, try_token(t) FROM unnest(ARRAY[
	'{"v": 1, "p": "TAG", "seq": "3"}',
	'{"v": 1, "p": "TAG", "seq": "0"}',
	'{"v": 1, "p": "TAG", "seq": "3", "more": true}',
	'[]', '"x"', '17', 'null', '{}',
	'{"p": "TAG", "seq": "3"}',
	'{"v": "1", "p": "TAG", "seq": "3"}',
	'{"v": null, "p": "TAG", "seq": "3"}',
	'{"v": 2, "p": "TAG", "seq": "3"}',
	'{"v": 1.5, "p": "TAG", "seq": "3"}',
	'{"v": 1, "seq": "3"}',
	'{"v": 1, "p": "", "seq": "3"}',
	'{"v": 1, "p": 7, "seq": "3"}',
	'{"v": 1, "p": "TAG"}',
	'{"v": 1, "p": "TAG", "seq": 3}',
	'{"v": 1, "p": "TAG", "seq": ""}',
	'{"v": 1, "p": "TAG", "seq": "-1"}',
	'{"v": 1, "p": "TAG", "seq": " 3"}',
	'{"v": 1, "p": "TAG", "seq": "3.0"}',
	'{"v": 1, "p": "TAG", "seq": "9223372036854775808"}',
	'{"v": 1, "p": "TAG", "seq": "99999999999999999999"}',
	'{"v": 1, "p": "TAG", "seq": "3", "n": "1"}',
	'{"v": 1, "p": "TAG", "seq": "0", "n": "x"}',
	'{"v": 1, "p": "TAG", "seq": "0", "n": "7"}']::jsonb[]) AS t;
-- Of another table, of a table that never was, above all that was drawn.
SELECT try_token(incsink_horizon('two'));
SELECT try_token('{"v": 1, "p": "0000000000000000", "seq": "1"}');
SELECT try_token('{"v": 1, "p": "TAG", "seq": "6"}');
SELECT try_token('{"v": 1, "p": "TAG", "seq": "9223372036854775807"}');
\pset format aligned
\pset tuples_only off

-- A token is the next one's since; each row has its own.
SELECT data, token - 'p' AS token FROM incsink_read_since('one', '{"v": 1, "p": "x", "seq": "0"}');
SELECT data, token->>'seq' AS seq FROM incsink_read_since('one',
	(SELECT token FROM incsink_read_since('one', max_rows => 2) OFFSET 1));
SELECT count(*) FROM incsink_read_since('one', incsink_horizon('one'));

-- After a confirmed restart a new tag is in force; tokens of before are good up to
-- the last horizon on record.
SELECT incsink_horizon('one') AS before \gset
SET client_min_messages = error;
BEGIN;
UPDATE incsink.partition_state SET recorded_horizon = 3 WHERE relid = 'one'::regclass;
ALTER TABLE one ALTER COLUMN ingest_seq RESTART;
SELECT incsink_confirm_sequence('one');
COMMIT;
RESET client_min_messages;
INSERT INTO one VALUES (6);
SELECT tag('one') <> :'before'::jsonb->>'p' AS differs;
SELECT data, token->>'seq' AS seq FROM incsink_read_since('one', jsonb_set(:'before', '{seq}', '"3"'));
\pset format unaligned
SELECT try_token(jsonb_set(:'before', '{seq}', '"4"'));
\pset format aligned

-- Attached again it is another partition.
SET client_min_messages = error;
SELECT incsink_horizon('one') AS before \gset
SELECT incsink_detach('one');
SELECT incsink_attach('one');
RESET client_min_messages;
\pset format unaligned
SELECT try_token(:'before');
\pset format aligned

DROP FUNCTION try_token, tag;
DROP TABLE one, two;
DROP EXTENSION incsink CASCADE;
