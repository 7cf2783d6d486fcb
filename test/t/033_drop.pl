# The life of launcher and worker: extension and database made and dropped, copied
# and renamed, the server stopped, while a receiver hangs.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('drop', conf => [ 'log_min_messages = info' ]);
my $collector = Collector->new;
my $log_start;

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# A sink in a database, with a batch on its way whose answer is withheld.
sub hang
{
	my ($database) = @_;
	my $url = $collector->url("/$database");

	$collector->back_to_normal;
	$collector->control("path=/$database store hang times=always");
	sql("SET client_min_messages = warning;
		CREATE TABLE logs (id int);
		SELECT incsink_attach('logs');
		SELECT incsink_create_sink('central', '$url', tables => '{logs}',
			options => '{\"request_timeout\": \"1h\", \"stall_timeout\": \"1h\"}');
		INSERT INTO logs VALUES (1)", $database);
	wait_until(sub { $collector->held == 1 });
	$log_start = -s $node->logfile;
	return;
}

sub log_since { return substr(slurp_file($node->logfile), $log_start); }

# Nothing but what the statements of the test say themselves.
sub log_is_quiet
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @lines = grep { /(ERROR|FATAL|WARNING|PANIC):|exited with exit code/ } split /\n/, log_since();
	is(join("\n", @lines), '', $test);
	return;
}

# A new row arrives, and so do those that were on their way, once.
sub goes_on
{
	my ($database, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %last = (epoch => sql('SELECT epoch FROM incsink.stat_delivery', $database));
	my $id = sql('INSERT INTO logs SELECT max(id) + 1 FROM logs RETURNING id', $database);

	wait_until(sub { grep { $_ == $id } @{ rows_at_collector($collector, 'id', %last) } });
	is_exported($node, 'SELECT id FROM logs', rows_at_collector($collector, 'id', %last), $test, $database);
	return;
}

# --------------------------------------------------------------- the extension

hang('postgres');
my ($worker) = worker_pids($node, 'postgres');
sql('BEGIN; DROP EXTENSION incsink CASCADE; ROLLBACK');
my $turns = sql('SELECT turns FROM incsink.stat_worker');
wait_for_query($node, "SELECT turns > $turns + 1 FROM incsink.stat_worker");
is($collector->held, 1, 'a DROP EXTENSION that is rolled back disturbs nothing');
is(join(',', worker_pids($node, 'postgres')), $worker, 'not even the worker');

sql('DROP EXTENSION incsink CASCADE; DROP TABLE logs');
wait_until(sub { !worker_pids($node, 'postgres') }, 'DROP EXTENSION CASCADE: the worker ends');
wait_until(sub { $collector->held == 0 }, 'and with it the request that hung');
log_is_quiet('without a word in the log');
sql('BEGIN; CREATE EXTENSION incsink; ROLLBACK');
is(scalar worker_pids($node, 'postgres'), 0, 'a CREATE EXTENSION that is rolled back starts none');
sql('CREATE EXTENSION incsink');
hang('postgres');
ok($collector->held, 'after another CREATE EXTENSION it all works again');
$collector->back_to_normal;
goes_on('postgres', 'with every row once');

sql('DROP EXTENSION incsink CASCADE; DROP TABLE logs');
sql('CREATE EXTENSION incsink');
hang('postgres');
ok($collector->held, 'and if the one follows the other at once');
$collector->back_to_normal;
goes_on('postgres', 'too');

sql('BEGIN; DROP EXTENSION incsink CASCADE; DROP TABLE logs; CREATE EXTENSION incsink; COMMIT');
hang('postgres');
ok($collector->held, 'or in one transaction');
$collector->back_to_normal;
goes_on('postgres', 'too');

# ------------------------------------------------------------------ the database

sub make_database
{
	my ($name) = @_;
	sql("CREATE DATABASE $name");
	create_extension($node, $name);
	hang($name);
	return;
}

make_database('dropped');
sql('DROP DATABASE dropped');
pass('DROP DATABASE is not held up by a receiver that hangs');
wait_until(sub { $collector->held == 0 }, 'its request is gone with it');
log_is_quiet('the log has nothing to say of it');

make_database('renamed');
sql('ALTER DATABASE renamed RENAME TO another');
pass('ALTER DATABASE RENAME is not held up');
$collector->back_to_normal;
goes_on('another', 'and exports go on afterwards');
is(scalar @{ $collector->entries(path => '/renamed', outcome => 'duplicate') }, 1, 'with the batch that was on its way, under its id');
sql('DROP DATABASE another');

make_database('original');
sql('CREATE DATABASE copied TEMPLATE original');
pass('CREATE DATABASE TEMPLATE is not held up');
$collector->back_to_normal;
goes_on('original', 'and the original goes on afterwards');
my $requests = @{ $collector->entries(path => '/original') };
sql('INSERT INTO logs VALUES (1000)', 'copied');
sql('SELECT incsink_start_worker()', 'copied');
wait_until(
	sub { sql('SELECT state FROM incsink.stat_worker', 'copied') eq 'waiting' },
	'the copy waits to be told that it is meant to export');
like(sql('SELECT hint FROM incsink.stat_worker', 'copied'), qr/incsink_adopt_database\(\)/, 'and says so');
is(scalar @{ $collector->entries(path => '/original') }, $requests, 'it sends nothing until then');
sql('SELECT incsink_adopt_database()', 'copied');
wait_until(sub { grep { $_ == 1000 } @{ rows_at_collector($collector, 'id', path => '/original') } }, 'then it exports');
is($collector->entries(path => '/original')->[-1]{epoch} =~ /^2-/, 1, 'in an epoch of its own');
sql('DROP DATABASE original');
sql('DROP DATABASE copied');
$log_start = -s $node->logfile;

# DROP DATABASE FORCE, and a database that ends while its worker is paused.
make_database('forced');
sql('DROP DATABASE forced WITH (FORCE)');
wait_until(sub { $collector->held == 0 }, 'DROP DATABASE ... FORCE ends the worker, too');
goes_on_elsewhere();

# The others go on, so the launcher is well.
sub goes_on_elsewhere
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$collector->back_to_normal;
	my $id = sql('INSERT INTO logs SELECT max(id) + 1 FROM logs RETURNING id');
	wait_until(sub { grep { $_ == $id } @{ rows_at_collector($collector, 'id', path => '/postgres') } },
		'another database goes on');
	return;
}

