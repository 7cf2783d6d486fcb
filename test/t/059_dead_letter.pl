# Rows that a receiver refuses are put aside, and sent again when somebody says so.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('dead_letter');
my $collector = Collector->new;

$node->safe_psql('postgres', q{
	CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY, part text, pad text);
	SELECT incsink_attach('logs');
});

sub make_sink
{
	my ($name, $options) = @_;
	my $url = $collector->url("/$name");

	$node->safe_psql('postgres', qq{
		SELECT incsink_create_sink('$name', '$url', options => '{"retry_initial": "10ms", "retry_max": "50ms", "on_reject": "dead_letter"}'::jsonb || '$options');
		SELECT incsink_add_table('$name', 'logs', filter => 'part = ''$name''');
	});
	return;
}

# Rows of one batch; those of BAD say so.
sub insert_rows
{
	my ($name, $count, @bad) = @_;
	my $bad = join ',', -1, @bad;
	$node->safe_psql('postgres', "INSERT INTO logs (part, pad)"
		  . " SELECT '$name', CASE WHEN i IN ($bad) THEN 'BAD' ELSE 'good' END FROM generate_series(1, $count) AS i");
	return;
}

sub seen
{
	my ($name, $what) = @_;
	return $node->safe_psql('postgres', "SELECT $what FROM incsink.stat_delivery WHERE sink = '$name'");
}

sub ends_well
{
	my ($name, $where, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT state = 'waiting' AND reason IS NULL AND failures = 0"
		  . " AND in_flight_batch IS NULL AND lag_rows = 0 FROM incsink.stat_delivery WHERE sink = '$name'")
	  or diag(seen($name, "concat_ws(' | ', state, failures, retry_at, reason, hint, lag_rows, last_error)"));
	is_exported($node, "SELECT id FROM logs WHERE part = '$name' AND $where",
		rows_at_collector($collector, 'id', sink => $name), $test);
	return;
}

sub letters { return $node->safe_psql('postgres', "SELECT $_[1] FROM incsink.dead_letters WHERE sink = '$_[0]'"); }

# -------------------------------------------------------------- one bad row, three

make_sink('one', '{}');
$collector->control('path=/one contains=BAD status=400 body="bad row" times=always');
insert_rows('one', 5000, 1234);
ends_well('one', "pad <> 'BAD'", 'of 5,000 rows all but the bad one are there, once');
is(seen('one', 'rows_exported, rows_rejected, dead_letters'), '4999|1|1', 'it is counted, and no other');
is(letters('one', "status, answer, row_count"), '400|the receiver answered 400: bad row|1', 'the answer stands beside it');
my $body = letters('one', "convert_from(body, 'UTF8')");
my $row = $node->safe_psql('postgres', q{SELECT format('{"id":%s,"part":"one","pad":"BAD"}', id) FROM logs WHERE pad = 'BAD'});
is($body =~ s/\n\z//r, $row, 'the bytes are those that were sent');
is($node->safe_psql('postgres', q{
		SELECT count(*) FILTER (WHERE rows_missing > 0 OR rows_doubled > 0), max(detail)
		FROM incsink_verify('one', 'logs')}),
	'0|1 rows were refused by the receiver and put aside or discarded', 'incsink_verify() misses nothing');

insert_rows('one', 60, 1, 30, 31, 60);
ends_well('one', "pad <> 'BAD'", 'of several bad rows each is put aside');
is(seen('one', 'rows_rejected, dead_letters'), '5|5', 'and counted');

# --------------------------------------------------------------- sent again

my $id = letters('one', 'min(dead_letter_id)');
$node->safe_psql('postgres', "SELECT incsink_redeliver($id)");
wait_for_query($node, "SELECT redeliver_at IS NULL AND redeliver_attempts = 1 AND redeliver_error LIKE '%bad row' FROM incsink.dead_letters WHERE dead_letter_id = $id", 't',
	'a row that is refused again stays');
$collector->reset;
$node->safe_psql('postgres', "SELECT incsink_redeliver($id)");
wait_for_query($node, q{SELECT rows_rejected || ' ' || dead_letters FROM incsink.stat_delivery WHERE sink = 'one'}, '4 4',
	'once the receiver takes it, it arrives and its dead letter goes');
my @last = grep { $_->{rows} == 1 } @{ $collector->entries(sink => 'one') };
is($last[-1]{id}, $last[-2]{id}, 'both attempts had one id');
isnt($last[-1]{epoch}, seen('one', 'epoch'), 'and an epoch of their own');
is(seen('one', 'rows_exported'), 4999 + 56 + 1, 'it is exported now');

# its answer is lost: sent again under its id, stored once
$collector->control('path=/one store close');
$id = letters('one', 'min(dead_letter_id)');
$node->safe_psql('postgres', "SELECT incsink_redeliver($id)");
wait_for_query($node, q{SELECT dead_letters FROM incsink.stat_delivery WHERE sink = 'one'}, '3', 'a lost answer is followed by another attempt');
is((grep { $_->{outcome} eq 'duplicate' } @{ $collector->entries(sink => 'one') }) + 0, 1, 'which the receiver knows by its id');

# the worker is killed between acknowledgement and its record
$id = letters('one', 'min(dead_letter_id)');
inject_file($node, 'before-redelivered', 'kill once');
$node->safe_psql('postgres', "SELECT incsink_redeliver($id)");
wait_until(sub { server_log_like($node, qr/was terminated by signal 9/, 0) }, 'the worker is killed before the acknowledgement is recorded');
wait_for_query($node, q{SELECT dead_letters FROM incsink.stat_delivery WHERE sink = 'one'}, '2', 'the next one sends it again');
is((grep { $_->{outcome} eq 'duplicate' } @{ $collector->entries(sink => 'one') }) + 0, 2, 'under its id: nothing is doubled');

# ---------------------------------------------------------------- who may, discard

$id = letters('one', 'min(dead_letter_id)');
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO stranger');
foreach my $function ('redeliver', 'discard')
{
	my (undef, undef, $stderr) = $node->psql('postgres', "SELECT incsink_$function($id)", extra_params => [ '-U', 'stranger' ]);
	like($stderr, qr/must be owner of sink "one"/, "a stranger may not $function");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM incsink.dead_letters', extra_params => [ '-U', 'stranger' ]), 0, 'nor see rows');
$node->safe_psql('postgres', 'GRANT pg_read_all_data TO stranger');
is($node->safe_psql('postgres', 'SELECT count(*) FROM incsink.dead_letters', extra_params => [ '-U', 'stranger' ]), 2, 'who may read all data may');
$node->safe_psql('postgres', "SELECT incsink_discard($id)");
is(seen('one', 'rows_rejected, dead_letters'), '2|1', 'a discarded one is gone, and stays counted');

my (undef, undef, $stderr) = $node->psql('postgres', q{SELECT incsink_drop_sink('one')});
like($stderr, qr/NOTICE:  dropped 1 dead letters/, 'what goes with a sink is said');
is($node->safe_psql('postgres', 'SELECT count(*) FROM incsink.dead_letter'), 0, 'and goes');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'no process crashed');
done_testing();
