# Traffic.pm: processes that write, read and alter the tables of schema.sql all the
# time, whatever happens to the server.
#
#	my $traffic = Traffic->new(dir => DIR, seed => N, writers => 3);
#	$traffic->connect_to($server);
#	$traffic->start;
#	$traffic->pause;			# returns when nobody is in a statement
#	$traffic->drain;			# and readers have read what there is
#	$traffic->go(safe => 1);	# every commit waits for the standby
#	$traffic->stop;
#
# They are told what to do by files in DIR, and go on through one psql after the
# other.

package Traffic;

use strict;
use warnings;

use Carp;
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

my @tables = qw(plain plain tree tree old);
my $ids_of_writer = 1_000_000_000;

sub new
{
	my ($class, %self) = @_;
	my $self = bless { children => {}, %self }, $class;

	$self->tell('order', 'pause');
	return $self;
}

sub tell
{
	my ($self, $name, $text) = @_;

	open my $file, '>', "$self->{dir}/.$name" or croak "$self->{dir}/.$name: $!";
	print $file $text;
	close $file or croak "$self->{dir}/.$name: $!";
	rename "$self->{dir}/.$name", "$self->{dir}/$name" or croak "$self->{dir}/$name: $!";
	return;
}

sub told
{
	my ($self, $name) = @_;

	open my $file, '<', "$self->{dir}/$name" or return '';
	return scalar(<$file>) // '';
}

sub connect_to
{
	my ($self, $server) = @_;
	$self->tell('connection', $server->connection);
	return;
}

sub start
{
	my ($self) = @_;

	$self->{children}{ $self->child("writer$_", \&write_rows, $_) } = "writer$_" foreach 1 .. $self->{writers};
	$self->{children}{ $self->child('alterer', \&alter_tables, 98) } = 'alterer';
	$self->{children}{ $self->child("reader_$_", \&read_rows, $_) } = "reader_$_" foreach qw(plain tree);
	return;
}