# ---------------------------------------------------------------------- a stop

sql(join ';', map { "CREATE TABLE many$_ (id int); SELECT incsink_attach('many$_')" } 1 .. 20);
my $many = $collector->url('/many');
sql(join ';', map { "SELECT incsink_create_sink('many$_', '$many', tables => '{many$_}')" } 1 .. 20);
$collector->control('path=/many store hang times=20');
sql(join ';', map { "INSERT INTO many$_ VALUES ($_)" } 1 .. 20);
wait_until(sub { $collector->held == 20 }, 'twenty requests hang');
my %ids = map { $_->{id} => $_->{until} } @{ $collector->entries(path => '/many') };
$node->stop('fast');
pass('a fast stop is not held up by them');
sql_down();
$node->start;
wait_for_query($node, q{SELECT count(*) FILTER (WHERE position = 1 AND in_flight_batch IS NULL) FROM incsink.stat_delivery WHERE sink LIKE 'many%'},
	20, 'after a start they are sent again and acknowledged');
my @again = @{ $collector->entries(path => '/many', outcome => 'duplicate') };
is_deeply({ map { $_->{id} => $_->{until} } @again }, \%ids, 'each batch under its id, with its range');
is(scalar @{ rows_at_collector($collector, 'id', path => '/many') }, 20, 'no row was stored twice');

# Rows that come while the server is stopped in between are another batch.
sub sql_down
{
	$collector->control('reset');
	return;
}

# ----------------------------------------------------------- no room for a worker

my $small = new_node('small', conf => [ 'max_worker_processes = 2', 'max_logical_replication_workers = 0' ]);
$small->safe_psql('postgres', 'CREATE DATABASE other');
create_extension($small, 'other');
wait_until(
	sub { $small->safe_psql('other', 'SELECT state, last_error FROM incsink.stat_worker') =~ /stopped\|.*max_worker_processes/ },
	'where no background worker is left, incsink.stat_worker says so');
my $url = $collector->url('/other');
$small->safe_psql('other', qq{
	SET client_min_messages = warning;
	CREATE TABLE logs (id int);
	SELECT incsink_attach('logs');
	SELECT incsink_create_sink('central', '$url', tables => '{logs}');
	INSERT INTO logs VALUES (1);
});
like($small->safe_psql('other', 'SELECT state, reason FROM incsink.status'), qr/^waiting\|.*max_worker_processes/,
	'and so does incsink.status');
$small->safe_psql('postgres', 'DROP EXTENSION incsink CASCADE');
wait_until(sub { @{ $collector->entries(path => '/other') } == 1 }, 'once one is free it is used, without anybody asking');
is($small->safe_psql('other', 'SELECT state FROM incsink.stat_worker'), 'running', 'and the view says that, too');

$_->stop('fast') foreach $node, $small;
unlike(slurp_file($node->logfile), qr/database \d+ does not exist/, 'no worker was started for a database that was dropped');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed') foreach $node, $small;
done_testing();
