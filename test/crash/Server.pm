# Server.pm: a server that is killed often.  It is a child of this process, so that
# a killed one is gone at once and the next can start.
#
#	my $server = Server->new(name => 'a', data => DIR, wal => DIR, sockets => DIR, port => N, log => FILE);
#	$server->init(@conf)->start;
#	my $rows = $server->query('SELECT ...');	# dies of an error
#	$server->arm('before-send', 'kill once');	# see src/common/inject.h
#	$server->kill9;

package Server;

use strict;
use warnings;

use Carp;
use Cwd qw(realpath);
use File::Path qw(remove_tree);
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

use NoReplace;

my $patience = 60;
my %running;

sub new
{
	my ($class, %self) = @_;
	return bless { owner => $$, %self }, $class;
}

sub init
{
	my ($self, @conf) = @_;

	_run('initdb', '-D', $self->{data}, '-X', $self->{wal}, '--wal-segsize=1', '-U', 'postgres', '-A', 'trust', '-E', 'UTF8',
		'--no-locale', '--no-sync');
	$self->configure(@conf, "unix_socket_directories = '$self->{sockets}'", "listen_addresses = ''", "port = $self->{port}");
	return $self;
}

sub configure
{
	my ($self, @conf) = @_;

	open my $file, '>>', "$self->{data}/postgresql.conf" or croak "postgresql.conf: $!";
	print $file map { "$_\n" } @conf;
	close $file or croak "postgresql.conf: $!";
	return;
}

# A standby of PRIMARY.
sub copy
{
	my ($self, $primary) = @_;

	_run('pg_basebackup', '-D', $self->{data}, '--waldir', $self->{wal}, '-d', $primary->connection, '-c', 'fast', '-X', 'stream',
		'-R', '-C', '-S', "slot_$self->{name}", '--no-sync');
	$self->configure("port = $self->{port}");
	return $self;
}

sub _run
{
	my @command = @_;
	system(@command) == 0 or croak "$command[0] failed: $?";
	return;
}

# What libpq connects by.
sub connection
{
	my ($self) = @_;
	return "host=$self->{sockets} port=$self->{port} user=postgres dbname=postgres connect_timeout=20";
}

# ---------------------------------------------------------------- start, kill

# With no_replace, on a kernel that lacks renameat2().
sub start
{
	my ($self, %how) = @_;

	$self->launch(%how);
	for (my $until = time + $patience; !$self->is_ready; sleep 0.02)
	{
		croak "server $self->{name} did not start" if time > $until || !$self->is_running;
	}
	return $self;
}

sub launch
{
	my ($self, %how) = @_;
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		open STDOUT, '>>', $self->{log} or POSIX::_exit(126);
		open STDERR, '>&', \*STDOUT;
		open STDIN, '<', '/dev/null';
		POSIX::_exit(125) if $how{no_replace} && !NoReplace::take_away();
		exec('postgres', '-D', $self->{data}) or POSIX::_exit(127);
	}
	$self->{pid} = $pid;
	$self->{no_replace} = $how{no_replace};
	$running{$pid} = $self;
	return;
}

# Reaps it when it has ended.
sub is_running
{
	my ($self) = @_;

	return 0 unless $self->{pid};
	return 1 if waitpid($self->{pid}, WNOHANG) == 0;
	delete $running{ delete $self->{pid} };
	return 0;
}

