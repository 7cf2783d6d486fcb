# incsink_verify() says that all is well when it is, and sees each damage that is really
# done to the files, or to the table behind the watermark.
#
# Planted in a private copy of the library, one at a time, each turned this test red: only
# counts compared; ranges between objects taken as well, or the one after the last object
# not looked at; overlapping ranges not noticed; lines compared as a set, not a multiset;
# the end inside a line not noticed; symbolic links followed; every object above the
# watermark taken as in flight; what is in flight asked before the objects are listed;
# backlogs not compared as a whole; the beginning of epochs not recorded, or what was
# exported before it counted; the caller's settings used for the lines.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Export;
use File::Basename qw(basename dirname);
use File::Copy qw(copy);
use File::Path qw(make_path remove_tree);
use IPC::Run ();
use IncsinkTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $export = Export->new('verify', forward => { flush_rows => 10 }, file => { flush_rows => 10 },
	conf => [ 'incsink.poll_interval = 50ms' ]);
my $node = $export->node;
my $collector = $export->collector;
my $dir = $export->dir;
my $json = JSON::PP->new->utf8;

# The rows of incsink_verify(), numbers of positions as they are written; SETUP is run
# before it in the same session.
sub verify
{
	my ($sink, $table, %how) = @_;
	my $rows = defined $how{rows} ? ", $how{rows}" : '';

	return map { $json->decode($_) } split /\n/, $export->query(($how{setup} // '') . qq{;
		SELECT jsonb_build_object('since', since::text, 'until', until::text, 'state', state, 'object', object,
			'table', rows_in_table, 'sink', rows_at_sink, 'missing', rows_missing, 'doubled', rows_doubled,
			'unexpected', rows_unexpected, 'digest', digest, 'detail', detail)
		FROM incsink_verify('$sink', '$table'$rows)});
}

# A row as a few words: state, range, whether it has an object, and what is wrong.
sub words
{
	my ($row) = @_;
	my ($since, $until) = map { defined $_ ? s/^0\.0{0,18}(?=\d)/0./r : '' } @$row{qw(since until)};

	return join ' ', $row->{state}, "($since,$until]", ($row->{object} ? () : 'no object'),
	  map { $row->{$_} ? "$_ $row->{$_}" : () } qw(missing doubled unexpected);
}

sub trouble
{
	return join '; ', map { words($_) } grep { $_->{state} ne 'ok' } verify(@_);
}

# One test: these rows are not ok, all others are.
sub finds
{
	my ($expected, $name, @of) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	@of = ('archive', 't') unless @of;
	my @rows = verify(@of);
	my $passed = is(join('; ', map { words($_) } grep { $_->{state} ne 'ok' } @rows), $expected, $name);

	diag($json->canonical->encode($_)) foreach $passed ? () : @rows;
	return @rows;
}

sub finds_nothing
{
	my ($name, @of) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return finds('', $name, @of);
}

sub row_until
{
	my ($until, @rows) = @_;
	return (grep { $_->{until} eq $until } @rows)[0] // {};
}

sub write_file
{
	my ($path, $content) = @_;

	unlink $path;
	open my $file, '>:raw', $path or die "$path: $!";
	print $file $content;
	close $file or die "$path: $!";
	return;
}

