/*
 * http_transfer.c
 *		One request: libcurl's options for it, what comes back, and what a
 *		failure proves.
 *
 * An easy handle is configured once and serves many requests.  Callbacks of
 * libcurl are C code of its own above us on the stack: nothing in them raises
 * an ERROR, so memory comes from calls that give NULL.
 *
 * Whether a request has left is not guessed from libcurl's result code.  Before
 * the first byte of a request goes into a connection, new or reused, libcurl
 * asks CURLOPT_PREREQFUNCTION: a transfer that never came there was certainly
 * not stored.
 */
#include "postgres.h"

#include <ctype.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/inject.h"
#include "storage/fd.h"
#include "transport/http_private.h"
#include "utils/memutils.h"

#if LIBCURL_VERSION_NUM < 0x073E00
#error "incsink needs libcurl 7.62 or later"
#endif

/* Idle connections: how long they may wait, and live, in seconds. */
#define CONNECTION_MAX_IDLE 60L
#define CONNECTION_MAX_LIFE 300L

/* Bounds of the buffer that libcurl sends a long body from. */
#define UPLOAD_BUFFER_MIN (64 * 1024)
#define UPLOAD_BUFFER_MAX (512 * 1024)

/* Headers of an answer beyond this end the transfer. */
#define ANSWER_HEADERS_MAX (256 * 1024)

/* An answer buffer up to this size is kept for the next request. */
#define ANSWER_KEPT_MAX (16 * 1024)

#define SET_OPTION(easy, option, value) \
	do { \
		CURLcode	set_code = curl_easy_setopt(easy, option, value); \
		if (set_code != CURLE_OK) \
			return set_code; \
	} while (0)

/* Headers that frame a message: the transport's alone. */
static const char *const FramingHeaders[] = {
	"Connection", "Content-Length", "Expect", "Keep-Alive", "TE", "Trailer",
	"Transfer-Encoding", "Upgrade"
};

/* RFC 9110 section 5.6.2 */
static bool
IsToken(const char *name)
{
	const char *c;

	for (c = name; *c != '\0'; c++)
	{
		if (!isalnum((unsigned char) *c) && strchr("!#$%&'*+-.^_`|~", *c) == NULL)
			return false;
		if ((unsigned char) *c >= 0x80)
			return false;
	}
	return c > name;
}

/* Raises an ERROR, without the value, for a header that cannot be sent as it is. */
static void
CheckHeader(const HttpHeader *header)
{
	const unsigned char *c;
	int			i;

	if (!IsToken(header->name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name of an HTTP header"),
				 errdetail("A name consists of letters, digits and the characters !#$%%&'*+-.^_`|~.")));
	for (i = 0; i < lengthof(FramingHeaders); i++)
	{
		if (pg_strcasecmp(header->name, FramingHeaders[i]) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("HTTP header \"%s\" cannot be set", header->name),
					 errdetail("It belongs to the connection.")));
	}
	for (c = (const unsigned char *) header->value; *c != '\0'; c++)
	{
		if ((*c < 0x20 && *c != '\t') || *c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("value of HTTP header \"%s\" contains a control character",
							header->name)));
	}
}

/* False for a url that libcurl could not use, with its reason. */
static bool
ReadUrl(CURLU *parts, const char *url, HttpTarget *target, CURLUcode *code)
{
	char	   *scheme = NULL;
	char	   *host = NULL;
	char	   *port = NULL;
	bool		is_http = false;

	*code = curl_url_set(parts, CURLUPART_URL, url, 0);
	if (*code == CURLUE_OK)
		*code = curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0);
	if (*code == CURLUE_OK)
	{
		target->secure = strcmp(scheme, "https") == 0;
		is_http = target->secure || strcmp(scheme, "http") == 0;
	}
	if (is_http)
		*code = curl_url_get(parts, CURLUPART_HOST, &host, 0);
	if (is_http && *code == CURLUE_OK)
		*code = curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
	if (is_http && *code == CURLUE_OK)
		snprintf(target->host, sizeof(target->host), "%s:%s", host, port);
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	return is_http && *code == CURLUE_OK;
}

/*
 * Raises an ERROR for a url that libcurl could not use.  The url stands in no
 * message: parts of it may be secret.
 */
