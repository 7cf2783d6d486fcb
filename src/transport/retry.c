/*
 * retry.c
 *		When to try again: a ladder with full jitter, and Retry-After.
 */
#include "postgres.h"

#include "common/int.h"
#include "datatype/timestamp.h"
#include "transport/retry.h"
#include "utils/datetime.h"

/* A two-digit year is at most this far in the future (RFC 9110 section 5.6.7). */
#define TWO_DIGIT_YEARS_AHEAD 50

/* What the three forms of an HTTP date consist of. */
typedef struct HttpDate
{
	int			year;
	bool		two_digits;		/* the year's century is not known yet */
	int			month;			/* 1 to 12 */
	int			day;
	int			hour;
	int			minute;
	int			second;
} HttpDate;

static const char *const WeekdayNames[] = {
	"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
};

static const char *const MonthNames[] = {
	"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"
};

/* See retry.h.  No value of the arguments overflows. */
int64
RetryDelay(int failures, int64 initial_ms, int64 max_ms, double fraction)
{
	int64		cap = Max(initial_ms, 1);
	int64		delay;
	int			i;

	max_ms = Max(max_ms, 1);
	for (i = 1; i < failures && cap < max_ms; i++)
		cap = cap > max_ms / 2 ? max_ms : cap * 2;
	cap = Min(cap, max_ms);

	/* The comparison is false for NaN, too. */
	if (!(fraction > 0.0))
		return 1;
	if (fraction >= 1.0)
		return cap;
	delay = (int64) (fraction * (double) cap) + 1;
	return Min(delay, cap);
}

/* Moves past one character, if it is the next. */
static bool
TakeChar(const char **at, char c)
{
	if (**at != c)
		return false;
	(*at)++;
	return true;
}

/* Moves past exactly ndigits digits. */
static bool
TakeNumber(const char **at, int ndigits, int *number)
{
	int			i;

	*number = 0;
	for (i = 0; i < ndigits; i++)
	{
		if (**at < '0' || **at > '9')
			return false;
		*number = *number * 10 + (*(*at)++ - '0');
	}
	return true;
}

/* asctime's day of the month: two digits, or a blank and one. */
static bool
TakePaddedDay(const char **at, int *day)
{
	if (TakeChar(at, ' '))
		return TakeNumber(at, 1, day);
	return TakeNumber(at, 2, day);
}

static bool
TakeMonth(const char **at, int *month)
{
	int			i;

	for (i = 0; i < lengthof(MonthNames); i++)
	{
		if (pg_strncasecmp(*at, MonthNames[i], 3) == 0)
		{
			*at += 3;
			*month = i + 1;
			return true;
		}
	}
	return false;
}

static bool
TakeTime(const char **at, HttpDate *date)
{
	return TakeNumber(at, 2, &date->hour) && TakeChar(at, ':') &&
		TakeNumber(at, 2, &date->minute) && TakeChar(at, ':') &&
		TakeNumber(at, 2, &date->second);
}

/*
 * Moves past the name of a weekday, whole (RFC 850's) or its first three
 * letters.  Whether it fits the date is nobody's concern.
 */
static bool
TakeWeekday(const char **at, bool *whole)
{
	int			i;

	for (i = 0; i < lengthof(WeekdayNames); i++)
	{
		size_t		length = strlen(WeekdayNames[i]);

		*whole = pg_strncasecmp(*at, WeekdayNames[i], length) == 0;
		if (!*whole && pg_strncasecmp(*at, WeekdayNames[i], 3) != 0)
			continue;
		*at += *whole ? length : 3;
		return true;
	}
	return false;
}

static bool
IsGmtAndEnd(const char *at)
{
	return pg_strcasecmp(at, " GMT") == 0;
}

/* What follows the weekday in "Sun, 06 Nov 1994 08:49:37 GMT" */
static bool
ParseImfFixdate(const char *at, HttpDate *date)
{
	return TakeChar(&at, ',') && TakeChar(&at, ' ') &&
		TakeNumber(&at, 2, &date->day) && TakeChar(&at, ' ') &&
		TakeMonth(&at, &date->month) && TakeChar(&at, ' ') &&
		TakeNumber(&at, 4, &date->year) && TakeChar(&at, ' ') &&
		TakeTime(&at, date) && IsGmtAndEnd(at);
}

/* What follows the weekday in "Sunday, 06-Nov-94 08:49:37 GMT" */
static bool
ParseRfc850Date(const char *at, HttpDate *date)
{
	date->two_digits = true;
	return TakeChar(&at, ',') && TakeChar(&at, ' ') &&
		TakeNumber(&at, 2, &date->day) && TakeChar(&at, '-') &&
		TakeMonth(&at, &date->month) && TakeChar(&at, '-') &&
		TakeNumber(&at, 2, &date->year) && TakeChar(&at, ' ') &&
		TakeTime(&at, date) && IsGmtAndEnd(at);
}

