/* incsink 0.2 -> 0.3.  Leaves the catalog as incsink--0.3.sql makes it: test/t/039_upgrade.pl compares. */

\echo Use "ALTER EXTENSION incsink UPDATE TO '0.3'" to load this file. \quit

/* Epochs that have begun before have no row; the next one of each delivery has. */
CREATE TABLE incsink.epoch_state (
	sink_id			bigint NOT NULL,
	partition_id	bigint NOT NULL,
	destination		text NOT NULL,
	epoch			text NOT NULL,
	seq				bigint NOT NULL,
	n				bigint NOT NULL DEFAULT 0,
	key				jsonb,
	rows_exported	bigint NOT NULL,
	began_at		timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (sink_id, partition_id, destination)
);
COMMENT ON TABLE incsink.epoch_state IS 'where the epochs of deliveries began: incsink_verify() compares from there';
COMMENT ON COLUMN incsink.epoch_state.key IS 'inside a backlog: key of the last row before the epoch; an empty array if the backlog was over';
COMMENT ON COLUMN incsink.epoch_state.rows_exported IS 'what the watermark had counted then';

SELECT pg_catalog.pg_extension_config_dump('incsink.epoch_state', '');
/* Positions hold keys, which are the users' data. */
GRANT SELECT ON incsink.epoch_state TO pg_read_all_data;

CREATE FUNCTION incsink_verify(sink text, relation regclass, range_rows bigint DEFAULT 100000)
	RETURNS TABLE (since numeric, until numeric, state text, object text, rows_in_table bigint,
		rows_at_sink bigint, rows_missing bigint, rows_doubled bigint, rows_unexpected bigint,
		digest text, detail text)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'incsink_verify' ROWS 1000;
COMMENT ON FUNCTION incsink_verify(text, regclass, bigint)
	IS 'compares what a table holds, up to where a sink stands, with what the sink has of it; all is well if every state is ok';

REVOKE ALL ON FUNCTION incsink_verify(text, regclass, bigint) FROM PUBLIC;
