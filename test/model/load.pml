/*
 * load.pml
 *		The horizon moves under a load that never pauses.
 *
 * Writers follow each other for ever, so the numbers never end.  One row is watched: of
 * S, of a candidate and of the horizon it is only known whether they are at or above the
 * row's number.  The rest is as in horizon.pml.
 *
 * Guards: NO_KEPT_CANDIDATES, NO_ROOM_FROM_NEWEST.
 */

#define CANDIDATES	2			/* HORIZON_CANDIDATES, 8 */
#define WRITERS		2			/* beside the transaction of the row that is watched */
#define WATCHED		WRITERS

#define ADD(set, t)		set = (set) | (1 << (t))
#define TAKE(set, t)	set = (set) & (255 - (1 << (t)))

byte locks;						/* who holds the lock on the sequence */
bool drawn;						/* S is at or above the row's number */
bool news;						/* S is above the newest candidate or the horizon */

byte count;
bool covers[CANDIDATES];		/* at or above the row's number */
byte holders[CANDIDATES];
bool horizon_covers;

/* Whoever ends is crossed out at once: all that is asked of a holder is that. */
inline end_transaction(t)
{
	d_step {
		TAKE(locks, t);
		TAKE(holders[0], t);
		TAKE(holders[1], t);
		TAKE(collected, t)
	}
}

byte collected;					/* holders of the candidate that is being made */

proctype Writer(byte t)
{
	do
	:: ADD(locks, t);
		news = true;			/* it draws */
		end_transaction(t)
	od
}

proctype WatchedWriter()
{
	ADD(locks, WATCHED);
	d_step { drawn = true; news = true };
	end_transaction(WATCHED)
}

inline drop_first()
{
	covers[0] = covers[1];
	holders[0] = holders[1];
	covers[1] = false;
	holders[1] = 0;
	count--
}

/* PromoteCandidates(): the highest whose holders have all ended. */
inline promote_candidates()
{
	d_step {
		if
		:: count == 2 && holders[1] == 0 ->
			horizon_covers = horizon_covers || covers[1];
			drop_first();
			drop_first()
		:: else ->
			if
			:: count > 0 && holders[0] == 0 ->
				horizon_covers = horizon_covers || covers[0];
				drop_first()
			:: else -> skip
			fi
		fi
	}
}

/* AddCandidate(): when there are too many the newest makes room. */
inline make_room()
{
	if
	:: count == CANDIDATES ->
#ifdef NO_ROOM_FROM_NEWEST
		drop_first()
#else
		count--
#endif
	:: else -> skip
	fi
}

/* HorizonAdvance(), once a turn. */
proctype Worker()
{
	bool S_covers, has_news;

	do
	:: promote_candidates();
		d_step { S_covers = drawn; has_news = news; news = false };
		if
		:: has_news ->
			collected = locks;
			d_step {
				make_room();
				covers[count] = S_covers;
				holders[count] = collected;
				collected = 0;
				count++
			};
			promote_candidates();
#ifdef NO_KEPT_CANDIDATES
			d_step {
				do
				:: count > 0 -> drop_first()
				:: else -> break
				od;
				skip
			}
#endif
		:: else -> skip
		fi
	od
}

init
{
	atomic {
		run Writer(0);
		run Writer(1);
		run WatchedWriter();
		run Worker()
	}
}

/* Every transaction ends: then the row is below the horizon one day. */
ltl horizon_moves { <> horizon_covers }
