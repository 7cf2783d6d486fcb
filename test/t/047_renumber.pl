# incsink_renumber() while others write, lock rows and kill it: every row gets a number,
# and is exported once.

use strict;
use warnings;

use Test::More;

use Collector;
use IncsinkTest;

my $node = new_node('renumber');
my $collector = Collector->new;
my $stderr;

sub query { return $node->safe_psql('postgres', $_[0]); }

sub settle
{
	wait_for_query($node,
		q{SELECT bool_and(lag_rows = 0 AND in_flight_batch IS NULL AND state = 'waiting') FROM incsink.stat_delivery});
	return;
}

# A table of rows that have no key in whose order they could be read, and a sink that
# gets new rows of it.
sub new_table
{
	my ($table, $rows) = @_;

	query(qq{
		CREATE TABLE $table (id int, n int DEFAULT 0, pad text DEFAULT repeat('x', 100)) WITH (fillfactor = 50);
		INSERT INTO $table (id) SELECT generate_series(1, $rows);
		CREATE INDEX ON $table (id);
		SELECT incsink_attach('$table');
	});
	query("SELECT incsink_create_sink('$table', '" . $collector->url . "', tables => '{$table}',
		options => '{\"start\": \"now\", \"retry_initial\": \"20ms\", \"flush_interval\": \"20ms\"}')");
	return;
}

