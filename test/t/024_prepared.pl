# A prepared transaction that has drawn numbers holds the horizon, across restarts
# and crashes, until it ends.

use strict;
use warnings;

use Export;
use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $export = Export->new('prepared', forward => {}, file => {});
my $node = $export->node;

# -------------------------------------------------- prepared, restarted, committed
{
	$export->insert(3);
	$export->settle;
	prepare('first');
	$export->insert(4);
	is_held('first', 3, 'rows after a prepared one wait for it, rows before it do not');

	# What is recorded of the horizon is what readers know after a restart.
	wait_for_query($node, 'SELECT recorded_horizon FROM incsink.partition_state', '3',
		'the horizon that it holds is recorded');
	$node->restart;
	is_held('first', 3, 'also after a restart');
	is($export->query("SELECT count(*) FROM incsink_read_since('t'::regclass)"), '3',
		'and readers get what was readable before');
	kill9_server($node);
	restart_after_kill($node);
	is_held('first', 3, 'and after a crash');
	$export->insert(2);
	is_held('first', 3, 'new rows line up behind it');

	$export->query("COMMIT PREPARED 'first'");
	is_free(10, 'COMMIT PREPARED lets it and all that waited go');
}

# ----------------------------------------------- what another process knew before it
{
	$export->query("SELECT incsink_pause_sink('central'); SELECT incsink_pause_sink('archive')");
	$export->insert(3);
	wait_for_query($node, 'SELECT recorded_horizon >= max(ingest_seq) FROM incsink.partition_state, t GROUP BY recorded_horizon');
	prepare('later');
	kill9_server($node);
	restart_after_kill($node);
	$export->query("SELECT incsink_resume_sink('central'); SELECT incsink_resume_sink('archive')");
	wait_until(sub { sent() == 13 && @{ rows_in_files($export->dir, 'id') } == 13 },
		'rows below the horizon of before a crash are exported after it');
	$export->insert(1);
	is_held('later', 13, 'and those above wait');
	$export->query("COMMIT PREPARED 'later'");
	is_free(15, 'until the prepared one ends');
}

# ------------------------------------------------------------------- rolled back
{
	prepare('second', "SAVEPOINT s; INSERT INTO t VALUES (-1, 'never'); ROLLBACK TO s");
	$export->insert(4);
	is_held('second', 15, 'a prepared transaction with a savepoint holds the rows after it');
	kill9_server($node);
	restart_after_kill($node);
	$export->query("ROLLBACK PREPARED 'second'");
	is_free(19, 'ROLLBACK PREPARED after a crash lets the others go, and nothing else');
}

