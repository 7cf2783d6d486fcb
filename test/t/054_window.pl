# Several batches of one table on their way at a time: whatever order their answers come
# in, or do not come in, each row arrives once, and the watermark moves over those that
# are acknowledged with nothing missing before them.

use strict;
use warnings;

use Export;
use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $export = Export->new('window', forward => { max_in_flight => 4, flush_rows => 2 });
my $node = $export->node;
my $collector = $export->collector;

$export->insert(2);
settled('one batch arrives');

# ---------------------------------------------------------------- the window
{
	my @flights = hold(4);
	my $before = position();

	is(scalar @flights, 4, 'four batches are on their way at a time');
	is($flights[$_]{since}, $flights[ $_ - 1 ]{until}, 'each begins where the one before it ends') foreach 1 .. 3;
	is($export->query("SELECT in_flight_batches FROM incsink.stat_delivery WHERE sink = 'central'"), '4', 'the view counts them');
	$export->insert(6);
	others_have_turns();
	is(scalar flights(), 4, 'there is no fifth');
	is(position(), $before, 'the watermark stands before all of them');

	release($flights[0]);
	wait_until(sub { position() == $flights[0]{until} });
	others_have_turns();
	is(scalar flights(), 4, 'a place that is free is taken');
	release(@flights[ 1 .. 3 ]);
	settled('and all of them arrive');
	is(repeated(), '', 'each was sent once');
}

# ------------------------------------------------- answers in every order
# One that moved the watermark ahead of those before it would be sent again.
foreach my $order ([ 0, 1, 2 ], [ 0, 2, 1 ], [ 1, 0, 2 ], [ 1, 2, 0 ], [ 2, 0, 1 ], [ 2, 1, 0 ])
{
	my @flights = hold(3);
	my $name = 'answered in the order ' . join(' ', map { $_ + 1 } @$order);
	my $end = position();
	my %answered;
	my @seen;

	foreach my $i (@$order)
	{
		release($flights[$i]);
		$answered{$i} = 1;
		$end = $flights[$_]{until} foreach grep { my $last = $_; !grep { !$answered{$_} } 0 .. $last } 0 .. 2;
		others_have_turns();
		wait_until(sub { position() >= $end });
		push @seen, position() - $end;
	}
	is(join(' ', @seen), '0 0 0', "$name, the watermark ends before the first that is not");
	settled("$name, each row arrives once");
	is(repeated(), '', "$name, each batch is sent once");
}

# ------------------------------------------------------ one of them fails
foreach my $lost ([ 'stored and denied', 'release status=503' ], [ 'stored and cut off', 'drop' ])
{
	my ($name, $how) = @$lost;
	my @flights = hold(3);
	my $before = position();

	release(@flights[ 1, 2 ]);
	$collector->control('store hang', "$how until=$flights[0]{until}");
	wait_until(sub { attempts($flights[0]) == 2 && $collector->held == 1 });
	is(position(), $before, "the watermark stands before a batch that was $name");
	is(scalar flights(), 3, 'and so do those behind it, which are acknowledged');
	$collector->release;
	settled('with its retry each row arrives once');
	is(attempts($flights[0]) . attempts($flights[1]) . attempts($flights[2]), '211', 'those behind it were sent once');
}

# All of them fail at once: they are one failure, and come again one after the other.
{
	alter('{"retry_initial": "1h", "retry_max": "1h"}');
	my @flights = hold(4, 'nostore hang');

	foreach my $i (0 .. 3)
	{
		$collector->control("release status=50$i until=$flights[$i]{until}");
		wait_for_query($node, "SELECT last_error LIKE '%50$i%' FROM incsink.stat_delivery WHERE sink = 'central'");
	}
	is($export->query("SELECT state || ' ' || failures FROM incsink.stat_delivery WHERE sink = 'central'"), 'retrying 1',
		'four that fail together are one failure');
	others_have_turns();
	is(join(' ', map { attempts($_) } @flights), '1 1 1 1', 'which waits for its time');

	alter('{"retry_initial": "20ms", "retry_max": "200ms"}');
	$export->query("SELECT incsink_resume_sink('central')");
	settled('after it all of them arrive');
	is(ranges_of(@flights), 'same', 'under their ids, with their ranges');
}

# They come again one after the other.
{
	my @flights = hold(3, 'nostore hang');

	$collector->control('times=always status=503', 'drop');
	wait_until(sub { attempts($flights[0]) > 5 });
	my $others = attempts(@flights[ 1, 2 ]);
	my $tried = attempts($flights[0]);
	wait_until(sub { attempts($flights[0]) > $tried + 2 });
	is(attempts(@flights[ 1, 2 ]), $others, 'after a failure the lowest is tried, and no other');
	$collector->back_to_normal;
	settled('three that are cut off come again');
	is(join(' ', map { $_->{until} } grep { $_->{outcome} eq 'stored' } of(@flights)),
		join(' ', map { $_->{until} } @flights), 'in their order');
	is(ranges_of(@flights), 'same', 'under their ids, with their ranges');
}

