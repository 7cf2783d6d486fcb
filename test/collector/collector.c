/*
 * collector.c
 *		A small HTTP collector with a ledger: the receiver of the tests, the
 *		demonstration and the benchmarks.
 *
 *	collector --dir DIR [options]		serve, on loopback only
 *	collector control PORT LINE...		give the collector on PORT its orders
 *	collector get PORT PATH				print the answer of GET PATH
 *
 * It does what the receiver's contract asks for: the body of a batch and a line
 * of the ledger are written before 2xx is answered, and a batch that the ledger
 * has is answered 2xx without being stored again.  The ledger is one append-only
 * file, DIR/ledger.tsv; killed at any moment, the collector goes on from it.
 *
 * Options
 *	--dir DIR			where the ledger and the bodies are (bodies/NNNNNNNN)
 *	--port N			port to listen on; 0, the default, takes a free one
 *	--port-file FILE	the port is written there once it listens
 *	--policy id			a known Idempotency-Key is a duplicate (default)
 *	--policy until		an Incsink-Until not above the highest one of its
 *						(sink, epoch, dataset, source, destination) is a
 *						duplicate; after Incsink-Reset, an earlier epoch of that
 *						delivery is stale: 2xx, not stored
 *	--policy none		everything is stored
 *	--discard			nothing is stored and no ledger kept; bytes and rows are
 *						counted (benchmarks)
 *	--fsync				body and ledger are fsynced before the answer
 *	--max-body BYTES	larger bodies are answered 413 (default 1 GiB)
 *	--with-parent		ends when the process that started it ends
 *
 * Requests: POST and PUT to any path that does not start with "/_" are batches.
 *	GET /_count			name and number, one a line
 *	POST /_control		orders, one a line; refused as a whole with 400 if one is
 *						malformed
 *
 * Orders
 *	reset				forgets all rules (what is held stays held)
 *	release [when...] [status=N]
 *						answers every held request that fits, with N or what was
 *						meant
 *	drop [when...]		closes the connection of every held request that fits
 *	[when...] ACTION	a rule.  Rules are tried in the order they were given; the
 *						first that matches and is not used up is taken, once a
 *						request, when its headers are complete.
 *
 * When
 *	path=PREFIX sink=S dataset=S source=S destination=S epoch=S until=S
 *	snapshot=S reset=S	the path starts so, the header has this value; all that are
 *						given must fit
 *	larger=BYTES contains=TEXT
 *						the body is, or has that; only where no rule without such
 *						a condition was taken
 *	skip=N				leaves the first N that match alone
 *	times=N|always		how often it is taken (default 1)
 *
 * Action: any of
 *	store				the batch goes through the ledger first; without it, a
 *						rule stores only if its answer is a 2xx and nothing below
 *						says otherwise
 *	nostore				the ledger never hears of it
 *	status=N			the answer's status (default 200)
 *	header="N: V"		one more header line; may be repeated
 *	body="TEXT"			the answer's body; \n \r \t \\ \" \xHH are understood
 *	fill=N				instead, a body of N bytes
 *	location=URL		short for header="Location: URL"
 *	raw="TEXT"			these bytes instead of a whole answer, then close
 *	cut=N				only the first N bytes of the answer, then close
 *	delay=MS			waits before answering
 *	trickle=MS			one byte of the answer every MS milliseconds
 *	chunked				the answer's body is sent chunked
 *	hang				no answer until "release"
 *	hang=headers		does not even read the body
 *	close				closes after the body was read, without an answer
 *	close=headers		closes when the headers are complete
 *
 * So "store hang" is the batch that is stored and whose answer is withheld, and
 * "store status=500" the one that is stored and denied.
 *
 * Ledger: tab-separated, first line the names of the columns.  Values are as
 * received, with tab, newline, backslash and other control characters as \xHH;
 * a header that did not come is "-".
 *	outcome is stored, duplicate, stale, or refused (a rule kept it out)
 *	answer is the status, "hang" or "close"
 *	lines is the number of lines of the body, rows the header
 *	digest is ok, bad (Content-Digest does not fit the body), or "-"
 *	body is the file in bodies/, "-" unless stored
 *
 * One thread, one epoll set, no dependency but libc.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_HEAD	(64 * 1024)
#define READ_SIZE	(256 * 1024)
#define MAX_EVENTS	256

#define Lengthof(array) (sizeof(array) / sizeof((array)[0]))

/* ------------------------------------------------------------ small things */

