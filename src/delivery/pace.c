/*
 * pace.c
 *		Rate limits of sinks.
 */
#include "postgres.h"

#include "common/hash.h"
#include "delivery/pace.h"
#include "utils/timestamp.h"

/* A batch costs no more than that, or than flush_interval, which asks for larger ones. */
#define LONGEST_COST_MS INT64CONST(1000)

/* How long the one whose turn it is may keep the others waiting. */
#define TURN_MS 100

static HTAB *paces = NULL;

Pace *
PaceAcquire(int64 sink_id)
{
	Pace	   *pace;
	bool		found;

	if (paces == NULL)
		paces = MakeHash("incsink paces", sizeof(int64), sizeof(Pace));
	pace = hash_search(paces, &sink_id, HASH_ENTER, &found);
	if (!found)
	{
		memset(pace, 0, sizeof(Pace));
		pace->sink_id = sink_id;
	}
	pace->users++;
	return pace;
}

void
PaceRelease(Pace *pace)
{
	if (--pace->users == 0)
		(void) hash_search(paces, &pace->sink_id, HASH_REMOVE, NULL);
}

/* What may go in "milliseconds" at a rate a second: at least one. */
static int64
AmountOf(int64 rate, int64 milliseconds)
{
	return Max(1, (int64) Min((double) rate * milliseconds / 1000, (double) PG_INT64_MAX / 2));
}

void
PaceLimitBatch(const SinkOptions *options, RangeLimits *limits)
{
	int64		longest = Max(LONGEST_COST_MS, options->flush_interval);

	if (options->max_rows_per_second > 0)
		limits->rows = Min(limits->rows, AmountOf(options->max_rows_per_second, longest));
	if (options->max_bytes_per_second > 0)
		limits->bytes = Min(limits->bytes, AmountOf(options->max_bytes_per_second, longest));
}

/* What was booked at other rates than those of now is forgiven. */
static void
TakeRates(Pace *pace, const SinkOptions *options, TimestampTz now)
{
	if (pace->max_rows_per_second == options->max_rows_per_second &&
		pace->max_bytes_per_second == options->max_bytes_per_second)
		return;
	pace->max_rows_per_second = options->max_rows_per_second;
	pace->max_bytes_per_second = options->max_bytes_per_second;
	pace->free_at = Min(pace->free_at, now);
	pace->next = 0;
}

/* Has the delivery to let another one go first? */
static bool
IsPassedOver(const Pace *pace, int64 partition_id, TimestampTz cut_at, TimestampTz now)
{
	return pace->next != 0 && pace->next != partition_id && cut_at >= pace->next_cut_at &&
		now < TimestampTzPlusMilliseconds(pace->free_at, TURN_MS);
}

TimestampTz
PaceAsk(Pace *pace, const SinkOptions *options, int64 partition_id, TimestampTz cut_at,
		TimestampTz now)
{
	if (options->max_rows_per_second == 0 && options->max_bytes_per_second == 0)
		return 0;
	TakeRates(pace, options, now);
	if (IsPassedOver(pace, partition_id, cut_at, now))
		return TimestampTzPlusMilliseconds(pace->free_at, TURN_MS);
	if (pace->free_at <= now)
		return 0;
	pace->next = partition_id;
	pace->next_cut_at = cut_at;
	return pace->free_at;
}

void
PaceBook(Pace *pace, const SinkOptions *options, int64 rows, int64 bytes, TimestampTz now)
{
	double		seconds = 0;

	TakeRates(pace, options, now);
	if (options->max_rows_per_second > 0)
		seconds = (double) rows / options->max_rows_per_second;
	if (options->max_bytes_per_second > 0)
		seconds = Max(seconds, (double) bytes / options->max_bytes_per_second);
	if (pace->deliveries > pace->users)
		seconds *= (double) pace->deliveries / pace->users;
	pace->free_at = Max(pace->free_at, now) + (TimestampTz) (seconds * USECS_PER_SEC);
	pace->next = 0;
}
