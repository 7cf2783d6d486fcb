# A database of version 0.1 under this library, updated to 0.2, 0.3 and on, and one of 0.2:
# exports go on before, during and after ALTER EXTENSION UPDATE, and what comes out of
# it is the catalog that CREATE EXTENSION makes.
#
# The scripts of old versions are in test/upgrade.  The incsink_attach() of 0.1 is not
# to be had any more; attach() below does what it did.

use strict;
use warnings;

use IncsinkTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('upgrade', extension => 0, conf => [ "incsink.poll_interval = '100ms'" ]);
my $collector = Collector->new;
my $failing = Collector->new;
my $files = PostgreSQL::Test::Utils::tempdir('files');

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# What incsink_attach() of 0.1 left, of a table without rows or with.
sub attach
{
	my ($table, $had_rows) = @_;

	sql(qq{
		BEGIN;
		ALTER TABLE $table ADD COLUMN ingest_seq bigint NOT NULL DEFAULT 0;
		ALTER TABLE $table ALTER COLUMN ingest_seq DROP DEFAULT;
		ALTER TABLE $table ALTER COLUMN ingest_seq ADD GENERATED ALWAYS AS IDENTITY
			(INCREMENT BY 1 MINVALUE 1 START WITH 1 CACHE 1 NO CYCLE);
		CREATE UNIQUE INDEX ON $table (ingest_seq) WHERE ingest_seq OPERATOR(pg_catalog.>) 0;
		CREATE TRIGGER incsink_truncate_before BEFORE TRUNCATE ON $table
			FOR EACH STATEMENT EXECUTE FUNCTION incsink_truncate_before();
		ALTER TABLE $table ENABLE ALWAYS TRIGGER incsink_truncate_before;
		CREATE TRIGGER incsink_truncate_after AFTER TRUNCATE ON $table
			FOR EACH STATEMENT EXECUTE FUNCTION incsink_truncate_after();
		ALTER TABLE $table ENABLE ALWAYS TRIGGER incsink_truncate_after;
		INSERT INTO incsink.database_state (system_identifier, database_oid, timeline, instance)
			SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()),
				timeline_id, current_setting('incsink.instance')
			FROM pg_control_system(), pg_control_checkpoint()
			ON CONFLICT DO NOTHING;
		INSERT INTO incsink.partition_def (partition_id, dataset, source, schema_name, table_name,
				seq_column, adopted, had_rows)
			VALUES (nextval('incsink.object_id_seq'), 'public.$table', 'default', 'public', '$table',
				'ingest_seq', false, @{[ $had_rows ? 'true' : 'false' ]});
		INSERT INTO incsink.partition_state (partition_id, relid, sequence_oid, sequence_relfilenode,
				highest_seq, recorded_horizon)
			SELECT d.partition_id, '$table'::regclass, s.oid, s.relfilenode, 0, 0
			FROM incsink.partition_def AS d, pg_class AS s
			WHERE d.table_name = '$table' AND s.oid = pg_get_serial_sequence('$table', 'ingest_seq')::regclass;
		INSERT INTO incsink.partition_tag (partition_id, tag)
			SELECT partition_id, substr(md5(random()::text), 1, 16)
			FROM incsink.partition_def WHERE table_name = '$table';
		COMMIT;
	});
	return;
}

