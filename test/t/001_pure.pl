# The pure parts, by tables of cases: what a delivery does next, what an answer
# means, how long a retry waits, how a sink keeps its pace.

use strict;
use warnings;

use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('pure');

$node->safe_psql('postgres', q{
	CREATE FUNCTION decide(text, text, int, bigint, text, text, bigint) RETURNS text
		LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_decide';
	CREATE FUNCTION judge(int, text, text, text, text DEFAULT '', int DEFAULT 0) RETURNS text
		LANGUAGE c AS '$libdir/incsink', 'incsink_test_judge';
	CREATE FUNCTION retry_delay(int, bigint, bigint, float8) RETURNS bigint
		LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_retry_delay';
	CREATE FUNCTION pace(bigint, bigint, text) RETURNS text
		LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_pace';
	CREATE FUNCTION pace_limits(bigint, bigint, bigint, bigint, bigint) RETURNS text
		LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_pace_limits';
	CREATE FUNCTION retry_after(text, timestamptz, bigint) RETURNS bigint
		LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_retry_after';
});

# Flags: e enabled, d flush due, o begun before the failure that stands, 4 that many may
# stand at a time (else 1); and the batches that stand, the lowest first: s with no attempt
# under way, x the same and the last one failed, f in flight, p the same and
# begun after a failure, a acknowledged.  As they are
# after the event.
# Columns: state, flags, failures, retry_in ms, event, verdict, retry_after ms =>
# action: state failures retry_in; then the sentence.
my @cases = (
	# a tick
	[ 'waiting', 'e', 0, 0, 'tick', 'retry', 0, 'none: waiting 0 0', 'without rows nothing happens' ],
	[ 'waiting', 'ed', 0, 0, 'tick', 'retry', 0, 'cut: waiting 0 0', 'rows that are due are cut' ],
	[ 'waiting', 'esd', 0, 0, 'tick', 'retry', 0, 'attempt: waiting 0 0', 'an intent found at start is attempted before anything is cut' ],
	[ 'sending', 'efd', 0, 0, 'tick', 'retry', 0, 'none: sending 0 0', 'while a batch is in flight nothing else is sent' ],
	[ 'sending', 'ead', 0, 0, 'tick', 'retry', 0, 'advance: sending 0 0', 'an acknowledgement in memory is committed first' ],
	[ 'sending', 'a', 0, 0, 'tick', 'retry', 0, 'advance: sending 0 0', 'even when the sink is paused' ],
	[ 'waiting', 'd', 0, 0, 'tick', 'retry', 0, 'none: paused 0 0', 'a paused sink cuts nothing' ],
	[ 'retrying', 's', 2, 0, 'tick', 'retry', 0, 'none: paused 2 0', 'a paused sink attempts nothing' ],
	[ 'paused', 'ed', 0, 0, 'tick', 'retry', 0, 'cut: waiting 0 0', 'resumed it goes on' ],
	[ 'paused', 'es', 3, 0, 'tick', 'retry', 0, 'attempt: retrying 3 0', 'resumed it attempts what was in flight' ],
	[ 'retrying', 'es', 1, 500, 'tick', 'retry', 0, 'none: retrying 1 500', 'a retry waits for its time' ],
	[ 'retrying', 'es', 1, -1, 'tick', 'retry', 0, 'attempt: retrying 1 -1', 'and comes when that has passed' ],
	[ 'retrying', 'ed', 1, 500, 'tick', 'retry', 0, 'none: retrying 1 500', 'a table that could not be read is left alone for a while' ],
	[ 'open circuit', 'es', 7, 500, 'tick', 'retry', 0, 'none: open circuit 7 500', 'an open circuit waits for its probe' ],
	[ 'open circuit', 'es', 7, -1, 'tick', 'retry', 0, 'attempt: open circuit 7 -1', 'and probes' ],
	[ 'halted', 'es', 1, 0, 'tick', 'retry', 0, 'none: halted 1 0', 'a halt that no retry mends stays' ],
	[ 'halted', 'es', 1, -1, 'tick', 'retry', 0, 'attempt: halted 1 -1', 'a halt with a probe probes' ],
	# the catalog's answers
	[ 'waiting', 'e', 0, 0, 'committed', 'retry', 0, 'send: sending 0 0', 'what is committed is sent' ],
	[ 'open circuit', 'es', 6, -1, 'committed', 'retry', 0, 'send: sending 6 0', 'a probe keeps the count of failures' ],
	[ 'sending', 'ea', 6, 0, 'advanced', 'retry', 0, 'none: waiting 0 0', 'a watermark that moved closes the circuit' ],
	[ 'sending', 'a', 0, 0, 'advanced', 'retry', 0, 'none: paused 0 0', 'a paused sink is paused after it' ],
	[ 'sending', 'ef', 0, 0, 'fenced', 'retry', 0, 'reload: sending 0 0', 'a fenced delivery forgets what it knew' ],
	# verdicts
	[ 'sending', 'ea', 0, 0, 'verdict', 'acknowledged', 0, 'advance: sending 0 0', 'an acknowledgement moves the watermark' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'retry', 0, 'record: retrying 1 501', 'the first failure is retried within a second' ],
	[ 'sending', 'ex', 2, 0, 'verdict', 'retry', 0, 'record: retrying 3 2001', 'the ladder doubles' ],
	[ 'sending', 'ex', 4, 0, 'verdict', 'retry', 0, 'record: open circuit 5 300000', 'five failures in a row open the circuit' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'retry', 7000, 'record: retrying 1 7000', 'Retry-After is honoured' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'retry', 99999999, 'record: retrying 1 300000', 'but not beyond retry_max' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'retry', 100, 'record: retrying 1 501', 'and never below the ladder' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'credentials', 0, 'record: retrying 1 501', 'refused credentials are tried again' ],
	[ 'sending', 'ex', 9, 0, 'verdict', 'credentials', 0, 'record: open circuit 10 300000', 'up to the cap' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'configuration', 0, 'record: halted 1 300000', 'a wrong configuration halts with a slow probe' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'rejected', 0, 'record: halted 1 0', 'refused content halts without one' ],
	[ 'sending', 'ex', 0, 0, 'verdict', 'too large', 0, 'record: halted 1 0', 'so does a batch that is too large' ],
	[ 'sending', 'x', 0, 0, 'verdict', 'retry', 0, 'record: paused 1 501', 'a failure after a pause leaves it paused' ],
	# several batches at a time
	[ 'sending', '4ed:fff', 0, 0, 'tick', 'retry', 0, 'cut: sending 0 0', 'a window with a place left takes one more' ],
	[ 'sending', '4ed:ffff', 0, 0, 'tick', 'retry', 0, 'none: sending 0 0', 'a full one does not' ],
	[ 'sending', '4ed:fafa', 0, 0, 'tick', 'retry', 0, 'none: sending 0 0', 'an acknowledgement behind one in flight moves nothing and frees no place' ],
	[ 'sending', '4ed:affa', 0, 0, 'tick', 'retry', 0, 'advance: sending 0 0', 'one in front is committed' ],
	[ 'sending', '4:aaf', 0, 0, 'tick', 'retry', 0, 'advance: sending 0 0', 'paused or not' ],
	[ 'sending', '4d:ff', 0, 0, 'tick', 'retry', 0, 'none: sending 0 0', 'a pause cuts nothing beside those in flight' ],
	[ 'sending', '4:sa', 0, 0, 'tick', 'retry', 0, 'none: paused 0 0', 'and attempts nothing that stands' ],
	[ 'waiting', '4ed:sss', 0, 0, 'tick', 'retry', 0, 'attempt: waiting 0 0', 'what stands goes before what is new' ],
	[ 'sending', '4ed:fss', 0, 0, 'tick', 'retry', 0, 'attempt: sending 0 0', 'beside what is in flight' ],
	[ 'sending', 'ed:fss', 0, 0, 'tick', 'retry', 0, 'none: sending 0 0', 'with one place they go one after the other' ],
	[ 'waiting', 'ed:as', 0, 0, 'tick', 'retry', 0, 'advance: waiting 0 0', 'as far as they are acknowledged' ],
	[ 'retrying', '4ed:xff', 1, -1, 'tick', 'retry', 0, 'attempt: retrying 1 -1', 'after a failure an attempt feels the way' ],
	[ 'retrying', '4ed:xff', 1, 500, 'tick', 'retry', 0, 'none: retrying 1 500', 'when its time has come' ],
	[ 'sending', '4ed:pfx', 1, 0, 'tick', 'retry', 0, 'none: sending 1 0', 'one at a time' ],
	[ 'retrying', '4ed:xa', 1, 500, 'tick', 'retry', 0, 'none: retrying 1 500', 'nothing is cut behind a batch that failed' ],
	[ 'halted', '4ed:xa', 1, 0, 'tick', 'retry', 0, 'none: halted 1 0', 'nor behind one that was refused' ],
	[ 'retrying', '4ed', 1, -1, 'tick', 'retry', 0, 'cut: retrying 1 -1', 'a read that failed is tried again' ],
	[ 'sending', '4e:fa', 0, 0, 'verdict', 'acknowledged', 0, 'none: sending 0 0', 'the second acknowledged before the first waits for it' ],
	[ 'retrying', '4e:xa', 1, 500, 'verdict', 'acknowledged', 0, 'none: retrying 1 500', 'and does not make up for its failure' ],
	[ 'sending', '4e:aaf', 0, 0, 'verdict', 'acknowledged', 0, 'advance: sending 0 0', 'those that lead move the watermark together' ],
	[ 'sending', '4e:xff', 0, 0, 'verdict', 'retry', 0, 'record: retrying 1 501', 'a failure beside others is one' ],
	[ 'retrying', '4eo:xxf', 1, 400, 'verdict', 'retry', 0, 'record: retrying 1 501', 'as are those of others that were under way with it' ],
	[ 'retrying', '4eo:xxf', 1, 9000, 'verdict', 'retry', 0, 'record: retrying 1 9000', 'which bring nothing nearer' ],
	[ 'retrying', '4eo:xxf', 1, 400, 'verdict', 'retry', 7000, 'record: retrying 1 7000', 'whose Retry-After counts' ],
	[ 'halted', '4eo:xxf', 1, 0, 'verdict', 'retry', 0, 'record: halted 1 0', 'a halt stays one when another fails' ],
	[ 'halted', '4eo:xxf', 1, 300000, 'verdict', 'retry', 0, 'record: halted 1 300000', 'with its probe' ],
	[ 'retrying', '4eo:xxf', 1, 400, 'verdict', 'rejected', 0, 'record: halted 1 0', 'a refused one halts' ],
	[ 'sending', '4e:xff', 1, 0, 'verdict', 'retry', 0, 'record: retrying 2 1001', 'a probe that fails climbs the ladder' ],
	[ 'sending', '4e:ff', 0, 0, 'advanced', 'retry', 0, 'none: sending 0 0', 'a watermark that moved below others leaves them in flight' ],
	[ 'retrying', '4e:x', 2, 500, 'advanced', 'retry', 0, 'none: retrying 2 500', 'and does not make up for the failure of a higher one' ],
	[ 'halted', '4e:x', 1, 0, 'advanced', 'retry', 0, 'none: halted 1 0', 'nor for its refusal' ],
	[ 'sending', '4e:s', 3, 0, 'advanced', 'retry', 0, 'none: waiting 0 0', 'one that stands and has not failed goes on' ],
	[ 'sending', '4:f', 0, 0, 'advanced', 'retry', 0, 'none: sending 0 0', 'a paused sink is paused when the last has ended' ],
);

