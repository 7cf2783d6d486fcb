# Collector.pm: the collector of test/collector as an object of a TAP test.
#
#	my $collector = Collector->new;				# started, port known
#	$collector->url('/ingest')					# for incsink_create_sink()
#	$collector->control('store hang');			# orders: head of collector.c
#	$collector->count->{held}					# GET /_count
#	$collector->ledger							# every request, in order
#	$collector->rows							# the rows it has, once per body
#	$collector->kill; $collector->start;		# goes on, on the same port
#
# It ends with the test, however that ends.

package Collector;

use strict;
use warnings;

use Carp;
use File::Path qw(make_path);
use IO::Socket::INET;
use JSON::PP ();
use PostgreSQL::Test::Utils ();
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

my $serial = 0;
my %running;

# new(policy => 'id' | 'until' | 'none', discard => 1, fsync => 1, dir => DIR,
#     start => 0): a collector of its own, with an empty ledger.
sub new
{
	my ($class, %params) = @_;
	my $dir = $params{dir}
	  // PostgreSQL::Test::Utils::tempdir('collector' . $serial++);
	my $self = bless {
		dir => $dir,
		program => _program(),
		policy => $params{policy} // 'id',
		options => [
			($params{discard} ? '--discard' : ()),
			($params{fsync} ? '--fsync' : ()),
			@{ $params{options} // [] }
		],
		port => 0,
		json => JSON::PP->new->utf8->allow_nonref->allow_bignum->canonical,
	}, $class;

	make_path($dir);
	$self->start unless defined $params{start} && !$params{start};
	return $self;
}

# The compiled program: "make check" says where it is; compiled here otherwise.
my $compiled;

sub _program
{
	return $ENV{INCSINK_COLLECTOR} if $ENV{INCSINK_COLLECTOR};
	return $compiled if $compiled;
	my ($root) = __FILE__ =~ m{^(.*)/lib/[^/]+$};
	my $program = PostgreSQL::Test::Utils::tempdir('program') . '/collector';
	PostgreSQL::Test::Utils::system_or_bail('gcc', '-O2', '-std=gnu11', '-o',
		$program, ($root // 'test') . '/collector/collector.c');
	return $compiled = $program;
}

sub port { return $_[0]->{port}; }
sub dir { return $_[0]->{dir}; }

sub url
{
	my ($self, $path) = @_;
	return "http://127.0.0.1:$self->{port}" . ($path // '/ingest');
}

# Starts it on the port it had before, a free one at first, and waits until it
# listens.
sub start
{
	my ($self) = @_;
	my $port_file = "$self->{dir}/port";

	croak 'the collector runs already' if $self->{pid};
	unlink $port_file;
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		exec($self->{program}, '--with-parent', '--dir', $self->{dir},
			'--port', $self->{port}, '--port-file', $port_file, '--policy',
			$self->{policy}, @{ $self->{options} })
		  or POSIX::_exit(127);
	}
	$self->{pid} = $pid;
	$running{$pid} = 1;
	for (my $until = time + 30; !-e $port_file; sleep 0.01)
	{
		next if time < $until && waitpid($pid, WNOHANG) == 0;
		delete $running{$pid};
		croak 'the collector did not start';
	}
	$self->{port} =
	  PostgreSQL::Test::Utils::slurp_file($port_file) + 0;
	return $self;
}

# Ends it with SIGKILL, as a crash would: its ledger is what stays.  (An orderly
# end would be no different: every line is written before it is answered.)
sub kill
{
	my ($self) = @_;
	my $pid = delete $self->{pid} // return $self;

	CORE::kill 'KILL', $pid;
	waitpid($pid, 0);
	delete $running{$pid};
	return $self;
}

*stop = \&kill;

sub restart
{
	my ($self) = @_;
	return $self->kill->start;
}

# One HTTP request of its own; returns the body of the answer, dies unless 2xx.
sub request
{
	my ($self, $method, $path, $body) = @_;
	my $socket = IO::Socket::INET->new(
		PeerAddr => '127.0.0.1',
		PeerPort => $self->{port},
		Proto => 'tcp',
		Timeout => 30) or croak "collector: $@";
	$body //= '';
	$socket->print("$method $path HTTP/1.1\r\nHost: 127.0.0.1\r\n"
		  . 'Content-Length: '
		  . length($body)
		  . "\r\nConnection: close\r\n\r\n$body");
	my $answer = do { local $/; <$socket> };
	croak 'collector: no answer' unless defined $answer;
	my ($head, $content) = split /\r\n\r\n/, $answer, 2;
	croak "collector: $content" unless $head =~ m{^HTTP/1.1 2};
	return $content;
}

# Gives it orders, one a line; see the head of collector.c.
sub control
{
	my ($self, @lines) = @_;
	$self->request('POST', '/_control', join("\n", @lines));
	return $self;
}

sub reset { return $_[0]->control('reset'); }
sub release { return $_[0]->control('release'); }

# Forgets the rules and answers what is held.
sub back_to_normal { return $_[0]->control('reset', 'release'); }

# { requests, stored, duplicate, stale, refused, malformed, rows, bytes,
#   connections, open, held, rules }, since it was started
sub count
{
	my ($self) = @_;
	return { split /\s+/, $self->request('GET', '/_count') };
}

sub held { return $_[0]->count->{held}; }

# The ledger: one hash a request, keys as the columns; a header that did not
# come is undef.  Works on a collector that is down, too.
sub ledger
{
	my ($self) = @_;
	my @names;
	my @entries;

	open my $file, '<:raw', "$self->{dir}/ledger.tsv" or return [];
	while (my $line = <$file>)
	{
		last unless $line =~ s/\n\z//;
		my @values = split /\t/, $line, -1;
		if (!@names)
		{
			@names = @values;
			next;
		}
		my %entry;
		@entry{@names} = map {
			my $value = $_ eq '-' ? undef : $_;
			$value =~ s/\\x([0-9a-f]{2})/chr hex $1/ge if defined $value;
			$value
		} @values;
		push @entries, \%entry;
	}
	return \@entries;
}

# Entries of the ledger whose columns have the given values.
sub entries
{
	my ($self, %where) = @_;
	my @found;

	foreach my $entry (@{ $self->ledger })
	{
		push @found, $entry
		  unless grep { ($entry->{$_} // '') ne ($where{$_} // '') } keys %where;
	}
	return \@found;
}

# The bytes of the body that an entry of the ledger stored.
sub body
{
	my ($self, $entry) = @_;
	return PostgreSQL::Test::Utils::slurp_file(
		"$self->{dir}/bodies/$entry->{body}");
}

# Lines of every stored body (those whose id was new), in order of arrival.
sub lines
{
	my ($self, %where) = @_;
	return [ map { split /\n/, $self->body($_) }
		  @{ $self->entries(%where, outcome => 'stored') } ];
}

# The same, decoded: one reference a row.
sub rows
{
	my ($self, %where) = @_;
	return [ map { $self->{json}->decode($_) } @{ $self->lines(%where) } ];
}

# Ids of the batches in order of arrival, repeated ones included.
sub ids
{
	my ($self, %where) = @_;
	return [ map { $_->{id} } @{ $self->entries(%where) } ];
}

END
{
	my $status = $?;
	foreach my $pid (keys %running)
	{
		CORE::kill 'KILL', $pid;
		waitpid($pid, 0);
	}
	$? = $status;
}

1;
