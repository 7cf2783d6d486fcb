-- What a forward sink makes of each answer of a receiver.
SET client_min_messages = error;
CREATE EXTENSION incsink;
RESET client_min_messages;

\a\t
-- The same as doc/reference.md shows it; test/t/900_documentation.pl compares the two.
SELECT format('| %s | %s | %s | %s |', answer, outcome, CASE WHEN proves_not_stored THEN 'yes' ELSE '' END,
	CASE WHEN retry_after THEN 'yes' ELSE '' END)
FROM incsink_answers();

-- What to do about it.
SELECT answer, hint FROM incsink_answers() WHERE hint IS NOT NULL;

-- Every status from 200 on has one row.
SELECT count(*), min(rows), max(rows) FROM (
	SELECT status, (SELECT count(*) FROM incsink_answers()
		WHERE answer <> 'no complete answer'
			AND status BETWEEN split_part(answer, ' ', 1)::int AND split_part(answer, ' ', -1)::int) AS rows
	FROM generate_series(200, 999) AS status) AS s;

-- Who decides of batches and rows that were refused.
\a\t
SELECT incsink_resolve(NULL, 'stored');
SELECT incsink_resolve(1, NULL);
SELECT incsink_resolve(1, 'Stored');
SELECT incsink_resolve(-1, 'stored');
SELECT incsink_redeliver(NULL);
SELECT incsink_redeliver(-1);
SELECT incsink_discard(NULL);
SELECT incsink_discard(-1);

DROP EXTENSION incsink;
