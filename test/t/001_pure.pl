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
	CREATE FUNCTION judge(int, text, text, text) RETURNS text
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

# Flags: e enabled, i an intent stands, f in flight, a acknowledged, d flush due.
# Columns: state, flags, failures, retry_in ms, event, verdict, retry_after ms =>
# action: state flags failures retry_in; then the sentence.
my @cases = (
	# a tick
	[ 'waiting', 'e', 0, 0, 'tick', 'retry', 0, 'none: waiting e--- 0 0', 'without rows nothing happens' ],
	[ 'waiting', 'ed', 0, 0, 'tick', 'retry', 0, 'cut: waiting e--- 0 0', 'rows that are due are cut' ],
	[ 'waiting', 'eid', 0, 0, 'tick', 'retry', 0, 'attempt: waiting ei-- 0 0', 'an intent found at start is attempted before anything is cut' ],
	[ 'sending', 'eifd', 0, 0, 'tick', 'retry', 0, 'none: sending eif- 0 0', 'while a batch is in flight nothing else is sent' ],
	[ 'sending', 'eiad', 0, 0, 'tick', 'retry', 0, 'advance: sending ei-a 0 0', 'an acknowledgement in memory is committed first' ],
	[ 'sending', 'ia', 0, 0, 'tick', 'retry', 0, 'advance: sending -i-a 0 0', 'even when the sink is paused' ],
	[ 'waiting', 'd', 0, 0, 'tick', 'retry', 0, 'none: paused ---- 0 0', 'a paused sink cuts nothing' ],
	[ 'retrying', 'i', 2, 0, 'tick', 'retry', 0, 'none: paused -i-- 2 0', 'a paused sink attempts nothing' ],
	[ 'paused', 'ed', 0, 0, 'tick', 'retry', 0, 'cut: waiting e--- 0 0', 'resumed it goes on' ],
	[ 'paused', 'ei', 3, 0, 'tick', 'retry', 0, 'attempt: retrying ei-- 3 0', 'resumed it attempts what was in flight' ],
	[ 'retrying', 'ei', 1, 500, 'tick', 'retry', 0, 'none: retrying ei-- 1 500', 'a retry waits for its time' ],
	[ 'retrying', 'ei', 1, -1, 'tick', 'retry', 0, 'attempt: retrying ei-- 1 -1', 'and comes when that has passed' ],
	[ 'retrying', 'ed', 1, 500, 'tick', 'retry', 0, 'none: retrying e--- 1 500', 'a table that could not be read is left alone for a while' ],
	[ 'open circuit', 'ei', 7, 500, 'tick', 'retry', 0, 'none: open circuit ei-- 7 500', 'an open circuit waits for its probe' ],
	[ 'open circuit', 'ei', 7, -1, 'tick', 'retry', 0, 'attempt: open circuit ei-- 7 -1', 'and probes' ],
	[ 'halted', 'ei', 1, 0, 'tick', 'retry', 0, 'none: halted ei-- 1 0', 'a halt that no retry mends stays' ],
	[ 'halted', 'ei', 1, -1, 'tick', 'retry', 0, 'attempt: halted ei-- 1 -1', 'a halt with a probe probes' ],
	# the catalog's answers
	[ 'waiting', 'e', 0, 0, 'committed', 'retry', 0, 'send: sending eif- 0 0', 'what is committed is sent' ],
	[ 'open circuit', 'ei', 6, -1, 'committed', 'retry', 0, 'send: sending eif- 6 0', 'a probe keeps the count of failures' ],
	[ 'sending', 'eia', 6, 0, 'advanced', 'retry', 0, 'none: waiting e--- 0 0', 'a watermark that moved closes the circuit' ],
	[ 'sending', 'ia', 0, 0, 'advanced', 'retry', 0, 'none: paused ---- 0 0', 'a paused sink is paused after it' ],
	[ 'sending', 'eif', 0, 0, 'fenced', 'retry', 0, 'reload: sending e--- 0 0', 'a fenced delivery forgets what it knew' ],
	# verdicts
	[ 'sending', 'eif', 0, 0, 'verdict', 'acknowledged', 0, 'advance: sending ei-a 0 0', 'an acknowledgement moves the watermark' ],
	[ 'sending', 'eif', 0, 0, 'verdict', 'retry', 0, 'record: retrying ei-- 1 501', 'the first failure is retried within a second' ],
	[ 'sending', 'eif', 2, 0, 'verdict', 'retry', 0, 'record: retrying ei-- 3 2001', 'the ladder doubles' ],
	[ 'sending', 'eif', 4, 0, 'verdict', 'retry', 0, 'record: open circuit ei-- 5 300000', 'five failures in a row open the circuit' ],
	[ 'sending', 'eif', 0, 0, 'verdict', 'retry', 7000, 'record: retrying ei-- 1 7000', 'Retry-After is honoured' ],
	[ 'sending', 'eif', 0, 0, 'verdict', 'retry', 99999999, 'record: retrying ei-- 1 300000', 'but not beyond retry_max' ],
	[ 'sending', 'eif', 0, 0, 'verdict', 'retry', 100, 'record: retrying ei-- 1 501', 'and never below the ladder' ],
	[ 'sending', 'eif', 0, 0, 'verdict', 'credentials', 0, 'record: retrying ei-- 1 501', 'refused credentials are tried again' ],
	[ 'sending', 'eif', 9, 0, 'verdict', 'credentials', 0, 'record: open circuit ei-- 10 300000', 'up to the cap' ],
	[ 'sending', 'eif', 0, 0, 'verdict', 'configuration', 0, 'record: halted ei-- 1 300000', 'a wrong configuration halts with a slow probe' ],
	[ 'sending', 'eif', 0, 0, 'verdict', 'rejected', 0, 'record: halted ei-- 1 0', 'refused content halts without one' ],
	[ 'sending', 'if', 0, 0, 'verdict', 'retry', 0, 'record: paused -i-- 1 501', 'a failure after a pause leaves it paused' ],
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
	207 => 'rejected', 400 => 'rejected', 413 => 'rejected', 422 => 'rejected',
	301 => 'configuration', 302 => 'configuration', 303 => 'configuration', 304 => 'configuration',
	307 => 'configuration', 308 => 'configuration', 404 => 'configuration', 405 => 'configuration',
	410 => 'configuration', 415 => 'configuration', 418 => 'configuration',
	401 => 'credentials', 403 => 'credentials', 407 => 'credentials',
	408 => 'retry', 409 => 'retry', 425 => 'retry', 429 => 'retry',
	500 => 'retry', 502 => 'retry', 503 => 'retry', 504 => 'retry', 599 => 'retry', 0 => 'retry');

foreach my $status (sort { $a <=> $b } keys %classes)
{
	like($node->safe_psql('postgres', "SELECT judge($status, NULL, NULL, '')"),
		qr/^$classes{$status} 0\|/, "an answer of $status is: $classes{$status}");
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
