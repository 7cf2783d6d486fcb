# Catalog tables that are locked, a worker that may do nothing, and other states in
# which nothing must be lost, doubled, spun upon or given away.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('locked', conf => [ "incsink.poll_interval = '20ms'" ]);
my $collector = Collector->new;

$node->safe_psql('postgres', qq{
	CREATE TABLE t (id bigint, v text);
	SELECT incsink_attach('t');
	SELECT incsink_create_sink('central', '@{[ $collector->url ]}', tables => '{t}',
		options => '{"retry_initial": "10ms", "retry_max": "20ms"}');
});

sub turns { return $node->safe_psql('postgres', q{SELECT turns FROM incsink.stat_worker WHERE class = 'forward'}); }
sub worker { return $node->safe_psql('postgres', q{SELECT pid FROM incsink.stat_worker WHERE class = 'forward'}); }

# Lets the worker take some turns, in which it could do what it must not.
sub some_turns
{
	my $before = turns();

	wait_until(sub { turns() > $before + 3 });
	return;
}

# ---------------------------------------------------- a reload meets a locked table

foreach my $table (qw(delivery_state watermark intent sink_def partition_def))
{
	my $pid = worker();
	my $locker = $node->background_psql('postgres', on_error_stop => 1);

	# stored, and not acknowledged: a second id for this range would double it
	$collector->control('store status=503 times=always');
	$node->safe_psql('postgres', "INSERT INTO t VALUES (1, '$table'), (2, '$table')");
	wait_for_query($node, q{SELECT failures > 0 FROM incsink.stat_delivery}, 't', "a batch is retried");
	$locker->query_safe("BEGIN; LOCK TABLE incsink.$table");
	$node->reload;
	$node->safe_psql('postgres', "INSERT INTO t VALUES (3, '$table')");
	some_turns();
	$collector->back_to_normal;
	$locker->query_safe('COMMIT');
	$locker->quit;
	wait_for_query($node, q{SELECT count(*) = 0 FROM incsink.intent}, 't', "it goes on when incsink.$table is free");
	wait_for_query($node, q{SELECT lag_rows = 0 AND state = 'waiting' FROM incsink.stat_delivery}, 't', 'to the end');
	is(worker(), $pid, 'the worker has not ended over it');
	is_deeply([ sort map { $_->{id} } grep { $_->{v} eq $table } @{ $collector->rows } ], [ 1, 2, 3 ],
		'each row has one batch id');
}

# ------------------------------------------------------------ nothing may be done

$collector->control('status=503 times=always');
$node->safe_psql('postgres', q{INSERT INTO t VALUES (9, 'off')});
wait_for_query($node, q{SELECT failures > 0 FROM incsink.stat_delivery}, 't', 'a batch is retried');
$node->append_conf('postgresql.conf', "incsink.enabled = off\nincsink.poll_interval = '1s'");
$node->reload;
wait_for_query($node, q{SELECT state FROM incsink.stat_worker WHERE class = 'forward'}, 'waiting',
	'switched off the worker says so');
my $before = turns();
$node->safe_psql('postgres', 'SELECT pg_sleep(1)');
cmp_ok(turns() - $before, '<', 100, 'and does not spin on the retry that would be due');
$node->append_conf('postgresql.conf', "incsink.enabled = on\nincsink.poll_interval = '20ms'");
$node->reload;
$collector->back_to_normal;
wait_until(sub { grep { $_->{v} eq 'off' } @{ $collector->rows } }, 'switched on it goes on');

# A table that could not be read, and then has no row left to export.
$node->safe_psql('postgres', qq{
	CREATE ROLE exporter;
	CREATE TABLE u (id bigint);
	SELECT incsink_attach('u');
	GRANT SELECT ON u TO exporter;
	GRANT EXECUTE ON FUNCTION incsink_create_sink(text, text, regclass[], text[], jsonb, name, boolean) TO exporter;
	SET incsink.allowed_url_prefixes = 'http://127.0.0.1:@{[ $collector->port ]}';
	ALTER SYSTEM SET incsink.allowed_url_prefixes = 'http://127.0.0.1:@{[ $collector->port ]}';
	SET ROLE exporter;
	SELECT incsink_create_sink('other', '@{[ $collector->url ]}', tables => '{u}',
		options => '{"retry_initial": "10ms", "retry_max": "20ms"}');
	RESET ROLE;
	REVOKE SELECT ON u FROM exporter;
	INSERT INTO u VALUES (1);
});
$node->reload;
wait_for_query($node, q{SELECT state = 'halted' AND reason ~ 'permission denied' FROM incsink.stat_delivery WHERE sink = 'other'},
	't', 'a table that its owner may not read halts the delivery');
