# Strikes.pm: what is killed, where, and how it is brought up again.
#
#	my @plan = Strikes::plan($rounds, @points);		# [ NAME, CODE ], in random order
#	$code->($crash);								# true if it struck
#
# A strike at a named point kills the worker (or session) that passes it, which by
# PostgreSQL's design restarts the whole server; or the server with everything in it
# while somebody stands there.  CRASH has the server, the collector, the traffic, the
# disks; see rounds.

package Strikes;

use strict;
use warnings;

use List::Util qw(shuffle);
use Time::HiRes qw(sleep time);

use Disk;

my $patience = 20;				# until a point is reached

# Points that are passed only where something is done for it.
my %approach = (
	'before-attempt' => \&make_attempts_fail,
	'file-read' => sub { $_[0]{server}->arm('file-after-rename', 'kill once') },
	'file-link' => \&take_renameat2_away,
	'launcher-commit' => \&begin_anew,
	'worker-start-commit' => \&end_workers,
	'share-filter' => \&end_workers,
	'renumber-before-commit' => \&renumber,
	'index-failure-commit' => sub { $_[0]{server}->arm('index-build-commit', 'error once'); attach_large(@_) },
	'index-join-commit' => sub { attach_large(@_, tree => 1) },
	(map { ("index-$_-commit" => \&attach_large) } qw(turn tasks plan build finish)),
);

my @others = (
	[ random => \&kill_server ],
	[ random => \&kill_process ],
	[ collector => \&kill_collector ],
	[ disk_full_wal => sub { fill_disk($_[0], 'wal', qr/PANIC.*No space left/) } ],
	[ promotion => \&promote ],
	[ random => \&kill_server ],
	[ disk_full_data => sub { fill_disk($_[0], 'data', qr/No space left/) } ],
	[ random => \&kill_process ],
	[ disk_full_files => sub { fill_disk($_[0], 'files') } ],
	[ collector => \&kill_collector ],
);

# Names of what is not at a point.
sub others
{
	my %names = map { $_->[0] => 1 } @others;
	return sort keys %names;
}

# Each point 5 times in 200 rounds, the others in turn for the rest.
sub plan
{
	my ($rounds, @points) = @_;
	my $times = int($rounds / 40);
	my @plan;

	foreach my $point (@points)
	{
		my $how = int rand 2;
		push @plan, map { my $server = ($_ + $how) % 2; [ "point_$point", sub { strike_point($_[0], $point, $server) } ] } 1 .. $times;
	}
	push @plan, $others[ (@plan - $times * @points) % @others ] while @plan < $rounds;
	return shuffle @plan;
}

