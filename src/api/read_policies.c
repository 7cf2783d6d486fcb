/*
 * read_policies.c
 *		Reading under row-level security, through the executor.
 *
 * What policies show of a tree is what is in it: rows of a leaf that has left it are
 * not there for them to judge, and are not handed out.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/relation.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "api/partition_access.h"
#include "api/read_rows.h"
#include "cache/backlog.h"
#include "cache/columns.h"
#include "cache/reader.h"
#include "common/pin.h"

/* Rows fetched at a time. */
#define FETCH_ROWS 1000

typedef struct PolicyRead
{
	const ReadRequest *request;
	const Partition *partition;
	ReturnSetInfo *result;
	Relation	rel;
	AttrNumber *attnums;		/* to hand out */
	int			nattnums;
	Snapshot	snapshot;
	int64		left;			/* rows that may still come */
	Position	position;		/* of the last row written, but for ties */
	/* of the query that runs */
	const Backlog *backlog;		/* NULL: rows with numbers */
	bool		tied;			/* the next row has the last one's number */
	RowWriter  *writer;
} PolicyRead;

/* A query with its parameters. */
typedef struct ReadQuery
{
	StringInfoData text;
	Oid			types[2 * INDEX_MAX_KEYS + 1];
	Datum		values[2 * INDEX_MAX_KEYS + 1];
	int			count;
} ReadQuery;

/* Adds a parameter and returns its number. */
static int
AddParameter(ReadQuery *query, Oid type, Datum value)
{
	query->types[query->count] = type;
	query->values[query->count] = value;
	return ++query->count;
}

/* "SELECT <columns to hand out>" */
static void
BeginQuery(const PolicyRead *read, ReadQuery *query)
{
	query->count = 0;
	initStringInfo(&query->text);
	appendStringInfoString(&query->text, "SELECT ");
	for (int i = 0; i < read->nattnums; i++)
		appendStringInfo(&query->text, "%s, ",
						 quote_identifier(get_attname(RelationGetRelid(read->rel),
													  read->attnums[i], false)));
}

static void
AddTable(const PolicyRead *read, ReadQuery *query)
{
	appendStringInfo(&query->text, " FROM %s%s", read->partition->tree ? "" : "ONLY ",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(read->rel)),
												RelationGetRelationName(read->rel)));
}

/*
 * And, last, the number, in its order; in a tree that of the next row after it.  The
 * condition "> 0" is that of the index.
 */
static void
BuildNumbersQuery(const PolicyRead *read, ReadQuery *query, int64 until)
{
	const char *seq = quote_identifier(read->partition->seq_column);

	BeginQuery(read, query);
	appendStringInfoString(&query->text, seq);
	if (read->partition->tree)
		appendStringInfo(&query->text, ", pg_catalog.lead(%s) OVER (ORDER BY %s)", seq, seq);
	AddTable(read, query);
	appendStringInfo(&query->text, " WHERE %s OPERATOR(pg_catalog.>) $%d", seq,
					 AddParameter(query, INT8OID, Int64GetDatum(read->position.seq)));
	appendStringInfo(&query->text, " AND %s OPERATOR(pg_catalog.<=) $%d", seq,
					 AddParameter(query, INT8OID, Int64GetDatum(until)));
	appendStringInfo(&query->text, " AND %s OPERATOR(pg_catalog.>) 0 ORDER BY %s", seq, seq);
}

/* "OPERATOR(schema.name)": that of the type's own order. */
static char *
OrderOperator(Oid type, StrategyNumber strategy)
{
	Oid			opclass = GetDefaultOpClass(type, BTREE_AM_OID);
	Oid			input = get_opclass_input_type(opclass);
	Oid			operator = get_opfamily_member(get_opclass_family(opclass), input, input, strategy);
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *text;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "type %u has no order", type);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	text = psprintf("OPERATOR(%s.%s)", quote_identifier(get_namespace_name(form->oprnamespace)),
					NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return text;
}

