# An acknowledgement counts for the batch, the epoch and the watermark that it was
# sent for, and for nothing else.

use strict;
use warnings;

use Export;
use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $export = Export->new('fences', forward => {}, file => {});
my $node = $export->node;
my $collector = $export->collector;

$export->insert(5);
$export->settle;

# ------------------------------------------- the sink is another one by the answer
# Dropped and made anew under its name.
{
	hold_batch();
	$export->query("SELECT incsink_drop_sink('central')");
	$export->add_forward;
	$collector->back_to_normal;
	$export->settle;
	is(epoch_faults('central'), '', 'a sink that is dropped and made anew begins at its beginning');
	is(position('central'), position('archive'), 'and the answer to the old one\'s batch moves nothing');
}

# Restarted in place: the same row of the catalog, another epoch.
{
	my $old = epoch('central');
	my $batch = hold_batch();

	$export->query("SELECT incsink_alter_sink('central', url => '@{[ $collector->url ]}', watermark => 'restart')");
	$collector->back_to_normal;
	$export->settle;
	isnt(epoch('central'), $old, 'watermark => restart begins another epoch');
	is(epoch_faults('central'), '', 'which has every row');
	is(scalar @{ $collector->entries(id => $batch) }, 1, 'the batch of the old one is not sent again');
}

