/*
 * read_rows.c
 *		Rows on their way out of a read function.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "api/read_rows.h"
#include "encode/encoder.h"

struct RowWriter
{
	ReturnSetInfo *result;
	const Partition *partition;
	MemoryContext row_context;	/* reset after each row */
	const AttrNumber *places;
	const AttrNumber *attnums;
	int			ncolumns;
	/* jsonb */
	Encoder    *encoder;
	ByteBuffer	buffer;
	/* typed */
	TupleDesc	row_desc;
	Datum	   *values;
	bool	   *nulls;
	Position	position;		/* of the row in hand */
};

RowWriter *
BeginRows(ReturnSetInfo *result, const Partition *partition, bool typed, Relation rel,
		  TupleDesc source, const AttrNumber *places, const AttrNumber *attnums, int ncolumns)
{
	RowWriter  *writer = palloc0(sizeof(RowWriter));

	writer->result = result;
	writer->partition = partition;
	writer->row_context = AllocSetContextCreate(CurrentMemoryContext, "incsink row",
												ALLOCSET_DEFAULT_SIZES);
	writer->places = places;
	writer->attnums = attnums;
	writer->ncolumns = ncolumns;
	if (typed)
	{
		writer->row_desc = CreateTupleDescCopy(RelationGetDescr(rel));
		writer->values = palloc(sizeof(Datum) * Max(writer->row_desc->natts, 1));
		writer->nulls = palloc(sizeof(bool) * Max(writer->row_desc->natts, 1));
	}
	else
	{
		ByteBufferInit(&writer->buffer, 8192);
		writer->encoder = NdjsonEncoder.begin(source, places, ncolumns);
	}
	return writer;
}

/* jsonb holds less than json does: a NUL, for one.  The reader must know where it stands. */
static void
NameRowInError(void *arg)
{
	RowWriter  *writer = arg;

	errcontext("row %s of table \"%s.%s\" as jsonb; a call with NULL::%s.%s returns rows as rows",
			   FormatPosition(writer->position), writer->partition->schema_name,
			   writer->partition->table_name, quote_identifier(writer->partition->schema_name),
			   quote_identifier(writer->partition->table_name));
}

static Datum
ParseRow(RowWriter *writer, const char *text)
{
	ErrorContextCallback callback;
	Datum		result;

	callback.callback = NameRowInError;
	callback.arg = writer;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	result = DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
	error_context_stack = callback.previous;
	return result;
}

/*
 * The bytes that a sink would send, as jsonb: the same names and spellings.  Bodies
 * are UTF-8, jsonb is in the server's encoding.
 */
static Datum
RowAsJsonb(RowWriter *writer, TupleTableSlot *slot)
{
	char	   *text;

	ByteBufferReset(&writer->buffer);
	NdjsonEncoder.row(writer->encoder, slot, &writer->buffer);
	ByteBufferAppend(&writer->buffer, "", 1);
	text = writer->buffer.data;
	if (GetDatabaseEncoding() != PG_UTF8)
		text = pg_any_to_server(text, writer->buffer.length - 1, PG_UTF8);
	return ParseRow(writer, text);
}

/* Columns that were not asked for, and the internal ingest_seq, are null. */
static Datum
RowAsComposite(RowWriter *writer, TupleTableSlot *slot)
{
	memset(writer->nulls, true, sizeof(bool) * writer->row_desc->natts);
	for (int i = 0; i < writer->ncolumns; i++)
	{
		int			target = writer->attnums[i] - 1;

		writer->values[target] = slot_getattr(slot, writer->places[i], &writer->nulls[target]);
	}
	return HeapTupleGetDatum(heap_form_tuple(writer->row_desc, writer->values, writer->nulls));
}

MemoryContext
RowContext(RowWriter *writer)
{
	return writer->row_context;
}

void
WriteRow(RowWriter *writer, TupleTableSlot *slot, Position position)
{
	MemoryContext old = MemoryContextSwitchTo(writer->row_context);
	Datum		values[2];
	bool		nulls[2] = {false, false};

	writer->position = position;
	values[0] = writer->encoder ? RowAsJsonb(writer, slot) : RowAsComposite(writer, slot);
	values[1] = JsonbPGetDatum(MakeToken(writer->partition->tag, position));
	tuplestore_putvalues(writer->result->setResult, writer->result->setDesc, values, nulls);
	MemoryContextSwitchTo(old);
	MemoryContextReset(writer->row_context);
}

void
EndRows(RowWriter *writer)
{
	if (writer->encoder)
		ByteBufferFree(&writer->buffer);
	MemoryContextDelete(writer->row_context);
}
