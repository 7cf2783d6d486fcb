/*
 * http.c
 *		The pool: many requests over one curl_multi handle whose sockets stand in
 *		an epoll set of our own.
 *
 * libcurl says through two callbacks what it waits for: sockets (put into the
 * epoll set) and one timer (kept as a time).  HttpPoolRun() tells it what has
 * become ready, then collects what is finished, and only then, outside every
 * call of libcurl, calls the done functions; those may start and cancel.
 *
 * Nothing here raises an ERROR inside a call of libcurl.  All handles belong to
 * the pool, and a reset callback of the pool's memory context frees them.  No
 * child context is used: MemoryContextDelete() deletes children before it calls
 * the callbacks of the parent (mcxt.c).
 */
#include "postgres.h"

#include <signal.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "common/inject.h"
#include "common/settings.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "transport/http_private.h"
#include "utils/memutils.h"

#define EVENTS_AT_ONCE 64

/* A call of HttpPoolRun() looks for more to do for so long, in milliseconds. */
#define RUN_LIMIT_MS 5

/*
 * Share of the descriptors that fd.c manages which connections may take.  All
 * external ones may take a third (AcquireExternalFD()), and other code in this
 * process needs some.
 */
#define CONNECTIONS_OF_DESCRIPTORS 4

/* Shortest time between two looks at who has stalled, in milliseconds. */
#define STALL_CHECK_MIN 10


struct HttpPool
{
	MemoryContext context;
	MemoryContextCallback callback;
	CURLM	   *multi;
	int			epoll_fd;
	bool		epoll_acquired;
	HttpPlaces	places;
	int			max_wanted;		/* setting that places.max came of */
	int64		timer;			/* when libcurl wants to be called, -1 = never */
	int64		stall_check;	/* when to look for stalled ones, -1 = never */
	bool		socket_failure; /* some transfer has a socket_errno */
	bool		in_run;
	slist_head	all;
	dlist_head	free;
	dlist_head	running;
	dlist_head	done;
};

/* Milliseconds of a clock that nobody sets. */
int64
HttpNow(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

MemoryContext
HttpPoolContext(HttpPool *pool)
{
	return pool->context;
}

/*
 * libcurl resolves names in threads of its own, which inherit the signal mask
 * of the one that makes them.  PostgreSQL's handlers must run in the main
 * thread only, so every call that can make a thread is made with all signals
 * blocked; they stay pending for the microseconds that it takes.
 */
static void
BlockSignals(sigset_t *saved)
{
	sigset_t	all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, saved);
}

static void
RestoreSignals(const sigset_t *saved)
{
	sigprocmask(SIG_SETMASK, saved, NULL);
}

/*
 * Puts fd into the epoll set for the given events.  A descriptor number may be
 * known to us of which the kernel has dropped the registration, because libcurl
 * closed it and got the same number again, and the other way round: then the
 * other operation is the right one (epoll_ctl(2), ENOENT and EEXIST).
 */
static int
WatchSocket(HttpPool *pool, int fd, uint32 events, bool known)
{
	struct epoll_event event = {0};

	event.events = events;
	event.data.fd = fd;
	if (epoll_ctl(pool->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) == 0)
		return 0;
	if (known && errno == ENOENT)
		return epoll_ctl(pool->epoll_fd, EPOLL_CTL_ADD, fd, &event);
	if (!known && errno == EEXIST)
		return epoll_ctl(pool->epoll_fd, EPOLL_CTL_MOD, fd, &event);
	return -1;
}

/*
 * CURLMOPT_SOCKETFUNCTION.  "socket_data" is what curl_multi_assign() noted for
 * this socket: not NULL when it is in the epoll set.  Always 0: anything else
 * makes the whole multi handle useless, so a socket that cannot be watched fails
 * its transfer alone.
 */
