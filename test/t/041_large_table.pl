# Large tables: attaching one keeps no writer waiting, its index is built in the
# background while rows from before are exported, and whatever happens meanwhile, one
# index is there in the end and each row arrives once.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my @conf = (
	'incsink.attach_index_size = 64kB',		# tables of some hundred kB are large
	"incsink.poll_interval = '50ms'",
	'max_parallel_maintenance_workers = 0',
	'autovacuum = off',
);
my $node = new_node('large', conf => \@conf);
my $collector = Collector->new;
my $rows = 2000;

sub query { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# A session in a transaction with a snapshot: CREATE INDEX CONCURRENTLY waits for it.
sub hold_snapshot
{
	my ($database) = @_;
	my $session = $node->background_psql($database // 'postgres', on_error_stop => 1);

	$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
	return $session;
}

# Never fails: the session may have been torn away.
sub let_go
{
	my ($session) = @_;

	eval { $session->{run}->pump_nb; $session->quit; 1 };
	return;
}

sub make_table
{
	my ($table, $database) = @_;

	query("CREATE TABLE $table (id bigint PRIMARY KEY, v text);
		INSERT INTO $table SELECT g, repeat('x', 100) FROM generate_series(1, $rows) AS g", $database);
	return;
}

sub add_sink
{
	my ($table, $database) = @_;
	my $url = $collector->url("/$table");

	query(qq{SELECT incsink_create_sink('$table', '$url', tables => '{$table}',
		options => '{"retry_initial": "20ms", "retry_max": "200ms"}')}, $database);
	return;
}

sub attach
{
	my ($table, $database) = @_;

	query("SET client_min_messages = warning; SELECT incsink_attach('$table')", $database);
	return;
}

# Indexes on the number, as "valid" or "invalid".
sub indexes
{
	my ($table, $database) = @_;

	return join ' ', split /\n/,
	  query("SELECT CASE WHEN i.indisvalid THEN 'valid' ELSE 'invalid' END FROM pg_index i
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = to_regclass('$table') AND a.attname = 'ingest_seq' ORDER BY 1", $database);
}

# The index worker is in CREATE INDEX CONCURRENTLY and waits for somebody.
sub wait_for_build
{
	my ($table, $name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for_query($node,
		"SELECT count(*) > 0 FROM pg_stat_activity a JOIN pg_locks l USING (pid)
		 WHERE a.backend_type = 'incsink index worker' AND a.query LIKE 'CREATE%$table %' AND NOT l.granted"
		 . ($database ? " AND a.datname = '$database'" : ''),
		't', $name);
}

sub wait_built
{
	my ($table, $name, $database, $partition) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$partition //= $table;
	wait_until(
		sub {
			my ($status, $out) = $node->psql($database // 'postgres',
				"SELECT preparing FROM incsink.partitions WHERE table_name = '$partition'");
			$status == 0 && $out eq 'f';
		});
	return is(indexes($table, $database), 'valid', $name);
}

# Polls: batches may come again after a kill, their rows do not.
sub wait_exported
{
	my ($table, $where, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $wanted = query("SELECT count(*) FROM $table WHERE $where");

	wait_until(sub { @{ rows_at_collector($collector, 'id', path => "/$table") } >= $wanted });
	return is_exported($node, "SELECT id FROM $table WHERE $where",
		rows_at_collector($collector, 'id', path => "/$table"), $name);
}

sub task
{
	my ($table, $column, $database) = @_;
	return query("SELECT $column FROM incsink.stat_index WHERE table_name = '$table'", $database);
}

sub index_worker { return (worker_pids($node, $_[0] // 'postgres', 'index'))[0]; }

sub no_index_worker
{
	my ($database) = @_;
	wait_until(sub { !index_worker($database) });
	return;
}

# ---------------------------------------------------------- writers go on writing

my $logs = PostgreSQL::Test::Utils::tempdir('writers');
make_table('busy');
append_to_file("$logs/insert.sql",
	"INSERT INTO busy (id, v) SELECT nextval('ids'), 'new';\n");
query("CREATE SEQUENCE ids START 1000001");

# Eight sessions; one line a transaction in their logs.
sub start_writers
{
	my ($seconds) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid;
	open STDOUT, '>', "$logs/out";
	open STDERR, '>&', \*STDOUT;
	chdir $logs;
	exec 'pgbench', '-n', '-c', 8, '-j', 2, '-T', $seconds, '-l', '--log-prefix=writer', '-f', "$logs/insert.sql",
	  '-h', $node->host, '-p', $node->port, 'postgres';
	die "pgbench: $!";
}

my $writers = start_writers(5);
sleep 1.5;
my $before = time;
attach('busy');
my $attached_in = time - $before;
add_sink('busy');
waitpid $writers, 0;
is($?, 0, 'eight sessions write while the table is attached');
my ($longest, $count) = (0, 0);
foreach my $line (map { split /\n/, slurp_file($_) } glob "$logs/writer.*")
{
	my $milliseconds = (split / /, $line)[2] / 1000;

	$count++;
	$longest = $milliseconds if $milliseconds > $longest;
}
diag(sprintf 'attached in %.0f ms; longest of %d writes: %.1f ms', $attached_in * 1000, $count, $longest);
cmp_ok($count, '>', 100, 'all of them');
wait_built('busy', 'the index is built meanwhile');
wait_exported('busy', 'true', 'rows from before, and those that were written, arrive once');

# --------------------------------------------- nobody waits behind one who waits

make_table('waited');
my $open = $node->background_psql('postgres', on_error_stop => 1);
$open->query_safe("BEGIN; INSERT INTO waited VALUES (100000, 'open')");
my $open_pid = query("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'");
my ($out, $err) = ('', '');
my $attach = IPC::Run::start(
	[ 'psql', '-X', '-c', "SET lock_timeout = '4s'; SELECT incsink_attach('waited')", $node->connstr('postgres') ],
	\undef, \$out, \$err);
my ($failed, $longest_wait, $writes) = (0, 0, 0);
my $writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query("SET lock_timeout = '1s'");
my $until = time + 3;
while (time < $until)
{
	my $began = time;
	my $answer = $writer->query("INSERT INTO waited SELECT max(id) + 1, 'new' FROM waited RETURNING id");
	my $took = time - $began;

	$failed++ unless $answer =~ /\d/;
	$longest_wait = $took if $took > $longest_wait;
	$writes++;
}
$writer->quit;
$attach->finish;
diag(sprintf 'longest of %d writes while attach waited: %.0f ms', $writes, $longest_wait * 1000);
is($failed, 0, 'while the attach waits for an open transaction, no writer fails at a lock_timeout');
like($err, qr/could not lock relation "public\.waited" within 4000 ms.*DETAIL:.*process $open_pid\b.*HINT:/s,
	'it gives up after lock_timeout, and names the process');
my ($status, undef, $stderr) = $node->psql('postgres',
	"SET lock_timeout = '300ms'; SELECT incsink_attach('waited')");
like($stderr, qr/within 300 ms/, 'so it does with another one');
$open->query_safe('COMMIT');
$open->quit;
attach('waited');
wait_built('waited', 'it can be attached when that transaction has ended');

query("CREATE TABLE tree (id bigint, v text) PARTITION BY RANGE (id);
	CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (1000);
	CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (1000) TO (10000)");
$open = $node->background_psql('postgres', on_error_stop => 1);
$open->query_safe("BEGIN; LOCK TABLE tree_2 IN ROW EXCLUSIVE MODE");
(undef, undef, $stderr) = $node->psql('postgres',
	"SET lock_timeout = '300ms'; SELECT incsink_attach('tree')");
like($stderr, qr/could not lock relation "public\.tree_2" within 300 ms/,
	'of a partitioned table, it names the leaf');
$open->quit;
query('DROP TABLE tree');

# ------------------------------------------------- exports while the index is built

my $snapshot = hold_snapshot();
make_table('slow');
attach('slow');
add_sink('slow');
wait_for_build('slow', 'the index is built in the background, and waits for a transaction');
query("INSERT INTO slow VALUES (100001, 'new')");
wait_exported('slow', 'id <= 100000', 'rows from before are exported meanwhile');
wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE sink = 'slow'}, 'preparing',
	'then the delivery is preparing');
is(query(q{SELECT class || ' ' || state FROM incsink.stat_worker WHERE class = 'index'}), 'index running',
	'incsink.stat_worker shows the process');
is(query(q{SELECT preparing FROM incsink.partitions WHERE table_name = 'slow'}), 't',
	'incsink.partitions shows that the table is preparing');
is(task('slow', 'phase'), 'waiting for writers before build', 'incsink.stat_index shows where the build is')
  if task('slow', 'phase') =~ /before build/;
is(task('slow', 'waits_for_pid'), query("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'"),
	'and whom it waits for');
($status, undef, $stderr) = $node->psql('postgres', "INSERT INTO slow VALUES (100002, 'new'), (100003, 'new')");
is($status, 0, 'rows are written meanwhile');
$before = time;
(undef, undef, $stderr) = $node->psql('postgres', "SELECT incsink_flush('slow', '30s')");
like($stderr, qr/table "public\.slow" is being prepared.*HINT:.*incsink\.partitions/s,
	'incsink_flush() does not wait for the build, which would wait for it');
cmp_ok(time - $before, '<', 10, 'and says so at once');
(undef, undef, $stderr) = $node->psql('postgres', "SELECT incsink_detach('slow')");
like($stderr, qr/cannot detach "public\.slow" because sinks export it/, 'a detach that is refused ...');
sleep 0.5;
is(task('slow', 'attempts') . indexes('slow'), '0invalid', '... does not break off the build');
let_go($snapshot);
wait_built('slow', 'when that transaction has ended, the index is there');
is(query("SELECT incsink_flush('slow', '30s')"), 't', 'then incsink_flush() succeeds');
wait_exported('slow', 'true', 'and the new rows are exported');
wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE sink = 'slow'}, 'waiting',
	'the delivery is not preparing any more');
no_index_worker();
pass('the process ends when there is nothing left to build');

# ----------------------------------------------------- its sequence is restarted

# Without an index a scan finds the highest number, in a table and in leaves.
query("CREATE TABLE restarted_tree (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE restarted_leaf PARTITION OF restarted_tree FOR VALUES FROM (0) TO (1000000);
	INSERT INTO restarted_tree SELECT g, repeat('x', 100) FROM generate_series(1, $rows) AS g");
make_table('restarted');
$snapshot = hold_snapshot();
foreach my $table (qw(restarted restarted_tree))
{
	attach($table);
	query("INSERT INTO $table SELECT 100000 + g, 'new' FROM generate_series(1, 50) AS g;
		SELECT setval(pg_get_serial_sequence('$table', 'ingest_seq'), 10);
		UPDATE incsink.partition_state SET highest_seq = 0 WHERE relid = '$table'::regclass;
		SELECT incsink_confirm_sequence('$table');
		INSERT INTO $table VALUES (200000, 'after')");
	is(query("SELECT preparing FROM incsink.partitions WHERE table_name = '$table'"), 't', "while $table is preparing ...");
	is(query("SELECT ingest_seq FROM $table WHERE id = 200000"), '51', '... its sequence is confirmed past all rows');
}
let_go($snapshot);
wait_built('restarted', 'so that its index can be built');
wait_built('restarted_tree', 'and that of the tree');
no_index_worker();

# --------------------------------------------------------------------- it is killed

make_table('killed');
$snapshot = hold_snapshot();
attach('killed');
add_sink('killed');
wait_for_build('killed');
is(indexes('killed'), 'invalid', 'an index is half built');
query("INSERT INTO killed VALUES (100001, 'new')");
kill9_worker($node, 'postgres', 'index');
let_go($snapshot);
wait_built('killed', 'after a kill -9 of the process what it left is dropped, and the index is built');
wait_exported('killed', 'true', 'each row arrives once');

make_table('crashed');
$snapshot = hold_snapshot();
attach('crashed');
add_sink('crashed');
wait_for_build('crashed');
query("INSERT INTO crashed VALUES (100001, 'new')");
kill9_server($node);
let_go($snapshot);
restart_after_kill($node);
wait_built('crashed', 'so it is after a crash of the server');
wait_exported('crashed', 'true', 'each row arrives once');

foreach my $point (map { "index-$_-commit" } qw(turn tasks plan build finish))
{
	my $table = 'at_' . $point =~ s/-/_/gr;
	my $offset = -s $node->logfile;

	no_index_worker();
	make_table($table);
	inject_file($node, $point, 'kill once');
	attach($table);
	wait_until(sub { server_log_like($node, qr/was terminated by signal 9.*ready to accept connections/s, $offset) });
	wait_for_query($node, 'SELECT true', 't');
	query("INSERT INTO $table VALUES (100001, 'new')");
	add_sink($table);
	wait_built($table, "killed at $point, it is built once");
	wait_exported($table, 'true', 'each row arrives once');
}

# An error there, instead.
inject_file($node, 'index-build-commit', 'error once');
make_table('failed');
attach('failed');
add_sink('failed');
wait_built('failed', 'an error in the build ends that attempt, and another is made');
no_index_worker();

my $offset = -s $node->logfile;
inject_file($node, 'index-failure-commit', 'kill once');
inject_file($node, 'index-plan-commit', 'error once');
make_table('unsaid');
attach('unsaid');
wait_until(sub { server_log_like($node, qr/was terminated by signal 9.*ready to accept connections/s, $offset) });
wait_for_query($node, 'SELECT true', 't');
wait_built('unsaid', 'killed before it could record an error, it is built, too');
no_index_worker();

# -------------------------------------------------------------------- built by hand

make_table('by_hand');
query("SET client_min_messages = warning; BEGIN; SELECT incsink_attach('by_hand');
	CREATE UNIQUE INDEX by_hand_seq ON by_hand (ingest_seq) WHERE ingest_seq > 0; COMMIT");
wait_built('by_hand', 'an index that was made by hand is taken');
is(query("SELECT to_regclass('by_hand_seq') IS NOT NULL"), 't', 'as it is');
no_index_worker();

# ------------------------------------------------------------------ equal numbers

inject_file($node, 'index-turn-commit', 'wait');
make_table('twice');
attach('twice');
add_sink('twice');
wait_reached($node, 'index-turn-commit');
query("SET incsink.allow_explicit_seq = on;
	INSERT INTO twice (id, v, ingest_seq) OVERRIDING SYSTEM VALUE VALUES (100001, 'new', 7), (100002, 'new', 7)");
disarm($node, 'index-turn-commit');
wait_until(sub { task('twice', 'last_error') =~ /could not create unique index.*ingest_seq.*7.*incsink_renumber/ },
	'rows with one number: the error is shown, with the repair');
is(query(q{SELECT state FROM incsink.stat_delivery WHERE sink = 'twice'}), 'preparing', 'the table stays preparing');
query(q{SET incsink.allow_explicit_seq = on; DELETE FROM twice WHERE id = 100002});
wait_built('twice', 'when one is gone the index is built, without anybody asking');
no_index_worker();

# ----------------------------------------------- others want the table or database

make_table('altered');
$snapshot = hold_snapshot();
attach('altered');
wait_for_build('altered');
query("SET lock_timeout = '20s'; ALTER TABLE altered ADD COLUMN w int");
pass('one who wants to lock the table is not kept waiting by the build');
wait_until(sub { task('altered', 'last_error') =~ /canceled/ }, 'incsink.stat_index says that it was broken off');
wait_for_build('altered', 'it begins again');
query("SET client_min_messages = warning; SET lock_timeout = '20s'; SELECT incsink_detach('altered', drop_column => true)");
pass('the table can be detached meanwhile');
no_index_worker();
is(query('SELECT count(*) FROM incsink.index_task'), '0', 'then there is nothing to build');
is(indexes('altered'), '', 'and no index left');

make_table('dropped');
attach('dropped');
wait_for_build('dropped');
query("SET lock_timeout = '20s'; DROP TABLE dropped");
pass('the table can be dropped');
no_index_worker();
is(query('SELECT count(*) FROM incsink.index_task'), '0', 'the same then');
like(query("SELECT error FROM incsink.partitions WHERE table_name = 'dropped'"), qr/does not exist any more/,
	'incsink.partitions says what is left to do') if wait_for_query($node,
	"SELECT error IS NOT NULL FROM incsink.partitions WHERE table_name = 'dropped'");
query("SET client_min_messages = warning; SELECT incsink_forget_partition('public.dropped')");
let_go($snapshot);

query('CREATE DATABASE other');
create_extension($node, 'other');
make_table('t', 'other');
$snapshot = hold_snapshot('other');
attach('t', 'other');
wait_for_build('t', undef, 'other');
$attach = IPC::Run::start([ 'psql', '-X', '-c', 'ALTER DATABASE other RENAME TO another', $node->connstr('postgres') ],
	\undef, \$out, \$err);
wait_until(sub { !index_worker('other') }, 'one who wants the database is not kept waiting by the build');
let_go($snapshot);
$attach->finish;
is($attach->result(0), 0, 'a database is renamed');
wait_built('t', 'and the index is built under its new name', 'another');

make_table('u', 'another');
$snapshot = hold_snapshot('another');
attach('u', 'another');
wait_for_build('u', undef, 'another');
query('DROP EXTENSION incsink CASCADE', 'another');
wait_until(sub { !index_worker('another') }, 'DROP EXTENSION ends the build');
let_go($snapshot);
query('DROP DATABASE another WITH (FORCE)');

# ------------------------------------------------------------- partitioned tables

query("CREATE TABLE tree (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (1000);
	CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (1000) TO (10000) PARTITION BY RANGE (id);
	CREATE TABLE tree_2_1 PARTITION OF tree_2 FOR VALUES FROM (1000) TO (1500);
	CREATE TABLE tree_2_2 PARTITION OF tree_2 FOR VALUES FROM (1500) TO (10000);
	INSERT INTO tree SELECT g, repeat('x', 100) FROM generate_series(1, $rows) AS g");
$snapshot = hold_snapshot();
attach('tree');
add_sink('tree');
wait_for_build('tree_1', 'of a partitioned table the leaves are indexed');
query("CREATE TABLE tree_3 PARTITION OF tree FOR VALUES FROM (100000) TO (200000);
	INSERT INTO tree VALUES (100001, 'new'), (1, 'again') ON CONFLICT DO NOTHING");
is(indexes('tree_3'), 'valid', 'a leaf that is added meanwhile has its index');
kill9_worker($node, 'postgres', 'index');
let_go($snapshot);
wait_built('tree', 'in the end that of the root is valid');
is(indexes($_), 'valid', "and $_ has one") foreach qw(tree_1 tree_2 tree_2_1 tree_2_2 tree_3);
wait_exported('tree', 'true', 'each row arrives once');

inject_file($node, 'index-join-commit', 'kill once');
$offset = -s $node->logfile;
query("CREATE TABLE wood (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE wood_1 PARTITION OF wood FOR VALUES FROM (0) TO (1000);
	CREATE TABLE wood_2 PARTITION OF wood FOR VALUES FROM (1000) TO (10000);
	INSERT INTO wood SELECT g, repeat('x', 100) FROM generate_series(1, $rows) AS g");
attach('wood');
wait_until(sub { server_log_like($node, qr/was terminated by signal 9.*ready to accept connections/s, $offset) });
wait_for_query($node, 'SELECT true', 't');
wait_built('wood', 'killed while a leaf joins its root, it is built, too');

# A leaf's index joins its root's under a lock that those who use the leaf see.
inject_file($node, 'index-turn-commit', 'wait');
query("CREATE TABLE grove (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE grove_1 PARTITION OF grove FOR VALUES FROM (0) TO (10000);
	INSERT INTO grove SELECT g, repeat('x', 100) FROM generate_series(1, $rows) AS g");
attach('grove');
wait_reached($node, 'index-turn-commit');
query('CREATE INDEX ON grove_1 (ingest_seq) WHERE ingest_seq > 0');
$snapshot = $node->background_psql('postgres', on_error_stop => 1);
$snapshot->query_safe('BEGIN; SELECT count(*) FROM grove_1 WHERE ingest_seq > 0');
disarm($node, 'index-turn-commit');
wait_until(sub { task('grove', 'last_error') =~ /could not lock relation "public\.grove_1_ingest_seq_idx"/ },
	'one who has read from the leaf keeps its index from joining that of the root');
query("SET lock_timeout = '1s'; INSERT INTO grove VALUES (5000, 'new')");
pass('others go on');
let_go($snapshot);
wait_built('grove', 'afterwards it joins');

# One that leaves before its index is built is indexed, too: it has rows with numbers.
inject_file($node, 'index-turn-commit', 'wait');
query("CREATE TABLE copse (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE copse_1 PARTITION OF copse FOR VALUES FROM (0) TO (10000);
	CREATE TABLE copse_2 PARTITION OF copse FOR VALUES FROM (10000) TO (20000);
	INSERT INTO copse SELECT g, repeat('x', 100) FROM generate_series(1, $rows) AS g");
attach('copse');
wait_reached($node, 'index-turn-commit');
query("INSERT INTO copse VALUES (9000, 'new'), (19000, 'new'); CREATE TABLE copse_rows AS SELECT id FROM copse;
	ALTER TABLE copse DETACH PARTITION copse_1");
disarm($node, 'index-turn-commit');
wait_built('copse_1', 'a leaf that leaves meanwhile has its index in the end', undef, 'copse');
query('SELECT incsink_create_sink(\'copse\', \'' . $collector->url('/copse') . '\', tables => \'{copse}\')');
is(query("SELECT incsink_flush('copse', '30s')"), 't', 'and is exported');
is_exported($node, 'SELECT id FROM copse_rows', rows_at_collector($collector, 'id', path => '/copse'), 'each row once');

# --------------------------------------------------------------------- autovacuum

query("CREATE TABLE vacuumed (id bigint, v text) WITH (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1,
		autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0);
	INSERT INTO vacuumed SELECT g, repeat('x', 1000) FROM generate_series(1, $rows) AS g;
	DELETE FROM vacuumed WHERE id % 2 = 0");
$node->append_conf('postgresql.conf', "autovacuum = on\nautovacuum_naptime = 1\n");
$node->reload;
wait_for_query($node, q{SELECT count(*) > 0 FROM pg_stat_activity a JOIN pg_locks l USING (pid)
	WHERE a.backend_type = 'autovacuum worker' AND l.relation = 'vacuumed'::regclass});
attach('vacuumed');
ok(server_log_like($node, qr/canceling autovacuum task/), 'an autovacuum in the way of an attach is canceled');
wait_built('vacuumed', 'one in the way of the build, too, if there is one');
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->reload;

# ------------------------------------------------------------------ the server stops

make_table('stopped');
$snapshot = hold_snapshot();
attach('stopped');
wait_for_build('stopped');
$before = time;
$node->stop('fast');
diag(sprintf 'a fast stop during a build took %.1f s', time - $before);
pass('a fast stop is not held up');
let_go($snapshot);
$node->start;
wait_built('stopped', 'after a start the index is built');
no_index_worker();
$node->stop('fast');

# --------------------------------------------------------------------- not preloaded

my $plain = new_node('plain', preload => 0, conf => [ grep { !/incsink/ } @conf ]);
$node = $plain;
make_table('t');
query("SET client_min_messages = warning; LOAD 'incsink'; SET incsink.attach_index_size = 0; SELECT incsink_attach('t')");
wait_built('t', 'where incsink is not preloaded the index is built, too');
no_index_worker();
$plain->stop('fast');

foreach my $log (map { slurp_file($_->logfile) } $plain)
{
	unlike($log, qr/PANIC|TRAP/, 'no process crashed');
}
done_testing();
