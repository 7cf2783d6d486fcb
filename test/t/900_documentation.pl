#!/usr/bin/perl
#
# 900_documentation: what README.md and doc/ say is complete, and their examples
# run.
#
# Every block of a page that is marked ```sql is run as it stands, in the order
# of the page, on a database of the page's own.  A block marked ```sql error must
# fail.  The examples send to http://127.0.0.1:8080 and write below /tmp/incsink;
# here these two become the port of a collector and a temporary folder.
#
# The receiver in doc/receivers.md (a block marked ```python) is run, too, where
# there is a python3.

use strict;
use warnings;

use Cwd qw(realpath);
use File::Basename;
use File::Path qw(make_path);
use File::Temp;
use IPC::Run;
use IncsinkTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $root = realpath(dirname(__FILE__) . '/../..');
my @pages = grep { -e "$root/$_" } 'README.md', 'CHANGELOG.md',
  map { "doc/" . basename($_) } sort glob "$root/doc/*.md";
BAIL_OUT("README.md is not beside test/: test/check must copy README.md, CHANGELOG.md and doc, too")
  unless -e "$root/README.md";
my %text = map { $_ => slurp_file("$root/$_") } @pages;

# ------------------------------------------------------------------- reading

# Blocks of a page: { page, line, words (of the fence), text }
sub blocks
{
	my ($page) = @_;
	my (@blocks, $block);
	my $line = 0;

	foreach (split /\n/, $text{$page}, -1)
	{
		$line++;
		if (/^\s*```(.*)$/)
		{
			if ($block) { push @blocks, $block; undef $block; }
			else { $block = { page => $page, line => $line, words => $1, text => '' }; }
		}
		elsif ($block) { $block->{text} .= "$_\n"; }
	}
	die "$page: the block of line $block->{line} has no end" if $block;
	return @blocks;
}

# A page without its blocks: what links and headings are looked for in.
sub prose
{
	my ($page) = @_;
	my $prose = '';
	my $inside = 0;

	foreach (split /\n/, $text{$page})
	{
		if (/^\s*```/) { $inside = !$inside; }
		elsif (!$inside) { $prose .= "$_\n"; }
	}
	return $prose;
}

# The anchors that GitHub makes of a page's headings.
sub anchors
{
	my ($page) = @_;
	my %count;
	my %anchors;

	foreach my $heading (prose($page) =~ /^#+ +(.*?) *$/mg)
	{
		my $anchor = lc $heading;
		$anchor =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
		$anchor =~ s/[^\w\- ]//g;
		$anchor =~ s/ /-/g;
		$anchor .= "-$count{$anchor}" if $count{$anchor}++;
		$anchors{$anchor} = 1;
	}
	return \%anchors;
}

# The part of the reference below a heading that names something, to the next
# heading that is no deeper.
sub sections
{
	my ($page, $name) = @_;
	my $found = '';
	my $depth = 0;

	foreach (split /\n/, $text{$page})
	{
		if (my ($hashes) = /^(#+) /)
		{
			$depth = 0 if $depth && length $hashes <= $depth;
			$depth = length $hashes if !$depth && /(?<![\w.])\Q$name\E(?!\w)/;
		}
		$found .= "$_\n" if $depth;
	}
	return $found;
}

# --------------------------------------------------------------- links, files

foreach my $page (@pages)
{
	my @broken;

	foreach my $target (prose($page) =~ /\[[^]]*\]\(([^)\s]+)\)/g)
	{
		next if $target =~ /^https?:/;
		my ($path, $anchor) = split /#/, $target, 2;
		my $file = $path eq '' ? $page : dirname($page) . "/$path";
		$file =~ s{^\./}{};
		1 while $file =~ s{[^/]+/\.\./}{};
		if (!-e "$root/$file")
		{
			# Not everything is copied for the tests; what is named so is.
			push @broken, $target if $file =~ m{^(doc|src|sql|test)/|\.md$};
		}
		elsif (defined $anchor && exists $text{$file} && !anchors($file)->{$anchor})
		{
			push @broken, $target;
		}
	}
	is("@broken", '', "every link of $page leads somewhere");

	my @missing = grep { !-e "$root/$_" }
	  $text{$page} =~ m{\b((?:src|sql|test|doc)/[\w./-]*\w\.(?:c|h|pl|pm|sql|md))\b}g;
	is("@missing", '', "every file that $page names is there");
}

{
	my @unnamed = grep { index($text{'doc/internals.md'}, $_) < 0 }
	  map { s{^\Q$root\E/src/}{}r } sort glob "$root/src/*.c $root/src/*/*.c";
	is("@unnamed", '', 'doc/internals.md names every file of src/');
}

# ----------------------------------------------------------------- reference

my $node = new_node('main', extension => 0);
my $reference = $text{'doc/reference.md'} //= '';

# Without incsink_inject(), which belongs to the tests.
$node->safe_psql('postgres', 'CREATE EXTENSION incsink');

sub query_lines
{
	return split /\n/, $node->safe_psql('postgres', $_[0]);
}

foreach (query_lines(q{
	SELECT p.proname, COALESCE(array_to_string(p.proargnames, ' '), '')
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
		AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'incsink')
	ORDER BY 1, 2}))
{
	my ($name, $arguments) = split /\|/;
	my $section = sections('doc/reference.md', $name);
	my @unnamed = grep { $section !~ /\b\Q$_\E\b/ } split / /, $arguments;
	ok($section ne '', "doc/reference.md has a heading for $name");
	is("@unnamed", '', "... with all arguments and columns") if $section ne '';
}

