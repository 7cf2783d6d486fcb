# What changes between the moment a worker has read the definitions and the moment it
# cuts a batch, or from one life of the extension to the next: a batch that was read
# before leaves under nothing that came after.

use strict;
use warnings;

use IncsinkTest;
use Test::More;

my $node = new_node('stale', conf => [ "incsink.poll_interval = '50ms'" ]);
my $collector = Collector->new;
my $url = $collector->url;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub create_sink { return sql("SELECT incsink_create_sink('$_[0]', '$url', tables => '{$_[1]}', options => '{\"retry_initial\": \"20ms\", \"retry_max\": \"100ms\"}')"); }

sub turns { return sql(q{SELECT turns FROM incsink.stat_worker WHERE class = 'forward'}); }

# A worker waits when it knows what is due; what the statement does to a delivery that is due
# is done before the turn goes on.
sub in_a_turn
{
	my ($wake, $change) = @_;
	my $session = $node->background_psql('postgres');

	inject($node, 'before-turn-lock', 'wait');
	$session->query_until(qr/waiting/, qq{\\echo waiting
		DO \$\$BEGIN
			WHILE (pg_stat_file('incsink_inject/before-turn-lock.reached', true)).size IS NULL LOOP
				PERFORM pg_sleep(0.001);
			END LOOP;
		END\$\$;
		$change;
		\\echo changed
	});
	sql($wake);
	$session->query_until(qr/changed/, '');
	disarm($node, 'before-turn-lock');
	$session->quit;
	return;
}

# ------------------------------------------------------------ a sink is restarted

sql(q{CREATE TABLE t (id int PRIMARY KEY); SELECT incsink_attach('t')});
create_sink($_, 't') foreach qw(first second);
sql(q{INSERT INTO t SELECT generate_series(1, 10)});
is(sql(qq{SELECT incsink_flush('$_')}), 't', "$_ is at work") foreach qw(first second);
in_a_turn(q{INSERT INTO t SELECT generate_series(11, 20)},
	qq{SELECT incsink_alter_sink('second', url => '$url', watermark => 'restart')});
is(sql(q{SELECT incsink_flush('second')}), 't', 'restarted meanwhile, a sink goes on');
is(sql(q{SELECT state FROM incsink.stat_delivery WHERE sink = 'second'}), 'waiting', 'and does not halt');
my $epoch = sql(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'second'});
is_exported($node, 'SELECT id FROM t', rows_at_collector($collector, 'id', sink => 'second', epoch => $epoch),
	'its new epoch has each row once');
sql(q{SELECT incsink_drop_sink('first'), incsink_drop_sink('second')});

# A restart is seen in the catalog before its message makes the worker read the definitions
# again.  Here no message comes until the worker has read the new watermark and has new
# rows, too.
create_sink('silent', 't');
is(sql(q{SELECT incsink_flush('silent')}), 't', 'a third sink is at work');
sql(q{
	WITH sink AS (SELECT sink_id FROM incsink.sink_def WHERE name = 'silent'),
	restarted AS (UPDATE incsink.sink_table_def SET epoch = '2-0a0b0c0d' WHERE sink_id = (SELECT sink_id FROM sink))
	UPDATE incsink.watermark SET epoch = '2-0a0b0c0d', seq = 0, sent_seq = 0 WHERE sink_id = (SELECT sink_id FROM sink)});
sql(q{INSERT INTO t SELECT generate_series(-10, -1)});
my $turns = turns();
wait_until(sub { turns() > $turns + 5 });
is(sql(q{SELECT epoch FROM incsink.watermark JOIN incsink.sink_def USING (sink_id) WHERE name = 'silent'}), '2-0a0b0c0d',
	'a worker that knows the old epoch only does not begin it again');
sql(q{SELECT incsink_pause_sink('silent'); SELECT incsink_resume_sink('silent')});
is(sql(q{SELECT incsink_flush('silent')}), 't', 'when it has read the definitions it goes on');
is_exported($node, 'SELECT id FROM t', rows_at_collector($collector, 'id', sink => 'silent', epoch => '2-0a0b0c0d'),
	'in the new epoch, which has each row once');
