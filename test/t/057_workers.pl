# The deliveries of a database are shared out among several workers: each has one
# owner, one that is stopped holds up its own only, and a change of incsink.workers
# moves them over without a row lost or stored twice.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $tables = 12;
my $options = '{"flush_interval": 0, "retry_initial": "20ms", "retry_max": "200ms"}';
my $from_now = $options =~ s/\}$/, "start": "now"}/r;
my $node = new_node('workers', conf => [ 'max_worker_processes = 40', 'incsink.workers = 3' ]);
my $collector = Collector->new;
my $files = PostgreSQL::Test::Utils::tempdir('files');
my %next_id = map { $_ => 1 } 1 .. $tables;

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# Tables 1 to N of a database, each with a sink of its own at the collector.
sub create_tables
{
	my ($count, $database) = @_;
	my $url = $collector->url;

	sql(join("\n", map { "CREATE TABLE t$_ (id bigint); SELECT incsink_attach('t$_');
		SELECT incsink_create_sink('s$_', '$url', tables => '{t$_}', options => '$options');" } 1 .. $count), $database);
	return;
}

sub insert
{
	my ($rows, @into) = @_;
	my @statements;

	foreach my $number (@into)
	{
		my $first = $next_id{$number};
		my $last = $first + $rows - 1;

		push @statements, "INSERT INTO t$number (id) SELECT generate_series($first, $last);";
		$next_id{$number} = $last + 1;
	}
	sql(join "\n", @statements);
	return;
}

sub set_workers
{
	my ($count) = @_;

	$node->append_conf('postgresql.conf', "incsink.workers = $count");
	$node->reload;
	return;
}

# Sinks of a kind that all stand at their end.
sub settled
{
	my ($kind, @numbers) = @_;
	my $names = join ', ', map { "'" . ($kind eq 'forward' ? 's' : 'f') . "$_'" } @numbers;

	return sql("SELECT count(*) FROM incsink.stat_delivery WHERE sink IN ($names) AND lag_rows = 0
		AND in_flight_batch IS NULL AND state = 'waiting'") == @numbers;
}

sub wait_settled
{
	my ($name, @numbers) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	@numbers = 1 .. $tables unless @numbers;
	wait_until(sub { settled('forward', @numbers) }, $name, 180)
	  or diag(sql('SELECT sink, state, reason, lag_rows, in_flight_batch, last_error, pid FROM incsink.stat_delivery'));
	return;
}

# Each row of the tables is stored once, over all bodies whose id was new.
sub stored_once
{
	my ($name, @numbers) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (@expected, @got);

	@numbers = 1 .. $tables unless @numbers;
	foreach my $number (@numbers)
	{
		push @expected, map { "$number/$_" } 1 .. $next_id{$number} - 1;
		push @got, map { "$number/$_" } @{ rows_at_collector($collector, 'id', sink => "s$number") };
	}
	my $result = compare_rows(\@expected, \@got);
	is("missing $result->{missing} duplicate $result->{duplicate} unexpected $result->{unexpected}",
		'missing 0 duplicate 0 unexpected 0', $name)
	  or diag(join "\n", @{ $result->{examples} });
	return;
}

# The deliveries of a kind are each with the worker that the setting says, and nobody
# has a share that is not.
sub shared_out
{
	my ($name, $workers, $kind) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$kind //= 'forward';
	wait_for_query($node, qq{
		SELECT bool_and(n.pid IS NOT NULL AND d.pid = n.pid)
			AND count(DISTINCT d.pid) = LEAST($workers, count(DISTINCT incsink_share(t.sink_id, t.partition_id) % $workers))
			AND (SELECT count(*) = count(DISTINCT l.share) AND count(DISTINCT l.pid) = count(DISTINCT l.share % $workers)
				FROM incsink_worker_locks() AS l WHERE l.class = '$kind' AND l.share IS NOT NULL)
		FROM incsink.stat_delivery AS d
			JOIN incsink.sink_def AS s ON s.name = d.sink
			JOIN incsink.sink_table_def AS t USING (sink_id)
			LEFT JOIN incsink.stat_worker AS n
				ON n.class = s.kind AND n.number = incsink_share(t.sink_id, t.partition_id) % $workers
		WHERE s.kind = '$kind'}, 't', $name, 180)
	  or diag(sql('SELECT * FROM incsink_worker_locks(); SELECT pid, class, number, state, last_error FROM incsink.stat_worker;
		SELECT sink, pid FROM incsink.stat_delivery'));
	return;
}

# Pid of a worker, and the numbers of the tables that it has.
sub pid_of
{
	my ($number, $class) = @_;
	return sql("SELECT pid FROM incsink.stat_worker WHERE class = '" . ($class // 'forward') . "' AND number = $number");
}

sub tables_of
{
	my ($pid, $prefix) = @_;
	return split /\n/, sql("SELECT substr(sink, 2)::int FROM incsink.stat_delivery
		WHERE pid = $pid AND sink ~ '^" . ($prefix // 's') . "' ORDER BY 1");
}

sub others
{
	my %not = map { $_ => 1 } @_;
	return grep { !$not{$_} } 1 .. $tables;
}

# ------------------------------------------------------------------ shared out

create_tables($tables);
shared_out('three workers have the deliveries, each its own shares', 3);
is(sql('SELECT min(incsink_share(s, p)) >= 0 AND max(incsink_share(s, p)) < 64 AND count(DISTINCT incsink_share(s, p)) = 64
	FROM generate_series(1, 40) AS s, generate_series(1, 40) AS p'), 't', 'deliveries fall into 64 shares');
is(sql("SELECT string_agg(number::text, ',' ORDER BY number) FROM incsink.stat_worker WHERE class = 'forward'"), '0,1,2',
	'incsink.stat_worker shows their numbers');
insert(20, 1 .. $tables);
wait_settled('all rows arrive');
stored_once('each once');

# ------------------------------------------------------------- one stands still

{
	my $pid = pid_of(1);
	my @its = tables_of($pid);
	my @healthy = others(@its);

	cmp_ok(scalar @its, '>', 0, 'the second worker has deliveries');
	cmp_ok(scalar @healthy, '>', 0, 'and the others have some');
	wait_for_query($node, "SELECT state FROM pg_stat_activity WHERE pid = $pid", 'idle');
	kill 'STOP', $pid;
	insert(2000, 1 .. $tables);
	wait_settled('the others export all of theirs while it is stopped', @healthy);
	stored_once('each row once', @healthy);
	is(sql("SELECT incsink_flush('s$healthy[0]', '60s')"), 't', 'a flush of a sink of theirs comes to its end');
	my $names = join ', ', map { "'s$_'" } @its;
	is(sql("SELECT bool_and(pid = $pid AND lag_rows = 2000) FROM incsink.stat_delivery WHERE sink IN ($names)"), 't',
		'its deliveries stand and show whose they are');
	kill 'CONT', $pid;
	wait_settled('it goes on, and its rows arrive');
	stored_once('each once');
}

# A worker that does not see a change of the setting keeps what it has until it does.
{
	my $pid = pid_of(1);
	my @its = tables_of($pid);

	wait_for_query($node, "SELECT state FROM pg_stat_activity WHERE pid = $pid", 'idle');
	kill 'STOP', $pid;
	set_workers(1);
	wait_for_query($node, "SELECT count(DISTINCT pid) FROM incsink.stat_delivery", '2', 'all but one hand over to the first worker');
	insert(50, 1 .. $tables);
	wait_settled('which exports what it has', others(@its));
	my $names = join ', ', map { "'s$_'" } @its;
	is(sql("SELECT bool_and(pid = $pid AND lag_rows = 50) FROM incsink.stat_delivery WHERE sink IN ($names)"), 't',
		'what the stopped one has stays its own');
	kill 'CONT', $pid;
	shared_out('it lets go when it goes on', 1);
	wait_settled('and the rest arrives');
	stored_once('each once');
	wait_for_query($node, "SELECT count(*) FROM incsink.stat_worker WHERE class = 'forward'", '1',
		'workers with nothing to do are gone');
}

# --------------------------------------------- more and fewer of them, under load

$collector->control('times=always delay=30');
foreach my $workers (3, 2, 1, 3)
{
	insert(100, 1 .. $tables);
	set_workers($workers);
	foreach (1 .. 3)
	{
		insert(100, 1 .. $tables);
	}
	shared_out("$workers after a reload, while rows come", $workers);
}
$collector->back_to_normal;
wait_settled('everything arrives');
stored_once('nothing is lost or doubled');

# --------------------------------------------------------------- one is ended

{
	my $pid = pid_of(2);

	insert(200, 1 .. $tables);
	is(sql("SELECT pg_terminate_backend($pid)"), 't', 'a worker is ended');
	insert(200, 1 .. $tables);
	wait_until(sub { my $new = pid_of(2); $new ne '' && $new != $pid }, 'it is started again', 180);
	shared_out('and has its shares again', 3);
	wait_settled('everything arrives');
	stored_once('each row once');
}

# ------------------------------------------ a delivery that comes brings a worker

{
	my ($two, $three) = split /\|/, sql('SELECT count(*) FILTER (WHERE number < 2), count(*) FROM incsink.stat_worker');

	is("$two $three", '2 3', 'there are three workers');
	sql(join "\n", map { "SELECT incsink_drop_sink('s$_');" } tables_of(pid_of(2)));
	wait_for_query($node, 'SELECT count(*) FROM incsink.stat_worker', '2', 'one that has no delivery any more leaves');
	my @gone = split /\n/, sql("SELECT substr(table_name, 2)::int FROM incsink.partition_def AS p
		WHERE NOT EXISTS (SELECT FROM incsink.sink_table_def AS t WHERE t.partition_id = p.partition_id)");
	sql(join "\n", map { "SELECT incsink_create_sink('s$_', '@{[ $collector->url ]}', tables => '{t$_}',
		options => '$from_now');" } @gone);
	shared_out('what is added has its worker', 3);
	insert(10, 1 .. $tables);
	wait_settled('which exports it');
	stored_once('each row once');
}

# ------------------------------------------------- the locks, and what is behind

# Without the filter everybody wants everything: the lock says who has it.
inject($node, 'share-filter', 'errno 5');
$node->reload;
insert(100, 1 .. $tables);
wait_settled('where every worker wants every delivery, all rows arrive');
is(sql("SELECT count(*) = count(DISTINCT share) FROM incsink_worker_locks() WHERE share IS NOT NULL"), 't',
	'and each share has one owner');

# Without the lock as well: all work on all of it.
inject($node, 'share-lock', 'errno 5');
$node->reload;
$collector->control('times=always delay=5');
foreach (1 .. 10)
{
	insert(50, 1 .. $tables);
}
$collector->back_to_normal;
wait_for_query($node, "SELECT bool_and(state = 'halted' OR state = 'waiting' AND lag_rows = 0 AND in_flight_batch IS NULL)
	FROM incsink.stat_delivery", 't', 'without locks each batch is fenced: a delivery comes to its end, or says why not', 180);
is(sql("SELECT DISTINCT reason FROM incsink.stat_delivery WHERE state = 'halted'
	AND reason <> 'the intent of this delivery does not fit its watermark'"), '', 'that somebody else was at it');
disarm($node, 'share-lock');
disarm($node, 'share-filter');
$node->reload;
shared_out('put right, each delivery has its owner again', 3);
sql("SELECT incsink_resume_sink(sink) FROM incsink.stat_delivery WHERE state = 'halted'");
wait_settled('all rows arrive');
stored_once('each row once');
insert(10, 1 .. $tables);
wait_settled('and goes on');
stored_once('each row once');

# One that is stopped between the commit of its intent and the send, while another one
# does not respect its lock.
{
	my $pid = pid_of(1);
	my ($number) = tables_of($pid);

	inject($node, 'before-intent', 'wait');
	insert(5, $number);
	wait_reached($node, 'before-intent');
	inject_file($node, 'after-commit', 'wait');
	disarm($node, 'before-intent');
	wait_until(sub { sql('SELECT count(*) FROM incsink.intent') == 1 });
	my $batch = sql('SELECT batch_id FROM incsink.intent');
	wait_for_query($node, "SELECT state || wait_event FROM pg_stat_activity WHERE pid = $pid", 'activeExtension');
	kill 'STOP', $pid;
	inject_file($node, 'share-lock', 'errno 5');
	disarm($node, 'after-commit');
	set_workers(1);
	wait_until(sub { @{ $collector->entries(id => $batch) } == 1 }, 'another one sends the batch of a stopped worker', 180);
	insert(5, $number);
	wait_settled('and goes on behind it', $number);
	is(sql("SELECT pid FROM incsink.stat_delivery WHERE sink = 's$number'"), $pid, 'who has the lock is shown');
	kill 'CONT', $pid;
	wait_until(sub { @{ $collector->entries(id => $batch) } == 2 }, 'the stopped one sends it too, when it goes on', 180);
	disarm($node, 'share-lock');
	shared_out('and lets go', 1);
	wait_settled('nothing is left');
	is(join(' ', map { $_->{outcome} } @{ $collector->entries(id => $batch) }), 'stored duplicate', 'under the id that was stored');
	stored_once('each row once');
}

# -------------------------------------------------------------------- files

{
	mkdir "$files/$_" foreach 1 .. $tables;
	sql(join "\n", map { "SELECT incsink_create_sink('f$_', 'file://$files/$_', tables => '{t$_}', options => '$from_now');" } 1 .. $tables);
	set_workers(3);
	shared_out('workers of files share them out, too', 3, 'blob');
	my $pid = pid_of(0, 'blob');
	my @its = tables_of($pid, 'f');
	my %first = %next_id;

	cmp_ok(scalar @its, '>', 0, 'the first of them has some');
	wait_for_query($node, "SELECT state FROM pg_stat_activity WHERE pid = $pid", 'idle');
	kill 'STOP', $pid;
	insert(100, 1 .. $tables);
	wait_until(sub { settled('blob', others(@its)) }, 'one that hangs holds up its own only', 180);
	kill 'CONT', $pid;
	wait_until(sub { settled('blob', 1 .. $tables) }, 'and goes on', 180);
	is_exported($node, join(' UNION ALL ', map { "SELECT '$_/' || id FROM t$_ WHERE id >= $first{$_}" } 1 .. $tables),
		[ map { my $number = $_; map { "$number/$_" } @{ rows_in_files("$files/$number", 'id') } } 1 .. $tables ],
		'each row stands in a file, once');
	sql(join "\n", map { "SELECT incsink_drop_sink('f$_');" } 1 .. $tables);
	wait_for_query($node, "SELECT count(*) FROM incsink.stat_worker WHERE class = 'blob'", '0', 'without files they leave');
}

# ----------------------------------------------------- databases go, servers stop

wait_settled('all sinks are at their end');
sql('CREATE DATABASE other');
create_extension($node, 'other');
create_tables(8, 'other');
wait_for_query($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'other' AND backend_type = 'incsink forward worker'},
	'3', 'another database has three workers, too');
sql('DROP DATABASE other');
pass('which do not hold up DROP DATABASE');
wait_until(sub { @{[ worker_pids($node) ]} == 3 }, 'and end with it');

$collector->control('times=always store hang');
insert(10, 1 .. $tables);
wait_until(sub { $collector->held >= $tables }, 'transfers of all workers hang', 180);
ok($node->stop('fast'), 'a fast shutdown does not wait for them');
$collector->back_to_normal;
$node->start;
wait_settled('after the start the batches are sent again');
stored_once('and each row is stored once');

sql('DROP EXTENSION incsink CASCADE');
wait_until(sub { !worker_pids($node) }, 'DROP EXTENSION: all workers end', 180);

# --------------------------------------------------------- without preloading

my $plain = new_node('not_preloaded', preload => 0, extension => 0,
	conf => [ 'max_worker_processes = 40', 'incsink.workers = 3', "incsink.poll_interval = '50ms'" ]);
$node->stop;
$node = $plain;
$collector = Collector->new;
%next_id = map { $_ => 1 } 1 .. $tables;
create_extension($node);
create_tables($tables);
shared_out('a server that has not preloaded incsink has three workers, too', 3);
insert(10, 1 .. $tables);
set_workers(2);
insert(10, 1 .. $tables);
shared_out('and two after a reload', 2);
wait_settled('everything arrives');
stored_once('each row once');

done_testing();
