# Request bodies: formats, compression, and that each batch is sent again as it was.

use strict;
use warnings;

use Export;
use IncsinkTest;
use IO::Uncompress::Gunzip ();
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $json = JSON::PP->new->utf8->allow_nonref->allow_bignum->canonical;
my @compressions = qw(none gzip zstd);

# What bodies hold, by other programs than those that compressed them.
sub unpacked
{
	my @bodies = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir('packed');
	my @packed = grep { $bodies[$_] =~ /^\x28\xb5\x2f\xfd/ } keys @bodies;

	append_to_file("$dir/$_.zst", $bodies[$_]) foreach @packed;
	PostgreSQL::Test::Utils::system_or_bail('zstd', '-dq', map { "$dir/$_.zst" } @packed) if @packed;
	$bodies[$_] = slurp_file("$dir/$_") foreach @packed;
	foreach my $body (@bodies)
	{
		next unless $body =~ /^\x1f\x8b/;
		die 'a time stands in the header' if substr($body, 4, 4) ne "\0\0\0\0";
		my $packed = $body;
		IO::Uncompress::Gunzip::gunzip(\$packed, \$body) or die 'gunzip failed';
	}
	return @bodies;
}

sub rows_of
{
	my ($text, $format) = @_;

	return map { $json->decode($_) } split /\n/, $text if $format eq 'ndjson';
	return @{ $json->decode($text) };
}

# ------------------------------------------------- what a range is encoded as

my $node = new_node('bodies', conf => ['autovacuum = off', 'incsink.enabled = off']);

sub sql { return $node->safe_psql('postgres', "SET client_min_messages = error; $_[0]"); }

