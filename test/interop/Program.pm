# Program.pm: a receiver's program: a child of this process, in a folder of its own, that is
# killed and started again on the same port.
#
#	my $program = Program->new(name => 'nginx', dir => DIR, command => sub { return @command });
#	$program->start(sub { is it ready });
#	$program->kill9;
#	Program::free_port();

package Program;

use strict;
use warnings;

use Carp;
use IO::Socket::INET;
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

my $patience = 60;
my %running;

sub new
{
	my ($class, %self) = @_;

	mkdir $self{dir};
	return bless { owner => $$, environment => {}, %self }, $class;
}

# One that nobody listens on now: for programs that cannot be told to take any.
sub free_port
{
	my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or croak "no port: $@";
	return $socket->sockport;
}

sub listens
{
	my ($port) = @_;
	return !!IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 1);
}

sub start
{
	my ($self, $is_ready) = @_;
	my @command = $self->{command}->();
	my $pid = fork() // croak "fork: $!";

	if ($pid == 0)
	{
		%ENV = (%ENV, %{ $self->{environment} });
		chdir $self->{dir};
		open STDOUT, '>>', "$self->{dir}/output" or POSIX::_exit(126);
		open STDERR, '>&', \*STDOUT;
		open STDIN, '<', '/dev/null';
		exec(@command) or POSIX::_exit(127);
	}
	$running{ $self->{pid} = $pid } = $self;
	$self->{is_ready} = $is_ready if $is_ready;
	for (my $until = time + $patience; !$self->{is_ready}->(); sleep 0.05)
	{
		next if time < $until && waitpid($pid, WNOHANG) == 0;
		my ($output) = $self->output =~ /((?:.*\n){0,5}.*)\z/;
		delete $running{ delete $self->{pid} } if waitpid($pid, WNOHANG) != 0;
		croak "$self->{name} does not start: $output";
	}
	return $self;
}

sub output
{
	my ($self) = @_;

	open my $file, '<', "$self->{dir}/output" or return '';
	local $/;
	return <$file> // '';
}

# All of its processes: they work in its folder or below.
sub kill9
{
	my ($self) = @_;
	my $pid = delete $self->{pid} // return $self;
	my @pids;

	kill 'KILL', $pid;
	waitpid $pid, 0;
	delete $running{$pid};
	for (my $until = time + $patience; @pids = $self->processes; sleep 0.01)
	{
		kill 'KILL', @pids;
		croak "processes of $self->{name} do not die" if time > $until;
	}
	return $self;
}

sub processes
{
	my ($self) = @_;
	return grep { $_ != $$ && (readlink("/proc/$_/cwd") // '') =~ m{^\Q$self->{dir}\E(?:/|$)} } map { m{(\d+)} } glob '/proc/[0-9]*';
}

sub restart
{
	my ($self) = @_;
	return $self->kill9->start;
}

END
{
	my $status = $?;
	$_->kill9 foreach grep { $_->{owner} == $$ } values %running;
	$? = $status;
}

1;
