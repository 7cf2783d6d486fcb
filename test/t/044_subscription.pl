# Tables that a subscription fills, and tables that a publication sends: each row
# arrives at the collector once, whatever numbers the other server gives its rows.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use Collector;
use IncsinkTest;

my $publisher = new_node('publisher',
	conf => [ 'logical_decoding_work_mem = 64kB', 'max_wal_senders = 30', 'max_replication_slots = 30' ]);
my $subscriber = new_node('subscriber',
	conf => [ 'max_worker_processes = 60', 'max_logical_replication_workers = 30', 'max_replication_slots = 30' ]);
my $collector = Collector->new;
my $connection = $publisher->connstr . ' dbname=postgres';
my $version = $subscriber->safe_psql('postgres', 'SHOW server_version_num');
my $streaming = $version >= 160000 ? 'parallel' : 'on';

sub on_publisher { return $publisher->safe_psql('postgres', $_[0]); }
sub on_subscriber { return $subscriber->safe_psql('postgres', $_[0]); }

sub subscribe
{
	my ($name, $tables) = @_;

	on_publisher("CREATE PUBLICATION $name FOR TABLE $tables");
	on_subscriber("CREATE SUBSCRIPTION $name CONNECTION '$connection' PUBLICATION $name WITH (streaming = $streaming)");
	return;
}