/* What follows the weekday in "Sun Nov  6 08:49:37 1994" */
static bool
ParseAsctimeDate(const char *at, HttpDate *date)
{
	return TakeChar(&at, ' ') &&
		TakeMonth(&at, &date->month) && TakeChar(&at, ' ') &&
		TakePaddedDay(&at, &date->day) && TakeChar(&at, ' ') &&
		TakeTime(&at, date) && TakeChar(&at, ' ') &&
		TakeNumber(&at, 4, &date->year) && *at == '\0';
}

static bool
ParseHttpDate(const char *text, HttpDate *date)
{
	bool		whole;

	memset(date, 0, sizeof(HttpDate));
	if (!TakeWeekday(&text, &whole))
		return false;
	if (whole)
		return ParseRfc850Date(text, date);
	if (*text == ',')
		return ParseImfFixdate(text, date);
	return ParseAsctimeDate(text, date);
}

/*
 * The time of a date, "years" earlier.  Days that a month does not have run over
 * into the next one.
 */
static TimestampTz
TimeOfHttpDate(const HttpDate *date, int years)
{
	int64		days = date2j(date->year - years, date->month, date->day) - POSTGRES_EPOCH_JDATE;

	return days * USECS_PER_DAY + date->hour * USECS_PER_HOUR +
		date->minute * USECS_PER_MINUTE + date->second * USECS_PER_SEC;
}

/*
 * The century of a two-digit year: the latest in which the date is not more than
 * 50 years in the future.
 */
static void
CompleteYear(HttpDate *date, TimestampTz now)
{
	int			now_year;
	int			month;
	int			day;

	j2date((int) (now / USECS_PER_DAY) + POSTGRES_EPOCH_JDATE, &now_year, &month, &day);
	date->year += now_year / 100 * 100 + 100;
	while (date->year > TWO_DIGIT_YEARS_AHEAD &&
		   TimeOfHttpDate(date, TWO_DIGIT_YEARS_AHEAD) > now)
		date->year -= 100;
}

/* Is there such a time?  Second 60 is a leap second. */
static bool
HttpDateExists(const HttpDate *date)
{
	return date->year >= 1 && date->day >= 1 &&
		date->day <= day_tab[isleap(date->year)][date->month - 1] &&
		date->hour < 24 && date->minute < 60 && date->second <= 60;
}

/* Milliseconds of a number of seconds, which is all digits; at most max_ms. */
static int64
DelayOfSeconds(const char *digits, size_t ndigits, int64 max_ms)
{
	int64		ms = 0;
	size_t		i;

	for (i = 0; i < ndigits; i++)
	{
		if (pg_mul_s64_overflow(ms, 10, &ms) ||
			pg_add_s64_overflow(ms, (digits[i] - '0') * INT64CONST(1000), &ms))
			return max_ms;
	}
	return Min(ms, max_ms);
}

/* Milliseconds until an HTTP date; 0 for what is none, or past. */
static int64
DelayOfHttpDate(const char *text, TimestampTz now, int64 max_ms)
{
	HttpDate	date;
	TimestampTz until;
	int64		delay;

	if (TIMESTAMP_NOT_FINITE(now) || !ParseHttpDate(text, &date))
		return 0;
	if (date.two_digits)
		CompleteYear(&date, now);
	if (!HttpDateExists(&date))
		return 0;
	until = TimeOfHttpDate(&date, 0);
	if (until <= now || pg_sub_s64_overflow(until, now, &delay))
		return 0;
	delay = delay / 1000 + (delay % 1000 != 0);
	return Min(delay, max_ms);
}

/* See retry.h.  Raises nothing. */
int64
RetryAfterDelay(const char *header, TimestampTz now, int64 max_ms)
{
	char		text[64];
	size_t		length;

	if (header == NULL || max_ms <= 0)
		return 0;
	header += strspn(header, " \t");
	length = strlen(header);
	while (length > 0 && (header[length - 1] == ' ' || header[length - 1] == '\t'))
		length--;

	if (length == 0)
		return 0;
	if (strspn(header, "0123456789") >= length)
		return DelayOfSeconds(header, length, max_ms);

	/* No date is as long as this. */
	if (length >= sizeof(text))
		return 0;
	memcpy(text, header, length);
	text[length] = '\0';
	return DelayOfHttpDate(text, now, max_ms);
}
