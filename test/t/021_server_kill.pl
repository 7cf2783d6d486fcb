# The whole server is killed in the worst moments: what was in flight comes again
# under its id, with its range, and counts once.

use strict;
use warnings;

use Digest::SHA ();
use Export;
use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $export = Export->new('worst', forward => {}, file => {});
my $node = $export->node;
my $collector = $export->collector;

# Both workers stand at the point when the server is killed, those of the file
# system apart.  "from" leads to points that are passed in every turn.
my @moments = (
	[ 'the commit of the intent', at => 'before-commit', from => 'before-intent' ],
	[ 'its sending, after the commit', at => 'after-commit', from => 'before-intent' ],
	[ 'its sending', at => 'before-send' ],
	[ 'the answer of a collector that has stored it', held => 1 ],
	[ 'the acknowledgement', at => 'before-acknowledge' ],
	[ 'the commit of the acknowledgement', at => 'before-commit', from => 'before-acknowledge' ],
	[ 'the next step, after the commit of the acknowledgement', at => 'after-commit', from => 'before-acknowledge' ],
	[ 'the rename of a file', file => 'file-before-rename' ],
	[ 'the fsync of the directory, after the rename', file => 'file-after-rename' ],
	[ 'its acknowledgement, after the fsync of the directory', file => 'file-after-dir-fsync' ],
);

# What happens to the table while nobody exports.
my @meanwhile = (
	[ 'new rows before the retry', sub { } ],
	[ 'an UPDATE and a DELETE in the range', \&change_rows, changed => 1 ],
	[ 'a column added, and the collector killed too', \&add_column, changed => 1, collector_killed => 1 ],
);

my %stored_as = (forward => {}, file => {});	# id => key, of rows changed after they were stored
my $columns = 0;

foreach my $moment (@moments)
{
	kill_before($moment, $_) foreach @meanwhile;
}
is($export->query('SELECT count(*) FROM incsink.intent'), '0', 'no intent is left');

# A range whose rows are all gone is not sent, and what was begun of it goes too.
foreach my $point ('before-send', 'file-before-rename')
{
	my ($first, $last) = reach([ $point, $point =~ /^file/ ? (file => $point) : (at => $point) ]);

	kill9_server($node);
	$export->start_held;
	remember_rows($first, $last);
	$export->query("DELETE FROM t WHERE id BETWEEN $first AND $last");
	$export->{emptied} = 1;
	$export->insert(1);
	$export->go;
	$export->settle;
	is(faults(), '', "killed before $point, a range that has no row left is not exported");
}

done_testing();

sub kill_before
{
	my ($moment, $meanwhile) = @_;
	my ($before, %how) = @$moment;
	my ($change_name, $change, %what) = @$meanwhile;
	my $name = "killed before $before, with $change_name";
	my $requests = @{ $collector->ledger };
	my ($first, $last) = reach($moment);
	my %intent = map { $_ => $export->intent($_) } qw(central archive);
	my $sent_before = @{ $collector->ledger } - $requests;

	# While a file is held up the collector's batch goes its own way.
	delete $intent{central} if $how{file};

	kill9_server($node);
	$collector->kill if $what{collector_killed};
	$export->start_held;
	$collector->back_to_normal unless $what{collector_killed};
	my ($changed) = $change->($first, $last);
	$export->insert(2);
	$export->go;
	if ($what{collector_killed})
	{
		wait_for_query($node, "SELECT failures > 0 FROM incsink.stat_delivery WHERE sink = 'central'");
		$collector->start;
	}
	$export->settle;

	is(faults(), '', "$name: each row is stored once");
	if (!$how{file} && !$how{held})
	{
		is(defined $intent{central} ? 'yes' : 'no', expects_intent($moment), "$name: the intent is as it must be");
		is($sent_before, $how{from} && $how{from} eq 'before-intent' || $how{at} eq 'before-send' ? 0 : 1,
			"$name: nothing is sent before its intent is committed");
	}
	check_retry($name, $intent{central}, $sent_before + 1, !$what{changed}) if $intent{central};
	check_file($name, $intent{archive}, !$what{changed}) if $intent{archive};
	return;
}