# A process that calls CODE again and again, unless there is a pause.
sub child
{
	my ($self, $name, $code, @arguments) = @_;
	my $pid = fork() // die "fork: $!";
	my %state = (name => $name, round => 0);

	return $pid if $pid;
	$SIG{$_} = 'DEFAULT' foreach qw(INT TERM HUP);
	srand($self->{seed} + length($name) * 1000 + ord substr($name, -1));
	my $parent = getppid;
	while (getppid == $parent)
	{
		my ($order, $number) = split / /, $self->told('order');

		if (($state{done} // '') eq ($number // ''))
		{
			sleep 0.02;
		}
		elsif ($order eq 'run' || ($order eq 'drain' && $name =~ /^reader/))
		{
			my $drained = $code->($self, \%state, @arguments);

			next if $order eq 'run' || !$drained;
			$self->tell("done.$name", $state{done} = $number);
		}
		else
		{
			$self->tell("done.$name", $state{done} = $number);
		}
	}
	POSIX::_exit(0);
}

sub order
{
	my ($self, $order) = @_;

	$self->{number}++;
	$self->tell('order', "$order $self->{number}");
	return;
}

sub go
{
	my ($self, %how) = @_;

	$self->tell('safe', $how{safe} ? 1 : 0);
	$self->order('run');
	return;
}

sub pause { return $_[0]->rest('pause', 120); }
sub drain { return $_[0]->rest('drain', 120); }

# Returns the names of those who do not come to rest.
sub rest
{
	my ($self, $order, $patience) = @_;
	my @busy;

	$self->order($order);
	for (my $until = time + $patience; time < $until; sleep 0.02)
	{
		@busy = grep { $self->told("done.$_") ne $self->{number} } values %{ $self->{children} };
		last unless @busy;
	}
	return @busy;
}

sub stop
{
	my ($self) = @_;

	foreach my $pid (keys %{ $self->{children} })
	{
		kill 'KILL', $pid;
		waitpid $pid, 0;
	}
	$self->{children} = {};
	return;
}

sub is_alive { return !grep { waitpid($_, WNOHANG) != 0 } keys %{ $_[0]->{children} }; }

# Runs a script; true if it came to its end, errors of statements apart.
sub psql
{
	my ($self, $name, $script, @options) = @_;
	my $base = "$self->{dir}/$name";
	my $connection = $self->told('connection');

	open my $file, '>', "$base.sql" or croak "$base.sql: $!";
	print $file "SET statement_timeout = '20s'; SET lock_timeout = '2s'; SET client_min_messages = warning;\n$script";
	close $file;
	return system("psql -XAtq @options -d \"$connection\" -f $base.sql >$base.out 2>$base.err </dev/null") == 0;
}

# --------------------------------------------------------------------- writers

sub write_rows
{
	my ($self, $state, $number) = @_;
	my $safe = $self->told('safe');

	$state->{next} //= $number * $ids_of_writer;
	$state->{number} = $number;
	my $script = join '', map { transaction($state, $safe) } 1 .. 15;
	$self->psql($state->{name}, $script) or sleep 0.05;
	return;
}

sub pause_inside { return rand() < 0.5 ? '' : sprintf "SELECT pg_sleep(%.4f);\n", rand()**3 * 0.1; }

sub note_insert { return "INSERT INTO journal_insert VALUES ('$_[0]', $_[1], $_[2]);\n"; }

# Takes the next COUNT ids.
sub take
{
	my ($state, $count) = @_;
	my $first = $state->{next};

	$state->{next} += $count;
	return ($first, $first + $count - 1);
}

sub insert_values
{
	my ($state, $table) = @_;
	my ($first, $last) = take($state, 1 + int rand 5);

	return "INSERT INTO $table (id, v) VALUES " . join(', ', map { "($_, 'i$_')" } $first .. $last) . ";\n"
	  . note_insert($table, $first, $last);
}

sub insert_alone
{
	my ($state, $table) = @_;
	my ($id) = take($state, 1);

	return "WITH i AS (INSERT INTO $table (id, v) VALUES ($id, 'i$id') RETURNING id)"
	  . " INSERT INTO journal_insert SELECT '$table', id, id FROM i;\n";
}

sub insert_series
{
	my ($state, $table) = @_;
	my ($first, $last) = take($state, 40);

	return "INSERT INTO $table (id, v) SELECT g, 'i' || g FROM generate_series($first, $last) AS g;\n"
	  . note_insert($table, $first, $last);
}

sub copy
{
	my ($state, $table) = @_;
	my ($first, $last) = take($state, 30);

	return "COPY $table (id, v) FROM STDIN;\n" . join('', map { "$_\ti$_\n" } $first .. $last) . "\\.\n"
	  . note_insert($table, $first, $last);
}

# Some of the own rows: the last ones, which wait to be exported, or earlier ones; of the
# table that had rows, those, too.
sub some_rows
{
	my ($state, $table, $count) = @_;
	my $first = $state->{number} * $ids_of_writer;
	my $id = $state->{next} - 1 - int(rand() < 0.6 ? rand 60 : rand($state->{next} - $first));

	$id = $state->{number} * 1000 - int rand 1000 if $table eq 'old' && rand() < 0.6;
	return "id BETWEEN $id AND " . ($id + $count);
}

sub update
{
	my ($state, $table) = @_;
	my $v = "u$state->{number}-" . $state->{updates}++;

	return "WITH u AS (UPDATE $table SET v = '$v' WHERE " . some_rows($state, $table, int rand 10)
	  . " RETURNING id, v) INSERT INTO journal_update SELECT '$table', id, v FROM u;\n";
}

sub remove
{
	my ($state, $table) = @_;

	return "WITH d AS (DELETE FROM $table WHERE " . some_rows($state, $table, int rand 8) . " RETURNING id, ingest_seq)"
	  . " INSERT INTO journal_gone SELECT '$table', d.id, d.ingest_seq, p.central_epoch, p.central_seq, p.archive_epoch,"
	  . " p.archive_seq FROM d LEFT JOIN positions p ON p.tab = '$table';\n";
}

my @changes = (\&insert_values, \&insert_values, \&insert_series, \&copy, \&update, \&remove);

sub change { return $changes[ rand @changes ]->(@_); }

sub transaction
{
	my ($state, $safe) = @_;
	my $table = $tables[ rand @tables ];
	my $kind = int rand 12;
	my $set = 'SET synchronous_commit = ' . ($safe || rand() < 0.6 ? 'on' : 'off') . ";\n";
	my ($first, $more) = map { change($state, rand() < 0.8 ? $table : $tables[ rand @tables ]) } 1, 2;

	return $set . insert_alone($state, $table) if $kind <= 2;
	return $set . (rand() < 0.5 ? update($state, $table) : remove($state, $table)) if $kind == 3;
	return "${set}BEGIN;\n$first" . pause_inside() . "COMMIT;\n" if $kind <= 5;
	return "${set}BEGIN;\n$first" . pause_inside() . $more . pause_inside() . "COMMIT;\n" if $kind <= 7;
	return "BEGIN;\n$first" . pause_inside() . "ROLLBACK;\n" if $kind == 8;
	return "${set}BEGIN;\n${first}SAVEPOINT s;\n$more" . pause_inside() . "ROLLBACK TO s;\n" . change($state, $table)
	  . "COMMIT;\n" if $kind <= 10;
	return prepared($state, "$set", $first);
}

# Some are left over for the next crash.
sub prepared
{
	my ($state, $set, $first) = @_;
	my $gid = "$state->{name}-" . $state->{prepared}++;
	my $prepare = "${set}BEGIN;\n${first}PREPARE TRANSACTION '$gid';\n" . pause_inside();

	return $prepare if rand() < 0.2;
	return $prepare . (rand() < 0.7 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid';\n";
}

# ------------------------------------------------------------------ alterations

my @alterations = (
	'ALTER TABLE plain ADD COLUMN IF NOT EXISTS extra integer DEFAULT 7',
	'ALTER TABLE plain DROP COLUMN IF EXISTS extra',
	'ALTER TABLE tree ADD COLUMN IF NOT EXISTS extra integer DEFAULT 7',
	'ALTER TABLE tree DROP COLUMN IF EXISTS extra',
	'CREATE INDEX IF NOT EXISTS plain_v ON plain (v)',
	'DROP INDEX IF EXISTS plain_v',
	'VACUUM FULL plain',
	'VACUUM FULL old',
	'CLUSTER plain USING plain_pkey',
	'VACUUM tree',
	'ANALYZE plain',
	(map { "CALL trim_table('$_', 300)" } qw(plain tree old)),
	(map { "BEGIN; LOCK TABLE plain; CALL note_gone('plain', 'plain'); TRUNCATE plain$_; COMMIT" } '', ' RESTART IDENTITY'),
	(map { "CALL add_leaf('tree', period() + $_)" } 1, 1, 2),
	('CALL detach_leaf()') x 2,
	'CALL attach_leaf()',
	'CALL drop_leaf()',
);

sub alter_tables
{
	my ($self, $state) = @_;
	my $set = 'SET synchronous_commit = ' . ($self->told('safe') || rand() < 0.6 ? 'on' : 'off') . ";\n";

	$self->psql($state->{name}, $set . "SET lock_timeout = '1s';\n" . $alterations[ rand @alterations ] . ";\n");
	sleep(0.1 + rand 0.4);
	return;
}

# --------------------------------------------------------------------- readers

# Reads on from the last token; "life id v" of each row goes to a file, where the
# oracle finds it.  A new life begins when a token is no longer good, which is so after
# a promotion only.  True when there was nothing more.
sub read_rows
{
	my ($self, $state, $table) = @_;
	my $since = $state->{token} ? "'$state->{token}'" : 'NULL';

	$state->{life} //= 0;
	my $ok = $self->psql($state->{name},
		"\\set ON_ERROR_STOP on\nSELECT token, data->>'id', data->>'v' FROM incsink_read_since('$table', $since, max_rows => 400);\n");
	open my $out, '<', "$self->{dir}/$state->{name}.out" or return 0;
	my @rows = map { chomp; [ split /\|/ ] } <$out>;

	if (!$ok)
	{
		open my $err, '<', "$self->{dir}/$state->{name}.err" or return 0;
		my $error = do { local $/; <$err> } // '';

		if ($error =~ /earlier life|above the last number/)
		{
			$self->remember($state, "# life ends: $error");
			$state->{life}++;
			delete $state->{token};
		}
		elsif ($error =~ /ERROR/)
		{
			$self->remember($state, "# error: $error");
		}
		sleep 0.05;
		return 0;
	}
	$self->remember($state, map { "$state->{life} $_->[1] $_->[2]" } @rows);
	$state->{token} = $rows[-1][0] if @rows;
	sleep 0.05 if @rows < 100;
	return !@rows;
}

sub remember
{
	my ($self, $state, @lines) = @_;

	open my $file, '>>', "$self->{dir}/$state->{name}.told" or croak "told: $!";
	print $file map { s/\n/ /gr . "\n" } @lines;
	close $file or croak "told: $!";
	return;
}

1;