foreach my $case (@cases)
{
	my ($state, $flags, $failures, $retry_in, $event, $verdict, $retry_after, $expected, $name) = @$case;

	is( $node->safe_psql('postgres',
			"SELECT decide('$state', '$flags', $failures, $retry_in, '$event', '$verdict', $retry_after)"),
		$expected, $name);
}

# status => class
my %classes = (
	200 => 'acknowledged', 201 => 'acknowledged', 202 => 'acknowledged', 204 => 'acknowledged',
	207 => 'rejected', 400 => 'rejected', 413 => 'too large', 422 => 'rejected',
	301 => 'configuration', 302 => 'configuration', 303 => 'configuration', 304 => 'configuration',
	307 => 'configuration', 308 => 'configuration', 404 => 'configuration', 405 => 'configuration',
	410 => 'configuration', 415 => 'configuration', 418 => 'configuration',
	401 => 'credentials', 403 => 'credentials', 407 => 'credentials',
	408 => 'retry', 409 => 'retry', 425 => 'retry', 429 => 'retry',
	500 => 'retry', 502 => 'retry', 503 => 'retry', 504 => 'retry', 599 => 'retry', 0 => 'retry');

foreach my $status (sort { $a <=> $b } keys %classes)
{
	like($node->safe_psql('postgres', "SELECT judge($status, NULL, NULL, '')"),
		qr/^$classes{$status} 0( sure)?\|/, "an answer of $status is: $classes{$status}");
}
is($node->safe_psql('postgres', q{SELECT split_part(judge(302, NULL, 'http://h/login?token=x', 'Sign in'), '|', 2)}),
	'the receiver answered 302 with a redirect to http://h/login: Sign in',
	'a redirect is named, without its query');
