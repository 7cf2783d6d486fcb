/*
 * sql.h
 *		The one way in which incsink runs queries on its own catalog.
 *
 * A session switches to the role that owns the schema incsink, pins search_path
 * and connects to SPI; plans are kept for the life of the process.  All of it is
 * undone by SqlEnd(), or by the abort of the (sub)transaction that it was begun
 * in.  CurrentMemoryContext stays the caller's throughout, unlike with SPI alone.
 * Queries must qualify everything, operators too where types are not fixed; all but unnest()
 * of many arrays, which is no function that has a schema.
 */
#ifndef INCSINK_SQL_H
#define INCSINK_SQL_H

#include "postgres.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

typedef struct SqlSession
{
	Oid			saved_user;
	int			saved_security_context;
	int			guc_nest_level;
	bool		pushed_snapshot;
} SqlSession;

/*
 * A parameter of a query.  Made by the functions below; a NULL pointer given to
 * the by-reference ones is the SQL null.
 */
typedef struct SqlArg
{
	Oid			type;
	Datum		value;
	bool		isnull;
} SqlArg;

extern SqlArg SqlInt8(int64 value);
extern SqlArg SqlInt4(int32 value);
extern SqlArg SqlBool(bool value);
extern SqlArg SqlOid(Oid value);
extern SqlArg SqlText(const char *value);
extern SqlArg SqlName(const char *value);
extern SqlArg SqlJsonb(Jsonb *value);
extern SqlArg SqlTime(TimestampTz value);	/* 0 is null */
extern SqlArg SqlNameArray(char **names, int count); /* name[] */
extern SqlArg SqlTextArray(char **texts, int count); /* text[]; a NULL is null */
extern SqlArg SqlInt8Array(const int64 *values, int count); /* bigint[] */
extern SqlArg SqlTimeArray(const TimestampTz *values, int count);	/* timestamptz[] */
extern SqlArg SqlJsonbArray(Jsonb **values, int count); /* jsonb[]; a NULL is null */
extern SqlArg SqlDatum(Oid type, Datum value, bool isnull);

/* The session of the extension's owner, for the catalog. */
extern void SqlBegin(SqlSession *session);
extern void SqlEnd(SqlSession *session);

/*
 * Runs a query, whose text must be a literal that stays (the kept plan is found
 * by its content).  Returns the number of rows; the rows of a SELECT or RETURNING
 * stand in SPI_tuptable until the next SqlRun or SqlEnd.  Raises what the query
 * raises.
 */
#define SqlRun(query, ...) \
	SqlRunArgs(query, lengthof(((SqlArg[]) {__VA_ARGS__})), (SqlArg[]) {__VA_ARGS__})
extern uint64 SqlRunArgs(const char *query, int nargs, const SqlArg *args);
#define SqlRun0(query) SqlRunArgs(query, 0, NULL)

/*
 * Columns (from 1) of row "row" (from 0) of the last result.  Text, name and
 * jsonb are copied into "context"; null gives NULL, 0 or false.
 */
extern bool SqlIsNull(uint64 row, int column);
extern int64 SqlGetInt8(uint64 row, int column);
extern int32 SqlGetInt4(uint64 row, int column);
extern bool SqlGetBool(uint64 row, int column);
extern Oid	SqlGetOid(uint64 row, int column);
extern TimestampTz SqlGetTime(uint64 row, int column);
extern char *SqlGetText(uint64 row, int column, MemoryContext context);
extern Jsonb *SqlGetJsonb(uint64 row, int column, MemoryContext context);
/* text[] or name[] as C strings; *count 0 and NULL for the SQL null */
extern char **SqlGetTextArray(uint64 row, int column, MemoryContext context, int *count);

/* Role that owns the schema incsink; ERROR when the schema is not there. */
extern Oid	CatalogOwner(void);
/* True if the extension is installed in this database (needs a transaction). */
extern bool ExtensionIsInstalled(void);
/* OID of the extension in this database or InvalidOid. */
extern Oid	ExtensionOid(void);
/* OID of a relation in the schema incsink. */
extern Oid	CatalogRelation(const char *name);

/*
 * Is the catalog of version 0.<version> or later?  Before ALTER EXTENSION incsink UPDATE
 * this library goes on with what is there: in version 0.1 ordinary tables without
 * backlogs, in 0.2 epochs whose beginnings are not known.  RequireCatalog() raises an
 * ERROR that says so.
 */
extern bool CatalogIsAtLeast(int version);
extern void RequireCatalog(int version);

#endif							/* INCSINK_SQL_H */
