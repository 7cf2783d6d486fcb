# Batches that a receiver refuses: split where they are too large, or until the bad row
# is found; halted where an attempt may have been stored, until somebody says so.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('rejects');
my $collector = Collector->new;

$node->safe_psql('postgres', q{
	CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY, part text, pad text);
	SELECT incsink_attach('logs');
});

# A sink of its own for each part, which exports the rows of that part.
sub make_sink
{
	my ($name, $options) = @_;
	my $url = $collector->url("/$name");

	$node->safe_psql('postgres', qq{
		SELECT incsink_create_sink('$name', '$url', options => '{"retry_initial": "10ms", "retry_max": "50ms"}'::jsonb || '$options');
		SELECT incsink_add_table('$name', 'logs', filter => 'part = ''$name''');
	});
	return;
}

# Rows in one transaction, so that they make one batch; those of BAD say so.
sub insert_rows
{
	my ($name, $count, @bad) = @_;
	my $bad = join ',', -1, @bad;
	$node->safe_psql('postgres', "INSERT INTO logs (part, pad)"
		  . " SELECT '$name', CASE WHEN i IN ($bad) THEN 'BAD' ELSE repeat('x', 20) END FROM generate_series(1, $count) AS i");
	return;
}

sub seen
{
	my ($name, $what) = @_;
	return $node->safe_psql('postgres', "SELECT $what FROM incsink.stat_delivery WHERE sink = '$name'");
}