foreach (query_lines(q{SELECT name, kind, default_value, coalesce(min, ''), coalesce(max, '') FROM incsink_options()}))
{
	my ($name, $kind, @values) = split /\|/;
	my @rows = grep { /^\|\s*`\Q$name\E`/ } split /\n/, $reference;
	my @missing = grep { my $value = $_; $value ne '' && !grep { index($_, $value) >= 0 } @rows } @values;
	ok(@rows && !@missing, "doc/reference.md has option $name of $kind sinks, its default and bounds")
	  or diag("missing: @missing");
}

# The rows of the option table, as sql/options.sql prints them from incsink_options().
my @rows = grep { /^\| `/ } split /\n/, slurp_file("$root/expected/options.out");
my %row_of_reference = map { $_ => 1 } split /\n/, $reference;
cmp_ok(scalar @rows, '>', 10, 'expected/options.out has the option table');
is(join("\n", grep { !$row_of_reference{$_} } @rows), '', 'doc/reference.md has each of its rows as it is');

foreach (query_lines(q{
	SELECT name, CASE WHEN unit IS NULL THEN boot_val ELSE '' END FROM pg_settings WHERE name LIKE 'incsink.%'}))
{
	my ($name, $default) = split /\|/;
	my @rows = grep { /^\|\s*`\Q$name\E`/ } split /\n/, $reference;
	ok(@rows && (($default // '') eq '' || grep { index($_, $default) >= 0 } @rows),
		"doc/reference.md has the setting $name and its default");
}

foreach (query_lines(q{
	SELECT c.relname, string_agg(a.attname, ' ' ORDER BY a.attnum)
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	WHERE c.relnamespace = 'incsink'::regnamespace AND c.relkind = 'v' GROUP BY 1 ORDER BY 1}))
{
	my ($view, $columns) = split /\|/;
	my $section = sections('doc/reference.md', "incsink.$view");
	my @unnamed = grep { $section !~ /\b\Q$_\E\b/ } split / /, $columns;
	ok($section ne '', "doc/reference.md has a heading for incsink.$view");
	is("@unnamed", '', '... with all columns') if $section ne '';
}

# What the pages call must be there, too.
{
	my %known = map { $_ => 1 } 'incsink_inject',
	  query_lines(q{SELECT proname FROM pg_proc WHERE proname LIKE 'incsink\_%'});
	foreach my $page (grep { $_ ne 'CHANGELOG.md' } @pages)
	{
		my @unknown = grep { !$known{$_} } $text{$page} =~ /\b(incsink_\w+)\(/g;
		is("@unknown", '', "every function that $page calls exists");
	}
	# The default type of events is named alike.
	my %settings = map { $_ => 1 } 'incsink.row', query_lines(q{SELECT name FROM pg_settings WHERE name LIKE 'incsink.%'
		UNION ALL SELECT 'incsink.' || relname FROM pg_class WHERE relnamespace = 'incsink'::regnamespace});
	foreach my $page (@pages)
	{
		my @unknown = grep { !$settings{$_} && !/^incsink\.(?:so|c|control|conf)$/ }
		  $text{$page} =~ /(?<![\w.\/-])(incsink\.[a-z_]+)\b/g;
		is("@unknown", '', "every setting, view and table that $page names exists");
	}
}
$node->safe_psql('postgres', 'DROP EXTENSION incsink');

# ------------------------------------------------------------------ examples

my %collector;

# An example as it is run here.
sub substitute
{
	my ($sql, $collector, $folder) = @_;

	make_path("$folder/$1") while $sql =~ m{file:///tmp/incsink/([\w/.-]+)}g;
	$sql =~ s{127\.0\.0\.1:8080\b}{"127.0.0.1:" . $collector->port}ge;
	$sql =~ s{/tmp/incsink\b}{$folder}g;
	return $sql;
}

foreach my $page (@pages)
{
	my @examples = grep { $_->{words} =~ /^sql\b/ } blocks($page);
	next unless @examples;

	my $database = 'page_' . lc basename($page, '.md');
	my $folder = PostgreSQL::Test::Utils::tempdir($database);
	my $collector = $collector{$page} = Collector->new;
	$collector{"$page folder"} = $folder;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION incsink')
	  unless grep { $_->{text} =~ /CREATE EXTENSION\b.*\bincsink/ } @examples;
	foreach my $example (@examples)
	{
		my ($status, $out, $err) = $node->psql($database,
			substitute($example->{text}, $collector, $folder),
			on_error_stop => 1, timeout => 120);
		my $name = "the example of $page, line $example->{line}";

		if ($example->{words} =~ /\berror\b/)
		{
			is($status, 3, "$name, fails as it says");
		}
		else
		{
			is($status, 0, $name) or diag("$example->{text}\n$out\n$err");
		}
	}
}

# The README's example is the promise: its rows are there.
{
	my $collector = $collector{'README.md'};
	my $folder = $collector{'README.md folder'};

	wait_until(sub { $collector->count->{rows} >= 2 }, 'the rows of the example in README.md arrive at the collector');
	wait_until(sub { @{ files_below($folder) } >= 1 }, '... and in a file');
	unlike(join('', @{ $collector->lines }), qr/ingest_seq/, '... without the column that attach adds');
}

# ---------------------------------------------------------------- the receiver

SKIP:
{
	my ($receiver) = grep { $_->{words} =~ /^python\b/ } blocks('doc/receivers.md');
	ok($receiver, 'doc/receivers.md has a receiver') or skip 'there is none', 1;
	my $python = (grep { -x "$_/python3" } split /:/, $ENV{PATH})[0];
	skip 'there is no python3 here', 1 unless $python;

	my $folder = PostgreSQL::Test::Utils::tempdir('receiver');
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $database = 'receiver';
	my $program = $receiver->{text} =~ s/\b8080\b/$port/r;
	my ($in, $out) = ('', '');

	append_to_file("$folder/receiver.py", $program);
	my $running = IPC::Run::start([ "$python/python3", "$folder/receiver.py", "$folder/received.db" ],
		\$in, '>&', \$out);

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, qq{
		CREATE EXTENSION incsink;
		CREATE TABLE t (id bigint, v text);
		SELECT incsink_attach('t');
		SELECT incsink_create_sink('s', 'http://127.0.0.1:$port/', tables => '{t}',
			options => '{"flush_rows": 10, "retry_initial": "100ms"}');
		INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 95) i});
	my $count = sub {
		my ($rows) = run_command([ "$python/python3", '-c',
			'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("SELECT count(*), count(DISTINCT row) FROM received").fetchone())',
			"$folder/received.db" ]);
		return $rows;
	};
	wait_until(sub { $count->() eq '95 95' }, 'the receiver of doc/receivers.md stores every row once');

	# A batch that comes again, and one that stands before it.
	my $again = sub {
		my ($until, $body) = @_;
		my $epoch = $node->safe_psql($database, 'SELECT epoch FROM incsink.stat_delivery');
		my ($answer) = run_command([ "$python/python3", '-c', <<'PYTHON', $port, $epoch, $until, $body ]);
import sys, urllib.request
port, epoch, until, body = sys.argv[1:]
headers = {"Incsink-Sink": "s", "Incsink-Epoch": epoch, "Incsink-Dataset": "public.t",
           "Incsink-Source": "default", "Incsink-Until": until, "Incsink-Rows": "1"}
request = urllib.request.Request("http://127.0.0.1:" + port + "/", body.encode(), headers)
print(urllib.request.urlopen(request).status)
PYTHON
		return $answer;
	};
	my $position = $node->safe_psql($database, 'SELECT position FROM incsink.stat_delivery');
	like($again->($position, '{"id":0}'), qr/^2/, '... answers 2xx to a batch that comes again');
	like($again->(1, '{"id":0}'), qr/^2/, '... and to one before it');
	is($count->(), '95 95', '... and stores neither');
	$running->kill_kill;
}

$node->stop;
done_testing();