# Everything that belongs to the extension in a database, as lines that are the same
# for the same definitions.
my %catalog_queries = (
	'objects' => q{
		SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
		WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
			AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'incsink')},
	'functions' => q{
		SELECT pg_get_functiondef(p.oid), p.proowner::regrole, obj_description(p.oid, 'pg_proc')
		FROM pg_proc AS p WHERE p.proname LIKE 'incsink%' AND p.proname <> 'incsink_inject'},
	'relations' => q{
		SELECT c.oid::regclass, c.relkind, c.relpersistence, c.reloptions, c.relowner::regrole,
			obj_description(c.oid, 'pg_class'), c.relreplident, c.relrowsecurity
		FROM pg_class AS c WHERE c.relnamespace = 'incsink'::regnamespace},
	'columns' => q{
		SELECT a.attrelid::regclass, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			a.attidentity, a.attgenerated, a.attcollation::regcollation, a.attacl,
			pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum)
		FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
			LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE c.relnamespace = 'incsink'::regnamespace AND a.attnum > 0},
	'constraints' => q{
		SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint
		WHERE connamespace = 'incsink'::regnamespace},
	'indexes' => q{
		SELECT indexrelid::regclass, pg_get_indexdef(indexrelid), indisvalid FROM pg_index
		WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'incsink'::regnamespace)},
	'views' => q{
		SELECT oid::regclass, pg_get_viewdef(oid) FROM pg_class
		WHERE relnamespace = 'incsink'::regnamespace AND relkind = 'v'},
	'rules' => q{
		SELECT r.rulename, r.ev_class::regclass FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
		WHERE c.relnamespace = 'incsink'::regnamespace},
	'privileges' => q{
		SELECT pg_describe_object('pg_class'::regclass, c.oid, 0), a::text FROM pg_class AS c, unnest(relacl) AS a
		WHERE c.relnamespace = 'incsink'::regnamespace
		UNION ALL SELECT pg_describe_object('pg_proc'::regclass, p.oid, 0), a::text FROM pg_proc AS p, unnest(proacl) AS a
		WHERE p.proname LIKE 'incsink%'
		UNION ALL SELECT nspname, a::text FROM pg_namespace, unnest(nspacl) AS a WHERE nspname = 'incsink'},
	'initial privileges' => q{
		SELECT pg_describe_object(i.classoid, i.objoid, i.objsubid), i.privtype, a::text
		FROM pg_init_privs AS i, unnest(i.initprivs) AS a WHERE i.privtype = 'e'},
	'roles that privileges depend on' => q{
		SELECT pg_describe_object(classid, objid, objsubid), refobjid::regrole, deptype FROM pg_shdepend
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND deptype <> 'o'},
	'what pg_dump takes along' => q{
		SELECT pg_describe_object('pg_class'::regclass, c, 0), o FROM pg_extension, unnest(extconfig, extcondition) AS u(c, o)
		WHERE extname = 'incsink'},
	'the extension' => q{
		SELECT extname, extversion, extnamespace::regnamespace, extrelocatable FROM pg_extension WHERE extname = 'incsink'},
	'event triggers' => q{
		SELECT evtname, evtevent, evtenabled, evttags, evtfoid::regprocedure, evtowner::regrole,
			obj_description(oid, 'pg_event_trigger') FROM pg_event_trigger},
	'foreign-data wrapper' => q{
		SELECT fdwname, fdwhandler::regproc, fdwvalidator::regproc, fdwoptions, fdwacl,
			obj_description(oid, 'pg_foreign_data_wrapper') FROM pg_foreign_data_wrapper});