is($node->safe_psql('postgres', q{SELECT split_part(judge(503, '7', NULL, E'busy\nté'), '|', 2)}),
	'the receiver answered 503: busy t??', 'an answer is shown as one line of printable ASCII');
is($node->safe_psql('postgres', q{SELECT split_part(judge(503, '7', NULL, ''), '|', 1)}),
	'retry 7000', 'Retry-After is in the verdict');
is($node->safe_psql('postgres', q{SELECT length(judge(500, NULL, NULL, repeat('x', 100000))) < 2000}),
	't', 'a long answer is cut');

# What proves that a batch was not stored: what it may be split or put aside upon.
my %sure = map { $_ => 1 } 307, 308, 400 .. 407, 410 .. 498;
is($node->safe_psql('postgres', q{
		SELECT string_agg(s::text, ' ' ORDER BY s) FROM generate_series(0, 999) AS s
		WHERE judge(s, NULL, NULL, '') LIKE '% sure|%'}),
	join(' ', sort { $a <=> $b } keys %sure), 'these answers prove that the batch was not stored');
is($node->safe_psql('postgres', q{
		SELECT count(*) FROM generate_series(0, 999) AS s
		WHERE judge(s, NULL, NULL, '', 'r') LIKE '% sure|%' OR judge(s, NULL, NULL, '', 'b') LIKE '% sure|%'}),
	0, 'none does after a request that went out twice, or that broke off');