static void __attribute__((noreturn, format(printf, 1, 2)))
Die(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	fputs("collector: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static void *
Allocate(void *old, size_t size)
{
	void	   *result = realloc(old, size > 0 ? size : 1);

	if (result == NULL)
		Die("out of memory");
	return result;
}

static char *
Duplicate(const char *text, size_t length)
{
	char	   *result = Allocate(NULL, length + 1);

	memcpy(result, text, length);
	result[length] = '\0';
	return result;
}

/* Growing bytes; zero-initialized is empty.  Always followed by a NUL byte. */
typedef struct Buffer
{
	char	   *data;
	size_t		length;
	size_t		capacity;
} Buffer;

static void
BufferReserve(Buffer *buffer, size_t more)
{
	size_t		needed = buffer->length + more + 1;

	if (needed <= buffer->capacity)
		return;
	if (needed < buffer->capacity * 2)
		needed = buffer->capacity * 2;
	buffer->data = Allocate(buffer->data, needed);
	buffer->capacity = needed;
}

static void
BufferAppend(Buffer *buffer, const void *bytes, size_t length)
{
	BufferReserve(buffer, length);
	if (length > 0)
		memcpy(buffer->data + buffer->length, bytes, length);
	buffer->length += length;
	buffer->data[buffer->length] = '\0';
}

static void __attribute__((format(printf, 2, 3)))
BufferPrint(Buffer *buffer, const char *format,...)
{
	va_list		args;
	int			length;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	BufferReserve(buffer, length);
	va_start(args, format);
	vsnprintf(buffer->data + buffer->length, length + 1, format, args);
	va_end(args);
	buffer->length += length;
}

static void
BufferFree(Buffer *buffer)
{
	free(buffer->data);
	memset(buffer, 0, sizeof(*buffer));
}

static int64_t
Now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A whole non-negative decimal number, or -1. */
static int64_t
ParseNumber(const char *text)
{
	char	   *end;
	long long	value;

	if (!isdigit((unsigned char) *text))
		return -1;
	errno = 0;
	value = strtoll(text, &end, 10);
	return (errno != 0 || *end != '\0') ? -1 : value;
}

static uint64_t
CountLines(const char *bytes, size_t length)
{
	const char *end = bytes + length;
	uint64_t	lines = 0;

	while (bytes < end && (bytes = memchr(bytes, '\n', end - bytes)) != NULL)
	{
		lines++;
		bytes++;
	}
	return lines;
}

/* -------------------------------------------------- SHA-256 (FIPS 180-4, 6.2) */

typedef struct Sha256
{
	uint32_t	state[8];
	uint64_t	length;
	unsigned char block[64];
} Sha256;

static uint32_t sha256_constants[64];

/*
 * The constants of FIPS 180-4 section 4.2.2: the first 32 bits of the
 * fractional parts of the cube roots of the first 64 primes; the initial hash of
 * 5.3.3 has the square roots of the first eight.  Computed in integers: the
 * root of prime * 2^(32 * degree), of which the low 32 bits are the fraction.
 */
static uint32_t
RootFraction(uint32_t prime, int degree)
{
	uint64_t	low = 0;
	uint64_t	high = (uint64_t) 32 << 32; /* above both roots of 311 */

	while (high - low > 1)
	{
		uint64_t	middle = low + (high - low) / 2;
		long double ratio = (long double) middle / 4294967296.0L;
		long double power = degree == 2 ? ratio * ratio : ratio * ratio * ratio;

		if (power <= prime)
			low = middle;
		else
			high = middle;
	}
	return (uint32_t) low;
}

static void
Sha256Init(Sha256 *hash)
{
	static uint32_t initial[8];
	static bool ready = false;

	if (!ready)
	{
		int			found = 0;

		for (uint32_t number = 2; found < 64; number++)
		{
			bool		prime = true;

			for (uint32_t divisor = 2; divisor * divisor <= number; divisor++)
				prime = prime && number % divisor != 0;
			if (!prime)
				continue;
			if (found < 8)
				initial[found] = RootFraction(number, 2);
			sha256_constants[found++] = RootFraction(number, 3);
		}
		ready = true;
	}
	memcpy(hash->state, initial, sizeof(initial));
	hash->length = 0;
}

static inline uint32_t
Rotate(uint32_t word, int bits)
{
	return (word >> bits) | (word << (32 - bits));
}

static void
Sha256Block(Sha256 *hash, const unsigned char *block)
{
	uint32_t	schedule[64];
	uint32_t	work[8];

	for (int i = 0; i < 16; i++)
		schedule[i] = (uint32_t) block[i * 4] << 24 | (uint32_t) block[i * 4 + 1] << 16 |
			(uint32_t) block[i * 4 + 2] << 8 | block[i * 4 + 3];
	for (int i = 16; i < 64; i++)
	{
		uint32_t	early = schedule[i - 15];
		uint32_t	late = schedule[i - 2];

		schedule[i] = schedule[i - 16] + schedule[i - 7] +
			(Rotate(early, 7) ^ Rotate(early, 18) ^ (early >> 3)) +
			(Rotate(late, 17) ^ Rotate(late, 19) ^ (late >> 10));
	}
	memcpy(work, hash->state, sizeof(work));

	/*
	 * FIPS 180-4 renames the eight words in each round; here the index turns
	 * instead, and unrolled eight times it is a constant.
	 */
#define WORD(letter) work[((letter) - i) & 7]
#pragma GCC unroll 8
	for (int i = 0; i < 64; i++)
	{
		uint32_t	a = WORD(0);
		uint32_t	e = WORD(4);
		uint32_t	first = WORD(7) + (Rotate(e, 6) ^ Rotate(e, 11) ^ Rotate(e, 25)) +
			((e & WORD(5)) ^ (~e & WORD(6))) + sha256_constants[i] + schedule[i];
		uint32_t	second = (Rotate(a, 2) ^ Rotate(a, 13) ^ Rotate(a, 22)) +
			((a & WORD(1)) ^ (a & WORD(2)) ^ (WORD(1) & WORD(2)));

		WORD(3) += first;
		WORD(7) = first + second;
	}
#undef WORD
	for (int i = 0; i < 8; i++)
		hash->state[i] += work[i];
}

static void
Sha256Update(Sha256 *hash, const void *bytes, size_t length)
{
	const unsigned char *next = bytes;

	while (length > 0)
	{
		size_t		used = hash->length % 64;
		size_t		part = 64 - used < length ? 64 - used : length;

		if (used == 0 && part == 64)
			Sha256Block(hash, next);
		else
		{
			memcpy(hash->block + used, next, part);
			if (used + part == 64)
				Sha256Block(hash, hash->block);
		}
		hash->length += part;
		next += part;
		length -= part;
	}
}

static void
Sha256Final(Sha256 *hash, unsigned char digest[32])
{
	static const unsigned char padding[64] = {0x80};
	uint64_t	bits = hash->length * 8;
	unsigned char tail[8];

	Sha256Update(hash, padding, 1 + (119 - hash->length % 64) % 64);
	for (int i = 0; i < 8; i++)
		tail[i] = bits >> (56 - i * 8);
	Sha256Update(hash, tail, 8);
	for (int i = 0; i < 32; i++)
		digest[i] = hash->state[i / 4] >> (24 - i % 4 * 8);
}

static void
Base64(const unsigned char *bytes, size_t length, char *text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < length; i += 3)
	{
		uint32_t	word = (uint32_t) bytes[i] << 16 |
			(i + 1 < length ? (uint32_t) bytes[i + 1] << 8 : 0) |
			(i + 2 < length ? bytes[i + 2] : 0);

		*text++ = digits[word >> 18];
		*text++ = digits[word >> 12 & 63];
		*text++ = i + 1 < length ? digits[word >> 6 & 63] : '=';
		*text++ = i + 2 < length ? digits[word & 63] : '=';
	}
	*text = '\0';
}

/* ------------------------------------------------------------------- a map */

/* Position of a batch: a pair, compared as such.  Headers write (0, n) "0.n". */
typedef struct Position
{
	int64_t		seq;
	int64_t		n;
} Position;

typedef struct MapEntry
{
	char	   *key;
	Position	position;
	struct MapEntry *next;
} MapEntry;

/* Strings to positions, by chaining; grows, never shrinks. */
typedef struct Map
{
	MapEntry  **buckets;
	size_t		nbuckets;
	size_t		nentries;
} Map;

static uint64_t
HashString(const char *text)
{
	uint64_t	hash = 14695981039346656037ULL; /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (unsigned char) *text) * 1099511628211ULL;
	return hash;
}

static void
MapGrow(Map *map)
{
	size_t		nbuckets = map->nbuckets > 0 ? map->nbuckets * 2 : 1024;
	MapEntry  **buckets = calloc(nbuckets, sizeof(MapEntry *));

	if (buckets == NULL)
		Die("out of memory");
	for (size_t i = 0; i < map->nbuckets; i++)
	{
		MapEntry   *entry = map->buckets[i];

		while (entry != NULL)
		{
			MapEntry   *next = entry->next;
			MapEntry  **bucket = &buckets[HashString(entry->key) % nbuckets];

			entry->next = *bucket;
			*bucket = entry;
			entry = next;
		}
	}
	free(map->buckets);
	map->buckets = buckets;
	map->nbuckets = nbuckets;
}

/* The entry of a key, or NULL; with "create" it is made. */
static MapEntry *
MapFind(Map *map, const char *key, bool create)
{
	MapEntry   *entry = NULL;
	size_t		bucket;

	if (map->nbuckets > 0)
	{
		entry = map->buckets[HashString(key) % map->nbuckets];
		while (entry != NULL && strcmp(entry->key, key) != 0)
			entry = entry->next;
	}
	if (entry != NULL || !create)
		return entry;

	if (map->nentries >= map->nbuckets)
		MapGrow(map);
	bucket = HashString(key) % map->nbuckets;
	entry = Allocate(NULL, sizeof(MapEntry));
	entry->key = Duplicate(key, strlen(key));
	entry->position = (Position){-1, -1};
	entry->next = map->buckets[bucket];
	map->buckets[bucket] = entry;
	map->nentries++;
	return entry;
}

/* ------------------------------------------------------- rules of behaviour */

/* Headers that the ledger keeps, in the order of its columns. */
typedef enum Field
{
	FIELD_ID,
	FIELD_SINK,
	FIELD_DATASET,
	FIELD_SOURCE,
	FIELD_DESTINATION,
	FIELD_EPOCH,
	FIELD_SINCE,
	FIELD_UNTIL,
	FIELD_ROWS,
	FIELD_SNAPSHOT,
	FIELD_RESET,
	FIELD_CONTENT_DIGEST,
	NFIELDS
} Field;

static const char *const field_headers[NFIELDS] = {
	"Idempotency-Key", "Incsink-Sink", "Incsink-Dataset", "Incsink-Source",
	"Incsink-Destination", "Incsink-Epoch", "Incsink-Since", "Incsink-Until",
	"Incsink-Rows", "Incsink-Snapshot", "Incsink-Reset", "Content-Digest"
};

typedef enum StoreChoice
{
	STORE_IF_2XX,
	STORE_ALWAYS,
	STORE_NEVER
} StoreChoice;

typedef enum EndChoice
{
	END_ANSWER,
	END_HANG,					/* after the body */
	END_HANG_HEADERS,
	END_CLOSE,
	END_CLOSE_HEADERS
} EndChoice;

typedef struct Rule
{
	char	   *path;			/* prefix, or NULL */
	char	   *when[NFIELDS];	/* values to match, or NULL */
	int64_t		larger;			/* bytes of the body, -1 = any */
	Buffer		contains;		/* bytes in the body, or empty */
	int64_t		skip;
	int64_t		times;			/* -1 = always */
	StoreChoice store;
	EndChoice	end;
	int			status;
	Buffer		headers;
	Buffer		body;
	Buffer		raw;
	bool		has_raw;
	int64_t		fill;
	int64_t		cut;			/* -1 = whole */
	int64_t		delay;
	int64_t		trickle;
	bool		chunked;
	int			references;		/* by the list and by connections */
	struct Rule *next;
} Rule;

static Rule *rules = NULL;

static void
RuleRelease(Rule *rule)
{
	if (rule == NULL || --rule->references > 0)
		return;
	free(rule->path);
	for (int i = 0; i < NFIELDS; i++)
		free(rule->when[i]);
	BufferFree(&rule->contains);
	BufferFree(&rule->headers);
	BufferFree(&rule->body);
	BufferFree(&rule->raw);
	free(rule);
}

