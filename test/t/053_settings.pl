# What goes out is a function of the rows: no setting of the session that reads, or of
# the server whose worker sends, changes a byte of it.  The encoder writes simple types
# itself; arrays and composites come from output functions, which look at settings.

use strict;
use warnings;

use Collector;
use IncsinkTest;
use Test::More;

my $node = new_node('settings');
my $collector = Collector->new;

$node->safe_psql('postgres', q{
	CREATE TYPE mixed AS (t timestamptz, f float8);
	CREATE TABLE t (id int, floats float8[], times timestamptz[], days date[], spans interval[], bytes bytea[],
		names regclass[], pair mixed, amount money[]);
	SELECT incsink_attach('t');
	INSERT INTO t VALUES (1, '{0.1,1e-300,0.30000000000000004}', '{2026-07-01 12:00:00.5+00}', '{2026-02-01}',
		'{1 year 2 mons 3 days 04:05:06}', '{"\\\\x00ff41"}', '{t}', ('2026-07-01 12:00+00', 1.1), '{12.5}');
});

my $read = q{SELECT data FROM public.incsink_read_since('public.t')};
my $expected = $node->safe_psql('postgres', $read);
my %settings = (
	DateStyle => 'German',
	IntervalStyle => 'iso_8601',
	TimeZone => 'Asia/Tokyo',
	extra_float_digits => '-10',
	bytea_output => 'escape',
	quote_all_identifiers => 'on',
	search_path => 'pg_catalog',
);

foreach my $name (sort keys %settings)
{
	is($node->safe_psql('postgres', "SET $name = '$settings{$name}'; $read"), $expected,
		"a reader's $name changes nothing");
}

# All of them for the whole server; then the worker, too, has them, if it takes them.
$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'") foreach grep { $_ ne 'search_path' } sort keys %settings;
$node->restart;
$node->safe_psql('postgres', "SELECT incsink_create_sink('central', '@{[ $collector->url ]}', tables => '{t}')");
wait_until(sub { $collector->count->{rows} == 1 }, 'the row arrives');
my ($entry) = @{ $collector->entries(outcome => 'stored') };
is($node->safe_psql('postgres', 'SELECT $body$' . $collector->body($entry) . '$body$::jsonb'), $expected,
	'what a worker sends is the same, whatever the settings of its server');

done_testing();