is($node->safe_psql('postgres', q{SELECT judge(0, NULL, NULL, '', 'n') LIKE 'retry 0 sure|it failed|%'}), 't',
	'a request of which nothing left proves it');
is($node->safe_psql('postgres', q{SELECT judge(0, NULL, NULL, '', 'nr') LIKE 'retry 0|it failed|%'}), 't',
	'unless an earlier copy of it did');
is($node->safe_psql('postgres', q{SELECT judge(200, NULL, NULL, '', 'b') LIKE 'retry 0|it failed|%'}), 't',
	'a 2xx that broke off acknowledges nothing');
is($node->safe_psql('postgres', q{
		SELECT string_agg(s::text, ' ' ORDER BY s) FROM generate_series(200, 999) AS s
		WHERE judge(s, '7', NULL, '') ~ '^[a-z ]+ 7000'}),
	join(' ', 401, 403, 407, 408, 409, 423, 425, 429, 500 .. 999), 'Retry-After counts where the batch is sent again');

# The status of a repeated id.
foreach my $case ([ '', 'rejected' ], [ 'm', 'acknowledged' ], [ 'r', 'acknowledged' ], [ 'mb', 'retry' ])
{
	my ($flags, $class) = @$case;
	like($node->safe_psql('postgres', "SELECT judge(422, NULL, NULL, '', '$flags', 422)"), qr/^$class 0/,
		"reuse_status with the flags \"$flags\" is: $class");
}
like($node->safe_psql('postgres', q{SELECT judge(400, NULL, NULL, '', 'mr', 422)}), qr/^rejected 0/, 'another status is another');

