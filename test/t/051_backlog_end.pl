# The batch that ends a backlog is in flight when the server is killed: it is sent again
# under its id, with the rows that are left of its range and no others.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('backlog_end');
my $collector = Collector->new;

sub query { return $node->safe_psql('postgres', $_[0]); }

# A table with a backlog whose last batch hangs; MEANWHILE is done before it comes again.
sub kill_in_last_batch
{
	my ($table, $definition, $meanwhile, $expected, $name) = @_;

	$collector->control('skip=1 store hang');		# two batches
	query("$definition; SELECT incsink_attach('$table');
		SELECT incsink_create_sink('$table', '" . $collector->url . "', tables => '{$table}',
			options => '{\"flush_rows\": 6, \"retry_initial\": \"20ms\", \"retry_max\": \"100ms\"}')");
	wait_until(sub { $collector->held });
	is(query('SELECT until_key FROM incsink.intent'), '[]', "$name: the last batch of the backlog is in flight");
	my $batch = query('SELECT batch_id FROM incsink.intent');
	inject_file($node, 'worker-start-commit', 'wait');
	kill9_server($node);
	$collector->back_to_normal;
	restart_after_kill($node);
	wait_reached($node, 'worker-start-commit');
	query($meanwhile) if $meanwhile;
	disarm($node, 'worker-start-commit');

	wait_for_query($node,
		"SELECT state FROM incsink.stat_delivery WHERE sink = '$table' AND lag_rows = 0 AND in_flight_batch IS NULL",
		'waiting', '... and acknowledged after the kill');
	is(join(' ', sort { $a <=> $b } @{ rows_at_collector($collector, 'id', sink => $table) }), $expected,
		"... and each row is there once");
	is(scalar(grep { $_ eq $batch } @{ $collector->ids(sink => $table) }), 2, '... it came twice, under one id');
	return;
}

my $rows = 'INSERT INTO %s SELECT generate_series(1, 10)';

kill_in_last_batch('plain', 'CREATE TABLE plain (id int PRIMARY KEY); ' . sprintf($rows, 'plain'),
	undef, '1 2 3 4 5 6 7 8 9 10', 'nothing new');
kill_in_last_batch('grown', 'CREATE TABLE grown (id int PRIMARY KEY); ' . sprintf($rows, 'grown'),
	'INSERT INTO grown (id) VALUES (0), (11)', '0 1 2 3 4 5 6 7 8 9 10 11', 'new rows with keys before and behind the backlog');
kill_in_last_batch('shrunk', 'CREATE TABLE shrunk (id int PRIMARY KEY); ' . sprintf($rows, 'shrunk'),
	'DELETE FROM shrunk WHERE id IN (3, 8)', '1 2 3 4 5 6 7 8 9 10', 'rows deleted after they were stored');
kill_in_last_batch('tree', 'CREATE TABLE tree (id int PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE tree_low PARTITION OF tree FOR VALUES FROM (0) TO (5);
	CREATE TABLE tree_high PARTITION OF tree FOR VALUES FROM (5) TO (100); ' . sprintf($rows, 'tree'),
	'INSERT INTO tree (id) VALUES (0), (11)', '0 1 2 3 4 5 6 7 8 9 10 11', 'a partitioned table');

done_testing();