# Five rows on their way, up to the moment.
sub reach
{
	my ($moment) = @_;
	my (undef, %how) = @$moment;
	my $point = $how{from} // $how{at} // $how{file};
	my @ids;

	if ($how{held})
	{
		$collector->control('store hang');
		@ids = $export->insert(5);
		wait_until(sub { $collector->held });
		return @ids;
	}
	inject_file($node, $point, 'wait');
	@ids = $export->insert(5);
	wait_reached($node, $point);
	return @ids if $how{file};
	wait_until(sub { $export->worker_stands('forward') && $export->worker_stands('blob') });
	if ($how{from})
	{
		inject_file($node, $how{at}, 'wait');
		disarm($node, $how{from});
		wait_until(sub { is_reached($node, $how{at}) && !is_reached($node, $how{from}) });
		wait_until(sub { $export->worker_stands('forward') && $export->worker_stands('blob') });
	}
	return @ids;
}

# Is an intent in the catalog at that moment?
sub expects_intent
{
	my (undef, %how) = @{ $_[0] };

	return 'no' if $how{at} eq 'before-commit' && $how{from} eq 'before-intent';
	return 'no' if $how{at} eq 'after-commit' && $how{from} eq 'before-acknowledge';
	return 'yes';
}

# A batch in flight at the kill was sent again: same id, same range, and the same
# bytes unless something in the range was changed.  Whatever came first counts.
sub check_retry
{
	my ($name, $intent, $at_least, $same_bytes) = @_;
	my @attempts = @{ $collector->entries(id => $intent->{batch}) };
	my @stored = grep { $_->{outcome} eq 'stored' } @attempts;

	cmp_ok(scalar @attempts, '>=', $at_least, "$name: the batch comes (again) under the id of its intent");
	is(scalar @stored, 1, "$name: and is stored once");
	is(join(' ', map { "$_->{since}-$_->{until}" } @attempts),
		join(' ', map { "$intent->{since}-$intent->{until}" } @attempts),
		"$name: every attempt has the range of the intent");
	return unless $same_bytes;
	is(join(' ', map { $_->{sha256} } @attempts), join(' ', map { $intent->{digest} } @attempts),
		"$name: and its bytes");
	return;
}

sub check_file
{
	my ($name, $intent, $same_bytes) = @_;
	my $path = $export->dir . "/$intent->{key}";

	ok(-f $path, "$name: the file has the name that the intent gave it");
	return unless $same_bytes;
	is(sha256($path), $intent->{digest}, "$name: and its bytes");
	return;
}

sub sha256
{
	my ($path) = @_;
	return Digest::SHA->new(256)->addfile($path)->hexdigest;
}

# ------------------------------------------------- what is changed before a retry

sub change_rows
{
	my ($first, $last) = @_;

	remember_rows($first, $last);
	$export->query("UPDATE t SET v = 'changed' WHERE id = $first + 1; DELETE FROM t WHERE id = $last - 1");
	return;
}

sub add_column
{
	$columns++;
	$export->query("ALTER TABLE t ADD COLUMN column_$columns integer DEFAULT 7");
	return;
}

# Rows that are stored already stay there as they are.
sub remember_rows
{
	my ($first, $last) = @_;
	my %stored = (
		forward => rows_at_collector($collector, \&Export::row_key),
		file => rows_in_files($export->dir, \&Export::row_key));

	foreach my $kind (keys %stored)
	{
		foreach my $key (@{ $stored{$kind} })
		{
			my ($id) = split / /, $key;
			$stored_as{$kind}{$id} = $key if $id >= $first && $id <= $last;
		}
	}
	return;
}

sub faults
{
	my %table = map { (split / /)[0] => $_ } @{ $export->expected_rows };
	return $export->faults(
		map { my $kind = $_; $kind => [ values %{ { %table, %{ $stored_as{$kind} } } } ] } qw(forward file));
}
