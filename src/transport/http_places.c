/*
 * http_places.c
 *		Which of the requests that wait may run next.
 *
 * A host stands among the ready ones of a lane while something is queued there and the
 * host itself has a place.  One that turns out to be full is taken out, and comes back
 * when a place of it is given back: so nothing is ever searched.
 */
#include "postgres.h"

#include "transport/http_places.h"

#define FIRST_HOSTS 16

void
HttpPlacesInit(HttpPlaces *places, int max, int max_per_host)
{
	HASHCTL		control = {.keysize = HTTP_HOST_LENGTH,.entrysize = sizeof(HttpHost),
	.hcxt = CurrentMemoryContext};

	memset(places, 0, sizeof(*places));
	places->hosts = hash_create("incsink HTTP hosts", FIRST_HOSTS, &control,
								HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	places->max = max;
	places->max_per_host = max_per_host;
	for (HttpLane lane = 0; lane < LANES; lane++)
		dlist_init(&places->ready[lane]);
}

static HttpLane
LaneOf(const HttpPlace *place)
{
	return place->probe ? LANE_PROBE : LANE_NORMAL;
}

/* Probes have half of the places, one at least. */
static bool
HasPlace(const HttpCount *count, int max, HttpLane lane)
{
	return count->running < max && (lane == LANE_NORMAL || count->probes < Max(max / 2, 1));
}

static void
Count(HttpPlaces *places, HttpPlace *place, int change)
{
	HttpCount  *counts[] = {&places->count, &place->host->count};

	for (int i = 0; i < lengthof(counts); i++)
	{
		counts[i]->running += change;
		if (place->probe)
			counts[i]->probes += change;
	}
}

static void
SetReady(HttpPlaces *places, HttpLane lane, HttpQueue *queue, bool ready)
{
	if (ready == queue->ready)
		return;
	if (ready)
		dlist_push_tail(&places->ready[lane], &queue->node);
	else
		dlist_delete(&queue->node);
	queue->ready = ready;
}

static void
CheckReady(HttpPlaces *places, HttpHost *host, HttpLane lane)
{
	HttpQueue  *queue = &host->queues[lane];

	SetReady(places, lane, queue, !dlist_is_empty(&queue->places) &&
			 HasPlace(&host->count, places->max_per_host, lane));
}

/* Hosts that nobody wants any more are forgotten. */
static void
LeaveHost(HttpPlaces *places, HttpPlace *place)
{
	HttpHost   *host = place->host;
	bool		wanted = host->count.running > 0;

	place->host = NULL;
	for (HttpLane lane = 0; lane < LANES; lane++)
	{
		CheckReady(places, host, lane);
		wanted = wanted || !dlist_is_empty(&host->queues[lane].places);
	}
	if (!wanted)
		(void) hash_search(places->hosts, host->name, HASH_REMOVE, NULL);
}

void
HttpPlaceAsk(HttpPlaces *places, HttpPlace *place, const char *name, bool probe)
{
	HttpHost   *host;
	bool		found;

	host = hash_search(places->hosts, name, HASH_ENTER, &found);
	place->host = host;
	place->probe = probe;
	if (found)
		return;
	memset(&host->count, 0, sizeof(HttpCount));
	for (HttpLane lane = 0; lane < LANES; lane++)
	{
		host->queues[lane].host = host;
		host->queues[lane].ready = false;
		dlist_init(&host->queues[lane].places);
	}
}

bool
HttpPlaceTake(HttpPlaces *places, HttpPlace *place)
{
	HttpLane	lane = LaneOf(place);

	if (!dlist_is_empty(&places->ready[lane]) ||
		!dlist_is_empty(&place->host->queues[lane].places) ||
		!HasPlace(&places->count, places->max, lane) ||
		!HasPlace(&place->host->count, places->max_per_host, lane))
		return false;
	Count(places, place, 1);
	return true;
}

void
HttpPlaceQueue(HttpPlaces *places, HttpPlace *place)
{
	HttpLane	lane = LaneOf(place);

	dlist_push_tail(&place->host->queues[lane].places, &place->node);
	CheckReady(places, place->host, lane);
}

/* The next one of a lane, with its place; its host goes behind the others. */
static HttpPlace *
NextOfLane(HttpPlaces *places, HttpLane lane)
{
	while (!dlist_is_empty(&places->ready[lane]) && HasPlace(&places->count, places->max, lane))
	{
		HttpQueue  *queue = dlist_container(HttpQueue, node, dlist_head_node(&places->ready[lane]));
		HttpPlace  *place;

		SetReady(places, lane, queue, false);
		if (!HasPlace(&queue->host->count, places->max_per_host, lane))
			continue;
		place = dlist_container(HttpPlace, node, dlist_pop_head_node(&queue->places));
		Count(places, place, 1);
		CheckReady(places, queue->host, lane);
		return place;
	}
	return NULL;
}

void
HttpPlacesSetLimits(HttpPlaces *places, int max, int max_per_host)
{
	HASH_SEQ_STATUS status;
	HttpHost   *host;

	places->max = max;
	places->max_per_host = max_per_host;
	hash_seq_init(&status, places->hosts);
	while ((host = hash_seq_search(&status)) != NULL)
		for (HttpLane lane = 0; lane < LANES; lane++)
			CheckReady(places, host, lane);
}

/* The lanes take turns, so that neither starves the other. */
HttpPlace *
HttpPlacesNext(HttpPlaces *places)
{
	HttpPlace  *place;

	places->turn = places->turn == LANE_NORMAL ? LANE_PROBE : LANE_NORMAL;
	place = NextOfLane(places, places->turn);
	return place != NULL ? place :
		NextOfLane(places, places->turn == LANE_NORMAL ? LANE_PROBE : LANE_NORMAL);
}

void
HttpPlaceRelease(HttpPlaces *places, HttpPlace *place)
{
	Count(places, place, -1);
	LeaveHost(places, place);
}

void
HttpPlaceUnqueue(HttpPlaces *places, HttpPlace *place)
{
	dlist_delete(&place->node);
	LeaveHost(places, place);
}