# 207: what says that every row was stored.
my @multi = (
	'{}', '[]', '1', '{"status": 200}', '{"items": [{"index": {"status": 201}}, {"index": {"status": 299.5}}], "errors": false}',
	'[{"status": "201"}, {"status": "204 No Content"}]', '{"status": null, "error": null, "errors": []}', '{"errors": {}}',
	'{"error": "", "errors": 0}', '{"data": {"status": 200, "errors": []}, "more": [[1]]}', '{"errors": [], "rows": [{"a": [1]}]}',
	'"\\u00e9"');
my @partly = (
	'', ' ', 'ok', '<a/>', '{', '{"status": 200}}', '{"status": 200', '{"status": 300}', '{"status": 500}', '[{"status": 200}, {"status": 404}]',
	'{"a": {"b": [{"status": 400}]}}', '{"status": "409"}', '{"status": "failed"}', '{"status": "NaN"}', '{"status": true}', '{"status": {"code": 200}}', '{"status": [200]}',
	'{"error": "bad row"}', '{"errors": true}', '{"errors": [{}]}', '{"errors": [[]]}', '{"errors": {"a": 1}}', '{"error": 1}',
	'{"st\\u0061tus": 500}', '[' x 100000, '[' x 100000 . ']' x 100000, '{"a":' x 100000);
foreach my $case ((map { [ 'acknowledged', $_ ] } @multi), (map { [ 'rejected', $_ ] } @partly))
{
	my ($class, $body) = @$case;
	(my $quoted = $body) =~ s/'/''/g;
	like($node->safe_psql('postgres', "SELECT judge(207, NULL, NULL, \$body\$$quoted\$body\$)"), qr/^$class 0\|/,
		'207 with ' . (length $body < 100 ? $body : 'what is too deep') . " is: $class");
}
like($node->safe_psql('postgres', q{SELECT judge(207, NULL, NULL, convert_from('\xc3a9', 'UTF8'))}), qr/^rejected/, '207 with text is: rejected');

# failures, initial, max, draw => ms
foreach my $case ([ 1, 1000, 300000, 0, 1 ], [ 1, 1000, 300000, 0.5, 501 ], [ 2, 1000, 300000, 0.5, 1001 ],
	[ 10, 1000, 300000, 0.5, 150001 ], [ 1000, 1000, 300000, 0.999999, 300000 ],
	[ 63, 1000, 300000, 0.5, 150001 ], [ 1, 1, 1, 0.9, 1 ])
{
	my ($failures, $initial, $max, $draw, $expected) = @$case;

	cmp_ok(abs($node->safe_psql('postgres', "SELECT retry_delay($failures, $initial, $max, $draw)") - $expected),
		'<=', 1, "after $failures failures a draw of $draw waits $expected ms");
}

my $now = '1994-11-06 08:49:30+00';
foreach my $case ([ '7', 7000 ], [ ' 120 ', 120000 ], [ '0', 0 ], [ '-1', 0 ], [ '120.5', 0 ], [ '', 0 ],
	[ 'soon', 0 ], [ '99999999999999999999', 300000 ], [ '31536000', 300000 ],
	[ 'Sun, 06 Nov 1994 08:49:37 GMT', 7000 ], [ 'Sunday, 06-Nov-94 08:49:37 GMT', 7000 ],
	[ 'Sun Nov  6 08:49:37 1994', 7000 ], [ 'Mon, 06 Nov 1994 08:49:37 GMT', 7000 ],
	[ 'Fri, 31 Dec 1993 23:59:59 GMT', 0 ], [ 'Sun, 06 Nov 1994 25:49:37 GMT', 0 ],
	[ 'Sun, 06 Nov 1994 08:49:37', 0 ], [ 'Tue, 06 Nov 2195 08:49:37 GMT', 300000 ])
{
	is( $node->safe_psql('postgres', "SELECT retry_after('$case->[0]', '$now', 300000)"),
		$case->[1], "Retry-After \"$case->[0]\" asks for $case->[1] ms");
}

