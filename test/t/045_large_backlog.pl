# A full table attached while 16 sessions write to it: its backlog and the new rows
# arrive once, in order, the server killed three times and a worker twice meanwhile.
#
#	INCSINK_BACKLOG_MB	size of the table (default 30; 10000 for the real thing)
#
# The longest write is reported, and decides nothing.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $megabytes = $ENV{INCSINK_BACKLOG_MB} || 30;
my $old_rows = $megabytes * 1000;
my $timeout = 120 + $megabytes / 5;

my $node = new_node(
	'main',
	conf => [
		'max_wal_size = 4GB',
		'shared_buffers = 256MB',
		'incsink.attach_index_size = 1MB',		# the worker builds the index
		'incsink.poll_interval = 100ms',
	]);
my $dir = PostgreSQL::Test::Utils::tempdir('files');
my $logs = PostgreSQL::Test::Utils::tempdir('pgbench');

chmod 0777, $dir;
$node->safe_psql('postgres', qq{
	CREATE TABLE big (id bigint PRIMARY KEY, v text);
	ALTER TABLE big ALTER v SET STORAGE plain;
	INSERT INTO big SELECT g, repeat('x', 960) FROM generate_series(1, $old_rows) AS g;
	CREATE SEQUENCE ids START 1000000001;
	CHECKPOINT;
});

my $script = "$logs/insert.sql";
append_to_file($script, "INSERT INTO big (id, v) VALUES (nextval('ids'), 'new');\n");

# Sixteen sessions with a line a transaction in their logs; 1,000 inserts a second.
sub start_writers
{
	my ($seconds, $name) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid;
	open STDOUT, '>', "$logs/$name.out";
	open STDERR, '>&', \*STDOUT;
	chdir $logs;
	exec 'pgbench', '-n', '-c', 16, '-j', 2, '-R', 1000, '-T', $seconds, '-l', "--log-prefix=$name",
	  '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres';
	die "pgbench: $!";
}

# The longest that a transaction took, in milliseconds, without its wait for its turn.
sub longest_write
{
	my ($name) = @_;
	my ($longest, $count) = (0, 0);

	foreach my $file (glob "$logs/$name.*")
	{
		next if $file =~ /\.out$/;
		foreach my $line (split /\n/, slurp_file($file))
		{
			my @fields = split / /, $line;
			my $milliseconds = ($fields[2] - ($fields[6] // 0)) / 1000;

			$count++;
			$longest = $milliseconds if $milliseconds > $longest;
		}
	}
	return ($longest, $count);
}

my $writers = start_writers(4, 'before');
waitpid $writers, 0;

$writers = start_writers(8, 'attach');
sleep 2;
my $started = time;
$node->safe_psql('postgres', "SELECT incsink_attach('big')");
my $attach = time - $started;
waitpid $writers, 0;
diag(sprintf '%d MB: attach took %.0f ms; longest write %.1f ms before it, %.1f ms around it (%d writes)',
	$megabytes, $attach * 1000, (longest_write('before'))[0], longest_write('attach'));

# Writers until the end, whatever becomes of the server.
my $deadline = time + $timeout;
my $loop = fork() // die "fork: $!";
if (!$loop)
{
	while (time < $deadline && !-e "$logs/stop")
	{
		my $pid = start_writers(5, 'later' . int(time));

		waitpid $pid, 0;
		sleep 0.2;
	}
	require POSIX;
	POSIX::_exit(0);
}

# A small backlog is held back, or it would be over before the first kill.
my $limit = $megabytes < 1000 ? ', "max_rows_per_second": ' . int($old_rows / 20) : '';
my $batch = int($old_rows / 60);
$node->safe_psql('postgres', qq{
	SELECT incsink_create_sink('files', 'file://$dir', tables => '{big}',
		options => '{"flush_interval": "100ms", "flush_rows": $batch$limit}')
});

# Rows of the backlog that are acknowledged.
sub done
{
	return $node->safe_psql('postgres', 'SELECT CASE WHEN seq > 0 THEN 1e18 ELSE n END::bigint FROM incsink.watermark');
}

my @kills = (
	[ 0.05, 'server' ], [ 0.2, 'worker' ], [ 0.4, 'server' ], [ 0.6, 'worker' ], [ 0.8, 'server' ]);
my @seen;
foreach my $kill (@kills)
{
	my ($at, $what) = @$kill;

	wait_until(sub { done() >= $at * $old_rows }, undef, $timeout);
	push @seen, done();
	if ($what eq 'server')
	{
		kill9_server($node);
		restart_after_kill($node);
	}
	else
	{
		kill9_worker($node, 'postgres', 'blob');
	}
}
note("killed at rows @seen of the backlog");
wait_for_query($node, 'SELECT seq > 0 FROM incsink.watermark', 't', 'the backlog is over, new rows follow', $timeout);

append_to_file("$logs/stop", '');
waitpid $loop, 0;
ok($node->safe_psql('postgres', "SELECT incsink_flush('files', '10min')") eq 't', 'everything is exported');

# Names sort in the order of positions, so the files in order are the rows in order.
my $ids = "$logs/ids";
system(qq(find $dir -type f -name '*.ndjson' | LC_ALL=C sort | xargs cat | grep -o '^."id":[0-9]*' | cut -c7- >$ids)) == 0
  or die 'cannot list the rows that were exported';
$node->safe_psql('postgres', qq{
	CREATE TABLE got (place bigint GENERATED ALWAYS AS IDENTITY, id bigint);
	COPY got (id) FROM '$ids';
});
is($node->safe_psql('postgres', 'SELECT count(*) FROM got') + 0,
	$node->safe_psql('postgres', 'SELECT count(*) FROM big') + 0, 'as many rows as the table has');
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT id) FROM got'), '0', '0 duplicate');
is($node->safe_psql('postgres', 'SELECT count(*) FROM big WHERE NOT EXISTS (SELECT FROM got WHERE got.id = big.id)'),
	'0', '0 missing');
is($node->safe_psql('postgres', "SELECT count(*) FROM got WHERE id <= $old_rows AND id <> place"),
	'0', 'the backlog came first, in the order of its key');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT ingest_seq - lag(ingest_seq) OVER (ORDER BY place) AS step
		FROM got JOIN big USING (id) WHERE ingest_seq > 0) AS s WHERE step <= 0}),
	'0', 'then the new rows in the order of their numbers');
is(scalar(@seen), 5, 'with five kills in between');
cmp_ok((sort { $b <=> $a } @seen)[0], '<', 1e17, 'all of them inside the backlog');

done_testing();
