/*
 * delivery_clone.pml
 *		A database and its clone, which send to one receiver.
 *
 * The clone is made at any moment (a template, a backup, a copy of the disk): it has the
 * same watermark, epoch and intent.  Rows that appear later are other rows in each.
 * The clone exports nothing before somebody calls incsink_adopt_database() there
 * (CompareIdentity()); then it finishes the intent that it inherited, and goes on in an
 * epoch of its own.  Each database is one delivery, one batch at a time; the network
 * is as in delivery.pml without stragglers: what they add is seen there.
 *	 LEDGER_UNTIL	the receiver keeps the highest until of an epoch, not ids
 *	 DELETES		of rows that are in the intent which both have
 */
#ifndef ROWS
#define ROWS 2
#endif
#ifndef DELETES
#define DELETES 0
#endif

#define BIT(row) (1 << ((row) - 1))
#define UPTO(row) ((1 << (row)) - 1)
#define RANGE(since, until) (UPTO(until) & ~UPTO(since))

#define ORIGINAL 0
#define CLONE 1

#define EPOCHS 3				/* 1, and what the clone's adoption draws: 2 */

typedef Database
{
	bit			there;
	bit			adopted;		/* it may export */
	byte		drawn;			/* rows so far */
	byte		common;			/* those of them that both have */
	byte		rows;
	byte		epoch;
	byte		wanted;
	byte		start;
	byte		mark;
	byte		intent;			/* its id, 0 = none */
	byte		until;
	bit			sure;			/* the receiver has answered with success */
};

Database	db[2];
byte		nonces;

/*
 * The receiver, by epoch: rows that both have are the same rows (shared), the others
 * belong to one database.
 */
byte		stored_shared[EPOCHS];
byte		stored_own[6];		/* index: database * 3 + epoch */
short		ledger;
byte		highest[EPOCHS];
byte		deletes;

#ifdef NO_NONCE
/* made of sink, epoch, partition and range alone */
#define DRAW_ID(me) (1 + db[me].mark * 3 + to + (db[me].epoch - 1) * 12)
#else
#define DRAW_ID(me) (nonces + 1)
#endif

#ifdef LEDGER_UNTIL
#define IS_KNOWN(me) (highest[db[me].epoch] >= db[me].until)
#else
#define IS_KNOWN(me) ((ledger & (1 << db[me].intent)) != 0)
#endif

#ifdef NO_INSTANCE_FENCE
#define MAY_EXPORT(me) db[me].there
#else
#define MAY_EXPORT(me) (db[me].there && db[me].adopted)
#endif

inline check(me)
{
#ifdef P_NO_LOSS
	/* of rows after the epoch's start; shared ones may have come in the epoch before */
	assert((db[me].rows & UPTO(db[me].common) & RANGE(db[me].start, db[me].mark) & ~stored_shared[db[me].epoch]) == 0);
	assert((db[me].rows & RANGE(db[me].common, db[me].mark) & RANGE(db[me].start, db[me].mark) & ~stored_own[me * 3 + db[me].epoch]) == 0);
#endif
	skip
}

inline store(me)
{
	body = db[me].rows & RANGE(db[me].mark, db[me].until);
	shared = body & UPTO(db[me].common);
	body = body & ~UPTO(db[me].common);
#ifdef P_NO_DUPLICATE
	assert((shared & stored_shared[db[me].epoch]) == 0);
	assert((body & stored_own[me * 3 + db[me].epoch]) == 0);
#endif
	stored_shared[db[me].epoch] = stored_shared[db[me].epoch] | shared;
	stored_own[me * 3 + db[me].epoch] = stored_own[me * 3 + db[me].epoch] | body;
	ledger = ledger | (1 << db[me].intent);
	highest[db[me].epoch] = (highest[db[me].epoch] > db[me].until -> highest[db[me].epoch] : db[me].until);
	body = 0;
	shared = 0
}

proctype Delivery(byte me)
{
	byte		to, body, shared;

end:
	do
	/* a row is committed */
	:: d_step
		{
			db[me].there && db[me].drawn < ROWS ->
			db[me].drawn++;
			db[me].rows = db[me].rows | BIT(db[me].drawn);
			if
			:: !db[CLONE].there -> db[me].common = db[me].drawn
			:: else
			fi
		}
	/* CutStep() */
	:: atomic
		{
			MAY_EXPORT(me) && db[me].intent == 0 && db[me].mark < db[me].drawn ->
			if
			:: db[me].epoch != db[me].wanted -> db[me].epoch = db[me].wanted; db[me].start = db[me].mark
			:: else
			fi;
			select(to : db[me].mark + 1 .. db[me].drawn);
			skip;
			d_step
			{
				db[me].intent = DRAW_ID(me);
				nonces++;
				db[me].until = to;
				db[me].sure = 0;
				to = 0
			}
		}
	/* An attempt: known, or stored; the answer may be lost, so it can come again. */
	:: atomic
		{
			MAY_EXPORT(me) && db[me].intent && !db[me].sure ->
			if
			:: (db[me].rows & RANGE(db[me].mark, db[me].until)) == 0
			:: else ->
				if
				:: IS_KNOWN(me) ->
#ifdef COVER_KNOWN_CLONE
					assert(me == ORIGINAL);
#endif
					skip
				:: else -> store(me)
				fi
			fi;
			if
			:: db[me].sure = 1
			:: true
			fi
		}
	/* AcknowledgeIntent() */
	:: d_step
		{
			db[me].intent && db[me].sure ->
			db[me].mark = db[me].until;
			db[me].intent = 0;
			db[me].until = 0;
			db[me].sure = 0;
			check(me)
#ifdef COVER_BOTH_DONE
			;
			assert(me == ORIGINAL || db[ORIGINAL].mark < ROWS || db[CLONE].mark < ROWS)
#endif
		}
#if DELETES
	:: d_step
		{
			deletes < DELETES && db[me].there && (db[me].rows & RANGE(db[me].mark, db[me].until)) ->
			deletes++;
			db[me].rows = db[me].rows & ~BIT(db[me].until)
		}
#endif
	od
}

proctype World()
{
end:
	do
	/* whatever the worker has in memory does not come along */
	:: d_step
		{
			!db[CLONE].there ->
			db[CLONE].there = 1;
			db[CLONE].drawn = db[ORIGINAL].drawn;
			db[CLONE].common = db[ORIGINAL].common;
			db[CLONE].rows = db[ORIGINAL].rows;
			db[CLONE].epoch = db[ORIGINAL].epoch;
			db[CLONE].wanted = db[ORIGINAL].wanted;
			db[CLONE].start = db[ORIGINAL].start;
			db[CLONE].mark = db[ORIGINAL].mark;
			db[CLONE].intent = db[ORIGINAL].intent;
			db[CLONE].until = db[ORIGINAL].until
		}
	/* AdoptDatabase() */
	:: d_step
		{
			db[CLONE].there && !db[CLONE].adopted ->
			db[CLONE].adopted = 1;
#ifndef NO_NEW_EPOCH
			db[CLONE].wanted = 2
#endif
		}
	od
}

init
{
	atomic
	{
		db[ORIGINAL].there = 1;
		db[ORIGINAL].adopted = 1;
		db[ORIGINAL].epoch = 1;
		db[ORIGINAL].wanted = 1;
		run Delivery(ORIGINAL);
		run Delivery(CLONE);
		run World()
	}
}