# One test for each kind of object; a privilege that somebody granted is none of them.
sub same_catalog
{
	my ($got, $expected, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $kind (sort keys %catalog_queries)
	{
		my ($left, $right) = map { [ sort grep { !/reporter/i } split /\n/, sql($catalog_queries{$kind}, $_) ] } $got, $expected;

		ok("@$left" eq "@$right" && (@$right > 0 || $kind =~ /^roles/), "$test: $kind")
		  or diag(join "\n", difference($left, $right));
	}
	return;
}

sub difference
{
	my ($left, $right) = @_;
	my %count;

	$count{$_}++ foreach @$left;
	$count{$_}-- foreach @$right;
	return map { ($count{$_} > 0 ? 'only upgraded: ' : 'only fresh: ') . $_ } grep { $count{$_} } sort keys %count;
}

# What incsink_verify() says of a table, without ranges that are well.
sub verify
{
	my ($sink, $table, $database) = @_;
	return sql("SELECT concat_ws(' ', state, since, until, rows_in_table, rows_at_sink, rows_missing)
		FROM incsink_verify('$sink', '$table') WHERE state <> 'ok'", $database);
}

# What it says of all of a forward sink's epoch.
sub whole
{
	my ($sink, $table, $database) = @_;
	return sql("SELECT concat_ws(' ', state, since, rows_in_table, coalesce(rows_at_sink::text, 'unknown'))
		FROM incsink_verify('$sink', '$table') WITH ORDINALITY ORDER BY ordinality DESC LIMIT 1", $database);
}

# A new row arrives.
my $last = 0;

sub goes_on
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	sql('INSERT INTO logs VALUES (' . ++$last . ", '$test')");
	wait_until(sub { grep { $_ eq $test } @{ rows_at_collector($collector, 'v') } }, $test);
	return;
}

# -------------------------------------------------------------- a database of 0.1

sql(q{
	CREATE EXTENSION incsink VERSION '0.1';
	CREATE ROLE reporter;
	CREATE ROLE "Reporter of Reports" IN ROLE reporter;
	GRANT EXECUTE ON FUNCTION incsink_attach TO reporter WITH GRANT OPTION;
	GRANT EXECUTE ON FUNCTION incsink_attach TO "Reporter of Reports";
	GRANT SELECT ON incsink.status TO reporter;
	CREATE VIEW sinks_that_halt AS SELECT sink, reason FROM incsink.status WHERE state = 'halted';
	CREATE TABLE logs (id bigint, v text);
	CREATE TABLE old (id bigint, v text);
	INSERT INTO old SELECT i, 'was there' FROM generate_series(1, 20) AS i;
});
attach('logs', 0);
attach('old', 1);
sql('CREATE TABLE cut (id bigint, v text)');
attach('cut', 0);
sql(qq{
	SELECT incsink_create_sink('central', '@{[ $collector->url ]}', tables => '{logs,cut}');
	SELECT incsink_create_sink('failing', '@{[ $failing->url ]}', tables => '{logs}',
		options => '{"retry_initial": "50ms", "retry_max": "100ms"}');
	SELECT incsink_create_sink('listing', '@{[ $failing->url('/listing') ]}', datasets => '{later}');
	SELECT incsink_create_sink('files', 'file://$files', tables => '{logs}',
		options => '{"flush_interval": 0, "retry_initial": "50ms"}');
	SELECT incsink_add_table('central', 'old', start => 'now');
});
goes_on('rows of a database of 0.1 are exported');
sql(q{INSERT INTO old VALUES (21, 'came later')});
wait_until(sub { $collector->count->{rows} == 2 }, 'also from a table that had rows, those that came later');
wait_until(sub { $failing->count->{rows} == 1 }, 'to every sink');
is(sql(q{SELECT count(*) FROM incsink_read_since('logs')}), 1, 'and can be read');
is(sql(q{SELECT count(*) FROM incsink_read_since('old')}), 1, 'without those that have no number');
is(sql(q{SELECT count(*) FROM incsink.partitions WHERE error IS NULL}), 3, 'nothing is wrong with its tables');

# A batch that was stored, and not acknowledged.
$failing->control('store status=503 times=always');
goes_on('a row before the restart');
wait_for_query($node, q{SELECT failures > 0 FROM incsink.stat_delivery WHERE sink = 'failing'}, 't', 'a batch is in flight');
my $batch = sql(q{SELECT batch_id FROM incsink.intent});
$node->restart;
goes_on('a worker that starts on the catalog of 0.1 goes on');
sql(q{BEGIN; INSERT INTO cut VALUES (22, 'cut'); TRUNCATE cut RESTART IDENTITY; INSERT INTO cut VALUES (23, 'after TRUNCATE'); COMMIT});
wait_until(sub { grep { $_ eq 'after TRUNCATE' } @{ rows_at_collector($collector, 'v') } },
	'TRUNCATE RESTART IDENTITY gives out no number again');

sub refuses
{
	my ($query, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (undef, undef, $error) = $node->psql('postgres', $query);
	like($error, qr/ALTER EXTENSION incsink UPDATE/, "$name says to update");
	return;
}

sql('CREATE TABLE more (id bigint PRIMARY KEY, v text)');
refuses(q{SELECT incsink_attach('more')}, 'incsink_attach()');
refuses(q{SELECT incsink_attach('more', if_not_exists => true)}, 'with named arguments');
is(sql(q{SELECT count(*) FROM incsink_check_attach('more') WHERE severity = 'error'}), 0, 'incsink_check_attach() works');
sql(q{SELECT incsink_pause_sink('listing'), incsink_resume_sink('listing'), incsink_alter_sink('listing', options => '{"flush_rows": 7}')});
is(sql(q{SELECT incsink_flush('central')}), 't', 'incsink_flush() works');
sql('BEGIN; CREATE TABLE t (id int) PARTITION BY RANGE (id); CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (2); DROP TABLE t; COMMIT');
pass('so does DDL');

my $dump = PostgreSQL::Test::Utils::tempdir . '/0.1.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', 'postgres' ], 'pg_dump works');

# ------------------------------------------------------------------------- update

my ($out, $error) = ('', '');
my $writer = IPC::Run::start(
	[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', q{
		DO $$ BEGIN
			FOR i IN 1001 .. 2500 LOOP
				INSERT INTO logs VALUES (i, 'during');
				COMMIT;
				PERFORM pg_sleep(0.001);
			END LOOP;
		END $$} ], '>', \$out, '2>', \$error);