static void
RulesReset(void)
{
	while (rules != NULL)
	{
		Rule	   *rule = rules;

		rules = rule->next;
		RuleRelease(rule);
	}
}

static int
HexDigit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = tolower((unsigned char) c);
	return (c >= 'a' && c <= 'f') ? c - 'a' + 10 : -1;
}

/*
 * Takes the next word of an order: name, name=value or name="value".  Returns
 * false at the end of the line; sets *broken for a quote that does not end.
 */
static bool
NextWord(const char **cursor, Buffer *name, Buffer *value, bool *has_value, bool *broken)
{
	const char *at = *cursor;

	name->length = value->length = 0;
	BufferAppend(name, "", 0);
	BufferAppend(value, "", 0);
	*has_value = false;
	while (*at == ' ' || *at == '\t' || *at == '\r')
		at++;
	if (*at == '\0')
		return false;
	while (*at && !strchr(" \t\r=", *at))
		BufferAppend(name, at++, 1);
	if (*at == '=')
	{
		bool		quoted = *++at == '"';

		*has_value = true;
		if (quoted)
			at++;
		while (*at && (quoted ? *at != '"' : !strchr(" \t\r", *at)))
		{
			char		c = *at++;

			if (quoted && c == '\\' && *at)
			{
				c = *at++;
				if (c == 'n')
					c = '\n';
				else if (c == 'r')
					c = '\r';
				else if (c == 't')
					c = '\t';
				else if (c == 'x' && HexDigit(at[0]) >= 0 && HexDigit(at[1]) >= 0)
				{
					c = HexDigit(at[0]) * 16 + HexDigit(at[1]);
					at += 2;
				}
			}
			BufferAppend(value, &c, 1);
		}
		if (quoted && *at++ != '"')
		{
			*broken = true;
			return false;
		}
	}
	*cursor = at;
	return true;
}

static bool
SetNumber(int64_t *target, const char *value)
{
	*target = ParseNumber(value);
	return *target >= 0;
}

/* Applies one word to a rule; false if there is no such word or value. */
static bool
RuleWord(Rule *rule, const char *name, const Buffer *buffer, bool has_value)
{
	static const struct
	{
		const char *name;
		Field		field;
	}			matches[] = {
		{"sink", FIELD_SINK}, {"dataset", FIELD_DATASET}, {"source", FIELD_SOURCE},
		{"destination", FIELD_DESTINATION}, {"epoch", FIELD_EPOCH},
		{"snapshot", FIELD_SNAPSHOT}, {"reset", FIELD_RESET}, {"until", FIELD_UNTIL}
	};
	const char *value = buffer->data;
	int64_t		number;

	if (!has_value)
	{
		if (strcmp(name, "store") == 0)
			rule->store = STORE_ALWAYS;
		else if (strcmp(name, "nostore") == 0)
			rule->store = STORE_NEVER;
		else if (strcmp(name, "hang") == 0)
			rule->end = END_HANG;
		else if (strcmp(name, "close") == 0)
			rule->end = END_CLOSE;
		else if (strcmp(name, "chunked") == 0)
			rule->chunked = true;
		else
			return false;
		return true;
	}
	for (size_t i = 0; i < Lengthof(matches); i++)
	{
		if (strcmp(name, matches[i].name) == 0)
		{
			free(rule->when[matches[i].field]);
			rule->when[matches[i].field] = Duplicate(value, buffer->length);
			return true;
		}
	}
	if (strcmp(name, "path") == 0)
	{
		free(rule->path);
		rule->path = Duplicate(value, buffer->length);
	}
	else if (strcmp(name, "larger") == 0)
		return SetNumber(&rule->larger, value);
	else if (strcmp(name, "contains") == 0)
		BufferAppend(&rule->contains, value, buffer->length);
	else if (strcmp(name, "skip") == 0)
		return SetNumber(&rule->skip, value);
	else if (strcmp(name, "times") == 0 && strcmp(value, "always") == 0)
		rule->times = -1;
	else if (strcmp(name, "times") == 0)
		return SetNumber(&rule->times, value);
	else if (strcmp(name, "status") == 0)
	{
		number = ParseNumber(value);
		if (number < 100 || number > 999)
			return false;
		rule->status = number;
	}
	else if (strcmp(name, "header") == 0)
		BufferPrint(&rule->headers, "%s\r\n", value);
	else if (strcmp(name, "location") == 0)
		BufferPrint(&rule->headers, "Location: %s\r\n", value);
	else if (strcmp(name, "body") == 0)
		BufferAppend(&rule->body, value, buffer->length);
	else if (strcmp(name, "raw") == 0)
	{
		BufferAppend(&rule->raw, value, buffer->length);
		rule->has_raw = true;
	}
	else if (strcmp(name, "fill") == 0)
		return SetNumber(&rule->fill, value) && rule->fill <= (int64_t) 1 << 30;
	else if (strcmp(name, "cut") == 0)
		return SetNumber(&rule->cut, value);
	else if (strcmp(name, "delay") == 0)
		return SetNumber(&rule->delay, value);
	else if (strcmp(name, "trickle") == 0)
		return SetNumber(&rule->trickle, value);
	else if (strcmp(name, "hang") == 0 && strcmp(value, "headers") == 0)
		rule->end = END_HANG_HEADERS;
	else if (strcmp(name, "close") == 0 && strcmp(value, "headers") == 0)
		rule->end = END_CLOSE_HEADERS;
	else
		return false;
	return true;
}

static Rule *
RuleNew(void)
{
	Rule	   *rule = calloc(1, sizeof(Rule));

	if (rule == NULL)
		Die("out of memory");
	rule->times = 1;
	rule->status = 200;
	rule->cut = -1;
	rule->larger = -1;
	rule->references = 1;
	return rule;
}

/* Does a rule keep its request out of the ledger? */
static bool
RuleStores(const Rule *rule)
{
	if (rule == NULL || rule->store == STORE_ALWAYS)
		return true;
	if (rule->store == STORE_NEVER || rule->has_raw)
		return false;
	return rule->end == END_ANSWER && rule->status / 100 == 2;
}

/* -------------------------------------------------------------- connections */

typedef enum ConnectionState
{
	READING_HEAD,
	READING_BODY,
	WAITING,					/* until "deadline", then answers */
	HELD,						/* until it is told */
	WRITING,
	CLOSED						/* in the graveyard */
} ConnectionState;

typedef enum BodyKind
{
	BODY_LENGTH,
	BODY_CHUNK_SIZE,			/* chunked: in the line with a chunk's size */
	BODY_CHUNK_DATA,
	BODY_CHUNK_END,				/* the line end behind a chunk's data */
	BODY_TRAILER
} BodyKind;

typedef struct Connection
{
	int			fd;
	ConnectionState state;
	uint32_t	events;			/* epoll's interest */
	Buffer		in;				/* received, not used up yet */

	/* the request at hand */
	char		method[16];
	char	   *path;
	char	   *fields[NFIELDS];
	bool		keep_alive;
	bool		expects_continue;
	BodyKind	body_kind;
	uint64_t	body_left;		/* of the body, or of the chunk */
	uint64_t	body_size;
	uint64_t	body_lines;
	Buffer		body;			/* empty when discarding */
	Rule	   *rule;

	/* the answer */
	Buffer		out;
	size_t		sent;
	bool		close_after;
	int64_t		deadline;		/* of WAITING, or of the next trickled byte */

	bool		advancing;		/* ConnectionAdvance() is at work */
	struct Connection *previous;
	struct Connection *next;
	struct Connection *grave;
} Connection;

typedef enum Policy
{
	POLICY_ID,
	POLICY_UNTIL,
	POLICY_NONE
} Policy;

static const char *directory = NULL;
static Policy policy = POLICY_ID;
static bool discard = false;
static bool sync_files = false;
static uint64_t max_body = (uint64_t) 1 << 30;

static int	epoll_fd = -1;
static int	listen_fd = -1;
static int	ledger_fd = -1;
static Connection *connections = NULL;
static Connection *graveyard = NULL;
static int	ntimers = 0;		/* connections that have a deadline */
static uint64_t next_body = 1;
static Map	known_ids;
static Map	highest_until;
static Map	reset_epochs;

static struct
{
	uint64_t	requests;
	uint64_t	stored;
	uint64_t	duplicate;
	uint64_t	stale;
	uint64_t	refused;
	uint64_t	malformed;
	uint64_t	rows;			/* lines of stored bodies, of all when
								 * discarding */
	uint64_t	bytes;			/* of all bodies */
	uint64_t	connections;
}			counts;

