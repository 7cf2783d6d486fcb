# Where a batch ends: at its limits, at the end of the backlog, and never between two
# rows with one number.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('batches', conf => ['autovacuum = off', 'incsink.enabled = off']);

sub sql { return $node->safe_psql('postgres', "SET client_min_messages = error; $_[0]"); }

# The ids of each batch and where it ends, as one line.
sub batches
{
	my ($table, $rows, $bytes, $filter) = @_;
	$rows //= 1000000;
	$bytes //= 1000000;
	my $lines = sql(sprintf "SELECT batches('%s', %d, %d, %s)", $table, $rows, $bytes,
		defined $filter ? "\$\$$filter\$\$" : 'NULL');
	$lines =~ s/\{"id":(\d+)[^}]*\}/$1/g;
	$lines =~ s/ +\n/\n/g;
	return join '; ', split /\n/, $lines;
}

sql(q{
	CREATE FUNCTION batches(regclass, bigint, bigint, text) RETURNS text
		LANGUAGE c AS '$libdir/incsink', 'incsink_test_batches';
	CREATE TABLE logs (id int PRIMARY KEY, pad text);
	INSERT INTO logs VALUES (3, 'xx'), (1, 'xx'), (2, 'xx');
	SELECT incsink_attach('logs');
	INSERT INTO logs SELECT i, 'xx' FROM generate_series(4, 7) i;
});

my $row = length qq[{"id":1,"pad":"xx"}\n];
my $alike = length qq[{"id":1,"leaf":1}\n];
my $end = '0.0000000000000000003';

is(batches('logs'), "3 $end []:1 2 3; 4 4 -:4 5 6 7",
	'a batch is of the backlog or of what came after it, and a backlog that was read to its end is over');
is(batches('logs', 2), "2 0.0000000000000000002 [\"2\"]:1 2; 1 $end []:3; 2 2 -:4 5; 2 4 -:6 7",
	'it ends at so many rows');
is(batches('logs', 3), "3 $end [\"3\"]:1 2 3; 0 $end []:; 3 3 -:4 5 6; 1 4 -:7",
	'a batch that ends with the last row of the backlog is followed by the news that it is over');
is(batches('logs', undef, 2 * $row), "2 0.0000000000000000002 [\"2\"]:1 2; 1 $end []:3; 2 2 -:4 5; 2 4 -:6 7",
	'it ends at so many bytes');
is(batches('logs', undef, 2 * $row + 1), "2 0.0000000000000000002 [\"2\"]:1 2; 1 $end []:3; 2 2 -:4 5; 2 4 -:6 7",
	'a row that would take it over them is taken back, with the key of the row before it');
is(batches('logs', undef, 1), "1 0.0000000000000000001 [\"1\"]:1; 1 0.0000000000000000002 [\"2\"]:2; 1 $end [\"3\"]:3; 0 $end []:; 1 1 -:4; 1 2 -:5; 1 3 -:6; 1 4 -:7",
	'a larger row goes alone');
is(batches('logs', undef, 2 * $row + 1, 'id <> 2 AND id <> 5 AND id <> 7'), "2 $end []:1 3; 2 4 -:4 6",
	'rows that the filter passes over are counted and passed');
is(batches('logs', 1, undef, 'id = 2 OR id = 6'), "1 0.0000000000000000002 [\"2\"]:2; 0 $end []:; 1 3 -:6; 0 4 -:",
	'also behind the last that it lets through');
is(batches('logs', undef, undef, 'id > 100'), "0 $end []:; 0 4 -:", 'and where it lets none through');
sql("INSERT INTO logs SELECT -i, 'xx' FROM generate_series(1, 5) i; UPDATE logs SET id = 0 WHERE id = -3");
is(batches('logs', 1, undef, 'id > 0 AND id < 4'), "1 0.0000000000000000006 [\"1\"]:1; 1 0.0000000000000000007 [\"2\"]:2; 1 0.0000000000000000008 [\"3\"]:3; 0 0.0000000000000000008 []:; 0 9 -:",
	'rows with numbers that stand between those without are counted and passed');
sql('DELETE FROM logs WHERE id <= 0');
sql('DELETE FROM logs WHERE id <= 3');
is(batches('logs', 2), '0 0 []:; 2 2 -:4 5; 2 4 -:6 7; 0 9 -:', 'a backlog without a row is over at once');
sql('DELETE FROM logs');
is(batches('logs', 2), '0 0 []:; 0 9 -:', 'an empty table is passed');

