# Rows that a table had when it was attached: they arrive once, in the order of the
# key, and then those with a number; whatever is killed, paused, lost or changed in
# between.

use strict;
use warnings;

use IncsinkTest;
use JSON::PP ();
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('backlog', conf => [ "incsink.poll_interval = '50ms'", 'max_wal_size = 256MB' ]);
my $collector = Collector->new(policy => 'until');

sub query { return $node->safe_psql('postgres', $_[0]); }
sub lines_of { return split /\n/, query($_[0]); }

# TABLES: their names or, in an array, one name and more arguments of incsink_add_table().
sub create_sink
{
	my ($name, $tables, %options) = @_;
	my $json = JSON::PP->new->canonical->encode({ retry_initial => '20ms', retry_max => '200ms', %options });
	my $url = $options{key} ? 'file://' . PostgreSQL::Test::Utils::tempdir($name) : $collector->url;

	my ($table, $more) = ref $tables ? @$tables : ();

	query("SELECT incsink_create_sink('$name', '$url', tables => '{" . (ref $tables ? '' : $tables) . "}', options => '$json')");
	query("SELECT incsink_add_table('$name', '$table', $more)") if $table;
	return $url =~ s{^file://}{}r;
}

sub flush_sink
{
	my ($sink, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(query("SELECT incsink_flush('$sink', '2 min')"), 't', $name // "$sink is flushed");
}

# Where a sink stands: "seq n key".
sub position
{
	my ($sink) = @_;
	return query("SELECT seq || ' ' || n || ' ' || COALESCE(key::text, '-')
		FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = '$sink'");
}

# Rows of the backlog that a sink has behind it; -1 when it is through, or the server away.
sub passed_rows
{
	my ($sink) = @_;
	my ($status, $out) = $node->psql('postgres', "SELECT CASE WHEN seq = 0 AND key IS DISTINCT FROM '[]' THEN n ELSE -1 END
		FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = '$sink'");
	return $status == 0 && length($out) ? $out : -1;
}

# Keys of the rows that a sink's receiver has, in the order of their arrival.
sub arrived
{
	my ($sink, $key, %where) = @_;
	return rows_at_collector($collector, $key, sink => $sink, %where);
}

# Each row once, and in this order.
sub is_sequence
{
	my ($got, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = compare_rows($expected, $got);
	my ($first) = grep { ($got->[$_] // '') ne ($expected->[$_] // '') } 0 .. $#$expected;
	my $found = "missing $result->{missing} duplicate $result->{duplicate} unexpected $result->{unexpected}"
	  . (defined $first ? ", differs at $first" : '');

	return 1 if is($found, 'missing 0 duplicate 0 unexpected 0', $name);
	diag(join "\n", @{ $result->{examples} });
	diag("at $first: " . ($got->[$first] // 'nothing') . ", expected $expected->[$first]") if defined $first;
	return 0;
}

# Ranges follow each other, from the beginning.
sub is_chain
{
	my ($ranges, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $end = $ranges->[0][0];
	my @breaks;

	push @breaks, "begins at $end" if $end + 0 != 0;
	foreach my $range (@$ranges)
	{
		push @breaks, "$range->[0] does not follow $end" if $range->[0] ne $end;
		push @breaks, "($range->[0], $range->[1]] is no range" if above($range->[0], $range->[1]) >= 0;
		$end = $range->[1];
	}
	return is(join('; ', @breaks), '', $name);
}

# Positions as pairs: what is behind the point counts rows.
sub above
{
	my ($left, $right) = map { [ split /\./, "$_.0" ] } @_;
	return $left->[0] <=> $right->[0] || $left->[1] <=> $right->[1];
}

sub ranges_of
{
	my ($sink) = @_;
	return [ map { [ $_->{since}, $_->{until} ] } @{ $collector->entries(sink => $sink, outcome => 'stored') } ];
}

# ------------------------------------------- a large one, under load, many kills

my $writers_end = PostgreSQL::Test::Utils::tempdir('writers') . '/end';

# Writes until the file is there, whatever becomes of the server, or the test is gone.
sub start_writer
{
	my ($number) = @_;
	my $connection = $node->connstr('postgres');
	my $parent = $$;
	my $pid = fork() // die "fork: $!";
	my $next = $number * 10_000_000;

	return $pid if $pid;
	until (-e $writers_end || getppid() != $parent)
	{
		my $to = $next + 20;

		system("psql -XAtq -d \"$connection\" -c \"INSERT INTO big SELECT g, 'k' || g % 97, 1 FROM generate_series($next, $to - 1) g\" >/dev/null 2>&1");
		$next = $to;
		sleep 0.02;
	}
	POSIX::_exit(0);
}

query(q{CREATE TABLE big (a int, b text, v int, PRIMARY KEY (b, a));
	INSERT INTO big SELECT g, 'k' || g % 97, 0 FROM generate_series(1, 200000) g});
my @writers = map { start_writer($_) } 1 .. 4;
wait_for_query($node, 'SELECT count(DISTINCT a / 10000000) FROM big', '5', 'four sessions write');
query(q{SELECT incsink_attach('big')});
create_sink('central', 'big', flush_rows => 1000, request_timeout => '500ms', max_rows_per_second => 2000);
my $files = create_sink('archive', 'big', key => '{dataset}/{source}/{sink}-e{epoch}-{since}-{until}.{ext}',
	flush_rows => 3000, max_rows_per_second => 2000);
my $seqs = query('SELECT max(ingest_seq) FROM big');
wait_for_query($node, "SELECT max(ingest_seq) > $seqs FROM big", 't', 'and go on writing');

# Waits until both sinks have passed some rows more.
sub some_way
{
	my ($rows) = @_;

	foreach my $sink ('central', 'archive')
	{
		my $from;
		wait_until(
			sub {
				my $now = passed_rows($sink);
				return 0 if $now < 0;
				$from //= $now;
				return $now >= $from + $rows;
			});
	}
	return;
}

my @rules = ('skip=1 store status=500', 'skip=2 nostore status=503', 'times=2 store close', 'store cut=30',
	'store hang', 'skip=1 status=429');
my $duplicates = 0;
my $kills = 0;

foreach my $point (qw(before-intent before-commit after-commit before-send http-answer before-acknowledge
	before-attempt file-before-rename file-after-rename server server paused))
{
	my $offset = -s $node->logfile;

	some_way(3000);
	$collector->control('reset', $rules[ $kills % @rules ]);
	if ($point eq 'paused')
	{
		query(q{SELECT incsink_pause_sink('central'); SELECT incsink_pause_sink('archive')});
		wait_for_query($node, q{SELECT string_agg(DISTINCT state, ' ') FROM incsink.stat_delivery}, 'paused', 'both are paused inside');
		sleep 1;				# whatever was on its way
		my @before = map { position($_) } qw(central archive);
		kill9_server($node);
		restart_after_kill($node);
		sleep 0.5;
		is(join('; ', map { position($_) } qw(central archive)), join('; ', @before), 'they stay where they are');
		query(q{SELECT incsink_resume_sink('central'); SELECT incsink_resume_sink('archive')});
	}
	elsif ($point eq 'server')
	{
		kill9_server($node);
		restart_after_kill($node);
	}
	else
	{
		inject_file($node, $point, 'kill once');
		wait_until(sub { server_log_like($node, qr/was terminated by signal 9.*ready to accept connections/s, $offset) },
			"killed at $point");
		wait_for_query($node, 'SELECT true', 't');
	}
	$kills++;
}
cmp_ok(passed_rows($_), '>', 30000, "$_ was inside of the backlog all the time") foreach qw(central archive);
like(position('central'), qr/^0 (\d+) \["k\d+", "\d+"\]$/, 'the watermark names the last row');
is(query(q{SELECT incsink_flush('central', '200ms')}), 'f', 'a flush waits for the backlog');

$collector->back_to_normal;
query(qq{SELECT incsink_alter_sink('$_', options => '{"max_rows_per_second": null}')}) foreach qw(central archive);
append_to_file($writers_end, '');
waitpid $_, 0 foreach @writers;
flush_sink($_) foreach qw(central archive);

sub big_key { return $_[0] =~ /^\{"a":(\d+),"b":"(\w+)"/ ? "$2 $1" : $_[0]; }

my @big = lines_of(q{SELECT b || ' ' || a FROM big ORDER BY ingest_seq, b, a});
cmp_ok(scalar @big, '>', 200_000, 'rows were written meanwhile');
is_sequence([ map { big_key($_) } @{ $collector->lines(sink => 'central') } ], \@big,
	'every row is at the collector once, by key and then by number');
is_sequence([ map { big_key($_) } @{ lines_in_files($files) } ], \@big,
	'and in the files, whose names sort in that order');
is_chain(ranges_of('central'), 'its batches follow each other');
is_chain([ map { [ /-(\d{19}(?:\.\d{19})?)-(\d{19}(?:\.\d{19})?)\.ndjson$/ ] } @{ files_below($files) } ],
	'and so do the files');
cmp_ok(scalar @{ $collector->entries(sink => 'central', outcome => 'duplicate') }, '>', 0,
	'batches of the backlog came again and were told by their position');
is(query('SELECT count(*) FROM incsink.intent'), '0', 'no intent is left');

# ------------------------------------------------------------------ filters

create_sink('filtered', [ 'big', q{filter => $$md5(repeat(b, 300)) <> '' AND b = 'k50'$$} ]);
flush_sink('filtered', 'a filter that is slow lets pass what it must');
is_sequence([ map { big_key($_) } @{ $collector->lines(sink => 'filtered') } ],
	[ lines_of(q{SELECT b || ' ' || a FROM big WHERE b = 'k50' ORDER BY ingest_seq, b, a}) ],
	'the rows in the middle of those that it passed over');
is_chain(ranges_of('filtered'), 'batches take in what was passed over');

query(q{CREATE TABLE few (id int PRIMARY KEY, v int); INSERT INTO few SELECT g, g FROM generate_series(1, 1000) g;
	SELECT incsink_attach('few')});
create_sink('nothing', [ 'few', q{filter => 'v < 0'} ]);
flush_sink('nothing', 'a filter that no row passes');
is(position('nothing'), '0 1000 []', 'leaves the watermark behind the backlog');
is(scalar @{ $collector->entries(sink => 'nothing') }, 0, 'and sends nothing');
query('INSERT INTO few VALUES (1001, -1)');
flush_sink('nothing');
is_sequence(arrived('nothing', 'id'), [1001], 'a row that came later passes');
is_chain(ranges_of('nothing'), 'in a batch that begins at the beginning');

# ------------------------------------------------------- two sinks, one from now on

query(q{CREATE TABLE two (id int PRIMARY KEY); INSERT INTO two SELECT generate_series(1, 100); SELECT incsink_attach('two')});
create_sink('now', [ 'two', q{start => 'now'} ], flush_rows => 10);
create_sink('all', 'two', flush_rows => 30);
is(position('now'), '0 0 []', 'a sink that starts now stands behind the backlog');
query('INSERT INTO two SELECT generate_series(-5, 0)');
flush_sink($_) foreach qw(now all);
is_sequence(arrived('now', 'id'), [ -5 .. 0 ], 'it gets what is new');
is_sequence(arrived('all', 'id'), [ 1 .. 100, -5 .. 0 ], 'the other one gets all, what was there first');
is(join(' ', map { $_->{until} } @{ $collector->entries(sink => 'all') }),
	join(' ', (map { sprintf '0.%019d', $_ } 30, 60, 90, 100), 6), 'positions count the rows, then come the numbers');

# ------------------------------------------------------------------- restart

{
	my $url = $collector->url;

	query("SELECT incsink_alter_sink('all', '$url', watermark => 'restart'); SELECT incsink_alter_sink('now', '$url', watermark => 'restart')");
	flush_sink($_) foreach qw(all now);
	my ($first, $second) = map { $_->{epoch} } @{ $collector->entries(sink => 'all') }[ 0, -1 ];
	isnt($first, $second, 'a restart begins an epoch');
	is_sequence(arrived('all', 'id', epoch => $second), [ 1 .. 100, -5 .. 0 ], 'in which the backlog comes again');
	is_sequence(arrived('now', 'id'), [ -5 .. 0 ], 'but not where it was never asked for');

	$collector->control('sink=all skip=2 store hang');
	query("SELECT incsink_alter_sink('all', '$url', watermark => 'restart')");
	wait_until(sub { $collector->held }, 'a batch in the middle is on its way');
	like(position('all'), qr/^0 66 /, 'two are behind it, and the rows with numbers among them');
	query("SELECT incsink_alter_sink('all', '$url', watermark => 'restart')");
	$collector->back_to_normal;
	flush_sink('all');
	is_sequence(arrived('all', 'id', epoch => $collector->entries(sink => 'all')->[-1]{epoch}), [ 1 .. 100, -5 .. 0 ],
		'restarted there it begins anew');
}

# ------------------------------------------------ rows changed before a retry

# Ids are multiples of ten.  The batch of ten rows with those from 110 to 200 fails.
sub fail_batch
{
	my ($table, $rule) = @_;

	query(qq{CREATE TABLE $table (id int PRIMARY KEY, v text);
		INSERT INTO $table SELECT g * 10, 'old' FROM generate_series(1, 100) g;
		SELECT incsink_attach('$table')});
	$collector->control('reset', "sink=$table skip=1 times=always $rule");
	create_sink($table, $table, flush_rows => 10);
	wait_for_query($node, "SELECT failures > 0 FROM incsink.stat_delivery WHERE sink = '$table'", 't',
		"$table: a batch of the backlog is to be sent again");
	return;
}

# It is read again, and then goes through.
sub let_batch_go
{
	my ($table, $name) = @_;
	my $failures = query("SELECT failures FROM incsink.stat_delivery WHERE sink = '$table'");

	wait_for_query($node, "SELECT failures > $failures + 1 FROM incsink.stat_delivery WHERE sink = '$table'", 't');
	$collector->back_to_normal;
	flush_sink($table, $name);
	return;
}

sub id_and_value { return "$_[0]{id} $_[0]{v}"; }

# Everything changes in it, and in front of and behind it.  Returns what must arrive
# after the first batch if the second one is read after that.
sub change_rows
{
	my ($table) = @_;

	query(qq{DELETE FROM $table WHERE id = 120;
		UPDATE $table SET v = 'new' WHERE id IN (50, 130, 310);
		UPDATE $table SET id = 185 WHERE id = 140;
		UPDATE $table SET id = 5000 WHERE id = 150;
		UPDATE $table SET id = 45 WHERE id = 160;
		UPDATE $table SET id = 605 WHERE id = 170;
		DELETE FROM $table WHERE id BETWEEN 320 AND 440;
		INSERT INTO $table VALUES (175, 'number')});
	return ('110 old', '130 new', '180 old', '185 old', '190 old', '200 old',
		(map { "$_ old" } map { $_ * 10 } 21 .. 30), '310 new', (map { "$_ old" } map { $_ * 10 } 45 .. 60),
		'605 old', (map { "$_ old" } map { $_ * 10 } 61 .. 100), '175 number');
}

my @first = map { "$_ old" } map { $_ * 10 } 1 .. 10;
my @second = map { "$_ old" } map { $_ * 10 } 11 .. 20;

{
	fail_batch('kept', 'nostore status=503');
	my @rest = change_rows('kept');
	let_batch_go('kept', 'after rows of its range were changed');
	is_sequence(arrived('kept', \&id_and_value), [ @first, @rest ], 'a batch that was not stored has them as they are now');
	my @attempts = grep { $_->{since} =~ /10$/ } @{ $collector->entries(sink => 'kept') };
	cmp_ok(scalar @attempts, '>=', 4, 'it was sent several times');
	is(scalar(grep { $_->{until} ne '0.0000000000000000020' || $_->{id} ne $attempts[0]{id} } @attempts), 0,
		'under its range and its id');
	is_chain(ranges_of('kept'), 'the others follow');
}
{
	fail_batch('twice', 'store status=503');
	my @rest = change_rows('twice');
	kill9_server($node);
	restart_after_kill($node);
	let_batch_go('twice', 'after a kill, too');
	is_sequence(arrived('twice', \&id_and_value), [ @first, @second, @rest[ 6 .. $#rest ] ],
		'one that was stored counts as it was');
	is_chain(ranges_of('twice'), 'and the others follow');
}
{
	fail_batch('gone', 'nostore status=503');
	query('DELETE FROM gone WHERE id BETWEEN 105 AND 205');
	wait_for_query($node, "SELECT NOT EXISTS (SELECT FROM incsink.intent WHERE until_n = 20)", 't', 'its intent goes');
	$collector->back_to_normal;
	flush_sink('gone', 'after all rows of its range were deleted');
	is_sequence(arrived('gone', 'id'), [ map { $_ * 10 } 1 .. 10, 21 .. 100 ], 'the rest arrives');
	is(scalar @{ $collector->entries(sink => 'gone', outcome => 'stored', since => '0.0000000000000000010') }, 0, 'it is not sent again');
}

# A backlog of which nothing is left before it is read.
query(q{CREATE TABLE emptied (id int PRIMARY KEY); INSERT INTO emptied SELECT generate_series(1, 10);
	SELECT incsink_attach('emptied'); DELETE FROM emptied; INSERT INTO emptied VALUES (5)});
create_sink('emptied', 'emptied');
flush_sink('emptied');
is_sequence(arrived('emptied', 'id'), [5], 'a key that came back has a number and comes once');

# The highest key is deleted while the backlog is read to before it.
{
	query(q{CREATE TABLE tail (id int PRIMARY KEY); INSERT INTO tail SELECT generate_series(1, 20); SELECT incsink_attach('tail')});
	$collector->control('reset', 'sink=tail skip=1 store hang');
	create_sink('tail', 'tail', flush_rows => 5);
	wait_until(sub { $collector->held });
	query('DELETE FROM tail WHERE id > 10');
	$collector->back_to_normal;
	flush_sink('tail', 'nothing comes behind the last batch');
	is(position('tail'), '0 10 []', 'and the backlog is over');
	query('INSERT INTO tail VALUES (21)');
	flush_sink('tail');
	is_sequence(arrived('tail', 'id'), [ 1 .. 10, 21 ], 'numbers go on');
	is_chain(ranges_of('tail'), 'from there');
}

# ------------------------------------------------------------- in its way

{
	query(q{CREATE TABLE keyed (id int NOT NULL, v int); CREATE UNIQUE INDEX keyed_id ON keyed (id);
		INSERT INTO keyed SELECT g, g FROM generate_series(1, 100) g; SELECT incsink_attach('keyed')});
	$collector->control('reset', 'sink=keyed skip=1 store hang');
	create_sink('keyed', 'keyed', flush_rows => 10);
	wait_until(sub { $collector->held });
	query('DROP INDEX keyed_id; INSERT INTO keyed VALUES (101, 101)');
	$collector->back_to_normal;
	wait_for_query($node, q{SELECT state || ' ' || (hint ILIKE '%unique index%') FROM incsink.stat_delivery WHERE sink = 'keyed'},
		'halted true', 'without its index a backlog stands still, and says what to do');
	query('CREATE UNIQUE INDEX keyed_again ON keyed (id)');
	flush_sink('keyed', 'it goes on by itself when there is one again');
	is_sequence(arrived('keyed', 'id'), [ 1 .. 101 ], 'where it stood');

	my $locker = $node->background_psql('postgres', on_error_stop => 1);
	$locker->query_safe('BEGIN; REINDEX INDEX two_pkey');
	my $pid = $locker->query_safe('SELECT pg_backend_pid()');
	query("SELECT incsink_alter_sink('all', '@{[ $collector->url ]}', watermark => 'restart')");
	wait_for_query($node, "SELECT reason LIKE '%$pid%' FROM incsink.stat_delivery WHERE sink = 'all'", 't',
		'a locked index is waited for, and the view says who has it');
	$locker->query_safe('COMMIT');
	$locker->quit;
	flush_sink('all');
}

{
	$collector->control('reset', 'sink=keyless skip=1 store hang');
	create_sink('keyless', 'two', flush_rows => 10);
	wait_until(sub { $collector->held });
	query(q{SELECT incsink_pause_sink('keyless')});
	$collector->back_to_normal;
	wait_until(sub { position('keyless') =~ /^0 26 / }, 'a batch that was on its way counts when the sink is paused');
	query(q{UPDATE incsink.watermark SET key = NULL WHERE n = 26; SELECT incsink_resume_sink('keyless')});
	wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE sink = 'keyless'}, 'halted',
		'a watermark inside of the backlog that has lost its key halts');
	is_sequence(arrived('keyless', 'id'), [ 1 .. 20 ], 'and sends nothing again');
	query(q{SELECT incsink_drop_sink('keyless')});
}

# A key of another type has another order: what is left must not look like nothing.
{
	query(q{CREATE TABLE retyped (id int PRIMARY KEY); INSERT INTO retyped SELECT generate_series(1, 30);
		SELECT incsink_attach('retyped')});
	$collector->control('reset', 'sink=retyped skip=1 store hang');
	create_sink('retyped', 'retyped', flush_rows => 9);
	wait_until(sub { $collector->held });
	query(q{SELECT incsink_pause_sink('retyped')});
	$collector->back_to_normal;
	wait_until(sub { position('retyped') =~ /^0 18 / });
	query(q{ALTER TABLE retyped ALTER id TYPE text; SELECT incsink_resume_sink('retyped')});
	wait_for_query($node, q{SELECT state || ' ' || hint FROM incsink.stat_delivery WHERE sink = 'retyped'},
		"halted Change it back until the backlog is over; or let all rows get numbers and go out once more: CALL incsink_renumber('public.retyped', every_row => true);",
		'a key whose type has changed halts, and says what to do');
	query(q{ALTER TABLE retyped ALTER id TYPE bigint USING id::bigint});
	flush_sink('retyped', 'it goes on when it has the order that it had');
	is_sequence(arrived('retyped', 'id'), [ 1 .. 30 ], 'where it stood');
}

# Attached again: the rows that got numbers stand between those that have none.
{
	query(q{CREATE TABLE sparse (id int PRIMARY KEY, pad text); INSERT INTO sparse VALUES (0), (1000000);
		SELECT incsink_attach('sparse'); INSERT INTO sparse SELECT generate_series(1, 999999);
		SELECT incsink_detach('sparse'); SELECT incsink_attach('sparse');
		CREATE TABLE moves (sink_id bigint, n bigint);
		CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO public.moves VALUES (NEW.sink_id, NEW.n); RETURN NEW; END';
		CREATE TRIGGER note_move AFTER UPDATE OF n ON incsink.watermark FOR EACH ROW EXECUTE FUNCTION note_move()});
	create_sink('sparse', [ 'sparse', q{filter => 'id IN (0, 1000000)'} ]);
	flush_sink('sparse');
	query('DROP TRIGGER note_move ON incsink.watermark');
	is_sequence(arrived('sparse', 'id'), [ 0, 1000000 ], 'rows without a number arrive, however many have one');
	cmp_ok(query(q{SELECT count(DISTINCT n) FROM moves JOIN incsink.sink_def USING (sink_id) WHERE name = 'sparse'}), '>', 1,
		'not in one transaction');
	query(q{SELECT incsink_drop_sink('sparse')});
}

# A snapshot that is older than the index keeps it from being finished.
{
	my $reader = $node->background_psql('postgres', on_error_stop => 1);
	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	query(q{CREATE TABLE large (id int PRIMARY KEY); INSERT INTO large SELECT generate_series(1, 100);
		SET incsink.attach_index_size = 0; SELECT incsink_attach('large'); INSERT INTO large VALUES (0)});
	create_sink('preparing', 'large', flush_rows => 40);
	create_sink('preparing_now', [ 'large', q{start => 'now'} ]);
	query('INSERT INTO large VALUES (-1)');
	wait_for_query($node, q{SELECT n >= 100, key FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = 'preparing'},
		't|[]', 'while the index on the numbers is built the backlog is exported');
	my ($status, $out, $error) = $node->psql('postgres', q{SELECT incsink_flush('preparing', '1500ms')});
	like($error, qr/is being prepared/, 'and what has a number waits');
	is(query(q{SELECT string_agg(DISTINCT state || COALESCE(last_error, ''), '; ') FROM incsink.stat_delivery WHERE sink LIKE 'preparing%'}),
		'preparing', 'which is no error');
	is(query(q{SELECT string_agg(reason, '; ') FROM incsink.delivery_state JOIN incsink.sink_def USING (sink_id) WHERE name LIKE 'preparing%'}),
		'', 'and nothing that the worker would stumble over');
	is_sequence(arrived('preparing', 'id'), [ 1 .. 100 ], 'so it is not there');
	is(scalar @{ $collector->entries(sink => 'preparing_now') }, 0, 'nor at a sink without the backlog');
	$reader->query_safe('COMMIT');
	$reader->quit;
	flush_sink($_) foreach qw(preparing preparing_now);
	is_sequence(arrived('preparing', 'id'), [ 1 .. 100, 0, -1 ], 'when it is there the numbers follow');
	is_sequence(arrived('preparing_now', 'id'), [-1], 'everywhere');
	is_chain(ranges_of('preparing'), 'without a gap');
}

# ------------------------------------------------------------------ rates

sub turns { return query(q{SELECT turns FROM incsink.stat_worker WHERE class = 'forward'}); }

{
	query(qq{CREATE TABLE rate$_ (id int PRIMARY KEY); INSERT INTO rate$_ SELECT generate_series(1, 1000);
		SELECT incsink_attach('rate$_')}) foreach 1, 2;
	my $begin = time;
	my $turns = turns();
	create_sink('paced', 'rate1,rate2', max_rows_per_second => 500);
	flush_sink('paced', 'two tables at the rate of their sink');
	my @batches = @{ $collector->entries(sink => 'paced') };
	is(join(' ', map { $_->{rows} } @batches), '500 500 500 500', 'batches are no larger than what goes in a second');
	isnt($batches[0]{dataset}, $batches[1]{dataset}, 'the tables take turns');
	isnt($batches[1]{dataset}, $batches[2]{dataset}, 'one after the other');
	cmp_ok(time - $begin, '>=', 2.9, '2000 rows at 500 a second take the time of the three batches before the last');
	cmp_ok(turns() - $turns, '<', 50 * (time - $begin) + 50, 'in which the worker sleeps');
	query(q{INSERT INTO rate1 SELECT generate_series(1001, 2000)});
	$begin = time;
	flush_sink('paced');
	cmp_ok(time - $begin, '>=', 0.9, 'new rows keep to it, too');
}

done_testing();