sub wait_for
{
	my ($code, $seconds) = @_;

	for (my $until = time + ($seconds // $patience); time < $until; sleep 0.01)
	{
		return 1 if $code->();
	}
	return 0;
}

# ---------------------------------------------------------------- named points

sub strike_point
{
	my ($crash, $point, $whole_server) = @_;
	my $server = $crash->{server};
	my $offset = $server->log_size;

	$server->arm($point, $whole_server ? 'wait' : 'kill once') unless $point eq 'launcher-commit';
	$approach{$point}->($crash, $point, $whole_server) if $approach{$point};
	my $struck = wait_for(
		sub {
			$crash->tick unless $point eq 'before-attempt';
			return $whole_server ? $server->is_reached($point) : !$server->is_armed($point);
		});

	if (!$struck)
	{
		$crash->say("# nobody came to $point");
		$server->disarm_all;
		$server->wait_ready;
	}
	elsif ($whole_server)
	{
		$server->kill9;
		$server->start(no_replace => $server->{no_replace});
	}
	else
	{
		wait_for(sub { $server->log_since($offset) =~ /was terminated by signal 9/ });
		$server->wait_ready;
	}
	return $struck;
}

sub make_attempts_fail
{
	my ($crash) = @_;

	$crash->{collector}->start unless $crash->{collector}{pid};
	$crash->{collector}->control('reset', 'drop', 'nostore status=503 times=20');
	return;
}

sub take_renameat2_away
{
	my ($crash, $point, $whole_server) = @_;
	my $server = $crash->{server};

	return if $server->{no_replace};
	$server->kill9;
	$server->arm($point, $whole_server ? 'wait' : 'kill once');
	$server->launch(no_replace => 1);
	return;
}

# The launcher is passed at a start.
sub begin_anew
{
	my ($crash, $point, $whole_server) = @_;
	my $server = $crash->{server};

	$server->kill9;
	$server->arm($point, $whole_server ? 'wait' : 'kill once');
	$server->launch(no_replace => $server->{no_replace});
	return;
}

# Their end makes the launcher start others.
sub end_workers
{
	my ($crash) = @_;

	$crash->{server}->try_query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^incsink .* worker'});
	return;
}

# A table whose index is built in the background, with rows from before.
sub attach_large
{
	my ($crash, $point, $whole_server, %how) = @_;
	my $tab = 'large_' . ++$crash->{extras};
	my $leaves = '';

	if ($how{tree} || rand() < 0.3)
	{
		$leaves = " PARTITION BY RANGE (id); CREATE TABLE ${tab}_1 PARTITION OF $tab FOR VALUES FROM (0) TO (700);"
		  . " CREATE TABLE ${tab}_2 PARTITION OF $tab DEFAULT";
	}
	add_table($crash, $tab, "CREATE TABLE $tab (id bigint PRIMARY KEY, v text NOT NULL)$leaves", '{}');
	return;
}

# A table without a key, whose rows get numbers.
sub renumber
{
	my ($crash) = @_;
	my $tab = 'renumbered_' . ++$crash->{extras};

	add_table($crash, $tab, "CREATE TABLE $tab (id bigint, v text NOT NULL)", 'now');
	$crash->in_background("CALL incsink_renumber('$tab', batch_rows => 150)");
	return;
}

# The kill may come while this is done: then all of it is there, or nothing.
sub add_table
{
	my ($crash, $tab, $create, $start) = @_;
	my $how = $start eq 'now' ? ", start => 'now'" : '';

	$crash->{server}->try_query(qq{
		SET incsink.attach_index_size = 0;
		BEGIN;
		$create;
		INSERT INTO $tab SELECT g, 'i' || g FROM generate_series(1, 1500) AS g;
		SELECT incsink_attach('$tab');
		SELECT incsink_add_table('central', '$tab'$how), incsink_add_table('archive', '$tab'$how);
		INSERT INTO journal_insert VALUES ('$tab', 1, 1500);
		COMMIT;
		BEGIN;
		INSERT INTO $tab SELECT g, 'i' || g FROM generate_series(2001, 2100) AS g;
		INSERT INTO journal_insert VALUES ('$tab', 2001, 2100);
		COMMIT});
	return;
}

# -------------------------------------------------------------- random moments

sub kill_server
{
	my ($crash) = @_;
	my $server = $crash->{server};

	sleep rand 0.5;
	$server->kill9;
	$server->start(no_replace => $crash->{has_no_replace} && rand() < 0.4);
	return 1;
}

# A worker, the launcher, or any other process of the server.
sub kill_process
{
	my ($crash) = @_;
	my $server = $crash->{server};
	my $offset = $server->log_size;
	my $which = rand() < 0.8 ? q{backend_type ~ '^incsink'} : 'pid <> pg_backend_pid()';
	my ($ok, $pid) = $server->try_query("SELECT pid FROM pg_stat_activity WHERE $which ORDER BY random() LIMIT 1");

	return 0 unless $ok && $pid;
	sleep rand 0.3;
	return 0 unless kill 'KILL', $pid;
	my $struck = wait_for(sub { $server->log_since($offset) =~ /was terminated by signal 9/ }, 5);
	$server->wait_ready;
	return $struck;
}

sub kill_collector
{
	my ($crash) = @_;
	my $collector = $crash->{collector};

	$collector->start unless $collector->{pid};
	sleep rand 0.3;
	$collector->kill;
	sleep rand 1;
	$collector->start;
	return 1;
}

# ------------------------------------------------------------------ full disks

# Until somebody has met it.  The server may give up, or is killed meanwhile.
sub fill_disk
{
	my ($crash, $which, $pattern) = @_;
	my $server = $crash->{server};
	my $offset = $server->log_size;
	my $disk = Disk->new($which eq 'files' ? $crash->{files} : $server->{$which});

	return 0 unless $crash->{mounted};
	$disk->fill;
	$crash->in_background(q{SELECT pg_logical_emit_message(false, 'crash', repeat('x', 4000000))}) if $which eq 'wal';
	my $met = wait_for(
		sub {
			return $server->log_since($offset) =~ $pattern if $pattern;
			my ($ok, $out) = $server->try_query(
				q{SELECT count(*) FROM incsink.stat_delivery WHERE sink = 'archive' AND last_error ~ 'No space left'
					AND last_error_time > now() - interval '10 s'});
			return $ok && $out > 0;
		});
	if (rand() < 0.5)
	{
		sleep rand 0.5;
		$server->kill9;
	}
	$disk->free;
	$server->wait_ready;
	$crash->say("# nobody met the full disk ($which)") unless $met;
	return $met;
}

# ------------------------------------------------------------------- promotion

# The standby takes over with all that was committed: commits wait for it, and the
# workers' records, which do not, have reached it when the primary is killed.
sub promote
{
	my ($crash) = @_;
	my $old = $crash->{server};

	$crash->{traffic}->pause;
	my $new = $crash->other_server;
	$new->copy($old)->start;
	$old->query('ALTER SYSTEM SET synchronous_standby_names = \'*\'; SELECT pg_reload_conf();');
	wait_for(sub { $old->query('SELECT count(*) FROM pg_stat_replication WHERE sync_state = \'sync\'') }, 60)
	  or die "the standby does not follow\n";
	$crash->{traffic}->go(safe => 1);
	sleep 0.5 + rand 1.5;
	freeze($crash);
	$old->kill9;
	$new->query('SELECT pg_promote(true, 60)', timeout => '60s');
	$crash->{traffic}->connect_to($new);
	$crash->{server} = $new;
	$crash->{oracle}{promotions}++;
	$old->remove;
	$new->query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active");
	$crash->{traffic}->go;
	return 1;
}

# Stops the workers, at a point or anywhere, until the standby has what they wrote.
# Another moment, if one of them holds what the server needs.
sub freeze
{
	my ($crash) = @_;
	my $server = $crash->{server};
	my @points = (undef, qw(before-send before-turn-lock before-acknowledge before-intent before-commit after-commit));

	for (1 .. 20)
	{
		my $point = $points[ rand @points ];
		my @pids = $server->worker_pids;

		$server->arm($point, 'wait') if $point;
		$point ? wait_for(sub { $server->is_reached($point) }, 3) : sleep rand 0.2;
		kill 'STOP', @pids;
		my ($ok, $flushed) = $server->try_query('SELECT pg_current_wal_flush_lsn()', timeout => '2s');
		return if $ok && wait_for(sub { has_received($server, $flushed) }, 5);
		kill 'CONT', @pids;
		$server->disarm_all;
	}
	die "the workers could not be stopped\n";
}

sub has_received
{
	my ($server, $position) = @_;
	my ($ok, $out) = $server->try_query("SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= '$position'", timeout => '2s');
	return $ok && $out;
}

1;