static bool ConnectionAdvance(Connection *connection);

/* Sets what a connection waits for. */
static void
ConnectionWatch(Connection *connection, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = connection};

	if (connection->events == events)
		return;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) != 0)
		Die("epoll_ctl: %s", strerror(errno));
	connection->events = events;
}

static void
ConnectionSetDeadline(Connection *connection, int64_t deadline)
{
	ntimers += (deadline != 0) - (connection->deadline != 0);
	connection->deadline = deadline;
}

/* Forgets the request at hand, keeps what was received behind it. */
static void
ConnectionResetRequest(Connection *connection)
{
	free(connection->path);
	connection->path = NULL;
	for (int i = 0; i < NFIELDS; i++)
	{
		free(connection->fields[i]);
		connection->fields[i] = NULL;
	}
	RuleRelease(connection->rule);
	connection->rule = NULL;
	connection->body.length = 0;
	if (connection->body.capacity > 16 * 1024 * 1024)
		BufferFree(&connection->body);
	connection->body_size = connection->body_lines = connection->body_left = 0;
	connection->out.length = connection->sent = 0;
	connection->close_after = false;
	ConnectionSetDeadline(connection, 0);
	connection->state = READING_HEAD;
}

/*
 * Closes a connection.  Its memory stays until the round of events is over: an
 * order may close a connection that has an event later in the round.
 */
static void
ConnectionClose(Connection *connection)
{
	ConnectionResetRequest(connection);
	close(connection->fd);
	BufferFree(&connection->in);
	BufferFree(&connection->body);
	BufferFree(&connection->out);
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		connections = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	connection->state = CLOSED;
	connection->grave = graveyard;
	graveyard = connection;
}

static void
BuryConnections(void)
{
	while (graveyard != NULL)
	{
		Connection *connection = graveyard;

		graveyard = connection->grave;
		free(connection);
	}
}

static void
AcceptConnections(void)
{
	for (;;)
	{
		int			one = 1;
		int			fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		Connection *connection;
		struct epoll_event event;

		if (fd < 0)
			return;				/* none left, or none to be had now */
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		connection = calloc(1, sizeof(Connection));
		if (connection == NULL)
			Die("out of memory");
		connection->fd = fd;
		connection->events = EPOLLIN;
		connection->next = connections;
		if (connections)
			connections->previous = connection;
		connections = connection;
		counts.connections++;
		event = (struct epoll_event){.events = EPOLLIN, .data.ptr = connection};
		if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
			ConnectionClose(connection);
	}
}

/* ------------------------------------------------------------------ answers */