# The file of the batch that ends at UNTIL, a number.
sub file_until
{
	my ($until, $folder) = @_;
	my $digits = sprintf '-%019d.ndjson', $until;
	my ($path) = grep { /\Q$digits\E$/ } @{ files_below($folder // $dir) };
	return $path // die "no file ends at $until";
}

# Its name with another range.
sub renamed
{
	my ($path, $since, $until) = @_;
	my $range = sprintf '-%019d-%019d.ndjson', $since, $until;
	return $path =~ s/-\d{19}-\d{19}\.ndjson$/$range/r;
}

# Does something to the file that ends at 20, or to the files, and undoes it.
my $kept = PostgreSQL::Test::Utils::tempdir('kept');

sub keep_files
{
	remove_tree($kept, { keep_root => 1 });
	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', "$dir/.", $kept);
	return;
}

sub restore_files
{
	remove_tree($dir, { keep_root => 1 });
	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', "$kept/.", $dir);
	return;
}

sub damaged
{
	my ($name, $damage, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $path = file_until(20);

	$damage->($path, slurp_file($path));
	my @rows = finds($expected, $name);
	restore_files();
	return row_until('20', @rows);
}

sub edited
{
	my ($name, $edit, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return damaged($name, sub {
			my ($path, $content) = @_;
			my @lines = split /^/, $content;
			write_file($path, join '', $edit->(@lines));
		}, $expected);
}

# A row with a number of its own, where one was drawn and rolled back: behind the
# watermark, so that no sink exports it.
sub insert_unexported
{
	my ($table, $columns, $values, $seq) = @_;
	$export->query("SET incsink.allow_explicit_seq = on;
		INSERT INTO $table ($columns, ingest_seq) OVERRIDING SYSTEM VALUE VALUES ($values, $seq)");
	return;
}

all_is_well();
damaged_files();
changed_table();
unexported_rows();
in_flight();
forward_sink();
restarted_and_moved();
names_of_objects();
columns_and_filter();
session_and_snapshot();
backlog();
backlog_in_pieces();
partitioned();
under_load();

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
$node->stop('fast');
done_testing();

# -------------------------------------------------------------------- all is well

sub all_is_well
{
	finds_nothing('a delivery that has sent nothing is well');

	# A number that no row has, and five batches.
	$export->query('BEGIN; INSERT INTO t VALUES (0, $$gone$$); ROLLBACK');
	$export->insert(49);
	$export->settle('rows are exported');
	my @rows = finds_nothing('what was exported is well');
	my @objects = grep { $_->{object} } @rows;

	is(join(' ', map { "($_->{since},$_->{until}]" } @objects), '(0,11] (11,21] (21,31] (31,41] (41,50]',
		'it has a row for each file, in their order');
	is_deeply([ map { $_->{object} } @objects ], [ map { s{^\Q$dir\E/}{}r } @{ files_below($dir) } ], 'with its name');
	is_deeply([ map { $_->{digest} } @objects ], [ map { sha256_hex(slurp_file($_)) } @{ files_below($dir) } ],
		'its digest');
	is_deeply([ map { "$_->{table} $_->{sink}" } @objects ], [ ('10 10') x 4, '9 9' ], 'and how many rows it has');

	# The last number drawn ends at 50 and the files at 10, 20 and so on from here on.
	$export->query(q{SELECT incsink_drop_sink('archive'), incsink_drop_sink('central')});
	begin_anew();
	return;
}

# 50 rows from number 1 on, in files that end at 10, 20 ... 50.
sub begin_anew
{
	$export->query(q{
		SELECT incsink_detach('t', drop_column => true);
		TRUNCATE t;
		SELECT incsink_attach('t')});
	$export->{next_id} = 1;
	remove_tree($dir, { keep_root => 1 });
	$export->add_forward(flush_rows => 10);
	$export->add_file(flush_rows => 10);
	$export->insert(50);
	$export->settle;
	finds_nothing('a sink that was made anew is well');
	keep_files();
	return;
}

# ----------------------------------------------------------------- damaged files

sub damaged_files
{
	my $row = damaged('a file that is gone', sub { unlink $_[0] }, 'missing (10,20] no object missing 10');
	is("$row->{table} " . ($row->{sink} // 0), '10 0', 'its rows are counted');

	damaged('an empty file', sub { write_file($_[0], '') }, 'missing (10,20] missing 10');
	damaged('a file cut at the end of a line', sub { write_file($_[0], join '', (split /^/, $_[1])[0 .. 6]) },
		'missing (10,20] missing 3');
	$row = damaged('a file cut inside a line', sub { write_file($_[0], substr $_[1], 0, length($_[1]) - 5) },
		'unreadable (10,20] missing 1');
	ok($row->{detail}, 'which it says');
	edited('a line that is gone', sub { @_[0 .. 3, 5 .. $#_] }, 'missing (10,20] missing 1');
	edited('a line that stands there twice', sub { (@_, $_[4]) }, 'doubled (10,20] doubled 1');
	edited('and one that stands there four times', sub { (@_, ($_[4]) x 3) }, 'doubled (10,20] doubled 3');
	edited('one twice, another not at all', sub { (@_[1 .. $#_], $_[4]) }, 'doubled (10,20] missing 1 doubled 1');
	edited('a line that no row has', sub { (@_, qq[{"id":12,"v":"row 13"}\n]) }, 'changed (10,20] unexpected 1');
	edited('one in the place of another', sub { (@_[1 .. $#_], qq[{"id":12,"v":"row 13"}\n]) },
		'changed (10,20] missing 1 unexpected 1');
	edited('lines in another order', sub { reverse @_ }, 'changed (10,20]');
	damaged('one byte', sub { write_file($_[0], $_[1] =~ s/row 15/row 51/r) }, 'changed (10,20] missing 1 unexpected 1');

	damaged('two files that have changed places', sub {
			my ($path) = @_;
			my $other = file_until(30);

			rename $path, "$path.x" and rename $other, $path and rename "$path.x", $other or die $!;
		}, 'changed (10,20] missing 10 unexpected 10; changed (20,30] missing 10 unexpected 10');

	# What a name says and what is in it.
	foreach my $range ([ 10, 15 ], [ 12, 20 ], [ 15, 25 ], [ 0, 50 ])
	{
		my ($since, $until) = @$range;
		my $path = file_until(20);

		copy($path, renamed($path, $since, $until)) or die $!;
		my @doubled = grep { $_->{state} eq 'doubled' } verify('archive', 't');
		ok(@doubled > 0, "a copy with the range ($since,$until] doubles what another file has");
		is(join(' ', grep { $_->{detail} !~ /-\d{19}-\d{19}\.ndjson/ } @doubled), '', 'which is named');
		restore_files();
	}
	damaged('a copy in the folder of another day', sub {
			my ($path) = @_;
			my $copy = $path =~ s{/dt=\d{4}}{/dt=1999}r;

			make_path(dirname($copy));
			copy($path, $copy) or die $!;
		}, 'doubled (10,20] doubled 10');

	# What cannot be read.
	$row = damaged('a file that may not be read', sub { chmod 0, $_[0] }, 'unreadable (10,20]');
	like($row->{detail}, qr/[Pp]ermission denied/, 'with the reason');
	$row = damaged('a directory in the place of a file', sub { unlink $_[0]; mkdir $_[0] }, 'unreadable (10,20]');
	ok($row->{detail}, 'with the reason');
	$row = damaged('a symbolic link to the same bytes', sub {
			rename $_[0], "$dir/elsewhere" and symlink "$dir/elsewhere", $_[0] or die $!;
		}, 'unreadable (10,20]');
	ok($row->{detail}, 'with the reason');
	damaged('a symbolic link that leads nowhere', sub { unlink $_[0]; symlink "$dir/nowhere", $_[0] }, 'unreadable (10,20]');
	damaged('a named pipe', sub { unlink $_[0]; PostgreSQL::Test::Utils::system_or_bail('mkfifo', $_[0]) }, 'unreadable (10,20]');
	# Nobody knows then which files are there.
	foreach my $damage ([ 'a folder that may not be read', sub { chmod 0, dirname($_[0]) } ],
		[ 'a folder that is a symbolic link', sub {
				my $folder = dirname($_[0]);
				rename $folder, "$dir/elsewhere" and symlink "$dir/elsewhere", $folder or die $!;
			} ])
	{
		my ($name, $do) = @$damage;

		$do->(file_until(20));
		my ($status, $out, $error) = $node->psql('postgres',
			q{SELECT count(*) FILTER (WHERE state <> 'ok') FROM incsink_verify('archive', 't')});
		ok($status != 0 || $out > 0, "$name is not well") or diag($out);
		chmod 0700, $_ foreach glob "$dir/*/*/*";
		restore_files();
	}

	# Above the watermark.
	damaged('a file above the watermark', sub {
			copy($_[0], renamed($_[0], 50, 60)) or die $!;
		}, 'unexpected (50,60]');

	# What is of another sink, table or epoch, or of nobody, is none of its business.
	damaged('files of others', sub {
			my ($path, $content) = @_;

			foreach my $name (
				"$dir/README", "$dir/.incsink-0123.tmp", $path =~ s{/archive-}{/archive2-}r, $path =~ s{/archive-}{/xarchive-}r,
				$path =~ s{-e\d+-[0-9a-f]{8}-}{-e1-00000000-}r, $path =~ s{\.ndjson$}{.ndjson.gz}r, "$path.bak",
				$path =~ s{/public\.t/}{/public.t2/}r, $path =~ s{/public\.t/}{/xpublic.t/}r, $path =~ s{/public\.t/}{/publicxt/}r,
				$path =~ s{/source=default/}{/source=other/}r, $path =~ s{\Q$dir\E/}{$dir/below/}r,
				$path =~ s{-\d{19}\.ndjson$}{-20.ndjson}r, $path =~ s{-\d{19}\.ndjson$}{-abc.ndjson}r)
			{
				make_path(dirname($name));
				write_file($name, $content) unless $name eq $path;
			}
		}, '');

	# All of it.
	damaged('no file at all', sub { remove_tree($dir, { keep_root => 1 }) }, 'missing (0,50] no object missing 50');
	finds_nothing('with its files back it is well');
	return;
}

# ------------------------------------------------------- the table has changed since

sub changed_table
{
	$export->query('BEGIN; INSERT INTO t VALUES (0, $$gone$$); ROLLBACK');		# number 51
	$export->query(q{UPDATE t SET v = 'another' WHERE id = 12});
	my @rows = finds('changed (10,20] missing 1 unexpected 1', 'a row that was updated since');
	is(join(' ', @{ row_until('20', @rows) }{qw(table sink)}), '10 10', 'both have as many rows');
	$export->query(q{UPDATE t SET v = 'row 12' WHERE id = 12});
	finds_nothing('updated back it is well');

	$export->query(q{CREATE TABLE gone AS SELECT * FROM t WHERE id IN (23, 24); DELETE FROM t WHERE id IN (23, 24)});
	@rows = finds('changed (20,30] unexpected 2', 'rows that were deleted since');
	is(join(' ', @{ row_until('30', @rows) }{qw(table sink)}), '8 10', 'are counted');
	insert_unexported('t', 'id, v', q{23, 'row 23'}, 23);
	insert_unexported('t', 'id, v', q{24, 'row 24'}, 24);
	finds_nothing('with them it is well again');

	$export->query(q{BEGIN; DELETE FROM t WHERE id <= 10; DELETE FROM t WHERE id > 40});
	finds_nothing('what is not committed does not count');

	$export->query(q{CREATE TABLE all_rows AS SELECT * FROM t; DELETE FROM t});
	finds(join('; ', map { sprintf 'changed (%d,%d] unexpected 10', 10 * $_, 10 * $_ + 10 } 0 .. 4), 'a table that was emptied');
	$export->query(q{SET incsink.allow_explicit_seq = on;
		INSERT INTO t (id, v, ingest_seq) OVERRIDING SYSTEM VALUE SELECT id, v, ingest_seq FROM all_rows});
	finds_nothing('and filled again');

	# Other columns than there were.
	$export->query(q{ALTER TABLE t ADD COLUMN more int DEFAULT 7});
	finds(join('; ', map { sprintf 'changed (%d,%d] missing 10 unexpected 10', 10 * $_, 10 * $_ + 10 } 0 .. 4), 'a column that was added since');
	$export->query(q{ALTER TABLE t DROP COLUMN more});
	finds_nothing('without it it is well');
	return;
}

# -------------------------------------------------------------- rows that no sink has

sub unexported_rows
{
	my ($first) = $export->insert(9);
	$export->settle;
	finds_nothing('a range with a number that no row has');

	insert_unexported('t', 'id, v', q{0, 'behind'}, 51);
	my @rows = finds('missing (50,60] missing 1', 'a row that came behind the watermark');
	is(join(' ', @{ row_until('60', @rows) }{qw(table sink)}), '10 9', 'both are counted');
	my ($whole) = grep { $_->{state} ne 'ok' } verify('central', 't');
	is("$whole->{state} $whole->{since} $whole->{table} $whole->{sink} $whole->{missing}", 'missing 0 60 59 1',
		'a forward sink counts fewer than there are');
	$export->query('DELETE FROM t WHERE ingest_seq = 51');
	finds_nothing('without it all is well');

	# Where there is no file because there were no rows.
	$export->query('BEGIN; INSERT INTO t SELECT g FROM generate_series(1001, 1005) AS g; ROLLBACK');	# 61 to 65
	wait_for_query($node, q{SELECT bool_and(position = 65) FROM incsink.stat_delivery}, 't', 'numbers without rows are passed');
	@rows = finds_nothing('they are well');
	is(join(' ', map { "($_->{since},$_->{until}]" } grep { !$_->{object} } @rows), '(60,65]', 'without a file');
	insert_unexported('t', 'id, v', q{0, 'behind'}, 63);
	finds('missing (60,65] no object missing 1', 'until a row comes there');
	$export->query('DELETE FROM t WHERE ingest_seq = 63');
	return;
}

# ------------------------------------------------------------------ a batch in flight

sub in_flight
{
	foreach my $point ('file-before-write', 'file-before-rename')
	{
		inject($node, $point, 'wait');
		$export->insert(5);
		wait_reached($node, $point);
		finds_nothing("a batch that is not there yet, at $point");
		disarm($node, $point);
		$export->settle;
	}

	inject($node, 'file-after-rename', 'wait');
	$export->insert(5);
	wait_reached($node, 'file-after-rename', 'a batch is stored and not acknowledged');
	my $intent = $export->intent('archive');
	my $flying = "in flight ($intent->{since},$intent->{until}]";
	my ($row) = grep { $_->{state} ne 'ok' } finds($flying, 'it is shown');
	is($row->{object}, $intent->{key}, 'under its name');

	# Its neighbours above the watermark are none of it.
	my $path = file_until($intent->{until});
	my $copy = renamed($path, $intent->{until}, $intent->{until} + 5);
	copy($path, $copy) or die $!;
	my @rows = grep { $_->{state} ne 'ok' } verify('archive', 't');
	is(join(' ', map { $_->{state} } @rows), 'in flight unexpected', 'a file behind it is not');
	unlink $copy;
	$path = file_until(20);
	my $content = slurp_file($path);
	unlink $path;
	finds("missing (10,20] no object missing 10; $flying", 'and what is below it is looked at');
	write_file($path, $content);

	# A worker that was killed here.
	kill9_server($node);
	$export->start_held;
	finds($flying, 'so it is after a crash');
	$export->go;
	$export->settle;
	finds_nothing('acknowledged it is well');
	return;
}

# ---------------------------------------------------------------------- forward sinks

sub forward_sink
{
	my @rows = finds_nothing('a forward sink is well', 'central', 't', rows => 10);
	my $whole = pop @rows;
	my $count = $export->query('SELECT count(*) FROM t');
	my $total = 0;

	is("$whole->{since} $whole->{until}", '0 ' . $export->query(q{SELECT position FROM incsink.stat_delivery WHERE sink = 'central'}),
		'its last row is about all of it');
	is("$whole->{table} $whole->{sink}", "$count $count", 'and has both counts');
	$total += $_->{table} foreach @rows;
	is($total, $count, 'the ranges have them all');
	is((sort { $b <=> $a } map { $_->{table} } @rows)[0], 10, 'of no more rows than asked for');
	is(join(' ', map { $_->{since} } @rows), join(' ', 0, map { $_->{until} } @rows[0 .. $#rows - 1]), 'one after the other');
	is((grep { defined $_->{sink} || $_->{object} } @rows), 0, 'what the receiver has of each is not known');

	# A receiver's body is of such a range: (0,10].
	my ($stored) = @{ $collector->entries(outcome => 'stored', epoch => epoch('central')) };
	is($rows[0]{until}, $stored->{until}, 'a range of as many rows as a batch');
	is($rows[0]{digest}, sha256_hex($collector->body($stored)), 'has its digest');
	is(scalar(verify('central', 't')), 2, 'in one range, if it is not asked for others');

	# Deleted since: fewer than were exported.
	$export->query(q{CREATE TABLE kept AS SELECT * FROM t WHERE id <= 3; DELETE FROM t WHERE id <= 3});
	@rows = finds_nothing('rows that were deleted are no fault', 'central', 't');
	like($rows[-1]{detail}, qr/\b3\b/, 'it says how many');
	$export->query(q{SET incsink.allow_explicit_seq = on;
		INSERT INTO t (id, v, ingest_seq) OVERRIDING SYSTEM VALUE SELECT id, v, ingest_seq FROM kept; DROP TABLE kept});
	finds_nothing('with them', 'central', 't');

	# What waits is none of it.
	$collector->control('nostore status=503 times=always');
	$export->insert(3);
	wait_for_query($node, q{SELECT failures > 0 FROM incsink.stat_delivery WHERE sink = 'central'}, 't', 'rows wait');
	@rows = finds_nothing('rows that wait are not looked for', 'central', 't');
	is("$rows[-1]{table} $rows[-1]{sink}", "$count $count", 'nor counted');
	$collector->back_to_normal;
	$export->settle;
	return;
}

sub epoch
{
	my ($sink) = @_;
	return $export->query("SELECT epoch FROM incsink.stat_delivery WHERE sink = '$sink'");
}

# ------------------------------------------------------- another epoch, another place

sub restarted_and_moved
{
	my $count = $export->query('SELECT count(*) FROM t');
	my $files = @{ files_below($dir) };

	$export->query("SELECT incsink_alter_sink('archive', url => 'file://$dir', watermark => 'restart');
		SELECT incsink_alter_sink('central', url => '@{[ $collector->url('/again') ]}', watermark => 'restart')");
	$export->settle;
	my @rows = finds_nothing('restarted, the files of before do not count');
	cmp_ok(@{ files_below($dir) }, '>', $files, 'although they are there');
	my $total = 0;
	$total += $_->{sink} foreach grep { $_->{object} } @rows;
	is($total, $count, 'the new ones have all rows');
	@rows = finds_nothing('a forward sink that was restarted', 'central', 't');
	is("$rows[-1]{table} $rows[-1]{sink}", "$count $count", 'counts those of its epoch');
	my $epoch = epoch('archive');
	my ($path) = grep { /-e\Q$epoch\E-/ } @{ files_below($dir) };
	unlink $path;
	like(trouble('archive', 't'), qr/^missing \(0,\d+\] no object missing \d+$/, 'a file of the old epoch does not stand in for one of the new');

	# To an empty place with "keep", and to one that has the files.
	$export->query("SELECT incsink_alter_sink('archive', url => 'file://$dir', watermark => 'restart')");
	$export->settle;
	my $position = $export->query(q{SELECT position FROM incsink.stat_delivery WHERE sink = 'archive'});
	my $empty = PostgreSQL::Test::Utils::tempdir('empty');
	my $copy = PostgreSQL::Test::Utils::tempdir('copy');
	PostgreSQL::Test::Utils::system_or_bail('cp', '-a', "$dir/.", $copy);
	$export->query("SELECT incsink_alter_sink('archive', url => 'file://$empty', watermark => 'keep')");
	finds("missing (0,$position] no object missing $count", 'sent to an empty place, the rows of before are missing there');
	$export->query("SELECT incsink_alter_sink('archive', url => 'file://$copy', watermark => 'keep')");
	finds_nothing('a place that has them is well');
	$export->insert(12);
	$export->settle;
	finds_nothing('with those that come there');
	$count += 12;

	# An epoch that begins in the middle.
	$export->query('SELECT incsink_adopt_database()');
	$position = $export->query(q{SELECT position FROM incsink.stat_delivery WHERE sink = 'archive'});
	finds_nothing('a new epoch that has no batch yet is well');
	$export->insert(12);
	$export->settle;
	@rows = finds_nothing('and with its first ones');
	is($rows[0]{since}, $position, 'it begins where the last one ended');
	@rows = finds_nothing('at a forward sink, too', 'central', 't');
	is("$rows[-1]{since} $rows[-1]{table} $rows[-1]{sink}", "$position 12 12", 'with its counts');
	unlink grep { /-e\Q@{[ epoch('archive') ]}\E-/ } @{ files_below($copy) };
	my $end = $export->query(q{SELECT position FROM incsink.stat_delivery WHERE sink = 'archive'});
	finds("missing ($position,$end] no object missing 12", 'where no file is left');

	# Back for what follows.
	$export->query(q{SELECT incsink_drop_sink('archive'), incsink_drop_sink('central'); DROP TABLE IF EXISTS gone, all_rows});
	begin_anew();
	return;
}

# -------------------------------------------------------------------- object names

sub names_of_objects
{
	my $long = 'Ü' x 31;		# 62 bytes, more than 160 encoded

	$export->query(qq{CREATE SCHEMA "odd.%!"; CREATE TABLE "odd.%!"."$long" (id int);
		SELECT incsink_attach('"odd.%!"."$long"', dataset => '../$long/*.$long', source => '[^/]')});
	my $table = qq{"odd.%!"."$long"};
	foreach my $key ('{sink}/{dataset}/{source}/{epoch}/{since}/{until}',
		'{instance}/{dataset}/{source}/{destination}/{date}/{hour}/{sink}={epoch}={since}={until}.{ext}',
		'{until}/{since}/{epoch}/{sink}/{source}/{dataset}',
		'a.*+b(c)[d]^$|?%_/{{x}}/{dataset}@{source}/{date}/{sink}/{until}--{since}--{epoch}')
	{
		my $folder = PostgreSQL::Test::Utils::tempdir('names');

		# Two sinks whose names begin alike, in one folder.
		$export->query(qq{SELECT incsink_create_sink(name, 'file://$folder', options =>
				'{"flush_rows": 4, "flush_interval": 0, "key": "$key"}'), incsink_add_table(name, '$table')
			FROM unnest('{s[.],s[.].}'::text[]) AS name});
		$export->query(qq{INSERT INTO $table SELECT generate_series(1, 10)});
		$export->settle;
		my @rows = grep { $_->{object} } finds_nothing("objects named $key", 's[.]', $table);
		cmp_ok(scalar @rows, '>=', 3, 'are found');
		is((grep { !-f "$folder/$_->{object}" } @rows), 0, 'under their names');
		unlink "$folder/$rows[1]{object}" or die $!;
		is(trouble('s[.]', $table), "missing ($rows[1]{since},$rows[1]{until}] no object missing $rows[1]{table}",
			'and missed');
		finds_nothing('and those of another sink are its own', 's[.].', $table);
		$export->query(q{SELECT incsink_drop_sink('s[.]'), incsink_drop_sink('s[.].')});
	}
	$export->query(qq{SELECT incsink_detach('$table'); DROP TABLE $table});
	return;
}

# ------------------------------------------------------------- columns and filter

sub columns_and_filter
{
	my $folder = PostgreSQL::Test::Utils::tempdir('filtered');

	$export->query(qq{
		CREATE TABLE f (id int, kept boolean, note text);
		SELECT incsink_attach('f');
		SELECT incsink_create_sink('filtered', 'file://$folder', options => '{"flush_rows": 5, "flush_interval": 0}');
		SELECT incsink_create_sink('filtered_too', '@{[ $collector->url('/filtered') ]}');
		SELECT incsink_add_table('filtered', 'f', columns => '{id, kept}', filter => 'kept');
		SELECT incsink_add_table('filtered_too', 'f', columns => '{id, kept}', filter => 'kept');
		INSERT INTO f SELECT i, i % 2 = 0, 'note' FROM generate_series(1, 20) AS i});
	$export->settle;
	is(join(' ', map { "$_->{table}/$_->{sink}" } grep { $_->{object} } finds_nothing('rows that the filter lets through', 'filtered', 'f')),
		'5/5 5/5', 'are counted, and no others');
	my ($whole) = (finds_nothing('also at a forward sink', 'filtered_too', 'f'))[-1];
	is("$whole->{table} $whole->{sink}", '10 10', 'of which as many were exported');

	$export->query(q{UPDATE f SET note = 'another'; DELETE FROM f WHERE id = 3});
	finds_nothing('what is not exported may change', 'filtered', 'f');
	$export->query(q{UPDATE f SET kept = true WHERE id = 5});
	finds('missing (0,10] missing 1', 'a row that the filter lets through since', 'filtered', 'f');
	$export->query(q{UPDATE f SET kept = false WHERE id IN (5, 12)});
	finds('changed (10,20] unexpected 1', 'one that it does not let through any more', 'filtered', 'f');
	$export->query(q{UPDATE f SET kept = true WHERE id = 12});

	# Nothing passes the filter for a while.
	$export->query(q{INSERT INTO f SELECT i, false FROM generate_series(21, 30) AS i});
	$export->settle;
	$export->query(q{INSERT INTO f SELECT i, i > 39 FROM generate_series(31, 40) AS i});
	$export->settle;
	my @rows = finds_nothing('nor is there an object for rows that do not pass it', 'filtered', 'f');
	$export->query(q{SELECT incsink_drop_sink('filtered'), incsink_drop_sink('filtered_too'); SELECT incsink_detach('f'); DROP TABLE f});
	return;
}

# --------------------------------------------- settings, isolation, and other sessions

sub session_and_snapshot
{
	my $folder = PostgreSQL::Test::Utils::tempdir('session');

	$export->query(qq{
		CREATE TABLE s (at timestamptz, day date, span interval, b bytea, f float8, money money, x text);
		SELECT incsink_attach('s');
		SELECT incsink_create_sink('session', 'file://$folder', tables => '{s}', options => '{"flush_interval": 0}');
		INSERT INTO s VALUES ('2024-05-01 12:00 UTC', '2024-05-01', '1 mon 2 days 3 h', '\\x00ff', 0.1 + 0.2, 12.5, 'ü\\')});
	$export->settle;
	is(trouble('session', 's', setup => q{SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601';
		SET bytea_output = 'escape'; SET extra_float_digits = -5; SET search_path = pg_temp; SET standard_conforming_strings = off;
		SET enable_indexscan = off; SET enable_seqscan = off; SET work_mem = '64kB'; SET search_path = public}), '',
		'the settings of a session change nothing');
	is(trouble('session', 's', setup => 'SET default_transaction_read_only = on'), '', 'it changes nothing');

	# A transaction that began before the rows came.
	my $old = $node->background_psql('postgres');
	my (undef, undef, $error) = $node->psql('postgres',
		q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM incsink_verify('session', 's')});
	like($error, qr/needs isolation level READ COMMITTED/, 'a transaction whose snapshot would be old is refused');
	$old->query_safe(q{BEGIN; SELECT count(*) FROM s; DECLARE c CURSOR FOR SELECT state FROM incsink_verify('session', 's') WHERE state <> 'ok'});
	$export->query(q{INSERT INTO s (x) VALUES ('later still')});
	$export->settle;
	is($old->query('FETCH ALL FROM c'), '', 'a cursor whose snapshot is old sees no damage that is not there');
	$old->query_safe('COMMIT');

	# Writers and the worker go on while its transaction is open.
	$old->query_safe(q{BEGIN; SELECT count(*) FROM incsink_verify('session', 's')});
	$export->query(q{INSERT INTO s (x) VALUES ('meanwhile')});
	ok($export->settle, 'rows are exported while a transaction that has verified is open');
	$old->query_safe('COMMIT');
	$old->quit;

	# A transaction that has inserted and is open, with a low number.
	my $open = $node->background_psql('postgres');
	$open->query_safe(q{BEGIN; INSERT INTO s (x) VALUES ('open')});
	$export->query(q{INSERT INTO s (x) VALUES ('behind it')});
	finds_nothing('rows that are held back are not looked for', 'session', 's');
	$open->query_safe('COMMIT');
	$open->quit;
	$export->settle;
	finds_nothing('until they were exported', 'session', 's');
	$export->query(q{SELECT incsink_drop_sink('session'); SELECT incsink_detach('s'); DROP TABLE s});
	return;
}

# ------------------------------------------------------------------------- backlogs

# A table with a backlog, a file sink "old" and a forward sink "old_too" of batches of 10
# rows.
sub make_backlog
{
	my ($rows) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir('backlog');

	$export->query(qq{
		CREATE TABLE b (id int PRIMARY KEY, v text);
		INSERT INTO b SELECT i, 'old ' || i FROM generate_series(2, 2 * $rows, 2) AS i;
		SELECT incsink_attach('b');
		SELECT incsink_create_sink('old', 'file://$folder', tables => '{b}', options => '{"flush_rows": 10, "flush_interval": 0}');
		SELECT incsink_create_sink('old_too', '@{[ $collector->url('/old') ]}', tables => '{b}', options => '{"flush_rows": 10}')});
	return $folder;
}

sub drop_backlog
{
	$export->query(q{SELECT incsink_drop_sink('old'), incsink_drop_sink('old_too'); SELECT incsink_detach('b'); DROP TABLE b});
	return;
}

# The file whose range in the backlog ends at UNTIL.
sub backlog_file
{
	my ($folder, $until) = @_;
	my $digits = sprintf '-%019d.%019d.ndjson', 0, $until;
	my ($path) = grep { /\Q$digits\E$/ } @{ files_below($folder) };
	return $path // die "no file ends at $until";
}

sub backlog
{
	my $folder = make_backlog(25);
	my $whole = '(0,0.25]';

	$export->settle;
	my @rows = finds_nothing('a backlog', 'old', 'b');
	is(join(' ', map { words($_) =~ /(\(.*?\])/ } grep { $_->{object} } @rows), '(0,0.10] (0.10,0.20] (0.20,0.25]', 'has a row a file');
	is(join(' ', map { $_->{sink} } grep { $_->{object} } @rows), '10 10 5', 'with its count');
	my ($all) = grep { words($_) eq "ok $whole no object" } @rows;
	is(join(' ', @$all{qw(table sink)}), '25 25', 'and a row for all of it');
	finds_nothing('at a forward sink', 'old_too', 'b');

	$export->query(q{INSERT INTO b SELECT i, 'new ' || i FROM generate_series(1, 21, 2) AS i});
	$export->settle;
	finds_nothing('with new rows between its keys', 'old', 'b');
	finds_nothing('also at a forward sink', 'old_too', 'b');

	my $path = backlog_file($folder, 20);
	my $content = slurp_file($path);
	my @lines = split /^/, $content;
	write_file($path, join '', @lines[1 .. $#lines]);
	finds("missing $whole no object missing 1", 'a line that is gone', 'old', 'b');
	write_file($path, join '', @lines, $lines[2]);
	finds("doubled $whole no object doubled 1", 'one that stands there twice', 'old', 'b');
	write_file($path, join '', @lines[1 .. $#lines], $lines[2]);
	finds("doubled $whole no object missing 1 doubled 1", 'one twice, another not at all', 'old', 'b');
	write_file($path, $content . qq[{"id":0,"v":"none"}\n]);
	finds("changed $whole no object unexpected 1", 'one that no row has', 'old', 'b');
	write_file($path, substr $content, 0, length($content) - 3);
	like(trouble('old', 'b'), qr/^unreadable \(0\.10,0\.20\]/, 'a file that ends inside a line');

	# A line in another file of the backlog than it was: all are there.
	write_file($path, $content);
	unlink $path;
	like(trouble('old', 'b'), qr/missing \(0\.10,0\.20\] no object.*missing \Q$whole\E no object missing 10$/s, 'a file that is gone');
	my $last = backlog_file($folder, 25);
	my $last_content = slurp_file($last);
	write_file($path, $content);
	unlink $last;
	like(trouble('old', 'b'), qr/missing .*missing \Q$whole\E no object missing 5$/s, 'also the last one');
	write_file($last, $last_content);
	my $copy = $path =~ s/(\d{19})\.ndjson$/sprintf '%019d.ndjson', 15/er;
	write_file($copy, join '', @lines[0 .. 4]);
	like(trouble('old', 'b'), qr/doubled \(0\.10,0\.(15|20)\]/, 'one that overlaps another');
	unlink $copy;
	finds_nothing('put right', 'old', 'b');

	$export->query(q{CREATE TABLE b_gone AS SELECT * FROM b WHERE id = 14; DELETE FROM b WHERE id = 14});
	finds("changed $whole no object unexpected 1", 'a row that was deleted since', 'old', 'b');
	finds_nothing('which is no fault at a forward sink', 'old_too', 'b');
	$export->query(q{UPDATE b SET v = 'another' WHERE id = 4});
	finds("changed $whole no object missing 1 unexpected 2", 'and one that was updated', 'old', 'b');
	$export->query(q{SET incsink.allow_explicit_seq = on; UPDATE b SET v = 'old 4' WHERE id = 4;
		INSERT INTO b (id, v, ingest_seq) OVERRIDING SYSTEM VALUE SELECT id, v, ingest_seq FROM b_gone; DROP TABLE b_gone});
	finds_nothing('as they were', 'old', 'b');
	unlink file_until(11, $folder);
	like(trouble('old', 'b'), qr/^missing \(10,11\] no object missing 1$/, 'behind it numbers count');
	drop_backlog();
	return;
}

# In the middle of a backlog.
sub backlog_in_pieces
{
	inject($node, 'file-after-rename', 'wait');
	my $folder = make_backlog(45);
	wait_reached($node, 'file-after-rename', 'the first batch of a backlog is stored');
	finds('in flight (0,0.10]', 'and in flight', 'old', 'b');
	$export->query(q{SELECT incsink_pause_sink('old')});
	disarm($node, 'file-after-rename');
	wait_for_query($node, q{SELECT backlog_rows_done = 10 AND in_flight_batch IS NULL FROM incsink.stat_delivery WHERE sink = 'old'}, 't',
		'a sink is paused inside of it');
	finds_nothing('as far as it is exported it is well', 'old', 'b');
	my $path = backlog_file($folder, 10);
	my $content = slurp_file($path);
	write_file($path, join '', (split /^/, $content)[0 .. 8]);
	finds('missing (0,0.10] no object missing 1', 'a line that is gone', 'old', 'b');
	write_file($path, $content);
	$export->query(q{INSERT INTO b VALUES (1, 'new'), (99, 'new')});
	finds_nothing('new rows there are none of it', 'old', 'b');
	$export->query(q{DELETE FROM b WHERE id IN (4, 60)});
	finds('changed (0,0.10] no object unexpected 1', 'a row that was deleted, among those that were exported', 'old', 'b');

	# A new epoch that begins there: the files of the old one, where rows are gone, do not
	# count for it, nor do those rows.
	$export->query('SELECT incsink_adopt_database()');
	$export->query(q{SELECT incsink_resume_sink('old')});
	$export->settle;
	my @rows = finds_nothing('an epoch that begins inside of a backlog is well', 'old', 'b');
	is(join(' ', map { $_->{since} =~ /[1-9]/ ? 'inside' : 'at the beginning' } @rows[0 .. 0]), 'inside', 'from where it began');
	finds_nothing('also at a forward sink', 'old_too', 'b');
	$path = backlog_file($folder, 30);
	write_file($path, join '', (split /^/, slurp_file($path))[1 .. 9]);
	like(trouble('old', 'b'), qr/^missing \(0\.10,0\.44\] no object missing 1$/, 'a line that is gone from the rest of it');
	drop_backlog();

	# Given up for numbers while a batch is in flight.
	inject($node, 'file-after-rename', 'wait');
	$folder = make_backlog(45);
	wait_reached($node, 'file-after-rename');
	$export->query(q{CALL incsink_renumber('b', every_row => true)});
	disarm($node, 'file-after-rename');
	$export->settle('a backlog becomes numbers');
	finds_nothing('what was exported under numbers is well', 'old', 'b');
	finds_nothing('at a forward sink', 'old_too', 'b');
	drop_backlog();
	return;
}

# ---------------------------------------------------------------- partitioned tables

sub partitioned
{
	my $folder = PostgreSQL::Test::Utils::tempdir('tree');
	my $url = $collector->url('/tree');

	$export->query(qq{
		CREATE TABLE p (id int, v text) PARTITION BY RANGE (id);
		CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (100);
		CREATE TABLE p_2 (v text, id int);
		ALTER TABLE p ATTACH PARTITION p_2 FOR VALUES FROM (100) TO (200);
		SELECT incsink_attach('p');
		SELECT incsink_create_sink('tree', 'file://$folder', tables => '{p}', options => '{"flush_rows": 10, "flush_interval": 0}');
		SELECT incsink_create_sink('tree_too', '$url', tables => '{p}');
		INSERT INTO p SELECT i * 101 % 200, 'row ' || i FROM generate_series(1, 40) AS i});
	$export->settle;
	finds_nothing('a partitioned table', 'tree', 'p');
	finds_nothing('at a forward sink', 'tree_too', 'p');
	$export->query('ALTER TABLE p DETACH PARTITION p_1');
	finds_nothing('with a leaf that was detached', 'tree', 'p');
	$export->query(q{CREATE TABLE p_3 PARTITION OF p FOR VALUES FROM (200) TO (300); INSERT INTO p SELECT 200 + i FROM generate_series(1, 5) AS i});
	$export->settle;
	finds_nothing('and one that is new', 'tree', 'p');
	finds_nothing('also at a forward sink', 'tree_too', 'p');

	# A leaf may hold a number that another one has.
	$export->query(q{SET incsink.allow_explicit_seq = on; INSERT INTO p (id, v, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (150, 'behind', 15)});
	finds('missing (10,20] missing 1', 'a row with a number that was passed', 'tree', 'p');
	my ($whole) = grep { $_->{state} ne 'ok' } verify('tree_too', 'p');
	is("$whole->{state} $whole->{missing}", 'missing 1', 'at a forward sink, too');
	$export->query(q{DELETE FROM p WHERE v = 'behind'});

	# Its rows are gone with it.
	$export->query('DROP TABLE p_1');
	my $trouble = trouble('tree', 'p');
	is(join(' ', $trouble =~ /(missing)/g), '', 'a leaf that was dropped leaves nothing missing');
	my $unexpected = 0;
	$unexpected += $_ foreach $trouble =~ /^changed \(\S+\] unexpected (\d+)/g, $trouble =~ /; changed \(\S+\] unexpected (\d+)/g;
	is($unexpected, 20, 'but its rows in the files');
	finds_nothing('and is no fault of a forward sink', 'tree_too', 'p');
	$export->query(q{SELECT incsink_drop_sink('tree'), incsink_drop_sink('tree_too'); SELECT incsink_detach('p'); DROP TABLE p});
	return;
}

# ------------------------------------------------------------------------- under load

# Writers, a failing receiver and the worker go on; nothing but "ok" and "in flight" may
# ever be seen.
sub under_load
{
	my $rounds = 20;
	my ($out, $error) = ('', '');
	my %seen;

	$export->query(q{CREATE TABLE stop (now boolean);
		SELECT incsink_alter_sink(name, options => '{"flush_rows": 100}') FROM unnest('{archive,central}'::text[]) AS name});
	my @writers = map {
		IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', qq{
			DO \$\$ BEGIN
				FOR i IN 1 .. 1000000 LOOP
					INSERT INTO t SELECT $_ * 10000000 + i * 10 + g, 'row' FROM generate_series(1, (random() * 8)::int) AS g;
					IF random() < 0.2 THEN ROLLBACK; ELSE COMMIT; END IF;
					EXIT WHEN EXISTS (SELECT FROM stop);
					PERFORM pg_sleep(0.02 * random());
				END LOOP;
			END \$\$} ], '>', \$out, '2>', \$error)
	} 1 .. 3;
	$collector->control('store close skip=5 times=3', 'skip=20 times=5 store delay=50');
	wait_until(sub { $export->query('SELECT count(*) > 100 FROM t') eq 't' });
	foreach my $round (1 .. $rounds)
	{
		foreach my $sink ('archive', 'central')
		{
			my $rows = $export->query("SELECT state, count(*) FROM incsink_verify('$sink', 't') GROUP BY state");
			my %states = map { split /\|/, $_ } split /\n/, $rows;

			$seen{$_} += $states{$_} foreach keys %states;
			delete @states{'ok', 'in flight'};
			next unless %states;
			diag("round $round, $sink: $rows");
			diag($export->query("SELECT * FROM incsink_verify('$sink', 't') WHERE state <> 'ok'"));
		}
	}
	$export->query('INSERT INTO stop VALUES (true)');
	ok($_->finish, 'a writer was not disturbed') or diag($error) foreach @writers;
	$collector->back_to_normal;
	my %bad = %seen;
	delete @bad{'ok', 'in flight'};
	is(join(' ', sort keys %bad), '', "in $rounds rounds under load nothing but ok and in flight was seen");
	cmp_ok($seen{ok}, '>', 4 * $rounds, 'of many rows');
	note(join ', ', map { "$seen{$_} $_" } sort keys %seen);
	$export->settle('all is exported');
	finds_nothing('at the end files are well');
	finds_nothing('and the collector', 'central', 't');
	is_exported($node, 'SELECT id FROM t', rows_in_files($dir, 'id'), 'which is so: each row is in a file once');
	is_exported($node, 'SELECT id FROM t WHERE id > 50', rows_at_collector($collector, 'id', epoch => epoch('central')), 'and at the collector');
	return;
}