static void
CheckUrl(const char *url, HttpTarget *target)
{
	CURLU	   *parts = curl_url();
	CURLUcode	code = CURLUE_OUT_OF_MEMORY;
	bool		works = parts != NULL && ReadUrl(parts, url, target, &code);
	const char *reason;

	curl_url_cleanup(parts);
	if (works)
	{
		for (char *c = target->host; *c != '\0'; c++)
			*c = pg_ascii_tolower((unsigned char) *c);
		return;
	}
#if LIBCURL_VERSION_NUM >= 0x075000
	reason = code == CURLUE_OK ? "Its scheme is neither http nor https" : curl_url_strerror(code);
#else
	reason = code == CURLUE_OK ? "Its scheme is neither http nor https" : "It cannot be parsed";
#endif
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid URL of an HTTP request"),
			 errdetail("%s.", reason)));
}

/* Raises an ERROR for a request that cannot be sent as it is. */
void
HttpCheckRequest(const HttpRequest *request, HttpTarget *target)
{
	int			i;

	if (strcmp(request->method, "POST") != 0 && strcmp(request->method, "PUT") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid method of an HTTP request"),
				 errdetail("Requests are sent with POST or PUT.")));
	CheckUrl(request->url, target);
	for (i = 0; i < request->nheaders; i++)
		CheckHeader(&request->headers[i]);
}

/*
 * Gives the headers as libcurl takes them, in one allocation, with NULL behind
 * the last.  "Name;" is its way to send a header with an empty value, where
 * "Name:" removes one (CURLOPT_HTTPHEADER(3)).
 */
char	  **
HttpHeaderLines(const HttpRequest *request)
{
	size_t		size = (request->nheaders + 1) * sizeof(char *);
	char	  **lines;
	char	   *next;
	int			i;

	for (i = 0; i < request->nheaders; i++)
		size += strlen(request->headers[i].name) + strlen(request->headers[i].value) + 3;
	lines = palloc(size);
	next = (char *) (lines + request->nheaders + 1);
	for (i = 0; i < request->nheaders; i++)
	{
		const HttpHeader *header = &request->headers[i];
		bool		blank = header->value[strspn(header->value, " \t")] == '\0';

		lines[i] = next;
		if (blank)
			next += sprintf(next, "%s;", header->name) + 1;
		else
			next += sprintf(next, "%s: %s", header->name, header->value) + 1;
	}
	lines[i] = NULL;
	return lines;
}

/* CURLOPT_WRITEFUNCTION; any other result than "length" ends the transfer. */
static size_t
ReceiveBody(char *bytes, size_t size, size_t nmemb, void *arg)
{
	HttpTransfer *transfer = arg;
	size_t		length = size * nmemb;
	size_t		wanted = Min(length, transfer->answer_limit - transfer->answer_length);
	size_t		needed = transfer->answer_length + wanted;

	transfer->received += length;
	if (needed > transfer->answer_capacity)
	{
		size_t		capacity = Max(needed, Min(2 * needed, transfer->answer_limit));
		char	   *grown = MemoryContextAllocExtended(HttpPoolContext(transfer->pool), capacity,
													   MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);

		if (grown == NULL)
		{
			transfer->out_of_memory = true;
			return 0;
		}
		if (transfer->answer != NULL)
		{
			memcpy(grown, transfer->answer, transfer->answer_length);
			pfree(transfer->answer);
		}
		transfer->answer = grown;
		transfer->answer_capacity = capacity;
	}
	if (wanted > 0)
		memcpy(transfer->answer + transfer->answer_length, bytes, wanted);
	transfer->answer_length = needed;

	/* What libcurl was given is never 0 bytes, so this is never "length". */
	transfer->cut = wanted < length;
	return transfer->cut ? 0 : length;
}

/* Keeps the value of a header, as much of it as fits, if it has that name. */
static void
CaptureHeader(const char *line, size_t length, const char *name, char *value, size_t size)
{
	size_t		name_length = strlen(name);

	if (length <= name_length || line[name_length] != ':' ||
		pg_strncasecmp(line, name, name_length) != 0)
		return;
	line += name_length + 1;
	length -= name_length + 1;
	while (length > 0 && (*line == ' ' || *line == '\t'))
	{
		line++;
		length--;
	}
	while (length > 0 && isspace((unsigned char) line[length - 1]))
		length--;
	length = Min(length, size - 1);
	memcpy(value, line, length);
	value[length] = '\0';
}

