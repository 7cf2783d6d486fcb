# Sinks are independent of each other: each has its own position, its own choice
# of rows and columns, and its own pauses.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('sinks');
my $collector = Collector->new;
my $files = PostgreSQL::Test::Utils::tempdir('files');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub position { return sql("SELECT position FROM incsink.stat_delivery WHERE sink = '$_[0]'"); }

sub all_rows { return rows_at_collector($collector, 'id', @_); }

# All that was inserted has been acknowledged, and nothing is on its way.
sub wait_done
{
	my ($sink) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT lag_rows = 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = '$sink'")
	  or diag(sql("SELECT * FROM incsink.stat_delivery WHERE sink = '$sink'"));
	return;
}

sql(q{
	CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY, level int, note text);
	SELECT incsink_attach('logs');
});

# --------------------------------------------------------- independent positions

my $fast = $collector->url('/fast');
my $slow = $collector->url('/slow');
sql("SELECT incsink_create_sink('fast', '$fast', tables => '{logs}');
	SELECT incsink_create_sink('slow', '$slow', tables => '{logs}');
	SELECT incsink_create_sink('files', 'file://$files', tables => '{logs}', options => '{\"flush_interval\": 0}')");
$collector->control('path=/slow store hang');
sql('INSERT INTO logs (level) SELECT i FROM generate_series(1, 10) AS i');
wait_until(sub { $collector->held == 1 }, 'one sink is stuck');
wait_done('fast');
wait_done('files');
sql('INSERT INTO logs (level) SELECT i FROM generate_series(1, 10) AS i');
wait_done('fast');
wait_done('files');
is(position('fast'), 20, 'the other one has passed it');
is(position('slow'), 0, 'which stands where it stood');
is_exported($node, 'SELECT id FROM logs', all_rows(sink => 'fast'), 'the other one has all rows');
is_exported($node, 'SELECT id FROM logs', rows_in_files($files, 'id'), 'the files have all rows');
$collector->release;
wait_done('slow');
is_exported($node, 'SELECT id FROM logs', all_rows(sink => 'slow'), 'released, it gets them all');

# ----------------------------------------------------------------------- paused

sql(q{SELECT incsink_pause_sink('slow')});
sql('INSERT INTO logs (level) SELECT i FROM generate_series(1, 7) AS i');
wait_done('fast');
is(sql(q{SELECT state, position, lag_rows FROM incsink.stat_delivery WHERE sink = 'slow'}), 'paused|20|7',
	'a paused sink stays where it is, and says how far it is behind');
is(scalar @{ all_rows(sink => 'slow') }, 20, 'nothing was sent for it');
my ($status, undef, $stderr) = $node->psql('postgres', q{SELECT incsink_flush('slow')});
like($stderr, qr/sink "slow" is paused/, 'a flush of it is refused');
$node->restart;
sql('INSERT INTO logs (level) VALUES (8)');
wait_done('fast');
is(position('slow'), 20, 'it is paused after a restart, too');
sql(q{SELECT incsink_resume_sink('slow')});
wait_done('slow');
is_exported($node, 'SELECT id FROM logs', all_rows(sink => 'slow'), 'resumed, it has no gap');

# Paused while a batch is on its way: what the receiver has stored counts.
$collector->control('path=/slow store hang');
sql('INSERT INTO logs (level) VALUES (9)');
wait_until(sub { $collector->held == 1 });
sql(q{SELECT incsink_pause_sink('slow')});
$collector->release;
wait_for_query($node, q{SELECT state = 'paused' AND in_flight_batch IS NULL AND lag_rows = 0
	FROM incsink.stat_delivery WHERE sink = 'slow'}, 't', 'a batch in flight at the pause is acknowledged');
sql(q{SELECT incsink_resume_sink('slow')});
sql('INSERT INTO logs (level) VALUES (10)');
wait_done('slow');
is_exported($node, 'SELECT id FROM logs', all_rows(sink => 'slow'), 'and is not sent again');
is(scalar @{ $collector->entries(sink => 'slow', outcome => 'duplicate') }, 0, 'not even as a duplicate');
sql(q{SELECT incsink_drop_sink(s) FROM unnest(ARRAY['slow', 'files']) AS s});

# --------------------------------------------------------- columns and a filter

my $part = $collector->url('/part');
sql("SELECT incsink_create_sink('part', '$part');
	SELECT incsink_add_table('part', 'logs', columns => '{level,id}', filter => 'level >= 5')");
wait_done('part');
is_exported($node, 'SELECT id FROM logs WHERE level >= 5', all_rows(sink => 'part'), 'a filter picks rows');
is(join(',', sort keys %{ $collector->rows(sink => 'part')->[0] }), 'id,level', 'a list picks columns');
my $until = $collector->entries(sink => 'part')->[-1]{until};
sql('INSERT INTO logs (level) SELECT 1 FROM generate_series(1, 50)');
wait_done('part');
cmp_ok(position('part'), '>=', $until + 50, 'rows that the filter passes over move the watermark');
is($collector->entries(sink => 'part')->[-1]{until}, $until, 'without a request');
is(sql(q{SELECT incsink_flush('part', '10 s')}), 't', 'and are no reason for a flush to wait');
sql('INSERT INTO logs (level) VALUES (5), (6), (4)');
wait_done('part');
is_exported($node, 'SELECT id FROM logs WHERE level >= 5', all_rows(sink => 'part'), 'rows that it picks go on to arrive');
sql(q{SELECT incsink_drop_sink('part')});

# --------------------------------------------------------------------- datasets

my $all = $collector->url('/all');
sql("SELECT incsink_create_sink('all', '$all', datasets => '{metrics}');
	CREATE TABLE north (id int);
	CREATE TABLE south (id int);
	CREATE TABLE east (id int);
	SELECT incsink_attach('north', dataset => 'metrics', source => 'north');
	SELECT incsink_attach('east', dataset => 'other');
	INSERT INTO north VALUES (1), (2);
	INSERT INTO east VALUES (100)");
wait_until(sub { @{ all_rows(sink => 'all') } == 2 }, 'a table attached with the dataset of a sink joins it');
sql(q{SELECT incsink_attach('south', dataset => 'metrics', source => 'south'); INSERT INTO south VALUES (3), (4)});
wait_until(sub { @{ all_rows(sink => 'all') } == 4 }, 'and so does the next');
is_exported($node, 'SELECT id FROM north', all_rows(sink => 'all', source => 'north'), 'the rows of each');
is_exported($node, 'SELECT id FROM south', all_rows(sink => 'all', source => 'south'), 'under its own name');
is(scalar @{ $collector->entries(sink => 'all', dataset => 'other') }, 0, 'those of another dataset do not leave');
sql(q{SELECT incsink_detach('north', force => true)});
sql('INSERT INTO north (id) VALUES (50)');
sql('INSERT INTO south VALUES (5)');
wait_until(sub { @{ all_rows(sink => 'all', source => 'south') } == 3 }, 'the others go on without one that was detached');
is(scalar @{ all_rows(sink => 'all', source => 'north') }, 2, 'of which no further row leaves');
sql(q{SELECT incsink_drop_sink('all')});

# ------------------------------------------------------------------------ flush

my $lazy = $collector->url('/lazy');
sql("SELECT incsink_create_sink('lazy', '$lazy', tables => '{south}', options => '{\"flush_interval\": \"1h\", \"start\": \"now\", \"retry_initial\": \"10ms\", \"retry_max\": \"1h\"}');
	INSERT INTO south SELECT generate_series(1001, 1003)");
is(position('lazy'), 3, 'rows wait for an hour where the sink says so');
is(sql(q{SELECT incsink_flush('lazy')}), 't',
	'a flush sends what would wait for an hour, and returns true');
is_exported($node, 'SELECT id FROM south WHERE id > 1000', all_rows(sink => 'lazy'), 'when it has arrived');
my $requests = @{ $collector->entries(sink => 'lazy') };
is(sql(q{SELECT incsink_flush('lazy')}), 't', 'with nothing to send, too');
is(scalar @{ $collector->entries(sink => 'lazy') }, $requests, 'without a request');
$collector->control('path=/lazy status=503 times=always');
sql('INSERT INTO south VALUES (1004)');
is(sql(q{SELECT incsink_flush('lazy', '1 s')}), 'f', 'it returns false when the receiver does not take it in time');
$collector->reset;
sql(q{SELECT incsink_resume_sink('lazy')});
is(sql(q{SELECT incsink_flush('lazy')}), 't', 'and true once it does');
is_exported($node, 'SELECT id FROM south WHERE id > 1000', all_rows(sink => 'lazy'), 'then all is there');
sql(q{SELECT incsink_drop_sink('lazy')});

# ------------------------------------------------------------------ start => now

my $now = $collector->url('/now');
sql("CREATE TABLE events (id int);
	SELECT incsink_attach('events');
	SELECT incsink_create_sink('now', '$now');
	INSERT INTO events VALUES (1)");
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN; INSERT INTO events VALUES (2)');
sql('INSERT INTO events VALUES (3)');
sql(q{SELECT incsink_add_table('now', 'events', start => 'now')});
sql('INSERT INTO events VALUES (4)');
$open->query_safe('COMMIT');
$open->quit;
wait_done('now');
my %arrived = map { $_ => 1 } @{ all_rows(sink => 'now') };
ok($arrived{2}, 'start => now exports a row whose transaction was open, although a later number was committed');
ok($arrived{4}, 'and what comes after');
ok(!$arrived{1}, 'and nothing from before');
is(scalar @{ all_rows(sink => 'now') }, scalar keys %arrived, 'each once');
sql('INSERT INTO events VALUES (5)');
wait_done('now');

# ----------------------------------------------------------------- another place

my $kept = $collector->url('/kept');
($status, undef, $stderr) = $node->psql('postgres', "SELECT incsink_alter_sink('fast', url => '$kept')");
like($stderr, qr/a new URL needs the argument "watermark"/, 'a new url without a word on the watermark is refused');
my $epoch = $collector->entries(sink => 'fast')->[-1]{epoch};
sql("SELECT incsink_alter_sink('fast', url => '$kept', watermark => 'keep')");
sql('INSERT INTO logs (level) VALUES (77)');
wait_done('fast');
is_exported($node, 'SELECT id FROM logs', all_rows(sink => 'fast'), 'keep: it goes on at the new url, and only from there');
is(join(',', map { $_->{rows} } @{ $collector->entries(sink => 'fast', path => '/kept') }), '1', 'with the new row');
is($collector->entries(sink => 'fast')->[-1]{epoch}, $epoch, 'in the same epoch');
my $again = $collector->url('/again');
sql("SELECT incsink_alter_sink('fast', url => '$again', watermark => 'restart')");
sql('INSERT INTO logs (level) VALUES (78)');
wait_done('fast');
is_exported($node, 'SELECT id FROM logs', all_rows(sink => 'fast', path => '/again'), 'restart: the new url gets all rows');
isnt($collector->entries(sink => 'fast')->[-1]{epoch}, $epoch, 'in an epoch of its own');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
done_testing();
