# What no other test sees go wrong: whether files and their names are made durable
# before they are acknowledged, what two copies of one disk send, what a retry is encoded
# with, what a file of an attempt before is known by, how far a range without rows moves a
# watermark, and what a worker does with one that is locked or was set back.

use strict;
use warnings;

use Cwd qw(realpath);
use Export;
use IncsinkTest;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

# A library between the server and the C library that writes down each fsync() below a
# folder, and for a folder the names in it.
my $spy_source = <<'SOURCE';
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int
fsync(int fd)
{
	int			(*real) (int) = (int (*) (int)) dlsym(RTLD_NEXT, "fsync");
	const char *below = getenv("SPY_BELOW");
	const char *log = getenv("SPY_LOG");
	char		link[64];
	char		path[4096] = "";
	FILE	   *out;
	DIR		   *dir;
	struct dirent *entry;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (below == NULL || log == NULL || readlink(link, path, sizeof(path) - 1) < 0 ||
		strncmp(path, below, strlen(below)) != 0 || (out = fopen(log, "a")) == NULL)
		return real(fd);
	fprintf(out, "%s:", path);
	if ((dir = opendir(path)) != NULL)
	{
		while ((entry = readdir(dir)) != NULL)
			fprintf(out, " %s", entry->d_name);
		closedir(dir);
	}
	fprintf(out, "\n");
	fclose(out);
	return real(fd);
}
SOURCE

my $export = Export->new('planted', forward => {});
my $node = $export->node;
my $collector = $export->collector;

# ---------------------------------------------------- what is durable, and when
{
	my $dir = realpath(PostgreSQL::Test::Utils::tempdir('spied'));
	my $work = PostgreSQL::Test::Utils::tempdir('spy');

	append_to_file("$work/spy.c", $spy_source);
	system_or_bail('gcc', '-shared', '-fPIC', '-O1', '-o', "$work/spy.so", "$work/spy.c", '-ldl');
	$node->stop;
	{
		local $ENV{LD_PRELOAD} = "$work/spy.so";
		local $ENV{SPY_BELOW} = $dir;
		local $ENV{SPY_LOG} = "$work/log";
		$node->start;
	}
	$export->{dir} = $dir;
	$export->create_sink('archive', "file://$dir", flush_interval => '0');

	inject($node, 'before-acknowledge', 'wait');
	$export->insert(3);
	wait_reached($node, 'before-acknowledge');
	wait_until(sub { @{ files_below($dir) } == 1 });
	my ($first) = @{ files_below($dir) };
	wait_until(sub { $export->worker_stands('blob') });
	is(undurable($dir, $first, "$work/log"), '', 'a file, its name and its folders are durable before it is acknowledged');
	disarm($node, 'before-acknowledge');
	$export->settle;

	# Killed when the file had its name, and nothing more.
	unlink "$work/log";
	inject($node, 'file-after-rename', 'kill once');
	my $offset = -s $node->logfile;
	$export->insert(3);
	wait_until(sub { server_log_like($node, qr/reinitializing.*ready to accept connections/s, $offset) });
	$export->settle('a process that was killed when a file had its name goes on');
	my ($second) = grep { $_ ne $first } @{ files_below($dir) };
	my $log = slurp_file("$work/log");
	like($log, qr/^\Q$second\E:.*^\Q@{[ folder($second) ]}\E:[^\n]* \Q@{[ name($second) ]}\E/ms,
		'and makes the file and its name durable before it takes them for stored');
	is($export->faults, '', 'each row is stored once');

	$export->query("SELECT incsink_drop_sink('archive')");
	delete $export->{dir};
	$node->restart;
}