# One in the middle fails for long.
{
	my @flights = hold(3);

	release($flights[2]);
	$collector->control("times=always until=$flights[1]{until} status=503",
		"release status=503 until=$flights[1]{until}");
	wait_for_query($node, q{SELECT failures > 2 FROM incsink.stat_delivery WHERE sink = 'central'});
	release($flights[0]);
	wait_until(sub { position() == $flights[0]{until} }, 'what is before one that fails is done');
	$export->insert(6);
	my $attempts = attempts($flights[1]);
	wait_until(sub { attempts($flights[1]) > $attempts + 1 });
	cmp_ok($export->query(q{SELECT failures FROM incsink.stat_delivery WHERE sink = 'central'}), '>', 2, 'and does not make up for its failures');
	is(scalar flights(), 2, 'nothing is cut behind it');
	is(position(), $flights[0]{until}, 'and what is behind it moves nothing');
	$collector->back_to_normal;
	settled('until it arrives');
	is(attempts($flights[0]) . attempts($flights[2]), '11', 'the others were sent once');
}

# One in the middle is refused for good.
{
	my @flights = hold(3);

	$collector->control("release status=422 until=$flights[1]{until}");
	wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE sink = 'central'}, 'halted', 'one that is refused halts the delivery');
	release(@flights[ 0, 2 ]);
	wait_until(sub { position() == $flights[0]{until} }, 'what was before it is done');
	is($export->query(q{SELECT state FROM incsink.stat_delivery WHERE sink = 'central'}), 'halted', 'and it is halted still');
	is(attempts($flights[1]), 1, 'without another attempt');
	$export->query("SELECT incsink_resume_sink('central')");
	settled('resumed it goes on');
	is(attempts($flights[2]), 1, 'and the one behind it was sent once');
}

# ---------------------------------------------------------------- kills
foreach my $kill ([ 'the server is killed', \&kill_server ], [ 'the worker is killed', sub { kill9_worker($node, undef, 'forward') } ])
{
	foreach my $rule ('store hang', 'nostore hang')
	{
		my ($name, $how) = @$kill;
		my @flights = hold(3, $rule);

		$name .= $rule =~ /^store/ ? ' with three that are stored' : ' with three that are not';
		release($flights[1]) if $rule =~ /^store/;
		$collector->control('reset');
		$how->();
		settled("$name, and each row arrives once");
		is(ranges_of(@flights), 'same', "$name, and they come again under their ids, with their ranges");
		is(join(' ', map { attempts($_) } @flights), '2 2 2', "$name, and once more each");
	}
}

# Rows come, go and change before the retry.
{
	my @flights = hold(3, 'nostore hang');

	inject_file($node, 'worker-start-commit', 'wait');
	kill9_server($node);
	$collector->back_to_normal;
	restart_after_kill($node);
	wait_reached($node, 'worker-start-commit');
	$export->insert(3);
	$export->query("DELETE FROM t WHERE ingest_seq IN ($flights[1]{until}, $flights[1]{until} - 1);
		UPDATE t SET v = 'changed' WHERE ingest_seq = $flights[2]{until}");
	disarm($node, 'worker-start-commit');
	$export->{emptied} = 1;
	settled('rows that come, go and change before the retry do no harm');
	is(attempts($flights[1]), 1, 'a batch in the middle that has become empty is not sent again');
}

# --------------------------------------------------- pauses, other widths, epochs
{
	my @flights = hold(3);
	my $before = position();

	$export->query("SELECT incsink_pause_sink('central')");
	wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE sink = 'central'}, 'paused');
	$export->insert(4);
	release(@flights[ 1, 2 ]);
	others_have_turns();
	is(position(), $before, 'paused, the watermark stands before those that are not acknowledged');
	release($flights[0]);
	wait_until(sub { position() == $flights[2]{until} }, 'and goes over those that are');
	others_have_turns();
	is(scalar flights(), 0, 'nothing more is cut');
	$export->query("SELECT incsink_resume_sink('central')");
	settled('resumed it goes on');
	is(repeated(@flights), '', 'and nothing is sent again');
}

