/*
 * http_private.h
 *		What http.c (the pool) and http_transfer.c (one request) share.
 */
#ifndef INCSINK_HTTP_PRIVATE_H
#define INCSINK_HTTP_PRIVATE_H

#include "postgres.h"

#include <curl/curl.h>

#include "lib/ilist.h"
#include "transport/http.h"
#include "transport/http_places.h"

/* Where a request goes. */
typedef struct HttpTarget
{
	bool		secure;			/* https */
	char		host[HTTP_HOST_LENGTH]; /* host:port */
} HttpTarget;

typedef enum HttpTransferState
{
	TRANSFER_FREE,				/* kept for the next request */
	TRANSFER_QUEUED,			/* waits for a place */
	TRANSFER_RUNNING,			/* added to the multi handle */
	TRANSFER_DONE,				/* judged, its done function not called yet */
	TRANSFER_CALLING			/* its done function is running */
} HttpTransferState;

struct HttpTransfer
{
	slist_node	all_node;		/* in pool->all, for as long as the pool lives */
	dlist_node	node;			/* in the list of its state, unless queued */
	HttpPlace	place;			/* while queued or running */
	HttpTransferState state;
	HttpPool   *pool;
	CURL	   *easy;
	struct curl_slist *headers;
	HttpDoneFunction done;
	void	   *arg;

	/* of the request */
	bool		secure;			/* https */
	bool		own_tls;		/* TLS options are not the usual ones */
	size_t		body_length;
	size_t		answer_limit;
	int			stall_timeout;	/* milliseconds, 0 = none */

	/* of the run; times are HttpNow() */
	CURLcode	code;			/* how libcurl ended it */
	int64		started;
	int64		moved_at;		/* when "moved" was last seen to change */
	int64		moved;			/* bytes in both directions by then */
	int			socket;			/* last one that it opened, or -1 */
	bool		connected;		/* that one was connected before it was closed */
	int			times_sent;		/* how often the request was begun: curl sends
								 * it again when a reused connection was dead */
	int64		received;		/* bytes of headers and body of the answer */
	int64		header_bytes;
	bool		headers_ended;	/* by an empty line */
	bool		cut;			/* the answer was longer than answer_limit */
	bool		header_flood;	/* more headers than anybody needs */
	bool		out_of_memory;
	int			socket_errno;	/* its socket could not be watched */

	/* of the answer */
	char	   *answer;			/* in pool context */
	size_t		answer_length;
	size_t		answer_capacity;
	char		retry_after[128];
	char		location[2048];
	HttpResult	result;
	char		curl_error[CURL_ERROR_SIZE];
	char		error[CURL_ERROR_SIZE + 256];
};

/* http.c */
extern int64 HttpNow(void);
extern MemoryContext HttpPoolContext(HttpPool *pool);

/* http_transfer.c */
extern void HttpCheckRequest(const HttpRequest *request, HttpTarget *target);
extern char **HttpHeaderLines(const HttpRequest *request);
extern CURLcode HttpTransferOpen(HttpTransfer *transfer);
extern CURLcode HttpTransferPrepare(HttpTransfer *transfer,
									const HttpRequest *request, char **lines);
extern bool HttpTransferStalled(HttpTransfer *transfer, int64 now);
extern void HttpTransferJudge(HttpTransfer *transfer, CURLcode code, const char *reason);
extern void HttpTransferClear(HttpTransfer *transfer);

/* http_tls.c */
extern void HttpCheckTls(const HttpTls *tls);
extern CURLcode HttpTransferSetTls(HttpTransfer *transfer, const HttpTls *tls);

#endif							/* INCSINK_HTTP_PRIVATE_H */
