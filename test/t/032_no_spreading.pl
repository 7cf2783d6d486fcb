# One delivery that fails, hangs, or is locked does not hold up another (I8), and
# the worker holds nothing while it waits (I6).

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $collector = Collector->new;
my $node = new_node('spreading', conf => [ "incsink.allowed_url_prefixes = '" . $collector->url('/') . "'" ]);
my $row = 0;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A table and a reader of its own for each sink: trouble is made for one of them.
my @all = qw(good hung failing locked claimed marked stated unowned dropped revoked policed);
sql('SET client_min_messages = warning; '
	  . join ';', map { "CREATE ROLE reader_$_; CREATE TABLE $_ (id int); GRANT SELECT ON $_ TO reader_$_; SELECT incsink_attach('$_')" } @all);
foreach my $name (@all)
{
	my $url = $collector->url("/$name");

	sql("GRANT EXECUTE ON FUNCTION incsink_create_sink TO reader_$name;
		SET ROLE reader_$name;
		SELECT incsink_create_sink('$name', '$url', tables => '{$name}',
			options => '{\"retry_initial\": \"10ms\", \"retry_max\": \"100ms\", \"request_timeout\": \"1h\", \"stall_timeout\": \"1h\"}')");
}

# Inserts a row into each table named.
sub insert_rows
{
	my @tables = @_;
	$row++;
	sql(join ';', map { "INSERT INTO $_ VALUES ($row)" } @tables);
	return $row;
}

sub has_arrived
{
	my ($name, $id) = @_;
	return scalar grep { $_ == $id } @{ rows_at_collector($collector, 'id', sink => $name) };
}

# All deliveries but those that are stuck go on; twice, as once could have been
# under way already.
sub others_go_on
{
	my ($test, @stuck) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %stuck = map { $_ => 1 } @stuck;
	my @late = my @others = grep { !$stuck{$_} } @all;

	foreach my $round (1, 2)
	{
		my $id = insert_rows(@others);
		last unless eval {
			wait_until(sub { !(@late = grep { !has_arrived($_, $id) } @others) });
		};
	}
	is("@late", '', $test);
	return;
}

sub wait_seen
{
	my ($name, $condition, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT $condition FROM incsink.stat_delivery WHERE sink = '$name'", 't', $test, 20)
	  or diag(sql("SELECT state, failures, retry_at, reason, hint, last_error FROM incsink.stat_delivery WHERE sink = '$name'"));
	return;
}

# The trouble is over: every row of the table is there, once.
sub recovers
{
	my ($name, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $id = insert_rows($name);

	wait_until(sub { has_arrived($name, $id) }) if eval { wait_until(sub { has_arrived($name, $id) }, undef, 30) };
	is_exported($node, "SELECT id FROM $name", rows_at_collector($collector, 'id', sink => $name), $test);
	return;
}

# A worker that finds something due all the time takes thousands of turns a second.
sub worker_is_calm
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $turns = q{SELECT turns, (extract(epoch FROM clock_timestamp()) * 1000)::int8 FROM incsink.stat_worker WHERE class = 'forward'};
	my ($before, $start) = split /\|/, sql($turns);
	sql('SELECT 1') foreach 1 .. 10;
	my ($after, $end) = split /\|/, sql($turns);
	cmp_ok(($after - $before) / ($end - $start), '<', 0.1, $test);
	return;
}

my ($worker) = worker_pids($node, 'postgres', 'forward');
others_go_on('all deliveries work');

# -------------------------------------------------------------------- receivers

$collector->control('path=/hung store hang', 'path=/failing status=500 times=always');
insert_rows('hung', 'failing');
wait_until(sub { $collector->held == 1 }, 'a receiver hangs');
wait_seen('failing', 'failures > 5', 'another fails all the time');
my @stuck = qw(hung failing);
others_go_on('deliveries to other receivers go on', @stuck);
is($collector->held, 1, 'while it still hangs');

# ------------------------------------------- nothing is held while a request hangs

is(sql(q{SELECT backend_xmin IS NULL AND xact_start IS NULL AND backend_xid IS NULL
	FROM pg_stat_activity WHERE backend_type = 'incsink forward worker'}), 't',
	'the worker has no transaction and no snapshot while a request hangs');
is(sql("SELECT count(*) FROM pg_locks WHERE pid = $worker AND locktype = 'relation'"), 0, 'and no lock on a relation');
sql('CREATE TABLE dead (id int); INSERT INTO dead SELECT generate_series(1, 1000); DELETE FROM dead');
my (undef, undef, $vacuum) = $node->psql('postgres', 'VACUUM (VERBOSE) dead');
like($vacuum, qr/tuples: 1000 removed, 0 remain/, 'VACUUM removes the dead rows of another table meanwhile');
is($collector->held, 1, 'the request hung all the time');

# ------------------------------------------------------------------------ locks

my %sink_id = map { split /\|/ } split /\n/, sql('SELECT name, sink_id FROM incsink.sink_def');

# A row of delivery_state is there only after an error.
$collector->control('path=/stated status=500');
recovers('stated', 'an error was overcome');

foreach my $case (
	[ 'locked', 'LOCK TABLE locked IN ACCESS EXCLUSIVE MODE', 'an ACCESS EXCLUSIVE lock on a table' ],
	[ 'claimed', "SELECT FROM incsink.sink_table_def WHERE sink_id = $sink_id{claimed} FOR UPDATE", 'a locked row of sink_table_def' ],
	[ 'marked', "SELECT FROM incsink.watermark WHERE sink_id = $sink_id{marked} FOR UPDATE", 'a locked row of watermark' ],
	[ 'stated', "SELECT FROM incsink.delivery_state WHERE sink_id = $sink_id{stated} FOR UPDATE", 'a locked row of delivery_state' ])
{
	my ($name, $query, $what) = @$case;
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	# A row that comes after the table's lock would wait for it, too.
	if ($name eq 'locked')
	{
		sql("SELECT incsink_pause_sink('locked')");
		insert_rows('locked');
	}
	$session->query_safe("BEGIN; $query");
	$collector->control('path=/stated status=500') if $name eq 'stated';
	$name eq 'locked' ? sql("SELECT incsink_resume_sink('locked')") : insert_rows($name);
	others_go_on("$what holds up no other delivery", @stuck, $name);
	wait_seen($name, "reason LIKE '%process $pid%'", 'the view names the process that holds it') if $name ne 'stated';
	others_go_on('they go on all the time', @stuck, $name);
	$session->query_safe('ROLLBACK');
	$session->quit;
	wait_seen($name, "state = 'waiting' AND reason IS NULL AND lag_rows = 0", 'once it is gone, that delivery goes on, and nothing more is said of it');
	worker_is_calm('and nobody is in a hurry');
	recovers($name, 'it has every row once');
	is(scalar @{ $collector->entries(sink => $name, outcome => 'duplicate') }, 0, 'no batch was sent twice');
}

# A failure that cannot be recorded for a lock, and is overcome in the turn in which it can.
{
	my $session = $node->background_psql('postgres');

	$session->query_safe("BEGIN; SELECT FROM incsink.delivery_state WHERE sink_id = $sink_id{stated} FOR UPDATE");
	$collector->control('path=/stated status=500');
	inject($node, 'before-acknowledge', 'wait');
	insert_rows('stated');
	wait_reached($node, 'before-acknowledge');
	$session->query_safe('ROLLBACK');
	$session->quit;
	disarm($node, 'before-acknowledge');
	wait_seen('stated', "state = 'waiting' AND reason IS NULL AND failures = 0 AND lag_rows = 0", 'a failure that was overcome before it could be shown is not shown');
}

# ---------------------------------------------------------- what no retry mends

foreach my $case (
	[ 'revoked', 'REVOKE SELECT ON revoked FROM reader_revoked', 'permission denied', 'GRANT SELECT ON revoked TO reader_revoked' ],
	[ 'policed', 'ALTER TABLE policed ENABLE ROW LEVEL SECURITY', 'row-level security', 'ALTER TABLE policed DISABLE ROW LEVEL SECURITY' ],
	[ 'unowned', 'DROP OWNED BY reader_unowned; DROP ROLE reader_unowned', 'role', undef ],
	[ 'dropped', 'DROP TABLE dropped', 'does not exist any more', undef ])
{
	my ($name, $trouble, $reason, $mend) = @$case;

	sql("INSERT INTO $name VALUES (0)") if $name ne 'dropped';
	sql($trouble);
	insert_rows($name) if $name ne 'dropped';
	push @stuck, $name;
	wait_seen($name, "state = 'halted' AND reason LIKE '%$reason%' AND hint <> ''", "$trouble: the delivery halts, with a reason and a hint");
	others_go_on('the others go on', @stuck);
	next unless defined $mend;
	sql($mend);
	recovers($name, "$mend: it goes on, with every row once");
	pop @stuck;
}
is(sql(q{SELECT incsink_forget_partition('public.dropped'); SELECT count(*) FROM incsink.partitions WHERE dataset = 'public.dropped'}),
	"\n0", 'a table that was dropped can be forgotten');
sql(q{SELECT incsink_drop_sink('unowned')});
@all = grep { !/^(dropped|unowned)$/ } @all;
others_go_on('and the others go on', qw(hung failing));

is(join(',', worker_pids($node, 'postgres', 'forward')), $worker, 'all that time it was one and the same worker');
$collector->back_to_normal;
@stuck = ();
recovers($_, "in the end $_ has every row once") foreach @all;

# ------------------------------------------------ settings that are not its own

sql(q{
	ALTER DATABASE postgres SET default_transaction_read_only = on;
	ALTER DATABASE postgres SET statement_timeout = 1;
	ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
	ALTER DATABASE postgres SET default_transaction_deferrable = on;
	ALTER DATABASE postgres SET idle_in_transaction_session_timeout = 1;
	ALTER DATABASE postgres SET search_path = 'nowhere';
	ALTER DATABASE postgres SET row_security = off;
	ALTER DATABASE postgres SET session_replication_role = 'replica';
});
# The test's own sessions override them.
$ENV{PGOPTIONS} = '-c default_transaction_read_only=off -c statement_timeout=0'
  . ' -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off'
  . ' -c idle_in_transaction_session_timeout=0 -c search_path=public -c session_replication_role=origin';

# ------------------------------------------------------------ cancel, terminate

my ($old) = worker_pids($node, 'postgres', 'forward');
$collector->control('path=/hung store hang');
$row++;
sql("INSERT INTO hung VALUES ($row)");
wait_until(sub { $collector->held == 1 });
my $batch = $collector->entries(sink => 'hung')->[-1];
sql("SELECT pg_cancel_backend($old)");
$row++;
sql("INSERT INTO good VALUES ($row)");
wait_until(sub { has_arrived('good', $row) }, 'pg_cancel_backend() cancels nothing that would not be done again');
is($collector->held, 1, 'not even the request that hangs');
is(join(',', worker_pids($node, 'postgres', 'forward')), $old, 'the worker is the same');

sql("SELECT pg_terminate_backend($old)");
$row++;
sql("INSERT INTO good VALUES ($row); INSERT INTO hung VALUES ($row)");
wait_until(sub { has_arrived('good', $row) && has_arrived('hung', $row) },
	'after pg_terminate_backend() another worker goes on, whatever settings the database has');
is(join(',', map { "$_->{id} $_->{until}" } @{ $collector->entries(sink => 'hung', outcome => 'duplicate') }),
	"$batch->{id} $batch->{until}", 'the batch that was on its way came again under its id');
is_exported($node, "SELECT id FROM $_", rows_at_collector($collector, 'id', sink => $_), "$_ has every row once")
  foreach qw(good hung);

my @ends = slurp_file($node->logfile) =~ /(background worker "incsink .*exited with exit code.*)/g;
is(scalar @ends, 1, 'the worker ended when it was told to, and only then') or diag(join "\n", @ends);
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
done_testing();