{
	my @flights = hold(4);

	$collector->control("store hang until=$flights[0]{until}");
	alter('{"max_in_flight": 1}');
	wait_until(sub { attempts($flights[0]) == 2 });
	$export->insert(2);
	others_have_turns();
	is(join(' ', map { attempts($_) } @flights), '2 1 1 1', 'with a narrower window those that stand go one at a time');
	is(scalar flights(), 4, 'and nothing is cut');
	$collector->back_to_normal;
	settled('until all have arrived');
	is(ranges_of(@flights), 'same', 'under their ids, with their ranges');
	is(join(' ', map { attempts($_) } @flights), '2 2 2 2', 'once more each');
	alter('{"max_in_flight": 4}');
}

{
	my @flights = hold(3);
	my $epoch = $export->query(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'central'});

	release($flights[1]);
	$export->query("SELECT incsink_alter_sink('central', url => '@{[ $collector->url ]}', watermark => 'restart')");
	$collector->back_to_normal;
	$export->settle('a new epoch begins while three stand');
	my $new = $export->query(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'central'});
	isnt($new, $epoch, 'it is another one');
	is(join("\n", Export::row_faults('collector', $export->expected_rows,
			rows_at_collector($collector, \&Export::row_key, epoch => $new))), '', 'and has each row once');
	is(scalar of(@flights), 3, 'the batches of the old one are not sent again');
}

