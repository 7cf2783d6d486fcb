# Writers.pm: sessions that insert rows into the table of doc/receivers.md while the server
# is killed.  A transaction that failed is tried again; the row's own number decides.
#
#	my $writers = Writers->new(dir => DIR, connection => ..., rows => 20000);
#	$writers->allow(5000);			# up to so many rows of all
#	$writers->wait_for_all;

package Writers;

use strict;
use warnings;

use Carp;
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep);

my $sessions = 4;
my %running;

# What JSON, CSV and TSV have to escape, numbers beyond 2^53, values that are NULL.
my $values = q{
	n, clock_timestamp(),
	'/' || md5(n::text) || CASE n % 5 WHEN 0 THEN E' "quoted" \\\\ back' WHEN 1 THEN E'\ttab\nline' WHEN 2 THEN ' größer 😀' ELSE '' END,
	CASE WHEN n % 3 > 0 THEN 9007199254740993 + n END, n % 2 = 0,
	CASE WHEN n % 4 > 0 THEN round((n % 100000) / 7.0, 2) END,
	CASE WHEN n % 7 > 0 THEN n / 3.0::float8 END,
	CASE WHEN n % 6 > 0 THEN jsonb_build_object('n', n, 'tags', ARRAY['a', 'b"c']) END};

sub new
{
	my ($class, %self) = @_;
	my $self = bless {%self}, $class;

	mkdir $self->{dir} or croak "$self->{dir}: $!";
	$self->allow(0);
	foreach my $number (0 .. $sessions - 1)
	{
		my $pid = fork() // croak "fork: $!";
		if ($pid == 0)
		{
			$SIG{$_} = 'DEFAULT' foreach qw(INT TERM HUP);
			chdir $self->{dir};
			open STDERR, '>>', 'errors' or POSIX::_exit(126);
			$self->write_rows($number);
			POSIX::_exit(0);
		}
		$running{$pid} = $self->{pids}{$pid} = 1;
	}
	return $self;
}

sub allow
{
	my ($self, $rows) = @_;

	open my $file, '>', "$self->{dir}/.limit" or croak "$self->{dir}: $!";
	print $file $rows;
	close $file or croak "$self->{dir}: $!";
	rename "$self->{dir}/.limit", "$self->{dir}/limit" or croak "$self->{dir}: $!";
	return;
}

sub write_rows
{
	my ($self, $number) = @_;
	my $share = $self->{rows} / $sessions;
	my $first = $number * $share;
	my $parent = getppid;

	srand $number;
	for (my $done = 0; $done < $share && getppid == $parent;)
	{
		open my $file, '<', "$self->{dir}/limit" or last;
		my $size = 1 + int rand $self->{rows} / 100;		# less than a step of the story
		$size = $share - $done if $size > $share - $done;
		if (<$file> < ($done + 1) * $sessions) { sleep 0.02; next; }

		my $sql = sprintf 'BEGIN; INSERT INTO visit SELECT %s FROM generate_series(%d, %d) AS n ON CONFLICT DO NOTHING; SELECT pg_sleep(%.3f); COMMIT;',
		  $values, $first + $done + 1, $first + $done + $size, rand 0.1;
		if (system('psql', '-XAtqo', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-c', $sql, $self->{connection}) == 0) { $done += $size; }
		else { sleep 0.1; }
	}
	return;
}

sub wait_for_all
{
	my ($self) = @_;

	$self->allow($self->{rows});
	foreach my $pid (keys %{ $self->{pids} })
	{
		waitpid $pid, 0;
		delete $running{$pid};
		delete $self->{pids}{$pid};
	}
	return;
}

END
{
	my $status = $?;
	kill 'TERM', keys %running;
	$? = $status;
}

1;
