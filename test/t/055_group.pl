# Many deliveries do their work in the catalog together, in shared statements; one that
# is locked, fenced or cannot be read costs the others nothing, and nothing is lost or
# doubled when the server ends between the commit and the sends.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $TABLES = 60;
my $ROWS = 5;					# of each table at a time

my $node = new_node('group', conf => [ 'max_locks_per_transaction = 256' ]);
my $collector = Collector->new;
my $next_id = 1;

$node->safe_psql('postgres', join ';', map {
		"CREATE TABLE g_$_ (id bigint PRIMARY KEY, divisor integer NOT NULL DEFAULT 1); SELECT incsink_attach('g_$_')"
	} 1 .. $TABLES);
$node->safe_psql('postgres', qq{
	SELECT incsink_create_sink('central', '@{[ $collector->url ]}', tables => array_agg(format('g_%s', n)::regclass),
		options => '{"retry_initial": "20ms", "retry_max": "100ms", "flush_interval": "0"}')
	FROM generate_series(1, $TABLES) AS n WHERE n <> 4;
	SELECT incsink_add_table('central', 'g_4', filter => '10 / divisor > 0');
	CREATE FUNCTION acknowledge(bigint, bigint, bigint[], integer) RETURNS boolean
		LANGUAGE c STRICT AS '\$libdir/incsink', 'incsink_test_acknowledge';
	CREATE FUNCTION pass_empty_range(bigint, bigint, text, bigint, bigint) RETURNS boolean
		LANGUAGE c STRICT AS '\$libdir/incsink', 'incsink_test_pass';
});
settle('every table is exported');

# ------------------------------------------------------------- together
{
	insert_into_all();
	settle('rows of all tables arrive');
	is_all_stored('each once');

	hold_all();
	cmp_ok(transactions('intent'), '<=', $TABLES / 3, "the intents of $TABLES deliveries come in few statements");
	answer_all();
	settle('all are acknowledged');
	cmp_ok(transactions('watermark'), '<=', $TABLES / 3, 'and so do their acknowledgements');
	is_all_stored('each row has been stored once');
}

# ------------------------------------------------------------- the sick ones
# All acknowledgements are in the worker's memory, which has not locked anything yet.
{
	my $locker = $node->background_psql('postgres', on_error_stop => 1);
	my $watermark_locker = $node->background_psql('postgres', on_error_stop => 1);

	hold_all();
	stand_before_lock();
	$locker->query_safe('BEGIN; SELECT 1 FROM incsink.sink_table_def WHERE partition_id = ' . partition(1) . ' FOR UPDATE');
	$watermark_locker->query_safe('BEGIN; SELECT 1 FROM incsink.watermark WHERE partition_id = ' . partition(2) . ' FOR UPDATE');
	update_watermark(3, "epoch = '9-' || epoch");
	insert_into_all();
	my $bad = insert('g_4', divisor => 0);
	disarm($node, 'before-turn-lock');

	wait_for_query($node, "SELECT count(*) FROM incsink.stat_delivery WHERE dataset !~ '_[1-4]\$' AND state = 'waiting'
		AND lag_rows = 0 AND in_flight_batch IS NULL", $TABLES - 4, 'those beside the sick ones go on to the end');
	is(state(3), 'halted: the intent of this delivery does not fit its watermark', 'a fenced one is halted');
	wait_for_query($node, "SELECT reason LIKE '%division by zero%' FROM incsink.stat_delivery WHERE dataset = 'public.g_4'",
		't', 'one whose rows cannot be read says why');
	wait_for_query($node, "SELECT count(*) FROM incsink.stat_delivery WHERE dataset ~ '_[12]\$'
		AND reason ~ 'is locked by process'", '2', 'two that are locked say by whom');
	is($node->safe_psql('postgres', "SELECT count(*) FROM incsink.intent WHERE partition_id IN (@{[ join ', ', map { partition($_) } 1 .. 3 ]})"),
		'3', 'and what they have not committed stands');

	$_->query_safe('COMMIT') && $_->quit foreach $locker, $watermark_locker;
	update_watermark(3, 'epoch = substr(epoch, 3)');
	$node->safe_psql('postgres', "DELETE FROM g_4 WHERE id = $bad; SELECT incsink_resume_sink('central')");
	settle('put right all go on');
	is_all_stored('and each row has been stored once');
}

# One that is fenced where nothing fails: the shared statement goes through, and moves one
# delivery fewer than it was asked to.
{
	my $of_fenced = 'partition_id = ' . partition(3);

	hold_all();
	stand_before_lock();
	update_watermark(3, "epoch = '9-' || epoch");
	disarm($node, 'before-turn-lock');
	wait_for_query($node, "SELECT count(*) FROM incsink.intent WHERE NOT $of_fenced", '0', 'those beside a fenced one are acknowledged');
	is($node->safe_psql('postgres', "SELECT count(*) FROM incsink.intent WHERE $of_fenced"), '1', 'and its intent stands');
	wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE dataset = 'public.g_3'}, 'halted', 'until somebody looks');

	update_watermark(3, 'epoch = substr(epoch, 3)');
	$node->safe_psql('postgres', q{SELECT incsink_resume_sink('central')});
	settle('put right it goes on');
	is_all_stored('and each row has been stored once');
}

