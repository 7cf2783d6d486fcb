/*
 * rows.sql: rows that look like those of a log, about 185 bytes each as JSON.  A row
 * is a function of its number and of the seed: the same everywhere, every time.
 */
CREATE FUNCTION rows(first bigint, last bigint, seed bigint DEFAULT 42)
RETURNS TABLE (id bigint, logged_at timestamptz, level text, host text, status integer,
	duration double precision, message text)
LANGUAGE sql IMMUTABLE AS $$
	SELECT i,
		'2026-01-01 00:00:00+00'::timestamptz + i * '17291 us'::interval,
		(ARRAY['debug', 'info', 'info', 'info', 'info', 'info', 'warning', 'error'])[1 + (h & 7)],
		'web-' || (h >> 3 & 63),
		(ARRAY[200, 200, 200, 200, 201, 304, 404, 500])[1 + (h >> 9 & 7)],
		(h >> 12 & 1048575) / 1000.0,
		'GET /api/v1/orders/' || (h >> 32 & 16777215) || ' for customer no. ' || (h >> 20 & 65535)
	FROM (SELECT i, hashint8extended(i, seed) AS h FROM generate_series(first, last) AS i) AS numbers
$$;