/* " AND ROW(columns) <strategy> ROW(values)" */
static void
AddBound(const PolicyRead *read, ReadQuery *query, const KeyIndex *key, StrategyNumber strategy,
		 const Datum *values)
{
	TupleDesc	desc = RelationGetDescr(read->rel);
	const Backlog *backlog = read->backlog;
	char	   *operator = NULL;

	for (int i = 0; i < key->nkeys; i++)
	{
		char	   *own = OrderOperator(TupleDescAttr(desc, key->attnums[i] - 1)->atttypid, strategy);

		if (operator != NULL && strcmp(own, operator) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("the backlog of table \"%s\" cannot be read under row-level security: the types of (%s) are compared by operators of different schemas",
							RelationDisplayName(read->rel),
							KeyColumnNames(backlog->key_columns, backlog->nkeys)),
					 errhint("Read it as a role that policies do not apply to, or from a token behind the backlog.")));
		operator = own;
	}
	appendStringInfo(&query->text, " AND ROW(%s) %s ROW(",
					 KeyColumnNames(backlog->key_columns, backlog->nkeys), operator);
	for (int i = 0; i < key->nkeys; i++)
		appendStringInfo(&query->text, "%s$%d", i > 0 ? ", " : "",
						 AddParameter(query,
									  getBaseType(TupleDescAttr(desc, key->attnums[i] - 1)->atttypid),
									  values[i]));
	appendStringInfoChar(&query->text, ')');
}

/* The key columns of the backlog in the relation read. */
static void
FindKeyColumns(const PolicyRead *read, KeyIndex *key)
{
	RequireKeyColumns(read->rel, read->backlog);
	memset(key, 0, sizeof(KeyIndex));
	key->nkeys = read->backlog->nkeys;
	for (int i = 0; i < key->nkeys; i++)
	{
		key->attnums[i] = get_attnum(RelationGetRelid(read->rel), read->backlog->key_columns[i]);
	}
}

/* And, last, the key columns, in their order. */
static void
BuildBacklogQuery(const PolicyRead *read, ReadQuery *query)
{
	TupleDesc	desc = RelationGetDescr(read->rel);
	char	   *columns = KeyColumnNames(read->backlog->key_columns, read->backlog->nkeys);
	KeyIndex	key;

	FindKeyColumns(read, &key);
	BeginQuery(read, query);
	appendStringInfoString(&query->text, columns);
	AddTable(read, query);
	appendStringInfo(&query->text, " WHERE %s OPERATOR(pg_catalog.=) 0",
					 quote_identifier(read->partition->seq_column));
	if (read->position.key != NULL)
		AddBound(read, query, &key, BTGreaterStrategyNumber,
				 BacklogKeyValues(desc, &key, read->position.key));
	AddBound(read, query, &key, BTLessEqualStrategyNumber,
			 BacklogKeyValues(desc, &key, read->backlog->last_key));
	appendStringInfo(&query->text, " ORDER BY %s", columns);
}

/* No statistics, and no size of the table, may turn the scan of the index into another. */
static void
PinPlan(void)
{
	static const char *const settings[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort"};

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i], "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* Opens the query with the snapshot; a read-only cursor runs under the active one. */
static Portal
OpenQuery(ReadQuery *query, Snapshot snapshot)
{
	int			nest_level = NewGUCNestLevel();
	Portal		portal;

	PinPlan();
	PushActiveSnapshot(snapshot);
	portal = SPI_cursor_open_with_args(NULL, query->text.data, query->count, query->types,
									   query->values, NULL, true, CURSOR_OPT_NO_SCROLL);
	PopActiveSnapshot();
	AtEOXact_GUC(true, nest_level);
	return portal;
}

/* The number stands behind the columns, in a tree the next row's behind it. */
static Position
NumberedPosition(PolicyRead *read, TupleTableSlot *slot)
{
	Position	before = read->position;
	Position	position = {0};
	bool		isnull;

	position.seq = DatumGetInt64(slot_getattr(slot, read->nattnums + 1, &isnull));
	if (read->partition->tree)
	{
		int64		next = DatumGetInt64(slot_getattr(slot, read->nattnums + 2, &isnull));

		read->tied = !isnull && next == position.seq;
	}
	if (read->tied)
		return before;
	read->position = position;
	return position;
}

/* The key stands behind the columns; the rows that policies hide are not counted. */
static Position
BacklogPosition(PolicyRead *read, TupleTableSlot *slot)
{
	KeyIndex	key = {.nkeys = read->backlog->nkeys};

	for (int i = 0; i < key.nkeys; i++)
		key.attnums[i] = read->nattnums + 1 + i;
	read->position.n++;
	return (Position) {.n = read->position.n, .key = BacklogKeyOf(&key, slot)};
}

/* Writes what the last fetch brought; output functions see pinned settings. */
static void
WriteFetched(PolicyRead *read, TupleTableSlot *slot)
{
	int			nest_level = NewGUCNestLevel();

	PinOutputSettings();
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		MemoryContext old = MemoryContextSwitchTo(RowContext(read->writer));
		Position	position;

		ExecStoreHeapTuple(SPI_tuptable->vals[row], slot, false);
		position = read->backlog ? BacklogPosition(read, slot) : NumberedPosition(read, slot);
		MemoryContextSwitchTo(old);
		WriteRow(read->writer, slot, position);
	}
	ExecClearTuple(slot);
	AtEOXact_GUC(true, nest_level);
}