static int
SocketCallback(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_data)
{
	HttpPool   *pool = arg;
	uint32		events = 0;
	char	   *private = NULL;
	int			error_number;

	if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
		events |= EPOLLIN;
	if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
		events |= EPOLLOUT;

	if (events == 0)
	{
		/* May be closed already: ENOENT and EBADF mean that it is gone. */
		(void) epoll_ctl(pool->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		if (what != CURL_POLL_REMOVE)
			curl_multi_assign(pool->multi, fd, NULL);
		return 0;
	}

	if (WatchSocket(pool, fd, events, socket_data != NULL) == 0)
	{
		curl_multi_assign(pool->multi, fd, pool);
		return 0;
	}

	/* libcurl's own handles have nothing noted in PRIVATE. */
	error_number = errno;
	if (curl_easy_getinfo(easy, CURLINFO_PRIVATE, &private) == CURLE_OK && private != NULL)
	{
		((HttpTransfer *) private)->socket_errno = error_number;
		pool->socket_failure = true;
	}
	return 0;
}

/* CURLMOPT_TIMERFUNCTION */
static int
TimerCallback(CURLM *multi, long timeout_ms, void *arg)
{
	HttpPool   *pool = arg;

	pool->timer = timeout_ms < 0 ? -1 : HttpNow() + timeout_ms;
	return 0;
}

/*
 * Frees every handle and descriptor of a pool, however far its creation came.
 * Connections that wait for somebody are closed without asking.
 */
static void
FreePool(void *arg)
{
	HttpPool   *pool = arg;
	slist_iter	iter;

	slist_foreach(iter, &pool->all)
	{
		HttpTransfer *transfer = slist_container(HttpTransfer, all_node, iter.cur);

		if (transfer->easy == NULL)
			continue;
		if (transfer->state == TRANSFER_RUNNING)
			curl_multi_remove_handle(pool->multi, transfer->easy);
		curl_easy_cleanup(transfer->easy);
		curl_slist_free_all(transfer->headers);
	}
	slist_init(&pool->all);
	if (pool->multi != NULL)
		curl_multi_cleanup(pool->multi);
	if (pool->epoll_fd >= 0)
		close(pool->epoll_fd);
	if (pool->epoll_acquired)
		ReleaseExternalFD();
}

/* libcurl's state of the process; children of fork must not share it. */
static void
InitializeCurlOnce(void)
{
	static bool initialized = false;
	CURLcode	code;
	sigset_t	saved;

	if (initialized)
		return;
	if (IsPostmasterEnvironment && !IsUnderPostmaster)
		elog(ERROR, "libcurl must not be initialized in the postmaster");
	BlockSignals(&saved);
	code = curl_global_init(CURL_GLOBAL_DEFAULT);
	RestoreSignals(&saved);
	if (code != CURLE_OK)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not initialize libcurl: %s", curl_easy_strerror(code))));
	initialized = true;
}

/* Sets the options of the multi handle; true when libcurl took them all. */
static bool
ConfigureMulti(HttpPool *pool)
{
	CURLM	   *multi = pool->multi;

	return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, SocketCallback) == CURLM_OK &&
		curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, pool) == CURLM_OK &&
		curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, TimerCallback) == CURLM_OK &&
		curl_multi_setopt(multi, CURLMOPT_TIMERDATA, pool) == CURLM_OK;
}

/* Not more connections than descriptors allow; said to those who asked for more. */
static int
AllowedConnections(int max_connections)
{
	int			allowed = Max(max_safe_fds / CONNECTIONS_OF_DESCRIPTORS, 1);

	if (max_connections <= allowed)
		return max_connections;
	ereport(max_connections > DEFAULT_MAX_CONNECTIONS ? LOG : DEBUG1,
			(errmsg("%d connections to collectors are used at most, not %d",
					allowed, max_connections),
			 errdetail("They take no more than a quarter of the files that a process may open."),
			 errhint("Raise max_files_per_process, or lower incsink.max_connections.")));
	return allowed;
}

static CURLMcode
SetConnectionsKept(HttpPool *pool)
{
	CURLMcode	code;

	code = curl_multi_setopt(pool->multi, CURLMOPT_MAXCONNECTS, (long) pool->places.max);
	if (code == CURLM_OK)
		code = curl_multi_setopt(pool->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
								 (long) pool->places.max);
	return code;
}

/*
 * See http.h.  The pool, and all that it allocates later, is in the memory
 * context that is current here.  Raises an ERROR when descriptors or memory are
 * short; what was made by then goes with the context.
 */