sql(q{SELECT incsink_drop_sink('silent')});

# A worker that reads a delivery anew has its intents, but not yet its watermark, when the
# sink is restarted: together they make no sense.
$collector->control('store status=503 times=always');
create_sink('torn', 't');
wait_for_query($node, q{SELECT failures > 0 FROM incsink.stat_delivery WHERE sink = 'torn'}, 't', 'a batch of a sink stands');
inject($node, 'between-reloads', 'wait');
sql(q{SELECT incsink_alter_sink('torn', options => '{"flush_rows": 7}')});
wait_reached($node, 'between-reloads');
sql(qq{SELECT incsink_alter_sink('torn', url => '$url', watermark => 'restart')});
disarm($node, 'between-reloads');
$collector->back_to_normal;
is(sql(q{SELECT incsink_flush('torn')}), 't', 'restarted while its watermark is being read, it goes on');
$epoch = sql(q{SELECT epoch FROM incsink.stat_delivery WHERE sink = 'torn'});
is_exported($node, 'SELECT id FROM t', rows_at_collector($collector, 'id', sink => 'torn', epoch => $epoch),
	'and its new epoch has each row once');
unlike(sql(q{SELECT string_agg(message, ' ') FROM incsink.delivery_error}), qr/does not fit/, 'nothing seemed not to fit');
sql(q{SELECT incsink_drop_sink('torn')});

# ----------------------------------------------------------- a backlog gets numbers

sql(q{
	CREATE TABLE other (id int PRIMARY KEY); SELECT incsink_attach('other');
	CREATE TABLE full_one (id int PRIMARY KEY); INSERT INTO full_one SELECT generate_series(1, 500);
	SELECT incsink_attach('full_one')});
create_sink('aside', 'other');
sql(qq{SELECT incsink_create_sink('backlog', '$url', tables => '{full_one}', enabled => false)});
in_a_turn(q{INSERT INTO other VALUES (1); SELECT incsink_resume_sink('backlog')}, q{CALL incsink_renumber('full_one')});
is(sql(q{SELECT incsink_flush('backlog')}), 't', 'numbered meanwhile, its rows are exported');
is_exported($node, 'SELECT id FROM full_one', rows_at_collector($collector, 'id', sink => 'backlog'), 'each once');

# -------------------------------------------------- an extension that is created anew

sql(q{INSERT INTO t SELECT generate_series(21, 100)});
wait_for_query($node, q{SELECT horizon = last_drawn FROM incsink.stat_horizon WHERE dataset = 'public.t'}, 't',
	'the horizon of a table is published');
sql(q{SET client_min_messages = warning; DROP EXTENSION incsink CASCADE});
sql(q{SET client_min_messages = warning; CREATE EXTENSION incsink;
	CREATE TABLE again (id int); SELECT incsink_attach('again')});
my $early = $node->background_psql('postgres');
$early->query_safe('BEGIN; INSERT INTO again VALUES (1)');
sql('INSERT INTO again VALUES (2)');
is(sql(q{SELECT count(*) FROM incsink_read_since('again')}), 0, 'is not that of another table with its id');
$early->query_safe('COMMIT');
$early->quit;
is(sql(q{SELECT string_agg(data->>'id', ' ') FROM incsink_read_since('again')}), '1 2', 'all rows are read in order');

# ------------------------------------------------------------ a rate that is raised

sql(qq{INSERT INTO t SELECT generate_series(101, 1000);
	SELECT incsink_attach('t'), incsink_create_sink('paced', '$url', tables => '{t}',
		options => '{"max_rows_per_second": 1, "flush_rows": 100, "flush_interval": "5min"}')});
sql(q{UPDATE incsink.sink_def SET owner = owner});
wait_until(sub { $collector->count->{rows} > 0 && @{ rows_at_collector($collector, 'id', sink => 'paced') } }, 'a limited sink sends a batch');
sql(q{SELECT incsink_alter_sink('paced', options => '{"max_rows_per_second": 1000000}')});
is(sql(q{SELECT incsink_flush('paced', '60s')}), 't', 'and the rest as soon as it may, not after the 100 s that the batch has cost');

done_testing();