# ------------------------------------------------------------- what a retry is
{
	$export->query("SELECT incsink_alter_sink('central', options => '{\"request_timeout\": \"1min\"}')");
	$export->settle;
	$collector->control('store hang');
	$export->insert(4);
	wait_until(sub { $collector->held });
	my $id = $export->intent('central')->{batch};

	# (no function changes the columns of a table that is exported; a later version's may)
	$export->query("UPDATE incsink.sink_table_def SET columns = '{id}'");
	$export->query("SELECT incsink_alter_sink('central', options => '{\"request_timeout\": \"50s\"}')");
	wait_until(sub { @{ $collector->entries(id => $id) } >= 2 });
	$collector->back_to_normal;
	$export->settle;
	my @attempts = @{ $collector->entries(id => $id) };
	is(join(' ', map { $_->{bytes} } @attempts), join(' ', ($attempts[0]{bytes}) x @attempts),
		'a batch that comes again has the columns that it had, whatever is exported by now');
	$export->query("UPDATE incsink.sink_table_def SET columns = NULL");
	$export->query("SELECT incsink_alter_sink('central', options => '{\"request_timeout\": \"1min\"}')");
	$export->settle;
	is($export->faults, '', 'each row is stored once');
}

# ------------------------------------------------- somebody is about to change a delivery
{
	my $locker = $node->background_psql('postgres');
	my $before = @{ $collector->ledger };

	$locker->query_safe('BEGIN');
	$locker->query_safe('SELECT 1 FROM incsink.sink_table_def FOR UPDATE');
	$export->insert(2);
	wait_until(
		sub {
			@{ $collector->ledger } > $before
			  || $export->query("SELECT reason ~ 'locked' FROM incsink.stat_delivery") eq 't';
		});
	is(scalar @{ $collector->ledger }, $before,
		'while somebody has locked the row that stands for a delivery nothing is sent for it');
	$locker->query_safe('COMMIT');
	$locker->quit;
	$export->settle;
}

# ------------------------------------------------------- a range without a row
{
	my $open = $node->background_psql('postgres');

	$export->query("SELECT incsink_pause_sink('central')");
	$export->query("BEGIN; INSERT INTO t VALUES (-1, 'rolled back'); ROLLBACK");
	my $rolled_back = $export->query("SELECT incsink_last_token('t') ->> 'seq'");
	wait_for_query($node, 'SELECT horizon FROM incsink.stat_horizon', $rolled_back);
	$open->query_safe('BEGIN');
	$open->query_safe("INSERT INTO t VALUES (1000000, 'row late')");
	$export->query("SELECT incsink_resume_sink('central')");
	wait_for_query($node, "SELECT position::numeric >= $rolled_back FROM incsink.stat_delivery", 't',
		'a range without a row is passed');
	is($export->query('SELECT position FROM incsink.stat_delivery'), $rolled_back,
		'up to the horizon and no further, where another transaction has drawn a number');
	$open->query_safe('COMMIT');
	$open->quit;
	$export->settle;
	is($export->faults, '', 'each row is stored once');
}

# --------------------------------------------- a watermark that is set back at rest
# What the worker remembers of it counts for nothing: the batch that it has read from
# there is fenced off, and another one begins where the watermark stands.
{
	my $position = $export->query("UPDATE incsink.watermark SET seq = seq - 2, sent_seq = sent_seq - 2 RETURNING seq");
	my $before = @{ $collector->ledger };

	$export->query("INSERT INTO t VALUES (900000, 'row after it')");
	wait_until(sub { @{ $collector->ledger } > $before });
	is($collector->ledger->[$before]{since}, $position, 'a watermark that was set back at rest is where the next batch begins');
	$export->settle('and the delivery goes on');
}

