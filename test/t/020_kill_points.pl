# The worker is killed at every injection point on the way of a row, with and
# without new rows before it comes back: nothing is lost, nothing doubled.
#
# (The server restarts after each of these kills, as PostgreSQL has it: all its
# processes die with the one that did.)

use strict;
use warnings;

use Export;
use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Points that every batch of a sink passes, in this order.  Those marked "turn" are
# passed in every turn, and by every worker: there the worker whose batch it is, is
# stopped and then killed.
my @forward = (
	[ 'before-intent' ],
	[ 'before-commit', turn => 'before-intent', name => 'the commit of the intent' ],
	[ 'after-commit', turn => 'before-intent', name => 'the sending, after the commit of the intent' ],
	[ 'before-send' ],
	[ 'http-start' ],
	[ 'http-add' ],
	[ 'http-send' ],
	[ 'http-answer' ],
	[ 'before-turn-lock' ],
	[ 'before-acknowledge' ],
	[ 'before-commit', turn => 'before-acknowledge', name => 'the commit of the acknowledgement' ],
	[ 'after-commit', turn => 'before-acknowledge', name => 'its next step, after the commit of the acknowledgement' ],
	# at the second attempt, after a kill that left an intent behind
	[ 'before-attempt', after_kill_at => 'before-send' ],
	[ 'before-commit', turn => 'before-attempt', after_kill_at => 'before-send', name => 'the commit of another attempt' ],
	# when it starts
	[ 'worker-start-commit', on_start => 1 ],
	[ 'launcher-commit', on_start => 1 ],
);

my @file = (
	(grep { $_->[0] !~ /^http-/ && !{@$_[1 .. $#$_]}->{on_start} } @forward),
	[ 'file-mkdir' ],
	[ 'file-dir-fsync' ],
	[ 'file-open' ],
	[ 'file-before-write' ],
	[ 'file-write' ],
	[ 'file-fsync' ],
	[ 'file-before-rename' ],
	[ 'file-rename' ],
	[ 'file-after-rename' ],
	[ 'file-after-dir-fsync' ],
	# when the file is found to be there already
	[ 'file-read', after_kill_at => 'file-after-rename' ],
);

# Points that no row passes on its way to a sink here.
my %elsewhere = (
	'before-read-flush' => 'is in the read functions; see 023_async_commit.pl',
	(map { ("before-$_" => 'is passed by batches that are refused; see 058_rejects.pl') } qw(split put-aside)),
	(map { ("before-$_" => 'is passed by rows that are sent again; see 059_dead_letter.pl') } qw(redelivery redelivered)),
	'file-link' => 'is passed only where the file system cannot rename without replacing',
	'renumber-before-commit' => 'is passed by incsink_renumber(); see 047_renumber.pl',
	'between-reloads' => 'writes nothing; see 049_stale_definitions.pl',
	'share-filter' => 'stands for a worker that takes what is not its own; see 057_workers.pl',
	'share-lock' => 'stands for a lock that is not respected; see 057_workers.pl',
	(map { ("index-$_-commit" => 'is passed while the index of a large table is built; see 041_large_table.pl') }
		qw(turn tasks plan build join finish failure)),
);

# ---------------------------------------------------- every point has its place

my ($tests) = $INC{'IncsinkTest.pm'} =~ m{^(.*)/lib/[^/]+$};
my @listed = split /\n/, run_command([ $^X, "$tests/check-injection-points", '--list' ]);
my %known = (%elsewhere, map { $_->[0] => 1 } @forward, @file);

cmp_ok(scalar @listed, '>', 20, 'the injection points are listed');
is(join(' ', grep { !$known{$_} } @listed), '', 'this test knows every injection point');
is(join(' ', grep { my $point = $_; !grep { $_ eq $point } @listed } sort keys %known), '',
	'every point of this test is in the source');

# ------------------------------------------------------------------- the kills

my $offset;					# of the server's log, at the start of a round

# Waits until the server has restarted by itself after a kill.
sub wait_restart
{
	my ($node) = @_;

	wait_until(sub { server_log_like($node, qr/was terminated by signal 9/, $offset) });
	wait_until(sub { server_log_like($node, qr/all server processes terminated; reinitializing.*ready to accept connections/s, $offset) });
	$offset = -s $node->logfile;
	wait_for_query($node, 'SELECT true', 't');
	return;
}

# Holds the next worker at its start; the one that runs is past that.
sub hold_next
{
	my ($export) = @_;
	inject_file($export->node, 'worker-start-commit', 'wait');
	return;
}

# One batch, killed at a point, with new rows before the retry if MORE.
sub kill_at
{
	my ($export, $class, $point, $more) = @_;
	my ($at, %how) = @$point;
	my $node = $export->node;
	my $stop_at = $how{turn} // ($how{after_kill_at} ? $at : undef);
	my $hold = $more && !$how{on_start};

	disarm_all($node);
	$offset = -s $node->logfile;
	inject_file($node, $stop_at, 'wait') if $stop_at;
	inject_file($node, $how{after_kill_at} // $at, 'kill once') if $how{after_kill_at} || !$stop_at;

	# The worker's end makes the launcher look, and start another.
	kill 'TERM', worker_pids($node, 'postgres', $class) if $how{on_start};
	hold_next($export) if $hold && !$how{after_kill_at};
	$export->insert(3);
	if ($stop_at)
	{
		wait_reached($node, $stop_at);
		$export->step_worker($class, $stop_at, $at) if $how{turn};
		hold_next($export) if $hold;
		kill9_worker($node, 'postgres', $class);
		disarm($node, $at);
	}
	else
	{
		wait_restart($node);
	}
	wait_reached($node, 'worker-start-commit') if $hold;
	$export->insert(2) if $more;
	$export->go;
	return;
}

sub kill_everywhere
{
	my ($export, $class, $what, @points) = @_;

	foreach my $point (@points)
	{
		my ($at, %how) = @$point;
		my $name = $how{name} // $at;

		foreach my $more (0, 1)
		{
			kill_at($export, $class, $point, $more);
			$export->settle;
			is($export->faults, '',
				"killed before $name, $what stores each row once"
				  . ($more ? ', with new rows before the retry' : ''));
		}
	}
	is($export->query('SELECT count(*) FROM incsink.intent'), '0', "no intent of $what is left");
	is($export->query('SELECT count(*) FROM t'), $export->{next_id} - 1, 'every row is in the table');
	ok(!server_log_like($export->node, qr/is already held|another incsink worker/),
		'no worker found that one before it had left its place taken');
	$export->node->stop;
	return;
}

my $forward = Export->new('forward', forward => {});
kill_everywhere($forward, 'forward', 'the collector', @forward);
my $count = $forward->collector->count;
cmp_ok($count->{duplicate}, '>=', 6, 'batches that the collector had were sent again, under their id');
$forward->collector->kill;

# A directory of its own for each object, so that one has to be made each time.
my $file = Export->new('file',
	file => { key => '{dataset}/{source}/at={since}/{sink}-e{epoch}-{since}-{until}.{ext}' });
kill_everywhere($file, 'blob', 'the file sink', @file);

done_testing();

# Output of a program, whatever it says on stderr.
sub run_command
{
	my ($command) = @_;
	open my $out, '-|', @$command or die "$command->[0]: $!";
	my $text = do { local $/; <$out> };
	return $text;
}
