# Many writers, every way to write, pauses before COMMIT; collectors that fail; the
# server killed twice and a worker once: no row is missing, none doubled.
#
#	INCSINK_STRESS_SECONDS	how long they write (default 20)
#	INCSINK_STRESS_WRITERS	how many they are (default 16)

use strict;
use warnings;

use Export;
use IncsinkTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{INCSINK_STRESS_SECONDS} || 20;
my $writers = $ENV{INCSINK_STRESS_WRITERS} || 16;

my $export = Export->new(
	'stress',
	forward => { flush_rows => 200, request_timeout => '1s' },
	file => { flush_rows => 1000 },
	conf => [
		'incsink.poll_interval = 10ms',
		'track_commit_timestamp = on',		# tells who committed late
		'max_prepared_transactions = 200',
		'checkpoint_timeout = 30s',
		'max_wal_size = 64MB',
	]);
my $node = $export->node;
my $collector = $export->collector;
my $connection = $node->connstr('postgres');
my $scripts = PostgreSQL::Test::Utils::tempdir('scripts');
my $seed = time ^ $$;
srand $seed;
note("seed $seed, $writers writers, $seconds s");

my $deadline = time + $seconds;
my @children = map { start_writer($_) } 1 .. $writers;
my %kills = (0.3 => 'server', 0.5 => 'worker', 0.7 => 'server');
my ($kills, $failures) = (0, 0);

while (time < $deadline)
{
	my $passed = 1 - ($deadline - time) / $seconds;

	foreach my $at (grep { $_ <= $passed } sort keys %kills)
	{
		delete($kills{$at}) eq 'server' ? kill_server() : kill9_worker($node, 'postgres');
		$kills++;
	}
	annoy_collector();
	sleep(0.05 + rand 0.2);
}
waitpid $_, 0 foreach @children;
$collector->start unless $collector->{pid};
$collector->back_to_normal;

# Transactions whose sessions died between PREPARE and its end.
foreach my $gid (split /\n/, $export->query('SELECT gid FROM pg_prepared_xacts'))
{
	$export->query((rand() < 0.5 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
}
$export->settle('all that was written is exported');

my ($rows, $late) = split /\|/, $export->query(q{
	SELECT count(*), count(*) FILTER (WHERE committed > first_above)
	FROM (SELECT committed, min(committed) OVER (ORDER BY ingest_seq DESC
			ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS first_above
		FROM (SELECT ingest_seq, pg_xact_commit_timestamp(xmin) AS committed FROM t) AS row) AS later});
my $requests = $collector->ledger;
note(sprintf '%d rows, %d (%.1f %%) committed after a row with a higher number; %d kills, %d collector failures; '
	  . '%d requests, %d of them repeated; %d files',
	$rows, $late, 100 * $late / $rows, $kills, $failures, scalar @$requests,
	scalar(grep { $_->{outcome} eq 'duplicate' } @$requests), scalar @{ files_below($export->dir) });

is($export->faults, '', 'each row is at the collector and in the files once: 0 missing, 0 duplicate');
is($kills, 3, 'the server was killed three times meanwhile');
cmp_ok($rows, '>', 20 * $seconds * sqrt($writers), 'the writers got on');
cmp_ok($late, '>', $rows / 20, 'many rows were committed after rows with higher numbers');
is($export->query('SELECT count(*) FROM incsink.intent'), '0', 'no intent is left');
is($export->query('SELECT count(DISTINCT ingest_seq) = count(*) FROM t'), 't', 'no number was given twice');
is($export->query("SELECT string_agg(state || COALESCE(reason, ''), ' ') FROM incsink.status"),
	'waiting waiting', 'and both sinks are at rest');

done_testing();

sub kill_server
{
	kill9_server($node);
	restart_after_kill($node);
	return;
}

# What collectors do.
sub annoy_collector
{
	my $dice = rand;

	if (!$collector->{pid})
	{
		$collector->start;
	}
	elsif ($dice < 0.05)
	{
		$collector->kill;
		$failures++;
	}
	elsif ($dice < 0.6)
	{
		my @rules = ('store status=500', 'store close', 'nostore status=503', 'close=headers', 'store cut=30',
			'status=429 header="Retry-After: 1"', 'store hang', 'store delay=100', 'store delay=300');

		$collector->control('reset', 'skip=' . int(rand 3) . ' ' . $rules[ rand @rules ]);
		$failures++;
	}
	else
	{
		$collector->control(rand() < 0.5 ? 'release' : 'drop');
	}
	return;
}

# ---------------------------------------------------------------------- writers

# A process that writes until the time is over, through one psql after the other.
sub start_writer
{
	my ($number) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid;
	my $next_id = $number * 1_000_000_000;
	srand($seed + $number);
	while (time < $deadline)
	{
		my $script = "SET synchronous_commit = " . (rand() < 0.5 ? 'off' : 'on') . ";\n";

		$script .= transaction($number, \$next_id) foreach 1 .. 20;
		append_to_file("$scripts/$number.sql", $script);
		system("psql -XAtq -d \"$connection\" -f $scripts/$number.sql >$scripts/$number.log 2>&1") == 0
		  or sleep 0.1;		# the server is away
		unlink "$scripts/$number.sql";
	}
	POSIX::_exit(0);
}

sub values_of
{
	my ($next_id, $count) = @_;
	return join ', ', map { my $id = $$next_id++; "($id, 'row $id')" } 1 .. $count;
}

sub insert { return 'INSERT INTO t VALUES ' . values_of($_[0], 1 + int rand 5) . ";\n"; }
sub pause { return sprintf "SELECT pg_sleep(%.4f);\n", rand(0.05)**2 * 20; }

sub transaction
{
	my ($number, $next_id) = @_;
	my $kind = int rand 10;
	my $insert = insert($next_id);
	my $more = insert($next_id);

	return $insert if $kind <= 1;
	return "BEGIN;\n$insert" . pause() . $more . pause() . "COMMIT;\n" if $kind <= 4;
	return "BEGIN;\n$insert" . pause() . "ROLLBACK;\n" if $kind == 5;
	return "BEGIN;\n${insert}SAVEPOINT s;\n$more" . pause() . "ROLLBACK TO s;\n" . insert($next_id) . "COMMIT;\n"
	  if $kind == 6;
	if ($kind == 7)
	{
		my $gid = "w$number-$$next_id";
		my $end = rand() < 0.7 ? 'COMMIT' : 'ROLLBACK';

		return "BEGIN;\n${insert}PREPARE TRANSACTION '$gid';\n" . pause() . "$end PREPARED '$gid';\n";
	}
	return "INSERT INTO t SELECT g, 'row ' || g FROM generate_series("
	  . $$next_id . ', ' . (($$next_id += 40) - 1) . ") AS g;\n"
	  if $kind == 8;
	my $lines = join '', map { my $id = $$next_id++; "$id\trow $id\n" } 1 .. 30;
	return "BEGIN;\nCOPY t (id, v) FROM STDIN;\n$lines\\.\n" . pause() . "COMMIT;\n";
}