$node->safe_psql('postgres', 'DELETE FROM u; GRANT SELECT ON u TO exporter');
wait_for_query($node, q{SELECT state = 'waiting' AND reason IS NULL AND lag_rows = 0 FROM incsink.stat_delivery WHERE sink = 'other'},
	't', 'readable again and empty, it waits');
$node->append_conf('postgresql.conf', "incsink.poll_interval = '1s'");
$node->reload;
some_turns();
$before = turns();
$node->safe_psql('postgres', 'SELECT pg_sleep(1)');
cmp_ok(turns() - $before, '<', 100, 'and spins on nothing');

# ------------------------------------------------------------------- the secret

my $secret = 'SECRET' x 10;
$node->safe_psql('postgres', qq{
	CREATE SERVER here FOREIGN DATA WRAPPER incsink OPTIONS (origin 'http://127.0.0.1:@{[ $collector->port ]}');
	CREATE USER MAPPING FOR CURRENT_USER SERVER here OPTIONS (bearer '$secret', part 'S/E?C+R E%T');
	CREATE TABLE s (id bigint);
	SELECT incsink_attach('s');
	SELECT incsink_create_sink('secret', '@{[ $collector->url('/secret') ]}', tables => '{s}', credentials => 'here');
});
my $echo = ('x' x 270) . " Bearer $secret";
$collector->control(qq{path=/secret nostore status=422 body="$echo"});
$node->safe_psql('postgres', 'INSERT INTO s VALUES (1)');
wait_for_query($node, q{SELECT state FROM incsink.stat_delivery WHERE sink = 'secret'}, 'halted', 'refused content halts');
unlike($node->safe_psql('postgres', q{SELECT last_error FROM incsink.stat_delivery WHERE sink = 'secret'}),
	qr/SECRET/, 'no part of a secret that is cut is shown');
$collector->control(q{path=/secret nostore status=422 body="at /S%2FE%3FC%2BR%20E%25T of S/E?C+R E%T"});
$node->safe_psql('postgres', q{SELECT incsink_resume_sink('secret')});
wait_for_query($node, q{SELECT last_error ~ 'answered 422: at /\*+ of \*+$' FROM incsink.stat_delivery WHERE sink = 'secret'},
	't', 'nor one as it stands in a URL');

# ---------------------------------------------------------------- what else was found

$node->safe_psql('postgres', 'CREATE DATABASE prepared');
$node->safe_psql('prepared', q{BEGIN; CREATE EXTENSION incsink; PREPARE TRANSACTION 'create'});
$node->safe_psql('prepared', q{COMMIT PREPARED 'create'});
wait_until(sub { $node->safe_psql('prepared', q{SELECT state FROM incsink.stat_worker}) eq 'running' },
	'CREATE EXTENSION in a prepared transaction starts a worker, too');

$node->safe_psql('postgres', q{
	CREATE TABLE j (id bigint, doc json);
	SELECT incsink_attach('j');
	INSERT INTO j VALUES (1, '{"a": "b"}'), (2, '{"a": "\u0000"}');
});
my ($status, $out, $err) = $node->psql('postgres', q{SELECT count(*) FROM incsink_read_since('j', wait => '10s')});
isnt($status, 0, 'jsonb cannot hold every json');
like($err, qr/row 2 of table "public\.j" as jsonb; a call with NULL::public\.j returns rows as rows/,
	'the error names the row, and the way round');
is($node->safe_psql('postgres', q{SELECT count(*) FROM incsink_read_since(NULL::j)}), '2', 'which works');

($status, $out, $err) = $node->psql('postgres', q{SELECT incsink_create_sink('bytes', 'file:///tmp/%FF%FE')});
like($err, qr/not valid in the encoding of the server/, 'a path that no view could show is refused');

# ----------------------------------------------------------- rows that are held back

my $open = $node->background_psql('postgres', on_error_stop => 1);
my $pid = $open->query_safe('SELECT pg_backend_pid()');
$open->query_safe("BEGIN; INSERT INTO t VALUES (20, 'open')");
$node->safe_psql('postgres', q{INSERT INTO t VALUES (21, 'behind')});
wait_for_query($node, "SELECT state = 'waiting' AND hint ~ 'End that transaction'
	AND reason LIKE 'rows are held back by process $pid, which has inserted and is open since %'
	FROM incsink.status WHERE sink = 'central'", 't', 'the status names who holds rows back');
$open->query_safe('COMMIT');
$open->quit;
wait_for_query($node, q{SELECT lag_rows = 0 AND reason IS NULL FROM incsink.status WHERE sink = 'central'}, 't',
	'and says nothing more once that has ended');

done_testing();