HttpPool *
HttpPoolCreate(int max_connections, int max_per_host)
{
	HttpPool   *pool;

	InitializeCurlOnce();

	pool = palloc0(sizeof(HttpPool));
	pool->context = CurrentMemoryContext;
	pool->epoll_fd = -1;
	pool->max_wanted = max_connections;
	HttpPlacesInit(&pool->places, AllowedConnections(max_connections), max_per_host);
	pool->timer = -1;
	pool->stall_check = -1;
	slist_init(&pool->all);
	dlist_init(&pool->free);
	dlist_init(&pool->running);
	dlist_init(&pool->done);
	pool->callback.func = FreePool;
	pool->callback.arg = pool;
	MemoryContextRegisterResetCallback(pool->context, &pool->callback);

	pool->epoll_acquired = AcquireExternalFD();
	if (pool->epoll_acquired)
		pool->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (pool->epoll_fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create a descriptor for waiting on HTTP connections: %m")));

	pool->multi = curl_multi_init();
	if (pool->multi == NULL || !ConfigureMulti(pool) || SetConnectionsKept(pool) != CURLM_OK)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not prepare libcurl for transfers")));
	return pool;
}

/* Gives a transfer without a request, new or used before. */
static HttpTransfer *
TakeTransfer(HttpPool *pool)
{
	HttpTransfer *transfer;
	CURLcode	code;

	if (!dlist_is_empty(&pool->free))
		return dlist_container(HttpTransfer, node, dlist_pop_head_node(&pool->free));

	transfer = MemoryContextAllocZero(pool->context, sizeof(HttpTransfer));
	transfer->pool = pool;
	code = HttpTransferOpen(transfer);
	if (code != CURLE_OK)
	{
		curl_easy_cleanup(transfer->easy);
		pfree(transfer);
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not prepare an HTTP request: %s", curl_easy_strerror(code))));
	}
	slist_push_head(&pool->all, &transfer->all_node);
	return transfer;
}

/* Takes a transfer, which is in no list, back for the next request. */
static void
ReleaseTransfer(HttpPool *pool, HttpTransfer *transfer)
{
	HttpTransferClear(transfer);
	transfer->state = TRANSFER_FREE;
	dlist_push_head(&pool->free, &transfer->node);
}

/*
 * Sees to it that the transfer is looked at in time: a stall is noticed at most
 * two eighths of its limit late.  One check serves all transfers.
 */
static void
ScheduleStallCheck(HttpPool *pool, HttpTransfer *transfer, int64 now)
{
	int64		at;

	if (transfer->stall_timeout <= 0)
		return;
	at = now + Max(transfer->stall_timeout / 8, STALL_CHECK_MIN);
	if (pool->stall_check < 0 || at < pool->stall_check)
		pool->stall_check = at;
}

/* Hands a transfer, which is in no list and has a place, to libcurl. */
static CURLMcode
RunTransfer(HttpPool *pool, HttpTransfer *transfer)
{
	sigset_t	saved;
	CURLMcode	code = CURLM_OUT_OF_MEMORY;

	if (INCSINK_POINT_ERRNO("http-add") == 0)
	{
		transfer->started = transfer->moved_at = HttpNow();
		BlockSignals(&saved);
		code = curl_multi_add_handle(pool->multi, transfer->easy);
		RestoreSignals(&saved);
	}
	if (code != CURLM_OK)
	{
		HttpPlaceRelease(&pool->places, &transfer->place);
		return code;
	}
	transfer->state = TRANSFER_RUNNING;
	dlist_push_tail(&pool->running, &transfer->node);
	ScheduleStallCheck(pool, transfer, transfer->started);
	return CURLM_OK;
}

/*
 * Moves a transfer, which is in no list, to the done ones.  At the point
 * "http-answer" an answer can be lost.
 */
static void
FinishTransfer(HttpPool *pool, HttpTransfer *transfer, CURLcode code, const char *reason)
{
	if (INCSINK_POINT_ERRNO("http-answer") != 0)
		reason = "injected error";
	HttpTransferJudge(transfer, code, reason);
	transfer->state = TRANSFER_DONE;
	dlist_push_tail(&pool->done, &transfer->node);
}

/* Takes a running transfer from libcurl; an unfinished one loses its connection. */
static void
DetachTransfer(HttpPool *pool, HttpTransfer *transfer)
{
	Assert(transfer->state == TRANSFER_RUNNING);
	curl_multi_remove_handle(pool->multi, transfer->easy);
	dlist_delete(&transfer->node);
	HttpPlaceRelease(&pool->places, &transfer->place);
}

/* Gives free places to those that wait for one. */
static void
RunQueued(HttpPool *pool)
{
	HttpPlace  *place;

	while ((place = HttpPlacesNext(&pool->places)) != NULL)
	{
		HttpTransfer *transfer = (HttpTransfer *) ((char *) place - offsetof(HttpTransfer, place));
		CURLMcode	code = RunTransfer(pool, transfer);

		if (code != CURLM_OK)
			FinishTransfer(pool, transfer, CURLE_FAILED_INIT, curl_multi_strerror(code));
	}
}

/* See http.h.  Connections that libcurl keeps beyond a lower limit go as they age. */
void
HttpPoolSetLimits(HttpPool *pool, int max_connections, int max_per_host)
{
	if (max_connections == pool->max_wanted && max_per_host == pool->places.max_per_host)
		return;
	pool->max_wanted = max_connections;
	HttpPlacesSetLimits(&pool->places, AllowedConnections(max_connections), max_per_host);
	(void) SetConnectionsKept(pool);
	RunQueued(pool);
}

/* Runs a transfer, or lets it wait for a place. */
static CURLMcode
RunOrQueue(HttpPool *pool, HttpTransfer *transfer)
{
	if (HttpPlaceTake(&pool->places, &transfer->place))
		return RunTransfer(pool, transfer);
	transfer->state = TRANSFER_QUEUED;
	HttpPlaceQueue(&pool->places, &transfer->place);
	return CURLM_OK;
}

/*
 * See http.h.  Everything that PostgreSQL allocates is allocated before a transfer is
 * changed, so that an ERROR loses none.
 */
HttpTransfer *
HttpPoolStart(HttpPool *pool, const HttpRequest *request, HttpDoneFunction done, void *arg)
{
	HttpTransfer *transfer;
	char	  **lines;
	HttpTarget	target;
	HttpPlace	place;
	CURLcode	code;
	CURLMcode	mcode = CURLM_OK;

	INCSINK_POINT("http-start");
	HttpCheckRequest(request, &target);
	HttpCheckTls(&request->tls);
	lines = HttpHeaderLines(request);
	HttpPlaceAsk(&pool->places, &place, target.host, request->probe);
	transfer = TakeTransfer(pool);

	transfer->place = place;
	transfer->secure = target.secure;
	transfer->done = done;
	transfer->arg = arg;
	code = HttpTransferPrepare(transfer, request, lines);
	pfree(lines);
	if (code == CURLE_OK)
		mcode = RunOrQueue(pool, transfer);
	if (code != CURLE_OK || mcode != CURLM_OK)
	{
		ReleaseTransfer(pool, transfer);
		RunQueued(pool);
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not start an HTTP request: %s",
						code != CURLE_OK ? curl_easy_strerror(code) : curl_multi_strerror(mcode))));
	}
	return transfer;
}