static const char *
StatusText(int status)
{
	static const struct
	{
		int			status;
		const char *text;
	}			texts[] = {
		{200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"},
		{207, "Multi-Status"}, {302, "Found"}, {307, "Temporary Redirect"},
		{400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
		{404, "Not Found"}, {405, "Method Not Allowed"}, {409, "Conflict"},
		{413, "Content Too Large"}, {422, "Unprocessable Content"},
		{429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"}, {501, "Not Implemented"},
		{502, "Bad Gateway"}, {503, "Service Unavailable"}
	};

	for (size_t i = 0; i < Lengthof(texts); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Scripted";
}

/* Sends what can be sent; false when the connection is gone. */
static bool
ConnectionWrite(Connection *connection)
{
	bool		trickling = connection->rule && connection->rule->trickle > 0 &&
		connection->path && connection->path[1] != '_';

	while (connection->sent < connection->out.length)
	{
		size_t		left = connection->out.length - connection->sent;
		ssize_t		sent;

		if (trickling)
		{
			if (Now() < connection->deadline)
			{
				ConnectionWatch(connection, EPOLLRDHUP);
				return true;
			}
			left = 1;
		}
		sent = send(connection->fd, connection->out.data + connection->sent, left, MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		{
			ConnectionWatch(connection, EPOLLOUT);
			return true;
		}
		if (sent < 0)
		{
			ConnectionClose(connection);
			return false;
		}
		connection->sent += sent;
		if (trickling)
			ConnectionSetDeadline(connection, Now() + connection->rule->trickle);
	}
	if (connection->close_after)
	{
		ConnectionClose(connection);
		return false;
	}
	ConnectionResetRequest(connection);
	ConnectionWatch(connection, EPOLLIN);
	/* What was sent ahead is next, unless the caller's caller sees to it. */
	return connection->advancing || ConnectionAdvance(connection);
}

/* Composes an answer and starts to send it. */
static bool
Answer(Connection *connection, int status, const char *content_type,
	   const char *body, size_t length)
{
	Rule	   *rule = connection->rule;
	Buffer	   *out = &connection->out;
	bool		bodiless = status == 204 || status == 304 || status < 200;

	ConnectionSetDeadline(connection, 0);
	connection->state = WRITING;
	connection->sent = out->length = 0;
	if (rule && rule->has_raw)
	{
		BufferAppend(out, rule->raw.data, rule->raw.length);
		connection->close_after = true;
		return ConnectionWrite(connection);
	}
	BufferPrint(out, "HTTP/1.1 %d %s\r\n", status, StatusText(status));
	if (rule && rule->headers.length > 0)
		BufferAppend(out, rule->headers.data, rule->headers.length);
	if (!connection->keep_alive)
	{
		BufferPrint(out, "Connection: close\r\n");
		connection->close_after = true;
	}
	if (!bodiless)
		BufferPrint(out, "Content-Type: %s\r\n", content_type);
	if (!bodiless && rule && rule->chunked)
	{
		BufferPrint(out, "Transfer-Encoding: chunked\r\n\r\n");
		if (length > 0)
		{
			BufferPrint(out, "%zx\r\n", length);
			BufferAppend(out, body, length);
			BufferPrint(out, "\r\n");
		}
		BufferPrint(out, "0\r\n\r\n");
	}
	else
	{
		if (!bodiless)
			BufferPrint(out, "Content-Length: %zu\r\n", length);
		BufferPrint(out, "\r\n");
		if (!bodiless)
			BufferAppend(out, body, length);
	}
	if (rule && rule->cut >= 0 && (size_t) rule->cut < out->length)
	{
		out->length = rule->cut;
		connection->close_after = true;
	}
	return ConnectionWrite(connection);
}

/* Answers a request that is not HTTP, or asks for what there is not. */
static bool
AnswerError(Connection *connection, int status, const char *text)
{
	counts.malformed += status == 400 || status == 431;
	RuleRelease(connection->rule);
	connection->rule = NULL;
	connection->keep_alive = false;
	return Answer(connection, status, "text/plain", text, strlen(text));
}

/* Answers a batch as its rule says; status 0 = the rule's. */
static bool
AnswerBatch(Connection *connection, int status)
{
	Rule	   *rule = connection->rule;
	Buffer		fill = {0};
	bool		alive;

	if (status == 0)
		status = rule ? rule->status : 200;
	if (rule && rule->fill > 0)
	{
		BufferReserve(&fill, rule->fill);
		memset(fill.data, 'x', rule->fill);
		alive = Answer(connection, status, "text/plain", fill.data, rule->fill);
		BufferFree(&fill);
		return alive;
	}
	if (rule && rule->body.length > 0)
		return Answer(connection, status, "text/plain", rule->body.data, rule->body.length);
	return Answer(connection, status, "text/plain", "", 0);
}

/* ------------------------------------------------------------------- ledger */

static const char *const ledger_columns =
"time\toutcome\tanswer\tmethod\tpath\tid\tsink\tdataset\tsource\tdestination\tepoch\t"
"since\tuntil\trows\tsnapshot\treset\tcontent_digest\tdigest\tbytes\tlines\tsha256\tbody\n";

#define LEDGER_NCOLUMNS 22
#define LEDGER_OUTCOME 1
#define LEDGER_FIELDS 5
#define LEDGER_BODY 21

static void
AppendEscaped(Buffer *buffer, const char *text)
{
	if (text == NULL)
		text = "-";
	for (; *text; text++)
	{
		unsigned char c = *text;

		if (c < ' ' || c == 0x7f || c == '\\')
			BufferPrint(buffer, "\\x%02x", c);
		else
			BufferAppend(buffer, text, 1);
	}
}

/* "123" or "0.45"; false if it is neither. */
static bool
ParsePosition(const char *text, Position *position)
{
	char	   *end;

	if (text == NULL || !isdigit((unsigned char) *text))
		return false;
	errno = 0;
	position->seq = strtoll(text, &end, 10);
	position->n = 0;
	if (*end == '.' && isdigit((unsigned char) end[1]))
		position->n = strtoll(end + 1, &end, 10);
	return errno == 0 && *end == '\0';
}

static bool
PositionAbove(Position left, Position right)
{
	return left.seq != right.seq ? left.seq > right.seq : left.n > right.n;
}

/* Number of an epoch "<number>-<hex digits>". */
static int64_t
EpochNumber(const char *epoch)
{
	return epoch ? strtoll(epoch, NULL, 10) : 0;
}

/* Key of a delivery, with or without its epoch; freed by the caller. */
static char *
DeliveryKey(char *const *fields, bool with_epoch)
{
	static const Field parts[] = {FIELD_SINK, FIELD_DATASET, FIELD_SOURCE, FIELD_DESTINATION};
	Buffer		key = {0};

	for (size_t i = 0; i < Lengthof(parts); i++)
		BufferPrint(&key, "%s\t", fields[parts[i]] ? fields[parts[i]] : "");
	if (with_epoch)
		BufferPrint(&key, "%s", fields[FIELD_EPOCH] ? fields[FIELD_EPOCH] : "");
	return key.data;
}

/* Notes a stored batch in memory: what the ledger file says, indexed. */
static void
LedgerRemember(char *const *fields)
{
	Position	until;
	char	   *key;
	MapEntry   *entry;

	if (fields[FIELD_ID])
		MapFind(&known_ids, fields[FIELD_ID], true);
	key = DeliveryKey(fields, true);
	if (ParsePosition(fields[FIELD_UNTIL], &until))
	{
		entry = MapFind(&highest_until, key, true);
		if (PositionAbove(until, entry->position))
			entry->position = until;
	}
	free(key);
	if (fields[FIELD_RESET] && strcmp(fields[FIELD_RESET], "true") == 0)
	{
		key = DeliveryKey(fields, false);
		entry = MapFind(&reset_epochs, key, true);
		if (EpochNumber(fields[FIELD_EPOCH]) > entry->position.seq)
			entry->position.seq = EpochNumber(fields[FIELD_EPOCH]);
		free(key);
	}
}

/* What the policy says about a batch: stored, duplicate or stale. */
static const char *
LedgerJudge(char *const *fields)
{
	const char *outcome = "stored";
	Position	until;
	char	   *key;
	MapEntry   *entry;

	if (policy == POLICY_NONE)
		return outcome;
	if (policy == POLICY_ID)
		return fields[FIELD_ID] && MapFind(&known_ids, fields[FIELD_ID], false) ?
			"duplicate" : outcome;

	key = DeliveryKey(fields, false);
	entry = MapFind(&reset_epochs, key, false);
	if (entry && EpochNumber(fields[FIELD_EPOCH]) < entry->position.seq)
		outcome = "stale";
	free(key);
	key = DeliveryKey(fields, true);
	entry = MapFind(&highest_until, key, false);
	if (strcmp(outcome, "stored") == 0 && entry &&
		ParsePosition(fields[FIELD_UNTIL], &until) && !PositionAbove(until, entry->position))
		outcome = "duplicate";
	free(key);
	return outcome;
}

static bool
WriteAll(int fd, const char *bytes, size_t length)
{
	while (length > 0)
	{
		ssize_t		written = write(fd, bytes, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return false;
		bytes += written;
		length -= written;
	}
	return true;
}

static void
BodyPath(char *path, size_t size, uint64_t number)
{
	snprintf(path, size, "%s/bodies/%08" PRIu64, directory, number);
}

/* Writes a body to its file; false (nothing counts as stored) if that fails. */
static bool
StoreBody(const Buffer *body)
{
	char		path[4200];
	int			fd;
	bool		stored;

	BodyPath(path, sizeof(path), next_body);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return false;
	stored = WriteAll(fd, body->data, body->length) && (!sync_files || fsync(fd) == 0);
	return close(fd) == 0 && stored;
}

/* "ok", "bad" or "-"; sets the body's SHA-256 in hexadecimal. */
static const char *
CheckDigest(const Connection *connection, char *hex)
{
	const char *header = connection->fields[FIELD_CONTENT_DIGEST];
	unsigned char digest[32];
	char		expected[64];
	Sha256		hash;

	Sha256Init(&hash);
	Sha256Update(&hash, connection->body.data, connection->body.length);
	Sha256Final(&hash, digest);
	for (int i = 0; i < 32; i++)
		sprintf(hex + i * 2, "%02x", digest[i]);
	if (header == NULL || (header = strcasestr(header, "sha-256=:")) == NULL)
		return "-";
	Base64(digest, 32, expected);
	header += strlen("sha-256=:");
	return strncmp(header, expected, strlen(expected)) == 0 &&
		header[strlen(expected)] == ':' ? "ok" : "bad";
}

/*
 * Stores a batch (or not) and writes its line.  Returns false when that could
 * not be made durable: the batch then does not exist.
 */
static bool
LedgerEnter(Connection *connection, const char *outcome)
{
	Rule	   *rule = connection->rule;
	bool		store = strcmp(outcome, "stored") == 0;
	bool		read_body = !rule || (rule->end != END_HANG_HEADERS && rule->end != END_CLOSE_HEADERS);
	struct timespec now;
	Buffer		line = {0};
	char		hex[65] = "-";
	const char *digest = "-";
	bool		written;

	if (store && !StoreBody(&connection->body))
		return false;
	if (read_body)
		digest = CheckDigest(connection, hex);
	clock_gettime(CLOCK_REALTIME, &now);
	BufferPrint(&line, "%lld.%06ld\t%s\t", (long long) now.tv_sec, now.tv_nsec / 1000, outcome);
	if (rule && (rule->end == END_HANG || rule->end == END_HANG_HEADERS))
		BufferPrint(&line, "hang");
	else if (rule && rule->end != END_ANSWER)
		BufferPrint(&line, "close");
	else
		BufferPrint(&line, "%d", rule ? rule->status : 200);
	BufferPrint(&line, "\t%s\t", connection->method);
	AppendEscaped(&line, connection->path);
	for (int i = 0; i < NFIELDS; i++)
	{
		BufferAppend(&line, "\t", 1);
		AppendEscaped(&line, connection->fields[i]);
	}
	BufferPrint(&line, "\t%s\t%" PRIu64 "\t%" PRIu64 "\t%s\t", digest,
				connection->body_size, connection->body_lines, hex);
	if (store)
		BufferPrint(&line, "%08" PRIu64 "\n", next_body++);
	else
		BufferPrint(&line, "-\n");

	written = WriteAll(ledger_fd, line.data, line.length) &&
		(!sync_files || fdatasync(ledger_fd) == 0);
	BufferFree(&line);
	if (!written)
		Die("could not write the ledger: %s", strerror(errno));
	if (store)
		LedgerRemember(connection->fields);
	return true;
}

/* Undoes AppendEscaped() in place; "-" becomes NULL. */
static char *
Unescape(char *text)
{
	char	   *from = text;
	char	   *to = text;

	if (strcmp(text, "-") == 0)
		return NULL;
	while (*from)
	{
		if (from[0] == '\\' && from[1] == 'x' && HexDigit(from[2]) >= 0 && HexDigit(from[3]) >= 0)
		{
			*to++ = HexDigit(from[2]) * 16 + HexDigit(from[3]);
			from += 4;
		}
		else
			*to++ = *from++;
	}
	*to = '\0';
	return text;
}

/* Takes one line of the ledger into memory. */
static void
LedgerReplay(char *line)
{
	char	   *columns[LEDGER_NCOLUMNS];
	char	   *fields[NFIELDS];
	int			ncolumns = 0;
	char	   *column;

	while (ncolumns < LEDGER_NCOLUMNS && (column = strsep(&line, "\t")) != NULL)
		columns[ncolumns++] = column;
	if (ncolumns != LEDGER_NCOLUMNS || strcmp(columns[LEDGER_OUTCOME], "stored") != 0)
		return;
	for (int i = 0; i < NFIELDS; i++)
		fields[i] = Unescape(columns[LEDGER_FIELDS + i]);
	LedgerRemember(fields);
	if (ParseNumber(columns[LEDGER_BODY]) >= (int64_t) next_body)
		next_body = ParseNumber(columns[LEDGER_BODY]) + 1;
}

/*
 * Opens the ledger and takes in what an earlier life wrote.  A last line without
 * its end was being written when that life was ended: its batch was not
 * answered, the line is cut off.
 */
static void
LedgerOpen(void)
{
	char		path[4200];
	FILE	   *file = NULL;
	char	   *line = NULL;
	size_t		capacity = 0;
	ssize_t		length;
	off_t		whole = 0;

	if (mkdir(directory, 0755) != 0 && errno != EEXIST)
		Die("%s: %s", directory, strerror(errno));
	snprintf(path, sizeof(path), "%s/bodies", directory);
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		Die("%s: %s", path, strerror(errno));
	snprintf(path, sizeof(path), "%s/ledger.tsv", directory);
	ledger_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (ledger_fd >= 0)
		file = fdopen(dup(ledger_fd), "r");
	if (file == NULL)
		Die("%s: %s", path, strerror(errno));
	rewind(file);
	while ((length = getline(&line, &capacity, file)) > 0 && line[length - 1] == '\n')
	{
		whole += length;
		line[length - 1] = '\0';
		LedgerReplay(line);
	}
	free(line);
	fclose(file);
	if (ftruncate(ledger_fd, whole) != 0)
		Die("%s: %s", path, strerror(errno));
	if (whole == 0 && !WriteAll(ledger_fd, ledger_columns, strlen(ledger_columns)))
		Die("%s: %s", path, strerror(errno));
}

/* ----------------------------------------------------------- orders, counts */

/* Does the request fit all that the rule gives? */
static bool
RuleFits(const Rule *rule, const Connection *connection)
{
	if (rule->path && strncmp(connection->path, rule->path, strlen(rule->path)) != 0)
		return false;
	for (int i = 0; i < NFIELDS; i++)
	{
		const char *field = connection->fields[i] ? connection->fields[i] : "";

		if (rule->when[i] && strcmp(field, rule->when[i]) != 0)
			return false;
	}
	return true;
}

/* Answers or closes every held request that fits; status 0 = what was meant. */
static void
ReleaseHeld(const Rule *rule, int status, bool drop)
{
	Connection *connection = connections;

	while (connection != NULL)
	{
		Connection *next = connection->next;

		if (connection->state == HELD && RuleFits(rule, connection))
		{
			if (drop)
				ConnectionClose(connection);
			else
			{
				/* What was not read is not going to be. */
				if (connection->rule && connection->rule->end == END_HANG_HEADERS)
					connection->keep_alive = false;
				AnswerBatch(connection, status);
			}
		}
		connection = next;
	}
}

/*
 * Carries out (or, with "dry", only checks) one order.  False if it is
 * malformed.
 */
static bool
Order(const char *line, bool dry)
{
	const char *cursor = line;
	Buffer		name = {0};
	Buffer		value = {0};
	bool		has_value;
	bool		broken = false;
	bool		valid = true;
	bool		first = true;
	const char *verb = NULL;
	int64_t		status = 0;
	Rule	   *rule = RuleNew();

	while (valid && NextWord(&cursor, &name, &value, &has_value, &broken))
	{
		if (first && !has_value)
		{
			if (strcmp(name.data, "reset") == 0)
				verb = "reset";
			else if (strcmp(name.data, "release") == 0)
				verb = "release";
			else if (strcmp(name.data, "drop") == 0)
				verb = "drop";
		}
		if (verb == NULL)
			valid = RuleWord(rule, name.data, &value, has_value);
		else if (!first)
		{
			if (strcmp(name.data, "status") == 0)
				valid = strcmp(verb, "release") == 0 && has_value &&
					(status = ParseNumber(value.data)) >= 100 && status <= 999;
			else
				valid = strcmp(verb, "reset") != 0 && RuleWord(rule, name.data, &value, has_value);
		}
		first = false;
	}
	valid = valid && !broken &&
		(rule->store != STORE_ALWAYS ||
		 (rule->end != END_HANG_HEADERS && rule->end != END_CLOSE_HEADERS));
	BufferFree(&name);
	BufferFree(&value);

	if (valid && !dry && !first)
	{
		if (verb == NULL)
		{
			Rule	  **last = &rules;

			while (*last)
				last = &(*last)->next;
			*last = rule;
			return true;
		}
		if (strcmp(verb, "reset") == 0)
			RulesReset();
		else
			ReleaseHeld(rule, status, strcmp(verb, "drop") == 0);
	}
	RuleRelease(rule);
	return valid;
}

static bool
HandleControl(Connection *connection)
{
	Buffer		problem = {0};
	bool		alive;

	for (int dry = 1; dry >= 0 && problem.length == 0; dry--)
	{
		char	   *copy = Duplicate(connection->body.data ? connection->body.data : "",
									 connection->body.length);
		char	   *rest = copy;
		char	   *line;

		while ((line = strsep(&rest, "\n")) != NULL)
			if (!Order(line, dry) && problem.length == 0)
				BufferPrint(&problem, "malformed order: %s\n", line);
		free(copy);
	}
	if (problem.length == 0)
		return Answer(connection, 200, "text/plain", "", 0);
	alive = Answer(connection, 400, "text/plain", problem.data, problem.length);
	BufferFree(&problem);
	return alive;
}

static bool
HandleCount(Connection *connection)
{
	Buffer		text = {0};
	uint64_t	held = 0;
	uint64_t	open = 0;
	uint64_t	nrules = 0;
	bool		alive;

	for (Connection *other = connections; other; other = other->next)
	{
		held += other->state == HELD;
		open++;
	}
	for (Rule *rule = rules; rule; rule = rule->next)
		nrules += rule->times != 0;
	BufferPrint(&text, "requests %" PRIu64 "\nstored %" PRIu64 "\nduplicate %" PRIu64
				"\nstale %" PRIu64 "\nrefused %" PRIu64 "\nmalformed %" PRIu64
				"\nrows %" PRIu64 "\nbytes %" PRIu64 "\nconnections %" PRIu64
				"\nopen %" PRIu64 "\nheld %" PRIu64 "\nrules %" PRIu64 "\n",
				counts.requests, counts.stored, counts.duplicate, counts.stale,
				counts.refused, counts.malformed, counts.rows, counts.bytes,
				counts.connections, open, held, nrules);
	alive = Answer(connection, 200, "text/plain", text.data, text.length);
	BufferFree(&text);
	return alive;
}

/* ----------------------------------------------------------------- requests */

static bool
IsBatch(const Connection *connection)
{
	return (strcmp(connection->method, "POST") == 0 || strcmp(connection->method, "PUT") == 0) &&
		strncmp(connection->path, "/_", 2) != 0;
}

static bool
IsAboutBody(const Rule *rule)
{
	return rule->larger >= 0 || rule->contains.length > 0;
}

static bool
BodyFits(const Rule *rule, const Connection *connection)
{
	const Buffer *body = &connection->body;

	if (rule->larger >= 0 && connection->body_size <= (uint64_t) rule->larger)
		return false;
	return rule->contains.length == 0 ||
		(body->length > 0 && memmem(body->data, body->length, rule->contains.data,
									rule->contains.length) != NULL);
}

/* Takes the first rule that fits, or none; those about bodies once it is complete. */
static Rule *
ChooseRule(const Connection *connection, bool is_complete)
{
	for (Rule *rule = rules; rule; rule = rule->next)
	{
		if (rule->times == 0 || IsAboutBody(rule) != is_complete || !RuleFits(rule, connection) ||
			(is_complete && !BodyFits(rule, connection)))
			continue;
		if (rule->skip > 0)
		{
			rule->skip--;
			continue;
		}
		if (rule->times > 0)
			rule->times--;
		rule->references++;
		return rule;
	}
	return NULL;
}

/* A batch is complete: store it if it is to be stored, then answer or not. */
static bool
HandleBatch(Connection *connection)
{
	Rule	   *rule;

	if (connection->rule == NULL)
		connection->rule = ChooseRule(connection, true);
	rule = connection->rule;
	counts.bytes += connection->body_size;
	if (discard)
		counts.rows += connection->body_lines;
	else
	{
		const char *outcome = RuleStores(rule) ? LedgerJudge(connection->fields) : "refused";

		if (!LedgerEnter(connection, outcome))
			return AnswerError(connection, 500, "could not store the body\n");
		if (strcmp(outcome, "stored") == 0)
		{
			counts.stored++;
			counts.rows += connection->body_lines;
		}
		else if (strcmp(outcome, "duplicate") == 0)
			counts.duplicate++;
		else if (strcmp(outcome, "stale") == 0)
			counts.stale++;
		else
			counts.refused++;
	}

	if (rule && (rule->end == END_CLOSE || rule->end == END_CLOSE_HEADERS))
	{
		ConnectionClose(connection);
		return false;
	}
	if (rule && (rule->end == END_HANG || rule->end == END_HANG_HEADERS))
	{
		connection->state = HELD;
		ConnectionWatch(connection, EPOLLRDHUP);
		return true;
	}
	if (rule && rule->delay > 0)
	{
		connection->state = WAITING;
		ConnectionSetDeadline(connection, Now() + rule->delay);
		ConnectionWatch(connection, EPOLLRDHUP);
		return true;
	}
	return AnswerBatch(connection, 0);
}

static bool
HandleRequest(Connection *connection)
{
	if (IsBatch(connection))
		return HandleBatch(connection);
	if (strcmp(connection->path, "/_control") == 0 && strcmp(connection->method, "POST") == 0)
		return HandleControl(connection);
	if (strcmp(connection->path, "/_count") == 0 && strcmp(connection->method, "GET") == 0)
		return HandleCount(connection);
	return AnswerError(connection, 404, "POST or PUT a batch, GET /_count, POST /_control\n");
}

static char *
Trim(char *text)
{
	char	   *end;

	while (*text == ' ' || *text == '\t')
		text++;
	end = text + strlen(text);
	while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	return text;
}

/* Keeps a header of the ledger; quotes of a structured string are taken off. */
static void
KeepField(Connection *connection, const char *name, const char *value)
{
	for (int i = 0; i < NFIELDS; i++)
	{
		size_t		length = strlen(value);

		if (strcasecmp(name, field_headers[i]) != 0)
			continue;
		if (i == FIELD_ID && length >= 2 && value[0] == '"' && value[length - 1] == '"')
		{
			value++;
			length -= 2;
		}
		free(connection->fields[i]);
		connection->fields[i] = Duplicate(value, length);
	}
}

/*
 * Reads a request line and headers, which it may write to.  Returns 0, or the
 * status to refuse the request with.
 */
static int
ParseHead(Connection *connection, char *head)
{
	char	   *line = strsep(&head, "\n");
	char	   *method = strsep(&line, " ");
	char	   *path = line ? strsep(&line, " ") : NULL;
	bool		has_length = false;
	bool		chunked = false;

	if (!path || !line || strncmp(line, "HTTP/1.", 7) != 0 || path[0] != '/' ||
		strlen(method) == 0 || strlen(method) >= sizeof(connection->method))
		return 400;
	for (const char *c = method; *c; c++)
		if (!isupper((unsigned char) *c))
			return 400;
	strcpy(connection->method, method);
	connection->path = Duplicate(path, strlen(path));
	connection->keep_alive = strncmp(line, "HTTP/1.0", 8) != 0;
	connection->expects_continue = false;

	while ((line = strsep(&head, "\n")) != NULL)
	{
		size_t		length = strlen(line);
		char	   *value;

		if (length > 0 && line[length - 1] == '\r')
			line[length - 1] = '\0';
		if (*line == '\0')
			continue;
		value = strchr(line, ':');
		if (value == NULL || value == line)
			return 400;
		*value++ = '\0';
		value = Trim(value);
		KeepField(connection, line, value);
		if (strcasecmp(line, "Content-Length") == 0)
		{
			int64_t		bytes = ParseNumber(value);

			if (bytes < 0 || (has_length && (uint64_t) bytes != connection->body_left))
				return 400;
			has_length = true;
			connection->body_left = bytes;
		}
		else if (strcasecmp(line, "Transfer-Encoding") == 0)
		{
			if (strcasecmp(value, "chunked") != 0)
				return 501;
			chunked = true;
		}
		else if (strcasecmp(line, "Connection") == 0 && strcasecmp(value, "close") == 0)
			connection->keep_alive = false;
		else if (strcasecmp(line, "Expect") == 0 && strcasecmp(value, "100-continue") == 0)
			connection->expects_continue = true;
	}
	if (has_length && chunked)
		return 400;				/* RFC 9112 section 6.3: may be smuggling */
	connection->body_kind = chunked ? BODY_CHUNK_SIZE : BODY_LENGTH;
	return connection->body_left > max_body ? 413 : 0;
}

/* Takes "length" bytes from the front of what was received. */
static void
Consume(Connection *connection, size_t length)
{
	connection->in.length -= length;
	memmove(connection->in.data, connection->in.data + length, connection->in.length);
}

/*
 * Looks for a complete head.  Returns false when the connection is gone; sets
 * *more when it has to be read on.
 */
static bool
AdvanceHead(Connection *connection, bool *more)
{
	char	   *start = connection->in.data;
	char	   *end;
	size_t		length;
	int			status;
	Rule	   *rule;

	/* Empty lines before a request are allowed (RFC 9112 section 2.2). */
	while (connection->in.length > 0 && (*start == '\r' || *start == '\n'))
		Consume(connection, 1);
	end = connection->in.length > 0 ? memmem(start, connection->in.length, "\r\n\r\n", 4) : NULL;
	if (end == NULL)
	{
		if (connection->in.length > MAX_HEAD)
			return AnswerError(connection, 431, "the head is too large\n");
		*more = true;
		return true;
	}
	length = end + 4 - start;
	if (length > MAX_HEAD)
		return AnswerError(connection, 431, "the head is too large\n");
	if (memchr(start, '\0', length) != NULL)
		return AnswerError(connection, 400, "there is a zero byte in the head\n");

	counts.requests++;
	*end = '\0';
	status = ParseHead(connection, start);
	Consume(connection, length);
	if (status != 0)
		return AnswerError(connection, status, "this request is not understood\n");
	if (IsBatch(connection))
		connection->rule = ChooseRule(connection, false);
	rule = connection->rule;
	if (rule && (rule->end == END_HANG_HEADERS || rule->end == END_CLOSE_HEADERS))
	{
		connection->body_left = 0;
		return HandleBatch(connection);
	}
	connection->state = READING_BODY;
	if (connection->expects_continue &&
		send(connection->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL) != 25)
	{
		ConnectionClose(connection);
		return false;
	}
	return true;
}

/* Takes bytes of the body. */
static void
TakeBody(Connection *connection, const char *bytes, size_t length)
{
	connection->body_size += length;
	if (connection->path[1] != '_')
		connection->body_lines += CountLines(bytes, length);
	if (!discard || connection->path[1] == '_')
		BufferAppend(&connection->body, bytes, length);
}

/*
 * Reads one line of chunked framing.  Returns its length with the line end, 0 if
 * it is not complete, -1 if it is too long.
 */
static ssize_t
ChunkLine(const Connection *connection)
{
	const char *end = connection->in.length > 0 ?
		memchr(connection->in.data, '\n', connection->in.length) : NULL;

	if (end != NULL)
		return end + 1 - connection->in.data;
	return connection->in.length > 4096 ? -1 : 0;
}

/*
 * One step through a chunked body.  Returns 0 when it went on, 1 when more must
 * be read, 2 when the body is complete, -1 when it is malformed.
 */
static int
AdvanceChunk(Connection *connection)
{
	ssize_t		length;
	char	   *end;

	if (connection->body_kind == BODY_CHUNK_DATA)
	{
		size_t		part = connection->in.length < connection->body_left ?
			connection->in.length : connection->body_left;

		TakeBody(connection, connection->in.data, part);
		Consume(connection, part);
		connection->body_left -= part;
		if (connection->body_left > 0)
			return 1;
		connection->body_kind = BODY_CHUNK_END;
		return 0;
	}
	length = ChunkLine(connection);
	if (length <= 0)
		return length == 0 ? 1 : -1;
	if (connection->body_kind == BODY_CHUNK_SIZE)
	{
		if (HexDigit(connection->in.data[0]) < 0)
			return -1;
		errno = 0;
		connection->body_left = strtoull(connection->in.data, &end, 16);
		if (errno != 0 || !strchr("\r\n; \t", *end) ||
			connection->body_left > max_body ||
			connection->body_size + connection->body_left > max_body)
			return -1;
		connection->body_kind = connection->body_left > 0 ? BODY_CHUNK_DATA : BODY_TRAILER;
	}
	else if (connection->body_kind == BODY_CHUNK_END)
	{
		if (length > 2 || (length == 2 && connection->in.data[0] != '\r'))
			return -1;
		connection->body_kind = BODY_CHUNK_SIZE;
	}
	else if (length == 1 || (length == 2 && connection->in.data[0] == '\r'))
	{
		Consume(connection, length);
		return 2;
	}
	Consume(connection, length);
	return 0;
}

/* Takes what was received of a body; see AdvanceHead(). */
static bool
AdvanceBody(Connection *connection, bool *more)
{
	if (connection->body_kind == BODY_LENGTH)
	{
		size_t		part = connection->in.length < connection->body_left ?
			connection->in.length : connection->body_left;

		TakeBody(connection, connection->in.data, part);
		Consume(connection, part);
		connection->body_left -= part;
		if (connection->body_left == 0)
			return HandleRequest(connection);
		*more = true;
		return true;
	}
	switch (AdvanceChunk(connection))
	{
		case 0:
			return true;
		case 1:
			*more = true;
			return true;
		case 2:
			return HandleRequest(connection);
		default:
			return AnswerError(connection, 400, "the chunks are malformed\n");
	}
}

/* Goes on with what was received; false when the connection is gone. */
static bool
ConnectionAdvance(Connection *connection)
{
	bool		more = false;
	bool		alive = true;

	connection->advancing = true;
	while (alive && !more)
	{
		if (connection->state == READING_HEAD)
			alive = AdvanceHead(connection, &more);
		else if (connection->state == READING_BODY)
			alive = AdvanceBody(connection, &more);
		else
			break;
	}
	connection->advancing = false;
	return alive;
}

/*
 * Reads, and goes on.  A body of known length is read straight into its place,
 * or, when discarding, over and over into the same one.
 */
static void
ConnectionRead(Connection *connection)
{
	static char scratch[READ_SIZE];
	bool		direct = connection->state == READING_BODY && connection->in.length == 0 &&
		connection->body_kind == BODY_LENGTH;
	size_t		wanted = READ_SIZE;
	ssize_t		received;

	if (direct && connection->body_left < wanted)
		wanted = connection->body_left;
	received = recv(connection->fd, scratch, wanted, 0);
	if (received < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (received <= 0)
	{
		ConnectionClose(connection);
		return;
	}
	if (direct)
	{
		TakeBody(connection, scratch, received);
		connection->body_left -= received;
		if (connection->body_left > 0)
			return;
	}
	else
		BufferAppend(&connection->in, scratch, received);
	ConnectionAdvance(connection);
}

/* ---------------------------------------------------------------- main loop */

static void
ConnectionEvent(Connection *connection, uint32_t events)
{
	switch (connection->state)
	{
		case READING_HEAD:
		case READING_BODY:
			ConnectionRead(connection);
			break;
		case WRITING:
			if (events & EPOLLOUT)
				ConnectionWrite(connection);
			else
				ConnectionClose(connection);
			break;
		case WAITING:
		case HELD:
			/* the other side is gone */
			ConnectionClose(connection);
			break;
		case CLOSED:
			break;
	}
}

/* Serves deadlines; returns milliseconds until the next one, -1 if none. */
static int
ServeTimers(void)
{
	int64_t		now = Now();
	int64_t		next = -1;
	Connection *connection = ntimers > 0 ? connections : NULL;

	while (connection != NULL)
	{
		Connection *following = connection->next;
		bool		alive = true;

		if (connection->deadline != 0 && connection->deadline <= now)
			alive = connection->state == WAITING ?
				AnswerBatch(connection, 0) : ConnectionWrite(connection);
		if (alive && connection->deadline != 0 && (next < 0 || connection->deadline < next))
			next = connection->deadline;
		connection = following;
	}
	if (next < 0)
		return -1;
	now = Now();
	return next > now ? next - now : 0;
}

static void
Serve(void)
{
	struct epoll_event events[MAX_EVENTS];

	for (;;)
	{
		int			timeout = ServeTimers();
		int			nevents = epoll_wait(epoll_fd, events, MAX_EVENTS, timeout);

		for (int i = 0; i < nevents; i++)
		{
			if (events[i].data.ptr == NULL)
				AcceptConnections();
			else
				ConnectionEvent(events[i].data.ptr, events[i].events);
		}
		BuryConnections();
	}
}

static void
Listen(int port, const char *port_file)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	socklen_t	length = sizeof(address);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
	struct rlimit limit;
	int			one = 1;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
	{
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listen_fd, (struct sockaddr *) &address, sizeof(address)) != 0 ||
		listen(listen_fd, 1024) != 0 ||
		getsockname(listen_fd, (struct sockaddr *) &address, &length) != 0)
		Die("port %d: %s", port, strerror(errno));
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event) != 0)
		Die("epoll: %s", strerror(errno));

	if (port_file != NULL)
	{
		char		temporary[4200];
		FILE	   *file;

		snprintf(temporary, sizeof(temporary), "%s.tmp", port_file);
		file = fopen(temporary, "w");
		if (file == NULL || fprintf(file, "%d\n", ntohs(address.sin_port)) < 0 ||
			fclose(file) != 0 || rename(temporary, port_file) != 0)
			Die("%s: %s", port_file, strerror(errno));
	}
	else
	{
		printf("%d\n", ntohs(address.sin_port));
		fflush(stdout);
	}
}

/* ------------------------------------------------------------------- client */

/*
 * Sends one request to the collector on a port of loopback, prints the answer's
 * body; the exit code says whether the status was a 2xx.
 */
static int
Request(const char *port, const char *method, const char *path, const Buffer *body)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(ParseNumber(port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	Buffer		text = {0};
	char		part[4096];
	ssize_t		length;
	char	   *answer;
	bool		good;

	if (connect(fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		Die("port %s: %s", port, strerror(errno));
	BufferPrint(&text, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
				method, path, body->length);
	BufferAppend(&text, body->data, body->length);
	if (!WriteAll(fd, text.data, text.length))
		Die("port %s: %s", port, strerror(errno));
	text.length = 0;
	while ((length = read(fd, part, sizeof(part))) > 0)
		BufferAppend(&text, part, length);
	answer = text.length > 0 ? strstr(text.data, "\r\n\r\n") : NULL;
	if (answer == NULL)
		Die("port %s: no answer", port);
	good = strncmp(text.data, "HTTP/1.1 2", 10) == 0;
	fputs(answer + 4, good ? stdout : stderr);
	return good ? 0 : 1;
}

static int
Client(int argc, char **argv)
{
	Buffer		body = {0};

	if (strcmp(argv[1], "get") == 0)
		return Request(argv[2], "GET", argv[3], &body);
	for (int i = 3; i < argc; i++)
		BufferPrint(&body, "%s\n", argv[i]);
	return Request(argv[2], "POST", "/_control", &body);
}

int
main(int argc, char **argv)
{
	int			port = 0;
	const char *port_file = NULL;
	bool		with_parent = false;

	signal(SIGPIPE, SIG_IGN);
	if (argc >= 4 && (strcmp(argv[1], "control") == 0 || strcmp(argv[1], "get") == 0))
		return Client(argc, argv);

	for (int i = 1; i < argc; i++)
	{
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--discard") == 0)
			discard = true;
		else if (strcmp(argv[i], "--fsync") == 0)
			sync_files = true;
		else if (strcmp(argv[i], "--with-parent") == 0)
			with_parent = true;
		else if (strcmp(argv[i], "--dir") == 0 && *value)
			directory = argv[++i];
		else if (strcmp(argv[i], "--port-file") == 0 && *value)
			port_file = argv[++i];
		else if (strcmp(argv[i], "--port") == 0 && ParseNumber(value) >= 0 && ParseNumber(value) < 65536)
			port = ParseNumber(argv[++i]);
		else if (strcmp(argv[i], "--max-body") == 0 && ParseNumber(value) >= 0)
			max_body = ParseNumber(argv[++i]);
		else if (strcmp(argv[i], "--policy") == 0 && strcmp(value, "id") == 0)
			policy = POLICY_ID, i++;
		else if (strcmp(argv[i], "--policy") == 0 && strcmp(value, "until") == 0)
			policy = POLICY_UNTIL, i++;
		else if (strcmp(argv[i], "--policy") == 0 && strcmp(value, "none") == 0)
			policy = POLICY_NONE, i++;
		else
			Die("\"%s\" is not understood; the head of collector.c says what is", argv[i]);
	}
	if (directory == NULL && !discard)
		Die("--dir or --discard is needed");
	if (with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		Die("prctl: %s", strerror(errno));
	if (!discard)
		LedgerOpen();
	Listen(port, port_file);
	Serve();
	return 0;
}
