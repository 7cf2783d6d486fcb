# Whoever writes wakes the worker, once his locks are gone.  The worker looks by
# itself once an hour here, so that nothing else can have done it.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('wakeup', conf => [ 'incsink.poll_interval = 1h' ]);
my $collector = Collector->new;
my $url = $collector->url('/in');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub arrives
{
	my ($notes, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %left = map { $_ => 1 } split / /, $notes;

	wait_until(sub { delete $left{ $_->{note} } foreach @{ $collector->rows }; !%left }, $test, 20);
	return;
}

sql("CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text);
	SELECT incsink_attach('logs');
	SELECT incsink_create_sink('central', '$url', tables => '{logs}', options => '{\"retry_initial\": \"10ms\", \"retry_max\": \"50ms\"}')");

sql("INSERT INTO logs (note) VALUES ('insert')");
arrives('insert', 'an INSERT wakes the worker');
sql("BEGIN; INSERT INTO logs (note) VALUES ('transaction1'); INSERT INTO logs (note) VALUES ('transaction2'); COMMIT");
arrives('transaction1 transaction2', 'a transaction does');
sql("COPY logs (note) FROM stdin;\ncopied\n\\.\n");
arrives('copied', 'a COPY does');
sql("WITH w AS (INSERT INTO logs (note) VALUES ('with') RETURNING id) SELECT count(*) FROM w");
arrives('with', 'a WITH that writes does');
sql("CREATE FUNCTION write(note text) RETURNS void LANGUAGE sql AS 'INSERT INTO logs (note) VALUES (note)'; SELECT write('function')");
arrives('function', 'a function does');
sql("DO \$\$ BEGIN INSERT INTO logs (note) VALUES ('do'); END \$\$");
arrives('do', 'a DO block does');
sql("INSERT INTO logs (note) VALUES ('conflict') ON CONFLICT DO NOTHING");
arrives('conflict', 'an INSERT ... ON CONFLICT does');
sql("CREATE TABLE feed (note text); CREATE FUNCTION feed() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN INSERT INTO logs (note) VALUES (NEW.note); RETURN NEW; END';
	CREATE TRIGGER feed BEFORE INSERT ON feed FOR EACH ROW EXECUTE FUNCTION feed();
	INSERT INTO feed VALUES ('trigger')");
arrives('trigger', 'a trigger of another table does');
sql("BEGIN; INSERT INTO logs (note) VALUES ('kept'); SAVEPOINT s; INSERT INTO logs (note) VALUES ('undone'); ROLLBACK TO s; COMMIT");
arrives('kept', 'a transaction with a savepoint that was rolled back does');

# ------------------------------------------------------------------- prepared

sql("BEGIN; INSERT INTO logs (note) VALUES ('prepared'); PREPARE TRANSACTION 'one'");
sql("INSERT INTO logs (note) VALUES ('behind1')");
sql("COMMIT PREPARED 'one'");
arrives('prepared behind1', 'COMMIT PREPARED wakes the worker');
sql("BEGIN; INSERT INTO logs (note) VALUES ('forgotten'); PREPARE TRANSACTION 'two'");
sql("INSERT INTO logs (note) VALUES ('behind2')");
sql("ROLLBACK PREPARED 'two'");
arrives('behind2', 'so does ROLLBACK PREPARED, which frees the rows behind');

# -------------------------------------------------------- holders of the horizon

# What holds the horizon back, and the end of it.
foreach my $case (
	[ 'a rollback', "INSERT INTO logs (note) VALUES ('no1')", sub { $_[0]->query_safe('ROLLBACK') } ],
	[ 'the end of a session', "INSERT INTO logs (note) VALUES ('no2')", sub { $_[0]->quit } ],
	[ 'a terminated session', "INSERT INTO logs (note) VALUES ('no3')", sub { sql("SELECT pg_terminate_backend($_[1])") } ],
	[ 'a commit', "INSERT INTO logs (note) VALUES ('yes')", sub { $_[0]->query_safe('COMMIT') } ],
	[ 'a statement that failed in a savepoint',
		"SAVEPOINT s; DO \$\$ BEGIN INSERT INTO logs (id, note) OVERRIDING SYSTEM VALUE VALUES (1, 'no4'); EXCEPTION WHEN unique_violation THEN NULL; END \$\$",
		sub { $_[0]->query_safe('COMMIT') } ])
{
	my ($what, $query, $end) = @$case;
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	(my $note = $what) =~ s/\W/_/g;

	$session->query_safe("BEGIN; $query");
	sql("INSERT INTO logs (note) VALUES ('$note')");
	is(sql('SELECT held_by_pid FROM incsink.stat_horizon'), $pid, "the transaction holds rows of others back ($what)");
	$end->($session, $pid);
	arrives($note, "its end, $what, lets them go");
	eval { $session->quit };
}

# A wake-up that comes before the locks are gone finds the numbers still held, if the
# worker is quick.
my $session = $node->background_psql('postgres');
my $late = 0;
foreach my $round (1 .. 25)
{
	$session->query_safe("BEGIN; INSERT INTO logs (note) VALUES ('holder')");
	sql("INSERT INTO logs (note) VALUES ('round$round')");
	$session->query_safe('COMMIT');
	eval {
		wait_until(sub { grep { $_->{note} eq "round$round" } @{ $collector->rows } }, undef, 20);
		1;
	} or $late++;
	last if $late;
}
$session->quit;
is($late, 0, 'the worker is woken when the locks are gone, not before');
is_exported($node, 'SELECT id FROM logs', rows_at_collector($collector, 'id'), 'all rows are there, once');

# ----------------------------------------------------------------- definitions

my $second = $collector->url('/second');
sql("SELECT incsink_create_sink('second', '$second', tables => '{logs}')");
wait_until(sub { @{ $collector->rows(sink => 'second') } == @{ $collector->rows(sink => 'central') } }, 'a new sink wakes the worker');
sql(q{SELECT incsink_pause_sink('second')});
sql("INSERT INTO logs (note) VALUES ('paused')");
arrives('paused', 'the other sink is woken');
sql(q{SELECT incsink_resume_sink('second')});
wait_until(sub { @{ $collector->rows(sink => 'second') } == @{ $collector->rows(sink => 'central') } }, 'resuming a sink wakes the worker');
sql(q{SELECT incsink_alter_sink('second', options => '{"flush_interval": "1h"}')});
sql("INSERT INTO logs (note) VALUES ('lazy')");
is(sql(q{SELECT incsink_flush('second')}), 't', 'a flush wakes the worker');

# -------------------------------------------------------------- logical apply

my $publisher = new_node('publisher', preload => 0, extension => 0);
$publisher->safe_psql('postgres', q{
	CREATE TABLE feed2 (id int PRIMARY KEY, note text);
	CREATE PUBLICATION p FOR TABLE feed2;
});
sql("CREATE TABLE feed2 (id int PRIMARY KEY, note text); SELECT incsink_attach('feed2'); SELECT incsink_add_table('central', 'feed2')");
my $connection = $publisher->connstr('postgres');
sql("CREATE SUBSCRIPTION s CONNECTION \$c\$$connection\$c\$ PUBLICATION p");
$node->wait_for_subscription_sync($publisher, 's');
$publisher->safe_psql('postgres', "INSERT INTO feed2 VALUES (1, 'applied')");
$publisher->wait_for_catchup('s');
is(sql('SELECT count(*) FROM feed2'), 1, 'a row came by logical replication');
wait_for_query($node, "SELECT lag_rows FROM incsink.stat_delivery WHERE dataset = 'public.feed2'", 0, 'and wakes the worker', 20);
sql('DROP SUBSCRIPTION s');

$_->stop('fast') foreach $node, $publisher;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
done_testing();
