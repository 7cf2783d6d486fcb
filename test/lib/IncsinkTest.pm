# IncsinkTest.pm: what the TAP tests share, on top of PostgreSQL::Test::Cluster.
#
#	use IncsinkTest;
#	use Test::More;
#
#	my $node = new_node('main');					# started, extension created
#	my $collector = Collector->new;
#	$node->safe_psql('postgres', 'CREATE TABLE t (id bigint, v text)');
#	...
#	wait_until(sub { $collector->count->{rows} == 10 }, 'ten rows arrive');
#	is_exported($node, 'SELECT id FROM t', rows_at_collector($collector, 'id'));
#	done_testing();
#
# "make check" runs them against the build with injection points.

package IncsinkTest;

use strict;
use warnings;

use Carp;
use Cwd qw(realpath);
use Exporter 'import';
use File::Find;
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

use Collector;

our @EXPORT = qw(
  new_node
  configure_node
  create_extension
  wait_until
  wait_for_query
  inject
  inject_file
  disarm
  disarm_all
  is_reached
  wait_reached
  kill9_server
  kill9_worker
  worker_pids
  is_dead
  restart_after_kill
  rows_at_collector
  rows_in_files
  lines_in_files
  files_below
  compare_rows
  is_exported
  server_log_like
);

my $default_timeout = 60;

# ---------------------------------------------------------------- the server

