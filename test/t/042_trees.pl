# Partitioned tables: leaves are created, attached, detached, dropped and written to
# while a collector and files get every row once; server and workers are killed
# meanwhile.  What cannot be exported is refused, or halts the table with the repair.
#
#	INCSINK_STRESS_SECONDS	how long they write (default 20)

use strict;
use warnings;

use Export;
use IncsinkTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{INCSINK_STRESS_SECONDS} || 20;
my $writers = 4;

# Part 0 and 1 are leaves, 2 and 3 are in a branch of hashed leaves; from 10 on they
# come and go.  "w" has every row that was committed, "parts" those that may be used.
my $export = Export->new(
	'trees',
	forward => { flush_rows => 200, request_timeout => '1s' },
	file => { flush_rows => 500 },
	conf => [ 'incsink.poll_interval = 10ms', 'checkpoint_timeout = 30s', 'max_wal_size = 64MB',
		'deadlock_timeout = 200ms' ],
	table => q{
		CREATE TABLE t (id bigint, v text, part int) PARTITION BY LIST (part);
		CREATE TABLE t_0 PARTITION OF t FOR VALUES IN (0);
		CREATE TABLE t_1 (part int, junk int, v text, id bigint);
		ALTER TABLE t_1 DROP COLUMN junk;
		ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES IN (1);
		CREATE TABLE t_branch PARTITION OF t FOR VALUES IN (2, 3) PARTITION BY HASH (id);
		CREATE TABLE t_2 PARTITION OF t_branch FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE t_3 PARTITION OF t_branch FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE TABLE w (id bigint, v text);
		CREATE TABLE parts (part int PRIMARY KEY);
		INSERT INTO parts VALUES (0), (1), (2), (3);
		CREATE FUNCTION some_part() RETURNS int LANGUAGE sql
			AS 'SELECT part FROM parts ORDER BY random() LIMIT 1';
	});
my $node = $export->node;
my $collector = $export->collector;
my $connection = $node->connstr('postgres');
my $scripts = PostgreSQL::Test::Utils::tempdir('scripts');
my $seed = time ^ $$;
srand $seed;
note("seed $seed, $writers writers, $seconds s");

load_and_changes();
late_writers();
unseen_leaves();
wakeups();
snapshots();
detached_in_any_state();
event_triggers();
adopted();
owed_leaves();
done_testing();

# ---------------------------------------------------------------- the main part