/*
 * Fetches until the query ends or max_rows are written, and the rows tied with the
 * last of them.  The result's own memory context is used for what must live as long.
 */
static void
WriteAll(PolicyRead *read, ReadQuery *query)
{
	Portal		portal = OpenQuery(query, read->snapshot);
	AttrNumber *places = palloc(sizeof(AttrNumber) * (read->nattnums + 1));
	TupleTableSlot *slot = MakeSingleTupleTableSlot(portal->tupDesc, &TTSOpsHeapTuple);

	for (int i = 0; i < read->nattnums; i++)
		places[i] = i + 1;
	read->tied = false;
	read->writer = BeginRows(read->result, read->partition, read->request->typed, read->rel,
							 portal->tupDesc, places, read->attnums, read->nattnums);
	while (read->left > 0 || read->tied)
	{
		SPI_cursor_fetch(portal, true, Max(Min(read->left, FETCH_ROWS), 1));
		if (SPI_processed == 0)
			break;
		read->left -= SPI_processed;
		WriteFetched(read, slot);
		SPI_freetuptable(SPI_tuptable);
	}
	EndRows(read->writer);
	ExecDropSingleTupleTableSlot(slot);
	SPI_cursor_close(portal);
}

static void
ReadBacklog(PolicyRead *read)
{
	ReadQuery	query;

	if (read->left > 0)
	{
		read->backlog = read->partition->backlog;
		BuildBacklogQuery(read, &query);
		WriteAll(read, &query);
	}
	read->backlog = NULL;
	read->position.key = BacklogOverKey();
}

static void
ReadNumbers(PolicyRead *read, int64 until)
{
	ReadQuery	query;

	BuildNumbersQuery(read, &query, until);
	WriteAll(read, &query);
}

/*
 * Opens the relation and locks its leaves: what is rewritten meanwhile looks empty to an
 * older snapshot.
 */
static void
OpenForRead(PolicyRead *read)
{
	read->rel = relation_open(read->partition->relid, AccessShareLock);
	if (read->partition->tree)
		(void) find_all_inheritors(read->partition->relid, AccessShareLock, NULL);
	read->attnums = ResolveColumns(read->rel, read->partition, read->request->columns,
								   read->request->ncolumns, &read->nattnums);
	read->snapshot = TakeReadSnapshot();
}

void
ReadThroughPolicies(const ReadRequest *request, const Partition *partition, Position since,
					Position until, ReturnSetInfo *result)
{
	PolicyRead	read = {0};

	read.request = request;
	read.partition = partition;
	read.result = result;
	read.left = request->max_rows;
	read.position = since;
	OpenForRead(&read);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (IsInBacklog(partition, since))
		ReadBacklog(&read);
	if (read.left > 0 && !partition->preparing)
		ReadNumbers(&read, until.seq);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	UnregisterSnapshot(read.snapshot);
	relation_close(read.rel, NoLock);
}
