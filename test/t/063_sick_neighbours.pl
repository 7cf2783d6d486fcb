# Five deliveries that are sick, each in another way and all the time, beside twenty
# healthy ones on one worker: those lose nothing by it, and memory stays bounded (I8).
# 032_no_spreading.pl has one trouble at a time; this is all of them, with full
# batches and little memory.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ScriptedServer;
use Test::More;

my $megabytes = 16;			# incsink.buffer_memory: the sick ones alone could hold all of it
my $rounds = 6;
my $rows_a_round = 500;
my $sick_rows = 5000;		# of 1 kB: more than a batch

my $node = new_node('sick_neighbours', conf => [ "incsink.buffer_memory = '${megabytes}MB'", 'incsink.poll_interval = 100ms' ]);
my $collector = Collector->new;
my $server = ScriptedServer->new;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# -------------------------------------------------------------------- the sick

my %scripts = sick_scripts();
my @healthy = map { "healthy_$_" } 1 .. 20;
my @sick = sort keys %scripts;
my @all = (@healthy, @sick, 'locked');

sub make_sink
{
	my ($name) = @_;
	my $url = $scripts{$name} ? $server->place($name, always => $scripts{$name})->url($name) : $collector->url("/$name");

	return "CREATE TABLE $name (id int, v text);
		SELECT incsink_attach('$name');
		SELECT incsink_create_sink('$name', '$url', tables => '{$name}', enabled => false,
			options => '{\"retry_initial\": \"10ms\", \"retry_max\": \"500ms\", \"request_timeout\": \"1h\", \"stall_timeout\": \"1h\"}');";
}

sub column
{
	my ($name, $what) = @_;
	return sql("SELECT $what FROM incsink.stat_delivery WHERE sink = '$name'");
}

sub wait_seen
{
	my ($name, $condition, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT $condition FROM incsink.stat_delivery WHERE sink = '$name'", 't', $test, 180)
	  or diag(column($name, "concat_ws(' | ', state, failures, retry_at, reason, hint, last_error)"));
	return;
}

sql(join ';', map { make_sink($_) } @all);
sql(join ';', map { "INSERT INTO $_ SELECT n, repeat('x', 1000) FROM generate_series(1, $sick_rows) AS n" } @sick, 'locked');
my $session = $node->background_psql('postgres');
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe('BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
sql("SELECT incsink_resume_sink('$_')") foreach @all;

wait_until(sub { $server->seen($_)->{busy} == 1 }, "$_: it has the request, and no answer comes of it", 180) foreach qw(hanging trickling);
wait_seen('failing', "failures > 5 AND state = 'open circuit' AND reason LIKE '%answered 500: out of order' AND retry_at IS NOT NULL", 'failing: the view says why');
wait_seen('flooding', "failures > 5 AND state = 'open circuit' AND reason LIKE '%answered 500: xxx%' AND length(reason) < 500", 'flooding: the view shows the beginning of its answer');
wait_seen('locked', "reason LIKE '%process $pid%' AND rows_exported = 0", 'locked: the view names the process that has the lock');

# ----------------------------------------------------------------- the healthy

my ($worker) = worker_pids($node, 'postgres', 'forward');

# Memory of its own that a process has now, in megabytes.
sub memory_of { return slurp_file("/proc/$_[0]/status") =~ /^RssAnon:\s+(\d+) kB/m ? $1 / 1024 : die 'no RssAnon'; }

sub requests_of { return { map { $_ => $server->seen($_)->{requests} } @sick }; }

my $before = requests_of();
my $memory = 0;
foreach my $round (1 .. $rounds)
{
	my $done = $round * $rows_a_round;

	sql(join ';', map { "INSERT INTO $_ SELECT n, repeat('x', 200) FROM generate_series(" . ($done - $rows_a_round + 1) . ", $done) AS n" } @healthy);
	wait_until(
		sub {
			my $now = memory_of($worker);
			$memory = $now if $now > $memory;
			return $collector->count->{rows} == $done * @healthy;
		}, "round $round: every row of the healthy ones has arrived", 180)
	  or diag(sql("SELECT sink, state, reason, lag_rows FROM incsink.stat_delivery WHERE lag_rows > 0 AND sink LIKE 'healthy%'"));
}

# The sick ones are as they were.
wait_until(sub { $server->seen($_)->{requests} > $before->{$_} }, "$_: it is tried again, and again", 180) foreach qw(failing flooding);
my $after = requests_of();
is($server->seen($_)->{busy}, 1, "$_: meanwhile no answer came") foreach qw(hanging trickling);
is($after->{$_}, $before->{$_}, "$_: it is still the same request") foreach qw(hanging trickling);
is(column($_, 'rows_exported'), 0, "$_: nothing was exported") foreach @sick, 'locked';
like(column('locked', 'reason'), qr/process $pid\b/, 'locked: it still is');
is(join(',', map { column($_, 'state') } qw(hanging trickling)), 'sending,sending', 'the view shows what hangs as being sent');
is(sql(q{SELECT count(*) FROM incsink.stat_delivery WHERE sink LIKE 'healthy%' AND (failures > 0 OR last_error IS NOT NULL)}), 0, 'no healthy one has ever had an error');
is(join(',', worker_pids($node, 'postgres', 'forward')), $worker, 'one worker did it all');

# Beside its batches: connections, libcurl's buffers, caches.
cmp_ok($memory, '<', $megabytes + 48, "the worker never had much more memory than it may use for batches ($memory MB)");
my $sent = $server->seen('flooding')->{sent} / $after->{flooding};
cmp_ok($sent, '<', 100 * 1024 * 1024, 'of a gigabyte no more is read than the limit of an answer');

# -------------------------------------------------------------------- the cure

$server->well(@sick);
$session->query_safe('ROLLBACK');
$session->quit;
wait_for_query($node, q{SELECT bool_and(state = 'waiting' AND reason IS NULL AND failures = 0 AND lag_rows = 0 AND in_flight_batch IS NULL) FROM incsink.stat_delivery},
	't', 'once the trouble is over, every delivery is up to date', 180);
is_exported($node, "SELECT id FROM $_", $server->seen($_)->{rows}, "$_: each row is there once") foreach @sick;
is_exported($node, "SELECT id FROM $_", [ map { /^\{"id":(\d+)/ } @{ $collector->lines(sink => $_) } ], "$_: each row is there once") foreach @healthy, 'locked';

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
done_testing();