# ------------------------------------------------------ ranges without a row
# What the filter passes over behind batches that stand is not behind the watermark yet.
foreach my $kill (0, 1)
{
	my $name = $kill ? 'filtered and killed' : 'filtered';
	my $table = "filtered$kill";

	$export->query("CREATE TABLE $table (id bigint PRIMARY KEY, keep bool); SELECT incsink_attach('$table');
		SELECT incsink_create_sink('$table', '@{[ $collector->url ]}',
			options => '{\"max_in_flight\": 4, \"retry_initial\": \"20ms\", \"retry_max\": \"200ms\"}');
		SELECT incsink_add_table('$table', '$table', filter => 'keep')");
	$collector->control("times=2 sink=$table nostore hang");
	$export->query("INSERT INTO $table VALUES (1, true)");
	wait_until(sub { $collector->held == 1 });
	$export->query("INSERT INTO $table SELECT g, false FROM generate_series(2, 9) g");
	others_have_turns();
	is(position($table), 0, "$name: rows that the filter passes over behind a batch that stands move nothing");
	$export->query("INSERT INTO $table VALUES (10, true)");
	wait_until(sub { $collector->held == 2 });
	$export->query("INSERT INTO $table SELECT g, false FROM generate_series(11, 19) g");
	others_have_turns();
	kill9_server($node) if $kill;
	$collector->control('reset', 'drop');
	restart_after_kill($node) if $kill;
	wait_for_query($node, "SELECT lag_rows = 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = '$table'",
		't', "$name: until that is acknowledged");
	is(join(' ', map { "$_->{since}-$_->{until}" } stored_ranges($table)),
		'0-1 1-10', "$name: and each row arrives once");
	$export->query("SELECT incsink_drop_sink('$table')");
}

# ----------------------------------------------------------------- backlogs
{
	$export->query("CREATE TABLE big (id bigint PRIMARY KEY); INSERT INTO big SELECT generate_series(1, 60);
		SELECT incsink_attach('big')");
	$collector->control('times=4 sink=big store hang');
	backlog_sink('big');
	wait_until(sub { $collector->held == 4 }, 'four batches of a backlog are on their way at a time');
	my @flights = flights('big');
	$export->query('INSERT INTO big SELECT generate_series(61, 70)');
	$collector->control(map { "release until=$flights[$_]{label}" } 2, 1);
	kill_server();
	wait_for_query($node, "SELECT lag_rows = 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = 'big'",
		't', 'killed between them it goes on');
	is_exported($node, 'SELECT id FROM big', rows_at_collector($collector, 'id', sink => 'big'), 'and each row is there once');
	is(breaks('big'), '', 'in ranges that follow each other');
	is(ranges_of(@flights), 'same', 'under their ids, with their ranges');
}

# The last batch of a backlog is full: that nothing follows it stands in no intent.
foreach my $kill (0, 1)
{
	my $table = "full$kill";

	$export->query("CREATE TABLE $table (id bigint PRIMARY KEY); INSERT INTO $table SELECT generate_series(1, 10);
		SELECT incsink_attach('$table')");
	$collector->control("times=2 sink=$table store hang");
	backlog_sink($table);
	wait_until(sub { $collector->held == 2 });
	$export->query("INSERT INTO $table SELECT generate_series(11, 13)");
	others_have_turns();
	is($export->query("SELECT count(*) FROM incsink.intent JOIN incsink.sink_def USING (sink_id) WHERE name = '$table' AND until_seq > 0"),
		'0', 'rows with numbers wait until the backlog is done');
	$kill ? kill_server() : $collector->back_to_normal;
	wait_for_query($node, "SELECT lag_rows = 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = '$table'",
		't', $kill ? 'with a kill in between' : 'and then come');
	is_exported($node, "SELECT id FROM $table", rows_at_collector($collector, 'id', sink => $table), 'each once');
	is(breaks($table), '', 'in ranges that follow each other');
}

done_testing();

# Batches of two rows that the collector holds, in the order of their ranges.
sub hold
{
	my ($count, $rule) = @_;

	$collector->back_to_normal;
	$export->settle;
	$collector->control("times=$count sink=central " . ($rule // 'store hang'));
	$export->insert(2 * $count);
	wait_until(sub { $collector->held == $count });
	return flights();
}

# The intents of a sink in the order of their ranges.
sub flights
{
	my ($sink) = @_;
	my @flights;

	$sink //= 'central';
	foreach my $row (split /\n/, $export->query(
			"SELECT batch_id, since_seq, until_seq, CASE WHEN until_seq > 0 THEN until_seq::text
				ELSE '0.' || lpad(until_n::text, 19, '0') END
			 FROM incsink.intent JOIN incsink.sink_def USING (sink_id) WHERE name = '$sink'
			 ORDER BY since_seq, since_n"))
	{
		my %flight;
		@flight{qw(batch since until label)} = split /\|/, $row;
		push @flights, \%flight;
	}
	return @flights;
}

sub release
{
	$collector->control(map { "release until=$_->{until}" } @_);
	return;
}

# The requests of these batches, in order.
sub of
{
	my %wanted = map { $_->{batch} => 1 } @_;
	return grep { $wanted{ $_->{id} } } @{ $collector->ledger };
}

sub attempts { return scalar(my @requests = of(@_)); }

# Has each batch come with one range only, and that of its intent?
sub ranges_of
{
	my @flights = @_;
	my %label = map { $_->{batch} => $_->{label} } @flights;
	my @others = grep { $_->{until} ne $label{ $_->{id} } } of(@flights);
	my %ranges = map { $_->{id} . $_->{since} => 1 } of(@flights);

	return @others == 0 && keys %ranges == @flights ? 'same' : 'others';
}

# Ids that were sent more than once since the last call, or among the batches given.
my $looked = 0;

sub repeated
{
	my @entries = @_ ? of(@_) : @{ $collector->ledger };
	my %count;

	unless (@_)
	{
		splice @entries, 0, $looked;
		$looked += @entries;
	}
	$count{ $_->{id} }++ foreach @entries;
	return join ' ', grep { $count{$_} > 1 } sort keys %count;
}

sub position
{
	my ($sink) = @_;
	$sink //= 'central';
	return $export->query("SELECT position FROM incsink.stat_delivery WHERE sink = '$sink'");
}

sub alter
{
	my ($options) = @_;
	$export->query("SELECT incsink_alter_sink('central', options => '$options')");
	return;
}

# Answers that have come, and rows that are there, have had their turn when this returns:
# another sink has exported a row that was committed after them.
my $others = 0;

sub others_have_turns
{
	if ($others++ == 0)
	{
		$export->query("CREATE TABLE other (id bigint); SELECT incsink_attach('other');
			SELECT incsink_create_sink('other', '@{[ $collector->url ]}', tables => '{other}')");
	}
	$export->query("INSERT INTO other VALUES ($others)");
	wait_for_query($node, "SELECT lag_rows = 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = 'other'");
	return;
}

sub kill_server
{
	kill9_server($node);
	$collector->back_to_normal;
	restart_after_kill($node);
	return;
}

sub backlog_sink
{
	my ($table) = @_;
	$export->query("SELECT incsink_create_sink('$table', '@{[ $collector->url ]}', tables => '{$table}',
		options => '{\"max_in_flight\": 4, \"flush_rows\": 5, \"retry_initial\": \"20ms\", \"retry_max\": \"200ms\"}')");
	return;
}

sub stored_ranges
{
	my ($sink) = @_;
	return sort { $a->{since} <=> $b->{since} } @{ $collector->entries(sink => $sink, outcome => 'stored') };
}

# Where the ranges that a sink has sent do not follow each other.
sub breaks
{
	my ($sink) = @_;
	my $end = '0';
	my @breaks;

	foreach my $entry (stored_ranges($sink))
	{
		push @breaks, "$entry->{since} after $end" if $entry->{since} ne $end;
		$end = $entry->{until};
	}
	return join '; ', @breaks;
}

# All is exported, each row once, in ranges that follow each other.
sub settled
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @stored;

	$export->settle;
	@stored = stored_ranges('central');
	return is(
		join("\n",
			Export::row_faults('collector', $export->expected_rows,
				rows_at_collector($collector, \&Export::row_key, sink => 'central')),
			$export->range_faults('collector', map { [ $_->{since}, $_->{until} ] } @stored)),
		'', $name);
}