# One hash a batch: rows, until, bytes before compression, body, and the body unpacked.
sub batches
{
	my ($table, $encoding, $rows, $bytes) = @_;
	my $lines = sql(sprintf "SELECT batches('%s', %d, %d, NULL, \$\$%s\$\$)", $table, $rows // 1000000,
		$bytes // 1000000000, $json->encode($encoding));
	my @batches;

	foreach (split /\n/, $lines)
	{
		my ($count, $until, $size, $hex) = /^(\d+) (\S+) .*:(\d+):([0-9a-f]*)$/ or die "malformed: $_";
		push @batches, { rows => $count, until => $until, bytes => $size, body => pack('H*', $hex) };
	}
	my @texts = unpacked(map { $_->{body} } @batches);
	$batches[$_]{text} = $texts[$_] foreach keys @batches;
	return @batches;
}

sub encoding
{
	my ($format, $compression, $level) = @_;
	my %encoding = (format => $format);

	@encoding{qw(event_source event_type)} = ('/incsink/s/d/x%22', 'a"b') if $format eq 'cloudevents';
	@encoding{qw(compression compression_level)} = ($compression, $level // '0') if $compression ne 'none';
	return \%encoding;
}

sql(q{
	CREATE FUNCTION batches(regclass, bigint, bigint, text, jsonb) RETURNS text
		LANGUAGE c AS '$libdir/incsink', 'incsink_test_batches';
	CREATE TYPE mood AS ENUM ('so "so"', 'é');
	CREATE TABLE every (id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric, t text, c char(5), v varchar,
		bytes bytea, d date, ts timestamp, tz timestamptz, iv interval, u uuid, j json, jb jsonb, a int[], ta text[], m mood,
		r int4range, x inet, p point, "q""u\ote" text, "é" text);
	INSERT INTO every (id) SELECT -g FROM generate_series(1, 7) g;
	INSERT INTO every VALUES (1, true, 1, 9007199254740993, 1.5, 'NaN', 'Infinity', E'a\n\t"\\\x01', 'c', '', '\x00ff', '-infinity', '2026-01-31 10:00',
		'0044-03-15 12:00:00 BC', '1 day', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', E'{"a" :\n 1}', '{"k": [null, "\u00e9"]}', '{1,NULL}', '{"a,b",""}', 'so "so"',
		'[1,5)', '::1', '(1,2)', 'x', 'é');
	SELECT incsink_attach('every');
	INSERT INTO every SELECT i, i % 2 = 0, i, i, i / 7.0, i / 3.0, i / 9.0, repeat('é"\' || i || chr(i), i % 50), 'x', '', NULL, '2026-01-01', now(), now(), NULL, NULL,
		'[]', '{}', '{}', '{}', 'é', 'empty', '10.0.0.1', '(0,0)', '', U&'\+01F600' FROM generate_series(2, 300) i;
	CREATE TABLE empty (id int PRIMARY KEY);
	SELECT incsink_attach('empty');
	CREATE TABLE nothing ();
	INSERT INTO nothing DEFAULT VALUES;
	SELECT incsink_attach('nothing', force => true);
	INSERT INTO nothing DEFAULT VALUES;
	INSERT INTO nothing DEFAULT VALUES;
	CREATE TABLE large (id int PRIMARY KEY, v text);
	SELECT incsink_attach('large');
	CREATE TABLE many (id int PRIMARY KEY, v text);
	SELECT incsink_attach('many');
	INSERT INTO many SELECT i, repeat(md5(i::text), 3) FROM generate_series(1, 6000) i;
	INSERT INTO large VALUES (1, 'a'), (2, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100000) i)), (3, 'c');
});

my @plain = map { rows_of($_->{text}, 'ndjson') } batches('every', { format => 'ndjson' });
is(scalar @plain, 307, 'every row of a table with every type of column is there');

foreach my $format (qw(ndjson json cloudevents))
{
	foreach my $compression (@compressions)
	{
		foreach my $limit ([ 1000000, 1000000 ], [ 7, 1000000 ], [ 1000000, 20000 ], [ 1, 1 ])
		{
			my ($rows, $bytes) = @$limit;
			my @batches = batches('every', encoding($format, $compression), $rows, $bytes);
			my @events = map { length $_->{body} ? rows_of($_->{text}, $format) : () } @batches;
			my $what = "$format, $compression, $rows rows, $bytes bytes";
			my @over = grep { $_->{rows} > $rows || ($_->{rows} > 1 && $_->{bytes} > $bytes)
				  || length $_->{text} != $_->{bytes} } @batches;

			is(scalar @over, 0, "$what: no batch is larger, before compression");
			is(scalar(grep { ($_->{rows} == 0) != (length $_->{body} == 0) } @batches), 0, "$what: one without rows has no body");
			if ($format eq 'cloudevents')
			{
				my %ids = map { $_->{id} => 1 } @events;
				is(scalar keys %ids, 307, "$what: every event has an id of its own");
				is($events[7]{id} . ' ' . $events[8]{id}, '0.0000000000000000008 1', "$what: which is its position");
				is(scalar(grep {
						join(' ', sort keys %$_) ne 'data datacontenttype id source specversion type' || $_->{specversion} ne '1.0'
						  || $_->{source} ne '/incsink/s/d/x%22' || $_->{type} ne 'a"b' || $_->{datacontenttype} ne 'application/json'
				} @events), 0, "$what: the attributes are those of CloudEvents 1.0");
				@events = map { $_->{data} } @events;
			}
			is($json->encode(\@events), $json->encode(\@plain), "$what: values are those of ndjson");
		}
	}
}

# ------------------------------------------------------------- one body at a time

foreach my $format (qw(json cloudevents))
{
	is(join(',', map { length $_->{body} } batches('empty', encoding($format, 'gzip'))), '',  "$format: no rows, no body");
	is(join(' ', map { scalar rows_of($_->{text}, $format) } grep { $_->{rows} } batches('nothing', encoding($format, 'zstd'))),
		'2', "$format: rows without columns are objects");
}
foreach my $compression (@compressions)
{
	my @batches = batches('large', encoding('cloudevents', $compression), 1000, 4000);
	is(join(' ', map { $_->{rows} } grep { $_->{rows} } @batches), '1 1 1', "$compression: a larger row goes alone");
	is(length((rows_of((grep { $_->{bytes} > 4000 } @batches)[0]{text}, 'cloudevents'))[0]{data}{v}), 3200000, "$compression: and whole");
	my @again = batches('large', encoding('cloudevents', $compression), 1000, 4000);
	ok($json->encode([ map { unpack 'H*', $_->{body} } @batches ]) eq $json->encode([ map { unpack 'H*', $_->{body} } @again ]),
		"$compression: the same rows are the same bytes");
}
cmp_ok(length((batches('every', encoding('json', $_, '9')))[-1]{body}), '<=', length((batches('every', encoding('json', $_, '1')))[-1]{body}),
	"$_: a higher level makes no larger body") foreach qw(gzip zstd);
my (undef, undef, $stderr) = $node->psql('postgres', q{SELECT batches('every', 1, 1, NULL, '{"format": "json", "compression": "lzma"}')});
like($stderr, qr/a batch in flight has the compression "lzma"/, 'a compression of a later version is named');

# More than is compressed at a time: the same batches, whatever becomes of their bytes.
my @ends = map { "$_->{rows} $_->{until} $_->{bytes}" } batches('many', encoding('json', 'none'), 1000000, 200000);
cmp_ok(scalar @ends, '>', 3, 'large batches end at so many bytes');
foreach my $compression (qw(gzip zstd))
{
	my @batches = batches('many', encoding('json', $compression), 1000000, 200000);
	is(join('; ', map { "$_->{rows} $_->{until} $_->{bytes}" } @batches), join('; ', @ends), "$compression: and at the same rows");
	is(scalar(grep { length $_->{body} > $_->{bytes} / 1.5 } @batches), 0, "$compression: they are smaller");
	is(join(' ', map { $_->{id} } map { rows_of($_->{text}, 'json') } @batches), join(' ', 1 .. 6000), "$compression: and whole");
}

# Rows with one number are told apart, and stay in one batch.
sql(q{
	CREATE TABLE tree (id int) PARTITION BY LIST (id);
	CREATE TABLE leaf1 PARTITION OF tree FOR VALUES IN (1);
	CREATE TABLE leaf2 PARTITION OF tree FOR VALUES IN (2);
	CREATE TABLE leaf3 PARTITION OF tree FOR VALUES IN (3);
	SELECT incsink_attach('tree');
	INSERT INTO tree VALUES (1);
	INSERT INTO tree VALUES (2);
	INSERT INTO tree VALUES (3);
	SET incsink.allow_explicit_seq = on;
	INSERT INTO leaf2 (id, ingest_seq) OVERRIDING SYSTEM VALUE SELECT 2, 1;
	INSERT INTO leaf3 (id, ingest_seq) OVERRIDING SYSTEM VALUE SELECT 3, 1;
});
is(join('; ', map { join ' ', map { "$_->{id}" } rows_of($_->{text}, 'cloudevents') } grep { $_->{rows} } batches('tree', encoding('cloudevents', 'none'), 1)),
	'1 1.2 1.3; 2; 3', 'rows with one number have ids of their own, in one batch');
$node->stop('fast');

# ------------------------------------------------------------------ as it is sent

foreach my $case ([ 'cloudevents', 'zstd' ], [ 'json', 'gzip' ])
{
	my ($format, $compression) = @$case;
	my $export = Export->new("sent_$format", forward => { format => $format, compression => $compression, flush_rows => 10 });
	my $collector = $export->collector;
	my $type = { json => 'application/json', cloudevents => 'application/cloudevents-batch+json' }->{$format};

	$export->insert(25);
	$export->settle("$format, $compression: rows are exported");
	is(scalar @{ $collector->entries(digest => 'bad') }, 0, 'Content-Digest is that of the bytes that were sent');

	# one that is stored and denied, and comes again after a kill and a change
	$collector->control('store status=500 times=always');
	$export->insert(5);
	wait_until(sub { @{ $collector->entries(answer => 500) } > 0 }, 'a batch is in flight');
	$export->node->safe_psql('postgres', q{SELECT incsink_alter_sink('central', options => '{"format": "ndjson", "compression": "none"}')});
	kill9_worker($export->node, 'postgres', 'forward');
	my $before = @{ $collector->ledger };
	wait_until(sub { @{ $collector->ledger } > $before }, 'and is sent again');
	$collector->back_to_normal;
	$export->insert(3);
	$export->settle('all is exported');
	my @attempts = @{ $collector->entries(id => $collector->entries(answer => 500)->[0]{id}) };
	my %sums = map { ("$_->{content_digest} $_->{bytes}" => 1) } @attempts;
	cmp_ok(scalar @attempts, '>', 1, 'it was sent several times');
	is(scalar keys %sums, 1, 'with the same bytes, although the sink has another format now');

	my @stored = @{ $collector->entries(outcome => 'stored') };
	my @rows = map { rows_of(unpacked($collector->body($_)), $_ == $stored[-1] ? 'ndjson' : $format) } @stored;
	is(join(' ', map { ($_->{data} // $_)->{id} } @rows), join(' ', 1 .. 33), 'each row is stored once, the last in the new format');
	if ($format eq 'cloudevents')
	{
		is($rows[0]{source}, '/incsink/central/public.t/default', 'the source names sink, dataset and source');
		is($rows[0]{type}, 'incsink.row', 'the type is that of the option');
	}
	$export->node->stop('fast');
}

done_testing();