wait_until(sub { grep { $_ eq 'during' } @{ rows_at_collector($collector, 'v') } }, 'rows keep coming');
my $worker = sql(q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'});
sql('BEGIN; ALTER EXTENSION incsink UPDATE; ROLLBACK');
is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'incsink'}), '0.1', 'an update can be rolled back');
sql(q{ALTER EXTENSION incsink UPDATE TO '0.2'});
is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'incsink'}), '0.2', 'ALTER EXTENSION UPDATE works meanwhile');
ok($writer->finish, 'no writer notices') or diag($error);
is(sql(q{SELECT batch_id FROM incsink.intent ORDER BY intent_id LIMIT 1}), $batch, 'the batch in flight keeps its id');
$failing->back_to_normal;
goes_on('a row after the update');
wait_for_query($node, q{SELECT sum(lag_rows) FROM incsink.stat_delivery}, '0', 'everything is exported');
is_exported($node, q{SELECT id FROM logs UNION ALL SELECT 21 UNION ALL SELECT 23}, rows_at_collector($collector, 'id'), 'each row once');
is_exported($node, q{SELECT id FROM logs}, rows_at_collector($failing, 'id'), 'at the one that failed, too');
is(sql(q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'}), $worker, 'by the worker of before');
is(sql(q{SELECT count(*) FROM incsink.stat_delivery WHERE state <> 'waiting' OR backlog_rows_done IS NOT NULL}), 0, 'no delivery complains');
$node->restart;
goes_on('another worker goes on');

# -------------------------------------------------------------- a database of 0.2

sql(q{INSERT INTO more SELECT i, 'backlog' FROM generate_series(3001, 3100) AS i;
	SELECT incsink_attach('more');
	SELECT incsink_add_table('central', 'more')});
wait_until(sub { 100 == grep { $_ eq 'backlog' } @{ rows_at_collector($collector, 'v') } }, 'what is new in 0.2 works: rows that a table had are exported');
sql(q{CALL incsink_renumber('old')});
is(sql(q{SELECT had_rows FROM incsink.partitions WHERE table_name = 'old'}), 'f', 'and incsink_renumber()');
wait_until(sub { 20 == grep { $_ eq 'was there' } @{ rows_at_collector($collector, 'v') } }, 'which makes rows without numbers new ones');
sql(qq{SELECT incsink_alter_sink('failing', url => '@{[ $failing->url('/again') ]}', watermark => 'restart')});
is(sql(q{SELECT incsink_flush('failing')}), 't', 'a sink can be restarted');
is_exported($node, q{SELECT id FROM logs}, rows_at_collector($failing, 'id', path => '/again'), 'and gets each row again');
sql(q{SELECT incsink_remove_table('failing', 'logs'), incsink_add_table('failing', 'logs', start => 'now')});
is(sql(q{SELECT incsink_flush('files')}), 't', 'files have what they should');

# One that begins with it, whose worker was never another's.
sql('CREATE DATABASE second');
sql(q{CREATE EXTENSION incsink VERSION '0.2'}, 'second');
sql(qq{
	CREATE TABLE logs (id bigint PRIMARY KEY, v text);
	INSERT INTO logs SELECT i, 'second had' FROM generate_series(1, 10) AS i;
	SELECT incsink_attach('logs');
	SELECT incsink_create_sink('central', '@{[ $collector->url('/second') ]}', tables => '{logs}');
	INSERT INTO logs VALUES (11, 'second')}, 'second');
is(sql(q{SELECT incsink_flush('central')}, 'second'), 't', 'a new database of 0.2 is exported');
is_exported($node, q{SELECT id FROM logs}, rows_at_collector($collector, 'id', path => '/second'), 'each row once', 'second');
is(sql(q{SELECT count(*) FROM pg_tables WHERE tablename = 'epoch_state'}, 'second'), '0', 'without what is new since');
sql(q{SELECT incsink_adopt_database(); INSERT INTO logs VALUES (12, 'second adopted')}, 'second');
is(sql(q{SELECT incsink_flush('central')}, 'second'), 't', 'so it is when it was adopted');
is(sql(q{SELECT count(*) FROM incsink.stat_delivery WHERE state <> 'waiting'}, $_), '0', "no delivery of $_ complains")
  foreach qw(postgres second);

# ------------------------------------------------------------------- update from 0.2

$failing->control('store status=503 times=always');
goes_on('a row before the next update');
wait_for_query($node, q{SELECT failures > 0 FROM incsink.stat_delivery WHERE sink = 'failing'}, 't', 'a batch is in flight');
$batch = sql(q{SELECT batch_id FROM incsink.intent WHERE sink_id = (SELECT sink_id FROM incsink.sink_def WHERE name = 'failing')});
$worker = sql(q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'});
sql('BEGIN; ALTER EXTENSION incsink UPDATE; ROLLBACK');
is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'incsink'}), '0.2', 'this update can be rolled back, too');
goes_on('a row after that');
foreach my $database (qw(postgres second))
{
	sql(q{ALTER EXTENSION incsink UPDATE TO '0.3'}, $database);
	is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'incsink'}, $database), '0.3', "$database is updated");
}
is(sql(q{SELECT count(*) FROM incsink.intent WHERE batch_id = '} . $batch . q{'}), '1', 'the batch in flight keeps its id');
$failing->back_to_normal;
goes_on('a row after this update');
wait_for_query($node, q{SELECT sum(lag_rows) FROM incsink.stat_delivery}, '0', 'everything is exported');
is(sql(q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'}), $worker, 'by the worker of before');

# Nobody knows where an epoch of before began.
my $count = sql('SELECT count(*) FROM logs');
is(sql('SELECT count(*) FROM incsink.epoch_state'), '0', 'epochs that began before are on no record');
is(whole('central', 'logs'), "ok 0 $count unknown", 'incsink_verify() does not count for them');
is(verify('files', 'logs'), '', 'but looks at files');
my @files = @{ files_below($files) };
cmp_ok(scalar @files, '>', 2, 'of which there are some');
rename $files[1], "$files[1].away";
like(verify('files', 'logs'), qr/^missing \d+ \d+ \d+ \d* ?\d+$/, 'and misses one between others');
rename "$files[1].away", $files[1];
sql(qq{SELECT incsink_alter_sink('files', url => 'file://$files', watermark => 'restart'),
	incsink_alter_sink('central', url => '@{[ $collector->url('/again') ]}', watermark => 'restart')});
is(sql(q{SELECT incsink_flush('files') AND incsink_flush('central')}), 't', 'sinks are restarted');
is(whole('central', 'logs'), "ok 0 $count $count", 'and counted from there on');
is(verify('files', 'logs'), '', 'with the files of the new epoch');
sql(qq{SELECT incsink_alter_sink('central', url => '@{[ $collector->url ]}', watermark => 'keep')});
sql(q{INSERT INTO logs VALUES (13, 'second after')}, 'second');
is(sql(q{SELECT incsink_flush('central')}, 'second'), 't', 'the second database goes on');
is_exported($node, q{SELECT id FROM logs}, rows_at_collector($collector, 'id', path => '/second'), 'each row once', 'second');
is(verify('central', 'logs', 'second'), '', 'which incsink_verify() does not deny');
sql(q{SELECT incsink_adopt_database()}, 'second');
sql(q{INSERT INTO logs VALUES (14, 'second last')}, 'second');
is(sql(q{SELECT incsink_flush('central')}, 'second'), 't', 'adopted again');
like(whole('central', 'logs', 'second'), qr/^ok [1-9]\d* 1 1$/, 'it is counted from there on');

# ------------------------------------------------------------------- update from 0.3

# One batch at a time, whatever the options say, and nothing is split or put aside.
sql(q{SELECT incsink_alter_sink('failing', options => '{"max_in_flight": 4, "flush_rows": 2, "on_reject": "dead_letter"}')});
$failing->control('store status=413 times=always');
sql(q{INSERT INTO logs SELECT i, 'refused' FROM generate_series(3001, 3010) AS i});
wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE sink = 'failing'}, 'halted', 'a refusal halts');
is(sql(q{SELECT count(*) FROM incsink.intent}), '1', 'one batch stands');
$batch = sql(q{SELECT batch_id FROM incsink.intent});
$worker = sql(q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'});
sql('BEGIN; ALTER EXTENSION incsink UPDATE; ROLLBACK');
goes_on('a row after an update that was rolled back');
foreach my $database (qw(postgres second))
{
	sql('ALTER EXTENSION incsink UPDATE', $database);
	is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'incsink'}, $database), '0.4', "$database is updated");
}
is(sql(q{SELECT batch_id || ' ' || refused FROM incsink.intent}), "$batch 0", 'the batch in flight keeps its id');
$failing->back_to_normal;
sql(q{SELECT incsink_resume_sink('failing')});
goes_on('a row after the update from 0.3');
wait_for_query($node, q{SELECT sum(lag_rows) FROM incsink.stat_delivery}, '0', 'everything is exported');
cmp_ok(sql(q{SELECT flushes_interval FROM incsink.stat_delivery WHERE sink = 'failing'}), '>', 0, 'and triggers are counted from now on');
is(sql(q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'}), $worker, 'by the worker of before');
$node->restart;
goes_on('another worker goes on, too');

# ------------------------------------------------------------------ what came of it

sql('CREATE DATABASE fresh');
sql('CREATE EXTENSION incsink', 'fresh');
same_catalog('postgres', 'fresh', 'a database updated from 0.1 to 0.2 and on is like a new one');
same_catalog('second', 'fresh', 'so is one updated from 0.2');
is(sql(q{SELECT string_agg(a.grantee::regrole || CASE WHEN a.is_grantable THEN '*' ELSE '' END, ', ' ORDER BY 1)
		FROM pg_proc, aclexplode(proacl) AS a WHERE proname = 'incsink_attach' AND a.grantee <> proowner}),
	'reporter*, "Reporter of Reports"', 'those who might attach still may');
is(sql(q{SELECT has_table_privilege('reporter', 'incsink.status', 'SELECT')}), 't', 'those who might look still may');
is(sql(q{SELECT count(*) FROM sinks_that_halt}), 0, 'views of users over views still work');

# A tree whose rows, those it had and new ones, are still to be exported when the dump
# is made.
sql(qq{
	CREATE TABLE tree (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (5001) TO (5101);
	CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (5101) TO (5201);
	INSERT INTO tree SELECT i, 'tree' FROM generate_series(5001, 5190, 10) AS i;
	SELECT incsink_attach('tree');
	SELECT incsink_create_sink('trees', '@{[ $failing->url('/trees') ]}', tables => '{tree}', enabled => false);
	INSERT INTO tree SELECT i, 'tree' FROM generate_series(5002, 5190, 10) AS i;
	ALTER TABLE tree_1 RENAME TO tree_one;
	ALTER TABLE tree DETACH PARTITION tree_2;
});

# --------------------------------------------------------------- dump and restore

# Restores a dump; returns what went wrong.
sub restore
{
	my ($file, $name) = @_;
	my ($output, $errors) = ('', '');

	sql("CREATE DATABASE $name");
	IPC::Run::run([ 'psql', '-X', '-q', '-f', $file, '-d', $node->connstr($name) ], '>', \$output, '2>', \$errors);
	return $errors;
}

my $upgraded = PostgreSQL::Test::Utils::tempdir . '/upgraded.sql';
$node->command_ok([ 'pg_dump', '-f', $upgraded, '-d', 'postgres' ], 'pg_dump of the upgraded database works');
is(restore($upgraded, 'from_upgraded'), '', 'and its dump can be restored');
same_catalog('from_upgraded', 'fresh', 'restored from the upgraded database');
is(sql(q{SELECT count(*) FROM pg_proc, aclexplode(proacl) AS a WHERE proname = 'incsink_attach' AND a.grantee = 'reporter'::regrole}, 'from_upgraded'),
	1, 'with what was granted');
is(join(' ', restore($dump, 'from_old') =~ /(?:ERROR|FATAL): (.*)/g),
	join(' ', (' function public.incsink_attach(regclass, text, text, name, jsonb, boolean) does not exist') x 2),
	'a dump of 0.1 can be restored, but for grants on functions whose arguments changed');
same_catalog('from_old', 'fresh', 'restored from a dump of 0.1');
is(sql(q{SELECT count(*) FROM incsink.epoch_state AS e JOIN incsink.watermark AS w USING (sink_id, partition_id, destination, epoch)}, 'from_upgraded'),
	sql(q{SELECT count(*) FROM incsink.epoch_state}), 'and where its epochs began');

# They go on where their dumps stood.
$node->reload;
foreach my $database (qw(from_old from_upgraded))
{
	my $path = $collector->url("/$database");

	sql(qq{SELECT incsink_alter_sink('central', url => '$path', watermark => 'keep');
		SELECT incsink_drop_sink('failing'), incsink_drop_sink('listing'), incsink_drop_sink('files');
		SELECT incsink_adopt_database();
		INSERT INTO logs VALUES (9000, '$database')}, $database);
	wait_until(sub { grep { $_ eq $database } @{ rows_at_collector($collector, 'v') } }, "$database: exports go on");
	is_deeply([ grep { $_ eq 'was there' } @{ rows_at_collector($collector, 'v', path => "/$database") } ], [],
		'without rows that they were not to export, or had exported');
	is(sql(q{SELECT count(*) FROM incsink.stat_delivery WHERE sink = 'central' AND state <> 'waiting'}, $database), 0, 'no delivery complains');
	wait_for_query($node, q{SELECT count(*) FROM incsink.intent}, '0');
	like(whole('central', 'logs', $database), qr/^ok [1-9]\d* 1 1$/, 'incsink_verify() counts from there on');
}
is(sql(q{SELECT string_agg(table_name || ' ' || state, ', ' ORDER BY table_name) FROM incsink.leaves WHERE table_exists}, 'from_upgraded'),
	'tree_2 left, tree_one in tree', 'leaves of a restored tree are known');
sql(q{SELECT incsink_resume_sink('trees')}, 'from_upgraded');
is(sql(q{SELECT incsink_flush('trees')}, 'from_upgraded'), 't', 'they are exported');
is_exported($node, q{SELECT id FROM tree UNION ALL SELECT id FROM tree_2}, rows_at_collector($failing, 'id', path => '/trees'),
	'rows they had, new ones, and those of a leaf that was detached', 'from_upgraded');
sql('DROP EXTENSION incsink CASCADE', $_) foreach qw(from_old from_upgraded fresh second);
sql('DROP VIEW sinks_that_halt; DROP EXTENSION incsink CASCADE');
is(sql(q{SELECT count(*) FROM pg_event_trigger}), 0, 'DROP EXTENSION leaves nothing');
sql(q{REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM reporter; DROP ROLE reporter, "Reporter of Reports"});
pass('and nothing depends on the roles');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
$node->stop('fast');
done_testing();