# new_node(NAME, preload => 1, extension => 1, start => 1, conf => [LINES],
#          database => 'postgres', init => {...}): a started server with the
# extension created.  "init" goes to PostgreSQL::Test::Cluster's init().
sub new_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name // 'main');

	$node->init(%{ $params{init} // {} });
	configure_node($node, %params);
	return $node if defined $params{start} && !$params{start};
	$node->start;
	create_extension($node, $params{database} // 'postgres')
	  unless defined $params{extension} && !$params{extension};
	return $node;
}

# Settings of every server here; a later line wins over an earlier one.
sub configure_node
{
	my ($node, %params) = @_;
	my $preload = $params{preload} // 1;

	$node->append_conf('postgresql.conf', join "\n",
		($preload ? "shared_preload_libraries = 'incsink'" : ()),
		'wal_level = logical',
		'max_wal_senders = 10',
		'max_replication_slots = 10',
		'max_connections = 100',
		'max_prepared_transactions = 10',
		'max_worker_processes = 16',
		'restart_after_crash = on',
		'log_statement = none',
		'log_min_messages = info',
		@{ $params{conf} // [] });
	return;
}

# The extension in a database, and incsink_inject(), which belongs to the tests
# and is not part of it.
sub create_extension
{
	my ($node, $database) = @_;

	$node->safe_psql(
		$database // 'postgres', q{
		CREATE EXTENSION incsink;
		CREATE FUNCTION incsink_inject(text, text) RETURNS void
			LANGUAGE c AS '$libdir/incsink', 'incsink_inject';
	});
	return;
}

# ------------------------------------------------------------------- waiting

# wait_until(CODE, NAME, TIMEOUT = 60): passes as a test of that name when CODE
# becomes true; without a name it is no test and croaks instead.  Whatever CODE
# dies of counts as false.  Returns whether it became true.
sub wait_until
{
	my ($code, $name, $timeout) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $until = time + ($timeout // $default_timeout);
	my $reached;
	my $error = '';

	do
	{
		$reached = eval { $code->() };
		$error = $@;
	} until ($reached || time >= $until || !defined sleep 0.02);
	if (defined $name)
	{
		ok($reached, $name);
		diag("gave up after waiting; last error: $error") if !$reached && $error;
	}
	elsif (!$reached)
	{
		croak "gave up after waiting $error";
	}
	return $reached;
}

# The same for a query that returns one value; works while the server is away.
sub wait_for_query
{
	my ($node, $query, $expected, $name, $timeout) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = '';

	$expected //= 't';
	my $reached = wait_until(
		sub {
			my ($status, $out) = $node->psql('postgres', $query);
			$result = $out // '';
			return $status == 0 && $result eq $expected;
		},
		$name, $timeout);
	diag("the last answer was: $result") if !$reached;
	return $reached;
}

# ---------------------------------------------------------- injection points

sub _inject_dir { return $_[0]->data_dir . '/incsink_inject'; }

# Arms a point (see src/common/inject.h for the actions).
sub inject
{
	my ($node, $point, $action, $database) = @_;

	$node->safe_psql($database // 'postgres',
		"SELECT incsink_inject('$point', '$action')");
	return;
}

# The same for a server that is down, or that must not run a query for it.
sub inject_file
{
	my ($node, $point, $action) = @_;
	my $dir = _inject_dir($node);

	mkdir $dir;
	open my $file, '>', "$dir/.$point" or croak "$dir/.$point: $!";
	print $file $action;
	close $file or croak "$dir/.$point: $!";
	rename "$dir/.$point", "$dir/$point" or croak "$dir/$point: $!";
	return;
}

# Removes a point: a process that waits there goes on.
sub disarm
{
	my ($node, $point) = @_;
	my $dir = _inject_dir($node);

	unlink "$dir/$point", "$dir/$point.reached";
	return;
}

sub disarm_all
{
	my ($node) = @_;

	unlink glob(_inject_dir($node) . '/*');
	return;
}

# Does a process wait at a point armed with "wait"?
sub is_reached
{
	my ($node, $point) = @_;
	return -e _inject_dir($node) . "/$point.reached";
}

sub wait_reached
{
	my ($node, $point, $name, $timeout) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until(sub { is_reached($node, $point) },
		$name, $timeout);
}

# -------------------------------------------------------------------- killing

# Is a process gone?  A zombie is: who reaps it may take its time.
sub is_dead
{
	my ($pid) = @_;

	open my $file, '<', "/proc/$pid/stat" or return 1;
	my $stat = <$file> // return 1;
	return $stat =~ /\) [ZX] /;
}

# Every process of a server works in its data directory, orphans included.
sub _server_processes
{
	my ($node) = @_;
	my $data_dir = realpath($node->data_dir);
	my @pids;

	foreach my $cwd (glob '/proc/[0-9]*/cwd')
	{
		my $target = readlink $cwd // next;
		push @pids, $cwd =~ m{/(\d+)/} if $target eq $data_dir;
	}
	return grep { $_ != $$ } @pids;
}

# SIGKILL for the postmaster and everything below it, as if the machine had
# failed; returns when all are gone.  Start it again with restart_after_kill().
sub kill9_server
{
	my ($node) = @_;

	$node->kill9;			# first: it restarts nobody and reports nothing
	wait_until(
		sub {
			my @pids = _server_processes($node);
			kill 'KILL', @pids if @pids;
			return !@pids;
		});

	# A zombie's pid in a lock file would refuse the next start.
	foreach my $lock_file ($node->data_dir . '/postmaster.pid',
		$node->host . '/.s.PGSQL.' . $node->port . '.lock')
	{
		open my $file, '<', $lock_file or next;
		my $pid = <$file> // 0;
		close $file;
		chomp $pid;
		wait_until(sub { is_dead($pid) });	# it left its folder before it died
		unlink $lock_file;
	}
	return;
}

sub restart_after_kill
{
	my ($node) = @_;

	$node->start;
	return;
}

# Pids of the workers that export, of one database and one class ("forward",
# "blob") if these are given.
sub worker_pids
{
	my ($node, $database, $class) = @_;

	return split /\n/,
	  $node->safe_psql(
		'postgres',
		q{SELECT pid FROM pg_catalog.pg_stat_activity WHERE backend_type LIKE 'incsink }
		  . ($class // '%') . q{ worker'}
		  . (defined $database ? " AND datname = '$database'" : '')
		  . ' ORDER BY pid');
}

# SIGKILL for such a worker alone, once there is one.  The postmaster then
# restarts the whole server by itself; returns when it takes connections again.
sub kill9_worker
{
	my ($node, $database, $class) = @_;
	my @pids;

	wait_until(sub { @pids = worker_pids($node, $database, $class); @pids > 0 });

	my $offset = -s $node->logfile;
	kill 'KILL', @pids;
	wait_until(
		sub {
			server_log_like($node, qr/ready to accept connections/, $offset);
		});
	wait_for_query($node, 'SELECT true', 't');
	return @pids;
}

# ------------------------------------------------------------- what was stored

# Keys of the rows that a collector has, over every body whose id was new, as
# strings.  KEY is the name of a column or a sub of the decoded row; WHERE picks
# entries of the ledger (sink => 'central' ...).
sub rows_at_collector
{
	my ($collector, $key, %where) = @_;
	my $get = ref $key ? $key : sub { $_[0]->{$key} };

	return [ map { my $value = $get->($_); defined $value ? "$value" : '' }
		  @{ $collector->rows(%where) } ];
}

# Names of the files below a directory, sorted, without temporary ones and the
# claim of the prefix.
sub files_below
{
	my ($dir) = @_;
	my @files;

	return [] unless -d $dir;
	find(
		{
			no_chdir => 1,
			wanted => sub {
				push @files, $_
				  if -f $_
				  && m{/([^/]+)$}
				  && $1 !~ /^\.incsink-/
				  && $1 ne '_incsink_claim';
			}
		},
		$dir);
	return [ sort @files ];
}

sub lines_in_files
{
	my ($dir) = @_;
	return [ map { split /\n/, slurp_file($_) } @{ files_below($dir) } ];
}

sub rows_in_files
{
	my ($dir, $key) = @_;
	my $json = JSON::PP->new->utf8->allow_nonref->allow_bignum;
	my $get = ref $key ? $key : sub { $_[0]->{$key} };

	return [ map { my $value = $get->($json->decode($_)); defined $value ? "$value" : '' }
		  @{ lines_in_files($dir) } ];
}

# ---------------------------------------------------------------- the oracle

# compare_rows(EXPECTED, GOT): invariant I11 on two lists of keys.  Returns
# { missing => N, duplicate => N, unexpected => N, examples => [...] }.
sub compare_rows
{
	my ($expected, $got) = @_;
	my %left;
	my %result = (missing => 0, duplicate => 0, unexpected => 0, examples => []);

	my %wanted;
	$wanted{$_}++ foreach @$expected;
	%left = %wanted;
	foreach my $key (@$got)
	{
		my $kind;
		if (!exists $wanted{$key}) { $kind = 'unexpected'; }
		elsif ($left{$key}-- <= 0) { $kind = 'duplicate'; }
		next unless $kind;
		$result{$kind}++;
		push @{ $result{examples} }, "$kind $key" if @{ $result{examples} } < 10;
	}
	foreach my $key (sort keys %left)
	{
		next if $left{$key} <= 0;
		$result{missing} += $left{$key};
		push @{ $result{examples} }, "missing $key" if @{ $result{examples} } < 20;
	}
	return \%result;
}

# One test: the rows that QUERY returns (one column, one line each) are exactly
# those that were stored.
sub is_exported
{
	my ($node, $query, $got, $name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @expected = split /\n/, $node->safe_psql($database // 'postgres', $query);
	my $result = compare_rows(\@expected, $got);
	my $passed = is(
		"missing $result->{missing} duplicate $result->{duplicate} unexpected $result->{unexpected}",
		'missing 0 duplicate 0 unexpected 0',
		$name // (scalar(@expected) . ' rows are there, each once'));

	diag(join "\n", @{ $result->{examples} }) unless $passed;
	return $passed;
}

# Does the server's log, from OFFSET on, match a pattern?
sub server_log_like
{
	my ($node, $pattern, $offset) = @_;
	return substr(slurp_file($node->logfile), $offset // 0) =~ $pattern;
}

1;
