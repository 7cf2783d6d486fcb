-- What is exported, and the journal of it: every transaction writes what it does into
-- the journal, too, so that both are there after a crash, or neither.

CREATE EXTENSION incsink;

-- Transactions committed rows with these ids, whose v was 'i' and the id then.
CREATE TABLE journal_insert (tab text NOT NULL, first bigint NOT NULL, last bigint NOT NULL);
-- ... gave a row another v.
CREATE TABLE journal_update (tab text NOT NULL, id bigint NOT NULL, v text NOT NULL);
-- ... took a row away, with where sinks were before: one at or above its number has it.
CREATE TABLE journal_gone (tab text NOT NULL, id bigint NOT NULL, seq bigint,
	central_epoch text, central_seq bigint, archive_epoch text, archive_seq bigint);
-- ... began a new epoch of a delivery, which begins at the beginning.
CREATE TABLE journal_restart (sink text NOT NULL, tab text NOT NULL, epoch text NOT NULL);

CREATE VIEW positions AS
SELECT substr(p.dataset, 8) AS tab,
	max(w.epoch) FILTER (WHERE s.name = 'central') AS central_epoch,
	max(w.seq) FILTER (WHERE s.name = 'central') AS central_seq,
	max(w.epoch) FILTER (WHERE s.name = 'archive') AS archive_epoch,
	max(w.seq) FILTER (WHERE s.name = 'archive') AS archive_seq
FROM incsink.watermark w JOIN incsink.sink_def s USING (sink_id) JOIN incsink.partition_def p USING (partition_id)
WHERE p.dataset LIKE 'public.%' AND w.destination = ''
GROUP BY p.dataset;

-- Notes that all rows of a relation go, which the caller has locked.
CREATE PROCEDURE note_gone(tab text, relation regclass) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO journal_gone SELECT %L, r.id, r.ingest_seq, p.central_epoch, p.central_seq,'
		' p.archive_epoch, p.archive_seq FROM %s r LEFT JOIN positions p ON p.tab = %1$L', tab, relation);
END $$;

-- Deletes what both sinks have, but for the last rows.
CREATE PROCEDURE trim_table(tab text, keep bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('WITH d AS (DELETE FROM %1$I t USING positions p WHERE p.tab = %1$L'
		' AND t.ingest_seq > 0 AND t.ingest_seq <= least(p.central_seq, p.archive_seq) - $1 RETURNING t.id, t.ingest_seq, p.*)'
		' INSERT INTO journal_gone SELECT tab, id, ingest_seq, central_epoch, central_seq, archive_epoch, archive_seq FROM d',
		tab) USING keep;
END $$;

CREATE FUNCTION period() RETURNS integer LANGUAGE sql AS
	'SELECT (extract(epoch FROM clock_timestamp()) / 8)::bigint % 1000000000';

CREATE PROCEDURE add_leaf(tab text, period integer) LANGUAGE plpgsql AS $$
BEGIN
	IF to_regclass(tab || '_' || period) IS NULL THEN
		EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%s) TO (%s)', tab || '_' || period, tab, period, period + 1);
	END IF;
END $$;

CREATE FUNCTION leaf(attached boolean, old boolean) RETURNS TABLE (name text, period integer) LANGUAGE sql AS $$
	SELECT relname::text, substr(relname, 6)::integer FROM pg_class c
	WHERE relkind = 'r' AND relname ~ '^tree_\d+$' AND relispartition = attached AND relnamespace = 'public'::regnamespace
		AND (NOT old OR substr(relname, 6)::integer < period() - 1)
	ORDER BY random() LIMIT 1
$$;

CREATE PROCEDURE detach_leaf() LANGUAGE plpgsql AS $$
DECLARE name text := (SELECT l.name FROM leaf(true, true) l);
BEGIN
	IF name IS NOT NULL THEN
		EXECUTE format('ALTER TABLE tree DETACH PARTITION %I', name);
	END IF;
END $$;

CREATE PROCEDURE attach_leaf() LANGUAGE plpgsql AS $$
DECLARE name text; period integer;
BEGIN
	SELECT l.name, l.period INTO name, period FROM leaf(false, false) l;
	IF name IS NOT NULL THEN
		-- It has the columns that the tree had when it left.
		IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'tree'::regclass AND attname = 'extra') THEN
			EXECUTE format('ALTER TABLE %I ADD COLUMN IF NOT EXISTS extra integer DEFAULT 7', name);
		ELSE
			EXECUTE format('ALTER TABLE %I DROP COLUMN IF EXISTS extra', name);
		END IF;
		EXECUTE format('ALTER TABLE tree ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', name, period, period + 1);
	END IF;
END $$;

-- Drops a leaf that was detached and that nobody reads any more.
CREATE PROCEDURE drop_leaf() LANGUAGE plpgsql AS $$
DECLARE name text := (SELECT l.name FROM leaf(false, false) l
	WHERE NOT EXISTS (SELECT FROM incsink.leaves i, positions p WHERE i.table_name = l.name AND p.tab = 'tree'
		AND i.left_at_seq > least(p.central_seq, p.archive_seq)));
BEGIN
	IF name IS NOT NULL THEN
		EXECUTE format('LOCK TABLE %I', name);
		CALL note_gone('tree', name::regclass);
		EXECUTE format('DROP TABLE %I', name);
	END IF;
END $$;

-- Has rows from before it is attached, which are exported in the order of their key.
CREATE TABLE old (id bigint PRIMARY KEY, v text NOT NULL);
INSERT INTO old SELECT g, 'i' || g FROM generate_series(1, 4000) AS g;
INSERT INTO journal_insert VALUES ('old', 1, 4000);

CREATE TABLE plain (id bigint PRIMARY KEY, v text NOT NULL);

CREATE TABLE tree (id bigint NOT NULL, v text NOT NULL, period integer NOT NULL DEFAULT period()) PARTITION BY RANGE (period);
CREATE INDEX ON tree (id);
CREATE TABLE tree_other PARTITION OF tree DEFAULT;

SELECT incsink_attach('old'), incsink_attach('plain'), incsink_attach('tree');
