/*
 * json_types.c
 *		How a value of each type is written as JSON.
 *
 * The writer of a column is chosen once.  Types with a writer of their own are
 * written straight into the body, independent of any setting; every other one
 * goes through its output function and is a string.
 */
#include "postgres.h"

#include <ctype.h>
#include <math.h>

#include "catalog/pg_type_d.h"
#include "common/compat.h"
#include "common/shortest_dec.h"
#include "encode/json.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/uuid.h"

/* Digits of the largest integers, their sign, and the zero byte of pg_ltoa. */
#define INT4_ROOM		12
#define INT8_ROOM		21

/*
 * Unpack
 *		The value itself if it is inline and not compressed (it may have a
 *		short header then), else a copy in the scratch context, to be given
 *		back with FreeUnpacked() so that a row of several large values does not
 *		hold them all.
 */
static inline struct varlena *
Unpack(JsonColumn *column, Datum value)
{
	struct varlena *varlena = (struct varlena *) DatumGetPointer(value);

	if (unlikely(VARATT_IS_COMPRESSED(varlena) || VARATT_IS_EXTERNAL(varlena)))
	{
		MemoryContext old = MemoryContextSwitchTo(column->scratch);

		varlena = pg_detoast_datum_packed(varlena);
		MemoryContextSwitchTo(old);
	}
	return varlena;
}

/* Gives back what Unpack() allocated, if it did. */
static inline void
FreeUnpacked(struct varlena *varlena, Datum value)
{
	if (unlikely((Pointer) varlena != DatumGetPointer(value)))
		pfree(varlena);
}

/* true or false. */
static char *
WriteBool(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	if (DatumGetBool(value))
		return JsonPut(at, "true", 4);
	return JsonPut(at, "false", 5);
}

/* A number of the size of its type; so the next three. */
static char *
WriteInt2(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	return at + pg_ltoa(DatumGetInt16(value), at);
}

static char *
WriteInt4(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	return at + pg_ltoa(DatumGetInt32(value), at);
}

static char *
WriteInt8(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	return at + pg_lltoa(DatumGetInt64(value), at);
}

static char *
WriteOid(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	return at + pg_ultoa_n(DatumGetObjectId(value), at);
}

/*
 * PutNotFinite
 *		JSON has no number for these.
 */
static char *
PutNotFinite(char *at, double number)
{
	if (isnan(number))
		return JsonPut(at, "\"NaN\"", 5);
	if (number > 0)
		return JsonPut(at, "\"Infinity\"", 10);
	return JsonPut(at, "\"-Infinity\"", 11);
}

/* The shortest digits that read back as the same float4; "-0" keeps its sign. */
static char *
WriteFloat4(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	float4		number = DatumGetFloat4(value);

	if (unlikely(!isfinite(number)))
		return PutNotFinite(at, number);
	return at + float_to_shortest_decimal_bufn(number, at);
}

/* The same for float8. */
static char *
WriteFloat8(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	float8		number = DatumGetFloat8(value);

	if (unlikely(!isfinite(number)))
		return PutNotFinite(at, number);
	return at + double_to_shortest_decimal_bufn(number, at);
}

/*
 * JsonWriteNumeric
 *		All digits, as a number; NaN and the infinities are strings.
 */
char *
JsonWriteNumeric(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	MemoryContext old = MemoryContextSwitchTo(column->scratch);
	char	   *text = DatumGetCString(DirectFunctionCall1(numeric_out, value));
	size_t		length = strlen(text);
	bool		finite = isdigit((unsigned char) text[length - 1]);

	MemoryContextSwitchTo(old);
	at = JsonMakeRoom(column, buffer, at, length + 2);
	if (!finite)
		*at++ = '"';
	at = JsonPut(at, text, length);
	if (!finite)
		*at++ = '"';
	pfree(text);
	return at;
}

/* text, varchar, and char(n) with its padding. */
static char *
WriteText(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	struct varlena *text = Unpack(column, value);

	at = JsonWriteString(column, VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text),
						 buffer, at);
	FreeUnpacked(text, value);
	return at;
}

/* A name ends at its first zero byte. */
static char *
WriteName(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	const char *name = NameStr(*DatumGetName(value));

	return JsonWriteString(column, name, strnlen(name, NAMEDATALEN), buffer, at);
}

/*
 * WriteChar
 *		The type "char" is one byte: none for 0, and in octal above 127, where
 *		it is no character of any encoding.  So charout() has it from
 *		PostgreSQL 16 on; here it is so everywhere.
 */
static char *
WriteChar(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	unsigned char byte = (unsigned char) DatumGetChar(value);
	char		text[4] = {(char) byte};
	size_t		length = byte == 0 ? 0 : 1;

	if (IS_HIGHBIT_SET(byte))
	{
		text[0] = '\\';
		text[1] = '0' + (byte >> 6);
		text[2] = '0' + ((byte >> 3) & 7);
		text[3] = '0' + (byte & 7);
		length = 4;
	}
	return JsonWriteString(column, text, length, buffer, at);
}

