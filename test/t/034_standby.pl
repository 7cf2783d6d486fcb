# A standby exports nothing and lets its rows be read; promoted, it goes on where
# the primary was.  A copy waits to be told that it is meant.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $collector = Collector->new;
my $primary = new_node('primary', init => { allows_streaming => 1 }, conf => [ 'autovacuum = off' ]);
my $url = $collector->url('/in');

$primary->safe_psql('postgres', qq{
	SET client_min_messages = warning;
	CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY, note text);
	SELECT incsink_attach('logs');
	SELECT incsink_create_sink('central', '$url', tables => '{logs}',
		options => '{"retry_initial": "10ms", "retry_max": "50ms", "request_timeout": "1h", "stall_timeout": "1h"}');
	INSERT INTO logs (note) VALUES ('first');
});
wait_until(sub { @{ $collector->rows } == 1 }, 'the primary exports');
$primary->backup('base');

sub make_copy
{
	my ($name, %init) = @_;
	my $copy = PostgreSQL::Test::Cluster->new($name);
	$copy->init_from_backup($primary, 'base', %init);
	return $copy;
}

# -------------------------------------------------------------------- a standby

my $standby = make_copy('standby', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', q{INSERT INTO logs (note) SELECT 'second' FROM generate_series(1, 9)});
wait_until(sub { @{ $collector->rows } == 10 });
wait_for_query($primary, 'SELECT recorded_horizon FROM incsink.partition_state', 10, 'the primary records its horizon');
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'incsink%'}), 0,
	'on a standby no process of incsink runs');
is($standby->safe_psql('postgres', q{SELECT count(data), max((token->>'seq')::int) FROM incsink_read_since('logs'::regclass)}),
	'10|10', 'its rows can be read up to the horizon that the primary recorded');
is($standby->safe_psql('postgres', q{SELECT incsink_horizon('logs') = (SELECT token FROM incsink_read_since('logs'::regclass) OFFSET 9)}), 't',
	'which incsink_horizon() returns');
my $token = $primary->safe_psql('postgres', q{SELECT incsink_horizon('logs')});
# The record is not taken back or moved: rows above it wait for the next one.
my $open = $primary->background_psql('postgres');
$open->query_safe(q{BEGIN; INSERT INTO logs (note) VALUES ('open')});
$primary->safe_psql('postgres', q{INSERT INTO logs (note) VALUES ('above')});
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT count(*) FROM logs WHERE note = 'above'}), 1, 'a row above it has arrived there');
is($standby->safe_psql('postgres', "SELECT count(*) FROM incsink_read_since('logs'::regclass, '$token')"), 0,
	'and is not read, as one below it may still come');
$open->query_safe('COMMIT');
$open->quit;
wait_for_query($primary, 'SELECT recorded_horizon FROM incsink.partition_state', 12);
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "SELECT string_agg(data->>'note', ' ' ORDER BY token->>'seq') FROM incsink_read_since('logs'::regclass, '$token')"),
	'open above', 'once that has come, both are, in order');
my ($status, undef, $stderr) = $standby->psql('postgres', 'SELECT incsink_adopt_database()');
like($stderr, qr/cannot adopt a database during recovery/, 'a standby cannot be adopted');

# -------------------------------------------------------------------- promotion

wait_until(sub { @{ $collector->rows } == 12 });
my $epoch = $collector->ledger->[-1]{epoch};
$collector->control('path=/in store hang times=always');
$primary->safe_psql('postgres', q{INSERT INTO logs (note) SELECT 'in flight' FROM generate_series(1, 5)});
wait_until(sub { $collector->held == 1 }, 'a batch is on its way');
my $batch = $collector->ledger->[-1];
$primary->safe_psql('postgres', q{INSERT INTO logs (note) SELECT 'behind' FROM generate_series(1, 5)});
$primary->wait_for_catchup($standby);
kill9_server($primary);
$collector->back_to_normal;
$standby->promote;
wait_until(sub { @{ $collector->rows } == 22 }, 'promoted, the standby goes on by itself');
is_exported($standby, 'SELECT id FROM logs', rows_at_collector($collector, 'id'), 'with all that it had, once');
my @again = @{ $collector->entries(outcome => 'duplicate') };
is(join(',', map { "$_->{id} $_->{since} $_->{until}" } @again), "$batch->{id} $batch->{since} $batch->{until}",
	'the batch that was on its way keeps its id and its range');
