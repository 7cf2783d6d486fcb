# How a forward sink reaches its receiver: credentials, secret files, signatures, TLS,
# the limits of connections, and what a failure says.

use strict;
use warnings;

use Collector;
use Digest::SHA qw(hmac_sha256 sha256);
use IncsinkTest;
use IO::Socket::INET;
use JSON::PP ();
use MIME::Base64;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Recorder;
use Test::More;

my $node = new_node('connections', 
	conf => [ 'incsink.max_connections = 16', 'incsink.max_connections_per_host = 4', "incsink.instance = 'east'" ]);
my $collector = Collector->new;
my $recorder = Recorder->new;
my $dir = PostgreSQL::Test::Utils::tempdir('connections');
my @secrets;		# nothing of them may be seen anywhere

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{
	CREATE TABLE logs (id int GENERATED ALWAYS AS IDENTITY, part text, pad text);
	SELECT incsink_attach('logs');
});

sub quoted { return "'" . ($_[0] =~ s/'/''/gr) . "'"; }

# A sink of its own for each part, which exports the rows of that part.
sub make_sink
{
	my ($name, $url, $options, $credentials) = @_;
	my $json = JSON::PP->new->canonical->encode({ retry_initial => '10ms', retry_max => '50ms', %{ $options // {} } });

	sql("SELECT incsink_create_sink('$name', '$url', options => " . quoted($json)
		  . ', credentials => ' . ($credentials ? "'$credentials'" : 'NULL') . ');'
		  . "SELECT incsink_add_table('$name', 'logs', filter => 'part = ''$name''')");
	return;
}

sub insert_rows
{
	my ($name, $count) = @_;
	sql("INSERT INTO logs (part) SELECT '$name' FROM generate_series(1, $count)");
	return;
}

sub seen
{
	my ($name, $what) = @_;
	return sql("SELECT $what FROM incsink.stat_delivery WHERE sink = '$name'");
}

sub wait_seen
{
	my ($name, $condition, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_query($node, "SELECT $condition FROM incsink.stat_delivery WHERE sink = '$name'", 't', $test)
	  or diag(seen($name, "concat_ws(' | ', state, failures, reason, hint, last_error)"));
	return;
}

my $all_is_well = "state = 'waiting' AND failures = 0 AND lag_rows = 0 AND in_flight_batch IS NULL";

# Inserts a row and waits until it is exported.
sub goes_on
{
	my ($name, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	insert_rows($name, 1);
	wait_seen($name, $all_is_well, $test);
	return;
}

sub drop_sink { sql("SELECT incsink_drop_sink('$_[0]')"); return; }

# A server and the mapping of everybody; NAME => VALUE are the secrets.
sub make_credentials
{
	my ($name, $origin, %secrets) = @_;

	push @secrets, grep { !m{^/} } values %secrets;
	sql("CREATE SERVER $name FOREIGN DATA WRAPPER incsink OPTIONS (origin '$origin');"
		  . "CREATE USER MAPPING FOR PUBLIC SERVER $name OPTIONS ("
		  . join(', ', map { "$_ " . quoted($secrets{$_}) } sort keys %secrets) . ')');
	return;
}

sub alter_mapping
{
	my ($name, $options) = @_;
	sql("ALTER USER MAPPING FOR PUBLIC SERVER $name OPTIONS ($options)");
	return;
}

sub write_file
{
	my ($name, $content) = @_;
	open my $file, '>', "$name.new" or die "$name: $!";
	print $file $content;
	close $file or die "$name: $!";
	rename "$name.new", $name or die "$name: $!";
	return;
}

# ---------------------------------------------------------------- pure parts

sql(q{
	CREATE FUNCTION sign(text, text, bigint, text) RETURNS text
		LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_sign';
	CREATE FUNCTION places(int, int, text) RETURNS text
		LANGUAGE c STRICT AS '$libdir/incsink', 'incsink_test_places';
});

# The vector of the specification's own libraries.
is(sql(q{SELECT sign('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'msg_p5jXN8AQM9LWM0D4loKWxJek', 1614265330, '{"test": 2432232314}')}),
	'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=', 'a signature is that of the specification');

foreach my $case (
	[ 2, 9, 'a1 a2 a3 -a1', ' a1, a2,, a3,', 'the third of two waits' ],
	[ 9, 2, 'a1 a2 a3 b1 -a2', ' a1, a2,, b1, a3,', 'a host that is full delays no other' ],
	[ 2, 2, 'a1 a2 a3 a4 b1 c1 -a1 -a2', ' a1, a2,,,,, b1, c1,', 'hosts take turns' ],
	[ 9, 4, 'a1? a2? a3? a4 a5 a6 -a1 -a4', ' a1, a2,, a4, a5,, a3, a6,', 'probes have half of the places of a host' ],
	[ 4, 4, 'a1? b1? c1? d1 e1 f1 -d1 -a1', ' a1, b1,, d1, e1,, f1, c1,', 'and half of all' ],
	[ 1, 1, 'a1? b1 -a1', ' a1,, b1,', 'of one place a probe has one' ],
	[ 2, 2, 'a1 a2 b1? c1? d1 e1 -a1 -a2 -b1', ' a1, a2,,,,, b1, d1, c1,', 'neither probes nor others starve' ],
	[ 2, 1, 'a1 a2 b1 b2 -a2 -a1', ' a1,, b1,,,,', 'one that does not wait any more gets none' ],
	[ 1, 1, 'a1 a2 b1 =9:1 =9:9', ' a1,,, b1, a2,', 'limits can be raised' ],
	[ 9, 9, 'a1 a2 a3 =2:2 a4 -a1 -a2', ' a1, a2, a3,,,, a4,', 'and lowered' ])
{
	my ($max, $per_host, $what, $started, $name) = @$case;
	is(sql("SELECT places($max, $per_host, '$what')"), $started, $name);
}

# ------------------------------------------------- basic, and every placeholder

my $basic = encode_base64('gate keeper:open "sesame"', '');
push @secrets, $basic;
make_credentials('basic', $recorder->url(''), username => 'gate keeper', password => 'open "sesame"', tag => 'tag-8d1f');
make_sink('names & more', $recorder->url('/{sink}/{dataset}/{source}/{epoch}/{since}/{until}/{batch_id}?d={destination}&i={instance}&t={secret:tag}'),
	{ headers => { 'X-All' => '{sink} {dataset} {source} {epoch} {since} {until} {batch_id} {instance}{destination} 100%' } }, 'basic');
insert_rows('names & more', 2);
wait_seen('names & more', $all_is_well, 'a sink with every placeholder exports');
my $request = $recorder->last_request('/names');
my $headers = $request->{headers};
(my $id = $headers->{'idempotency-key'}) =~ tr/"//d;
is($request->{path}, "/names%20%26%20more/public.logs/default/$headers->{'incsink-epoch'}/0/2/$id?d=&i=east&t=tag-8d1f",
	'the URL has them, percent-encoded');
is($headers->{'x-all'}, "names & more public.logs default $headers->{'incsink-epoch'} 0 2 $id east 100%", 'and so has a header');
is($headers->{authorization}, "Basic $basic", 'name and password are sent as RFC 7617 says');
ok(!exists $headers->{expect}, 'no 100 is waited for');

# An echo is not shown; what is refused is tried again with what the mapping has then.
$recorder->answer(401, echo => 1);
insert_rows('names & more', 1);
wait_seen('names & more', "failures > 0 AND last_error LIKE '%answered 401: Authorization: Basic ****%'",
	'an answer is shown with what is secret blanked');
push @secrets, 'new-9b7e', encode_base64('gate keeper:new-9b7e', '');
$recorder->answer(200, needs => 'Basic ' . encode_base64('gate keeper:new-9b7e', ''));
alter_mapping('basic', q{SET password 'new-9b7e'});
wait_seen('names & more', $all_is_well, 'a new password is taken at the next attempt, and no batch lost');
is($recorder->last_request('/names')->{headers}->{authorization}, 'Basic ' . encode_base64('gate keeper:new-9b7e', ''),
	'it was sent');
$recorder->answer(200);
drop_sink('names & more');

# ------------------------------------------------------------------ secret file

my $file = "$dir/secrets";
push @secrets, 'file-1c5a', 'file-77b0', 'key-25ce';
write_file($file, "# of the collector\n\nbearer = file-1c5a\r\nkey=key-25ce\n");
make_credentials('from_file', $recorder->url(''), secret_file => $file);
make_sink('file', $recorder->url('/file'), { headers => { 'X-Key' => '{secret:key}' } }, 'from_file');
goes_on('file', 'a sink takes its secrets from a file');
is($recorder->last_request('/file')->{headers}->{authorization}, 'Bearer file-1c5a', 'the token is that of the file');
is($recorder->last_request('/file')->{headers}->{'x-key'}, 'key-25ce', 'and so is what a header names');
write_file($file, "bearer=file-77b0\nkey=key-25ce\n");
goes_on('file', 'the file changes');
is($recorder->last_request('/file')->{headers}->{authorization}, 'Bearer file-77b0', 'and the next attempt takes what it says');

# What can be wrong with it: the error names the file, and nothing in it.
sub file_fails
{
	my ($problem, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	insert_rows('file', 1);
	wait_seen('file', "failures > 0 AND reason LIKE " . quoted($problem), $test);
	write_file($file, "bearer=file-77b0\nkey=key-25ce\n");
	wait_seen('file', $all_is_well, 'once it is right again, the batch goes out');
	return;
}

unlink $file;
file_fails("%could not open secret file \"$file\": No such file or directory%", 'a file that is not there');
write_file($file, "bearer=file-77b0\nkey-25ce\n");
file_fails("%line 2 of secret file \"$file\" is not valid: it is not of the form name=value%", 'a line without a name');
write_file($file, "bearer=file-77b0\nusername=file-1c5a\npassword=file-1c5a\n");
file_fails('%do not go together: The options "bearer" and "username" exclude each other%', 'two that exclude each other');
write_file($file, "bearer=file-77b0 key-25ce\n");
file_fails('%line 1 of%: It must consist of visible ASCII characters%', 'a value that cannot be sent');
write_file($file, "bearer=file-77b0\nbearer=file-1c5a\n");
file_fails('%line 2 of%its name stands in the file twice%', 'a name twice');
write_file($file, "#" x 70000);
file_fails('%is larger than 64 kB%', 'a file that is too large');
unlink $file;
POSIX::mkfifo($file, 0600);
file_fails('%is not a regular file%', 'a pipe, which would never end');
unlink $file;
write_file("$file-unreadable", "bearer=file-77b0\n");
chmod 0, "$file-unreadable";
SKIP:
{
	skip 'root reads every file', 3 if $> == 0;
	alter_mapping('from_file', "SET secret_file '$file-unreadable'");
	insert_rows('file', 1);
	wait_seen('file', "failures > 0 AND reason LIKE '%could not open secret file \"$file-unreadable\": Permission denied%'",
		'a file that may not be read');
	write_file($file, "bearer=file-77b0\nkey=key-25ce\n");
	alter_mapping('from_file', "SET secret_file '$file'");
	wait_seen('file', $all_is_well, 'the mapping names another, and the batch goes out');
	is($recorder->last_request('/file')->{headers}->{authorization}, 'Bearer file-77b0', 'with its secrets');
}
write_file($file, "bearer=file-77b0\n");
insert_rows('file', 1);
wait_seen('file', "state = 'halted' AND reason LIKE '%has no option \"key\"%'", 'a secret that a header needs is not there');
write_file($file, "bearer=file-77b0\nkey=key-25ce\n");
wait_seen('file', $all_is_well, 'it is tried again by itself');
drop_sink('file');

# Who may name a file: as with COPY.
sql(qq{
	CREATE ROLE plain; CREATE ROLE reader; GRANT pg_read_server_files TO reader;
	GRANT USAGE ON FOREIGN SERVER from_file TO plain, reader;
});
my $mapping = "CREATE USER MAPPING FOR CURRENT_USER SERVER from_file OPTIONS (secret_file '$file')";
my ($status, undef, $stderr) = $node->psql('postgres', "SET ROLE plain; $mapping");
like($stderr, qr/permission denied to set option "secret_file"/, 'a role without pg_read_server_files may not name one');
($status, undef, $stderr) = $node->psql('postgres', "SET ROLE reader; $mapping");
is($stderr, '', 'a member of it may');

# ------------------------------------------------------------------- signatures

my @keys = map { 'whsec_' . encode_base64(sha256("key $_"), '') } 0 .. 1;
make_credentials('signed', $recorder->url(''), signing_secret => $keys[0]);
make_sink('signed', $recorder->url('/signed'), {}, 'signed');

# By an implementation of its own: the signatures that a request must have.
sub signatures
{
	my ($request, @with) = @_;
	my $headers = $request->{headers};
	my $content = "$headers->{'webhook-id'}.$headers->{'webhook-timestamp'}.$request->{body}";
	return join ' ', map { 'v1,' . encode_base64(hmac_sha256($content, decode_base64(s/^whsec_//r)), '') } @with;
}

goes_on('signed', 'a sink signs');
$request = $recorder->last_request('/signed');
is($request->{headers}->{'webhook-signature'}, signatures($request, $keys[0]), 'the signature is right');
is('"' . $request->{headers}->{'webhook-id'} . '"', $request->{headers}->{'idempotency-key'}, 'the id is that of the batch');
cmp_ok(abs($request->{headers}->{'webhook-timestamp'} - time), '<', 600, 'the time is now');
push @secrets, $keys[1];
alter_mapping('signed', "SET signing_secret '$keys[1]', ADD signing_secret_previous '$keys[0]'");
goes_on('signed', 'the key is rotated');
$request = $recorder->last_request('/signed');
is($request->{headers}->{'webhook-signature'}, signatures($request, @keys[ 1, 0 ]), 'both keys sign, the new one first');
alter_mapping('signed', 'DROP signing_secret_previous');
goes_on('signed', 'the old key goes');
$request = $recorder->last_request('/signed');
is($request->{headers}->{'webhook-signature'}, signatures($request, $keys[1]), 'the new one alone signs');

# The example for receivers says the same.
SKIP:
{
	my ($python) = grep { -x } map { "$_/python3" } split /:/, $ENV{PATH};
	skip 'there is no python3 here', 2 unless $python;
	my ($example) = slurp_file('doc/receivers.md') =~ /^```python signature\n(.*?)^```/ms;
	write_file("$dir/example.py", $example . <<'PYTHON');
import json, sys
request = json.load(sys.stdin)
body = base64.b64decode(request['body'])
print(is_genuine(sys.argv[1], request['headers'], body), is_genuine(sys.argv[1], request['headers'], body + b' '))
PYTHON
	my $json = JSON::PP->new->encode({ headers => $request->{headers}, body => encode_base64($request->{body}, '') });
	foreach my $case ([ $keys[1], 'True False' ], [ $keys[0], 'False False' ])
	{
		my ($stdout, $stderr);
		IPC::Run::run([ $python, "$dir/example.py", $case->[0] ], '<', \$json, '>', \$stdout, '2>', \$stderr);
		is("$stdout$stderr", "$case->[1]\n", 'the example in doc/receivers.md verifies a signature: ' . $case->[1]);
	}
}
drop_sink('signed');

# -------------------------------------------------- the connections of one host

# Twenty deliveries hang at one host; a worker has four connections to it.
my @stuck = map { "stuck$_" } 1 .. 20;
my $other = Collector->new;
$collector->control('path=/stuck hang times=always');
make_sink($_, $collector->url("/$_"), { request_timeout => '1h', stall_timeout => '1h' }) foreach @stuck;
insert_rows($_, 1) foreach @stuck;
wait_until(sub { $collector->held == 4 }, 'four requests are under way');
make_sink('other', $other->url('/other'));
goes_on('other', 'another host is not delayed') foreach 1 .. 3;
is($collector->held, 4, 'and still four are under way');

# Time limits begin with the turn.
make_sink('patient', $collector->url('/patient'), { request_timeout => '50ms', retry_max => '1h' });
insert_rows('patient', 1);
goes_on('other', 'while a request waits for its turn') foreach 1 .. 5;
wait_seen('patient', "state = 'sending'", 'it counts as being sent');
sleep 1;
is(seen('patient', 'failures'), '0', 'its time has not begun');

# Limits can be changed while requests wait.
sql(q{ALTER SYSTEM SET incsink.max_connections_per_host = 7; SELECT pg_reload_conf()});
wait_until(sub { $collector->held == 7 }, 'a higher limit lets more out');
$collector->back_to_normal;
wait_seen($_, $all_is_well, "$_ goes on") foreach $stuck[0], $stuck[19], 'patient';
drop_sink($_) foreach @stuck, 'patient';
sql(q{ALTER SYSTEM SET incsink.max_connections_per_host = 4; SELECT pg_reload_conf()});

# More deliveries that have failed than there are places, at the host of a healthy one.
my @sick = map { "sick$_" } 1 .. 6;
$collector->control((map { "path=/$_ status=503" } @sick), 'path=/sick hang times=always');
make_sink($_, $collector->url("/$_"), { request_timeout => '1h', stall_timeout => '1h' }) foreach @sick;
make_sink('healthy', $collector->url('/healthy'));
insert_rows($_, 1) foreach @sick;
wait_seen($_, 'failures = 1', "$_ has failed") foreach @sick;
wait_until(sub { $collector->held == 2 }, 'two probes have half of the four places');
goes_on('healthy', 'the healthy one goes on') foreach 1 .. 5;
is($collector->held, 2, 'and still two probes are under way');
$collector->back_to_normal;
wait_seen($_, $all_is_well, "$_ goes on") foreach @sick;
drop_sink($_) foreach @sick, 'healthy', 'other';

# --------------------------------------------------- which phase a failure is of

# A sink that fails, and what it says.
sub fails_with
{
	my ($url, $options, $pattern, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	make_sink('fails', $url, $options);
	insert_rows('fails', 1);
	wait_seen('fails', 'last_error IS NOT NULL', $test);
	like(seen('fails', 'last_error'), $pattern, 'the text says what failed, and when');
	drop_sink('fails');
	return;
}

sub listener
{
	return IO::Socket::INET->new(Listen => $_[0], LocalAddr => '127.0.0.1', Proto => 'tcp') // die "listen: $!";
}

# Accepts and reads nothing; the second one does not even accept any more.
my $deaf = listener(100);
my $full = listener(1);
my @queue = map {
	IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $full->sockport, Proto => 'tcp', Blocking => 0)
} 1 .. 5;
# Answers whatever comes as a server that knows no TLS.
my $plain = listener(100);
my $plain_port = $plain->sockport;
my $plain_pid = fork() // die "fork: $!";
if ($plain_pid == 0)
{
	my $parent = getppid;
	$plain->timeout(1);
	while (getppid == $parent)
	{
		my $socket = $plain->accept // next;
		sysread($socket, my $hello, 5);
		print $socket "HTTP/1.1 400 Bad Request\r\n\r\n";
	}
	POSIX::_exit(0);
}
close $plain;

my $after = qr/failed after \d+ ms: /;

fails_with('http://no-such-host.invalid/', {}, qr/^resolving $after.*resolve host/i, 'a name that does not resolve');
fails_with('http://127.0.0.1:' . $full->sockport, { connect_timeout => '300ms' },
	qr/^connecting $after.*time/i, 'a host that does not answer');
fails_with('https://127.0.0.1:' . $deaf->sockport, { connect_timeout => '300ms' },
	qr/^TLS handshake $after.*time/i, 'a port where nobody speaks');
fails_with("https://127.0.0.1:$plain_port", {}, qr/^TLS handshake $after.*(version|record|packet)/i,
	'a port where nobody speaks TLS');
sql(q{INSERT INTO logs (part, pad) SELECT 'fails', repeat('x', 1000000) FROM generate_series(1, 40)});
fails_with('http://127.0.0.1:' . $deaf->sockport, { stall_timeout => '300ms', flush_bytes => '64MB' },
	qr/^sending $after.*no byte came or went/, 'a receiver that reads nothing');
sql(q{DELETE FROM logs WHERE part = 'fails'});
$collector->control('hang times=always');
fails_with($collector->url('/hangs'), { request_timeout => '300ms' },
	qr/^waiting for the answer $after.*timed out/i, 'a receiver that does not answer');
$collector->back_to_normal->control('trickle=5 fill=100000 times=always');
fails_with($collector->url('/trickles'), { request_timeout => '1s' },
	qr/^reading the answer $after.*timed out/i, 'a receiver that answers a byte at a time');
$collector->back_to_normal->control('fill=100000000 chunked');
make_sink('talks', $collector->url('/talks'));
goes_on('talks', 'an answer that is far too long still counts by its status');
drop_sink('talks');
$collector->back_to_normal;

# -------------------------------------------------------------------------- TLS

# Certificates: name => what signs it, days, subjectAltName.
sub run_openssl
{
	my ($stdout, $stderr);
	IPC::Run::run([ 'openssl', @_ ], '>', \$stdout, '2>', \$stderr) or die "openssl @_: $stderr";
	return;
}

sub make_certificates
{
	foreach my $ca ('ca', 'strange')
	{
		run_openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', "$dir/$ca.key", '-out', "$dir/$ca.crt",
			'-subj', "/CN=$ca", '-days', 30);
	}
	foreach my $spec ([ 'good', 'ca', 30, 'IP:127.0.0.1' ], [ 'expired', 'ca', -1, 'IP:127.0.0.1' ],
		[ 'elsewhere', 'ca', 30, 'DNS:elsewhere.example' ], [ 'unknown', 'strange', 30, 'IP:127.0.0.1' ],
		[ 'client', 'ca', 30, 'DNS:client' ])
	{
		my ($name, $ca, $days, $alternative) = @$spec;
		write_file("$dir/$name.ext", "subjectAltName = $alternative\n");
		run_openssl('req', '-newkey', 'rsa:2048', '-nodes', '-keyout', "$dir/$name.key", '-out', "$dir/$name.csr", '-subj', "/CN=$name");
		run_openssl('x509', '-req', '-in', "$dir/$name.csr", '-CA', "$dir/$ca.crt", '-CAkey', "$dir/$ca.key",
			'-CAcreateserial', '-days', $days, '-extfile', "$dir/$name.ext", '-out', "$dir/$name.crt");
	}
	run_openssl('rsa', '-aes256', '-in', "$dir/client.key", '-out', "$dir/locked.key", '-passout', 'pass:lock-5f21');
	return;
}

# nginx in front of the collector, a port for each way to be.
sub start_nginx
{
	my ($nginx, %servers) = @_;
	my $port = $collector->port;
	my $config = "daemon off; master_process off; pid $dir/nginx.pid; error_log $dir/nginx.err;\n"
	  . "events { worker_connections 256; }\nhttp {\n"
	  . "log_format all '\$server_port|\$server_protocol|\$ssl_protocol|\$ssl_client_s_dn|\$connection|\$status';\n"
	  . "access_log $dir/nginx.log all;\n"
	  . join('', map { "${_}_temp_path $dir/$_;\n" } 'client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi');

	$config .= "server { listen 127.0.0.1:$servers{$_}{port} ssl http2; ssl_certificate_key $dir/$servers{$_}{key}.key;"
	  . " ssl_certificate $dir/$servers{$_}{key}.crt; $servers{$_}{more}"
	  . " location / { proxy_pass http://127.0.0.1:$port; } }\n" foreach sort keys %servers;
	write_file("$dir/nginx.conf", "$config}\n");
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		exec($nginx, '-p', $dir, '-e', "$dir/nginx.err", '-c', "$dir/nginx.conf") or POSIX::_exit(127);
	}
	wait_until(sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $servers{good}{port}) });
	return $pid;
}

sub free_port { return listener(1)->sockport; }

my $nginx_pid;

SKIP:
{
	my ($nginx) = grep { -x $_ } '/usr/sbin/nginx', '/usr/bin/nginx', map { "$_/nginx" } split /:/, $ENV{PATH};
	skip 'nginx is not installed', 1 unless $nginx;
	skip 'openssl is not installed', 1 unless grep { -x "$_/openssl" } split /:/, $ENV{PATH};

	make_certificates();
	my %servers = map { $_ => { port => free_port(), key => $_, more => '' } } 'good', 'expired', 'elsewhere', 'unknown';
	$servers{good}{more} = 'keepalive_requests 3;';
	$servers{strict} = { port => free_port(), key => 'good',
		more => "ssl_client_certificate $dir/ca.crt; ssl_verify_client on; error_page 495 496 =403 /;" };
	$servers{old} = { port => free_port(), key => 'good', more => 'ssl_protocols TLSv1.2;' };
	$nginx_pid = start_nginx($nginx, %servers);
	my %url = map { $_ => "https://127.0.0.1:$servers{$_}{port}" } keys %servers;
	my %pem = map { $_ => slurp_file("$dir/$_") } 'ca.crt', 'client.crt', 'client.key', 'locked.key', 'unknown.key';
	my $trust = { ca_certificate => $pem{'ca.crt'} };
	my $logged = sub { return grep { /^$servers{$_[0]}{port}\|/ } split /\n/, slurp_file("$dir/nginx.log") };

	fails_with($url{good}, {}, qr/^TLS handshake $after.*(issuer|self.signed|verify|unknown CA)/i,
		'what the system does not trust is not trusted');
	fails_with($url{unknown}, $trust, qr/^TLS handshake $after.*(issuer|verify)/i, 'nor what the given authority has not signed');
	fails_with($url{expired}, $trust, qr/^TLS handshake $after.*expired/i, 'nor what has expired');
	fails_with($url{elsewhere}, $trust, qr/^TLS handshake $after.*(subject|host)/i, 'nor what is of another host');
	fails_with($url{old}, { %$trust, tls_min_version => '1.3' }, qr/^TLS handshake $after.*(protocol|version|alert)/i,
		'nor a version that is too low');
	is(join(', ', map { scalar $logged->($_) } 'good', 'unknown', 'expired', 'elsewhere', 'old'), '0, 0, 0, 0, 0',
		'none of them was sent a byte of a request');

	make_sink('secure', $url{good}, $trust);
	goes_on('secure', 'with its authority a receiver is trusted') foreach 1 .. 8;
	is(scalar(grep { /\|HTTP\/2\.0\|/ } $logged->('good')), 8, 'by HTTP/2');
	is_exported($node, q{SELECT id FROM logs WHERE part = 'secure'}, rows_at_collector($collector, 'id', sink => 'secure'),
		'connections that the receiver ends by GOAWAY lose and double nothing');
	drop_sink('secure');
	make_sink('older', $url{old}, $trust);
	goes_on('older', 'TLS 1.2 will do');
	drop_sink('older');

	# Client certificates.
	fails_with($url{strict}, $trust, qr/answered 403|certificate required|handshake failure/, 'a receiver that wants a certificate gets none');
	my $offset = @{[ $logged->('strict') ]};
	make_credentials('mutual', $url{strict}, client_certificate => $pem{'client.crt'}, client_key => $pem{'client.key'});
	make_sink('mutual', $url{strict}, $trust, 'mutual');
	goes_on('mutual', 'a receiver that wants a certificate gets one');
	like(($logged->('strict'))[-1], qr/\|CN=client\|\d+\|200$/, 'it was sent as the client');

	# Somebody else with the certificate, and without its key: no connection is shared.
	make_credentials('thief', $url{strict}, client_certificate => $pem{'client.crt'}, client_key => $pem{'unknown.key'});
	make_sink('thief', $url{strict}, $trust, 'thief');
	insert_rows('thief', 1);
	wait_seen('thief', "last_error LIKE 'TLS handshake failed after%'", 'a certificate without its key is of no use');
	ok(!grep({ /thief/ } map { $_->{sink} // '' } @{ $collector->ledger }), 'nothing was sent by it');
	drop_sink('thief');

	push @secrets, 'lock-5f21', $pem{'locked.key'};
	alter_mapping('mutual', 'SET client_key ' . quoted($pem{'locked.key'}) . ", ADD client_key_password 'lock-5f21'");
	goes_on('mutual', 'a key with a password');
	write_file("$file-mutual", "client_certificate=$pem{'client.crt'}client_key=$pem{'client.key'}");
	alter_mapping('mutual', "DROP client_certificate, DROP client_key, DROP client_key_password, ADD secret_file '$file-mutual'");
	goes_on('mutual', 'both in a file');
	like(($logged->('strict'))[-1], qr/\|CN=client\|\d+\|200$/, 'are sent');
	drop_sink('mutual');

	# An easy handle that had all this serves others, too.
	fails_with($url{good}, {}, qr/^TLS handshake $after.*(issuer|self.signed|verify|unknown CA)/i, 'and trust does not stay behind');
}

# ------------------------------------------------------------- nothing is shown

# Lines of keys, and the whole of all others.
my @needles = grep { length >= 8 && !/^-----/ } map { split /\n/ } @secrets;
my @certificate = $nginx_pid ? split(/\n/, slurp_file("$dir/client.crt")) : ();
@needles = grep { my $needle = $_; !grep { $_ eq $needle } @certificate } @needles;
cmp_ok(scalar @needles, '>', 8, 'there are secrets to look for');
my $shown = join "\n", slurp_file($node->logfile), map { sql("SELECT t::text FROM incsink.$_ t") }
  split /\n/, sql(q{SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = 'incsink'::regnamespace AND relkind IN ('r', 'v')});
is(scalar(grep { index($shown, $_) >= 0 } @needles), 0, 'none of them is in a table, a view or the log');

foreach my $pid ($plain_pid, $nginx_pid // ())
{
	kill 'KILL', $pid;
	waitpid($pid, 0);
}
done_testing();
