# Lossy.pm: a proxy between a sink and a receiver that loses what it is told to lose.
#
#	my $proxy = Lossy->new(dir => DIR, upstream => PORT);	# started; its port is known
#	$proxy->order('drop');			# one request or answer, see below
#	$proxy->wait_for_hold;			# until an order that holds is carried out
#	$proxy->go_on;
#	$proxy->log						# every request: { id, status, done }
#
# Orders, for the next request:
#	drop		its answer is read and thrown away
#	hold		the same, but the connection to the sink stays open until go_on
#	half		half of its body, up to the end of a line, is passed on until go_on; then both
#				connections are closed
#	cut			the same without waiting
#
# In the log, status is what the receiver answered (0: nothing), and done is "passed" or the
# order.  One request after the other, each on connections of its own: that is enough for a
# sink with one table.

package Lossy;

use strict;
use warnings;

use Carp;
use IO::Socket::INET;
use POSIX ();
use Time::HiRes qw(sleep time);

my %running;

sub new
{
	my ($class, %self) = @_;
	my $self = bless { host => '127.0.0.1', %self }, $class;
	my $listener = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1', ReuseAddr => 1) or croak "proxy: $@";

	$self->{port} = $listener->sockport;
	mkdir $self->{dir} or croak "$self->{dir}: $!";
	my $pid = fork() // croak "fork: $!";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(INT TERM HUP);
		$SIG{PIPE} = 'IGNORE';
		chdir $self->{dir};
		$self->serve($listener);
		POSIX::_exit(0);
	}
	$running{ $self->{pid} = $pid } = 1;
	return $self;
}

sub port { return $_[0]->{port}; }

sub stop
{
	my ($self) = @_;
	my $pid = delete $self->{pid} // return;

	kill 'KILL', $pid;
	waitpid $pid, 0;
	delete $running{$pid};
	return;
}

END
{
	my $status = $?;
	kill 'KILL', keys %running;
	$? = $status;
}

# ---------------------------------------------------------------------- orders

sub _put
{
	my ($self, $name, $text) = @_;

	open my $file, '>', "$self->{dir}/.$name" or croak "$self->{dir}/.$name: $!";
	print $file $text;
	close $file or croak "$self->{dir}/.$name: $!";
	rename "$self->{dir}/.$name", "$self->{dir}/$name" or croak "$self->{dir}/$name: $!";
	return;
}

sub order
{
	my ($self, $order) = @_;

	$self->_put('order', $order);
	return;
}

sub is_pending { return -e "$_[0]->{dir}/order"; }
sub holds { return -e "$_[0]->{dir}/holding"; }

# Returns when it has.
sub go_on
{
	my ($self) = @_;

	$self->_put('go', '');
	for (my $until = time + 60; $self->holds; sleep 0.01)
	{
		croak 'the proxy does not go on' if time > $until;
	}
	return;
}

sub log
{
	my ($self) = @_;
	my @entries;

	open my $file, '<', "$self->{dir}/log" or return [];
	while (<$file>)
	{
		next unless /^(\S+) (\d+) (\w+)\n/;
		push @entries, { id => $1, status => $2, done => $3 };
	}
	return \@entries;
}

# -------------------------------------------------------------- the other process

sub serve
{
	my ($self, $listener) = @_;
	my $parent = getppid;

	open my $log, '>>', "$self->{dir}/log" or die "$self->{dir}/log: $!";
	$log->autoflush(1);
	while (getppid == $parent)
	{
		vec(my $readable = '', fileno($listener), 1) = 1;
		next unless select($readable, undef, undef, 0.5);
		my $client = $listener->accept or next;
		my $request = read_request($client) or next;
		my ($status, $done) = $self->pass($client, $request);

		print $log "$request->{id} $status $done\n";
	}
	return;
}

sub read_request
{
	my ($client) = @_;
	my $bytes = '';

	until ($bytes =~ /\r\n\r\n/)
	{
		sysread($client, $bytes, 65536, length $bytes) or return;
	}
	my ($head, $body) = $bytes =~ /^(.*?\r\n\r\n)(.*)\z/s;
	my ($size) = $head =~ /^Content-Length: (\d+)/mi;
	syswrite $client, "HTTP/1.1 100 Continue\r\n\r\n" if $head =~ s/^Expect: .*\r\n//mi;
	while (length $body < ($size // 0))
	{
		sysread($client, $body, 262144, length $body) or return;
	}
	$head =~ s/^Connection: .*\r\n//mi;
	$head =~ s/\r\n\r\n\z/\r\nConnection: close\r\n\r\n/;
	my ($id) = $head =~ /^Idempotency-Key: "?(\w+)/mi;
	return { head => $head, body => $body, id => $id // '-' };
}

sub take_order
{
	my ($self) = @_;

	open my $file, '<', "$self->{dir}/order" or return '';
	my $order = <$file>;
	unlink "$self->{dir}/order";
	return $order;
}

sub pass
{
	my ($self, $client, $request) = @_;
	my $order = $self->take_order;
	my $upstream = IO::Socket::INET->new(PeerAddr => $self->{host}, PeerPort => $self->{upstream}, Timeout => 10);
	my $body = $request->{body};

	if ($order eq 'half' || $order eq 'cut')
	{
		my $half = rindex($body, "\n", length($body) / 2) + 1;

		$body = substr($body, 0, $half || length($body) / 2);
	}
	write_all($upstream, $request->{head} . $body) if $upstream;
	$self->wait_until_told if $order eq 'half';
	return (0, $order) if $order eq 'half' || $order eq 'cut';

	my $answer = $upstream ? read_all($upstream) : '';
	my ($status) = $answer =~ m{^HTTP/1\.\d (\d+)};
	$self->wait_until_told if $order eq 'hold';
	return ($status // 0, $order) if $order;

	# The proxy's own connection ends here, too; curl reads to its end.
	$answer =~ s/\r\n(?:Connection|Keep-Alive): .*?(?=\r\n)//gi;
	$answer =~ s/\r\n\r\n/\r\nConnection: close\r\n\r\n/;
	write_all($client, $answer);
	return ($status // 0, 'passed');
}

sub wait_until_told
{
	my ($self) = @_;

	$self->_put('holding', '');
	for (my $until = time + 120; !-e "$self->{dir}/go" && time < $until; sleep 0.01) { }
	unlink "$self->{dir}/go", "$self->{dir}/holding";
	return;
}

sub write_all
{
	my ($socket, $bytes) = @_;

	for (my $done = 0; $done < length $bytes;)
	{
		$done += syswrite($socket, $bytes, length($bytes) - $done, $done) // return;
	}
	return;
}

sub read_all
{
	my ($socket) = @_;
	my $bytes = '';

	1 while sysread($socket, $bytes, 65536, length $bytes);
	return $bytes;
}

1;
