# With nothing to do there is nothing written, nothing sent, and turns are as rare
# as they should be (I9).

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Everybody else who writes WAL on his own is silent.
my $node = new_node('idle', conf => [
	'wal_level = minimal', 'max_wal_senders = 0', 'archive_mode = off', 'autovacuum = off',
	'checkpoint_timeout = 1h', 'max_wal_size = 10GB', 'incsink.poll_interval = 50ms' ]);
my $collector = Collector->new;
my $files = PostgreSQL::Test::Utils::tempdir('files');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub wal { return sql('SELECT pg_current_wal_insert_lsn()'); }

# Of the workers of both classes.
sub wait_turns
{
	my ($count) = @_;
	my $wanted = sql("SELECT string_agg(format('(class = %L AND turns >= %s)', class, turns + $count), ' OR ') FROM incsink.stat_worker");
	wait_for_query($node, "SELECT count(*) FROM incsink.stat_worker WHERE $wanted", 2);
	return;
}

sql('SET client_min_messages = error; CREATE SEQUENCE other_seq;' . join ';', map {
	my $url = $collector->url("/t$_");
	"CREATE TABLE t$_ (id int);
	SELECT incsink_attach('t$_');
	SELECT incsink_create_sink('central$_', '$url', tables => '{t$_}',
		options => '{\"retry_initial\": \"10ms\", \"retry_max\": \"1h\"}');
	SELECT incsink_create_sink('files$_', 'file://$files/t$_', tables => '{t$_}', options => '{\"flush_interval\": \"1h\"}');
	INSERT INTO t$_ SELECT generate_series(1, 10)"
} 1 .. 20);
# Idle for different reasons: no rows, rows that wait for their time, paused,
# halted, an open circuit, filtered out, a table that was dropped (t9 while its batch
# was tried again all the time), a hung request.
$collector->control('path=/t2 status=400 times=always', 'path=/t3 status=500 times=always', 'path=/t4 store hang',
	'path=/t9 status=500 times=always');
sql(q{SELECT incsink_pause_sink('central1')});
sql("INSERT INTO t$_ VALUES (11)") foreach 1 .. 4;
sql(q{SELECT incsink_alter_sink('central9', options => '{"retry_max": "10ms"}')});
sql('INSERT INTO t9 VALUES (11)');
sql(q{SELECT incsink_alter_sink('central5', options => '{"flush_interval": "1h"}')});
sql('INSERT INTO t5 VALUES (11)');
sql('DROP TABLE t6');
wait_for_query($node, "SELECT failures > 5 FROM incsink.stat_delivery WHERE sink = 'central9'");
sql('DROP TABLE t9');
sql(q{SELECT incsink_create_sink('none', 'http://127.0.0.1:1/')});
sql(q{SELECT incsink_create_sink('filtered', 'http://127.0.0.1:1/')});
sql(q{SELECT incsink_add_table('filtered', 't7', filter => 'id < 0')});
wait_for_query($node, "SELECT string_agg(sink || ' ' || state, ', ' ORDER BY sink) FROM incsink.stat_delivery
	WHERE sink IN ('central2', 'central3') AND state <> 'retrying'", 'central2 halted, central3 open circuit');
wait_until(sub { $collector->held == 1 });
wait_for_query($node, "SELECT count(*) FROM incsink.stat_delivery WHERE sink = 'filtered' AND lag_rows = 0", 1);
# What is noted a second later, so that standbys know, has been noted.
wait_for_query($node, 'SELECT count(*) FROM incsink.stat_horizon JOIN incsink.partition_state USING (partition_id)
	WHERE recorded_horizon < last_drawn', 0);
wait_turns(10);

# Reading may tidy up pages once.
sql('SELECT count(*) FROM incsink.status');
my $requests = $collector->count->{requests};
my $entries = @{ $collector->ledger };
my $before = wal();
wait_turns(60);
is(wal(), $before, 'sixty turns of twenty idle tables and forty sinks write no WAL');
is(scalar @{ $collector->ledger }, $entries, 'and send nothing');
is($collector->held, 1, 'the request that hangs is the same');

# Somebody who holds a table's numbers back costs nothing either.
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; INSERT INTO t8 VALUES (12)');
sql('INSERT INTO t8 VALUES (13)');
wait_turns(10);
$before = wal();
wait_turns(20);
is(wal(), $before, 'nor does a transaction that holds a table\'s horizon back');
$session->query_safe('ROLLBACK');
$session->quit;

# Turns are those of the poll interval: nobody wakes itself up all the time.
$node->append_conf('postgresql.conf', 'incsink.poll_interval = 1h');
$node->reload;
wait_for_query($node, "SELECT lag_rows FROM incsink.stat_delivery WHERE sink = 'central8'", 0);
wait_for_query($node, 'SELECT count(*) FROM incsink.stat_horizon JOIN incsink.partition_state USING (partition_id)
	WHERE recorded_horizon < last_drawn', 0);
my %turns = map { split /\|/ } split /\n/, sql('SELECT class, turns FROM incsink.stat_worker');
# A worker that finds something due all the time takes hundreds in the time of some
# connections.
sql('SELECT 1') foreach 1 .. 50;
my %after = map { split /\|/ } split /\n/, sql('SELECT class, turns FROM incsink.stat_worker');
cmp_ok($after{$_} - $turns{$_}, '<=', 5, "the $_ worker sleeps while nothing happens") foreach qw(forward blob);

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
done_testing();
