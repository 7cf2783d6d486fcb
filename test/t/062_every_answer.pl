# Every answer that a receiver may give, to the byte, and every way in which none
# comes: what state the delivery is in then, when it is tried again, what people are
# told, and that in the end every row is there once.
#
# 030_answers.pl follows the longer stories; here one table of cases is run side by
# side, each with a sink and a place of its own.

use strict;
use warnings;

use IncsinkTest;
use IPC::Run ();
use JSON::PP ();
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ScriptedServer;
use Symbol qw(gensym);
use Test::More;

my $crlf = "\r\n";
my $large = 8 * 1024 * 1024;		# more than the kernel takes in for a receiver that does not read

# ----------------------------------------------------------------- the scripts

# The request is read, and perhaps stored; then these steps.
sub read_then { return [ 'head', 'body', @_ ]; }
sub stored_then { return [ 'head', 'body', 'store', @_ ]; }
sub told { return read_then([ send => answer(@_) ], 'next'); }
sub raw { return stored_then([ send => join '', @_ ], 'close'); }

sub http_date { return POSIX::strftime('%a, %d %b %Y %H:%M:%S GMT', gmtime(time + $_[0])); }

# --------------------------------------------------------------- what is expected

# Retries start steeply and end two hours away, so that what is waited for stays.
# Times are of the next attempt, in minutes from now; "requests" are those that the
# receiver saw.
my %ends = (
	acknowledged => { state => 'waiting', failures => 0, requests => 1 },
	circuit => { state => 'open circuit', failures => 5, requests => 5, retry => [ 100, 120 ] },
	later => { state => 'retrying', failures => 1, requests => 1, retry => [ 55, 60 ] },
	probed => { state => 'halted', failures => 1, requests => 1, retry => [ 100, 120 ] },
	halted => { state => 'halted', failures => 1, requests => 1 });

# NAME => [ END, SCRIPT or parameters of the place, pattern of the reason, more ]
my (@cases, %cases);
sub case
{
	my ($name, $end, $script, $reason, %more) = @_;
	my $case = { name => $name, %{ $ends{$end} }, end => $end, reason => $reason, rows => 3, options => {}, %more };

	$case->{place} = ref $script eq 'ARRAY' ? { always => $script } : $script;
	push @cases, $case;
	$cases{$name} = $case;
	return;
}

# -- statuses

case("status$_", 'acknowledged', stored_then([ send => answer($_, body => 'thanks') ], 'next')) foreach 200, 201, 202, 203, 206, 226, 299;
case('status204', 'acknowledged', stored_then([ send => "HTTP/1.1 204 No Content$crlf$crlf" ], 'next'));
case('status205', 'acknowledged', stored_then([ send => answer(205) ], 'next'));
case('status207', 'halted', told(207, body => '{"items": [{"status": 201}, {"status": 500}]}'), qr/answered 207: /, hint => qr/incsink_/);

case("status$_", 'probed', told($_, headers => ['Location: http://127.0.0.1:1/login?session=secret']),
	qr/answered $_ with a redirect to http:\/\/127\.0\.0\.1:1\/login$/, hint => qr/url/) foreach 301, 302, 303, 307, 308;
case('status304', 'probed', read_then([ send => "HTTP/1.1 304 Not Modified$crlf$crlf" ], 'next'), qr/answered 304/);

