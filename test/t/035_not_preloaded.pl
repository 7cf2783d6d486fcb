# Without shared_preload_libraries: the same, by polling, until the server is
# restarted.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('late', preload => 0, extension => 0, conf => [ "session_preload_libraries = ''" ]);
my $collector = Collector->new;

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# Processes of incsink, whether they have a database or not.
sub processes
{
	my ($database) = @_;
	return sql(q{SELECT string_agg(backend_type, ', ' ORDER BY backend_type) FROM pg_stat_activity WHERE backend_type LIKE 'incsink%'}
		  . (defined $database ? " AND datname = '$database'" : ''));
}

# Inserts a row and waits until all are there, once.
sub goes_on
{
	my ($database, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $id = sql('INSERT INTO logs SELECT COALESCE(max(id), 0) + 1 FROM logs RETURNING id', $database);
	my $epoch = sql(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'central'}, $database);
	my @rows;

	wait_until(sub { @rows = @{ rows_at_collector($collector, 'id', epoch => $epoch) }; grep { $_ == $id } @rows })
	  or diag(processes());
	is_exported($node, 'SELECT id FROM logs', \@rows, $test, $database);
	return;
}

my $warning = qr/WARNING:  incsink is not in shared_preload_libraries(?s:.*)restart the server/;

# A table and its sink.
sub set_up
{
	my ($database) = @_;
	my $url = $collector->url("/$database");

	sql("SET client_min_messages = error;
		CREATE TABLE logs (id int);
		SELECT incsink_attach('logs');
		SELECT incsink_create_sink('central', '$url', tables => '{logs}',
			options => '{\"request_timeout\": \"1h\", \"stall_timeout\": \"1h\"}')", $database);
	return;
}

my (undef, undef, $stderr) = $node->psql('postgres', 'CREATE EXTENSION incsink');
like($stderr, $warning, 'CREATE EXTENSION warns, and says how to make it last');
set_up('postgres');
goes_on('postgres', 'rows arrive');
goes_on('postgres', 'and more rows');
is(processes(), 'incsink forward worker, incsink launcher', 'by one launcher and one worker');
is(sql(q{SELECT class || ' ' || state || ', ' || (pid = (SELECT pid FROM pg_stat_activity WHERE backend_type = 'incsink forward worker'))
		FROM incsink.stat_worker}), 'forward running, true', 'incsink.stat_worker shows it');
like(sql('SELECT hint FROM incsink.stat_worker'), qr/shared_preload_libraries/, 'with what to do');
is(sql(q{SELECT state, reason IS NULL FROM incsink.status}), 'waiting|t', 'incsink.status has no complaint');
is(sql(q{SELECT incsink_flush('central')}), 't', 'a flush works');
is(sql(q{SELECT count(*) FROM incsink_read_since('logs'::regclass)}), 2, 'and reading');
sql(q{SELECT incsink_pause_sink('central'); INSERT INTO logs VALUES (100)});
sql(q{SELECT incsink_resume_sink('central')});
goes_on('postgres', 'a change of the sink is noticed');
is(processes(), 'incsink forward worker, incsink launcher', 'and starts no other process');
my $files = PostgreSQL::Test::Utils::tempdir('files');
sql("SELECT incsink_create_sink('files', 'file://$files', tables => '{logs}', options => '{\"flush_interval\": 0}')");
wait_until(sub { @{ rows_in_files($files, 'id') } == 4 }, 'a sink for files gets a worker, too');
is(processes(), 'incsink blob worker, incsink forward worker, incsink launcher', 'of its own');
sql(q{SELECT incsink_drop_sink('files')});
wait_until(sub { processes() eq 'incsink forward worker, incsink launcher' }, 'which ends with the last such sink');

# ----------------------------------------------------------------- terminated

my ($worker) = worker_pids($node);
sql("SELECT pg_terminate_backend($worker)");
goes_on('postgres', 'a worker that was terminated is started again');
is(processes(), 'incsink forward worker, incsink launcher', 'once');
kill9_worker($node);
goes_on('postgres', 'and so is one that was killed, with the whole server');
sql(q{SET client_min_messages = error; SELECT incsink_start_worker()}) foreach 1 .. 3;
sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'incsink launcher'});
wait_until(sub { sql(qq{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'incsink%' AND backend_start > (SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'incsink launcher')}) == 1 },
	'a launcher that was terminated is started again, and a worker after it');
goes_on('postgres', 'and exports go on');
is(processes(), 'incsink forward worker, incsink launcher', 'with one of each');

# ------------------------------------------------------------ after a restart

foreach my $what ([ 'incsink_start_worker()', q{SELECT incsink_start_worker()} ],
	[ 'attaching a table', q{CREATE TABLE more (id int); SELECT incsink_attach('more')} ],
	[ 'a new sink', qq{SELECT incsink_create_sink('second', '@{[ $collector->url('/second') ]}')} ],
	[ 'a change of a sink', q{SELECT incsink_pause_sink('second')} ])
{
	my ($name, $query) = @$what;

	$node->restart;
	is(processes(), '', 'after a restart nothing runs');
	is(sql('SELECT count(*) FROM incsink.stat_worker'), 0, 'incsink.stat_worker is empty');
	is(sql(q{SELECT reason, hint FROM incsink.status WHERE sink = 'central'}), 'no worker is running|Call incsink_start_worker().',
		'incsink.status says so');
	sql("SET client_min_messages = error; $query");
	goes_on('postgres', "before $name starts it again");
	is(processes(), 'incsink forward worker, incsink launcher', 'once');
}

# ------------------------------------------------------------------- databases

sql('CREATE DATABASE other');
sql('SET client_min_messages = error; CREATE EXTENSION incsink', 'other');
set_up('other');
goes_on('other', 'another database has its own');
$collector->control('path=/other store hang');
sql('INSERT INTO logs VALUES (1000)', 'other');
wait_until(sub { $collector->held == 1 });
sql('ALTER DATABASE other RENAME TO renamed');
$collector->control('reset', 'release');
wait_until(sub { @{ $collector->entries(path => '/other', outcome => 'duplicate') } == 1 },
	'ALTER DATABASE RENAME works while a receiver hangs, and exports go on');
$collector->control('path=/other store hang');
sql('INSERT INTO logs VALUES (1001)', 'renamed');
wait_until(sub { $collector->held == 1 });
sql('DROP DATABASE renamed');
pass('so does DROP DATABASE');
wait_until(sub { processes() eq 'incsink forward worker, incsink launcher' }, 'after which no process of it is left');
$collector->back_to_normal;
goes_on('postgres', 'the first one goes on');

# ------------------------------------------------------------------- extension

sql('DROP EXTENSION incsink CASCADE; DROP TABLE logs, more');
wait_until(sub { processes() eq '' }, 'DROP EXTENSION ends the processes');
sql('SET client_min_messages = error; CREATE EXTENSION incsink');
set_up('postgres');
goes_on('postgres', 'another CREATE EXTENSION starts them again');
sql('SET client_min_messages = error; BEGIN; DROP EXTENSION incsink CASCADE; DROP TABLE logs; CREATE EXTENSION incsink; COMMIT');
set_up('postgres');
goes_on('postgres', 'also in one transaction with DROP EXTENSION');
is(processes(), 'incsink forward worker, incsink launcher', 'one of each');

my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC|TRAP|database \d+ does not exist/, 'no process crashed on its own');
my @ends = $log =~ /(background worker "incsink .*exited with exit code.*)/g;
is(scalar @ends, 2 + 4 * 2, 'none ended with an error but those that were terminated, and those of the restarts')
  or diag(join "\n", @ends);
$node->stop('fast');
done_testing();
