/*
 * compat.h
 *		The one place that knows what differs between PostgreSQL 15 and 19.
 */
#ifndef INCSINK_COMPAT_H
#define INCSINK_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "incsink needs PostgreSQL 15 or later"
#endif

#ifndef __linux__
#error "incsink needs Linux (epoll)"
#endif

/* 16 split pg_class_ownercheck() and its kin into one function. */
#include "utils/acl.h"
#if PG_VERSION_NUM >= 160000
#define pg_class_ownercheck(oid, role) object_ownercheck(RelationRelationId, oid, role)
#define pg_foreign_server_aclcheck(oid, role, mode) object_aclcheck(ForeignServerRelationId, oid, role, mode)
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_server.h"
#endif

/* 16 renamed relfilenode to relfilenumber. */
#if PG_VERSION_NUM >= 160000
#include "common/relpath.h"
#else
typedef Oid RelFileNumber;
#endif

/* 17 gave LockHeldByMe() a third argument. */
#if PG_VERSION_NUM >= 170000
#define LockHeldByMeCompat(tag, mode) LockHeldByMe(tag, mode, true)
#else
#define LockHeldByMeCompat(tag, mode) LockHeldByMe(tag, mode)
#endif

/* 16 moved the macros of variable-length values out of postgres.h. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 16 moved the file's identity from rd_node to rd_locator. */
#if PG_VERSION_NUM >= 160000
#define RelationFileNumberCompat(rel) ((rel)->rd_locator.relNumber)
#else
#define RelationFileNumberCompat(rel) ((rel)->rd_node.relNode)
#endif

/* 17 passes the relation where 15 and 16 passed its OID. */
#if PG_VERSION_NUM >= 170000
#define IdentitySequenceCompat(rel, attnum) getIdentitySequence(rel, attnum, true)
#else
#define IdentitySequenceCompat(rel, attnum) getIdentitySequence(RelationGetRelid(rel), attnum, true)
#endif

/* 18 gave index_beginscan() a place for counters, 19 one for scan options. */
#if PG_VERSION_NUM >= 190000
#define IndexBeginScanCompat(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0, SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define IndexBeginScanCompat(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define IndexBeginScanCompat(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#endif

/* 19 gave table_beginscan() a place for scan options. */
#if PG_VERSION_NUM >= 190000
#define TableBeginScanCompat(rel, snapshot) table_beginscan(rel, snapshot, 0, NULL, SO_NONE)
#else
#define TableBeginScanCompat(rel, snapshot) table_beginscan(rel, snapshot, 0, NULL)
#endif

/* 18 has generated columns that are not stored. */
#if PG_VERSION_NUM >= 180000
#define AttributeIsVirtual(att) ((att)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#else
#define AttributeIsVirtual(att) false
#endif

/* 18 asks whether a deferrable primary key will do. */
#if PG_VERSION_NUM >= 180000
#define PrimaryKeyIndexCompat(rel) RelationGetPrimaryKeyIndex(rel, false)
#else
#define PrimaryKeyIndexCompat(rel) RelationGetPrimaryKeyIndex(rel)
#endif

/* 18 has NOT NULL constraints that are not validated yet. */
#if PG_VERSION_NUM >= 180000
#define AttributeIsNotNull(desc, i) (TupleDescCompactAttr(desc, i)->attnullability == ATTNULLABLE_VALID)
#else
#define AttributeIsNotNull(desc, i) (TupleDescAttr(desc, i)->attnotnull)
#endif

/* 18 says noreturn before the declaration, and by another name. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 16 can return what a sort holds without a copy. */
#if PG_VERSION_NUM >= 160000
#define TuplesortGetDatumCompat(state, value, isnull) tuplesort_getdatum(state, true, true, value, isnull, NULL)
#else
#define TuplesortGetDatumCompat(state, value, isnull) tuplesort_getdatum(state, true, value, isnull, NULL)
#endif

/* 17 gives wait event sets a resource owner instead of a memory context. */
#if PG_VERSION_NUM >= 170000
#define CreateWaitEventSetCompat(nevents) CreateWaitEventSet(NULL, nevents)
#else
#define CreateWaitEventSetCompat(nevents) CreateWaitEventSet(TopMemoryContext, nevents)
#endif

/* 19 keeps the names of lock tranches in shared memory. */
#if PG_VERSION_NUM >= 190000
#define NewTrancheCompat(name) LWLockNewTrancheId(name)
#define RegisterTrancheCompat(id, name) ((void) 0)
#else
#define NewTrancheCompat(name) LWLockNewTrancheId()
#define RegisterTrancheCompat(id, name) LWLockRegisterTranche(id, name)
#endif

/* 19 shows the planner what EXPLAIN wants. */
#if PG_VERSION_NUM >= 190000
#define PLANNER_HOOK_PARAMETERS Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams, struct ExplainState *es
#define PLANNER_HOOK_ARGUMENTS parse, query_string, cursorOptions, boundParams, es
#else
#define PLANNER_HOOK_PARAMETERS Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams
#define PLANNER_HOOK_ARGUMENTS parse, query_string, cursorOptions, boundParams
#endif

/* 17 calls the locale of a database so whose provider is not libc. */
#if PG_VERSION_NUM < 170000
#define Anum_pg_database_datlocale Anum_pg_database_daticulocale
#endif

/* Until 17 it was said whether the default came with its column. */
#if PG_VERSION_NUM >= 180000
#define StoreAttrDefaultCompat(rel, attnum, expr) StoreAttrDefault(rel, attnum, expr, true)
#else
#define StoreAttrDefaultCompat(rel, attnum, expr) StoreAttrDefault(rel, attnum, expr, true, false)
#endif

/* Until 17 a portal was told that it is run once. */
#if PG_VERSION_NUM >= 180000
#define PortalRunCompat(portal, dest, completion) \
	PortalRun(portal, FETCH_ALL, true, dest, dest, completion)
#else
#define PortalRunCompat(portal, dest, completion) \
	PortalRun(portal, FETCH_ALL, true, true, dest, dest, completion)
#endif

/* 16 lets what is called back from the parser of JSON report an error. */
#if PG_VERSION_NUM >= 160000
#define JsonActionResult JsonParseErrorType
#define JSON_ACTION_DONE JSON_SUCCESS
#else
#define JsonActionResult void
#define JSON_ACTION_DONE
#endif

/* 17 can put the state of that parser where the caller wants it. */
#if PG_VERSION_NUM >= 170000
#define MakeJsonLexContextCompat(json, length) \
	makeJsonLexContextCstringLen(NULL, json, length, PG_UTF8, true)
#else
#define MakeJsonLexContextCompat(json, length) \
	makeJsonLexContextCstringLen(json, length, PG_UTF8, true)
#endif

#endif							/* INCSINK_COMPAT_H */