# Rows and bytes a second; "1?250": partition 1 asks after 250 ms, "1!250:50:0": its
# batch of 50 rows and no bytes is cut then.  Answers: yes, or when to ask again.
foreach my $case (
	[ 0, 0, '1?0 1!0:1000000:1000000 1?0', 'yes yes', 'without limits nothing waits' ],
	[ 100, 0, '1?0 1!0:50:9999999 1?0 1?499 1?500', 'yes 500 500 yes', '50 rows at 100 a second are paid off after half a second' ],
	[ 0, 1000, '1?0 1!0:99999:250 1?0 1?250', 'yes 250 yes', 'so are 250 bytes at 1000 a second after a quarter' ],
	[ 100, 1000, '1!0:10:900 1?100 1?900', '900 yes', 'the limit that is reached first counts' ],
	[ 100, 0, '1!0:100:0 1!500:100:0 1?1999 1?2000', '2000 yes', 'debts add up' ],
	[ 100, 0, '1!0:100:0 1?5000 1!5000:100:0 1?5999 1?6000', 'yes 6000 yes', 'what was not used is not saved' ],
	[ 100, 0, '1!0:100:0 2?100', '1000', 'tables of a sink share its pace' ],
	[ 100, 0, '1!0:100:0 2?0 1?1 1?1000 2?1000', '1000 1100 1100 yes', 'the table that waits goes before the one that was just cut' ],
	[ 100, 0, '1!0:100:0 2?0 1?1 1?1099 1?1100', '1000 1100 1100 yes', 'unless it does not come for its turn' ],
	[ 100, 0, '3!0:1:0 1!100:100:0 1?200 3?200 2?200 1?1100 3?1100 2?1100', '1100 1100 1100 1200 1200 yes', 'the one that was never cut is first' ],
	[ 100, 0, '3!0:1:0 1!100:100:0 2!1100:100:0 2?1200 1?1200 3?1200 2?2100 1?2100 3?2100', '2100 2100 2100 2200 2200 yes', 'and then the one that was cut longest ago' ],
	[ 100, 0, '1!0:100:0 2?0 2?1000 2!1000:100:0 1?1001 2?1500 1?2000', '1000 yes 2000 2100 yes', 'two tables take turns' ],
	[ 1, 0, '1!0:3600:0 1?1000', '3600000', 'a single batch may cost long' ],
)
{
	my ($rows, $bytes, $words, $expected, $name) = @$case;

	is($node->safe_psql('postgres', "SELECT pace($rows, $bytes, '$words')"), $expected, $name);
}

# Rows and bytes a second, flush_interval, flush_rows, flush_bytes
foreach my $case (
	[ '0, 0, 0, 5000, 4000000', '5000 4000000', 'without limits batches are as large as ever' ],
	[ '1000, 0, 0, 5000, 4000000', '1000 4000000', 'a batch costs no more than a second of rows' ],
	[ '0, 65536, 0, 5000, 4000000', '5000 65536', 'or of bytes' ],
	[ '9000, 0, 0, 5000, 4000000', '5000 4000000', 'and is never made larger' ],
	[ '1000, 65536, 300000, 1000000, 128000000', '300000 19660800', 'batches that are collected for five minutes may cost five' ],
	[ '1, 1, 10, 5000, 4000000', '1 1', 'there is always a row in it' ],
	[ '1000000000, 1099511627776, 86400000, 10000000, 1073741824', '10000000 1073741824', 'the highest rates limit nothing' ],
)
{
	is($node->safe_psql('postgres', "SELECT pace_limits($case->[0])"), $case->[1], $case->[2]);
}

done_testing();
