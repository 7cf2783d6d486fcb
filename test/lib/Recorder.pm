# Recorder.pm: a receiver that keeps each request as it came, for tests that look at
# its headers.
#
#	my $recorder = Recorder->new;
#	$recorder->url('/x');
#	$recorder->answer(200);				# what it answers from now on
#	$recorder->answer(500, echo => 1);	# the answer's body is the header Authorization
#	$recorder->answer(200, needs => 'Bearer x');	# 401 with another Authorization
#	foreach my $request ($recorder->requests) { ... }
#		# { method, path, headers => { lower-case name => value }, head, body }
#
# One request a connection, one after the other.  It ends with the test.

package Recorder;

use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Utils ();
use POSIX ();

my @pids;

sub new
{
	my ($class) = @_;
	my $listener = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1', Proto => 'tcp')
	  or die "listen: $!";
	my $self = bless { dir => PostgreSQL::Test::Utils::tempdir('recorder'), port => $listener->sockport }, $class;

	$self->answer(200);
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		eval { $self->_serve($listener); };
		print STDERR "recorder: $@";
		POSIX::_exit(1);
	}
	push @pids, $pid;
	return $self;
}

sub port { return $_[0]->{port}; }
sub url { return "http://127.0.0.1:$_[0]->{port}" . ($_[1] // '/'); }

sub answer
{
	my ($self, $status, %how) = @_;
	my $file = "$self->{dir}/answer";

	_write("$file.new", "$status " . ($how{echo} ? 1 : 0) . ' ' . ($how{needs} // ''));
	rename "$file.new", $file or die "$file: $!";
	return $self;
}

sub _write
{
	my ($name, $content) = @_;
	open my $file, '>:raw', $name or die "$name: $!";
	print $file $content;
	close $file or die "$name: $!";
	return;
}

sub _serve
{
	my ($self, $listener) = @_;
	my $number = 0;

	my $parent = getppid;
	$listener->timeout(1);
	while (getppid == $parent)
	{
		my $socket = $listener->accept // next;
		my $got = '';
		while ($got !~ /\r\n\r\n/ || length($got) < $+[0] + ($got =~ /^content-length: *(\d+)/im ? $1 : 0))
		{
			sysread($socket, $got, 65536, length $got) or last;
		}
		my $name = sprintf "$self->{dir}/request-%06d", ++$number;
		_write("$name.new", $got);
		rename "$name.new", $name or die "$name: $!";
		my ($status, $echo, $needs) = split / /, PostgreSQL::Test::Utils::slurp_file("$self->{dir}/answer"), 3;
		$status = 401 unless $needs eq '' || $got =~ /^Authorization: \Q$needs\E\r$/im;
		my $body = $echo && $got =~ /^(Authorization: .*)\r$/im ? $1 : '';
		print $socket "HTTP/1.1 $status x\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n$body";
		close $socket;
	}
	return;
}

sub requests
{
	my ($self) = @_;
	my @requests;

	foreach my $name (sort glob "$self->{dir}/request-??????")
	{
		my ($head, $body) = split /\r\n\r\n/, PostgreSQL::Test::Utils::slurp_file($name), 2;
		my ($first, @lines) = split /\r\n/, $head;
		my ($method, $path) = split / /, $first;
		my %headers = map { /^([^:]*): ?(.*)$/ ? (lc $1 => $2) : () } @lines;
		push @requests, { method => $method, path => $path, headers => \%headers, head => $head, body => $body };
	}
	return @requests;
}

# The last request whose path begins so.
sub last_request
{
	my ($self, $path) = @_;
	my @found = grep { index($_->{path}, $path) == 0 } $self->requests;
	return $found[-1];
}

END
{
	my $status = $?;
	foreach my $pid (@pids)
	{
		kill 'KILL', $pid;
		waitpid($pid, 0);
	}
	$? = $status;
}

1;