# Restarted while the acknowledgement stands in the worker's memory: it has those of two
# sinks, which go into one statement, and has not locked them yet.
{
	$export->create_sink('second', $collector->url('/second'));
	$export->settle;
	foreach my $round (1 .. 3)
	{
		my %position = map { $_ => position($_) } qw(central second);

		$collector->control('times=2 store hang');
		$export->insert(5);
		wait_until(sub { $collector->held == 2 });
		inject($node, 'before-turn-lock', 'wait');
		inject($node, 'http-answer', 'wait');
		$collector->back_to_normal;
		wait_reached($node, 'http-answer');
		disarm($node, 'http-answer');
		wait_reached($node, 'before-turn-lock');

		my ($free) = split /\n/, $export->query(
			"SELECT name FROM incsink.sink_def JOIN incsink.sink_table_def USING (sink_id)
			 WHERE name <> 'archive' FOR UPDATE OF sink_table_def SKIP LOCKED");
		$export->query("SELECT incsink_alter_sink('$free', url => (SELECT url FROM incsink.sink_def WHERE name = '$free'),
			watermark => 'restart')");
		is(position($free), '0', "round $round: a sink is restarted while its acknowledgement is in memory");
		disarm($node, 'before-turn-lock');
		$export->settle;
		is(epoch_faults($free), '', "round $round: the new epoch has every row");
		my ($other) = grep { $_ ne $free } qw(central second);
		is(epoch_faults($other), '', "round $round: and the other sink has what it had");
	}
	$export->query("SELECT incsink_drop_sink('second')");
}

# Another process cuts the same range first: its intent stands, and is the only one.
{
	my $batch = 'e' x 32;

	inject($node, 'before-intent', 'wait');
	$export->insert(5);
	wait_reached($node, 'before-intent');
	$export->query("INSERT INTO incsink.intent (intent_id, batch_id, sink_id, partition_id, destination, epoch,
			since_seq, until_seq, row_count, byte_count, digests, encoding, object_key)
		SELECT nextval('incsink.object_id_seq'), CASE s.kind WHEN 'forward' THEN '$batch' ELSE repeat('f', 32) END,
			w.sink_id, w.partition_id, '', w.epoch, w.sent_seq, (SELECT max(ingest_seq) FROM t), 5, 1, '{}',
			'{\"format\": \"ndjson\"}', CASE s.kind WHEN 'blob' THEN format('%s-e%s-%s-%s.ndjson', s.name, w.epoch,
				lpad(w.sent_seq::text, 19, '0'), lpad((SELECT max(ingest_seq) FROM t)::text, 19, '0')) END
		FROM incsink.watermark w JOIN incsink.sink_def s USING (sink_id) WHERE s.name IN ('central', 'archive')");
	disarm($node, 'before-intent');
	$export->settle('a batch is not cut where an intent stands');
	is(scalar @{ $collector->entries(id => $batch) }, 1, 'that intent is sent');
	is(epoch_faults('central'), '', 'and each row once');
}

# The table is taken out of the sink and put in again.
{
	hold_batch();
	$export->query("SELECT incsink_remove_table('central', 't')");
	$export->query("SELECT incsink_add_table('central', 't', start => 'now')");
	my $position = position('central');
	$collector->back_to_normal;
	my ($first, $last) = $export->insert(3);
	$export->settle;
	is(join(' ', sort { $a <=> $b } @{ rows_at_collector($collector, 'id', epoch => epoch('central')) }),
		join(' ', $first .. $last), 'a table that is added again with start "now" has the rows that come then');
	$export->query("SELECT incsink_alter_sink('central', url => '@{[ $collector->url ]}', watermark => 'keep')");
}

# ------------------------------------------------ the watermark was changed by hand
# What a hand does to the watermark while a batch is in flight, and what undoes it.
foreach my $hand (
	[ 'is set back', 'seq = seq - 2', 'seq = seq + 2' ],
	[ 'is set back with its last batch', 'seq = seq - 2, sent_seq = sent_seq - 2', 'seq = seq + 2, sent_seq = sent_seq + 2' ],
	[ 'is set ahead', 'seq = seq + 2, sent_seq = sent_seq + 2', 'seq = seq - 2, sent_seq = sent_seq - 2' ],
	[ 'is given another epoch', "epoch = '9-' || epoch", "epoch = substr(epoch, 3)" ])
{
	my ($name, $change, $undo) = @$hand;
	my $batch = hold_batch();

	update_watermark($change);
	my $changed = watermark();
	$collector->back_to_normal;
	halts('the intent of this delivery does not fit its watermark',
		"an answer that finds that the watermark $name halts the delivery");
	is(watermark(), $changed, 'and moves nothing');
	is($export->intent('central')->{batch}, $batch, 'and keeps the intent');
	$export->insert(2);
	wait_for_query($node, "SELECT state = 'waiting' AND lag_rows = 0 FROM incsink.stat_delivery WHERE sink = 'archive'",
		't', 'the other sink goes on');

	update_watermark($undo);
	$export->query("SELECT incsink_resume_sink('central')");
	$export->settle('put right and resumed the delivery goes on');
	is(repeated_rows(), '', 'with the batch under its id, so that nothing is doubled');
}

# Gone altogether, in flight and at rest.
foreach my $in_flight (1, 0)
{
	my $when = $in_flight ? 'while a batch is in flight' : 'at rest';

	hold_batch() if $in_flight;
	$export->query('CREATE TABLE kept AS SELECT w.* FROM incsink.watermark w JOIN incsink.sink_def USING (sink_id)
		WHERE name = \'central\'');
	$export->query("DELETE FROM incsink.watermark w USING incsink.sink_def s
		WHERE s.sink_id = w.sink_id AND s.name = 'central'");
	$collector->back_to_normal;
	$export->insert(2);
	halts('the watermark of this delivery is missing from incsink.watermark',
		"a watermark that goes $when halts the delivery");
	is($export->query("SELECT count(*) FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = 'central'"),
		'0', 'and is not replaced');
	kill9_server($node);
	restart_after_kill($node);
	halts('the watermark of this delivery is missing from incsink.watermark', 'also after a crash');
	wait_for_query($node, "SELECT state = 'waiting' AND lag_rows = 0 FROM incsink.stat_delivery WHERE sink = 'archive'",
		't', 'the other sink goes on');
	isnt($export->query("SELECT hint FROM incsink.status WHERE sink = 'central'"), '', 'what to do about it is said');

	$export->query('INSERT INTO incsink.watermark SELECT * FROM kept; DROP TABLE kept');
	$export->query("SELECT incsink_resume_sink('central')");
	$export->settle('with the watermark back the delivery goes on');
	is(repeated_rows(), '', 'and nothing is doubled');
}

# Above everything that was ever drawn: rows that take those numbers would be missed.
{
	update_watermark('seq = seq + 1000000');
	$export->query("SELECT incsink_resume_sink('central')");
	$export->insert(2);
	wait_for_query($node, "SELECT state = 'halted' AND reason ~ 'stands at \\d+, above \\d+, the last number drawn'
		FROM incsink.status WHERE sink = 'central'", 't', 'a watermark above all that was drawn halts the delivery');
	wait_for_query($node, "SELECT state = 'waiting' AND lag_rows = 0 FROM incsink.stat_delivery WHERE sink = 'archive'",
		't', 'the other sink goes on');
	update_watermark('seq = seq - 1000000');
	$export->query("SELECT incsink_resume_sink('central')");
	$export->settle('put right and resumed it goes on');
	is(repeated_rows(), '', 'and nothing is missed or doubled');
}

# A watermark never goes back while its epoch lasts.
{
	my @positions;

	foreach (1 .. 10)
	{
		$export->insert(3);
		$collector->control('store status=500') if $_ % 3 == 0;
		push @positions, position('central');
	}
	$export->settle;
	push @positions, position('central');
	is(join(' ', @positions), join(' ', sort { $a <=> $b } @positions), 'a watermark never goes back');
}

# -------------------------------------------------------------- names of files
# Somebody else's file takes the name in the last moment.
{
	inject($node, 'file-before-rename', 'wait');
	$export->insert(3);
	wait_reached($node, 'file-before-rename');
	my $path = $export->dir . '/' . $export->intent('archive')->{key};
	append_to_file($path, "somebody else's\n");
	disarm($node, 'file-before-rename');
	wait_for_query($node, "SELECT state = 'halted' AND reason LIKE 'file % exists and is not of this sink'
		FROM incsink.stat_delivery WHERE sink = 'archive'", 't', 'a file that took the name halts the sink');
	is(slurp_file($path), "somebody else's\n", 'and is not replaced');
	is(join(' ', @{ Export::temporary_files($export->dir) }), '', 'nothing half is left beside it');

	unlink $path;
	$export->query("SELECT incsink_resume_sink('archive')");
	$export->settle('with that file away the sink goes on');
	is(join("\n", $export->file_faults($export->expected_rows)), '', 'and each row is in one file');
}

# A process that stood still comes back and finds that its temporary file is another's.
{
	inject($node, 'file-before-rename', 'wait');
	$export->insert(3);
	wait_reached($node, 'file-before-rename');
	my ($temporary) = @{ Export::temporary_files($export->dir) };
	rename $temporary, $export->dir . '/../moved_away' or die "rename: $!";
	append_to_file($temporary, "half of a successor's file");
	disarm($node, 'file-before-rename');
	$export->settle('a temporary file that is another by now is not given the name');
	is(join("\n", $export->file_faults($export->expected_rows)), '', 'and each row is in one file');
}

done_testing();

# A batch that the collector has stored and not answered; returns its id.
sub hold_batch
{
	$export->settle;
	$collector->control('sink=central store hang');
	$export->insert(5);
	wait_until(sub { $collector->held });
	wait_for_query($node, "SELECT lag_rows = 0 FROM incsink.stat_delivery WHERE sink = 'archive'");
	return $export->intent('central')->{batch};
}

sub update_watermark
{
	my ($change) = @_;
	$export->query("UPDATE incsink.watermark w SET $change FROM incsink.sink_def s
		WHERE s.sink_id = w.sink_id AND s.name = 'central'");
	return;
}

sub watermark
{
	return $export->query("SELECT w.epoch, w.seq, w.rows_exported, w.batches_exported
		FROM incsink.watermark w JOIN incsink.sink_def USING (sink_id) WHERE name = 'central'");
}

sub position
{
	my ($sink) = @_;
	return $export->query("SELECT position FROM incsink.stat_delivery WHERE sink = '$sink'");
}

sub epoch
{
	my ($sink) = @_;
	return $export->query("SELECT epoch FROM incsink.stat_delivery WHERE sink = '$sink'");
}

# The present epoch of a sink has every row of the table, once, in ranges that follow
# each other.
sub epoch_faults
{
	my ($sink) = @_;
	my %of = (sink => $sink, epoch => epoch($sink));

	return join "\n",
	  Export::row_faults('collector', $export->expected_rows,
		rows_at_collector($collector, \&Export::row_key, %of)),
	  $export->range_faults('collector',
		map { [ $_->{since}, $_->{until} ] } @{ $collector->entries(%of, outcome => 'stored') });
}

# Rows that the present epoch of "central" has more than once, or not at all though
# they came after it began.
sub repeated_rows
{
	my %of = (sink => 'central', epoch => epoch('central'));
	my ($since) = map { $_->{since} } @{ $collector->entries(%of, outcome => 'stored') };

	return join "\n", Export::row_faults('collector',
		[ split /\n/, $export->query("SELECT id || ' ' || v FROM t WHERE ingest_seq > $since") ],
		rows_at_collector($collector, \&Export::row_key, %of));
}

sub halts
{
	my ($reason, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for_query($node, "SELECT state || ': ' || reason FROM incsink.status WHERE sink = 'central'",
		"halted: $reason", $name);
	return;
}
