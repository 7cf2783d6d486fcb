/*
 * row_filter.h
 *		Row filters: boolean expressions over one row, as PUBLICATION has them.
 */
#ifndef INCSINK_ROW_FILTER_H
#define INCSINK_ROW_FILTER_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/rel.h"

/*
 * Parses and checks a filter over the rows of "rel", which must be open.  Returns
 * it as a list of conditions that must all hold, with names resolved in
 * pg_catalog only.  Raises an ERROR for bad syntax, unknown columns and whatever a
 * filter may not hold: functions that are not immutable and built in, types,
 * operators and collations of users, subqueries, aggregates, system columns.
 */
extern List *ParseRowFilter(Relation rel, const char *filter);

#endif							/* INCSINK_ROW_FILTER_H */