/*
 * CURLOPT_HEADERFUNCTION: one whole line a call.  A status line begins another
 * answer: what an interim one (1xx) brought is forgotten.
 */
static size_t
ReceiveHeader(char *line, size_t size, size_t nmemb, void *arg)
{
	HttpTransfer *transfer = arg;
	size_t		length = size * nmemb;

	transfer->received += length;
	transfer->header_bytes += length;
	if (transfer->header_bytes > ANSWER_HEADERS_MAX)
	{
		transfer->header_flood = true;
		return 0;
	}
	if (length >= 5 && memcmp(line, "HTTP/", 5) == 0)
	{
		transfer->headers_ended = false;
		transfer->retry_after[0] = '\0';
		transfer->location[0] = '\0';
		return length;
	}
	if (line[0] == '\r' || line[0] == '\n')
		transfer->headers_ended = true;
	CaptureHeader(line, length, "Retry-After", transfer->retry_after,
				  sizeof(transfer->retry_after));
	CaptureHeader(line, length, "Location", transfer->location, sizeof(transfer->location));
	return length;
}

/*
 * CURLOPT_OPENSOCKETFUNCTION: a socket counted among those that fd.c knows of,
 * so that it closes files of its own before the process runs out of descriptors.
 * ReserveExternalFD() does not raise an ERROR.
 */
static curl_socket_t
OpenSocket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	HttpTransfer *transfer = arg;
	int			fd;

	ReserveExternalFD();
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	if (fd < 0)
	{
		ReleaseExternalFD();
		return CURL_SOCKET_BAD;
	}
	transfer->socket = fd;
	return fd;
}

/*
 * CURLOPT_CLOSESOCKETFUNCTION.  "arg" is the transfer that opened the socket,
 * which may be busy with another request by now, but lives as long as the pool.
 */
static int
CloseSocket(void *arg, curl_socket_t fd)
{
	HttpTransfer *transfer = arg;
	struct sockaddr_storage peer;
	socklen_t	length = sizeof(peer);

	if (transfer->socket == fd)
	{
		transfer->connected = getpeername(fd, (struct sockaddr *) &peer, &length) == 0;
		transfer->socket = -1;
	}
	ReleaseExternalFD();
	return close(fd);
}

#if LIBCURL_VERSION_NUM >= 0x075000
/*
 * CURLOPT_PREREQFUNCTION: a connection stands, TLS included, and the request is
 * about to go into it.  All signals are blocked here: a wait at the point
 * "http-send" ends when it is disarmed, and not before.
 */
static int
NoteSending(void *arg, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
	if (INCSINK_POINT_ERRNO("http-send") != 0)
		return CURL_PREREQFUNC_ABORT;
	((HttpTransfer *) arg)->times_sent++;
	return CURL_PREREQFUNC_OK;
}
#else
/*
 * CURLOPT_DEBUGFUNCTION, before libcurl 7.80: told of each request once its
 * headers are sent.  That the first one began is known by WasBegun().
 */
static int
NoteSending(CURL *easy, curl_infotype type, char *bytes, size_t length, void *arg)
{
	if (type == CURLINFO_HEADER_OUT && length > 4 &&
		(memcmp(bytes, "POST ", 5) == 0 || memcmp(bytes, "PUT ", 4) == 0))
		((HttpTransfer *) arg)->times_sent++;
	return 0;
}
#endif

/* Has any byte of the request gone into a connection, or been about to? */
static bool
WasBegun(HttpTransfer *transfer)
{
	curl_off_t	pretransfer = 0;

	if (transfer->times_sent > 0)
		return true;
	curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &pretransfer);
	return pretransfer > 0;
}