my %hints = (404 => qr/url/, 410 => qr/url/, 405 => qr/method/, 415 => qr/must accept/);
case("status$_", 'probed', told($_, body => "no $_"), qr/answered $_: no $_$/, hint => $hints{$_} // qr/./) foreach 402, 404, 405, 406, 410, 411, 414, 415, 418, 426, 431, 451;
case("status$_", 'halted', told($_, body => "no $_"), qr/answered $_: no $_$/, hint => qr/incsink_resume_sink\(\)/) foreach 400, 422;
case('status413', 'halted', told(413, body => 'too much'), qr/answered 413: too much$/, rows => 1, hint => qr/limit/);

case("status$_", 'circuit', told($_, body => "who is it"), qr/answered $_: who is it$/, hint => $_ == 407 ? qr/./ : qr/user mapping/) foreach 401, 403, 407;
case("status$_", 'circuit', told($_, body => 'later'), qr/answered $_: later$/) foreach 408, 409, 423, 425, 429, 500, 501, 502, 503, 504, 507, 599, 600, 999;

# A receiver that stores and says that it did not.
case('stored500', 'circuit', stored_then([ send => answer(500) ], 'next'), qr/answered 500$/, duplicates => 1);

# -- when to come back

my %retry_after = (seconds => [ later => 3600 ], date => [ later => http_date(3600) ], zero => [ circuit => 0 ],
	negative => [ circuit => -5 ], past => [ circuit => 'Fri, 31 Dec 1999 23:59:59 GMT' ], garbage => [ circuit => 'soon' ],
	empty => [ circuit => '' ], fraction => [ circuit => '3600.5' ]);
foreach my $name (sort keys %retry_after)
{
	my ($end, $value) = @{ $retry_after{$name} };
	case("after_${name}_$_", $end, told($_, headers => ["Retry-After: $value"]), qr/answered $_$/) foreach 429, 503;
}
case('after_year', 'later', told(429, headers => ['Retry-After: 31536000']), qr/answered 429$/, retry => [ 100, 120 ]);

# -- nobody there, and connections that break

case('refused', 'circuit', { listen => 'closed' }, qr/^connecting failed after \d+ ms: .*refused/i, requests => 0);
case('unknown_host', 'circuit', {}, qr/^resolving failed after \d+ ms: .*nobody\.invalid/, requests => 0,
	url => 'http://nobody.invalid/in', options => { connect_timeout => '1s' });
case('reset_at_once', 'circuit', ['rst'], qr/^(connecting|sending|waiting for the answer) failed/, requests => 0);
case('closed_at_once', 'circuit', ['close'], qr/^(connecting|sending|waiting for the answer) failed/, requests => 0);
case('reset_after_head', 'circuit', [ 'head', 'rst' ], qr/^(sending|waiting for the answer) failed/);
case('reset_in_body', 'circuit', { always => [ 'head', [ body => 100_000 ], 'rst' ], buffer => 4096 }, qr/^sending failed/, bytes => $large);
case('closed_in_body', 'circuit', { always => [ 'head', [ body => 100_000 ], 'close' ], buffer => 4096 }, qr/^sending failed/, bytes => $large);
case('reset_after_body', 'circuit', stored_then('rst'), qr/^waiting for the answer failed/, duplicates => 1);
case('closed_after_body', 'circuit', stored_then('close'), qr/^waiting for the answer failed/, duplicates => 1);
case('reset_in_head', 'circuit', stored_then([ send => "HTTP/1.1 200 OK${crlf}Content-" ], [ wait => 50 ], 'rst'), qr/^reading the answer failed/, duplicates => 1);
case('closed_in_head', 'circuit', raw("HTTP/1.1 200 OK${crlf}Content-"), qr/^reading the answer failed/, duplicates => 1);
case('reset_in_answer', 'circuit', stored_then([ send => "HTTP/1.1 200 OK${crlf}Content-Length: 100$crlf${crlf}half" ], [ wait => 50 ], 'rst'),
	qr/^reading the answer failed/, duplicates => 1);
case('closed_in_answer', 'circuit', raw("HTTP/1.1 200 OK${crlf}Content-Length: 100$crlf${crlf}half"), qr/^reading the answer failed/, duplicates => 1);
case('closed_in_refusal', 'circuit', raw("HTTP/1.1 400 Bad Request${crlf}Content-Length: 100$crlf${crlf}half"), qr/^reading the answer failed/, duplicates => 1);

# -- TLS that does not come about: a certificate that nobody vouches for, and one side
# that does not speak it

my $tls_port = start_tls_server();
case('unknown_certificate', 'circuit', {}, qr/^TLS handshake failed after \d+ ms: .*certificate/i, requests => 0, url => "https://127.0.0.1:$tls_port/in");
case('plain_to_tls', 'circuit', {}, qr/^(sending|waiting for the answer|reading the answer) failed/, requests => 0, url => "http://127.0.0.1:$tls_port/in");
case('tls_to_plain', 'circuit', [ [ body => 1 ], [ send => answer(400) ], 'close' ], qr/^TLS handshake failed after \d+ ms: /, requests => 0, scheme => 'https');
case('tls_closed', 'circuit', [ [ body => 1 ], 'close' ], qr/^TLS handshake failed after \d+ ms: /, requests => 0, scheme => 'https');
case('tls_reset', 'circuit', [ [ body => 1 ], 'rst' ], qr/^TLS handshake failed after \d+ ms: /, requests => 0, scheme => 'https');

# -- time-outs, by phase; and bytes that do not move

my %hasty = (options => { request_timeout => '3s' });
my %stalled = (options => { stall_timeout => '1500ms' });
my %no_connection = (options => { connect_timeout => '1s' }, requests => 0);
case('slow_connecting', 'circuit', { listen => 'full' }, qr/^connecting failed after \d+ ms: /, %no_connection);
case('slow_handshake', 'circuit', ['deaf'], qr/^TLS handshake failed after \d+ ms: /, scheme => 'https', %no_connection);
case('slow_sending', 'circuit', { always => [ 'head', 'deaf' ], buffer => 4096 }, qr/^sending failed after \d+ ms: /, bytes => $large, %hasty);
case('slow_waiting', 'circuit', stored_then('hang'), qr/^waiting for the answer failed after \d+ ms: /, duplicates => 1, %hasty);
case('slow_reading', 'circuit', stored_then([ trickle => answer(200, body => 'x' x 10_000), 20 ]), qr/^reading the answer failed after \d+ ms: /, duplicates => 1, %hasty);
case('slow_headers', 'circuit', stored_then([ send => "HTTP/1.1 200 OK$crlf" ], [ forever => "X-More: 1$crlf", 20 ]),
	qr/^reading the answer failed after \d+ ms: /, duplicates => 1, %hasty);
case('slow_interim', 'circuit', stored_then([ forever => "HTTP/1.1 102 Processing$crlf$crlf", 20 ]),
	qr/^(waiting for|reading) the answer failed after \d+ ms: /, duplicates => 1, %hasty);
case('stalled_sending', 'circuit', { always => [ 'head', 'deaf' ], buffer => 4096 }, qr/^sending failed .* no byte came or went for 1500 ms/, bytes => $large, %stalled);
case('stalled_waiting', 'circuit', stored_then('hang'), qr/^waiting for the answer failed .* no byte came or went for 1500 ms/, duplicates => 1, %stalled);
case('stalled_reading', 'circuit', stored_then([ send => "HTTP/1.1 200 OK${crlf}Content-Length: 100$crlf${crlf}half" ], 'hang'),
	qr/^reading the answer failed .* no byte came or went for 1500 ms/, duplicates => 1, %stalled);

# -- answers without an end: the status counts

my $gigabyte = 1024 * 1024 * 1024;
case('endless200', 'acknowledged', stored_then([ send => "HTTP/1.1 200 OK$crlf$crlf" ], [ forever => 'x' x 1000, 1 ]), undef);
case('endless_chunks200', 'acknowledged', stored_then([ send => "HTTP/1.1 200 OK${crlf}Transfer-Encoding: chunked$crlf$crlf" ], [ forever => "3e8$crlf" . 'x' x 1000 . $crlf, 1 ]), undef);
case('huge200', 'acknowledged', stored_then([ send => "HTTP/1.1 200 OK${crlf}Content-Length: $gigabyte$crlf$crlf" ], [ fill => $gigabyte ]), undef);
case('endless500', 'circuit', read_then([ send => "HTTP/1.1 500 No$crlf$crlf" ], [ forever => 'x' x 1000, 1 ]), qr/answered 500: x+$/);
case('huge500', 'circuit', read_then([ send => "HTTP/1.1 500 No${crlf}Content-Length: $gigabyte$crlf$crlf" ], [ fill => $gigabyte ]), qr/answered 500: x+$/);
case('huge400', 'halted', read_then([ send => "HTTP/1.1 400 No${crlf}Content-Length: $gigabyte$crlf$crlf" ], [ fill => $gigabyte ]), qr/answered 400: x+$/);

# -- how an answer is written

my $chunked = "HTTP/1.1 200 OK${crlf}Transfer-Encoding: chunked$crlf$crlf";
case('chunked', 'acknowledged', stored_then([ send => "${chunked}3${crlf}abc${crlf}0$crlf$crlf" ], 'next'));
case('chunked_slowly', 'acknowledged', stored_then([ trickle => "${chunked}3${crlf}abc${crlf}0$crlf$crlf", 5 ], 'next'));
case('chunked_trailer', 'acknowledged', stored_then([ send => "${chunked}3;x=y${crlf}abc${crlf}0${crlf}X-End: 1$crlf$crlf" ], 'next'));
case('chunked400', 'halted', read_then([ send => "HTTP/1.1 400 No${crlf}Transfer-Encoding: chunked$crlf${crlf}3${crlf}abc${crlf}0$crlf$crlf" ], 'next'), qr/answered 400: abc$/);
case('chunked_cut', 'circuit', raw("${chunked}64${crlf}half"), qr/^reading the answer failed/, duplicates => 1);
case('chunked_unended', 'circuit', raw("${chunked}3${crlf}abc$crlf"), qr/^reading the answer failed/, duplicates => 1);
case('chunked_garbage', 'circuit', raw("${chunked}zzz${crlf}abc$crlf"), qr/^reading the answer failed/, duplicates => 1);
case('chunked_too_long', 'circuit', raw("${chunked}fffffffffffffffffff${crlf}abc$crlf"), qr/^reading the answer failed/, duplicates => 1);
case('http10', 'acknowledged', raw("HTTP/1.0 200 OK$crlf${crlf}stored"));
case('until_closed', 'acknowledged', raw("HTTP/1.1 200 OK${crlf}Connection: close$crlf${crlf}stored"));
case('bare_newlines', 'acknowledged', raw("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"));
case('same_length_twice', 'acknowledged', raw("HTTP/1.1 200 OK${crlf}Content-Length: 2${crlf}Content-Length: 2$crlf${crlf}ok"));
case('no_reason_phrase', 'acknowledged', raw("HTTP/1.1 200${crlf}Content-Length: 0$crlf$crlf"));
case('bad_length', 'circuit', raw("HTTP/1.1 200 OK${crlf}Content-Length: many$crlf${crlf}ok"), qr/^reading the answer failed/, duplicates => 1);
case('negative_length', 'circuit', raw("HTTP/1.1 200 OK${crlf}Content-Length: -5$crlf${crlf}ok"), qr/^reading the answer failed/, duplicates => 1);
case('header_flood', 'circuit', raw("HTTP/1.1 200 OK$crlf", map { "X-$_: " . 'x' x 1000 . $crlf } 1 .. 400), qr/too many headers/, duplicates => 1);
case('interim_flood', 'circuit', stored_then([ forever => "HTTP/1.1 102 Processing$crlf$crlf" x 100, 0 ]), qr/too many headers/, duplicates => 1);
case('endless_header', 'circuit', stored_then([ send => "HTTP/1.1 200 OK${crlf}X-More: " ], [ forever => 'x' x 10_000, 0 ]), qr/^reading the answer failed/, duplicates => 1);
case('text_status', 'circuit', raw("HTTP/1.1 OK$crlf$crlf"), qr/failed/, duplicates => 1);
case('early_status', 'circuit', raw("HTTP/1.1 101 Switching Protocols$crlf$crlf"), qr/failed/, duplicates => 1);
case('other_protocol', 'circuit', raw("SSH-2.0-OpenSSH_9.2p1$crlf"), qr/failed/, duplicates => 1);
case('garbage', 'circuit', raw(join '', map { chr($_ * 37 % 256) } 1 .. 2000), qr/failed/, duplicates => 1);
case('speaks_first', 'circuit', [ [ send => "220 mail.example.com ESMTP$crlf" ], 'head', 'body', 'close' ], qr/failed/);
case('continue_first', 'acknowledged', stored_then([ send => "HTTP/1.1 100 Continue$crlf$crlf" . answer(200) ], 'next'));
case('continue_at_once', 'acknowledged', [ 'head', [ send => "HTTP/1.1 100 Continue$crlf$crlf" ], 'body', 'store', [ send => answer(200) ], 'next' ]);
case('interim', 'acknowledged', stored_then([ send => "HTTP/1.1 102 Processing${crlf}Retry-After: 3600$crlf$crlf" x 10 . "HTTP/1.1 103 Early Hints${crlf}Link: </x>$crlf$crlf" . answer(200) ], 'next'));
case('interim500', 'circuit', read_then([ send => "HTTP/1.1 102 Processing${crlf}Retry-After: 3600$crlf$crlf" . answer(500) ], 'next'), qr/answered 500$/);
case('binary_body', 'halted', told(400, body => "\x00\x01\xff\xfe\e[31m\n" . "\x{c3}\x{bc}"), qr/answered 400: \?{4}\?\[31m \?\?$/);

# -- before the request was read

case('early_success', 'circuit', { always => [ 'head', [ send => answer(200) ], 'deaf' ], buffer => 4096 }, qr/^\S+.* failed/, bytes => $large, %hasty);
case('early_refusal', 'halted', { always => [ 'head', [ send => answer(400, body => 'too late', headers => ['Connection: close']) ], 'deaf' ], buffer => 4096 },
	qr/answered 400: too late$/, bytes => $large);

# -- connections that were kept

case('kept', 'acknowledged', {}, undef, connections => 1);
case('kept_and_closed', 'acknowledged', { scripts => [ stored_then([ send => answer(200) ], 'close') ] }, undef, connections => 2);
case('kept_and_reset', 'acknowledged', { scripts => [ stored_then([ send => answer(200) ], [ wait => 50 ], 'rst') ] }, undef, connections => 2);
case('kept_close_announced', 'acknowledged', { scripts => [ stored_then([ send => answer(200, headers => ['Connection: close']) ], 'next') ] }, undef, connections => 2);

# The second request is read, stored, and the connection closed without an answer:
# whoever sends it again, it goes under its id.
case("kept_and_${_}_later", 'acknowledged', { scripts => [ stored_then([ send => answer(200) ], 'next'), stored_then($_) ] }, undef,
	later => 2, duplicates => 1) foreach 'close', 'rst';

# A server that knows TLS and no more; ends with the test.
my ($tls_server, $tls_input);
sub start_tls_server
{
	my $dir = PostgreSQL::Test::Utils::tempdir('tls');
	my ($port, $output) = (undef, '');

	PostgreSQL::Test::Utils::system_or_bail('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=127.0.0.1',
		'-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', "$dir/key.pem", '-out', "$dir/certificate.pem");
	$tls_server = IPC::Run::start([ 'openssl', 's_server', '-accept', '127.0.0.1:0', '-key', "$dir/key.pem", '-cert', "$dir/certificate.pem" ],
		'<pipe', $tls_input = gensym, '>', \$output, '2>', '/dev/null');
	wait_until(sub { $tls_server->pump_nb; ($port) = $output =~ /^ACCEPT 127\.0\.0\.1:(\d+)/m });
	return $port;
}

END
{
	my $status = $?;
	$tls_server->kill_kill if $tls_server;
	$? = $status;
}

# ----------------------------------------------------------------------- all of them

# Time limits of those whose test is not about them.
my $patient = { connect_timeout => '10min', request_timeout => '10min', stall_timeout => '10min' };
my $json = JSON::PP->new->latin1->canonical;
my $server = ScriptedServer->new;
my $node = new_node('every_answer');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub quoted { my ($text) = @_; $text =~ s/'/''/g; return "'$text'"; }

sub make_sink
{
	my ($case) = @_;
	my $name = $case->{name};
	my $options = $json->encode({ retry_initial => '10ms', retry_max => '2h', %$patient, %{ $case->{options} } });

	$server->place($name, %{ $case->{place} });
	my $url = quoted($case->{url} // $server->url($name, $case->{scheme}));
	return "SELECT incsink_create_sink('$name', $url, options => '$options');
		SELECT incsink_add_table('$name', 'logs', filter => 'part = ''$name''');
		INSERT INTO logs (part, v) SELECT '$name', repeat('x', " . ($case->{bytes} // 10) . ") FROM generate_series(1, " . ($case->{bytes} ? 1 : $case->{rows}) . ");\n";
}

# What the views say of every delivery now, by sink.
sub picture
{
	return $json->decode(sql(q{
		SELECT json_object_agg(sink, row_to_json(d)) FROM (
			SELECT sink, state, failures, extract(epoch FROM retry_at - now()) / 60 AS retry, reason, hint, last_error,
				in_flight_batch IS NOT NULL AS in_flight, rows_exported, lag_rows
			FROM incsink.stat_delivery) AS d}));
}

sub shown { return $json->encode($_[0]); }

# Has the delivery come to rest where it should?
sub is_at_rest
{
	my ($case, $delivery) = @_;
	my $acknowledged = $case->{end} eq 'acknowledged';
	my $retry = $delivery->{retry};

	return 0 if $delivery->{state} ne $case->{state} || $delivery->{failures} != $case->{failures};
	return 0 if ($delivery->{rows_exported} > 0) != $acknowledged || !!$delivery->{in_flight} == $acknowledged;
	return !defined $retry unless $case->{retry};
	return defined $retry && $retry >= $case->{retry}[0] && $retry <= $case->{retry}[1];
}

# What people see, and what the receiver has seen.
sub is_explained
{
	my ($case, $delivery) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $name = $case->{name};
	my $seen = $server->seen($name);
	my %ids = map { $_ => 1 } @{ $seen->{ids} };

	ok(is_at_rest($case, $delivery), "$name: $case->{state}" . ($case->{retry} ? ', tried again in time' : '')) or diag(shown($delivery));
	is($seen->{requests}, $case->{requests}, "$name: requests");
	is(scalar keys %ids, $seen->{requests} ? 1 : 0, "$name: all with one id");
	cmp_ok($seen->{sent}, '<', 100 * 1024 * 1024, "$name: an answer without an end is not read to its end");
	return is($delivery->{reason}, undef, "$name: nothing is amiss") unless $case->{reason};

	like($delivery->{reason}, $case->{reason}, "$name: the reason");
	like($delivery->{hint}, $case->{hint} // qr/./, "$name: the hint");
	return;
}

# The receiver is well again: the delivery goes on.
sub has_ended
{
	my ($delivery) = @_;
	return $delivery->{state} eq 'waiting' && !defined $delivery->{reason} && $delivery->{failures} == 0
	  && !defined $delivery->{retry} && !$delivery->{in_flight} && $delivery->{lag_rows} == 0;
}

# Who resumes while an attempt is on its way sees that fail first: so again.
sub resume
{
	my ($picture) = @_;
	my @names = grep { $picture->{$_}{state} =~ /halted|retrying|open circuit/ } keys %$picture;

	sql(join ';', map { "SELECT incsink_resume_sink('$_')" } @names) if @names;
	return;
}

sub ends_well
{
	my ($case, $delivery, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $name = $case->{name};
	my $seen = $server->seen($name);
	my $result = compare_rows($expected, $seen->{rows});

	ok(has_ended($delivery), "$name: goes on") or diag(shown($delivery));
	is("@{ $result->{examples} }", '', "$name: each row is there once");
	cmp_ok($seen->{duplicates}, $case->{duplicates} ? '>=' : '==', $case->{duplicates} // 0, "$name: batches that came again");
	is($seen->{connections}, $case->{connections}, "$name: connections") if $case->{connections};
	is($delivery->{last_error}, undef, "$name: there never was an error") if $case->{end} eq 'acknowledged' && !$case->{later};
	return;
}

$node->append_conf('postgresql.conf', 'log_min_messages = warning');
$node->reload;
sql(q{CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY, part text, v text); SELECT incsink_attach('logs')});
sql(join '', map { make_sink($_) } @cases);

my $picture;
wait_until(
	sub {
		$picture = picture();
		return !grep { !is_at_rest($_, $picture->{ $_->{name} }) } @cases;
	}, 'every delivery comes to rest', 180);
is_explained($_, $picture->{ $_->{name} }) foreach @cases;

# What was wrong is mended; time limits, too: a slow machine must not run into them.
foreach my $case (@cases)
{
	my $name = $case->{name};
	my $url = $case->{url} || $case->{scheme} ? ", url => '" . $server->url($name) . "', watermark => 'keep'" : '';

	sql("SELECT incsink_alter_sink('$name', options => '" . $json->encode($patient) . "'$url)") if $url || %{ $case->{options} };
	$server->well($name) if $case->{end} ne 'acknowledged';
}
sql(join ';', map { "INSERT INTO logs (part, v) VALUES ('$_->{name}', 'last')" } @cases);
wait_until(
	sub {
		$picture = picture();
		return 1 unless grep { !has_ended($_) } values %$picture;
		resume($picture);
		return 0;
	}, 'every delivery goes on once its receiver is well', 180);
my %expected = map { /(\S+) (.*)/; $1 => [ split / /, $2 ] } split /\n/, sql(q{SELECT part || ' ' || string_agg(id::text, ' ') FROM logs GROUP BY part});
ends_well($_, $picture->{ $_->{name} }, $expected{ $_->{name} }) foreach @cases;
is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'incsink forward worker'}), 1, 'one worker did it all');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process crashed');
done_testing();