# --------------------------------------------------- a file with the body of any attempt
# The rows are changed before the second attempt, which is killed when its file has its
# name, and once more before the third.
{
	my $dir = PostgreSQL::Test::Utils::tempdir('attempts');
	my $state = "FROM incsink.stat_delivery WHERE sink = 'archive'";

	$export->query("SELECT incsink_pause_sink('central')");
	$export->create_sink('archive', "file://$dir", flush_interval => '0', start => 'now');
	inject($node, 'before-send', 'wait');
	my ($id) = $export->insert(3);
	wait_reached($node, 'before-send');
	foreach my $attempt ('second', 'third')
	{
		kill9_server($node);
		$export->start_held;
		$export->query("UPDATE t SET v = '$attempt attempt' WHERE id = $id");
		inject_file($node, 'file-after-rename', 'wait') if $attempt eq 'second';
		$export->go;
		wait_reached($node, 'file-after-rename') if $attempt eq 'second';
	}
	wait_for_query($node, "SELECT state = 'halted' OR (lag_rows = 0 AND in_flight_batch IS NULL) $state");
	is($export->query("SELECT state $state"), 'waiting', 'a file that an attempt before has left is known by what it holds');
	like(join("\n", @{ lines_in_files($dir) }), qr/second attempt/, 'and stays as it is');
	$export->query("SELECT incsink_drop_sink('archive')");
}

# ------------------------------------------------- two copies of one disk, both started
# Nothing in the data tells them apart: they have the same epoch, and give the same
# numbers to different rows.
{
	my $twin = PostgreSQL::Test::Cluster->new('twin');
	my %stored;

	$export->query("SELECT incsink_pause_sink('central')");
	$node->stop;
	PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $twin->data_dir);
	chmod 0700, $twin->data_dir;
	$twin->append_conf('postgresql.conf', 'port = ' . $twin->port);
	$twin->append_conf('postgresql.conf', "unix_socket_directories = '" . $twin->host . "'");
	$node->start;
	$twin->start;
	foreach my $copy ($node, $twin)
	{
		my $from = $copy == $node ? 2000000 : 3000000;
		$copy->safe_psql('postgres', "INSERT INTO t SELECT g, 'row ' || g FROM generate_series($from, $from + 4) AS g");
		$copy->safe_psql('postgres', "SELECT incsink_resume_sink('central')");
	}
	foreach my $copy ($node, $twin)
	{
		wait_for_query($copy, "SELECT lag_rows = 0 AND in_flight_batch IS NULL FROM incsink.stat_delivery", 't');
	}
	my @last = @{ $collector->ledger }[ -2, -1 ];
	is("$last[0]{epoch} $last[0]{since} $last[0]{until}", "$last[1]{epoch} $last[1]{since} $last[1]{until}",
		'two copies of one disk send the same range of the same epoch');
	isnt($last[0]{id}, $last[1]{id}, 'under ids of their own');
	is(scalar(grep { $_ >= 2000000 } @{ rows_at_collector($collector, 'id') }), 10, 'so that the rows of both are stored');
	$twin->stop;
}

done_testing();

sub folder { my ($path) = $_[0] =~ m{^(.*)/}; return $path; }
sub name { my ($name) = $_[0] =~ m{([^/]+)$}; return $name; }

# What was not made durable of a finished file below DIR, by what the spy has written:
# its bytes while it had no name yet, then its name, and the names of its folders.
sub undurable
{
	my ($dir, $path, $log) = @_;
	my @synced = split /\n/, -e $log ? slurp_file($log) : '';
	my $folder = folder($path);
	my $name = name($path);
	my ($bytes) = grep { $synced[$_] =~ m{^\Q$folder\E/\.incsink-[^/]*:$} } 0 .. $#synced;
	my ($named) = grep { $synced[$_] =~ m{^\Q$folder\E:.* \Q$name\E( |$)} } 0 .. $#synced;
	my @faults;

	push @faults, 'its bytes' if !defined $bytes || (defined $named && $bytes > $named);
	push @faults, 'its name' if !defined $named;
	for (; $folder ne $dir; $folder = folder($folder))
	{
		my ($above, $child) = (folder($folder), name($folder));
		push @faults, "the name of folder $child" unless grep { m{^\Q$above\E:.* \Q$child\E( |$)} } @synced;
	}
	return join ', ', @faults;
}