# Rows with one number, in three leaves.
sql(q{
	CREATE TABLE tree (id int, pad text) PARTITION BY RANGE (id);
	CREATE TABLE tree_0 PARTITION OF tree FOR VALUES FROM (0) TO (10);
	CREATE TABLE tree_1 (pad text, id int);
	ALTER TABLE tree ATTACH PARTITION tree_1 FOR VALUES FROM (10) TO (20);
	CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (20) TO (30);
	SELECT incsink_attach('tree');
	INSERT INTO tree VALUES (10, 'x'), (11, 'x'), (20, 'x'), (12, 'x'), (13, 'x');
	SET incsink.allow_explicit_seq = on;
	INSERT INTO tree (id, pad, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (1, 'xx', 3), (14, 'x', 3), (2, 'xx', 5);
});

is(batches('tree'), '8 5 -:10 11 1 14 20 12 2 13', 'leaves are merged by number; equal numbers come in the order of the leaves');
is(batches('tree', 1), '1 1 -:10; 1 2 -:11; 3 3 -:1 14 20; 1 4 -:12; 2 5 -:2 13', 'rows with one number go together');
is(batches('tree', 3), '5 3 -:10 11 1 14 20; 3 5 -:12 2 13', 'also beyond the limit of rows');
is(batches('tree', undef, 3 * $row), '2 2 -:10 11; 3 3 -:1 14 20; 3 5 -:12 2 13',
	'at that of bytes they go back together');
is(batches('tree', undef, 1), '1 1 -:10; 1 2 -:11; 3 3 -:1 14 20; 1 4 -:12; 2 5 -:2 13',
	'unless they are the first ones');
is(batches('tree', 1, undef, 'id <> 20 AND id <> 13'), '1 1 -:10; 1 2 -:11; 2 3 -:1 14; 1 4 -:12; 1 5 -:2',
	'a row that the filter passes over is one of them');

# The backlogs of leaves are read one after the other, in one batch.
sql(q{
	CREATE TABLE old (id int PRIMARY KEY, pad text) PARTITION BY RANGE (id);
	CREATE TABLE old_0 PARTITION OF old FOR VALUES FROM (0) TO (10);
	CREATE TABLE old_1 (pad text, id int NOT NULL);
	ALTER TABLE old ATTACH PARTITION old_1 FOR VALUES FROM (10) TO (20);
	CREATE TABLE old_2 PARTITION OF old FOR VALUES FROM (20) TO (30);
	CREATE TABLE old_3 PARTITION OF old FOR VALUES FROM (30) TO (40);
	INSERT INTO old SELECT i, 'xx' FROM unnest('{1,2,11,12,13,21,31,32}'::int[]) i;
	SELECT incsink_attach('old');
});
my @positions = map { sprintf '0.%019d', $_ } 0 .. 8;
is(batches('old'), "8 $positions[8] []:1 2 11 12 13 21 31 32", 'all leaves');
is(batches('old', 3), "3 $positions[3] [\"11\"]:1 2 11; 3 $positions[6] [\"21\"]:12 13 21; 2 $positions[8] []:31 32",
	'and from the middle of one to the middle of another');
is(batches('old', undef, 2 * $row + 3),
	"2 $positions[2] [\"2\"]:1 2; 2 $positions[4] [\"12\"]:11 12; 2 $positions[6] [\"21\"]:13 21; 2 $positions[8] []:31 32",
	'a row taken back may be the first of its leaf');
is(batches('old', 2, undef, 'id NOT IN (2, 11, 13, 21, 32)'), "2 $positions[4] [\"12\"]:1 12; 1 $positions[8] []:31",
	'those passed over count in all of them');
sql('DROP TABLE old_1; DELETE FROM old WHERE id = 21');
is(batches('old', 2), "2 $positions[2] [\"2\"]:1 2; 2 $positions[4] [\"32\"]:31 32; 0 $positions[4] []:",
	'a leaf that is gone, or empty, is passed over');

# Leaves may hold rows with the same key: no batch ends between two of them.
sql(q{
	CREATE TABLE alike (id int NOT NULL, leaf int) PARTITION BY LIST (leaf);
	CREATE TABLE alike_1 PARTITION OF alike (PRIMARY KEY (id)) FOR VALUES IN (1);
	CREATE TABLE alike_2 PARTITION OF alike (PRIMARY KEY (id)) FOR VALUES IN (2);
	CREATE TABLE alike_3 PARTITION OF alike (PRIMARY KEY (id)) FOR VALUES IN (3);
	INSERT INTO alike VALUES (1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (3, 3), (4, 3);
	SELECT incsink_attach('alike');
});
is(batches('alike', 1), "1 $positions[1] [\"1\"]:1; 2 $positions[3] [\"2\"]:2 2; 3 $positions[6] [\"3\"]:3 3 3; 1 $positions[7] [\"4\"]:4; 0 $positions[7] []:",
	'rows with one key stay together');
is(batches('alike', undef, 2 * $alike + 1), "1 $positions[1] [\"1\"]:1; 2 $positions[3] [\"2\"]:2 2; 3 $positions[6] [\"3\"]:3 3 3; 1 $positions[7] []:4",
	'or are taken back together');

# The worker waits for no lock.
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE old_3');
is($node->psql('postgres', q{SELECT batches('old', 100, 100000, NULL)}), 3, 'a leaf that is locked');
my ($code, $out, $error) = $node->psql('postgres', q{SELECT batches('old', 100, 100000, NULL)});
like($error, qr/busy/, 'makes the partition busy');
$holder->query_safe('COMMIT');
is(batches('old', 100), "4 $positions[4] []:1 2 31 32", 'until it is free');

$holder->quit;

done_testing();