/*
 * See http.h.  A transfer whose done function has been called is gone, and must
 * not be given; from within that function it may be, to no effect.
 */
void
HttpPoolCancel(HttpPool *pool, HttpTransfer *transfer)
{
	Assert(transfer->pool == pool && transfer->state != TRANSFER_FREE);

	if (transfer->state == TRANSFER_CALLING)
		return;
	if (transfer->state == TRANSFER_RUNNING)
		DetachTransfer(pool, transfer);
	else if (transfer->state == TRANSFER_QUEUED)
		HttpPlaceUnqueue(&pool->places, &transfer->place);
	else
		dlist_delete(&transfer->node);
	ReleaseTransfer(pool, transfer);
	RunQueued(pool);
}

int
HttpPoolDescriptor(HttpPool *pool)
{
	return pool->epoll_fd;
}

/* See http.h.  Changes with every HttpPoolStart(), Cancel and Run: ask anew. */
long
HttpPoolTimeout(HttpPool *pool)
{
	int64		at = pool->timer;

	if (!dlist_is_empty(&pool->done))
		return 0;
	if (pool->stall_check >= 0 && (at < 0 || pool->stall_check < at))
		at = pool->stall_check;
	if (at < 0)
		return -1;
	return (long) Max(at - HttpNow(), 0);
}

/*
 * Tells libcurl of one ready socket.  Errors and hang-ups are given as readable
 * and writable, so that the call that fails tells the reason.
 */
