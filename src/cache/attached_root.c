/*
 * attached_root.c
 *		The attached tree that a table is in.
 *
 * Hooks ask for every statement that writes to a partitioned table or a leaf, so
 * answers are kept.  No ancestor is locked: the catalog is read, not the relcache,
 * whose entries need a lock to be built.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "cache/relation_watch.h"
#include "cache/tree.h"
#include "cache/truncate_guard.h"
#include "common/hash.h"

/* An answer that was given. */
typedef struct RootEntry
{
	Oid			relid;			/* hash key */
	Oid			root;			/* InvalidOid: in no attached tree */
	uint64		changes;		/* good while WatchedChanges() is the same */
} RootEntry;

static HTAB *roots = NULL;

/* Does the relation have our TRUNCATE guard? */
static bool
HasGuard(Oid relid)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	NameData	name;
	ScanKeyData keys[2];
	SysScanDesc scan;
	bool		found;

	namestrcpy(&name, TRUNCATE_BEFORE_TRIGGER);
	ScanKeyInit(&keys[0], Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_trigger_tgname, BTEqualStrategyNumber, F_NAMEEQ,
				NameGetDatum(&name));
	scan = systable_beginscan(catalog, TriggerRelidNameIndexId, true, NULL, 2, keys);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

/*
 * InvalidOid for one that has none (any more).  The server's get_partition_parent()
 * raises an ERROR then, which a concurrent DETACH must not bring about.
 */
static Oid
ParentOf(Oid relid)
{
	Relation	catalog = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			parent = InvalidOid;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, InheritsRelidSeqnoIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		parent = ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent;
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return parent;
}

Oid
TopmostAncestor(Oid relid)
{
	while (get_rel_relispartition(relid))
	{
		Oid			parent = ParentOf(relid);

		if (!OidIsValid(parent))
			break;
		relid = parent;
	}
	return relid;
}

/* Goes up from the relation; children of ordinary inheritance end at once. */
static Oid
FindRoot(Oid relid)
{
	while (OidIsValid(relid))
	{
		WatchRelation(relid);
		if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE && HasGuard(relid))
			return relid;
		relid = get_rel_relispartition(relid) ? ParentOf(relid) : InvalidOid;
	}
	return InvalidOid;
}

Oid
AttachedRoot(Oid relid)
{
	RootEntry  *entry;
	bool		found;
	uint64		changes;
	Oid			root;

	if (roots == NULL)
		roots = MakeHash("incsink attached roots", sizeof(Oid), sizeof(RootEntry));
	entry = hash_search(roots, &relid, HASH_FIND, NULL);
	if (entry && entry->changes == WatchedChanges())
		return entry->root;
	changes = WatchedChanges();
	root = FindRoot(relid);
	entry = hash_search(roots, &relid, HASH_ENTER, &found);
	entry->root = root;
	entry->changes = changes;
	return root;
}