# Everything committed on the publisher is applied.
sub catch_up
{
	my ($name) = @_;

	wait_for_query($subscriber, "SELECT count(*) = 0 FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid
		WHERE s.subname = '$name' AND srsubstate <> 'r'");
	$publisher->wait_for_catchup($name);
	return;
}

sub settle
{
	wait_for_query($subscriber,
		q{SELECT bool_and(lag_rows = 0 AND in_flight_batch IS NULL AND state = 'waiting') FROM incsink.stat_delivery});
	return;
}

sub sink
{
	my ($table) = @_;

	on_subscriber("SELECT incsink_create_sink('$table', '" . $collector->url . "', tables => '{$table}',
		options => '{\"retry_initial\": \"20ms\"}')");
	return;
}

# Rows of a table that were exported more than once, or not at all, of all that ever came.
sub exported_once
{
	my ($table, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	settle();
	my $result = compare_rows($expected, rows_at_collector($collector, 'id', sink => $table));
	is("missing $result->{missing} duplicate $result->{duplicate} unexpected $result->{unexpected}",
		'missing 0 duplicate 0 unexpected 0', $name)
	  or diag(join "\n", @{ $result->{examples} });
	return;
}

# ------------------------------------------ the publisher has numbers of its own
on_publisher(q{
	CREATE TABLE t (id int PRIMARY KEY, v text);
	SELECT incsink_attach('t');
	INSERT INTO t SELECT g, 'copied' FROM generate_series(1, 100) AS g;
});
on_subscriber(q{
	CREATE TABLE t (id int PRIMARY KEY, v text);
	SELECT incsink_attach('t');
	INSERT INTO t VALUES (-1, 'here'), (-2, 'here');
	CREATE TABLE ddl_log (tag text);
	CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO ddl_log VALUES (tg_tag); END$$;
	CREATE EVENT TRIGGER log_ddl ON ddl_command_end EXECUTE FUNCTION log_ddl();
});
sink('t');
is(on_subscriber(q{SELECT count(*) FROM pg_trigger WHERE tgname = 'incsink_number_row'}), '0',
	'a table that no subscription fills has no trigger for each row');
subscribe('t', 't');
is(on_subscriber(q{SELECT tgenabled FROM pg_trigger WHERE tgname = 'incsink_number_row'}), 'R',
	'one that joins a subscription gets it at once');
is(on_subscriber('SELECT tag FROM ddl_log'), 'CREATE SUBSCRIPTION', "and a user's event trigger, which names its table without a schema, sees that command alone");
catch_up('t');
exported_once('t', [ -2 .. -1, 1 .. 100 ], 'rows of the initial copy are exported, each once');

on_publisher(q{
	INSERT INTO t SELECT g, 'applied' FROM generate_series(101, 200) AS g;
	INSERT INTO t SELECT g, repeat('streamed', 100) FROM generate_series(201, 3000) AS g;
	BEGIN;
	INSERT INTO t SELECT g, repeat('taken back', 100) FROM generate_series(5001, 7000) AS g;
	ROLLBACK;
});
on_subscriber(q{INSERT INTO t SELECT -g, 'here' FROM generate_series(3, 20) AS g});
catch_up('t');
exported_once('t', [ -20 .. -1, 1 .. 3000 ], "rows that are applied are, too, also of a transaction that is streamed ($streaming)");
is(on_subscriber(q{SELECT count(DISTINCT ingest_seq) = count(*) AND max(ingest_seq) <=
	(SELECT last_drawn FROM incsink.partitions) FROM t}), 't', 'they have numbers of this server');

my $before = on_subscriber('SELECT id, ingest_seq FROM t WHERE id BETWEEN 1 AND 50 ORDER BY id');
on_publisher(q{
	UPDATE t SET v = 'changed' WHERE id BETWEEN 1 AND 50;
	DELETE FROM t WHERE id BETWEEN 51 AND 60;
	INSERT INTO t VALUES (3001, 'after');
});
catch_up('t');
is(on_subscriber(q{SELECT count(*) FROM t WHERE v = 'changed'}), '50', 'a replicated UPDATE is applied');
is(on_subscriber('SELECT id, ingest_seq FROM t WHERE id BETWEEN 1 AND 50 ORDER BY id'), $before,
	'and leaves the number as it is');
is(on_subscriber('SELECT count(*) FROM t WHERE id BETWEEN 51 AND 60'), '0', 'a replicated DELETE is applied');
exported_once('t', [ -20 .. -1, 1 .. 3001 ], 'and neither is exported');

on_publisher(q{
	TRUNCATE t RESTART IDENTITY;
	INSERT INTO t SELECT g, 'after the truncate' FROM generate_series(8001, 8050) AS g;
});
catch_up('t');
exported_once('t', [ -20 .. -1, 1 .. 3001, 8001 .. 8050 ], 'rows after a replicated TRUNCATE ... RESTART IDENTITY are exported');
is(on_subscriber('SELECT count(*) FROM t'), '50', 'and it truncated the table here');
is(on_subscriber(q{SELECT count(error) FROM incsink.partitions}), '0', 'and the sequence is as it should be');

on_subscriber(q{CALL incsink_renumber('t', every_row => true)});
exported_once('t', [ -20 .. -1, 1 .. 3001, 8001 .. 8050, 8001 .. 8050 ],
	'incsink_renumber() gives numbers in spite of the trigger');

# -------------------------------------------------- the publisher has no numbers
on_publisher(q{
	CREATE TABLE u (id int PRIMARY KEY, v text);
	INSERT INTO u SELECT g, 'copied' FROM generate_series(1, 50) AS g;
});
on_subscriber(q{CREATE TABLE u (v text, id int PRIMARY KEY)});
subscribe('u', 'u');
catch_up('u');
my ($status, $stdout, $stderr) = $subscriber->psql('postgres', q{SELECT incsink_attach('u')});
like($stderr, qr/WARNING.*\n.*A subscription fills it: a trigger for each row/, 'attaching a table that is filled says what it costs');
is(on_subscriber(q{SELECT tgenabled FROM pg_trigger WHERE tgname = 'incsink_number_row' AND tgrelid = 'u'::regclass}), 'R',
	'and adds the trigger');
sink('u');
on_publisher(q{
	INSERT INTO u SELECT g, repeat('applied', 100) FROM generate_series(51, 2000) AS g;
	UPDATE u SET v = 'changed' WHERE id <= 60;
	DELETE FROM u WHERE id = 61;
});
catch_up('u');
wait_for_query($subscriber, 'SELECT count(*) FROM u', 1999, 'the copy is whole');
settle();
my $rows = rows_at_collector($collector, 'id', sink => 'u');
my $found = compare_rows([ 1 .. 2000 ], [ @$rows, 61 ]);
is("$found->{missing} $found->{unexpected}", '0 0', 'what the table had, and what is applied, is exported');
is(scalar(@$rows) - scalar(keys %{ { map { $_ => 1 } @$rows } }), 0, 'each row once');

# -------------------------------- trees: into the root, and each leaf by its name
on_publisher(q{
	CREATE TABLE tree (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (1000);
	CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (1000) TO (2000);
	INSERT INTO tree SELECT g, 'copied' FROM generate_series(990, 1010) AS g;
});
on_subscriber(q{
	CREATE TABLE tree (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (1000);
	CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (1000) TO (2000);
	SELECT incsink_attach('tree');
});
sink('tree');
subscribe('tree', 'tree');
is(on_subscriber(q{SELECT string_agg(tgrelid::regclass || ' ' || tgenabled::text, ', ' ORDER BY tgrelid)
	FROM pg_trigger WHERE tgname = 'incsink_number_row' AND tgrelid::regclass::text LIKE 'tree%'}),
	'tree R, tree_1 R, tree_2 R', 'a tree of which leaves are filled has the trigger on all of them');
on_publisher(q{INSERT INTO tree SELECT g, 'applied' FROM generate_series(900, 920) AS g});
catch_up('tree');
exported_once('tree', [ 900 .. 920, 990 .. 1010 ], 'rows that come into leaves are exported');

# ------------------------------------------------------ an attached table is sent
on_publisher(q{
	CREATE TABLE sent (id int PRIMARY KEY, v text);
	CREATE TABLE listed (id int PRIMARY KEY, v text);
	INSERT INTO sent VALUES (1, 'old');
	INSERT INTO listed VALUES (1, 'old');
});
on_subscriber(q{
	CREATE TABLE sent (id int PRIMARY KEY, v text);
	CREATE TABLE listed (id int PRIMARY KEY, v text);
});
on_publisher('CREATE PUBLICATION listed FOR TABLE listed (id, v)');
on_subscriber("CREATE SUBSCRIPTION listed CONNECTION '$connection' PUBLICATION listed");
subscribe('sent', 'sent');
catch_up($_) foreach qw(listed sent);
(undef, undef, $stderr) = $publisher->psql('postgres', q{SELECT incsink_attach('sent'); SELECT incsink_attach('listed')});
like($stderr, qr/Publication "sent" will send the column "ingest_seq"/, 'attaching a published table says what subscribers see');
unlike($stderr, qr/Publication "listed"/, 'a column list keeps it to itself');
on_publisher(q{INSERT INTO listed VALUES (2, 'new')});
catch_up('listed');
is(on_subscriber('SELECT count(*) FROM listed'), '2', 'with a column list the subscriber goes on');

my $offset = -s $subscriber->logfile;
on_publisher(q{INSERT INTO sent VALUES (2, 'new')});
wait_until(sub { server_log_like($subscriber, qr/is missing replicated column: "ingest_seq"/, $offset) },
	'without one a subscriber that lacks the column stops');
on_subscriber('ALTER TABLE sent ADD COLUMN ingest_seq bigint');
catch_up('sent');
is(on_subscriber('SELECT id, ingest_seq FROM sent ORDER BY id'), "1|\n2|1", 'with the column it goes on, and has the numbers');
(undef, undef, $stderr) = $subscriber->psql('postgres', q{SELECT incsink_attach('sent')});
like($stderr, qr/It has a column "ingest_seq" that was not made by incsink/, 'a table that has it so cannot be attached');

# ------------------------------------------------------- a table without any key
on_subscriber('CREATE TABLE keyless (id int)');
on_publisher('CREATE TABLE keyless (id int); ALTER TABLE keyless REPLICA IDENTITY FULL');
subscribe('keyless', 'keyless');
catch_up('keyless');
($status, undef, $stderr) = $subscriber->psql('postgres', q{SELECT incsink_attach('keyless')});
isnt($status, 0, 'attach refuses a filled table without a key');
like($stderr, qr/replicated updates and deletes would not find their rows/, 'and says why');
on_subscriber(q{SELECT incsink_attach('keyless', force => true)});
sink('keyless');
on_publisher('INSERT INTO keyless SELECT generate_series(1, 20)');
catch_up('keyless');
exported_once('keyless', [ 1 .. 20 ], 'forced it gets what is inserted');

# With FULL on both sides a primary key here is enough.
on_publisher('CREATE TABLE whole (id int PRIMARY KEY, v text); ALTER TABLE whole REPLICA IDENTITY FULL');
on_subscriber(q{
	CREATE TABLE whole (id int PRIMARY KEY, v text);
	ALTER TABLE whole REPLICA IDENTITY FULL;
	SELECT incsink_attach('whole');
});
subscribe('whole', 'whole');
catch_up('whole');
on_publisher(q{
	INSERT INTO whole VALUES (1, 'a'), (2, 'b');
	UPDATE whole SET v = 'c' WHERE id = 1;
	DELETE FROM whole WHERE id = 2;
});
catch_up('whole');
is(on_subscriber('SELECT id, v FROM whole'), '1|c', 'with a primary key here changes of a publisher with REPLICA IDENTITY FULL find their rows');

# --------------------------------------- the table is locked when it is to be filled
on_publisher(q{CREATE TABLE late (id int PRIMARY KEY, ingest_seq bigint); INSERT INTO late VALUES (1, 1), (2, 2)});
on_subscriber(q{CREATE TABLE late (id int PRIMARY KEY); SELECT incsink_attach('late')});
my $holder = $subscriber->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE late IN ROW EXCLUSIVE MODE');
on_publisher('CREATE PUBLICATION late FOR TABLE late');
(undef, undef, $stderr) = $subscriber->psql('postgres',
	"CREATE SUBSCRIPTION late CONNECTION '$connection' PUBLICATION late WITH (copy_data = false)");
like($stderr, qr/WARNING:.*public\.late has no trigger yet/, 'a table that is locked is named');
$holder->quit;
wait_for_query($subscriber, q{SELECT count(*) FROM pg_trigger WHERE tgname = 'incsink_number_row' AND tgrelid = 'late'::regclass},
	'1', 'and the worker adds the trigger when it is free');
sink('late');
on_publisher('INSERT INTO late VALUES (3, 1), (4, 1)');
catch_up('late');
exported_once('late', [ 3, 4 ], 'then its rows are exported');

on_subscriber("DROP SUBSCRIPTION $_") foreach qw(t u tree listed sent keyless whole late);
done_testing();