# The last line of its lock file says so (src/include/utils/pidfile.h), and is of
# this incarnation.
sub is_ready
{
	my ($self) = @_;

	open my $file, '<', "$self->{data}/postmaster.pid" or return 0;
	my @lines = <$file>;
	return @lines >= 8 && $lines[0] == ($self->{pid} // 0) && $lines[7] =~ /^(ready|standby)/;
}

# SIGKILL for the postmaster first, which restarts nobody then, and all of its
# processes, which work in its data directory, as if the machine had failed.
sub kill9
{
	my ($self) = @_;
	my $data = realpath($self->{data});

	if ($self->is_running)
	{
		kill 'KILL', $self->{pid};
		waitpid $self->{pid}, 0;
		delete $running{ delete $self->{pid} };
	}
	for (my $until = time + $patience; my @pids = working_in($data); sleep 0.005)
	{
		kill 'KILL', @pids;
		croak "processes of server $self->{name} do not die" if time > $until;
	}
	unlink glob "$self->{data}/incsink_inject/*";
	return;
}

# It is not needed any more; its folders stay.
sub remove
{
	my ($self) = @_;

	$self->kill9;
	remove_tree($self->{data}, $self->{wal}, { keep_root => 1 });
	return;
}

sub working_in
{
	my ($dir) = @_;
	return grep { (readlink("/proc/$_/cwd") // '') eq $dir && $_ != $$ } map { m{(\d+)} } glob '/proc/[0-9]*';
}

# Waits until it takes connections again after it has restarted by itself, or
# starts it if it has given up.  Returns whether it had not.
sub wait_ready
{
	my ($self) = @_;
	my $by_itself = 1;

	for (my $until = time + $patience;; sleep 0.03)
	{
		if (!$self->is_running)
		{
			$by_itself = 0;
			$self->kill9;		# what it left
			$self->start(no_replace => $self->{no_replace});
		}
		last if $self->is_ready && eval { $self->query('SELECT true') };
		croak "server $self->{name} does not come back" if time > $until;
	}
	return $by_itself;
}

sub log_size { return -s $_[0]->{log} // 0; }

# What its log says from OFFSET on.
sub log_since
{
	my ($self, $offset) = @_;

	open my $file, '<:raw', $self->{log} or return '';
	seek $file, $offset, 0;
	local $/;
	return <$file> // '';
}

# ------------------------------------------------------------------- queries

# Output of statements, a line a row, columns apart by |; dies of an error.
sub query
{
	my ($self, $sql, %how) = @_;
	my ($ok, $out, $err) = $self->try_query($sql, %how);

	croak "$err\n$sql" unless $ok;
	return $out;
}

sub try_query
{
	my ($self, $sql, %how) = @_;
	my $base = "$self->{log}.$$";
	my $options = $how{timeout} // '30s';

	open my $file, '>', "$base.sql" or croak "$base.sql: $!";
	print $file $sql;
	close $file;
	local $ENV{PGOPTIONS} = "-c statement_timeout=$options -c client_min_messages=warning";
	my $connection = $self->connection;
	my $out = qx{psql -XAtq -v ON_ERROR_STOP=1 -d "$connection" -f $base.sql 2>$base.err </dev/null};
	my $ok = $? == 0;
	open $file, '<', "$base.err" or croak "$base.err: $!";
	my $err = do { local $/; <$file> } // '';
	$out =~ s/\n\z//;
	return ($ok, $out, $err);
}

sub worker_pids
{
	my ($self, $class) = @_;
	$class //= '(forward|blob|index)';
	return split /\n/, $self->query("SELECT pid FROM pg_stat_activity WHERE backend_type ~ '^incsink $class worker'");
}

# ----------------------------------------------------------- injection points

sub arm
{
	my ($self, $point, $action) = @_;
	my $dir = "$self->{data}/incsink_inject";

	mkdir $dir;
	open my $file, '>', "$dir/.$point" or croak "$dir/.$point: $!";
	print $file $action;
	close $file or croak "$dir/.$point: $!";
	rename "$dir/.$point", "$dir/$point" or croak "$dir/$point: $!";
	return;
}

sub is_armed { return -e "$_[0]->{data}/incsink_inject/$_[1]"; }
sub is_reached { return -e "$_[0]->{data}/incsink_inject/$_[1].reached"; }

sub disarm_all
{
	my ($self) = @_;
	unlink glob "$self->{data}/incsink_inject/*";
	return;
}

END
{
	my $status = $?;
	$_->kill9 foreach grep { $_->{owner} == $$ } values %running;
	$? = $status;
}

1;