# A role that is gone.
{
	$node->safe_psql('postgres', qq{
		CREATE ROLE leaver SUPERUSER; SET ROLE leaver;
		SELECT incsink_create_sink('orphan', '@{[ $collector->url('/orphan') ]}', tables => '{g_5}', options => '{"start": "now"}');
		RESET ROLE; DROP ROLE leaver});
	insert_into_all();
	wait_for_query($node, "SELECT state || ': ' || (reason ~ 'does not exist') FROM incsink.stat_delivery WHERE sink = 'orphan'",
		'halted: true', 'a sink without an owner is halted');
	$node->safe_psql('postgres', "SELECT incsink_drop_sink('orphan')");
	settle('and the others are not');
	is_all_stored('each row has been stored once');
}

# ------------------------------------------------- the end between commit and sends
foreach my $point ('after-commit', 'before-send', 'before-commit', 'before-turn-lock', 'before-intent', 'before-acknowledge')
{
	my $offset = -s $node->logfile;

	if ($point eq 'before-acknowledge')
	{
		hold_all();
		inject($node, $point, 'kill once');
		answer_all();
	}
	else
	{
		inject($node, $point, 'kill once');
		insert_into_all();
	}
	wait_until(sub { server_log_like($node, qr/reinitializing.*ready to accept connections/s, $offset) });
	settle("killed at $point the worker goes on");
	is_all_stored('and each row has been stored once');
}

# ----------------------------------------- several batches of one delivery at once
# Three intents that follow each other, as a window of several batches has them.
{
	my $where = 'sink_id = ' . sink() . ' AND partition_id = ' . partition(7);

	$node->safe_psql('postgres', q{SELECT incsink_pause_sink('central')});
	wait_for_query($node, q{SELECT count(*) FROM incsink.intent}, '0');
	$node->safe_psql('postgres', qq{
		INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination, epoch, since_seq, until_seq,
			row_count, byte_count, digests, encoding, flush_trigger)
		SELECT 1000000 + k, repeat(k::text, 32), sink_id, partition_id, '', epoch, CASE k WHEN 1 THEN sent_seq ELSE seq + 10 * (k - 1) END, seq + 10 * k,
			10 * k, 100 * k, '{}', '{"format": "ndjson"}', (ARRAY['rows', 'bytes', 'rows'])[k]
		FROM incsink.watermark, generate_series(1, 3) AS k WHERE $where});
	my $before = watermark($where);

	is(acknowledge('{1000002}', 1), 'f', 'the second batch is not acknowledged before the first');
	is(acknowledge('{1000001,1000003}', 1), 'f', 'nor the third with the first');
	is(acknowledge('{1000001,1000004}', 1), 'f', 'nor one that is gone');
	is(acknowledge('{1000001}', 2), 'f', 'nor fewer deliveries than were meant');
	is(watermark($where), $before, 'and the watermark stands');
	is($node->safe_psql('postgres', "SELECT pass_empty_range(sink_id, partition_id, epoch, seq, seq + 5) FROM incsink.watermark WHERE $where"),
		'f', 'it does not pass rows that are in flight');
	is(acknowledge('{1000002,1000001}', 1), 't', 'the first two are acknowledged together');
	is($node->safe_psql('postgres', "SELECT (SELECT string_agg(intent_id::text, ' ') FROM incsink.intent WHERE $where)
			|| ' ' || (seq - split_part('$before', ' ', 1)::bigint) || ' ' || (rows_exported - split_part('$before', ' ', 2)::bigint)
			|| ' ' || (bytes_exported - split_part('$before', ' ', 3)::bigint) || ' ' || (batches_exported - split_part('$before', ' ', 4)::bigint)
			|| ' ' || flushes_rows || ' ' || flushes_bytes FROM incsink.watermark WHERE $where"),
		'1000003 20 30 300 2 1 1', 'which moves the watermark over both, and counts both');
}

