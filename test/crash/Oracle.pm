# Oracle.pm: compares what was stored with what was committed (invariant I11).
#
#	my $oracle = Oracle->new(ledger => DIR, files => DIR, traffic => DIR);
#	my @faults = $oracle->check($server);		# all is settled, nobody writes
#	$oracle->{count}					# { missing, duplicate, unexpected, other }
#	$oracle->remark						# numbers for people
#
# "Stored" is what the collector's ledger and the files hold, "committed" what the
# journal in the database says (schema.sql).  Of each sink and table, in each of its
# lives (that begin with a restart; a promotion begins a new epoch in the same life):
#
# - a row that is stored was committed, as it was at some time;
# - it is stored once;
# - a row that is in the table is stored;
# - a row that was taken away when the sink's position had passed it is stored;
# - ranges follow each other, and hold the rows that are in the table with their numbers;
# - every digest and count fits, no file is left over, no intent is left, all is healthy.
#
# A reader who goes on from token to token has every row once, too.
#
# What was checked is forgotten: journal, bodies and files.

package Oracle;

use strict;
use warnings;

use File::Find;

my @sinks = qw(central archive);
my $examples = 40;					# of each kind are named

sub new
{
	my ($class, %self) = @_;
	return bless {
		count => { map { $_ => 0 } qw(missing duplicate unexpected other) },
		faults => [],
		rows => 0, batches => { map { $_ => 0 } @sinks }, repeated => 0, gaps => 0, told => 0, gone => 0,
		ledger_offset => 0, told_offset => {}, epochs => {}, lost_lives => 0,
		%self
	}, $class;
}

sub fault
{
	my ($self, $kind, $text) = @_;

	push @{ $self->{faults} }, "$kind: $text" if $self->{count}{$kind}++ < $examples;
	return;
}

sub remark
{
	my ($self) = @_;

	return sprintf '%d rows committed, %d of them taken away; %d batches at the collector, %d requests repeated; '
	  . '%d files; %d gaps of ranges that were empty at a retry; %d rows read by token; %d epochs',
	  @$self{qw(rows gone)}, $self->{batches}{central}, $self->{repeated}, $self->{batches}{archive}, @$self{qw(gaps told)},
	  scalar keys %{ $self->{epochs} };
}

sub check
{
	my ($self, $server) = @_;

	$self->{faults} = [];
	$self->{covered} = {};
	$self->read_journal($server);
	$self->read_ledger;
	$self->read_files;
	$self->check_gone;
	$self->check_table($server, $_) foreach $self->tables($server);
	$self->check_readers($server);
	$self->check_health($server);
	$self->forget($server) unless @{ $self->{faults} };
	return @{ $self->{faults} };
}

# --------------------------------------------------------------------- journal

sub read_journal
{
	my ($self, $server) = @_;
	my $journal = $server->query(q{
		SELECT 'R', sink, tab, epoch FROM journal_restart;
		SELECT 'I', tab, first, last FROM journal_insert;
		SELECT 'U', tab, id, v FROM journal_update;
		SELECT 'G', tab, id, seq, central_epoch, central_seq, archive_epoch, archive_seq FROM journal_gone;
	});

	$self->{new_gone} = [];
	foreach my $line (split /\n/, $journal)
	{
		my ($kind, $tab, @entry) = split /\|/, $line;

		if ($kind eq 'I')
		{
			$self->{committed}{$tab}{$_} = undef foreach $entry[0] .. $entry[1];
			$self->{rows} += $entry[1] - $entry[0] + 1;
		}
		elsif ($kind eq 'U') { $self->{versions}{$tab}{"$entry[0] $entry[1]"} = undef; }
		elsif ($kind eq 'G') { push @{ $self->{new_gone} }, [ $tab, @entry ]; }
		else { push @{ $self->{restarts}{"$tab $entry[0]"} }, number_of($entry[1]); }
	}
	return;
}

sub number_of { return $_[0] =~ /^(\d+)-[0-9a-f]{8}$/ ? $1 : die "$_[0] is no epoch\n"; }

