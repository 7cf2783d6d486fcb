/*
 * json_time.c
 *		Dates and timestamps as JSON strings, in ISO 8601 as XML Schema has it.
 *
 * The years 1 to 9999 are written here, a timestamptz always in UTC; the rest
 * (BC, later years, the infinities) is left to the server's
 * JsonEncodeDateTime(), whose text for usual years is the same.  Neither looks
 * at DateStyle or TimeZone.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "datatype/timestamp.h"
#include "encode/json.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

/* Julian days of 0001-01-01 and of 10000-01-01. */
#define FIRST_JDATE		1721426
#define END_JDATE		5373485

/* Days between, and where they begin as PostgreSQL counts. */
#define FAST_DAYS		((uint32) (END_JDATE - FIRST_JDATE))
#define FIRST_DAY		(FIRST_JDATE - POSTGRES_EPOCH_JDATE)

static const char Digits[] =
"00010203040506070809"
"10111213141516171819"
"20212223242526272829"
"30313233343536373839"
"40414243444546474849"
"50515253545556575859"
"60616263646566676869"
"70717273747576777879"
"80818283848586878889"
"90919293949596979899";

/* Writes a number below 100, its zero included. */
static inline void
PutTwoDigits(char *at, uint32 number)
{
	memcpy(at, Digits + 2 * number, 2);
}

/*
 * PutDate
 *		Writes a day, counted from 0001-01-01.  Rows in the order of ingestion
 *		tend to have the day of the row before: it is remembered.
 */
static inline char *
PutDate(JsonColumn *column, char *at, uint32 day)
{
	if (unlikely(column->cached_day != day || column->cached_date[0] == '\0'))
	{
		int			year;
		int			month;
		int			mday;

		j2date((int) day + FIRST_JDATE, &year, &month, &mday);
		PutTwoDigits(column->cached_date, year / 100);
		PutTwoDigits(column->cached_date + 2, year % 100);
		column->cached_date[4] = '-';
		PutTwoDigits(column->cached_date + 5, month);
		column->cached_date[7] = '-';
		PutTwoDigits(column->cached_date + 8, mday);
		column->cached_day = day;
	}
	return JsonPut(at, column->cached_date, JSON_DATE_LENGTH);
}

/*
 * PutTimeOfDay
 *		Writes microseconds since midnight; a fraction without its last zeros,
 *		none if it is zero.
 */
static inline char *
PutTimeOfDay(char *at, uint64 usecs)
{
	uint32		seconds = (uint32) (usecs / USECS_PER_SEC);
	uint32		fraction = (uint32) (usecs % USECS_PER_SEC);

	PutTwoDigits(at, seconds / SECS_PER_HOUR);
	at[2] = ':';
	PutTwoDigits(at + 3, seconds / SECS_PER_MINUTE % MINS_PER_HOUR);
	at[5] = ':';
	PutTwoDigits(at + 6, seconds % SECS_PER_MINUTE);
	at += 8;
	if (fraction != 0)
	{
		at[0] = '.';
		PutTwoDigits(at + 1, fraction / 10000);
		PutTwoDigits(at + 3, fraction / 100 % 100);
		PutTwoDigits(at + 5, fraction % 100);
		at += 7;
		while (at[-1] == '0')
			at--;
	}
	return at;
}

/*
 * PutByServer
 *		Writes what is outside the usual years.
 */
static char *
PutByServer(char *at, Datum value, Oid type)
{
	char		text[MAXDATELEN + 1];
	const int	utc = 0;
	size_t		length;

	JsonEncodeDateTime(text, value, type, &utc);
	length = strlen(text);
	Assert(length + 2 <= JSON_TIME_ROOM);
	*at++ = '"';
	at = JsonPut(at, text, length);
	*at++ = '"';
	return at;
}

/*
 * PutTimestamp
 *		Writes date and time of a usual year behind the opening quote; returns
 *		NULL, having written nothing that counts, for any other.
 */
static inline char *
PutTimestamp(JsonColumn *column, char *at, Timestamp timestamp)
{
	uint64		usecs = (uint64) timestamp - (uint64) (FIRST_DAY * USECS_PER_DAY);

	if (unlikely(usecs >= FAST_DAYS * (uint64) USECS_PER_DAY))
		return NULL;
	*at++ = '"';
	at = PutDate(column, at, (uint32) (usecs / USECS_PER_DAY));
	*at++ = 'T';
	return PutTimeOfDay(at, usecs % USECS_PER_DAY);
}

/* A date: "2026-01-31". */
char *
JsonWriteDate(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	uint32		day = (uint32) DatumGetDateADT(value) - (uint32) FIRST_DAY;

	if (unlikely(day >= FAST_DAYS))
		return PutByServer(at, value, DATEOID);
	*at++ = '"';
	at = PutDate(column, at, day);
	*at++ = '"';
	return at;
}

/* A timestamp: "2026-01-31T23:59:59.5", without a zone, for it has none. */
char *
JsonWriteTimestamp(JsonColumn *column, Datum value, ByteBuffer *buffer,
				   char *at)
{
	char	   *end = PutTimestamp(column, at, DatumGetTimestamp(value));

	if (unlikely(end == NULL))
		return PutByServer(at, value, TIMESTAMPOID);
	*end++ = '"';
	return end;
}

/* A timestamptz: "2026-01-31T23:59:59.5+00:00", whatever the zone of the session. */
char *
JsonWriteTimestampTz(JsonColumn *column, Datum value, ByteBuffer *buffer,
					 char *at)
{
	char	   *end = PutTimestamp(column, at, DatumGetTimestampTz(value));

	if (unlikely(end == NULL))
		return PutByServer(at, value, TIMESTAMPTZOID);
	return JsonPut(end, "+00:00\"", 7);
}
