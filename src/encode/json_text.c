/*
 * json_text.c
 *		Text as JSON strings (RFC 8259, section 7), and json values as they are.
 *
 * Most text needs no escape.  It is copied in blocks of 16 bytes, each looked
 * at while it passes, by SSE2 or NEON, which are part of the baseline of
 * x86-64 and AArch64; elsewhere byte by byte.
 */
#include "postgres.h"

#include "encode/json.h"
#include "mb/pg_wchar.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#define JSON_SSE2
#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(WORDS_BIGENDIAN)
#include <arm_neon.h>
#define JSON_NEON
#endif

/* Text is escaped in pieces of this size, to bound the room that is made. */
#define PIECE_SIZE		8192

/*
 * What stands behind the backslash: 0 for a byte that stands for itself, 'u'
 * for \u00XX.  A slash, DEL and bytes above 127 stand for themselves.
 */
static const char EscapeOf[256] = {
	'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
	'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
	['"'] = '"',
	['\\'] = '\\',
};

/*
 * PutEscape
 *		Writes the escape of a byte that needs one.
 */
static inline char *
PutEscape(char *at, unsigned char byte)
{
	static const char hex[] = "0123456789abcdef";

	*at++ = '\\';
	*at++ = EscapeOf[byte];
	if (EscapeOf[byte] == 'u')
	{
		*at++ = '0';
		*at++ = '0';
		*at++ = hex[byte >> 4];
		*at++ = hex[byte & 15];
	}
	return at;
}

#if defined(JSON_SSE2)

/* Bytes to be looked at together; what was found in them has all bits set. */
typedef __m128i Block;

static inline Block
LoadBlock(const void *bytes)
{
	return _mm_loadu_si128((const __m128i *) bytes);
}

/* A block from its first and its second half. */
static inline Block
JoinBlock(uint64 first, uint64 second)
{
	return _mm_set_epi64x((int64) second, (int64) first);
}

static inline void
StoreBlock(char *at, Block block)
{
	_mm_storeu_si128((__m128i *) at, block);
}

static inline Block
FindControl(Block block)
{
	return _mm_cmpeq_epi8(_mm_min_epu8(block, _mm_set1_epi8(0x1f)), block);
}

static inline Block
FindEscape(Block block)
{
	Block		found = FindControl(block);

	found = _mm_or_si128(found, _mm_cmpeq_epi8(block, _mm_set1_epi8('"')));
	return _mm_or_si128(found, _mm_cmpeq_epi8(block, _mm_set1_epi8('\\')));
}

/* Index of the first byte that was found, JSON_BLOCK for none. */
static inline int
FirstFound(Block found)
{
	return __builtin_ctz(_mm_movemask_epi8(found) | (1 << JSON_BLOCK));
}

#elif defined(JSON_NEON)

typedef uint8x16_t Block;

static inline Block
LoadBlock(const void *bytes)
{
	return vld1q_u8((const uint8_t *) bytes);
}

static inline Block
JoinBlock(uint64 first, uint64 second)
{
	return vcombine_u8(vcreate_u8(first), vcreate_u8(second));
}

static inline void
StoreBlock(char *at, Block block)
{
	vst1q_u8((uint8_t *) at, block);
}

static inline Block
FindControl(Block block)
{
	return vcleq_u8(block, vdupq_n_u8(0x1f));
}

static inline Block
FindEscape(Block block)
{
	Block		found = FindControl(block);

	found = vorrq_u8(found, vceqq_u8(block, vdupq_n_u8('"')));
	return vorrq_u8(found, vceqq_u8(block, vdupq_n_u8('\\')));
}

/*
 * Index of the first byte that was found, JSON_BLOCK for none.  NEON has no
 * movemask: narrowing by four bits leaves a nibble for each byte.
 */
static inline int
FirstFound(Block found)
{
	uint8x8_t	nibbles = vshrn_n_u16(vreinterpretq_u16_u8(found), 4);
	uint64_t	mask = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);

	return mask == 0 ? JSON_BLOCK : __builtin_ctzll(mask) >> 2;
}

#endif

#if defined(JSON_SSE2) || defined(JSON_NEON)

/*
 * LoadTail
 *		Loads fewer bytes than a block, without reading beyond them, by loads
 *		that overlap.  What is missing is 0, which counts as a control
 *		character: a search ends there at the latest.
 */
static inline Block
LoadTail(const char *bytes, size_t length)
{
	uint64		half;
	uint64		rest;
	uint32		quarter;
	uint32		rest_of_half;

	if (length >= 8)
	{
		memcpy(&half, bytes, 8);
		memcpy(&rest, bytes + length - 8, 8);
		/* in two steps, because a shift by 64 is not defined */
		return JoinBlock(half, rest >> 1 >> (8 * (16 - length) - 1));
	}
	if (length >= 4)
	{
		memcpy(&quarter, bytes, 4);
		memcpy(&rest_of_half, bytes + length - 4, 4);
		return JoinBlock(quarter | ((uint64) rest_of_half << (8 * (length - 4))), 0);
	}
	return JoinBlock((uint64) (unsigned char) bytes[0] |
					 (uint64) (unsigned char) bytes[length / 2] << (8 * (length / 2)) |
					 (uint64) (unsigned char) bytes[length - 1] << (8 * (length - 1)), 0);
}

