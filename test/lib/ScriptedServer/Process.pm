# Process.pm: the process behind ScriptedServer.pm: one loop over select(), listening
# sockets for places, scripts for connections.  It ends with the control socket.

package ScriptedServer::Process;

use strict;
use warnings;

use Errno qw(EAGAIN EINTR EWOULDBLOCK);
use IO::Handle;
use IO::Select;
use JSON::PP ();
use POSIX ();
use Socket;
use Time::HiRes qw(time);

my $control;
my $json = JSON::PP->new->latin1->canonical;
my %places;
my %connections;		# by descriptor
my $chunk = 'x' x 262144;
my @good = ('head', 'body', 'store', [ send => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" ], 'next');

my %steps = (
	head => \&step_head, body => \&step_body, store => \&step_store, send => \&step_send,
	trickle => \&step_trickle, forever => \&step_forever, fill => \&step_fill, wait => \&step_wait,
	hang => sub { 0 }, deaf => sub { 0 }, close => \&drop, rst => \&reset_connection, next => \&step_next);

# Steps during which what comes is read; others leave it in the socket.
my %reads = map { $_ => 1 } qw(head body hang);

# ------------------------------------------------------------------------ loop

sub run
{
	($control) = @_;
	$control->autoflush(1);
	$SIG{PIPE} = 'IGNORE';
	for (;;)
	{
		my ($reading, $writing, $timeout) = interests();
		my ($readable, $writable) = IO::Select->select($reading, $writing, undef, $timeout);
		obey() if grep { $_ == $control } @{ $readable // [] };
		accept_from($_) foreach grep { $_->{socket} && is_among($_->{socket}, $readable) } values %places;
		foreach my $connection (my @all = values %connections)
		{
			receive($connection) if is_among($connection->{socket}, $readable);
			advance($connection) if $connections{ $connection->{fd} };
		}
	}
	return;
}

sub is_among { my ($socket, $list) = @_; return scalar grep { $_ == $socket } @{ $list // [] }; }

# What to wait for, and how long.
sub interests
{
	my $reading = IO::Select->new($control);
	my $writing = IO::Select->new;
	my $timeout = 60;

	foreach my $place (values %places) { $reading->add($place->{socket}) if $place->{accepts}; }
	foreach my $connection (values %connections)
	{
		my $step = step_name($connection);
		$reading->add($connection->{socket}) if !defined $step || $reads{$step};
		$writing->add($connection->{socket}) if length $connection->{out};
		next unless $connection->{wake} && !length $connection->{out};
		my $left = $connection->{wake} - time;
		$timeout = $left < 0 ? 0 : $left if $left < $timeout;
	}
	return ($reading, $writing, $timeout);
}

# ---------------------------------------------------------------------- orders

sub obey
{
	my $line = <$control> // POSIX::_exit(0);		# not exit: the test's END blocks are not ours
	my ($verb, $name, $params) = @{ $json->decode($line) };
	my $result = eval { $verb eq 'place' ? make_place($name, $params) : $verb eq 'well' ? make_well($name) : report($name) };
	print $control $json->encode($result // { error => "$@" }), "\n";
	return;
}

sub known { return $places{ $_[0] } // die "there is no place $_[0]\n"; }

sub make_place
{
	my ($name, $params) = @_;
	my $listen = $params->{listen} // 'open';

	foreach my $script (@{ $params->{scripts} // [] }, $params->{always} // ())
	{
		foreach my $step (@$script)
		{
			my $verb = ref $step ? $step->[0] : $step;
			die "there is no step $verb\n" unless $steps{$verb};
		}
	}
	socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!\n";
	setsockopt($socket, SOL_SOCKET, SO_RCVBUF, pack('i', $params->{buffer})) if $params->{buffer};
	bind($socket, pack_sockaddr_in(0, INADDR_LOOPBACK)) or die "bind: $!\n";
	my ($port) = unpack_sockaddr_in(getsockname $socket);
	$places{$name} = { %$params, socket => $socket, port => $port, accepts => $listen eq 'open',
		connections => 0, requests => 0, ids => [], rows => [], stored => {}, duplicates => 0, sent => 0 };
	$socket->blocking(0);
	listen($socket, $listen eq 'full' ? 0 : 100) or die "listen: $!\n" if $listen ne 'closed';
	fill_backlog($places{$name}) if $listen eq 'full';
	return { port => $port };
}

# With its queue full, the kernel drops what asks for a connection.
sub fill_backlog
{
	my ($place) = @_;

	foreach (1 .. 4)
	{
		socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!\n";
		$socket->blocking(0);
		connect($socket, pack_sockaddr_in($place->{port}, INADDR_LOOPBACK));
		push @{ $place->{fillers} }, $socket;
	}
	return;
}

sub make_well
{
	my ($name) = @_;
	my $place = known($name);

	delete @$place{qw(scripts always fillers)};
	setsockopt($place->{socket}, SOL_SOCKET, SO_RCVBUF, pack('i', 1 << 20)) if $place->{buffer};
	listen($place->{socket}, 100) or die "listen: $!\n" unless $place->{accepts};
	$place->{accepts} = 1;
	foreach my $connection (my @all = values %connections)
	{
		reset_connection($connection) if $connection->{place} == $place && $connection->{bad};
	}
	return {};
}

sub report
{
	my ($name) = @_;
	my $place = known($name);
	my $busy = grep { $_->{place} == $place && $_->{bad} } values %connections;
	return { busy => $busy, map { $_ => $place->{$_} } qw(connections requests ids rows duplicates sent) };
}

# ----------------------------------------------------------------- connections

sub accept_from
{
	my ($place) = @_;

	while (accept(my $socket, $place->{socket}))
	{
		$socket->blocking(0);
		my $connection = { socket => $socket, fd => fileno $socket, place => $place, in => '', out => '' };
		$connections{ $connection->{fd} } = $connection;
		$place->{connections}++;
		begin($connection) if waits_for_nothing($place);
		advance($connection);
	}
	return;
}

sub next_script
{
	my ($place) = @_;
	return @{ $place->{scripts} // [] } ? $place->{scripts}[0] : $place->{always};
}

sub waits_for_nothing
{
	my $script = next_script($_[0]) // return 0;
	my $first = $script->[0] // return 1;
	return $first ne 'head';
}

sub begin
{
	my ($connection) = @_;
	my $script = next_script($connection->{place});

	shift @{ $connection->{place}{scripts} } if @{ $connection->{place}{scripts} // [] };
	$connection->{bad} = defined $script;
	$connection->{steps} = [ @{ $script // \@good } ];
	return;
}

sub drop
{
	my ($connection) = @_;

	delete $connections{ $connection->{fd} };
	close $connection->{socket};
	return 0;
}

sub reset_connection
{
	my ($connection) = @_;
	setsockopt($connection->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
	return drop($connection);
}

sub receive
{
	my ($connection) = @_;
	my $got = sysread($connection->{socket}, $connection->{in}, 262144, length $connection->{in});

	return if !defined $got && ($!{EAGAIN} || $!{EWOULDBLOCK} || $!{EINTR});
	return drop($connection) unless $got;
	begin($connection) unless $connection->{steps};
	return;
}

# Writes what can be written; true when nothing is left.
sub flush
{
	my ($connection) = @_;

	while (length $connection->{out})
	{
		my $sent = syswrite($connection->{socket}, $connection->{out});
		if (!defined $sent)
		{
			drop($connection) unless $!{EAGAIN} || $!{EWOULDBLOCK} || $!{EINTR};
			return 0;
		}
		$connection->{place}{sent} += $sent;
		substr($connection->{out}, 0, $sent, '');
	}
	return 1;
}

# ----------------------------------------------------------------------- steps

sub step_name
{
	my ($connection) = @_;
	my $step = ($connection->{steps} // return undef)->[0] // return 'close';
	return ref $step ? $step->[0] : $step;
}

# Goes on until a step has to wait (or has ended the connection): then it is false.
sub advance
{
	my ($connection) = @_;

	while ($connections{ $connection->{fd} } && $connection->{steps})
	{
		my $step = $connection->{steps}[0] // 'close';
		my ($verb, @arguments) = ref $step ? @$step : $step;
		return unless $steps{$verb}->($connection, @arguments);
		shift @{ $connection->{steps} } if $connection->{steps};
		delete @$connection{qw(begun wake)};
	}
	return;
}

sub step_head
{
	my ($connection) = @_;
	my $place = $connection->{place};
	my $end = index $connection->{in}, "\r\n\r\n";

	return 0 if $end < 0;
	my $head = substr($connection->{in}, 0, $end + 4, '');
	($connection->{id}) = $head =~ /^Idempotency-Key: "([^"]*)"/mi;
	($connection->{length}) = $head =~ /^Content-Length: (\d+)/mi;
	$place->{requests}++;
	push @{ $place->{ids} }, $connection->{id};
	return 1;
}

sub step_body
{
	my ($connection, $bytes) = @_;
	my $wanted = $bytes // $connection->{length} // 0;

	return 0 if length $connection->{in} < $wanted;
	$connection->{body} = substr($connection->{in}, 0, $wanted, '') unless defined $bytes;
	return 1;
}

sub step_store
{
	my ($connection) = @_;
	my $place = $connection->{place};

	if ($place->{stored}{ $connection->{id} // '' }++) { $place->{duplicates}++; }
	else { push @{ $place->{rows} }, $connection->{body} =~ /^\{"[^"]*":([^,}]*)/mg; }
	return 1;
}

sub step_send
{
	my ($connection, $bytes) = @_;
	$connection->{out} = $bytes unless $connection->{begun}++;
	return flush($connection);
}

# True once per pause.
sub is_time
{
	my ($connection, $ms) = @_;
	return 0 if time < ($connection->{wake} // 0);
	$connection->{wake} = time + $ms / 1000;
	return 1;
}

sub step_trickle
{
	my ($connection, $bytes, $ms) = @_;
	my $at = \$connection->{begun};

	$$at //= 0;
	return 0 unless is_time($connection, $ms);
	return 1 if $$at >= length $bytes;
	$connection->{out} .= substr($bytes, $$at++, 1);
	flush($connection);
	return 0;
}

sub step_forever
{
	my ($connection, $bytes, $ms) = @_;
	my $all_went = flush($connection);

	return 0 unless $all_went && is_time($connection, $ms);
	$connection->{out} = $bytes;
	flush($connection);
	return 0;
}

sub step_fill
{
	my ($connection, $bytes) = @_;

	$connection->{begun} //= $bytes;
	while (flush($connection))
	{
		return 1 if $connection->{begun} <= 0;
		$connection->{out} = substr($chunk, 0, $connection->{begun});
		$connection->{begun} -= length $connection->{out};
	}
	return 0;
}

sub step_wait
{
	my ($connection, $ms) = @_;
	my $first = !$connection->{begun}++;
	my $over = is_time($connection, $ms);
	return $first ? 0 : $over;
}

# What came already is of the next request.
sub step_next
{
	my ($connection) = @_;

	delete @$connection{qw(steps bad id length body)};
	begin($connection) if length $connection->{in};
	unshift @{ $connection->{steps} }, 'head' if $connection->{steps};		# the one that advance() takes off
	return 1;
}

1;
