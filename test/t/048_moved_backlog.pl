# The backlog of a partitioned table while its rows are moved from leaf to leaf: by
# UPDATE, and as pg_partman empties a default partition.  Each row arrives once, in the
# order of the key.

use strict;
use warnings;

use IncsinkTest;
use Test::More;

my $node = new_node('moved', conf => [ 'incsink.poll_interval = 50ms' ]);

sub sql { return $node->safe_psql('postgres', $_[0]); }

# The key is that of the leaves, or of the whole.
foreach my $key ('PRIMARY KEY (id)', 'UNIQUE (id, day)')
{
	my ($leaf_key, $root_key) = $key =~ /day/ ? ('', ", $key") : ("($key)", '');
	my $collector = Collector->new;

	sql(qq{
		CREATE TABLE log (id int NOT NULL, day int NOT NULL, body text$root_key) PARTITION BY RANGE (day);
		CREATE TABLE log_0 PARTITION OF log $leaf_key FOR VALUES FROM (0) TO (10);
		CREATE TABLE log_rest PARTITION OF log $leaf_key DEFAULT;
		INSERT INTO log SELECT i, i % 20, 'old' FROM generate_series(1, 1000) AS i;
		SELECT incsink_attach('log');
	});
	is(sql(q{SELECT count(*) FROM incsink.backlog_def}), 1, "$key: one order for all leaves");

	# Three batches arrive, the fourth is refused until the rows have moved.
	$collector->control("skip=3 times=always status=503");
	sql(qq{SELECT incsink_create_sink('central', '@{[ $collector->url ]}', tables => '{log}',
		options => '{"flush_rows": 100, "retry_initial": "20ms", "retry_max": "100ms"}')});
	wait_until(sub { $collector->count->{rows} >= 300 && $collector->count->{requests} > 4 },
		'the first batches arrive');
	sql(qq{
		BEGIN;
		CREATE TEMP TABLE moving AS SELECT * FROM log_rest WHERE day < 15;
		DELETE FROM log_rest WHERE day < 15;
		CREATE TABLE log_10 PARTITION OF log $leaf_key FOR VALUES FROM (10) TO (15);
		INSERT INTO log SELECT * FROM moving;
		COMMIT;
		DROP TABLE moving;
		INSERT INTO log VALUES (1001, 3, 'new'), (1002, 12, 'new');
	});
	# The key's own columns stay: those of the leaves do so in any move.
	sql(q{UPDATE log SET day = 30 - day WHERE day BETWEEN 11 AND 14}) unless $root_key;
	$collector->control('reset');
	is(sql(q{SELECT incsink_flush('central')}), 't', 'all of them are exported');

	my $rows = rows_at_collector($collector, 'id');
	is_exported($node, 'SELECT id FROM log', $rows, 'each row arrives once');
	is_deeply($rows, [ sort { $a <=> $b } @$rows ], 'in the order of the key, then of the numbers');
	sql(q{SELECT incsink_drop_sink('central'); SELECT incsink_detach('log'); DROP TABLE log});
}

done_testing();
