# Bodies of all deliveries share incsink.buffer_memory: however many are stuck, something
# stays for the others.  And what has a batch cut, each of it alone.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# A worker has, beside the bodies that are counted, the one that is being made and its
# caches (kB).
my $BESIDE = 24 * 1024;
my $MINIMUM = 64;				# kB that a delivery may always have

my $node = new_node('memory', conf => [ "incsink.buffer_memory = '1MB'", 'incsink.max_connections = 300' ]);
my $hung = Collector->new;
my $healthy = Collector->new;

# ------------------------------------------------------------------- the rule
# See incsink_test_memory(): bytes in kB, then what each word is answered with.
$node->safe_psql('postgres', q{
	CREATE FUNCTION memory(bigint, text) RETURNS text LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_memory'});
foreach my $case (
	[ 1000000, '1+10000000', '500000', 'one delivery alone may hold half of it' ],
	[ 1000000, '1+100000', '100000', 'or what it has' ],
	[ 1000000, '1+200000 1+10000000', '200000 300000', 'in more batches than one, too' ],
	[ 1000000, '1+10000000 1+10000000', '500000 0', 'and then has to wait' ],
	[ 1000000, '1+10000000 2+10000000 3+10000000', '500000 250000 125000', 'each takes half of what is free' ],
	[ 1000000, '1+10000000 2+10000000 1- 3+10000000', '500000 250000 - 375000', 'what is given back is free' ],
	[ 1000000, '1+10000000 2+10000000 3+10000000 4+10000000 5+10000000 6+10000000',
		'500000 250000 125000 65536 65536 65536', 'who holds nothing may always have a little' ],
	[ 1000000, '1? 1?500000', 'yes yes', 'a batch that stands goes again by the same rule' ],
	[ 1000000, '1+200000 2?500000', '200000 yes', 'the first in line may have all that is free' ],
	[ 1000000, '1+400000 2?700000 1- 2?700000', '400000 no - yes', 'one that needs more waits until that is free' ],
	[ 1000000, '1+400000 2?700000 3+10000000 4?600000 1- 4?600000 2?700000', '400000 no 65536 no - no yes',
		'its need is kept free from others, who have a little, and from those behind it' ],
	[ 1000000, '1+400000 2?700000 0@1500 3+10000000', '400000 no @ 300000', 'one that asks no more has lost its place' ],
	[ 1000000, '2?5000000', 'yes', 'one that is larger than all there is goes when nobody holds anything' ],
	[ 1000000, '1+400000 2?5000000', '400000 yes', 'or when half of it is free' ],
	[ 1000000, '1+10000000 3+50000 2?5000000 1- 2?5000000', '500000 50000 no - yes', 'and not before' ],
	[ 1000000, '1+60000 1?65536 2?65536', '60000 yes yes', 'a small one always goes' ],
)
{
	my ($limit, $words, $expected, $name) = @$case;
	is($node->safe_psql('postgres', "SELECT memory($limit, '$words')"), $expected, $name);
}

# A thousand that are stuck with all they could get, and one that is not.
{
	my $words = join ' ', map { "$_+4000000" } 1 .. 1000;
	my @got = split / /, $node->safe_psql('postgres', "SELECT memory(268435456, '$words 1001+4000000 1001? 1001-')");
	my $total = 0;

	$total += $_ foreach @got[ 0 .. 999 ];
	cmp_ok($total, '<=', 268435456 + 1000 * 65536, 'a thousand that are stuck hold the setting and a little each');
	is($got[1000], 65536, 'and another one goes on');
}

# ------------------------------------------------------- stuck ones, and one that is not
my $STUCK = 40;

$node->safe_psql('postgres', q{CREATE TABLE t (id bigint, v text); SELECT incsink_attach('t')});
create_sink("stuck_$_", $hung->url("/stuck_$_")) foreach 1 .. $STUCK;
create_sink('healthy', $healthy->url('/healthy'));
$hung->control('times=always store hang');
insert(1, 1);
settle('healthy', 'the healthy one has the first row');
wait_until(sub { $hung->held == $STUCK });

my $pid = $node->safe_psql('postgres', q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'});
my $before = anonymous();

insert(2, 20000);				# 2 MB for each
$hung->back_to_normal;
$hung->control('times=always store hang');
wait_until(sub { $hung->held == $STUCK });
settle('healthy', 'forty that hang, and one goes on to the end');
my $with_few = anonymous();
cmp_ok($with_few - $before, '<', 1024 + ($STUCK + 1) * $MINIMUM + $BESIDE, 'the worker stays within the setting, and what every delivery may have');
cmp_ok(buffer_bytes(), '<=', 1024 * (1024 + ($STUCK + 1) * $MINIMUM), 'by its own count too');
cmp_ok($node->safe_psql('postgres', q{SELECT flushes_memory FROM incsink.stat_delivery WHERE sink = 'healthy'}), '>', 0,
	'batches were cut for want of memory, and are counted');

insert(20001, 300000);			# 25 MB for each
settle('healthy', 'with fifteen times as many rows waiting');
cmp_ok(anonymous() - $before, '<', 1024 + ($STUCK + 1) * $MINIMUM + $BESIDE, 'it holds no more');

$node->safe_psql('postgres', "SELECT incsink_drop_sink('stuck_' || n) FROM generate_series(3, $STUCK) AS n");
$hung->back_to_normal;
settle("stuck_$_") foreach 1, 2;
foreach my $sink ('healthy', 'stuck_1', 'stuck_2')
{
	my $collector = $sink eq 'healthy' ? $healthy : $hung;
	is($node->safe_psql('postgres', "SELECT rows_exported FROM incsink.stat_delivery WHERE sink = '$sink'"), 300000, "$sink has counted every row");
	is(rows_stored($collector, $sink), 300000, 'and its receiver has as many');
}
is(buffer_bytes(), 0, 'at rest nothing is held');
$node->safe_psql('postgres', q{SELECT incsink_drop_sink(name) FROM incsink.sink_def});

# A batch that was cut with more memory than there is now goes again.
$node->append_conf('postgresql.conf', "incsink.buffer_memory = '64MB'");
$node->reload;
$node->safe_psql('postgres', q{CREATE TABLE big (id bigint, v text); SELECT incsink_attach('big')});
$node->safe_psql('postgres', "SELECT incsink_create_sink('big', '@{[ $healthy->url('/big') ]}', tables => '{big}',
	options => '{\"flush_bytes\": \"20MB\", \"flush_rows\": 1000000, \"retry_initial\": \"20ms\", \"retry_max\": \"100ms\"}')");
$healthy->control('sink=big times=always status=503');
$node->safe_psql('postgres', "INSERT INTO big (id, v) SELECT g, repeat('x', 1000) FROM generate_series(1, 10000) AS g");
wait_for_query($node, q{SELECT failures > 0 FROM incsink.stat_delivery WHERE sink = 'big'}, 't', 'a batch of 10 MB is refused');
$node->append_conf('postgresql.conf', "incsink.buffer_memory = '1MB'");
$node->reload;
$healthy->back_to_normal;
settle('big', 'with less memory it goes as it was cut');
$node->safe_psql('postgres', q{SELECT incsink_drop_sink('big')});

# ----------------------------------------------------------- what has a batch cut
$node->safe_psql('postgres', q{
	CREATE TABLE old (id bigint PRIMARY KEY, v text); INSERT INTO old SELECT g, 'old' FROM generate_series(1, 10) AS g;
	SELECT incsink_attach('old')});
foreach my $case (
	[ 'interval', '"flush_interval": "10ms"', 'interval', [ 1 ] ],
	[ 'rows', '"flush_interval": "1d", "flush_rows": 10', 'rows', [ 10 ] ],
	[ 'request', '"flush_interval": "1d"', 'requested', [ 3, 'flush' ] ],
	[ 'bytes', '"flush_interval": "1d", "flush_bytes": "1kB"', 'requested bytes', [ 1, 'flush' ], [ 30 ] ],
	[ 'memory', '"flush_interval": "0", "flush_bytes": "64MB", "flush_rows": 1000000', 'interval memory', [ 9000 ] ],
	[ 'backlog', '"flush_interval": "1d"', 'backlog', ],
)
{
	my ($name, $options, $expected, @steps) = @$case;
	my $table = $name eq 'backlog' ? 'old' : "of_$name";

	$node->safe_psql('postgres', "CREATE TABLE $table (id bigint, v text); SELECT incsink_attach('$table')") if $name ne 'backlog';
	$node->safe_psql('postgres', "SELECT incsink_create_sink('by_$name', '@{[ $healthy->url ]}', tables => '{$table}',
		options => '{$options}')");
	foreach my $step (@steps)
	{
		my ($rows, $flush) = @$step;

		$node->safe_psql('postgres', "INSERT INTO $table (id, v) SELECT g, repeat('x', 180) FROM generate_series(1, $rows) AS g");
		$node->safe_psql('postgres', "SELECT incsink_flush('by_$name')") if $flush;
		wait_for_query($node, "SELECT rows_exported > 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = 'by_$name'");
	}
	settle_or_wait("by_$name");
	is($node->safe_psql('postgres', "SELECT concat_ws(' ', CASE WHEN flushes_interval > 0 THEN 'interval' END,
			CASE WHEN flushes_rows > 0 THEN 'rows' END, CASE WHEN flushes_requested > 0 THEN 'requested' END,
			CASE WHEN flushes_bytes > 0 THEN 'bytes' END, CASE WHEN flushes_memory > 0 THEN 'memory' END,
			CASE WHEN flushes_backlog > 0 THEN 'backlog' END) FROM incsink.stat_delivery WHERE sink = 'by_$name'"),
		$expected, "batches are cut by $name alone");
	is($node->safe_psql('postgres', "SELECT flushes_interval + flushes_rows + flushes_bytes + flushes_memory + flushes_requested
			+ flushes_backlog - batches_exported FROM incsink.stat_delivery WHERE sink = 'by_$name'"), '0', 'and each is counted once');
}

done_testing();

sub create_sink
{
	my ($name, $url) = @_;
	$node->safe_psql('postgres', "SELECT incsink_create_sink('$name', '$url', tables => '{t}',
		options => '{\"flush_interval\": \"0\", \"retry_initial\": \"20ms\", \"retry_max\": \"100ms\"}')");
	return;
}

sub insert
{
	my ($first, $last) = @_;
	$node->safe_psql('postgres', "INSERT INTO t (id, v) SELECT g, repeat('x', 60) FROM generate_series($first, $last) AS g");
	return;
}

sub settle
{
	my ($sink, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for_query($node, "SELECT lag_rows = 0 AND in_flight_batch IS NULL AND state = 'waiting'
		FROM incsink.stat_delivery WHERE sink = '$sink'", 't', $name);
}

# What is below the trigger stays.
sub settle_or_wait
{
	my ($sink) = @_;
	return wait_for_query($node, "SELECT rows_exported > 0 AND in_flight_batch IS NULL AND state = 'waiting' AND batches_exported
			= flushes_interval + flushes_rows + flushes_bytes + flushes_memory + flushes_requested + flushes_backlog
			AND (lag_rows = 0 OR sink = 'by_bytes') FROM incsink.stat_delivery WHERE sink = '$sink'");
}

# Memory of the worker's own, without what it shares with others (kB).
sub anonymous
{
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m;
	return $kb;
}

# What it counts itself.
sub buffer_bytes { return $node->safe_psql('postgres', "SELECT buffer_bytes FROM incsink.stat_worker WHERE pid = $pid"); }

sub rows_stored
{
	my ($collector, $sink) = @_;
	my $rows = 0;
	$rows += $_->{rows} foreach @{ $collector->entries(sink => $sink, outcome => 'stored') };
	return $rows;
}