/* Where a request may go, and what it must not take from its environment. */
static CURLcode
SetLimitsOfTrust(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
	SET_OPTION(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET_OPTION(easy, CURLOPT_PROTOCOLS, (long) (CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	SET_OPTION(easy, CURLOPT_FOLLOWLOCATION, 0L);
	SET_OPTION(easy, CURLOPT_PROXY, "");
	SET_OPTION(easy, CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
	SET_OPTION(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	SET_OPTION(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	SET_OPTION(easy, CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2);
	SET_OPTION(easy, CURLOPT_PATH_AS_IS, 1L);
	return CURLE_OK;
}

/* How connections are made and kept. */
static CURLcode
SetConnectionOptions(CURL *easy, HttpTransfer *transfer)
{
	SET_OPTION(easy, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Do not wait for the thread of a name that does not resolve. */
	SET_OPTION(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
	SET_OPTION(easy, CURLOPT_TCP_NODELAY, 1L);
	SET_OPTION(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	SET_OPTION(easy, CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
	SET_OPTION(easy, CURLOPT_OPENSOCKETDATA, transfer);
	SET_OPTION(easy, CURLOPT_CLOSESOCKETFUNCTION, CloseSocket);
	SET_OPTION(easy, CURLOPT_CLOSESOCKETDATA, transfer);
#if LIBCURL_VERSION_NUM >= 0x074100
	SET_OPTION(easy, CURLOPT_MAXAGE_CONN, CONNECTION_MAX_IDLE);
#endif
#if LIBCURL_VERSION_NUM >= 0x075000
	SET_OPTION(easy, CURLOPT_MAXLIFETIME_CONN, CONNECTION_MAX_LIFE);
#endif
	/* A libcurl without HTTP/2 refuses this one and speaks 1.1. */
	(void) curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_2TLS);
	return CURLE_OK;
}

/* Who is called with what comes. */
static CURLcode
SetCallbacks(CURL *easy, HttpTransfer *transfer)
{
	SET_OPTION(easy, CURLOPT_PRIVATE, transfer);
	SET_OPTION(easy, CURLOPT_ERRORBUFFER, transfer->curl_error);
	SET_OPTION(easy, CURLOPT_WRITEFUNCTION, ReceiveBody);
	SET_OPTION(easy, CURLOPT_WRITEDATA, transfer);
	SET_OPTION(easy, CURLOPT_HEADERFUNCTION, ReceiveHeader);
	SET_OPTION(easy, CURLOPT_HEADERDATA, transfer);
#if LIBCURL_VERSION_NUM >= 0x075000
	SET_OPTION(easy, CURLOPT_PREREQFUNCTION, NoteSending);
	SET_OPTION(easy, CURLOPT_PREREQDATA, transfer);
#else
	SET_OPTION(easy, CURLOPT_DEBUGFUNCTION, NoteSending);
	SET_OPTION(easy, CURLOPT_DEBUGDATA, transfer);
	SET_OPTION(easy, CURLOPT_VERBOSE, 1L);
#endif
	return CURLE_OK;
}

/* Makes the easy handle, with all that does not change from request to request. */
CURLcode
HttpTransferOpen(HttpTransfer *transfer)
{
	CURLcode	code;

	transfer->socket = -1;
	transfer->easy = curl_easy_init();
	if (transfer->easy == NULL)
		return CURLE_OUT_OF_MEMORY;
	SET_OPTION(transfer->easy, CURLOPT_USERAGENT, "incsink");
	code = SetLimitsOfTrust(transfer->easy);
	if (code == CURLE_OK)
		code = SetConnectionOptions(transfer->easy, transfer);
	if (code == CURLE_OK)
		code = SetCallbacks(transfer->easy, transfer);
	return code;
}

/*
 * Appends to transfer->headers, which HttpTransferClear() frees.  "Expect:"
 * removes libcurl's own Expect: 100-continue, which costs a round trip, or a
 * second where the receiver does not know it.
 */
static CURLcode
AppendHeader(HttpTransfer *transfer, const char *line)
{
	struct curl_slist *appended = curl_slist_append(transfer->headers, line);

	if (appended == NULL)
		return CURLE_OUT_OF_MEMORY;
	transfer->headers = appended;
	return CURLE_OK;
}

static CURLcode
SetHeaders(HttpTransfer *transfer, char **lines)
{
	CURLcode	code = AppendHeader(transfer, "Expect:");

	for (; code == CURLE_OK && *lines != NULL; lines++)
		code = AppendHeader(transfer, *lines);
	if (code == CURLE_OK)
		code = curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
	return code;
}

/*
 * Where libcurl takes 0 for its default of five minutes, "none" is as long as
 * it can count.
 */
static CURLcode
SetTimeouts(CURL *easy, const HttpRequest *request)
{
	long		connect_timeout = request->connect_timeout;

	if (connect_timeout <= 0)
		connect_timeout = INT_MAX;
	SET_OPTION(easy, CURLOPT_CONNECTTIMEOUT_MS, connect_timeout);
	SET_OPTION(easy, CURLOPT_TIMEOUT_MS, (long) Max(request->request_timeout, 0));
	return CURLE_OK;
}

/*
 * Sets all that belongs to this request.  PUT is a POST under another name: that
 * way a small body goes out in one packet with its headers.
 */
CURLcode
HttpTransferPrepare(HttpTransfer *transfer, const HttpRequest *request, char **lines)
{
	CURL	   *easy = transfer->easy;
	size_t		buffer = request->body_length / 4;
	CURLcode	code;

	transfer->body_length = request->body_length;
	transfer->answer_limit = request->answer_limit;
	transfer->stall_timeout = request->stall_timeout;

	SET_OPTION(easy, CURLOPT_URL, request->url);
	SET_OPTION(easy, CURLOPT_POST, 1L);
	SET_OPTION(easy, CURLOPT_CUSTOMREQUEST,
			   strcmp(request->method, "PUT") == 0 ? "PUT" : NULL);
	SET_OPTION(easy, CURLOPT_POSTFIELDS,
			   request->body_length > 0 ? request->body : "");
	SET_OPTION(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) request->body_length);
	buffer = Max(Min(buffer, UPLOAD_BUFFER_MAX), UPLOAD_BUFFER_MIN);
	SET_OPTION(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long) buffer);
	code = SetTimeouts(easy, request);
	if (code == CURLE_OK)
		code = HttpTransferSetTls(transfer, &request->tls);
	if (code == CURLE_OK)
		code = SetHeaders(transfer, lines);
	return code;
}

static int64
BytesSent(HttpTransfer *transfer)
{
	curl_off_t	body = 0;
	long		headers = 0;

	curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_UPLOAD_T, &body);
	curl_easy_getinfo(transfer->easy, CURLINFO_REQUEST_SIZE, &headers);
	return (int64) body + headers;
}

/*
 * Has no byte moved for stall_timeout?  While a connection is being made there
 * is nothing to move: that is the connect time limit's to watch.
 */
bool
HttpTransferStalled(HttpTransfer *transfer, int64 now)
{
	int64		moved;

	if (transfer->stall_timeout <= 0)
		return false;
	moved = BytesSent(transfer) + transfer->received;
	if (moved != transfer->moved || !WasBegun(transfer))
	{
		transfer->moved = moved;
		transfer->moved_at = now;
		return false;
	}
	return now - transfer->moved_at >= transfer->stall_timeout;
}

/* Did libcurl hand over the whole body?  Asked of the last time it was sent. */
static bool
BodyWasSent(HttpTransfer *transfer)
{
	curl_off_t	body = 0;

	curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_UPLOAD_T, &body);
	return (size_t) body >= transfer->body_length;
}

/* Does libcurl's result code say that TLS did not come about? */
static bool
IsTlsFailure(CURLcode code)
{
	switch (code)
	{
		case CURLE_SSL_CONNECT_ERROR:
		case CURLE_SSL_CERTPROBLEM:
		case CURLE_SSL_CIPHER:
		case CURLE_PEER_FAILED_VERIFICATION:
		case CURLE_SSL_CACERT_BADFILE:
		case CURLE_SSL_ISSUER_ERROR:
		case CURLE_SSL_INVALIDCERTSTATUS:
			return true;
		default:
			return false;
	}
}

/* Has the transfer's last socket come to be connected?  It may be closed, or not yet. */
static bool
WasConnected(HttpTransfer *transfer)
{
	struct sockaddr_storage peer;
	socklen_t	length = sizeof(peer);

	return transfer->connected ||
		(transfer->socket >= 0 &&
		 getpeername(transfer->socket, (struct sockaddr *) &peer, &length) == 0);
}

/* What a failed transfer was busy with. */
static const char *
PhaseOf(HttpTransfer *transfer, CURLcode code)
{
	curl_off_t	resolved = 0;

	if (transfer->received > 0)
		return "reading the answer";
	if (WasBegun(transfer))
		return BodyWasSent(transfer) ? "waiting for the answer" : "sending";

	curl_easy_getinfo(transfer->easy, CURLINFO_NAMELOOKUP_TIME_T, &resolved);
	if (code == CURLE_COULDNT_RESOLVE_HOST || resolved == 0)
		return "resolving";
	if (IsTlsFailure(code) || (transfer->secure && WasConnected(transfer)))
		return "TLS handshake";
	return "connecting";
}

/*
 * Writes transfer->error: phase, time, reason.  libcurl's own text holds no
 * header and of the url no more than host and port; bytes of the other side
 * that are not printable are replaced.
 */
static void
DescribeFailure(HttpTransfer *transfer, CURLcode code, const char *reason)
{
	long		os_errno = 0;
	char	   *c;
	size_t		length;

	if (reason == NULL)
		reason = transfer->curl_error[0] != '\0' ? transfer->curl_error : curl_easy_strerror(code);
	length = snprintf(transfer->error, sizeof(transfer->error), "%s failed after %lld ms: %s",
					  PhaseOf(transfer, code), (long long) (HttpNow() - transfer->started), reason);

	curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &os_errno);
	if (code == CURLE_COULDNT_CONNECT && os_errno != 0 && length < sizeof(transfer->error))
	{
		errno = (int) os_errno;
		snprintf(transfer->error + length, sizeof(transfer->error) - length, " (%m)");
	}
	for (c = transfer->error; *c != '\0'; c++)
	{
		if ((unsigned char) *c < 0x20 || *c == 0x7f)
			*c = '?';
	}
}

/*
 * What ended a transfer that is not a complete answer, or NULL when it is one.
 * Success that was answered before the body had gone out is none: the receiver
 * cannot have stored what it was not given.
 */
static const char *
FailureOf(HttpTransfer *transfer, CURLcode code, long status)
{
	if (transfer->out_of_memory)
		return "out of memory";
	if (transfer->header_flood)
		return "the answer has too many headers";
	if (code != CURLE_OK && !transfer->cut)
		return "";
	if (status < 200)
		return "no status was received";
	if (!transfer->headers_ended)
		return "the answer ended within its headers";	/* for libcurl that is no error */
	if (status < 300 && !BodyWasSent(transfer))
		return "success was answered before the request was sent";
	return NULL;
}

/*
 * Makes transfer->result of the way it ended.  "reason", where given, is our
 * own for ending it.
 */
void
HttpTransferJudge(HttpTransfer *transfer, CURLcode code, const char *reason)
{
	HttpResult *result = &transfer->result;
	const char *failure = reason;

	memset(result, 0, sizeof(HttpResult));
	curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &result->status);
	if (failure == NULL)
		failure = FailureOf(transfer, code, result->status);
	if (result->status < 200)
		result->status = 0;

	result->resent = transfer->times_sent > 1;
	result->answer = transfer->answer;
	result->answer_length = transfer->answer_length;
	if (transfer->retry_after[0] != '\0')
		result->retry_after = transfer->retry_after;
	if (transfer->location[0] != '\0')
		result->location = transfer->location;

	if (failure == NULL)
	{
		result->failure = HTTP_COMPLETE;
		return;
	}
	result->failure = WasBegun(transfer) ? HTTP_AMBIGUOUS : HTTP_NOT_SENT;
	DescribeFailure(transfer, code, failure[0] != '\0' ? failure : NULL);
	result->error = transfer->error;
}

/*
 * Frees what belonged to a request, which libcurl must not be working on any
 * more, and forgets the caller's memory.
 */
void
HttpTransferClear(HttpTransfer *transfer)
{
	curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, NULL);
	curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDS, "");
	curl_slist_free_all(transfer->headers);
	transfer->headers = NULL;
	transfer->done = NULL;
	transfer->arg = NULL;

	if (transfer->answer_capacity > ANSWER_KEPT_MAX)
	{
		pfree(transfer->answer);
		transfer->answer = NULL;
		transfer->answer_capacity = 0;
	}
	transfer->answer_length = 0;
	transfer->retry_after[0] = '\0';
	transfer->location[0] = '\0';
	transfer->curl_error[0] = '\0';
	transfer->moved = 0;
	transfer->socket = -1;
	transfer->connected = false;
	transfer->received = 0;
	transfer->header_bytes = 0;
	transfer->headers_ended = false;
	transfer->times_sent = 0;
	transfer->socket_errno = 0;
	transfer->cut = false;
	transfer->header_flood = false;
	transfer->out_of_memory = false;
}
