# The collector stores a batch and the answer says otherwise, or never comes; rows
# are added before the retry.  The batch comes again under its id, with its range,
# and the new rows come in the next one.

use strict;
use warnings;

use Export;
use IncsinkTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $export = Export->new('answers', forward => {});
my $node = $export->node;
my $collector = $export->collector;

# Rules of the collector, each for the first request it gets.
my @losses = (
	[ 'an answer of 500', 'store status=500' ],
	[ 'an answer of 503 that asks for patience', 'store status=503 header="Retry-After: 1"' ],
	[ 'an answer of 429', 'store status=429' ],
	[ 'an answer of 408', 'store status=408' ],
	# (libcurl itself repeats a request, once, if a connection that was used before
	# is closed without an answer)
	[ 'a closed connection', 'times=2 store close' ],
	[ 'half an answer', 'store cut=20' ],
	[ 'an answer that is none', 'store raw="SSH-2.0-hello\r\n"' ],
	[ 'an answer of 2xx that is cut off', 'store body="stored" cut=60' ],
	[ 'no answer in time', 'store hang', request_timeout => '300ms' ],
	[ 'no byte in time', 'store hang', stall_timeout => '300ms' ],
	[ 'an answer in drops that takes too long', 'store fill=200 trickle=20', request_timeout => '300ms' ],
);

foreach my $loss (@losses)
{
	lose(@$loss);
	lose(@$loss, before_answer => 1);
}
is($export->query('SELECT count(*) FROM incsink.intent'), '0', 'no intent is left');

# Answers that are lost again and again, more often than a circuit stays closed.
{
	$collector->control('times=8 store status=500');
	$export->insert(4);
	$export->settle('a batch that is denied eight times arrives');
	is($export->faults, '', 'and counts once');
	my @last = @{ $collector->entries(outcome => 'stored') };
	my $attempts = $collector->entries(id => $last[-1]{id});
	is(scalar @$attempts, 9, 'nine attempts were made, all under one id');
	is(join(' ', map { $_->{answer} } @$attempts), join(' ', (500) x 8, 200),
		'the answers in the ledger say so');
}

# The answer is there and the process fails to take it in.
{
	inject($node, 'http-answer', 'errno 5 once');
	$export->insert(4);
	$export->settle('a batch whose answer the worker loses arrives');
	is($export->faults, '', 'and counts once, too');
}

done_testing();

# The answer to a batch is lost.  Rows come before it is retried: while the worker
# stands before its next attempt, or, with "before_answer", as soon as the collector
# has the batch.
sub lose
{
	my ($what, $rule, %options) = @_;
	my $before_answer = delete $options{before_answer};
	my $name = 'after ' . $what . ($before_answer ? ', with rows added at once' : '');
	my $json = JSON::PP->new->encode(
		{ request_timeout => '1min', stall_timeout => '30s', %options });
	my $before = @{ $collector->ledger };

	$export->query("SELECT incsink_alter_sink('central', options => '$json')");
	$export->settle;
	my ($status) = $rule =~ /^store (status=\d+)$/;
	$collector->control($before_answer && $status ? 'store hang' : $rule);
	inject($node, 'before-attempt', 'wait') unless $before_answer;
	my ($first, $last) = $export->insert(5);
	if ($before_answer)
	{
		wait_until(sub { @{ $collector->ledger } > $before });
	}
	else
	{
		wait_reached($node, 'before-attempt');
	}
	my ($more) = $export->insert(3);
	$collector->control("release $status") if $before_answer && $status;
	disarm($node, 'before-attempt');
	$export->settle;
	$collector->back_to_normal;

	my @requests = @{ $collector->ledger }[ $before .. @{ $collector->ledger } - 1 ];
	my @first_batch = grep { $_->{id} eq $requests[0]{id} } @requests;
	my @next = grep { $_->{id} ne $requests[0]{id} } @requests;

	is($export->faults, '', "$name: each row is stored once");
	cmp_ok(scalar @first_batch, '>=', 2, "$name: the batch comes again");
	is(join(' ', map { "$_->{since}-$_->{until} $_->{sha256}" } @first_batch),
		join(' ', map { "$requests[0]{since}-$requests[0]{until} $requests[0]{sha256}" } @first_batch),
		"$name: under its id, with its range and its bytes");
	is(join(' ', map { $_->{outcome} } @first_batch),
		join(' ', 'stored', ('duplicate') x (@first_batch - 1)), "$name: it is stored at first and never again");
	is($next[0]{since}, $requests[0]{until}, "$name: the new rows come in the next batch, from where it ended");
	is(scalar(map { split /\n/, $collector->body($_) } grep { $_->{outcome} eq 'stored' } @next), 3,
		"$name: and that has nothing else");
	return;
}
