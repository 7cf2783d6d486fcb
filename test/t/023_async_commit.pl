# Writers commit with synchronous_commit = off, tokens and rows are handed out, and
# the server is killed: whatever somebody has been told of is still there, under its
# number, and nothing is missed from there on.

use strict;
use warnings;

use Export;
use IncsinkTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

# Nobody but incsink writes WAL out, as far as that can be had.
my $export = Export->new(
	'async',
	forward => {},
	conf => [
		'wal_writer_delay = 10s',
		'wal_writer_flush_after = 1GB',
		'bgwriter_lru_maxpages = 0',
		'autovacuum = off',
		'incsink.enabled = off',
	]);
my $node = $export->node;
my $collector = $export->collector;
my $json = JSON::PP->new->allow_bignum;
my $lost = 0;				# rows that were committed, told to nobody, and are gone

# --------------------------------------------------- rows and tokens of a reader
my $token = 'NULL';
my @told;					# "token data" of every row that was ever read

foreach my $round (1 .. 6)
{
	insert_async(7) foreach 1 .. 3;
	my @rows = read_since($token);
	push @told, @rows;
	$token = token_of($rows[-1]) if @rows;

	# Some more, which nobody reads before the crash.
	my ($first, $last) = insert_async(5);
	kill9_server($node);
	restart_after_kill($node);

	cmp_ok(scalar @rows, '>=', 21, "round $round: the rows are read");
	is(join("\n", read_since('NULL')) =~ /^\Q@{[ join "\n", @told ]}\E/ ? 'yes' : 'no', 'yes',
		"round $round: what was read before the crash is there after it, under its number");
	$lost += 5 - $export->query("SELECT count(*) FROM t WHERE id BETWEEN $first AND $last");
}
{
	push @told, read_since($token);
	is(join("\n", sort map { id_of($_) } @told), join("\n", sort split /\n/, $export->query('SELECT id FROM t')),
		'reading on from the tokens has met every row, once');
	cmp_ok($lost, '>', 0, 'rows that nobody was told of were lost: the crashes were real ones');
}

# ------------------------------------------- tokens that come without rows
foreach my $function ('incsink_horizon', 'incsink_last_token')
{
	# 50 numbers, of which the last were never written out by a commit.
	$export->query(q{SET synchronous_commit = off;
		BEGIN;
		INSERT INTO t SELECT -g, 'rolled back' FROM generate_series(1, 50) AS g;
		ROLLBACK});
	my $since = $export->query("SELECT $function('t')");
	kill9_server($node);
	restart_after_kill($node);
	my ($first, $last) = $export->insert(10);
	is(join(' ', map { id_of($_) } read_since("'$since'")), join(' ', $first .. $last),
		"a token of $function() is not passed by rows that come after a crash");
}

# ------------------------------------------------------- killed while it reads
{
	insert_async(5);
	inject($node, 'before-read-flush', 'kill once');
	my $offset = -s $node->logfile;
	my ($status, $out) = $node->psql('postgres', "SELECT token, data FROM incsink_read_since('t', $token)");
	isnt($status, 0, 'a session that is killed before it has flushed what it read');
	is($out // '', '', 'has returned nothing');
	wait_until(sub { server_log_like($node, qr/reinitializing.*ready to accept connections/s, $offset) });
	$export->insert(5);
	is(join("\n", sort map { id_of($_) } read_since('NULL')),
		join("\n", sort split /\n/, $export->query('SELECT id FROM t')), 'and the next one gets every row');
}

# ------------------------------------------------------------- exported rows
$node->append_conf('postgresql.conf', "incsink.enabled = on\n");
$export->add_file;
$node->reload;
$export->settle('what was there is exported');
is($export->faults, '', 'each row once');

# What has left the server is in the table after the crash, where the collector has
# it, where only the intent is committed, and where a file has its name.
foreach my $moment (
	[ 'the collector has a batch and has not answered', undef ],
	[ 'an intent is committed', 'before-send' ],
	[ 'a file has its name', 'file-after-rename' ],
	[ 'a file is durable', 'file-after-dir-fsync' ])
{
	my ($name, $point) = @$moment;

	foreach my $round (1 .. 3)
	{
		if ($point)
		{
			inject_file($node, $point, 'wait');
		}
		else
		{
			$collector->control('store hang');
		}
		insert_async(4);
		wait_until(sub { $point ? is_reached($node, $point) : $collector->held });
		insert_async(3);
		kill9_server($node);
		$export->start_held;
		$collector->back_to_normal;

		my %table = map { $_ => 1 } @{ $export->expected_rows };
		my @away = (@{ rows_at_collector($collector, \&Export::row_key) },
			@{ rows_in_files($export->dir, \&Export::row_key) });
		is(join(', ', grep { !$table{$_} } @away), '', "killed when $name: what has left is in the table");
		$export->insert(4);
		$export->go;
		$export->settle;
		is($export->faults, '', 'and with the rows that follow each is stored once');
	}
}

done_testing();

# Rows that are committed, and durable whenever somebody sees to it.
sub insert_async
{
	my ($count) = @_;
	my $first = $export->{next_id};
	my $last = $first + $count - 1;

	$export->query("SET synchronous_commit = off;
		INSERT INTO t SELECT g, 'row ' || g FROM generate_series($first, $last) AS g");
	$export->{next_id} = $last + 1;
	return ($first, $last);
}

# Lines "token<tab>data".
sub read_since
{
	my ($since) = @_;
	return split /\n/,
	  $export->query("SELECT token::text || E'\\t' || data::text FROM incsink_read_since('t', $since)");
}

sub token_of { return "'" . (split /\t/, $_[0])[0] . "'"; }
sub id_of { return $json->decode((split /\t/, $_[0])[1])->{id}; }
