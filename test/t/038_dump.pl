# A dump carries sinks, positions and tables; the restored database exports
# nothing until it is adopted, and then goes on where the dump stood.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('dump');
my $collector = Collector->new;
my $url = $collector->url;

$node->safe_psql('postgres', qq{
	CREATE SCHEMA "Odd Names";
	CREATE TABLE "Odd Names"."Lögs" (id bigint, v text);
	CREATE TABLE adopted (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
	SELECT incsink_attach('"Odd Names"."Lögs"'), incsink_attach('adopted', adopt => 'id');
	SELECT incsink_create_sink('central', '$url', tables => '{"\\"Odd Names\\".\\"Lögs\\"",adopted}');
	INSERT INTO "Odd Names"."Lögs" SELECT i, 'before' FROM generate_series(1, 100) i;
	INSERT INTO adopted (v) SELECT 'before' FROM generate_series(1, 50);
});
wait_until(sub { $collector->count->{rows} == 150 }, 'rows arrive before the dump');
wait_for_query($node, 'SELECT count(*) FROM incsink.intent', '0', 'nothing is in flight');

# A dump is found by the names that its tables have then.
$node->safe_psql('postgres', q{
	CREATE SCHEMA moved;
	ALTER TABLE adopted RENAME TO renamed;
	ALTER TABLE renamed SET SCHEMA moved;
});
wait_for_query($node, q{SELECT schema_name || '.' || table_name FROM incsink.partition_def WHERE adopted},
	'moved.renamed', 'a table that was renamed and moved is known by its new name');

my $token = $node->safe_psql('postgres', q{SELECT incsink_horizon('moved.renamed')});
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', 'postgres' ], 'pg_dump works');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', 'restored' ],
	'psql restores it without an error');

is( $node->safe_psql('restored', q{SELECT count(*) FROM incsink.sinks}), '1', 'the sink is there');
is( $node->safe_psql('restored', q{SELECT count(*) FROM incsink.epoch_state
	JOIN incsink.watermark USING (sink_id, partition_id, destination, epoch)}), '2', 'and where its epochs began');
# The worker, which runs since CREATE EXTENSION, looks again after a minute, or now.
$node->reload;
wait_until(
	sub { $node->safe_psql('restored', q{SELECT state FROM incsink.stat_worker}) eq 'waiting' },
	'the restored database waits to be adopted');
like($node->safe_psql('restored', q{SELECT hint FROM incsink.stat_worker}),
	qr/incsink_adopt_database/, 'and says how');
$node->safe_psql('restored', q{
	INSERT INTO "Odd Names"."Lögs" VALUES (101, 'after');
	INSERT INTO moved.renamed (v) VALUES ('after');
});

# The original goes on beside it.
$node->safe_psql('postgres', q{INSERT INTO "Odd Names"."Lögs" VALUES (201, 'original')});
wait_until(sub { $collector->count->{rows} == 151 }, 'the original goes on');

$node->safe_psql('restored', 'SELECT incsink_adopt_database()');
wait_until(sub { $collector->count->{rows} == 153 }, 'adopted, the restored database exports what is new there');
is_deeply(
	[ sort map { $_->{v} . $_->{id} } grep { $_->{v} ne 'before' } @{ $collector->rows } ],
	[ 'after101', 'after51', 'original201' ],
	'each new row of either database arrived once, nothing came again');
my %epochs;
$epochs{ $_->{epoch} } = 1 foreach @{ $collector->entries(dataset => 'public.adopted') };
is(scalar keys %epochs, 2, 'the restored database sends under an epoch of its own');

is( $node->safe_psql('restored', "SELECT count(*) FROM incsink_read_since('moved.renamed', '$token')"),
	'1', 'a token of the original is good up to where the dump stood');
is( $node->safe_psql('restored', q{SELECT count(*) FROM incsink_read_since('"Odd Names"."Lögs"')}),
	'101', 'the restored table can be read');
is( $node->safe_psql('restored', q{SELECT string_agg(DISTINCT state, ',') FROM incsink.stat_delivery}),
	'waiting', 'no delivery is halted');

# Where the dump stood the new epochs begin.  The original has all rows in its own.
my $totals = q{SELECT concat_ws(' ', dataset, v.state, v.rows_in_table, v.rows_at_sink)
	FROM (VALUES ('public.adopted', 'moved.renamed'::regclass), ('Odd Names.Lögs', '"Odd Names"."Lögs"')) AS t (dataset, relation),
		LATERAL (SELECT * FROM incsink_verify('central', relation) WITH ORDINALITY ORDER BY ordinality DESC LIMIT 1) AS v ORDER BY 1};
wait_for_query($node, q{SELECT count(*) FROM incsink.intent}, '0');
wait_until(sub { $node->safe_psql('restored', q{SELECT count(*) FROM incsink.intent}) eq '0' });
is($node->safe_psql('restored', $totals), "Odd Names.Lögs ok 1 1\npublic.adopted ok 1 1",
	'incsink_verify() counts in the restored database what was exported from there');
is($node->safe_psql('postgres', $totals), "Odd Names.Lögs ok 101 101\npublic.adopted ok 50 50", 'and in the original all of it');

done_testing();
