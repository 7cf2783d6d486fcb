/*
 * number_scan.h
 *		Rows with numbers, in the order of the numbers.
 *
 * One scan of the index on the numbers for an ordinary table; a merge of one scan a
 * leaf for a tree.
 */
#ifndef INCSINK_NUMBER_SCAN_H
#define INCSINK_NUMBER_SCAN_H

#include "postgres.h"

#include "cache/open_storage.h"
#include "catalog/partition.h"

typedef struct NumberScan NumberScan;

/*
 * Before the first of the rows in (since, until].  "root" is the partition's relation,
 * open and locked.  Opens and locks what holds the rows, as told waiting or not, and
 * takes the snapshot after that; sets *scan if the status is READER_OK.  Everything
 * lives in CurrentMemoryContext.
 */
extern ReaderStatus NumberScanOpen(const Partition *partition, Relation root, bool wait,
								   int64 since, int64 until, NumberScan **scan);

/*
 * The next row, in the shape of the partition and good until the next call, and its
 * number; NULL at the end.
 */
extern TupleTableSlot *NumberScanNext(NumberScan *scan, int64 *seq);

/*
 * Has the row after the last one the same number?  Only in trees, where nothing keeps
 * numbers apart.
 */
extern bool NumberScanIsTied(NumberScan *scan);

extern void NumberScanClose(NumberScan *scan);

#endif							/* INCSINK_NUMBER_SCAN_H */