/*
 * JsonEscapeBytes
 *		Writes bytes as they stand inside a JSON string.  There is room for
 *		JSON_ESCAPED_ROOM(length) bytes at "at".
 */
char *
JsonEscapeBytes(char *at, const char *bytes, size_t length)
{
	while (length > 0)
	{
		Block		block = length >= JSON_BLOCK ? LoadBlock(bytes) : LoadTail(bytes, length);
		size_t		plain = FirstFound(FindEscape(block));

		StoreBlock(at, block);
		at += plain;
		if (plain == length)
			return at;
		bytes += plain;
		length -= plain;
		if (plain == JSON_BLOCK)
			continue;
		at = PutEscape(at, *bytes++);
		length--;
	}
	return at;
}

/*
 * JsonCompactBytes
 *		Copies a valid json value without its control characters: line breaks
 *		and tabs, which can stand between tokens only.  Nothing runs together
 *		without them, for there is punctuation between any two values.  There
 *		is room for JSON_COMPACTED_ROOM(length) bytes at "at".
 */
char *
JsonCompactBytes(char *at, const char *bytes, size_t length)
{
	while (length > 0)
	{
		Block		block = length >= JSON_BLOCK ? LoadBlock(bytes) : LoadTail(bytes, length);
		size_t		plain = FirstFound(FindControl(block));

		StoreBlock(at, block);
		at += plain;
		if (plain == length)
			return at;
		bytes += plain;
		length -= plain;
		if (plain == JSON_BLOCK)
			continue;
		bytes++;
		length--;
	}
	return at;
}

#else							/* neither SSE2 nor NEON */

/* JsonEscapeBytes, byte by byte. */
char *
JsonEscapeBytes(char *at, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
	{
		unsigned char byte = bytes[i];

		if (likely(EscapeOf[byte] == 0))
			*at++ = byte;
		else
			at = PutEscape(at, byte);
	}
	return at;
}

/* JsonCompactBytes, byte by byte; see above for why this is right. */
char *
JsonCompactBytes(char *at, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
	{
		if (likely((unsigned char) bytes[i] >= ' '))
			*at++ = bytes[i];
	}
	return at;
}

#endif

/*
 * JsonMustConvert
 *		Whether text of this database has to be converted for a JSON body,
 *		which is UTF-8.  In a SQL_ASCII database nobody knows what the bytes
 *		mean: they pass as they are.
 */
bool
JsonMustConvert(void)
{
	int			encoding = GetDatabaseEncoding();

	return encoding != PG_UTF8 && encoding != PG_SQL_ASCII;
}

/*
 * JsonConvertToUtf8
 *		Converts text of the server's encoding and updates its length.  Bytes
 *		that are ASCII throughout are returned themselves: every server
 *		encoding contains ASCII.  Anything else is allocated in
 *		CurrentMemoryContext.  Raises an error for a character that UTF-8 does
 *		not have.
 */
const char *
JsonConvertToUtf8(const char *bytes, size_t *length)
{
	const char *converted;
	size_t		i;

	for (i = 0; i < *length; i++)
	{
		if (IS_HIGHBIT_SET(bytes[i]))
			break;
	}
	if (i == *length)
		return bytes;

	converted = pg_server_to_any(bytes, (int) *length, PG_UTF8);
	if (converted != bytes)
		*length = strlen(converted);
	return converted;
}

/*
 * JsonWriteString
 *		Writes text of the server's encoding as a JSON string, quotes included.
 *		What a conversion allocates goes with the scratch context.
 */
char *
JsonWriteString(JsonColumn *column, const char *bytes, size_t length,
				ByteBuffer *buffer, char *at)
{
	if (unlikely(column->convert))
	{
		MemoryContext old = MemoryContextSwitchTo(column->scratch);

		bytes = JsonConvertToUtf8(bytes, &length);
		MemoryContextSwitchTo(old);
	}

	*at++ = '"';
	while (unlikely(length > PIECE_SIZE))
	{
		at = JsonMakeRoom(column, buffer, at, JSON_ESCAPED_ROOM(PIECE_SIZE));
		at = JsonEscapeBytes(at, bytes, PIECE_SIZE);
		bytes += PIECE_SIZE;
		length -= PIECE_SIZE;
	}
	at = JsonMakeRoom(column, buffer, at, JSON_ESCAPED_ROOM(length) + 1);
	at = JsonEscapeBytes(at, bytes, length);
	*at++ = '"';
	return at;
}

/*
 * JsonWriteCompacted
 *		Writes a json value, keys that stand twice and all, on one line.
 */
char *
JsonWriteCompacted(JsonColumn *column, const char *bytes, size_t length,
				   ByteBuffer *buffer, char *at)
{
	if (unlikely(column->convert))
	{
		MemoryContext old = MemoryContextSwitchTo(column->scratch);

		bytes = JsonConvertToUtf8(bytes, &length);
		MemoryContextSwitchTo(old);
	}

	at = JsonMakeRoom(column, buffer, at, JSON_COMPACTED_ROOM(length));
	return JsonCompactBytes(at, bytes, length);
}