is($again[0]{epoch}, $epoch, 'and its epoch');
my ($number) = $epoch =~ /^(\d+)-/;
like($collector->ledger->[-1]{epoch}, qr/^@{[ $number + 1 ]}-[0-9a-f]{8}$/, 'what follows is of a new one');
is($collector->ledger->[-1]{since}, $batch->{until}, 'without a gap');
is($standby->safe_psql('postgres', 'SELECT state FROM incsink.stat_worker'), 'running', 'its worker has nothing to wait for');
is($standby->safe_psql('postgres', "SELECT count(*) FROM incsink_read_since('logs'::regclass, '$token')"), 12,
	'a token from before, at a horizon recorded then, is still good');
$epoch = $collector->ledger->[-1]{epoch};
$standby->restart;
$standby->safe_psql('postgres', q{INSERT INTO logs (note) VALUES ('restarted')});
wait_until(sub { @{ $collector->rows } == 23 }, 'after a restart it goes on, too');
is($collector->ledger->[-1]{epoch}, $epoch, 'in the same epoch');

# ----------------------------------------------------------------------- copies

# Two turns: one could have been under way.
sub wait_turns
{
	my ($node) = @_;
	my $turns = $node->safe_psql('postgres', 'SELECT turns FROM incsink.stat_worker');
	wait_for_query($node, "SELECT turns > $turns + 1 FROM incsink.stat_worker");
	return;
}

# Starts a copy that thinks it is independent; it must not send anything before it
# is told to.
sub waits_to_be_adopted
{
	my ($copy, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $requests = @{ $collector->ledger };

	$copy->start;
	$copy->safe_psql('postgres', "INSERT INTO logs (note) VALUES ('of a copy')");
	wait_for_query($copy, 'SELECT state FROM incsink.stat_worker', 'waiting', "$what waits");
	like($copy->safe_psql('postgres', 'SELECT hint FROM incsink.stat_worker'), qr/incsink_adopt_database\(\)/, 'visibly');
	like($copy->safe_psql('postgres', 'SELECT reason || hint FROM incsink.status'), qr/incsink_adopt_database\(\)/, 'in incsink.status, too');
	wait_turns($copy);
	is(scalar @{ $collector->ledger }, $requests, 'and sends nothing');
	$copy->safe_psql('postgres', 'SELECT incsink_adopt_database()');
	wait_until(sub { $collector->rows->[-1]{note} eq 'of a copy' }, 'until it is told to go on');
	is($collector->ledger->[-1]{epoch} eq $epoch, '', 'which it does in an epoch of its own');
	is($copy->safe_psql('postgres', 'SELECT state FROM incsink.stat_worker'), 'running', 'then its worker runs');
	$copy->stop('fast');
	return;
}

my $twin = make_copy('twin');
$twin->append_conf('postgresql.conf', "incsink.instance = 'twin'");
waits_to_be_adopted($twin, 'a base backup with another incsink.instance');

my $recovered = make_copy('recovered', has_restoring => 1, standby => 0);
$recovered->append_conf('postgresql.conf', "restore_command = 'false'\nrecovery_target = 'immediate'\nrecovery_target_action = 'promote'");
waits_to_be_adopted($recovered, 'a base backup that recovery.signal put on a timeline of its own');

# The setting alone, on the server itself.
$standby->append_conf('postgresql.conf', "incsink.instance = 'renamed'");
$standby->reload;
wait_for_query($standby, 'SELECT state FROM incsink.stat_worker', 'waiting', 'a change of incsink.instance in a server that runs stops its exports, too');
my $requests = @{ $collector->ledger };
$standby->safe_psql('postgres', q{INSERT INTO logs (note) VALUES ('held back')});
wait_turns($standby);
$standby->append_conf('postgresql.conf', "incsink.instance = ''");
$standby->reload;
wait_until(sub { $collector->rows->[-1]{note} eq 'held back' }, 'until it is taken back');
is(scalar @{ $collector->ledger }, $requests + 1, 'without anything sent twice');

# The master switch.
$standby->append_conf('postgresql.conf', 'incsink.enabled = off');
$standby->reload;
wait_for_query($standby, 'SELECT state, hint FROM incsink.stat_worker', 'waiting|incsink.enabled is off', 'incsink.enabled = off stops everything');
$standby->safe_psql('postgres', q{INSERT INTO logs (note) VALUES ('switched off')});
wait_turns($standby);
like($standby->safe_psql('postgres', 'SELECT reason FROM incsink.status'), qr/incsink.enabled is off/, 'and is named in incsink.status');
is(scalar @{ $collector->ledger }, $requests + 1, 'nothing leaves');
$standby->append_conf('postgresql.conf', 'incsink.enabled = on');
$standby->reload;
wait_until(sub { $collector->rows->[-1]{note} eq 'switched off' }, 'switched on again it goes on');

$standby->stop('fast');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ': no process crashed')
  foreach $primary, $standby, $twin, $recovered;
done_testing();