sub numbers
{
	my ($table) = @_;
	return query("SELECT count(*) FILTER (WHERE ingest_seq < 1), count(*) - count(DISTINCT ingest_seq),
		max(ingest_seq) <= (SELECT last_drawn FROM incsink.partitions WHERE table_name = '$table') FROM $table");
}

# A call that is cancelled when it has numbered all rows but one, which is locked.
sub break_off
{
	my ($call, $table, $id) = @_;
	my $locker = $node->background_psql('postgres');
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$locker->query_safe("BEGIN; SELECT FROM $table WHERE id = $id FOR UPDATE");
	$session->query_until(qr/begun/, "\\echo begun\n$call\n");
	wait_for_query($node, "SELECT count(*) FROM $table WHERE ingest_seq = 0", '1');
	query(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL%renumber%'});
	$session->quit;
	$locker->quit;
	return;
}

# ------------------------------------------------------- writers and locked rows
new_table('busy', 10000);
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; SELECT FROM busy WHERE id IN (201, 5001, 9801) FOR UPDATE');
my $writer = $node->background_psql('postgres');
$writer->query_until(qr/begun/, q{\echo begun
	CREATE PROCEDURE write() LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..400 LOOP
			UPDATE busy SET n = n + 1 WHERE id % 400 = i % 200;
			INSERT INTO busy (id) VALUES (100000 + i);
			COMMIT;
		END LOOP;
	END $$;
	CALL write();
});
my $caller = $node->background_psql('postgres');
$caller->query_until(qr/begun/, q{\echo begun
	CALL incsink_renumber('busy', batch_rows => 50);
});
wait_for_query($node, 'SELECT count(*) FROM busy WHERE ingest_seq = 0', '3', 'all rows but those that are locked have numbers');
is(query(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL%renumber%' AND wait_event_type = 'Lock'}), '0', 'it does not wait for them');
is(query(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL%renumber%' AND state <> 'idle'}), '1', 'and the call goes on');
$holder->quit;
wait_for_query($node, 'SELECT count(*) FROM busy WHERE ingest_seq = 0', '0', 'and they get theirs when they are free');
$caller->quit;
$writer->quit;
is(numbers('busy'), '0|0|t', 'each row has a number of its own');
is(query(q{SELECT had_rows FROM incsink.partitions WHERE table_name = 'busy'}), 'f', 'and the table has none without');
settle();
is_exported($node, 'SELECT id FROM busy', rows_at_collector($collector, 'id', sink => 'busy'), 'each is exported once');

# ------------------------------------------------------------- killed in between
new_table('killed', 3000);
inject($node, 'renumber-before-commit', 'wait');
$caller = $node->background_psql('postgres', on_error_stop => 0);
$caller->query_until(qr/begun/, q{\echo begun
	CALL incsink_renumber('killed', batch_rows => 100);
});
wait_reached($node, 'renumber-before-commit');
disarm($node, 'renumber-before-commit');
wait_for_query($node, 'SELECT count(*) > 500 FROM killed WHERE ingest_seq > 0');
kill9_server($node);
restart_after_kill($node);
eval { $caller->quit; };
cmp_ok(query('SELECT count(*) FROM killed WHERE ingest_seq > 0'), '>', 500, 'what was numbered before a crash stays so');
query(q{CALL incsink_renumber('killed')});
is(numbers('killed'), '0|0|t', 'and another call does the rest');
settle();
is_exported($node, 'SELECT id FROM killed', rows_at_collector($collector, 'id', sink => 'killed'), 'each row is exported once');

# ----------------------------------------- broken off, of a backlog that is awaited
query(q{
	CREATE TABLE broken (id int PRIMARY KEY, pad text DEFAULT repeat('x', 100));
	INSERT INTO broken (id) SELECT generate_series(1, 3000);
	SELECT incsink_attach('broken');
});
query("SELECT incsink_create_sink('broken', '" . $collector->url . "', tables => '{broken}', enabled => false,
	options => '{\"retry_initial\": \"20ms\", \"flush_interval\": \"20ms\"}')");
break_off("CALL incsink_renumber('broken', batch_rows => 100);", 'broken', 2900);
is(query('SELECT count(*) FROM broken WHERE ingest_seq = 0'), '1', 'a call that is cancelled leaves rows without a number');
query(q{SELECT incsink_resume_sink('broken')});
wait_for_query($node, q{SELECT lag_rows = 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = 'broken'}, 't',
	'those that have one are exported');
is(query(q{SELECT reason || ' / ' || hint FROM incsink.stat_delivery WHERE sink = 'broken'}),
	q{rows that the table had are not all numbered: incsink_renumber() is running or was broken off}
	. q{ / If it is not running: CALL incsink_renumber('broken');}, 'the delivery says that others are not');
is(query(q{SELECT reason ~ 'not all numbered' AND hint ~ 'CALL' FROM incsink.status WHERE sink = 'broken'}), 't', 'the sink, too');
is(query(q{SELECT unnumbered, error IS NULL, hint FROM incsink.partitions WHERE table_name = 'broken'}),
	q{t|t|If it is not running: CALL incsink_renumber('broken');}, 'and the table');
is(query(q{SELECT incsink_flush('broken', '500ms')}), 'f', 'and it is not flushed');
query(q{CALL incsink_renumber('broken')});
is(query(q{SELECT incsink_flush('broken', '30s')}), 't', 'when another call has done the rest it is');
is(query(q{SELECT reason IS NULL FROM incsink.stat_delivery WHERE sink = 'broken'}), 't', 'and nothing is said any more');
is(query(q{SELECT unnumbered, hint IS NULL FROM incsink.partitions WHERE table_name = 'broken'}), 'f|t', 'nor of the table');
is_exported($node, 'SELECT id FROM broken', rows_at_collector($collector, 'id', sink => 'broken'), 'each row is exported once');

# Of a leaf: the rows that are left are read in their place.
query(q{
	CREATE TABLE forest (id int PRIMARY KEY, pad text DEFAULT repeat('x', 100)) PARTITION BY RANGE (id);
	CREATE TABLE forest_1 PARTITION OF forest FOR VALUES FROM (0) TO (3001);
	CREATE TABLE forest_2 PARTITION OF forest FOR VALUES FROM (3001) TO (4000) PARTITION BY RANGE (id);
	CREATE TABLE forest_2_1 PARTITION OF forest_2 DEFAULT;
	INSERT INTO forest (id) SELECT generate_series(1, 3100);
	SELECT incsink_attach('forest');
});
query("SELECT incsink_create_sink('forest', '" . $collector->url . "', tables => '{forest}', enabled => false,
	options => '{\"retry_initial\": \"20ms\", \"flush_interval\": \"20ms\"}')");
break_off("CALL incsink_renumber('forest_1', every_row => true, batch_rows => 100);", 'forest_1', 2900);
is(query('SELECT count(*) FROM forest_1 WHERE ingest_seq = 0'), '1', 'of a leaf, likewise');
(undef, undef, $stderr) = $node->psql('postgres', q{CALL incsink_renumber('forest_2')});
is(query('SELECT count(*) FROM forest_2 WHERE ingest_seq > 0'), '0', 'an inner part with rows of the backlog is left alone');
query(q{SELECT incsink_resume_sink('forest')});
is(query(q{SELECT incsink_flush('forest', '30s')}), 't', 'it is flushed');
is_exported($node, 'SELECT id FROM forest', rows_at_collector($collector, 'id', sink => 'forest'), 'each row of it is exported once');

# -------------------------------------------------------- a backlog in the middle
# Its rows are given up where they are in flight, and come again under their numbers.
$collector->control('sink=part store hang');
query(q{
	CREATE TABLE part (id int PRIMARY KEY);
	INSERT INTO part SELECT generate_series(1, 100);
	SELECT incsink_attach('part');
});
query("SELECT incsink_create_sink('part', '" . $collector->url . "', tables => '{part}',
	options => '{\"flush_rows\": 10, \"flush_interval\": \"20ms\", \"request_timeout\": \"5min\"}')");
wait_until(sub { $collector->held }, 'a batch of the backlog is in flight');
my $epoch = query(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'part'});
(undef, undef, $stderr) = $node->psql('postgres', q{CALL incsink_renumber('part')});
like($stderr, qr/rows that table public\.part had when it was attached keep their place/, 'a backlog that was begun is left alone');
query(q{CALL incsink_renumber('part', every_row => true)});
$collector->back_to_normal;
query(q{INSERT INTO part VALUES (101)});
settle();
isnt(query(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'part'}), $epoch, 'with every_row a new epoch begins');
is_exported($node, 'SELECT id FROM part',
	rows_at_collector($collector, 'id', sink => 'part', epoch => query(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'part'})),
	'in which each row is exported once');

# --------------------------------------------------------------- it is detached
new_table('leaves', 20000);
$caller = $node->background_psql('postgres', on_error_stop => 0);
$caller->query_until(qr/begun/, q{\echo begun
	CALL incsink_renumber('leaves', batch_rows => 10);
});
wait_for_query($node, 'SELECT count(*) > 0 FROM leaves WHERE ingest_seq > 0');
inject($node, 'renumber-before-commit', 'wait');
wait_reached($node, 'renumber-before-commit');
my $detacher = $node->background_psql('postgres', on_error_stop => 0);
$detacher->query_until(qr/begun/, q{\echo begun
	SET lock_timeout = '30s';
	SELECT incsink_detach('leaves', force => true);
});
disarm($node, 'renumber-before-commit');
wait_for_query($node, q{SELECT count(*) FROM incsink.partitions WHERE table_name = 'leaves'}, '0', 'a detach gets in between');
wait_for_query($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL%renumber%' AND state <> 'idle'}, '0',
	'and ends the call');
$detacher->quit;
$caller->quit;
ok(server_log_like($node, qr/ERROR:  table "public\.leaves" was detached meanwhile/), 'which says so');
ok(!server_log_like($node, qr/deadlock detected/), 'without a deadlock');

done_testing();
