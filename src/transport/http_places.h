/*
 * http_places.h
 *		Which of the requests that wait may run next.
 *
 * A place is a request under way.  There are so many in all and so many for each host
 * and port; requests of a delivery that has failed (probes) have half of either, so
 * that many sick receivers cannot keep healthy ones out.  Each host has queues of its
 * own, served in turn: one that is full delays no other.
 */
#ifndef INCSINK_HTTP_PLACES_H
#define INCSINK_HTTP_PLACES_H

#include "postgres.h"

#include "lib/ilist.h"
#include "utils/hsearch.h"

#define HTTP_HOST_LENGTH 272	/* a name of 255 bytes, ":" and a port */

typedef struct HttpCount
{
	int			running;
	int			probes;			/* among them */
} HttpCount;

/* Probes have a queue, and a turn, of their own. */
typedef enum HttpLane
{
	LANE_NORMAL,
	LANE_PROBE,
	LANES
} HttpLane;

typedef struct HttpHost HttpHost;

typedef struct HttpQueue
{
	HttpHost   *host;
	dlist_head	places;
	dlist_node	node;			/* in ready[] */
	bool		ready;			/* stands there */
} HttpQueue;

struct HttpHost
{
	char		name[HTTP_HOST_LENGTH]; /* host:port, the key */
	HttpCount	count;
	HttpQueue	queues[LANES];
};

typedef struct HttpPlaces
{
	HTAB	   *hosts;
	int			max;
	int			max_per_host;
	HttpCount	count;
	dlist_head	ready[LANES];	/* queues where something waits, of hosts that
								 * have a place */
	HttpLane	turn;
} HttpPlaces;

/* One request; it belongs to whoever asks for a place. */
typedef struct HttpPlace
{
	dlist_node	node;			/* in a queue of its host */
	HttpHost   *host;
	bool		probe;
} HttpPlace;

extern void HttpPlacesInit(HttpPlaces *places, int max, int max_per_host);

/* Other limits from now on; ask HttpPlacesNext() then. */
extern void HttpPlacesSetLimits(HttpPlaces *places, int max, int max_per_host);

/* Names the host of a request that has no place yet. */
extern void HttpPlaceAsk(HttpPlaces *places, HttpPlace *place, const char *host, bool probe);

/* Takes a place at once, unless others wait or there is none. */
extern bool HttpPlaceTake(HttpPlaces *places, HttpPlace *place);

/* Waits for HttpPlacesNext(). */
extern void HttpPlaceQueue(HttpPlaces *places, HttpPlace *place);

/* The next one that has a place now, NULL if none has. */
extern HttpPlace *HttpPlacesNext(HttpPlaces *places);

/* Gives a place back; or gives up waiting. */
extern void HttpPlaceRelease(HttpPlaces *places, HttpPlace *place);
extern void HttpPlaceUnqueue(HttpPlaces *places, HttpPlace *place);

#endif							/* INCSINK_HTTP_PLACES_H */