sub wait_seen
{
	my ($name, $condition, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT $condition FROM incsink.stat_delivery WHERE sink = '$name'", 't', $test)
	  or diag(seen($name, "concat_ws(' | ', state, failures, retry_at, reason, hint, last_error)"));
	return;
}

# Everything of a part but its bad rows is there, once; nothing stands any more.
sub ends_well
{
	my ($name, $test, $where) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$where //= 'true';
	wait_for_query($node, "SELECT state = 'waiting' AND reason IS NULL AND failures = 0"
		  . " AND in_flight_batch IS NULL AND lag_rows = 0 FROM incsink.stat_delivery WHERE sink = '$name'")
	  or diag(seen($name, "concat_ws(' | ', state, failures, retry_at, reason, hint, lag_rows, last_error)"));
	is_exported($node, "SELECT id FROM logs WHERE part = '$name' AND $where",
		rows_at_collector($collector, 'id', sink => $name), $test);
	return;
}

sub drop_sink
{
	my ($name) = @_;
	$collector->back_to_normal;
	$node->safe_psql('postgres', "SELECT incsink_drop_sink('$name')");
	return;
}

# Ids of requests, and whether each id had one range only.
sub ids_are_distinct
{
	my ($name) = @_;
	my %range;
	foreach my $entry (@{ $collector->entries(sink => $name) })
	{
		my $range = "$entry->{since} $entry->{until}";
		return 0 if ($range{ $entry->{id} } //= $range) ne $range;
	}
	my %id = reverse %range;
	return keys %id == keys %range;
}

# Number of requests that were answered so.
sub answers
{
	my ($name, $answer) = @_;
	return scalar grep { $_->{answer} eq $answer } @{ $collector->entries(sink => $name) };
}

my $intent_id = q{(SELECT i.intent_id FROM incsink.intent AS i JOIN incsink.sink_def USING (sink_id) WHERE name = '%s'
	ORDER BY i.since_seq, i.since_n LIMIT 1)};

# ------------------------------------------------------------- 413: too large

make_sink('large', '{}');
$collector->control('path=/large larger=300 status=413 times=always');
insert_rows('large', 100);
ends_well('large', 'a batch that is too large is split down to what fits: every row is there once');
ok(ids_are_distinct('large'), 'each part has an id of its own');
cmp_ok(answers('large', 413), '>', 10, 'many were refused on the way');
is(seen('large', 'rows_exported, rows_rejected, dead_letters'), '100|0|0', 'all rows are counted, none was put aside');
is(seen('large', 'last_error'), '', 'and that is no error');

# rows that have one number stay together; the backlog has keys
insert_rows('large', 1);
ends_well('large', 'what fits is not split');

# One row that is too large by itself.
$node->safe_psql('postgres', q{INSERT INTO logs (part, pad) SELECT 'large', repeat('y', CASE i WHEN 2 THEN 500 ELSE 10 END) FROM generate_series(1, 3) AS i});
wait_seen('large', "state = 'halted' AND retry_at IS NULL AND reason LIKE '%answered 413%' AND hint LIKE '%dead_letter%'",
	'a row that is too large by itself halts the delivery, and the hint says what there is');
$collector->reset;
$node->safe_psql('postgres', q{SELECT incsink_resume_sink('large')});
ends_well('large', 'mended and resumed, everything arrives');
drop_sink('large');

# In a backlog, which is read by its key.
$node->safe_psql('postgres', q{
	CREATE TABLE old (id int PRIMARY KEY, pad text);
	INSERT INTO old SELECT i, repeat('x', 20) FROM generate_series(1, 200, 2) AS i;
	SELECT incsink_attach('old');
});
my $url = $collector->url('/backlog');
$collector->control('path=/backlog larger=200 status=413 times=always');
$node->safe_psql('postgres', qq{SELECT incsink_create_sink('backlog', '$url', tables => '{old}')});
wait_for_query($node, q{SELECT rows_exported FROM incsink.stat_delivery WHERE sink = 'backlog'}, '100');
is_exported($node, 'SELECT id FROM old', rows_at_collector($collector, 'id', sink => 'backlog'),
	'batches of a backlog are split, too');
ok(ids_are_distinct('backlog'), 'under ids of their own');
drop_sink('backlog');

# Several at a time.
make_sink('window', '{"max_in_flight": 4, "flush_rows": 20}');
$collector->control('path=/window larger=300 status=413 times=always');
insert_rows('window', 300);
ends_well('window', 'batches that were sent beside others are split, too');
ok(ids_are_distinct('window'), 'under ids of their own');
drop_sink('window');

# --------------------------------------------------- may an attempt be stored?

foreach my $how ([ 'lost', 'store close' ], [ 'failed', 'store status=500' ])
{
	my ($name, $order) = @$how;
	foreach my $outcome ('stored', 'resend')
	{
		my $sink = "$name$outcome";
		my $first = $outcome eq 'stored' ? $order : $order =~ s/store/nostore/r;

		make_sink($sink, '{}');
		$collector->control("path=/$sink $first", "path=/$sink larger=100 status=413 times=always");
		insert_rows($sink, 20);
		wait_seen($sink, "state = 'halted' AND retry_at IS NULL AND hint LIKE '%incsink_resolve(' || " . sprintf($intent_id, $sink)
			  . " || ', ''stored'')%'", "a 413 after an attempt that may be stored ($name) halts, and the hint names what ends that");
		is(scalar @{ $collector->entries(sink => $sink) }, 2, 'nothing was split, nothing sent again');
		my ($code, undef, $stderr) = $node->psql('postgres', 'SELECT incsink_resolve(' . sprintf($intent_id, $sink) . ", 'maybe')");
		like($stderr, qr/invalid outcome "maybe"/, 'another word is refused');
		$node->safe_psql('postgres', 'SELECT incsink_resolve(' . sprintf($intent_id, $sink) . ", '$outcome')");
		ends_well($sink, "resolved as \"$outcome\", every row is there once");
		is(seen($sink, 'rows_exported'), 20, 'and counted once');
		drop_sink($sink);
	}
}

# A delivery that goes on by itself is not resolved.
make_sink('busy', '{"retry_max": "1h", "retry_initial": "1h"}');
$collector->control('path=/busy status=503 header="Retry-After: 3600" times=always');
insert_rows('busy', 2);
wait_seen('busy', "state = 'retrying'", 'a delivery retries');
my (undef, undef, $stderr) = $node->psql('postgres', 'SELECT incsink_resolve(' . sprintf($intent_id, 'busy') . ", 'stored')");
like($stderr, qr/the delivery of intent \d+ is not halted/, 'only a halted delivery takes somebody\'s word');
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO stranger');
(undef, undef, $stderr) = $node->psql('postgres', 'SELECT incsink_resolve(' . sprintf($intent_id, 'busy') . ", 'stored')",
	extra_params => [ '-U', 'stranger' ]);
like($stderr, qr/permission denied/, 'a stranger cannot even see intents');
my $id = $node->safe_psql('postgres', 'SELECT ' . sprintf($intent_id, 'busy'));
(undef, undef, $stderr) = $node->psql('postgres', "SELECT incsink_resolve($id, 'stored')", extra_params => [ '-U', 'stranger' ]);
like($stderr, qr/must be owner of sink "busy"/, 'nor resolve those of others');
drop_sink('busy');

# ---------------------------------------------------------- an id that is known

make_sink('reuse', '{"reuse_status": 422}');
$collector->control('path=/reuse status=422 body="bad"');
insert_rows('reuse', 3);
wait_seen('reuse', "state = 'halted' AND reason LIKE '%422%'", 'reuse_status in answer to the first attempt is a refusal');
$collector->control('path=/reuse status=422 body="still bad"');
$node->safe_psql('postgres', q{SELECT incsink_resume_sink('reuse')});
wait_seen('reuse', "state = 'halted' AND reason LIKE '%still bad'", 'so it is after attempts that were all refused');
$node->safe_psql('postgres', q{SELECT incsink_resume_sink('reuse')});
ends_well('reuse', 'then it is taken');
$collector->control('path=/reuse store close', 'path=/reuse nostore status=422 body="key is used"');
insert_rows('reuse', 4);
ends_well('reuse', 'after a lost answer it acknowledges');
drop_sink('reuse');

# --------------------------------------------------------------------- 207

make_sink('multi', '{}');
$collector->control('path=/multi store status=207 body="{\"items\": [{\"status\": 201}, {\"status\": 200}], \"errors\": false}"');
insert_rows('multi', 2);
ends_well('multi', '207 that says that every row is stored acknowledges');
$collector->control('path=/multi store status=207 body="{\"items\": [{\"status\": 201}, {\"status\": 409}]}"');
insert_rows('multi', 2);
wait_seen('multi', "state = 'halted' AND reason LIKE '%207: %409%' AND hint LIKE '%incsink_resolve(%'", 'another 207 halts');
$node->safe_psql('postgres', 'SELECT incsink_resolve(' . sprintf($intent_id, 'multi') . ", 'stored')");
ends_well('multi', 'until somebody has looked');
drop_sink('multi');

# ------------------------------------------------------------- what never splits

foreach my $status (404, 401, 500, 409)
{
	my $name = "never$status";

	make_sink($name, '{"on_reject": "dead_letter"}');
	$collector->control("path=/$name status=$status times=always");
	insert_rows($name, 50);
	wait_seen($name, 'failures > 3', "$status is tried again");
	is(seen($name, 'in_flight_rows, in_flight_batches, rows_rejected'), '50|1|0', 'as a whole, and nothing is put aside');
	$collector->reset;
	ends_well($name, 'until it is taken');
	drop_sink($name);
}

# ------------------------------------------------ killed, with the answer in memory

foreach my $point ('before-split', 'before-put-aside')
{
	my $name = $point eq 'before-split' ? 'killed' : 'killedaside';
	my $offset = -s $node->logfile;

	make_sink($name, '{"on_reject": "dead_letter"}');
	$collector->control("path=/$name contains=BAD status=400 times=always");
	inject_file($node, $point, 'kill once');
	insert_rows($name, 16, 5);
	wait_until(sub { server_log_like($node, qr/was terminated by signal 9/, $offset) }, "the worker is killed at $point");
	wait_seen($name, "state = 'halted' AND hint LIKE '%incsink_resolve(%'",
		'nobody knows any more that the attempt was refused: it halts');
	$node->safe_psql('postgres', 'SELECT incsink_resolve(' . sprintf($intent_id, $name) . ", 'resend')");
	ends_well($name, 'told to send it again, all but the bad row are there, once', "pad <> 'BAD'");
	is(seen($name, 'rows_rejected, dead_letters'), '1|1', 'which is put aside, once');
	ok(ids_are_distinct($name), 'each part had an id of its own');
	drop_sink($name);
}

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'no process crashed');
done_testing();
