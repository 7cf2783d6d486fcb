# pg_partman keeps a table under load: it makes leaves, moves rows out of the default
# partition, detaches and drops old leaves.  A collector and files get every row once,
# and no maintenance fails.  Where the server has no pg_partman the same is done with
# the statements that it would run, and the test says so.
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
my $interval = 200;		# ids a leaf
my $premake = 15;			# leaves ahead
my $retention = 4 * $interval;

my ($control) = glob(sharedir() . '/extension/pg_partman.control');
my $partman = $control && -e $control ? (slurp_file($control) =~ /default_version\s*=\s*'(\d+)/)[0] : 0;

my $export = Export->new(
	'partman',
	forward => { flush_rows => 200 },
	file => { flush_rows => 1000 },
	conf => [ 'incsink.poll_interval = 10ms', 'max_wal_size = 256MB', 'max_locks_per_transaction = 256' ],
	table => q{
		CREATE TABLE t (id bigint NOT NULL, v text) PARTITION BY RANGE (id);
		CREATE TABLE w (id bigint, v text);
		CREATE SEQUENCE ids;
	} . ($partman ? partman_set_up() : plain_set_up()));
my $node = $export->node;
my $connection = $node->connstr('postgres');
my $scripts = PostgreSQL::Test::Utils::tempdir('scripts');
my $seed = time ^ $$;
srand $seed;
note("seed $seed, $writers writers, $seconds s");
if ($partman) { pass("pg_partman $partman of this server keeps the leaves"); }
else { pass('this server has no pg_partman: leaves are kept by the statements that it would run'); }

my $deadline = time + $seconds;
my @children = map { start_writer($_) } 1 .. $writers;
my ($rounds, $moved) = (0, 0);
my %seen;					# names of leaves
my @failures;

while (time < $deadline)
{
	maintain($rounds++);
	sleep 0.2;
}
waitpid $_, 0 foreach @children;
$export->settle('all that was written is exported');

is(join("\n", @failures), '', 'no maintenance failed');
cmp_ok($rounds, '>=', 5, "there were $rounds rounds of it");
my ($in_tree, $left) = split /\|/, $export->query(q{
	SELECT count(*) FILTER (WHERE state = 'in tree'), count(*) FILTER (WHERE state = 'left') FROM incsink.leaves});
my $gone = keys(%seen) - grep { $seen{$_} } split /\n/, $export->query('SELECT table_name FROM incsink.leaves');
note("$in_tree leaves, $left more that were detached, $gone dropped, $moved rows moved out of the default partition");
cmp_ok($left, '>', 0, 'leaves were detached');
cmp_ok($gone, '>', 0, 'leaves were dropped');
cmp_ok($moved, '>', 0, 'rows were moved out of the default partition');

my $expected = [ split /\n/, $export->query(q{SELECT id || ' ' || v FROM w}) ];
is($export->faults(forward => $expected, file => $expected), '',
	scalar(@$expected) . ' rows are at the collector and in the files once: 0 missing, 0 duplicate');
is($export->query('SELECT count(*) FROM incsink.loss'), '0', 'nothing was lost with a leaf');
is($export->query("SELECT string_agg(state || COALESCE(reason, ''), ' ') FROM incsink.status"),
	'waiting waiting', 'both sinks are at rest');

done_testing();

# Where the server keeps extensions: beside the programs that run.
sub sharedir
{
	my ($dir) = `pg_config --sharedir` =~ /(.*)/;
	return $dir;
}

sub partman_set_up
{
	my $type = $partman < 5 ? "p_type := 'native', " : '';

	return qq{
		CREATE SCHEMA partman;
		CREATE EXTENSION pg_partman SCHEMA partman;
		SELECT partman.create_parent('public.t', 'id', ${type}p_interval := '$interval', p_premake := $premake);
		UPDATE partman.part_config SET retention = '$retention', retention_keep_index = true,
			infinite_time_partitions = true WHERE parent_table = 'public.t';
	};
}

# What pg_partman does, as far as it matters here.
sub plain_set_up
{
	return qq{
		CREATE TABLE t_default (LIKE t INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
		ALTER TABLE t ATTACH PARTITION t_default DEFAULT;
		CREATE PROCEDURE make_leaf(low bigint) LANGUAGE plpgsql AS \$\$
		BEGIN
			IF to_regclass('t_p' || low) IS NULL THEN
				EXECUTE format('CREATE TABLE %I (LIKE t INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', 't_p' || low);
				EXECUTE format('ALTER TABLE t ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', 't_p' || low, low, low + $interval);
			END IF;
		END \$\$;
		CREATE PROCEDURE maintain(keep boolean) LANGUAGE plpgsql AS \$\$
		DECLARE
			top bigint := (SELECT COALESCE(max(id), 0) FROM t) / $interval * $interval;
			low bigint;
			leaf name;
		BEGIN
			FOR low IN SELECT top + $interval * g FROM generate_series(0, $premake) g LOOP
				CALL make_leaf(low);
			END LOOP;
			FOR leaf IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
				WHERE i.inhparent = 't'::regclass AND CASE WHEN c.relname ~ '^t_p[0-9]+\$'
					THEN substr(c.relname, 4)::bigint + $interval <= top - $retention END
			LOOP
				EXECUTE format('ALTER TABLE t DETACH PARTITION %I', leaf);
				IF NOT keep THEN
					EXECUTE format('DROP TABLE %I', leaf);
				END IF;
			END LOOP;
		END \$\$;
		CREATE PROCEDURE move_default() LANGUAGE plpgsql AS \$\$
		DECLARE
			low bigint := (SELECT min(id) FROM t_default) / $interval * $interval;
		BEGIN
			CREATE TEMP TABLE moved (LIKE t_default) ON COMMIT DROP;
			WITH d AS (DELETE FROM t_default WHERE id >= low AND id < low + $interval RETURNING *)
				INSERT INTO moved SELECT * FROM d;
			CALL make_leaf(low);
			INSERT INTO t SELECT * FROM moved;
		END \$\$;
		CALL maintain(true);
	};
}

# One command of the maintenance; true if it did not fail.
sub run
{
	my ($command) = @_;
	my $stderr = '';

	return 1 if $node->psql('postgres', $command, stderr => \$stderr, on_error_stop => 1) == 0;
	push @failures, "$command: $stderr";
	return 0;
}

sub maintain
{
	my ($round) = @_;
	my $keep = $round % 3 == 1 ? 'true' : 'false';
	# A leaf whose rows are gone can be made again; one that was kept cannot: it is in the way.
	my $old = $export->query("SELECT (min(low) - 2) * $interval FROM ("
		  . "SELECT substr(relname, 4)::bigint / $interval AS low FROM pg_class WHERE relname ~ '^t_p[0-9]+\$' AND relispartition) x");

	if ($old >= 0 && $export->query("SELECT to_regclass('t_p$old') IS NULL") eq 't')
	{
		my $first = $old + $round % 10 * 15;

		$moved += 10 if run(qq{
			BEGIN;
			INSERT INTO t SELECT $first + g, 'late $round' FROM generate_series(1, 10) g;
			INSERT INTO w SELECT $first + g, 'late $round' FROM generate_series(1, 10) g;
			COMMIT})
		  && run($partman ? "CALL partman.partition_data_proc('public.t', p_wait := 0, p_quiet := true)" : 'CALL move_default()');
	}
	# Retention is the user's: it drops what is old, exported or not.
	my $drawn = $export->query(q{SELECT last_drawn FROM incsink.stat_horizon});
	wait_for_query($node, "SELECT min(seq) >= $drawn FROM incsink.watermark");
	$seen{$_} = 1 foreach split /\n/, $export->query('SELECT table_name FROM incsink.leaves');
	run(
		$partman
		? qq{UPDATE partman.part_config SET retention_keep_table = $keep;
			SELECT partman.run_maintenance('public.t', p_analyze := false)}
		: "CALL maintain($keep)");
	return;
}

sub start_writer
{
	my ($number) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid;
	srand($seed + $number);
	while (time < $deadline)
	{
		unlink "$scripts/$number.sql";
		append_to_file("$scripts/$number.sql", join '', map { transaction() } 1 .. 10);
		system("psql -XAtq -d \"$connection\" -f $scripts/$number.sql >>$scripts/$number.log 2>&1");
	}
	POSIX::_exit(0);
}

sub transaction
{
	my $count = 1 + int rand 10;
	my $insert = "WITH n AS (INSERT INTO t (id, v) SELECT nextval('ids'), 'row $count'"
	  . " FROM generate_series(1, $count) RETURNING id, v) INSERT INTO w SELECT * FROM n;\n";
	my $pause = sprintf "SELECT pg_sleep(%.4f);\n", rand(0.05)**2 * 20;

	return "BEGIN;\n$insert$pause" . (rand() < 0.8 ? 'COMMIT' : 'ROLLBACK') . ";\n$pause";
}