sub load_and_changes
{
	my $deadline = time + $seconds;
	my @children = ((map { start_writer($_, $deadline) } 1 .. $writers), start_changes($deadline));
	my %kills = (0.3 => 'server', 0.5 => 'worker', 0.7 => 'server');
	my $kills = 0;

	while (time < $deadline)
	{
		my $passed = 1 - ($deadline - time) / $seconds;

		foreach my $at (grep { $_ <= $passed } sort keys %kills)
		{
			delete($kills{$at}) eq 'server' ? kill_server() : kill9_worker($node, 'postgres');
			$kills++;
		}
		$collector->control('reset', ('store close', 'nostore status=503', 'store hang', 'store delay=100')[ rand 4 ])
		  if rand() < 0.3;
		sleep 0.2;
		$collector->control('reset', 'release');
	}
	waitpid $_, 0 foreach @children;
	$collector->back_to_normal;
	$export->settle('all that was written is exported');
	is(faults(), '', 'each row is at the collector and in the files once, wherever it was: 0 missing, 0 duplicate');
	is($kills, 3, 'the server was killed three times meanwhile');
	is($export->query('SELECT count(*) FROM incsink.loss'), '0', 'and nothing was lost with a leaf');

	my %changes = map { split / /, $_ } split /\n/, slurp_file("$scripts/changes");
	note(join ', ', map { "$changes{$_} $_" } sort keys %changes);
	cmp_ok($changes{$_} // 0, '>', 0, "leaves were $_")
	  foreach qw(created attached filled detached detached-concurrently reattached dropped);
	cmp_ok($export->query('SELECT count(*) FROM w'), '>', 50 * $seconds, 'the writers got on');
	cmp_ok($export->query("SELECT count(DISTINCT tableoid) FROM t"), '>=', 4, 'in many leaves');
	return;
}

# What is not as it must be; see Export.
sub faults
{
	my $expected = [ split /\n/, $export->query(q{SELECT id || ' ' || v FROM w}) ];
	return $export->faults(forward => $expected, file => $expected);
}

sub kill_server
{
	kill9_server($node);
	restart_after_kill($node);
	return;
}

# Runs a script; true if no statement failed.
sub run_script
{
	my ($name, $script) = @_;
	my $file = "$scripts/$name.sql";

	unlink $file;
	append_to_file($file, $script);
	return system("psql -XAtq -v ON_ERROR_STOP=1 -d \"$connection\" -f $file >>$scripts/$name.log 2>&1") == 0;
}

sub start_writer
{
	my ($number, $deadline) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid;
	my $next_id = $number * 1_000_000_000;
	srand($seed + $number);
	while (time < $deadline)
	{
		run_script("writer$number", join '', map { transaction(\$next_id) } 1 .. 10) or sleep 0.05;
	}
	POSIX::_exit(0);
}

# A leaf that may be gone by then makes the transaction fail, with all that is in it.
sub transaction
{
	my ($next_id) = @_;
	my $kind = int rand 10;
	my $insert = insert($next_id, rand() < 0.3 ? 't_' . int rand 2 : 't');
	my $pause = sprintf "SELECT pg_sleep(%.4f);\n", rand(0.05)**2 * 20;

	return $insert if $kind <= 1;
	return "BEGIN;\n$insert$pause" . insert($next_id, 't') . $pause . "COMMIT;\n" if $kind <= 4;
	return "BEGIN;\n$insert${pause}ROLLBACK;\n" if $kind == 5;
	return "BEGIN;\n${insert}SAVEPOINT s;\n" . insert($next_id, 't') . "ROLLBACK TO s;\n$pause" . insert($next_id, 't') . "COMMIT;\n"
	  if $kind == 6;
	# Rows move, in the transaction that wrote them and later.
	return "BEGIN;\n${insert}UPDATE t SET part = some_part() WHERE id >= $$next_id - 5 AND id < $$next_id;\n${pause}COMMIT;\n"
	  if $kind == 7;
	return "UPDATE t SET part = (part + 1) % 4 WHERE part < 4 AND id >= $$next_id - 200 AND id < $$next_id AND id % 3 = 0;\n"
	  if $kind == 8;
	my @ids = map { $$next_id++ } 1 .. 30;
	return "BEGIN;\nCOPY t (id, v, part) FROM STDIN;\n" . join('', map { "$_\trow $_\t" . $_ % 4 . "\n" } @ids)
	  . "\\.\nCOPY w FROM STDIN;\n" . join('', map { "$_\trow $_\n" } @ids) . "\\.\n${pause}COMMIT;\n";
}

sub insert
{
	my ($next_id, $table) = @_;
	my $count = 1 + int rand 5;
	my $first = $$next_id;
	my $part = $table =~ /_(\d)/ ? $1 : 'some_part()';

	$$next_id += $count;
	return "WITH n AS (INSERT INTO $table (id, v, part) SELECT g, 'row ' || g, $part"
	  . " FROM generate_series($first, $first + $count - 1) g RETURNING id, v) INSERT INTO w SELECT * FROM n;\n";
}

# A process that changes the tree until the time is over, and writes down what it did.
sub start_changes
{
	my ($deadline) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid;
	my %done;
	my $part = 10;

	srand($seed - 1);
	while (time < $deadline || grep { !$done{$_} } qw(created attached filled detached detached-concurrently reattached dropped))
	{
		last if time > $deadline + 60;
		my $made = make_leaf($part);

		$done{$made}++ if $made;
		if ($made)
		{
			run_script('ddl', "INSERT INTO parts VALUES ($part) ON CONFLICT DO NOTHING");
			sleep 0.1 + rand 0.5;
			remove_leaf($part, \%done);
		}
		$part++;
		sleep 0.05;
	}
	append_to_file("$scripts/changes", join '', map { "$_ $done{$_}\n" } sort keys %done);
	POSIX::_exit(0);
}

# Returns how it was done, or '' if it failed.
sub make_leaf
{
	my ($part) = @_;
	my $kind = int rand 4;
	my $id = $part * 1_000_000;
	my $bare = "CREATE TABLE t_$part (ingest_seq bigint NOT NULL, part int, id bigint, v text);\n";
	my $attach = "ALTER TABLE t ATTACH PARTITION t_$part FOR VALUES IN ($part);\n";

	return run_script('ddl', "CREATE TABLE t_$part PARTITION OF t FOR VALUES IN ($part)") ? 'created' : '' if $kind == 0;
	return run_script('ddl', $bare) && run_script('ddl', $attach) ? 'attached' : '' if $kind == 1;
	return run_script('ddl', "BEGIN;\n${bare}SAVEPOINT s;\nWITH n AS (INSERT INTO t_$part (part, id, v, ingest_seq)"
		  . " SELECT $part, $id + g, 'filled ' || g, nextval(pg_get_serial_sequence('t', 'ingest_seq'))"
		  . " FROM generate_series(1, 50) g RETURNING id, v) INSERT INTO w SELECT * FROM n;\n"
		  . "SELECT pg_sleep(" . rand(0.2) . ");\n${attach}SELECT pg_sleep(" . rand(0.2) . ");\nCOMMIT;\n") ? 'filled' : '';
}

sub remove_leaf
{
	my ($part, $done) = @_;
	my $concurrently = rand() < 0.5;
	my $detach = "ALTER TABLE t DETACH PARTITION t_$part" . ($concurrently ? ' CONCURRENTLY' : '');

	run_script('ddl', "DELETE FROM parts WHERE part = $part");
	if (!run_script('ddl', $detach))
	{
		# One that was interrupted is finished, or had been before.
		run_script('ddl', "ALTER TABLE t DETACH PARTITION t_$part FINALIZE");
		return;
	}
	$done->{ $concurrently ? 'detached-concurrently' : 'detached' }++;
	if (rand() < 0.3)
	{
		return unless run_script('ddl', "ALTER TABLE t ATTACH PARTITION t_$part FOR VALUES IN ($part)");
		$done->{reattached}++;
		run_script('ddl', "INSERT INTO parts VALUES ($part); SELECT pg_sleep(0.2); DELETE FROM parts WHERE part = $part");
		return unless run_script('ddl', "ALTER TABLE t DETACH PARTITION t_$part");
	}
	return if rand() < 0.2;		# stays where it is

	# When every sink has its rows it may go.
	my $exported = "SELECT 1 / (min(w.seq) >= (SELECT left_at_seq FROM incsink.leaf_def WHERE relid = 't_$part'::regclass))::int"
	  . " FROM incsink.watermark w";
	for (my $until = time + 30; time < $until; sleep 0.1)
	{
		next unless run_script('ddl', $exported);
		$done->{dropped}++ if run_script('ddl', "DROP TABLE t_$part");
		last;
	}
	return;
}

# ---------------------------------------------------------- what is not exported

# A table that was filled, by itself, while an old transaction held the horizon back:
# the horizon passes its rows when that ends.
sub late_writers
{
	my $old = $node->background_psql('postgres');

	$old->query_safe(q{BEGIN; INSERT INTO t VALUES (1, 'old', 0); INSERT INTO w VALUES (1, 'old')});
	$export->query(q{
		CREATE TABLE late (id bigint, v text, part int, ingest_seq bigint NOT NULL);
		INSERT INTO late SELECT g, 'late ' || g, 5, nextval(pg_get_serial_sequence('t', 'ingest_seq'))
			FROM generate_series(101, 110) g});
	my ($status, undef, $stderr) = $node->psql('postgres', 'ALTER TABLE t ATTACH PARTITION late FOR VALUES IN (5)');
	isnt($status, 0, 'a leaf that was filled by another transaction is refused');
	like($stderr, qr/cannot attach "public.late" with its rows to "public.t".*CALL incsink_renumber\('public.late', every_row => true\)/s,
		'and the hint says what to do');

	# The same, filled and attached by one transaction: its numbers are held back by it.
	my $filler = $node->background_psql('postgres');
	$filler->query_safe(q{
		BEGIN;
		CREATE TABLE own (id bigint, v text, part int, ingest_seq bigint NOT NULL);
		INSERT INTO own SELECT g, 'own ' || g, 6, nextval(pg_get_serial_sequence('t', 'ingest_seq'))
			FROM generate_series(201, 210) g;
		INSERT INTO w SELECT g, 'own ' || g FROM generate_series(201, 210) g;
		ALTER TABLE t ATTACH PARTITION own FOR VALUES IN (6)});
	$old->query_safe('COMMIT');
	$old->quit;
	sleep 0.3;
	$filler->query_safe('COMMIT');
	$filler->quit;
	$export->settle('what was filled and attached by one transaction is exported');
	is(faults(), '', 'each row once');
	return;
}

# A leaf that joins while the event trigger is off halts the table; nothing is passed.
sub unseen_leaves
{
	$export->query(q{
		ALTER EVENT TRIGGER incsink_ddl_end DISABLE;
		ALTER TABLE t ATTACH PARTITION late FOR VALUES IN (5);
		INSERT INTO w SELECT id, v FROM late;
		INSERT INTO t VALUES (2, 'behind', 0); INSERT INTO w VALUES (2, 'behind')});
	wait_for_query($node,
		q{SELECT bool_and(state = 'halted' AND reason LIKE 'leaf "public.late" of table "public.t" joined unseen%'
			AND hint LIKE 'Run: CALL incsink_renumber(''public.late'', every_row => true);%') FROM incsink.stat_delivery},
		't', 'a leaf that joined unseen halts both sinks, with the repair');
	my (undef, undef, $stderr) = $node->psql('postgres', q{SELECT * FROM incsink_read_since('t')});
	like($stderr, qr/ERROR:  leaf "public.late" of table "public.t" joined unseen/, 'readers are told, too');

	# Nothing else of the tree is held up by it.
	$export->query(q{
		ALTER EVENT TRIGGER incsink_ddl_end ENABLE ALWAYS;
		CREATE TABLE t_7 PARTITION OF t FOR VALUES IN (7);
		CALL incsink_renumber('late', every_row => true)});
	$export->settle('when it is renumbered the export goes on');
	is(faults(), '', 'each row once');

	# One that leaves unseen is read up to where it left; one that is dropped unseen is noted.
	$export->query(q{
		SELECT incsink_pause_sink('central');
		INSERT INTO t VALUES (3, 'leaves', 7); INSERT INTO w VALUES (3, 'leaves');
		ALTER EVENT TRIGGER incsink_ddl_end DISABLE;
		ALTER TABLE t DETACH PARTITION t_7});
	wait_for_query($node, q{SELECT state FROM incsink.leaves WHERE table_name = 't_7'}, 'left',
		'a leaf that left unseen is noted');
	$export->query(q{ALTER EVENT TRIGGER incsink_ddl_end ENABLE ALWAYS; SELECT incsink_resume_sink('central')});
	$export->settle('and its rows are exported');
	is(faults(), '', 'each once');
	$export->query(q{
		SELECT incsink_pause_sink(sink) FROM incsink.sinks;
		CREATE TABLE t_8 PARTITION OF t FOR VALUES IN (8);
		INSERT INTO t VALUES (4, 'dropped', 8);
		ALTER EVENT TRIGGER incsink_sql_drop DISABLE;
		DROP TABLE t_8;
		ALTER EVENT TRIGGER incsink_sql_drop ENABLE ALWAYS});
	wait_for_query($node, q{SELECT count(*) FROM incsink.loss WHERE table_name = 't_8' AND row_count IS NULL}, '1',
		'a leaf that was dropped unseen is a loss that nobody counted');
	$export->query(q{SELECT incsink_resume_sink(sink) FROM incsink.sinks});
	$export->settle('the export goes on');

	# Dropped before one sink has its rows: they are counted.
	$export->query(q{
		SELECT incsink_pause_sink(sink) FROM incsink.sinks;
		CREATE TABLE t_8 PARTITION OF t FOR VALUES IN (8);
		INSERT INTO t SELECT 4, 'dropped', 8 FROM generate_series(1, 7);
		DROP TABLE t_8;
		SELECT incsink_resume_sink(sink) FROM incsink.sinks});
	is($export->query(q{SELECT row_count FROM incsink.loss WHERE table_name = 't_8' AND row_count IS NOT NULL}), '7',
		'rows that went with a leaf are counted');
	$export->settle('the export goes on');
	return;
}

# ------------------------------------------------------------------------ others

# A write to a leaf wakes the worker as one to the tree does.
sub wakeups
{
	$node->append_conf('postgresql.conf', "incsink.poll_interval = '1h'");
	$node->reload;
	$export->query('SELECT pg_sleep(0.3)');
	my $id = 1000;
	foreach my $statement (
		"INSERT INTO t_0 (id, v, part) VALUES (?, 'woken', 0)",
		"INSERT INTO t_3 (id, v, part) SELECT ?, 'woken', 3 WHERE satisfies_hash_partition('t_branch'::regclass, 2, 1, ?::bigint)",
		"COPY t_1 (id, v, part) FROM PROGRAM 'echo ?,woken,1' CSV",
		"INSERT INTO t VALUES (?, 'woken', 2)")
	{
		# One that hashes to that leaf.
		$id++ until $export->query("SELECT satisfies_hash_partition('t_branch'::regclass, 2, 1, $id\::bigint)") eq 't';
		my $query = $statement =~ s/\?/$id/gr;

		$export->query("$query; INSERT INTO w VALUES ($id, 'woken')");
		wait_until(sub { grep { $_ eq "$id woken" } @{ rows_at_collector($collector, \&Export::row_key) } },
			"the worker is woken by: $statement", 20);
		$id++;
	}
	$node->append_conf('postgresql.conf', "incsink.poll_interval = '10ms'");
	$node->reload;
	$export->settle('all is exported');
	is(faults(), '', 'each row once');
	return;
}

# The list of leaves is not of the snapshot that a transaction began with.
sub snapshots
{
	my $reader = $node->background_psql('postgres');

	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM w');
	$export->query(q{
		CREATE TABLE t_9 PARTITION OF t FOR VALUES IN (9);
		INSERT INTO t VALUES (5, 'new leaf', 9); INSERT INTO w VALUES (5, 'new leaf')});
	is($reader->query_safe(q{SELECT count(*) FROM incsink_read_since('t') WHERE data->>'v' = 'new leaf'}), '1',
		'a reader in REPEATABLE READ sees the rows of a leaf that joined since');
	$reader->query_safe('COMMIT');
	is($reader->query_safe(q{SELECT count(*) - (SELECT count(DISTINCT token->>'seq') FROM incsink_read_since('t'))
		FROM incsink_read_since('t')}), '0', 'each row has its own number');
	$reader->quit;
	return;
}

# Whatever a tree is doing, it can be detached, and nothing is left on it.
sub detached_in_any_state
{
	my $left = q{SELECT count(*) FROM pg_attribute WHERE attname = 'ingest_seq' AND NOT attisdropped AND attrelid IN
		(SELECT oid FROM pg_class WHERE relname LIKE 'd%')};
	my $build = q{
		CREATE TABLE d (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE d_1 PARTITION OF d FOR VALUES FROM (0) TO (1000000);
		CREATE TABLE d_2 PARTITION OF d FOR VALUES FROM (1000000) TO (2000000);
		INSERT INTO d SELECT g FROM generate_series(1, 20000) g;
		INSERT INTO d SELECT g FROM generate_series(1000001, 1000020) g;};
	my $url = $collector->url;

	# While its index is built, which a transaction keeps from being finished.
	$export->query($build);
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM w');
	$export->query(q{SET incsink.attach_index_size = 0; SELECT incsink_attach('d')});
	is($export->query(q{SELECT preparing FROM incsink.partitions WHERE table_name = 'd'}), 't', 'a tree is preparing');
	wait_for_query($node, q{SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE a.backend_type = 'incsink index worker' AND l.relation IN ('d_1'::regclass, 'd_2'::regclass) AND l.granted}, 't',
		'its index is being built');
	$export->query(q{SELECT incsink_detach('d', drop_column => true)});
	is($export->query($left), '0', 'detached while preparing, it has nothing left');
	is($export->query('SELECT count(*) FROM incsink.index_task'), '0', 'no task is left');
	$holder->query_safe('COMMIT');
	$holder->quit;
	is($export->query(q{SELECT count(*) FROM pg_index WHERE indrelid IN ('d_1'::regclass, 'd_2'::regclass)}), '2',
		'and no index but the primary keys');

	# Inside of its backlog, with a leaf that has left.
	$export->query(qq{
		SELECT incsink_attach('d');
		SELECT incsink_create_sink('slow', '$url', tables => '{d}',
			options => '{"flush_rows": 100, "max_rows_per_second": 200}')});
	wait_for_query($node, q{SELECT n > 0 FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = 'slow'}, 't',
		'its backlog is on its way');
	$export->query('ALTER TABLE d DETACH PARTITION d_1');
	wait_for_query($node, q{SELECT n > 400 FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = 'slow'}, 't',
		'also of a leaf that has left');
	isnt($node->psql('postgres', q{SELECT incsink_detach('d', drop_column => true)}), 0, 'a sink is in the way of detaching');
	$export->query(q{SELECT incsink_detach('d', drop_column => true, force => true)});
	is($export->query($left), '0', 'detached inside of its backlog, it has nothing left, nor has the leaf that left');
	is($export->query(q{SELECT count(*) FROM incsink.leaf_def WHERE relid IN ('d_1'::regclass, 'd_2'::regclass)}), '0',
		'no leaf of it is on record');
	$export->query(q{SELECT incsink_drop_sink('slow'); DROP TABLE d, d_1});
	return;
}

# The index worker's commands fire users' event triggers, which expect their search_path.
sub event_triggers
{
	$export->query(q{
		CREATE TABLE ddl_log (tag text);
		CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO ddl_log VALUES (tg_tag); END$$;
		CREATE EVENT TRIGGER log_ddl ON ddl_command_end EXECUTE FUNCTION log_ddl()});
	$export->query(q{
		CREATE TABLE f (id bigint PRIMARY KEY);
		INSERT INTO f SELECT generate_series(1, 100);
		SET incsink.attach_index_size = 0;
		SELECT incsink_attach('f')});
	wait_for_query($node, q{SELECT preparing FROM incsink.partitions WHERE table_name = 'f'}, 'f',
		'an index is built where an event trigger names its table without a schema');
	is($export->query(q{SELECT count(*) > 0 FROM ddl_log WHERE tag = 'CREATE INDEX'}), 't', 'which has seen it');
	$export->query(q{
		DROP EVENT TRIGGER log_ddl;
		SELECT incsink_detach('f', drop_column => true);
		DROP FUNCTION log_ddl();
		DROP TABLE f, ddl_log});
	return;
}

# An identity column of the user's own numbers a tree from PostgreSQL 17 on.
sub adopted
{
	my ($major) = $node->pg_version =~ /^(\d+)/;

	if ($major < 17)
	{
		$export->query('CREATE TABLE a (id bigint NOT NULL) PARTITION BY RANGE (id)');
		my (undef, undef, $stderr) = $node->psql('postgres', q{SELECT incsink_attach('a', adopt => 'id')});
		like($stderr, qr/can adopt a column from PostgreSQL 17 on/, 'a tree cannot adopt a column before PostgreSQL 17');
		return;
	}
	$export->query(q{
		CREATE TABLE a (id bigint GENERATED ALWAYS AS IDENTITY, day int, v text) PARTITION BY RANGE (day);
		CREATE TABLE a_1 PARTITION OF a FOR VALUES FROM (0) TO (10);
		INSERT INTO a (day, v) SELECT 1, 'first ' || g FROM generate_series(1, 5) g});
	my (undef, undef, $stderr) = $node->psql('postgres', q{SELECT incsink_attach('a', adopt => 'id')});
	like($stderr, qr/no valid index over all rows whose first column is "id".*CREATE INDEX ON public.a \(id\)/s,
		'a tree without an index on the column is refused');
	my $url = $collector->url;
	$export->query(qq{
		CREATE INDEX ON a (id, day);
		SELECT incsink_attach('a', adopt => 'id');
		SELECT incsink_create_sink('adopted', '$url', tables => '{a}');
		CREATE TABLE a_2 PARTITION OF a FOR VALUES FROM (10) TO (20);
		INSERT INTO a (day, v) SELECT 11, 'second ' || g FROM generate_series(1, 5) g;
		INSERT INTO a_1 (day, v) VALUES (2, 'third')});
	is($export->query(q{SELECT incsink_flush('adopted', '1 min')}), 't', 'an adopted tree is exported');
	is_exported($node, 'SELECT v FROM a', rows_at_collector($collector, 'v', sink => 'adopted'), 'each row once');
	$export->query(q{SELECT incsink_drop_sink('adopted'); SELECT incsink_detach('a')});
	is($export->query(q{SELECT count(*) FROM pg_attribute WHERE attrelid = 'a'::regclass AND attname = 'id'}), '1',
		'a column that was adopted stays');
	return;
}

# Leaves that have left before a sink has their rows, and what is done to them then.
sub owed_leaves
{
	my $url = $collector->url;

	$export->query(qq{
		CREATE TYPE kind AS ENUM ('low', 'high');
		CREATE TABLE o (kind kind, id int, v text, PRIMARY KEY (kind, id)) PARTITION BY RANGE (id);
		CREATE TABLE o_1 PARTITION OF o FOR VALUES FROM (1) TO (10);
		INSERT INTO o VALUES ('low', 1, 'before'), ('high', 1, 'before');
		SELECT incsink_attach('o');
		CREATE TABLE o_2 PARTITION OF o FOR VALUES FROM (10) TO (20);
		CREATE TABLE o_3 PARTITION OF o FOR VALUES FROM (20) TO (30);
		CREATE TABLE o_other (LIKE o) PARTITION BY RANGE (id);
		ALTER TABLE o_other DROP COLUMN ingest_seq;
		SELECT incsink_attach('o_other');
		BEGIN;
		SELECT incsink_create_sink('owed', '$url', tables => '{o}',
			options => '{"retry_initial": "50ms", "retry_max": "200ms"}');
		SELECT incsink_pause_sink('owed');
		COMMIT;
		INSERT INTO o VALUES ('low', 11, 'second'), ('low', 21, 'third')});

	# Its rows cannot be found any more.
	$export->query(q{ALTER TYPE kind RENAME VALUE 'high' TO 'higher'});
	is($node->psql('postgres', 'DROP TABLE o_1'), 0, 'a leaf can be dropped whose key in the backlog cannot be read');
	is($export->query(q{SELECT count(*) FROM incsink.loss WHERE table_name = 'o_1' AND row_count IS NULL}), '1',
		'as a loss that nobody counted');
	$export->query(q{ALTER TYPE kind RENAME VALUE 'higher' TO 'high'});
	$export->query('ALTER TABLE o DETACH PARTITION o_2; ALTER TABLE o_2 DROP COLUMN ingest_seq; DROP TABLE o_2');
	is($export->query(q{SELECT count(*) FROM incsink.loss WHERE table_name = 'o_2' AND row_count IS NULL}), '1',
		'so is one that has left and lost its numbers');

	# It may not go to another tree with them.
	$export->query('ALTER TABLE o DETACH PARTITION o_3');
	my (undef, undef, $stderr) = $node->psql('postgres', q{SET incsink.allow_explicit_seq = on;
		ALTER TABLE o_other ATTACH PARTITION o_3 FOR VALUES FROM (20) TO (30)});
	like($stderr, qr/cannot attach "public.o_3" with its rows to "public.o_other".*detached from "public.o", whose sinks/s,
		'a leaf cannot join another tree while its rows are owed');

	# Without an index it cannot be read; only that sink is stopped.
	my $index = $export->query(q{SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'o_3'::regclass AND indkey[0] =
		(SELECT attnum FROM pg_attribute WHERE attrelid = 'o_3'::regclass AND attname = 'ingest_seq')});
	$export->query(qq{DROP INDEX $index; SELECT incsink_resume_sink('owed')});
	wait_for_query($node, q{SELECT count(*) FROM incsink.stat_delivery WHERE sink = 'owed' AND state = 'halted'
		AND reason LIKE 'table "public.o_3" has no valid index on "ingest_seq"%'
		AND hint = 'Run: CREATE INDEX CONCURRENTLY ON public.o_3 (ingest_seq) WHERE ingest_seq > 0;'},
		'1', 'a leaf that has left and has no index halts the sink that has not read it, with the repair');
	$export->query('CREATE INDEX ON o_3 (ingest_seq) WHERE ingest_seq > 0');
	is($export->query(q{SELECT incsink_flush('owed', '1 min')}), 't', 'then its rows are exported');
	is_exported($node, 'SELECT v FROM o_3', rows_at_collector($collector, 'v', sink => 'owed'), 'each once');
	is($node->psql('postgres', q{SET incsink.allow_explicit_seq = on;
		ALTER TABLE o_other ATTACH PARTITION o_3 FOR VALUES FROM (20) TO (30)}), 0, 'and it may join another tree');
	$export->query(q{SELECT incsink_drop_sink('owed'); DROP TABLE o_other; SELECT incsink_detach('o'); DROP TABLE o});
	return;
}
