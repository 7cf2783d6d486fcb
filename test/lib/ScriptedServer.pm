# ScriptedServer.pm: a receiver that does to the byte what a script says, for what
# the collector is too well-behaved for.
#
#	my $server = ScriptedServer->new;
#	$server->place('refusing', always => [ 'head', 'body', [ send => answer(500) ], 'next' ]);
#	$server->url('refusing')					# for incsink_create_sink()
#	$server->seen('refusing')->{requests}
#	$server->well('refusing');					# from now on it takes what it gets
#
# A place has a port of its own, so that it can misbehave before it was asked
# anything, and places share no connection.  See place() for the steps of a script.
# A place that has no script (any more) is a good receiver: it stores each id once
# and answers 200.
#
# It ends with the test, however that ends.

package ScriptedServer;

use strict;
use warnings;

use Carp;
use Exporter 'import';
use IO::Handle;
use JSON::PP ();
use POSIX ();
use Socket;

use ScriptedServer::Process;

our @EXPORT = qw(answer sick_scripts);

my %running;

sub new
{
	my ($class) = @_;
	my ($ours, $theirs);

	socketpair($ours, $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!";
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		close $ours;
		eval { ScriptedServer::Process::run($theirs); };
		print STDERR "the scripted server died: $@" if $@;
		POSIX::_exit(1);
	}
	close $theirs;
	$ours->autoflush(1);
	$running{$pid} = 1;
	return bless { pid => $pid, control => $ours, port => {}, json => JSON::PP->new->latin1->canonical }, $class;
}

sub pid { return $_[0]->{pid}; }

# What comes back for an order; dies of one that was refused.
sub _order
{
	my ($self, @order) = @_;
	my $control = $self->{control};

	print $control $self->{json}->encode(\@order), "\n";
	my $line = <$control> // croak 'the scripted server is gone';
	my $result = $self->{json}->decode($line);
	croak "the scripted server: $result->{error}" if defined $result->{error};
	return $result;
}

# place(NAME, scripts => [SCRIPT, ...], always => SCRIPT, ...): a new place.  Each
# request takes the next of "scripts", and then "always".  Other parameters:
#
#	listen => 'closed'		connections are refused
#	listen => 'full'		connections are neither taken nor refused
#	buffer => N				bytes that are taken in without being read
#
# A script is a list of steps.  One that does not begin with "head" begins when the
# connection is made.
#
#	head				waits for the head of the request
#	body, [body => N]	waits for the request's body, or for the first N bytes of it
#	store				notes the rows of the body, unless the request's id is known
#	[send => BYTES]		sends
#	[trickle => BYTES, MS]	sends one byte every MS milliseconds
#	[forever => BYTES, MS]	sends them again and again, after pauses of MS
#	[fill => N]			sends N bytes of no meaning
#	[wait => MS]
#	hang				does nothing more until the other side leaves
#	deaf				the same, without reading what comes
#	close, rst			ends the connection, with FIN or with RST
#	next				waits for the next request on the connection, which takes
#						the next script
#
# At its end the connection is closed.
sub place
{
	my ($self, $name, %params) = @_;

	croak "there is a place $name" if $self->{port}{$name};
	$self->{port}{$name} = $self->_order('place', $name, \%params)->{port};
	return $self;
}

# Its scripts are forgotten, what follows them is cut off, and it is good from now on.
sub well
{
	my ($self, @names) = @_;
	$self->_order('well', $_) foreach @names;
	return $self;
}

# { connections, requests, ids => [one a request], rows => [first column of each row
#   stored, as it stands in the body], duplicates, sent (bytes), busy (connections
#   inside of a script) }
sub seen { return $_[0]->_order('seen', $_[1]); }

sub url
{
	my ($self, $name, $scheme) = @_;
	croak "there is no place $name" unless $self->{port}{$name};
	return ($scheme // 'http') . "://127.0.0.1:$self->{port}{$name}/$name";
}

# answer(STATUS, body => TEXT, headers => [LINES], version => '1.1'): the bytes of a
# whole answer.
sub answer
{
	my ($status, %params) = @_;
	my $body = $params{body} // '';
	return join "\r\n", 'HTTP/' . ($params{version} // '1.1') . " $status Scripted", 'Content-Length: ' . length($body),
	  @{ $params{headers} // [] }, '', $body;
}

# NAME => SCRIPT of receivers that are sick in different ways, for as long as they are
# let: one hangs, one refuses, one never comes to an end, one sends a gigabyte.
sub sick_scripts
{
	my $gigabyte = 1024 * 1024 * 1024;

	return (
		hanging => [ 'head', 'body', 'hang' ],
		failing => [ 'head', 'body', [ send => answer(500, body => 'out of order') ], 'next' ],
		trickling => [ 'head', 'body', [ forever => "HTTP/1.1 200 OK\r\nX-More: ", 100 ] ],
		flooding => [ 'head', 'body', [ send => "HTTP/1.1 500 No\r\nContent-Length: $gigabyte\r\n\r\n" ], [ fill => $gigabyte ] ]);
}

END
{
	my $status = $?;
	foreach my $pid (keys %running)
	{
		kill 'KILL', $pid;
		waitpid $pid, 0;
	}
	$? = $status;
}

1;
