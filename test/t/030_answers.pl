# What a receiver's answers do to a delivery: what is tried again and when, what
# halts and how it goes on, and what people see of it.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;

my $node = new_node('answers');
my $collector = Collector->new;

$node->safe_psql('postgres', q{
	CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY, part text);
	SELECT incsink_attach('logs');
});

# A sink of its own for each part, which exports the rows of that part.  Ladders
# are steep, so that a test does not wait.
sub make_sink
{
	my ($name, $options, %more) = @_;
	my $url = $more{url} // $collector->url("/$name");
	my $credentials = $more{credentials} ? "'$more{credentials}'" : 'NULL';

	$node->safe_psql('postgres', qq{
		SELECT incsink_create_sink('$name', '$url', options => '{"retry_initial": "10ms", "retry_max": "50ms"}'::jsonb || '$options',
			credentials => $credentials);
		SELECT incsink_add_table('$name', 'logs', filter => 'part = ''$name''');
	});
	return;
}

sub insert_rows
{
	my ($name, $count) = @_;
	$node->safe_psql('postgres', "INSERT INTO logs (part) SELECT '$name' FROM generate_series(1, $count)");
	return;
}

# One column, or expression, of the delivery.
sub seen
{
	my ($name, $what) = @_;
	return $node->safe_psql('postgres', "SELECT $what FROM incsink.stat_delivery WHERE sink = '$name'");
}