# Nothing is left in the table of what it drew, and still it holds its numbers.
{
	$export->query("BEGIN; SAVEPOINT s; INSERT INTO t VALUES (-1, 'never'); ROLLBACK TO s;
		UPDATE t SET v = v WHERE id = 1; PREPARE TRANSACTION 'empty'");
	$export->insert(1);
	is_held('empty', 19, 'a prepared transaction whose only row was rolled back to a savepoint holds, too');
	$export->query("COMMIT PREPARED 'empty'");
	is_free(20, 'until it ends');
}

# ------------------------------------------------------------- two of them at once
{
	prepare('older');
	$export->insert(1);
	prepare('newer');
	$export->insert(1);
	$export->query("COMMIT PREPARED 'newer'");
	is_held('older', 20, 'the newer of two ends, the older still holds');
	$node->restart;
	is_held('older', 20, 'also after a restart');
	$export->query("COMMIT PREPARED 'older'");
	is_free(24, 'when both have ended all rows go');
}

# ------------------------------------------- prepared after it was noted as a holder
foreach my $end ('COMMIT PREPARED', 'ROLLBACK PREPARED')
{
	foreach my $restarted (0, 1)
	{
		my $name = "$end" . ($restarted ? ' after a crash' : '');
		my $sent = sent();
		my $session = $node->background_psql('postgres');
		my $pid = $session->query('SELECT pg_backend_pid()');
		my $id = $export->{next_id}++;

		$session->query("BEGIN; INSERT INTO t VALUES ($id, 'row $id')");
		$export->insert(2);

		# Two commits later the worker has looked at the sequence, seen who has drawn
		# from it, and still has the session in mind.
		is_held_by($pid, $sent, "$name: an open transaction holds the rows after it");
		$session->query("PREPARE TRANSACTION 'late'");
		is_held('late', $sent, "$name: PREPARE changes nothing about that");

		# The session goes on: it is not the holder any more.
		my $other = $export->{next_id}++;
		$session->query("INSERT INTO t VALUES ($other, 'row $other')");
		is_held('late', $sent, "$name: nor does what its session does next");
		if ($restarted)
		{
			kill9_server($node);
			restart_after_kill($node);
			is_held('late', $sent, "$name: nor does a crash");
		}
		else
		{
			$session->query("BEGIN; SELECT 1");
		}
		$export->query("$end 'late'");
		is_free($sent + 3 + ($end eq 'COMMIT PREPARED' ? 1 : 0), "$name: its end lets them go");
		eval { $session->quit };
	}
}

# ------------------------------------------------------- what does not draw a number
{
	$export->query("BEGIN; UPDATE t SET v = v WHERE id = 2; DELETE FROM t WHERE id = -5; PREPARE TRANSACTION 'update'");
	my $sent = sent();
	$export->insert(2);
	is_free($sent + 2, 'a prepared UPDATE holds nothing back');
	is($export->query('SELECT count(*) FROM incsink.stat_horizon WHERE held_by_gid IS NOT NULL'), '0',
		'and is not named as a holder');
	$export->query("ROLLBACK PREPARED 'update'");
}

# ---------------------------------------------- the numbers of it are not given again
{
	prepare('crash', "INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1000001, 1000050) AS g");
	kill9_server($node);
	restart_after_kill($node);
	$export->insert(3);
	my $sent = sent();
	is_held('crash', $sent, 'numbers that a prepared transaction drew survive a crash');
	$export->query("COMMIT PREPARED 'crash'");
	is_free($sent + 54, 'and its rows come in their place');
	is($export->query('SELECT count(DISTINCT ingest_seq) = count(*) FROM t'), 't', 'no number was given twice');
}

done_testing();

# A transaction that has inserted a row and is prepared; returns the row's id.
sub prepare
{
	my ($gid, $more) = @_;
	my $id = $export->{next_id}++;

	$export->query("BEGIN; INSERT INTO t VALUES ($id, 'row $id'); " . ($more ? "$more; " : '')
		  . "PREPARE TRANSACTION '$gid'");
	return $id;
}

sub sent { return scalar @{ rows_at_collector($export->collector, 'id') }; }

# COUNT rows have been exported and the rest is held by a prepared transaction.
sub is_held
{
	my ($gid, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	stands_held("held_by_gid = '$gid' AND held_by_pid IS NULL AND held_since IS NOT NULL", $count, $name);
	return;
}

sub is_held_by
{
	my ($pid, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	stands_held("held_by_pid = $pid AND held_by_gid IS NULL AND held_since IS NOT NULL", $count, $name);
	return;
}

# A flush comes to no end, so nothing more will come; readers see no more either
# (less, if a crash came before the horizon was recorded).
sub stands_held
{
	my ($holder, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @seen;

	wait_for_query($node, "SELECT $holder AND horizon < last_drawn FROM incsink.stat_horizon");
	wait_until(sub { sent() >= $count });
	push @seen, $export->query("SELECT incsink_flush('$_', '200ms')") foreach qw(central archive);
	push @seen, sent(), scalar @{ rows_in_files($export->dir, 'id') },
	  $export->query("SELECT count(*) <= $count FROM incsink_read_since('t'::regclass)"),
	  $export->query("SELECT $holder FROM incsink.stat_horizon");
	is("@seen", "f f $count $count t t", $name);
	return;
}

# Everything is exported, COUNT rows in all.
sub is_free
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$export->settle;
	is($export->faults . sent(), $count, $name);
	return;
}
