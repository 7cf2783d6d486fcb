# Export.pm: one table, exported to a collector, to files, or to both, as the
# tests about crashes need it.
#
#	my $export = Export->new('crash', forward => {}, file => {});
#	$export->insert(5);						# five rows, ids go on
#	$export->settle;						# all of it is exported
#	is($export->faults, '', 'each row is stored once');
#
# The table is public.t (id bigint PRIMARY KEY, v text); the sinks are "central"
# (forward) and "archive" (file).

package Export;

use strict;
use warnings;

use Exporter 'import';
use File::Find;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

use Collector;
use IncsinkTest;

# new(NAME, forward => OPTIONS, file => OPTIONS, conf => [LINES], policy => ...,
#     table => SQL):
# a server with the sinks for which options are given.  They retry at once, and
# file sinks write at once.  "table" makes public.t otherwise: id and v must be its
# first columns.
sub new
{
	my ($class, $name, %params) = @_;
	my $self = bless { next_id => 1, node => new_node($name, conf => $params{conf}) }, $class;

	$self->{node}->safe_psql('postgres',
		($params{table} // 'CREATE TABLE t (id bigint PRIMARY KEY, v text)') . "; SELECT incsink_attach('t')");
	$self->add_forward(%{ $params{forward} }) if $params{forward};
	$self->add_file(%{ $params{file} }) if $params{file};
	return $self;
}

sub node { return $_[0]->{node}; }
sub collector { return $_[0]->{collector}; }
sub dir { return $_[0]->{dir}; }

sub add_forward
{
	my ($self, %options) = @_;

	$self->{collector} //= Collector->new;
	$self->create_sink('central', $self->{collector}->url, %options);
	return $self;
}

sub add_file
{
	my ($self, %options) = @_;

	$self->{dir} //= PostgreSQL::Test::Utils::tempdir('files');
	$self->create_sink('archive', "file://$self->{dir}", flush_interval => '0', %options);
	return $self;
}

sub create_sink
{
	my ($self, $name, $url, %options) = @_;
	my $json = JSON::PP->new->canonical->encode(
		{ retry_initial => '20ms', retry_max => '200ms', %options });

	$self->{node}->safe_psql('postgres',
		"SELECT incsink_create_sink('$name', '$url', tables => '{t}', options => '$json')");
	return $self;
}

sub query
{
	my ($self, $query) = @_;
	return $self->{node}->safe_psql('postgres', $query);
}

# Commits COUNT rows in one transaction; returns the first and the last id.  The
# session may be torn away by a crash that its commit brings about: then it looks
# whether it had committed.
sub insert
{
	my ($self, $count) = @_;
	my $first = $self->{next_id};
	my $last = $first + ($count // 1) - 1;
	my $node = $self->{node};
	my $stderr;

	$self->{next_id} = $last + 1;
	for (;;)
	{
		my $status = $node->psql('postgres',
			"INSERT INTO t (id, v) SELECT g, 'row ' || g FROM generate_series($first, $last) AS g",
			stderr => \$stderr);
		return ($first, $last) if $status == 0;
		die "could not insert: $stderr" unless $stderr =~ /connection to server/;
		my $there = '';
		wait_until(
			sub {
				$node->psql('postgres', "SELECT EXISTS (SELECT FROM t WHERE id = $last)", stdout => \$there) == 0;
			});
		return ($first, $last) if $there eq 't';
	}
}

# The intent of a sink as { batch, since, until, digest, key }, undef without one.
sub intent
{
	my ($self, $sink) = @_;
	my $row = $self->query(
		"SELECT i.batch_id, i.since_seq, i.until_seq, i.digests[1], i.object_key
		 FROM incsink.intent i JOIN incsink.sink_def s USING (sink_id) WHERE s.name = '$sink'");
	return undef if $row eq '';
	my %intent;
	@intent{qw(batch since until digest key)} = split /\|/, $row;
	return \%intent;
}

# Is there nothing left to export, and nothing in flight?
sub settle
{
	my ($self, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $settled = wait_for_query($self->{node},
		q{SELECT pg_catalog.bool_and(lag_rows = 0 AND in_flight_batch IS NULL AND state = 'waiting')
		  FROM incsink.stat_delivery},
		't', $name);
	diag($self->query('SELECT sink, state, reason, lag_rows, in_flight_batch, last_error FROM incsink.stat_delivery'))
	  if defined $name && !$settled;
	return $settled;
}

# Does the worker of a class stand inside its turn, at a point armed with "wait"?
# Outside of a turn it is idle, and nothing else in a turn waits for a latch.
sub worker_stands
{
	my ($self, $class) = @_;
	return $self->query(
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'incsink $class worker'
		 AND state = 'active' AND wait_event = 'Extension'") eq '1';
}

# Lets the worker of a class go on from FROM, where it waits, to TO, both points
# at which it comes by in every turn or which another process may pass too.
sub step_worker
{
	my ($self, $class, $from, $to) = @_;

	inject_file($self->{node}, $to, 'wait');
	disarm($self->{node}, $from);
	wait_until(sub { is_reached($self->{node}, $to) && !is_reached($self->{node}, $from) });
	wait_until(sub { $self->worker_stands($class) });
	return;
}

# Starts a server that was killed, its workers held before they read anything:
# what is done now is done before the retry.  go() lets them work.
sub start_held
{
	my ($self) = @_;

	disarm_all($self->{node});
	inject_file($self->{node}, 'worker-start-commit', 'wait');
	restart_after_kill($self->{node});
	wait_reached($self->{node}, 'worker-start-commit');
	return;
}

sub go
{
	my ($self) = @_;
	disarm($self->{node}, 'worker-start-commit');
	return;
}

# ------------------------------------------------------------------ the oracle

sub expected_rows
{
	my ($self) = @_;
	return [ split /\n/, $self->query(q{SELECT id || ' ' || v FROM t}) ];
}

sub row_key { return "$_[0]->{id} $_[0]->{v}"; }

# The same of a line that is not decoded, for many of them.
sub line_key { return $_[0] =~ /^\{"id":(-?\d+),"v":"([\w ]+)"[,}]/ ? "$1 $2" : $_[0]; }

# What is not as it must be, one line each; '' if all is well.  EXPECTED are the
# keys (id and v) of rows that must be stored, by default those of the table.
sub faults
{
	my ($self, %expected) = @_;
	my $default = $expected{forward} && $expected{file} ? [] : $self->expected_rows;
	my @faults;

	push @faults, $self->collector_faults($expected{forward} // $default) if $self->{collector};
	push @faults, $self->file_faults($expected{file} // $default) if $self->{dir};
	return join "\n", @faults;
}

sub collector_faults
{
	my ($self, $expected) = @_;
	my @stored = @{ $self->{collector}->entries(outcome => 'stored') };
	my @faults = row_faults('collector', $expected, [ map { line_key($_) } @{ $self->{collector}->lines } ]);

	push @faults, map { "collector: batch $_->{id} has the wrong digest" }
	  grep { $_->{digest} ne 'ok' } @stored;
	push @faults, map { "collector: batch $_->{id} has $_->{lines} lines and says $_->{rows}" }
	  grep { $_->{lines} ne $_->{rows} } @stored;
	push @faults, $self->range_faults('collector', map { [ $_->{since}, $_->{until} ] } @stored);
	return @faults;
}

sub file_faults
{
	my ($self, $expected) = @_;
	my @ranges;
	my @faults = row_faults('files', $expected, [ map { line_key($_) } @{ lines_in_files($self->{dir}) } ]);

	foreach my $name (sort map { m{([^/]+)$} } @{ files_below($self->{dir}) })
	{
		if ($name =~ /-(\d{19})-(\d{19})\.ndjson$/)
		{
			push @ranges, [ $1 + 0, $2 + 0 ];
		}
		else
		{
			push @faults, "files: a file has the name $name";
		}
	}
	push @faults, $self->range_faults('files', @ranges);
	push @faults, map { "files: $_ is left over" } @{ temporary_files($self->{dir}) };
	return @faults;
}

sub row_faults
{
	my ($where, $expected, $got) = @_;
	return map { "$where: $_" } @{ compare_rows($expected, $got)->{examples} };
}

# Ranges must follow each other.  One whose rows were all deleted before a retry
# ({emptied} says that there are such) was passed without a request or a file: there
# may be a gap, in which no row has its number.
sub range_faults
{
	my ($self, $where, @ranges) = @_;
	my @seqs = split /\n/, $self->query('SELECT ingest_seq FROM t ORDER BY ingest_seq');
	my $end = 0;
	my @faults;

	foreach my $range (@ranges)
	{
		my ($since, $until) = @$range;

		push @faults, "$where: ($since, $until] does not begin at $end, where the last one ended"
		  if $since < $end || ($since > $end && !$self->{emptied});
		push @faults, "$where: ($since, $until] is no range" if $until <= $since;
		push @faults, "$where: nothing covers the row with the number $seqs[0]"
		  if @seqs && $seqs[0] <= $since;
		shift @seqs while @seqs && $seqs[0] <= $until;
		$end = $until;
	}
	push @faults, "$where: nothing covers the row with the number $seqs[0]" if @seqs;
	return @faults;
}

# Names of unfinished files.
sub temporary_files
{
	my ($dir) = @_;
	my @files;

	find({ no_chdir => 1, wanted => sub { push @files, $_ if m{/\.incsink-[^/]*$} } }, $dir);
	return \@files;
}

1;