/* In the groups of RFC 9562, lower case. */
static char *
WriteUuid(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	const char *bytes = (const char *) DatumGetUUIDP(value)->data;

	*at++ = '"';
	at += hex_encode(bytes, 4, at);
	*at++ = '-';
	at += hex_encode(bytes + 4, 2, at);
	*at++ = '-';
	at += hex_encode(bytes + 6, 2, at);
	*at++ = '-';
	at += hex_encode(bytes + 8, 2, at);
	*at++ = '-';
	at += hex_encode(bytes + 10, 6, at);
	*at++ = '"';
	return at;
}

/*
 * WriteBytea
 *		As bytea_output = hex has it, the backslash escaped.
 */
static char *
WriteBytea(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	struct varlena *bytes = Unpack(column, value);
	size_t		length = VARSIZE_ANY_EXHDR(bytes);

	at = JsonMakeRoom(column, buffer, at, length * 2 + 5);
	at = JsonPut(at, "\"\\\\x", 4);
	at += hex_encode(VARDATA_ANY(bytes), length, at);
	*at++ = '"';
	FreeUnpacked(bytes, value);
	return at;
}

/* As it was stored, but on one line. */
static char *
WriteJson(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	struct varlena *json = Unpack(column, value);

	at = JsonWriteCompacted(column, VARDATA_ANY(json), VARSIZE_ANY_EXHDR(json),
							buffer, at);
	FreeUnpacked(json, value);
	return at;
}

/*
 * WriteByOutput
 *		Any other type: the text of its output function.  What that looks at
 *		has been pinned by PinOutputSettings().
 */
static char *
WriteByOutput(JsonColumn *column, Datum value, ByteBuffer *buffer, char *at)
{
	MemoryContext old = MemoryContextSwitchTo(column->scratch);
	char	   *text = OutputFunctionCall(&column->output, value);

	MemoryContextSwitchTo(old);
	return JsonWriteString(column, text, strlen(text), buffer, at);
}

typedef struct TypeWriter
{
	Oid			type;
	JsonWriteValue write;
	size_t		room;
} TypeWriter;

static const TypeWriter TypeWriters[] = {
	{BOOLOID, WriteBool, 5},
	{INT2OID, WriteInt2, INT4_ROOM},
	{INT4OID, WriteInt4, INT4_ROOM},
	{INT8OID, WriteInt8, INT8_ROOM},
	{OIDOID, WriteOid, INT4_ROOM},
	{FLOAT4OID, WriteFloat4, FLOAT_SHORTEST_DECIMAL_LEN},
	{FLOAT8OID, WriteFloat8, DOUBLE_SHORTEST_DECIMAL_LEN},
	{NUMERICOID, JsonWriteNumeric, JSON_OPEN_ROOM},
	{TEXTOID, WriteText, JSON_OPEN_ROOM},
	{VARCHAROID, WriteText, JSON_OPEN_ROOM},
	{BPCHAROID, WriteText, JSON_OPEN_ROOM},
	{NAMEOID, WriteName, JSON_OPEN_ROOM},
	{CHAROID, WriteChar, JSON_OPEN_ROOM},
	{DATEOID, JsonWriteDate, JSON_TIME_ROOM},
	{TIMESTAMPOID, JsonWriteTimestamp, JSON_TIME_ROOM},
	{TIMESTAMPTZOID, JsonWriteTimestampTz, JSON_TIME_ROOM},
	{UUIDOID, WriteUuid, UUID_LEN * 2 + 6},
	{BYTEAOID, WriteBytea, JSON_OPEN_ROOM},
	{JSONOID, WriteJson, JSON_OPEN_ROOM},
	{JSONBOID, JsonWriteJsonb, JSON_OPEN_ROOM},
};

/*
 * JsonChooseWriter
 *		Sets how a column of this type is written, and the room for a value.
 *		A domain is written as its base type.  What a type's output function
 *		keeps for itself is allocated in CurrentMemoryContext.
 */
void
JsonChooseWriter(JsonColumn *column, Oid type)
{
	Oid			base = getBaseType(type);
	Oid			function;
	bool		is_varlena;

	for (int i = 0; i < lengthof(TypeWriters); i++)
	{
		if (TypeWriters[i].type == base)
		{
			column->write = TypeWriters[i].write;
			column->room = TypeWriters[i].room;
			return;
		}
	}

	column->write = WriteByOutput;
	column->room = JSON_OPEN_ROOM;
	getTypeOutputInfo(base, &function, &is_varlena);
	fmgr_info(function, &column->output);
}