# The life that an epoch belongs to, from 0.
sub life
{
	my ($self, $sink, $tab, $epoch) = @_;
	my $number = number_of($epoch);

	return scalar grep { $_ <= $number } @{ $self->{restarts}{"$sink $tab"} // [] };
}

sub current_life { return scalar @{ $_[0]->{restarts}{"$_[1] $_[2]"} // [] }; }

# ---------------------------------------------------------------------- stored

# One batch: its lines, and its range, which follows the one before.
sub store
{
	my ($self, $sink, $tab, $epoch, $since, $until, $lines) = @_;
	my $life = $self->life($sink, $tab, $epoch);
	my $stored = $self->{stored}{$sink}{$tab}[$life] //= {};
	my $committed = $self->{committed}{$tab} //= {};
	my $versions = $self->{versions}{$tab} // {};
	my $name = "$sink, epoch $epoch, ($since, $until] of $tab";

	$self->{batches}{$sink}++;
	$self->{epochs}{"$sink $tab $epoch"} = 1;
	$self->check_range($name, "$sink $tab $life", $since, $until);
	foreach my $line (@$lines)
	{
		my ($id, $v) = $line =~ /^\{"id":(\d+),"v":"([\w-]+)"[,}]/;

		if (!defined $id) { $self->fault('unexpected', "$name: $line"); next; }
		if (!exists $committed->{$id} || ($v ne "i$id" && !exists $versions->{"$id $v"}))
		{
			$self->fault('unexpected', "$name: id $id, v $v were never committed");
		}
		elsif ($stored->{$id}++)
		{
			$self->fault('duplicate', "$name: id $id, which was stored in the same life before");
		}
		$self->{covered}{$sink}{$tab}{$id} = [ position($since), position($until) ];
	}
	return;
}

# (seq, n) of a position as headers and names write it.
sub position
{
	my ($text) = @_;
	return $text =~ /^0+\.(\d+)$/ ? (0, $1 + 0) : ($text + 0, 0);
}

sub name_of { return $_[0] || !$_[1] ? $_[0] : "0.$_[1]"; }

sub compare { return $_[0] <=> $_[2] || $_[1] <=> $_[3]; }

sub check_range
{
	my ($self, $name, $key, $since, $until) = @_;
	my @since = position($since);
	my @until = position($until);
	my $end = $self->{end}{$key};

	# A sink that started "now" begins anywhere.
	$end //= [ $key =~ / renumbered/ ? @since : (0, 0) ];
	my $order = compare(@since, @$end);
	$self->fault('other', "$name begins before " . name_of(@$end) . ', where the one before it ended') if $order < 0;
	$self->{gaps}++ if $order > 0;
	$self->fault('other', "$name is no range") if compare(@since, @until) >= 0;
	$self->{end}{$key} = [@until];
	return;
}

sub read_ledger
{
	my ($self) = @_;

	open my $file, '<:raw', "$self->{ledger}/ledger.tsv" or return;
	my @names = split /\t/, <$file> =~ s/\n//r;
	my @stored;
	seek $file, $self->{ledger_offset}, 0 if $self->{ledger_offset};
	while (my $line = <$file>)
	{
		last unless $line =~ s/\n\z//;
		my %entry;
		@entry{@names} = split /\t/, $line, -1;
		$self->{ledger_offset} = tell $file;
		$self->{repeated}++ if $entry{outcome} eq 'duplicate';
		push @stored, \%entry if $entry{outcome} eq 'stored';
	}
	# Several of one delivery are on their way at a time; nothing is when this is read.
	$self->read_entry($_) foreach sort {
		number_of($a->{epoch}) <=> number_of($b->{epoch}) || compare(map { position($_) } $a->{since}, $b->{since})
	} @stored;
	return;
}

sub read_entry
{
	my ($self, $entry) = @_;
	my $tab = $entry->{dataset} =~ s/^public\.//r;
	my @lines = split /\n/, slurp("$self->{ledger}/bodies/$entry->{body}");

	$self->fault('other', "collector: batch $entry->{id} has the wrong digest") if $entry->{digest} ne 'ok';
	$self->fault('other', "collector: batch $entry->{id} has " . @lines . " lines and says $entry->{rows}") if @lines != $entry->{rows};
	$self->store('central', $tab, $entry->{epoch}, $entry->{since}, $entry->{until}, \@lines);
	push @{ $self->{seen} }, "$self->{ledger}/bodies/$entry->{body}";
	return;
}

sub slurp
{
	my ($path) = @_;

	open my $file, '<:raw', $path or die "$path: $!\n";
	local $/;
	return <$file> // '';
}

sub read_files
{
	my ($self) = @_;
	my @found;

	find({ no_chdir => 1, wanted => sub { push @found, $_ if -f && !m{/_incsink_claim$} } }, $self->{files});
	my @batches;
	foreach my $path (@found)
	{
		if ($path =~ m{/public\.(\w+)/default/at=([\d.]+)/archive-e(\d+-[0-9a-f]{8})-([\d.]+)-([\d.]+)\.ndjson$} && $2 eq $4)
		{
			push @batches, [ $path, $1, $3, $4, $5 ];
		}
		else
		{
			$self->fault('other', "files: $path is left over");
		}
	}
	foreach my $batch (sort { number_of($a->[2]) <=> number_of($b->[2]) || compare(map { position($_) } $a->[3], $b->[3]) } @batches)
	{
		my ($path, @batch) = @$batch;
		my $body = slurp($path);

		$self->fault('other', "files: $path does not end with a line") if substr($body, -1) ne "\n";
		$self->store('archive', @batch, [ split /\n/, $body ]);
		push @{ $self->{seen} }, $path;
	}
	return;
}

# ------------------------------------------------------------------- committed

# Rows that were taken away: those that a sink's position had passed are stored.
sub check_gone
{
	my ($self) = @_;

	foreach my $entry (@{ $self->{new_gone} })
	{
		my ($tab, $id, $seq, @positions) = @$entry;

		$self->{gone}++;
		$self->{is_gone}{$tab}{$id} = undef;
		foreach my $sink (@sinks)
		{
			my ($epoch, $passed) = splice @positions, 0, 2;

			next unless $epoch && $passed > 0 && $seq <= $passed;
			my $life = $self->life($sink, $tab, $epoch);
			next if exists(($self->{stored}{$sink}{$tab}[$life] // {})->{$id});
			# A leaf that has left is not exported again after a restart.
			next if $tab eq 'tree' && $self->is_stored($sink, $tab, $id);
			$self->fault('missing', "$sink: id $id of $tab with number $seq, taken away when the position was $passed in epoch $epoch");
		}
	}
	return;
}

sub is_stored
{
	my ($self, $sink, $tab, $id) = @_;
	return scalar grep { $_ && exists $_->{$id} } @{ $self->{stored}{$sink}{$tab} // [] };
}

# Tables that sinks export.
sub tables
{
	my ($self, $server) = @_;
	return split /\n/, $server->query('SELECT table_name FROM incsink.partitions ORDER BY 1');
}

sub check_table
{
	my ($self, $server, $tab) = @_;
	my $rows = $server->query("SELECT id, v, ingest_seq, 't' FROM $tab");
	my $committed = $self->{committed}{$tab} // {};
	my %seqs;
	my %alive;

	if ($tab eq 'tree')
	{
		my @left = split /\n/, $server->query('SELECT relname FROM pg_class WHERE relname ~ \'^tree_\d+$\' AND NOT relispartition');
		$rows .= join '', map { "\n" . $server->query("SELECT id, v, ingest_seq, 'f' FROM $_") } @left;
	}
	foreach my $line (split /\n/, $rows)
	{
		next if $line eq '';
		my ($id, $v, $seq, $attached) = split /\|/, $line;

		$alive{$id} = 1;
		$self->fault('other', "$tab: id $id is in the table and not in the journal") unless exists $committed->{$id};
		$self->fault('other', "$tab: number $seq was given twice, to id $id, too") if $seq > 0 && $seqs{$seq}++;
		$self->check_row($tab, $id, $seq, $attached);
	}
	foreach my $id (keys %$committed)
	{
		$self->fault('other', "$tab: id $id is in the journal and not in the table")
		  unless $alive{$id} || exists $self->{is_gone}{$tab}{$id};
	}
	return;
}

# One row of a table.
sub check_row
{
	my ($self, $tab, $id, $seq, $attached) = @_;

	foreach my $sink (@sinks)
	{
		my $life = $self->current_life($sink, $tab);
		my $stored = $attached eq 't' ? exists(($self->{stored}{$sink}{$tab}[$life] // {})->{$id}) : $self->is_stored($sink, $tab, $id);
		my $range = $self->{covered}{$sink}{$tab}{$id};

		$self->fault('missing', "$sink: id $id of $tab with number $seq, which is in the table") unless $stored;
		next unless $range && $seq > 0;
		my ($since, undef, $until, undef) = @$range;
		$self->fault('other', "$sink: id $id of $tab with number $seq came in ($since, $until]") if $seq <= $since || $seq > $until;
	}
	return;
}

# --------------------------------------------------------------------- readers

# Rows of leaves that were detached and came back may have been passed meanwhile:
# nobody waits for readers.  So what is missing is looked for in "plain" alone.
sub check_readers
{
	my ($self, $server) = @_;

	foreach my $tab (qw(plain tree))
	{
		$self->read_told($tab);
		next unless $tab eq 'plain';
		my $told = $self->{reader}{$tab}[-1] // {};
		foreach my $id (split /\n/, $server->query("SELECT id FROM $tab"))
		{
			$self->fault('missing', "reader: id $id of $tab, which is in the table") unless exists $told->{$id};
		}
	}
	return;
}

sub read_told
{
	my ($self, $tab) = @_;
	my $path = "$self->{traffic}/reader_$tab.told";

	open my $file, '<', $path or return;
	seek $file, $self->{told_offset}{$tab} // 0, 0;
	while (my $line = <$file>)
	{
		chomp $line;
		if ($line =~ /^# life ends/)
		{
			$self->{lost_lives}++;
			next;
		}
		if ($line =~ /^#/)
		{
			$self->fault('other', "reader of $tab: $line") unless $line =~ /terminating connection|shutting down|starting up|recovery/;
			next;
		}
		my ($life, $id, $v) = split / /, $line;

		$self->{told}++;
		$self->fault('unexpected', "reader: id $id of $tab, v $v, was never committed")
		  unless exists $self->{committed}{$tab}{$id} && ($v eq "i$id" || exists $self->{versions}{$tab}{"$id $v"});
		$self->fault('duplicate', "reader: id $id of $tab came twice") if $self->{reader}{$tab}[$life]{$id}++;
	}
	$self->{told_offset}{$tab} = tell $file;
	$self->fault('other', "readers lost their place $self->{lost_lives} times, with $self->{promotions} promotions")
	  if $self->{lost_lives} > 2 * $self->{promotions};
	return;
}

# ---------------------------------------------------------------------- health

# Queries that return nothing when all is well.
my %health = (
	'an intent is left' => 'SELECT i.* FROM incsink.intent i',
	'incsink.status' => q{SELECT sink, state, reason, hint, last_error FROM incsink.status
		WHERE state <> 'waiting' OR reason IS NOT NULL OR hint IS NOT NULL},
	'incsink.stat_worker' => q{SELECT class, state, last_error, hint FROM incsink.stat_worker WHERE state <> 'running'},
	'incsink.partitions' => q{SELECT table_name, error, hint, preparing, rows_lost FROM incsink.partitions
		WHERE error IS NOT NULL OR hint IS NOT NULL OR preparing OR rows_lost > 0},
);

sub check_health
{
	my ($self, $server) = @_;

	foreach my $name (sort keys %health)
	{
		$self->fault('other', "$name: $_") foreach split /\n/, $server->query($health{$name});
	}
	return;
}

# ------------------------------------------------------------------- forgetting

sub forget
{
	my ($self, $server) = @_;

	$server->query('TRUNCATE journal_insert, journal_update, journal_gone, journal_restart');
	unlink @{ $self->{seen} // [] };
	$self->{seen} = [];
	$self->forget_lives;
	return;
}

# Rows that are gone for good in lives that are over need not be known any more.
sub forget_lives
{
	my ($self) = @_;

	foreach my $sink (@sinks)
	{
		foreach my $tab (grep { $_ ne 'tree' } keys %{ $self->{stored}{$sink} })
		{
			my $lives = $self->{stored}{$sink}{$tab};
			$lives->[$_] = undef foreach 0 .. $self->current_life($sink, $tab) - 1;
		}
	}
	return;
}

# A table that was dropped.
sub forget_table
{
	my ($self, $tab) = @_;

	delete $self->{$_}{$tab} foreach qw(committed versions is_gone);
	delete $self->{stored}{$_}{$tab} foreach @sinks;
	return;
}

1;