static CURLMcode
ActOnSocket(HttpPool *pool, const struct epoll_event *event)
{
	int			mask = 0;
	int			nrunning;
	CURLMcode	code;

	if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		mask |= CURL_CSELECT_IN;
	if (event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		mask |= CURL_CSELECT_OUT;
	code = curl_multi_socket_action(pool->multi, event->data.fd, mask, &nrunning);
	if (code == CURLM_BAD_SOCKET)
	{
		/* Not libcurl's any more: it would stay ready for ever. */
		(void) epoll_ctl(pool->epoll_fd, EPOLL_CTL_DEL, event->data.fd, NULL);
		code = CURLM_OK;
	}
	return code;
}

static bool
TimerIsDue(HttpPool *pool)
{
	return pool->timer >= 0 && HttpNow() >= pool->timer;
}

/* The timer is libcurl's to set again: it is off while libcurl is told. */
static CURLMcode
ActOnTimer(HttpPool *pool)
{
	int			nrunning;

	pool->timer = -1;
	return curl_multi_socket_action(pool->multi, CURL_SOCKET_TIMEOUT, 0, &nrunning);
}

/*
 * Lets libcurl do what can be done without waiting; not all of it at once, for
 * the caller has other things to do than to fill the sockets of long bodies.
 */
static CURLMcode
DriveTransfers(HttpPool *pool)
{
	int64		until = HttpNow() + RUN_LIMIT_MS;
	CURLMcode	code = CURLM_OK;

	do
	{
		struct epoll_event events[EVENTS_AT_ONCE];
		int			nevents;
		int			i;

		nevents = epoll_wait(pool->epoll_fd, events, EVENTS_AT_ONCE, 0);
		for (i = 0; i < nevents && code == CURLM_OK; i++)
			code = ActOnSocket(pool, &events[i]);
		if (code == CURLM_OK && TimerIsDue(pool))
			code = ActOnTimer(pool);
		else if (nevents <= 0)
			break;
	} while (code == CURLM_OK && HttpNow() < until);
	return code;
}

/*
 * Takes all that libcurl has finished.  The list of messages is read to its end
 * before the first handle is removed, which would change it.
 */
static void
CollectFinished(HttpPool *pool)
{
	CURLMsg    *message;
	int			nleft;
	dlist_head	finished;
	dlist_mutable_iter iter;

	dlist_init(&finished);
	while ((message = curl_multi_info_read(pool->multi, &nleft)) != NULL)
	{
		HttpTransfer *transfer;
		char	   *private = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
		transfer = (HttpTransfer *) private;
		transfer->code = message->data.result;
		dlist_delete(&transfer->node);
		dlist_push_tail(&finished, &transfer->node);
	}

	dlist_foreach_modify(iter, &finished)
	{
		HttpTransfer *transfer = dlist_container(HttpTransfer, node, iter.cur);

		DetachTransfer(pool, transfer);
		FinishTransfer(pool, transfer, transfer->code, NULL);
	}
}

/* Ends transfers whose socket could not be watched. */
static void
EndUnwatched(HttpPool *pool)
{
	dlist_mutable_iter iter;

	if (!pool->socket_failure)
		return;
	pool->socket_failure = false;
	dlist_foreach_modify(iter, &pool->running)
	{
		HttpTransfer *transfer = dlist_container(HttpTransfer, node, iter.cur);
		char		reason[128];

		if (transfer->socket_errno == 0)
			continue;
		errno = transfer->socket_errno;
		snprintf(reason, sizeof(reason), "could not wait for the connection: %m");
		DetachTransfer(pool, transfer);
		FinishTransfer(pool, transfer, CURLE_ABORTED_BY_CALLBACK, reason);
	}
}

/* Ends transfers that have stalled, when it is time to look for them. */
static void
EndStalled(HttpPool *pool)
{
	int64		now = HttpNow();
	dlist_mutable_iter iter;

	if (pool->stall_check < 0 || now < pool->stall_check)
		return;
	pool->stall_check = -1;
	dlist_foreach_modify(iter, &pool->running)
	{
		HttpTransfer *transfer = dlist_container(HttpTransfer, node, iter.cur);
		char		reason[64];

		if (!HttpTransferStalled(transfer, now))
		{
			ScheduleStallCheck(pool, transfer, now);
			continue;
		}
		snprintf(reason, sizeof(reason), "no byte came or went for %d ms",
				 transfer->stall_timeout);
		DetachTransfer(pool, transfer);
		FinishTransfer(pool, transfer, CURLE_OPERATION_TIMEDOUT, reason);
	}
}

/*
 * Calls what is done.  A done function may start a request, which takes another
 * transfer, and cancel one, which may stand in this very list: so the head is
 * taken anew each time.
 */
static void
CallDone(HttpPool *pool)
{
	while (!dlist_is_empty(&pool->done))
	{
		HttpTransfer *transfer;

		transfer = dlist_container(HttpTransfer, node, dlist_pop_head_node(&pool->done));
		transfer->state = TRANSFER_CALLING;
		transfer->done(transfer->arg, &transfer->result);
		ReleaseTransfer(pool, transfer);
	}
}

/*
 * See http.h.  Raises an ERROR only when libcurl's state is broken (no memory):
 * then every transfer is lost and the pool good for nothing but to be freed.
 */
void
HttpPoolRun(HttpPool *pool)
{
	sigset_t	saved;
	CURLMcode	code;

	Assert(!pool->in_run);
	pool->in_run = true;

	BlockSignals(&saved);
	code = DriveTransfers(pool);
	RestoreSignals(&saved);
	if (code != CURLM_OK)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("HTTP transfers could not go on: %s", curl_multi_strerror(code))));

	CollectFinished(pool);
	EndUnwatched(pool);
	EndStalled(pool);
	RunQueued(pool);
	CallDone(pool);
	pool->in_run = false;
}