done_testing();

# Ids are one's own whatever the table.
sub insert
{
	my ($table, %values) = @_;
	my $divisor = $values{divisor} // 1;
	$node->safe_psql('postgres', "INSERT INTO $table (id, divisor) VALUES ($next_id, $divisor)");
	return $next_id++;
}

sub insert_into_all
{
	my $sql = '';

	foreach my $table (1 .. $TABLES)
	{
		$sql .= "INSERT INTO g_$table (id) SELECT generate_series($next_id, @{[ $next_id + $ROWS - 1 ]});";
		$next_id += $ROWS;
	}
	$node->psql('postgres', "BEGIN; $sql COMMIT");
	return;
}

# A batch of every table that the collector has stored and not answered.
sub hold_all
{
	settle();
	$collector->control('times=always store hang');
	insert_into_all();
	wait_until(sub { $collector->held == $TABLES });
	return;
}

# The worker stands at the first answer until it can have all of them.
sub answer_all
{
	inject($node, 'http-answer', 'wait');
	$collector->back_to_normal;
	wait_reached($node, 'http-answer');
	wait_until(sub { $collector->held == 0 });
	disarm($node, 'http-answer');
	return;
}

# The same, and then before the turn that is to commit them.
sub stand_before_lock
{
	inject($node, 'http-answer', 'wait');
	$collector->back_to_normal;
	wait_reached($node, 'http-answer');
	wait_until(sub { $collector->held == 0 });
	inject($node, 'before-turn-lock', 'wait');
	disarm($node, 'http-answer');
	wait_reached($node, 'before-turn-lock');
	return;
}

sub settle
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for_query($node, q{SELECT count(*) FROM incsink.stat_delivery WHERE NOT
		(lag_rows = 0 AND in_flight_batch IS NULL AND state = 'waiting')}, '0', $name);
}

# Rows of the last statement that wrote them have one number of a transaction.
sub transactions
{
	my ($table) = @_;
	return $node->safe_psql('postgres', "SELECT count(DISTINCT xmin::text) FROM incsink.$table");
}

sub sink { return $node->safe_psql('postgres', q{SELECT sink_id FROM incsink.sink_def WHERE name = 'central'}); }

sub partition
{
	my ($table) = @_;
	return $node->safe_psql('postgres', "SELECT partition_id FROM incsink.partition_def WHERE dataset = 'public.g_$table'");
}

sub state
{
	my ($table) = @_;
	return $node->safe_psql('postgres', "SELECT state || ': ' || reason FROM incsink.stat_delivery WHERE dataset = 'public.g_$table'");
}

sub update_watermark
{
	my ($table, $change) = @_;
	$node->safe_psql('postgres', "UPDATE incsink.watermark SET $change WHERE partition_id = " . partition($table));
	return;
}

sub watermark
{
	my ($where) = @_;
	return $node->safe_psql('postgres', "SELECT concat_ws(' ', seq, rows_exported, bytes_exported, batches_exported)
		FROM incsink.watermark WHERE $where");
}

# In a transaction that is kept only if it says so.
sub acknowledge
{
	my ($intents, $deliveries) = @_;
	my $call = "acknowledge(@{[ sink() ]}, @{[ partition(7) ]}, '$intents', $deliveries)";

	return 't' if $node->psql('postgres', "DO \$\$ BEGIN IF NOT $call THEN RAISE 'not all'; END IF; END \$\$") == 0;
	return 'f';
}

sub is_all_stored
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_exported($node, join(' UNION ALL ', map { "SELECT id FROM g_$_" } 1 .. $TABLES),
		rows_at_collector($collector, 'id', sink => 'central'), $name);
}
