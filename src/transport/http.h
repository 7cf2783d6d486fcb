/*
 * http.h
 *		Hundreds of HTTP requests at once over one curl_multi handle, driven by
 *		the caller's own wait.
 *
 * The pool keeps its sockets in an epoll set of its own.  An epoll descriptor
 * can itself be waited for, so the caller adds HttpPoolDescriptor() to its
 * WaitEventSet beside the latch and never rebuilds that set.
 */
#ifndef INCSINK_HTTP_H
#define INCSINK_HTTP_H

#include "postgres.h"

typedef struct HttpPool HttpPool;
typedef struct HttpTransfer HttpTransfer;

typedef struct HttpHeader
{
	const char *name;
	const char *value;
} HttpHeader;

/*
 * TLS of a request, NULL or false for what is usual.  Connections are shared between
 * requests of the same certificate and authorities, whatever the key: who gives a key
 * puts a mark of it before the certificate's BEGIN.
 */
typedef struct HttpTls
{
	const char *client_certificate; /* PEM */
	const char *client_key;		/* PEM */
	const char *client_key_password;
	const char *ca_certificate; /* PEM; trusted instead of the system's */
	bool		only_1_3;		/* of 1.2 and 1.3 */
} HttpTls;

typedef struct HttpRequest
{
	const char *method;			/* POST or PUT */
	const char *url;			/* http or https */
	const HttpHeader *headers;	/* Content-Type included */
	int			nheaders;
	const char *body;			/* must stay until the transfer is done or
								 * cancelled; not copied */
	size_t		body_length;
	int			connect_timeout;	/* milliseconds, 0 = none */
	int			request_timeout;	/* milliseconds for the whole attempt, 0 =
									 * none */
	int			stall_timeout;	/* milliseconds without a byte in either
								 * direction, 0 = none */
	size_t		answer_limit;	/* bytes of the answer's body that are read;
								 * more ends the transfer, the status counts */
	HttpTls		tls;
	bool		probe;			/* of a delivery that has failed: such have at
								 * most half of the places */
} HttpRequest;

/* Which class of failure a transfer ended in, when no complete answer came. */
typedef enum HttpFailure
{
	HTTP_COMPLETE,				/* a complete answer (or one cut at the limit) */
	HTTP_NOT_SENT,				/* failed before a byte of the request left:
								 * certainly not stored */
	HTTP_AMBIGUOUS				/* something left: may have been stored */
} HttpFailure;

typedef struct HttpResult
{
	HttpFailure failure;
	long		status;			/* 0 unless a status line was read */
	const char *answer;			/* first part of the answer's body, not
								 * necessarily text; not terminated */
	size_t		answer_length;
	const char *retry_after;	/* header as received, or NULL */
	const char *location;		/* header as received, or NULL */
	bool		resent;			/* the request may have left more than once:
								 * on a reused connection that died without an
								 * answer, and again on another one.  This
								 * result is of the last time only; the
								 * earlier one may have been stored */
	const char *error;			/* for other than HTTP_COMPLETE: what failed,
								 * in which phase (resolving, connecting, TLS
								 * handshake, sending, waiting for the answer,
								 * reading the answer), after how long */
} HttpResult;

/* Called from HttpPoolRun(); the result is gone when it returns.  Must not throw. */
typedef void (*HttpDoneFunction) (void *arg, const HttpResult *result);

/*
 * Makes a pool whose curl handles are freed by a reset callback of the current
 * memory context, whatever ERROR ends it.  Does curl_global_init() at first use
 * in this process, never in the postmaster.
 *
 * Requests beyond max_connections, beyond max_per_host to one host and port, or
 * beyond a quarter of the files that the process may open (max_files_per_process),
 * wait in the pool; their time limits begin when their turn comes.  See
 * http_places.h for whose turn it is.
 */
extern HttpPool *HttpPoolCreate(int max_connections, int max_per_host);

/* Other limits from now on, as after a change of settings; what runs goes on. */
extern void HttpPoolSetLimits(HttpPool *pool, int max_connections, int max_per_host);

/* Starts a request.  Raises an ERROR (nothing started) for a url curl refuses. */
extern HttpTransfer *HttpPoolStart(HttpPool *pool, const HttpRequest *request,
								   HttpDoneFunction done, void *arg);

/* Ends a transfer at once, without calling its done function. */
extern void HttpPoolCancel(HttpPool *pool, HttpTransfer *transfer);

/* Descriptor that becomes readable when HttpPoolRun() has something to do. */
extern int	HttpPoolDescriptor(HttpPool *pool);

/* Milliseconds until HttpPoolRun() must be called anyway, -1 = no timer. */
extern long HttpPoolTimeout(HttpPool *pool);

/* Moves every transfer on without blocking and calls what is done. */
extern void HttpPoolRun(HttpPool *pool);

#endif							/* INCSINK_HTTP_H */