sub wait_seen
{
	my ($name, $condition, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT $condition FROM incsink.stat_delivery WHERE sink = '$name'", 't', $test)
	  or diag(seen($name, "concat_ws(' | ', state, failures, retry_at, reason, hint, last_error)"));
	return;
}

# Everything of a part is exported, once, and nothing is left of the trouble.
sub ends_well
{
	my ($name, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT state = 'waiting' AND reason IS NULL AND failures = 0 AND retry_at IS NULL"
		  . " AND in_flight_batch IS NULL AND lag_rows = 0 FROM incsink.stat_delivery WHERE sink = '$name'")
	  or diag(seen($name, "concat_ws(' | ', state, failures, retry_at, reason, lag_rows, last_error)"));
	is_exported($node, "SELECT id FROM logs WHERE part = '$name'",
		rows_at_collector($collector, 'id', sink => $name), $test);
	return;
}

sub drop_sink
{
	my ($name) = @_;
	$collector->back_to_normal;
	$node->safe_psql('postgres', "SELECT incsink_drop_sink('$name')");
	return;
}

sub distinct_ids { my %ids = map { $_ => 1 } @{ $collector->ids(@_) }; return scalar keys %ids; }

# ------------------------------------------------------------------- it is down

make_sink('down', '{}');
insert_rows('down', 3);
ends_well('down', 'rows arrive while the collector is up');
$collector->kill;
insert_rows('down', 4);
wait_seen('down', "state = 'open circuit' AND failures >= 5 AND reason LIKE '%connect%' AND in_flight_rows = 4",
	'while it is down, the batch is tried again, and the view says why');
$collector->start;
ends_well('down', 'once it is up again, every row is there once');
like(seen('down', 'last_error'), qr/connect/, 'the error that was overcome stays to be seen');
drop_sink('down');

# ------------------------------------------------------------ when to try again

make_sink('later', '{"retry_max": "2h"}');
$collector->control('path=/later status=503 header="Retry-After: 3600" body="full, come back"');
insert_rows('later', 2);
wait_seen('later', "state = 'retrying' AND failures = 1 AND retry_at BETWEEN now() + '55 min' AND now() + '61 min'",
	'Retry-After is honoured: the next attempt is an hour away');
like(seen('later', 'reason'), qr/answered 503: full, come back/, 'and the answer is shown');
is(scalar @{ $collector->entries(path => '/later') }, 1, 'one request was made so far');
$node->safe_psql('postgres', q{SELECT incsink_resume_sink('later')});
ends_well('later', 'incsink_resume_sink() does not wait for it');
is(distinct_ids(sink => 'later'), 1, 'the batch kept its id');

$collector->control(
	'path=/later status=500 header="Retry-After: 0"',
	'path=/later status=502 header="Retry-After: -5"',
	'path=/later status=504 header="Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"',
	'path=/later status=429 header="Retry-After: soon"');
insert_rows('later', 2);
ends_well('later', 'Retry-After in the past, negative or malformed leaves it to the ladder');
drop_sink('later');

# ------------------------------------------------------------------- the ladder

make_sink('ladder', '{"retry_max": "2h"}');
$collector->control('path=/ladder status=500 times=always');
insert_rows('ladder', 1);
wait_seen('ladder', "state = 'open circuit' AND failures = 5 AND retry_at > now() + '100 min'",
	'after five failures in a row the circuit opens: the next attempt is at retry_max');
is(scalar @{ $collector->entries(sink => 'ladder') }, 5, 'five requests were made');
is(seen('ladder', 'in_flight_rows'), 1, 'the batch is still in flight');
is($node->safe_psql('postgres', q{SELECT state || ', ' || (retry_at IS NOT NULL) FROM incsink.status WHERE sink = 'ladder'}),
	'open circuit, true', 'incsink.status says so, too');
insert_rows('ladder', 2);
$collector->reset;
$node->safe_psql('postgres', q{SELECT incsink_resume_sink('ladder')});
ends_well('ladder', 'one success closes the circuit, and what came meanwhile follows');
drop_sink('ladder');

# The last errors, not all.
make_sink('errors', '{"retry_max": "10ms"}');
$collector->control('path=/errors status=500 times=30 body="number"');
insert_rows('errors', 1);
ends_well('errors', 'after 30 failures the row arrives');
is($node->safe_psql('postgres', q{
		SELECT count(*), count(DISTINCT batch_id), bool_and(message LIKE '%500: number')
		FROM incsink.delivery_error JOIN incsink.sink_def USING (sink_id) WHERE name = 'errors'}),
	'20|1|t', 'the last 20 errors are kept, with the id of the batch');
drop_sink('errors');

# ------------------------------------------------------------------- redirects

make_sink('moved', '{"retry_max": "2h"}');
my $login = $collector->url('/login?session=abc');
$collector->control("path=/moved status=302 location=$login times=always");
insert_rows('moved', 3);
wait_seen('moved', "state = 'halted' AND reason LIKE '%302 with a redirect to %/login' AND hint LIKE '%url%'",
	'a redirect halts the delivery, with a reason that names its target');
is(scalar @{ $collector->entries(path => '/login?session=abc') }, 0, 'nothing was sent to the target');
is(seen('moved', 'rows_exported, position < in_flight_until'), '0|t',
	'the page behind the redirect, which answers 200, acknowledged nothing');
my $elsewhere = $collector->url('/elsewhere');
$node->safe_psql('postgres', "SELECT incsink_alter_sink('moved', url => '$elsewhere', watermark => 'keep')");
ends_well('moved', 'with the right url it goes on at once');
is_deeply([ map { $_->{rows} } @{ $collector->entries(path => '/elsewhere') } ], [3], 'there');
is(distinct_ids(sink => 'moved'), 1, 'under the same id');
drop_sink('moved');

# ------------------------------------------------------------- refused content

make_sink('witness', '{}');
foreach my $status (400, 413, 422)
{
	my $name = "refused$status";

	make_sink($name, '{}');
	$collector->control("path=/$name status=$status body=\"field colour is unknown\" times=always");
	insert_rows($name, 1);
	wait_seen($name, "state = 'halted' AND retry_at IS NULL AND reason LIKE '%answered $status: field colour is unknown'"
		  . " AND hint LIKE '%incsink_resume_sink()%'",
		"$status halts the delivery, with the answer's text and what to do");
	insert_rows($name, 1);
	insert_rows('witness', 1);
	ends_well('witness', 'another sink goes on');
	$collector->reset;
	insert_rows('witness', 1);
	ends_well('witness', 'and again');
	is(scalar @{ $collector->entries(sink => $name) }, 1, 'nothing is sent again before somebody says so');
	$node->safe_psql('postgres', "SELECT incsink_resume_sink('$name')");
	ends_well($name, "after $status and incsink_resume_sink() every row arrives once");
	my $entries = $collector->entries(sink => $name);
	is($entries->[0]{id}, $entries->[1]{id}, 'the batch kept its id');
	is($entries->[0]{until}, $entries->[1]{until}, 'and its range, although rows had come');
	drop_sink($name);
}
drop_sink('witness');

# ------------------------------------------------------------- nobody is there

make_sink('missing', '{}');
$collector->control('path=/missing status=404 body="no such route" times=always');
insert_rows('missing', 2);
wait_seen('missing', "state = 'halted' AND retry_at IS NOT NULL AND failures > 2 AND reason LIKE '%404: no such route'",
	'404 halts the delivery, but a probe is made now and then');
$collector->reset;
ends_well('missing', 'so that it goes on by itself once the receiver is mended');
drop_sink('missing');

# ------------------------------------------------------- answers that are wrong

make_sink('slow', '{"request_timeout": "1s"}');
$collector->control('path=/slow store trickle=1 fill=60000');
insert_rows('slow', 2);
ends_well('slow', 'an answer that trickles is given up, and the batch sent again');
like(seen('slow', 'last_error'), qr/reading the answer/, 'the error says in what phase');
is(join(',', map { $_->{outcome} } @{ $collector->entries(sink => 'slow') }), 'stored,duplicate',
	'the receiver knows the batch by its id');
$collector->control('path=/slow store hang');
insert_rows('slow', 2);
ends_well('slow', 'an answer that never comes is given up, and the batch sent again');
like(seen('slow', 'last_error'), qr/waiting for the answer/, 'the error says in what phase');
drop_sink('slow');

make_sink('stalled', '{"stall_timeout": "300ms"}');
$collector->control('path=/stalled store hang');
insert_rows('stalled', 2);
ends_well('stalled', 'a connection on which nothing moves is given up');
drop_sink('stalled');

make_sink('huge', '{}');
$collector->control('path=/huge status=500 fill=20000000', 'path=/huge status=200 store fill=20000000');
insert_rows('huge', 2);
ends_well('huge', 'of huge answers the status counts');
is(join(',', map { $_->{outcome} } @{ $collector->entries(sink => 'huge') }), 'refused,stored',
	'that of a huge 200 acknowledges');
cmp_ok(seen('huge', 'length(last_error)'), '<', 1000, 'what is shown of one is short');
drop_sink('huge');

make_sink('broken', '{}');
$collector->control('path=/broken store raw="HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"',
	'path=/broken raw="200 OK"', 'path=/broken store close', 'path=/broken close=headers');
insert_rows('broken', 2);
ends_well('broken', 'an answer that breaks off, is none or does not come acknowledges nothing');
is(scalar @{ $collector->entries(sink => 'broken') }, 5, 'each was followed by another attempt');
is(distinct_ids(sink => 'broken'), 1, 'with the same id');
drop_sink('broken');

# ------------------------------------------------------------------ credentials

# A receiver that wants the token in a file, notes the one it got and echoes it.
my $dir = PostgreSQL::Test::Utils::tempdir('receiver');
append_to_file("$dir/wanted", 'Bearer T0ken-of-old');
append_to_file("$dir/seen", '');
my $listener = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', Proto => 'tcp', ReuseAddr => 1)
  or die "listen: $!";
my $receiver = fork() // die "fork: $!";
if ($receiver == 0)
{
	while (my $connection = $listener->accept)
	{
		my ($head, $body) = ('', '');
		while (my $line = <$connection>)
		{
			last if $line eq "\r\n";
			$head .= $line;
		}
		my ($length) = $head =~ /^Content-Length: (\d+)/mi;
		read $connection, $body, $length // 0;
		my ($token) = $head =~ /^Authorization: (.*)\r$/mi;
		my ($key) = $head =~ /^X-Key: (.*)\r$/mi;
		my $good = $token eq slurp_file("$dir/wanted");
		append_to_file("$dir/seen", "$token $key\n");
		my $answer = $good ? '' : "you sent $token and $key";
		append_to_file("$dir/rows", $body) if $good;
		print $connection ($good ? 'HTTP/1.1 200 OK' : 'HTTP/1.1 401 Unauthorized'),
		  "\r\nConnection: close\r\nContent-Length: ", length $answer, "\r\n\r\n$answer";
		close $connection;
	}
	POSIX::_exit(0);
}
my $origin = 'http://127.0.0.1:' . $listener->sockport;
close $listener;

$node->append_conf('postgresql.conf', 'log_min_messages = debug5');
$node->reload;
my $log_start = -s $node->logfile;
$node->safe_psql('postgres', qq{
	CREATE SERVER receiver FOREIGN DATA WRAPPER incsink OPTIONS (origin '$origin');
	CREATE USER MAPPING FOR CURRENT_USER SERVER receiver OPTIONS (bearer 'T0ken-of-old', api_key 'K3y-of-old');
});
make_sink('secret', '{"headers": {"X-Key": "{secret:api_key}"}}', url => "$origin/in", credentials => 'receiver');
insert_rows('secret', 1);
wait_until(sub { -e "$dir/rows" }, 'with the right secret a row is taken');
# the receiver rotates its secret first
unlink "$dir/wanted";
append_to_file("$dir/wanted", 'Bearer T0ken-of-new');
insert_rows('secret', 2);
wait_seen('secret', "state IN ('retrying', 'open circuit') AND retry_at IS NOT NULL AND failures > 1"
	  . " AND reason LIKE '%answered 401: you sent Bearer %' AND hint LIKE '%user mapping%'",
	'a refused secret is tried again, and the hint says what to change');
like(seen('secret', 'reason'), qr/you sent Bearer \*+ and \*+$/, 'secrets that the receiver echoes are blanked');
is(seen('secret', 'in_flight_rows'), 2, 'no row is dropped');
$node->safe_psql('postgres',
	"ALTER USER MAPPING FOR CURRENT_USER SERVER receiver OPTIONS (SET bearer 'T0ken-of-new', SET api_key 'K3y-of-new')");
wait_seen('secret', "state = 'waiting' AND lag_rows = 0", 'with the new secret in the user mapping it goes on by itself');
is(() = slurp_file("$dir/rows") =~ /"secret"/g, 3, 'every row is there once');
like(slurp_file("$dir/seen"), qr/T0ken-of-old K3y-of-old\n(.*\n)*Bearer T0ken-of-new K3y-of-new\n$/, 'each sent with the secret of its time');

my (undef, undef, $stderr) = $node->psql('postgres',
	q{SELECT incsink_alter_sink('secret', options => '{"headers": {"X-Key": "{secret:other_key}"}}')});
like($stderr, qr/other_key/, 'a secret that is missing is named');
unlike($stderr, qr/(T0ken|K3y)-of/, 'without those that are there');
is($node->safe_psql('postgres', q{
		SELECT string_agg(relname, ' ') FROM pg_class
		WHERE (relnamespace = 'incsink'::regnamespace AND relkind IN ('r', 'v') OR oid = 'pg_stat_activity'::regclass)
			AND query_to_xml(format('SELECT * FROM %s', oid::regclass), true, false, '')::text ~ ('(T0ken|K3y)' || '-of')}),
	'', 'no secret is in any view or table of incsink');
my $log = substr(slurp_file($node->logfile), $log_start);
like($log, qr/DEBUG:/, 'the server logs all it has to say');
unlike($log, qr/(T0ken|K3y)-of/, 'and no secret is in it');
kill 'KILL', $receiver;
waitpid $receiver, 0;

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
done_testing();
