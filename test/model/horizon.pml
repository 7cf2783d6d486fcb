/*
 * horizon.pml
 *		No committed row is passed over: writers, the sequence they draw from, WAL and
 *		crashes as PostgreSQL has them, and the two readers of incsink.
 *
 * A transaction t inserts one row, with the number num[t].  Sets of transactions are
 * bits of a byte.  Everything that another process can see between two steps is a step
 * of its own; d_step is what the server does under one lock, or what nobody can see.
 *
 * Properties are switched on by P_..., guards off by NO_..., see the table "properties".
 * What a run contains:
 *
 *	TXNS=n		transactions (3), each of a session of its own: one that begins when another
 *				has ended may as well be of the same
 *	SAVEPOINT	transactions may draw, ROLLBACK TO a savepoint, and draw again
 *	PREPARE=n	the first n transactions may PREPARE
 *	SESSION		a session reads by incsink_read_since(), beside the worker, or ALONE
 *	OWN			it may do so in transaction 0, which has drawn
 *	CRASH		the server crashes once; commits may be asynchronous
 */

#ifndef TXNS
#define TXNS 3
#endif
#ifndef PREPARE
#define PREPARE 0
#endif

#define CANDIDATES	2			/* HORIZON_CANDIDATES, 8 */
#define SEQ_AHEAD	1			/* SEQ_LOG_VALS, 32: numbers that one WAL record covers ahead */

#define IN(set, t)		(((set) >> (t)) & 1)
#define ADD(set, t)		set = (set) | (1 << (t))
#define TAKE(set, t)	set = (set) & (255 - (1 << (t)))
#define LESS(set, other) ((set) & (255 - (other)))

/* Each property is asserted at its places only if it is the one that is checked. */
#ifdef P_NOTHING_ABOVE_HORIZON
#define nothing_above_horizon(e) assert(e)
#else
#define nothing_above_horizon(e) skip
#endif
#ifdef P_NO_LOSS
#define no_loss(e) assert(e)
#else
#define no_loss(e) skip
#endif
#ifdef P_NO_DUPLICATE
#define no_duplicate(e) assert(e)
#else
#define no_duplicate(e) skip
#endif
#ifdef P_NO_PHANTOM
#define no_phantom(e) assert(e)
#else
#define no_phantom(e) skip
#endif
#ifdef P_IN_ORDER
#define in_order(e) assert(e)
#else
#define in_order(e) skip
#endif
#ifdef P_TOKEN_SURVIVES
#define token_survives(e) assert(e)
#else
#define token_survives(e) skip
#endif
#ifdef P_SAME_RANGE
#define same_range(e) assert(e)
#else
#define same_range(e) skip
#endif
#ifdef P_NO_FALSE_ALARM
#define no_false_alarm(e) assert(e)
#else
#define no_false_alarm(e) skip
#endif

/* That these are reached shows that the properties say something. */
#ifdef COVER_PROMOTED_UNDER_LOAD
#define cover_promoted_under_load(e) assert(!(e))
#else
#define cover_promoted_under_load(e) skip
#endif
#ifdef COVER_NUMBER_AGAIN
#define cover_number_again(e) assert(!(e))
#else
#define cover_number_again(e) skip
#endif
#ifdef COVER_NUMBERS_SKIPPED
#define cover_numbers_skipped(e) assert(!(e))
#else
#define cover_numbers_skipped(e) skip
#endif
#ifdef COVER_RETRY_AFTER_CRASH
#define cover_retry_after_crash(e) assert(!(e))
#else
#define cover_retry_after_crash(e) skip
#endif
#ifdef COVER_OUT_OF_ORDER
#define cover_out_of_order(e) assert(!(e))
#else
#define cover_out_of_order(e) skip
#endif
#ifdef COVER_PREPARED_DELIVERED
#define cover_prepared_delivered(e) assert(!(e))
#else
#define cover_prepared_delivered(e) skip
#endif

/* ------------------------------------------------------------------ PostgreSQL */

mtype = { NONE, OPEN, PREPARED, COMMITTING, COMMITTED, ENDED };		/* ENDED: rolled back or lost */
mtype = { SEQ_LOG, COMMIT, INTENT, WATERMARK, HORIZON };			/* WAL records */

mtype phase[TXNS] = NONE;
byte num[TXNS];					/* 0: no row (yet, or any more) */
byte locks;						/* who holds RowExclusiveLock on the sequence */
byte prepared;					/* those of them that are prepared: no session has them */
byte visible;					/* whose rows a snapshot taken now sees */
#ifdef COVER_PREPARED_DELIVERED
byte second_phase;				/* who was prepared once */
#endif

/* The one tuple of the sequence, in shared buffers. */
byte last_value = 1;
bool is_called = false;
byte log_cnt = 0;

/* Whom a reader takes for one that has drawn. */
#if defined(NO_SEQUENCE_LOCK) || defined(NO_LOCK_WITHOUT_XID)
#define INSERT_IS_SEEN
byte counted;
#else
#define counted locks
#endif

#ifdef NO_CACHE_OF_ONE
byte cached[TXNS];				/* by session: a number drawn in advance */
#endif

/* Scratch of d_steps, and only of those: 0 again behind each. */
byte i, x, low;
mtype kind;

#ifdef CRASH
/* WAL that is not flushed yet, in order, and what recovery would find now. */
#ifdef NO_INTENT_FLUSH
#define WAL_RECORDS	(4 * TXNS)
#else
#define WAL_RECORDS	(2 * TXNS)	/* one more would be an error, "block in d_step" */
#endif
chan wal = [WAL_RECORDS] of { mtype, byte };
byte durable;					/* whose commits are flushed */
byte durable_seq;				/* last SEQ_LOG flushed; 0: none, never called */
byte durable_intent, durable_watermark;
bool crashed = false;
bool down[2];					/* a reader that has to begin anew */
#define insert_wal(k, v)	wal!k(v)
#else
#define insert_wal(k, v)	skip
#endif

/* ------------------------------------------------------------------ incsink */

typedef Tracker
{
	byte horizon;
	byte count;					/* candidates, in rising order */
	byte seq[CANDIDATES];
	byte holders[CANDIDATES];
};

#define WORKER	0
#define READER	1
Tracker tracker[2];				/* in memory: gone with a crash */

byte recorded;					/* recorded_horizon of partition_state */
byte highest;					/* highest_seq of partition_state */
byte intent;					/* its until; 0: none */
byte intent_rows;				/* what its first body held */
byte watermark;

/* The receiver of the sink. */
byte stored;
byte received;					/* until of its last batch */
bool knows_batch;				/* it has stored the intent that is in flight */

/* The consumer of incsink_read_since(), outside of the server. */
byte got;
byte token;
#ifdef OWN
bool in_call;					/* transaction 0 is in incsink_read_since() */
#endif

/* ------------------------------------------------------------------ WAL */

/* XLogFlush(), up to the last record. */
inline flush_wal()
{
#ifdef CRASH
	do
	:: nempty(wal) -> flush_record()
	:: empty(wal) -> break
	od;
	skip
#else
	skip
#endif
}

#ifdef CRASH
inline flush_record()
{
	wal?kind,x;
	if
	:: kind == SEQ_LOG -> durable_seq = x
	:: kind == COMMIT -> ADD(durable, x)
	:: kind == INTENT -> durable_intent = x
	:: kind == WATERMARK -> durable_watermark = x; durable_intent = 0
	:: else -> skip
	fi;
	x = 0;
	kind = 0
}
#endif

/* ------------------------------------------------------------------ writers */

/* A row becomes visible: from now on it must still be ahead of everybody. */
inline row_appears(t)
{
	cover_out_of_order((visible >> (t + 1)) != 0 && num[t] < last_value);
	ADD(visible, t);
	nothing_above_horizon(num[t] > tracker[WORKER].horizon);
	nothing_above_horizon(num[t] > tracker[READER].horizon);
	nothing_above_horizon(num[t] > recorded);
	no_loss(num[t] > watermark && num[t] > token)
}

/*
 * The lock is the top transaction's: taken at its first nextval(), before it draws.
 * IN_TURN: where the transactions are all alike, it is the first that begins first.
 */
#ifdef IN_TURN
#define MAY_BEGIN(t)	(t == 0 || phase[t - 1] != NONE)
#else
#define MAY_BEGIN(t)	true
#endif

inline lock_sequence(t)
{
	d_step {
		MAY_BEGIN(t);
		phase[t] = OPEN;
		ADD(locks, t)
	}
}

/* nextval(), under the buffer's lock.  It takes an xid only when it writes WAL. */
inline draw(t, session)
{
	d_step {
#ifdef NO_CACHE_OF_ONE
		if
		:: cached[session] != 0 ->
			num[t] = cached[session];
			cached[session] = 0
		:: else ->
			num[t] = (is_called -> last_value + 1 : last_value);
			cached[session] = num[t] + 1;
			last_value = num[t] + 1;
			is_called = true
		fi
#else
		num[t] = (is_called -> last_value + 1 : last_value);
		if
		:: !is_called || log_cnt == 0 ->
			insert_wal(SEQ_LOG, num[t] + SEQ_AHEAD);
			log_cnt = SEQ_AHEAD;
#ifdef NO_LOCK_WITHOUT_XID
			ADD(counted, t)
#endif
		:: else ->
			log_cnt--
		fi;
		last_value = num[t];
		is_called = true
#endif
	}
}

#ifdef INSERT_IS_SEEN
/* The row is inserted: an xid and the table's lock, at the latest now. */
#define insert_row(t)	ADD(counted, t);
#else
#define insert_row(t)
#endif

/* The lock survives it; the session does not take it again in this transaction. */
inline roll_back_to_savepoint(t)
{
	d_step {
		num[t] = 0;
#ifdef NO_LOCK_OF_TOP_TRANSACTION
		TAKE(locks, t)
#endif
	}
}

inline release_locks(t)
{
	TAKE(prepared, t);
#ifdef INSERT_IS_SEEN
	TAKE(counted, t);
#endif
	TAKE(locks, t);
	cross_out(WORKER, t);
	cross_out(READER, t)
}

/*
 * All that is asked of a holder is whether it has ended.  It is taken out of the
 * candidates when it ends, not when it is asked: the fewer states.
 */
inline cross_out(r, t)
{
#ifndef NO_FOLLOWING_OF_PREPARED
	TAKE(tracker[r].holders[0], t);
	TAKE(tracker[r].holders[1], t)
#else
	skip
#endif
}

inline abort(t)
{
	d_step {
		phase[t] = ENDED;
		num[t] = 0;
		release_locks(t)
	}
}

/* The record is in WAL, and flushed unless the commit is asynchronous. */
inline insert_commit(t, synchronous)
{
	d_step {
		phase[t] = COMMITTING;
		insert_wal(COMMIT, t);
		if
		:: synchronous -> flush_wal()
		:: else -> skip
		fi
	}
}

/* Without a crash to fear it is no step. */
#ifdef CRASH
#define write_commit(t, synchronous)	insert_commit(t, synchronous);
#else
#define write_commit(t, synchronous)
#endif

/* First the row is visible, then the locks are released (CommitTransaction()). */
inline finish_commit(t)
{
#ifdef NO_VISIBLE_BEFORE_UNLOCK
	d_step { release_locks(t) };
	d_step { row_appears(t); phase[t] = COMMITTED }
#else
	d_step { row_appears(t) };
	d_step { phase[t] = COMMITTED; release_locks(t) }
#endif
}

/* Always flushed.  The session is free; the transaction goes on without one. */
inline prepare(t)
{
	d_step {
		phase[t] = PREPARED;
		ADD(prepared, t);
#ifdef COVER_PREPARED_DELIVERED
		ADD(second_phase, t);
#endif
		flush_wal()
	}
}

#define HAS_ENDED(t)	(phase[t] == COMMITTED || phase[t] == ENDED)

proctype Writer(byte session, first, last)
{
	byte t = first;
	bool again = false;			/* it has rolled back to its savepoint */

	do
	:: t <= last ->
		{
			lock_sequence(t);
draw_number:
			draw(t, session);
			insert_row(t)
#ifdef OWN
			!(t == 0 && in_call);
#endif
			if
			:: abort(t)
			:: write_commit(t, true) finish_commit(t)
#ifdef CRASH
			:: write_commit(t, false) finish_commit(t)
#endif
#if PREPARE
			:: t < PREPARE -> prepare(t)
#endif
#ifdef SAVEPOINT
			:: !again ->
				roll_back_to_savepoint(t);
				again = true;
				goto draw_number
#endif
			fi
		}
#ifdef CRASH
		unless { HAS_ENDED(t) };
#endif
		d_step { t++; again = false }
	:: else -> break
	od
}

/* COMMIT PREPARED or ROLLBACK PREPARED by whoever, at any time; both are flushed. */
proctype SecondPhase(byte t)
{
end:
	phase[t] == PREPARED;
	{
		if
		:: write_commit(t, true) finish_commit(t)
		:: abort(t)
		fi
	}
#ifdef CRASH
	unless { HAS_ENDED(t) }
#endif
}

/* ------------------------------------------------------------------ the horizon */

#ifdef NO_IS_CALLED
#define LAST_DRAWN	last_value
#else
#define LAST_DRAWN	(is_called -> last_value : last_value - 1)
#endif

#define NEWEST(r)	(tracker[r].count > 0 -> tracker[r].seq[tracker[r].count - 1] : tracker[r].horizon)

#ifdef NO_FOLLOWING_OF_PREPARED
/*
 * A holder is known as a session's transaction (the low half) or as a prepared one (the
 * high half); the former has ended for its session when it is prepared.
 */
#define ALIVE(holders)		((LESS(holders & 15, prepared) | (holders >> 4)) & counted)
#define AS_PREPARED(set)	((set) << 4)
#else
/* VirtualXactLock() finds a transaction that was prepared after it was noted. */
#define ALIVE(holders)		((holders) & counted)
#define AS_PREPARED(set)	(set)
#endif

/* The main lock table, where the locks of prepared transactions are. */
inline look_at_prepared()
{
#ifndef NO_PREPARED_HOLDERS
	holders = holders | AS_PREPARED(counted & prepared)
#else
	skip
#endif
}

/*
 * Fast-path slots: with ONE_BY_ONE each session is looked at in a step of its own, as
 * the server does; else all are at once.
 */
inline look_at_sessions()
{
#ifdef ONE_BY_ONE
	do
	:: t < TXNS ->
		d_step {
			if
			:: IN(LESS(counted, prepared), t) -> ADD(holders, t)
			:: else -> skip
			fi;
			t++
		}
	:: else -> break
	od;
	t = 0
#else
	holders = holders | LESS(counted, prepared)
#endif
}

/*
 * GetLockConflicts(): the sessions, then the main table.  A lock goes from the former
 * to the latter at PREPARE, never back.  The own transaction is not among them, and is
 * added.
 */
inline collect_holders(own)
{
#ifdef NO_MAIN_TABLE_LAST
	look_at_prepared();
	look_at_sessions()
#elif PREPARE
	look_at_sessions();
	look_at_prepared()
#else
	look_at_sessions()
#endif
#ifdef NO_OWN_TRANSACTION
	;
	holders = LESS(holders, own)
#endif
}

/* The highest candidate whose holders have all ended.  (They stay ended: one step.) */
inline promote_candidates(r)
{
	i = tracker[r].count;
	do
	:: i > 0 && ALIVE(tracker[r].holders[i - 1]) != 0 -> i--
	:: else -> break
	od;
	if
	:: i > 0 ->
		tracker[r].horizon = tracker[r].seq[i - 1];
		cover_promoted_under_load(i < tracker[r].count && locks != 0);
		drop_candidates(r, i)
	:: else -> skip
	fi;
	i = 0
}

inline drop_candidates(r, n)
{
	x = 0;
	do
	:: x < CANDIDATES ->
		if
		:: x + n < tracker[r].count ->
			tracker[r].seq[x] = tracker[r].seq[x + n];
			tracker[r].holders[x] = tracker[r].holders[x + n]
		:: else ->
			tracker[r].seq[x] = 0;
			tracker[r].holders[x] = 0
		fi;
		x++
	:: else -> break
	od;
	tracker[r].count = tracker[r].count - n;
	x = 0
}

/* When there are too many the newest makes room. */
inline add_candidate(r)
{
	if
	:: tracker[r].count == CANDIDATES -> tracker[r].count--
	:: else -> skip
	fi;
	tracker[r].seq[tracker[r].count] = S;
	tracker[r].holders[tracker[r].count] = holders;
	tracker[r].count++;
	holders = 0
}

/* A time-out that gives a holder up. */
#ifdef NO_WAIT_FOR_HOLDERS
#define lose_patience(r)	if :: tracker[r].count > 0 -> tracker[r].holders[0] = 0 :: skip fi;
#else
#define lose_patience(r)
#endif

/* The session's bound, and what the worker records after a crash, need S. */
inline forget_reading(r)
{
#ifndef CRASH
	if
	:: r == WORKER -> S = 0
	:: else -> skip
	fi
#else
	skip
#endif
}

/*
 * ReadSequence(), then HorizonAdvance(): S first, then, as a separate step, the holders.
 * What only the process itself sees, or what is asked of those who stay ended, is no
 * step of its own.
 */
inline advance_horizon(r, own)
{
#ifdef NO_S_BEFORE_HOLDERS
	collect_holders(own);
#endif
	atomic {
		S = LAST_DRAWN;
		lose_patience(r)
		d_step { take_known_horizon(r); promote_candidates(r) }
	};
	if
	:: S > NEWEST(r) ->
#ifndef NO_S_BEFORE_HOLDERS
		collect_holders(own);
#endif
		d_step { add_candidate(r); promote_candidates(r); forget_reading(r) }
	:: else -> d_step { forget_reading(r) }
	fi
}

/* ------------------------------------------------------------------ reading */

/* A snapshot; in the own transaction it sees the own row, too. */
inline take_snapshot(own)
{
	seen = visible | own
}

/* The rows of (since, until] that the snapshot sees; the lowest alone if limited. */
inline scan(since, until)
{
	rows = 0;
	i = 0;
	do
	:: i < TXNS ->
		if
#ifdef NO_HALF_OPEN_RANGE
		:: IN(seen, i) && num[i] >= since && num[i] <= until -> ADD(rows, i)
#else
		:: IN(seen, i) && num[i] > since && num[i] <= until -> ADD(rows, i)
#endif
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	seen = 0;
	t = 0
}

/* The batch ends behind its first row, in the order of the index. */
inline cut_behind_first()
{
	low = 255;
	i = 0;
	do
	:: i < TXNS ->
		if
#ifdef NO_ORDER_OF_NUMBERS
		:: IN(rows, i) -> low = num[i]			/* whatever comes first in the heap */
#else
		:: IN(rows, i) && num[i] < low -> low = num[i]
#endif
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	until = low;
	i = 0;
	do
	:: i < TXNS ->
		if
		:: IN(rows, i) && num[i] != low -> TAKE(rows, i)
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	low = 0
}

/* Is every visible row up to a position among those that the consumer has? */
inline nothing_passed_over(position, has)
{
	i = 0;
	do
	:: i < TXNS ->
		no_loss(!(IN(visible, i) && num[i] <= position) || IN(has, i));
		i++
	:: else -> break
	od;
	i = 0
}

/* Rows come above what came before. */
inline comes_after(set, position)
{
	i = 0;
	do
	:: i < TXNS ->
		in_order(!IN(set, i) || num[i] > position);
		i++
	:: else -> break
	od;
	i = 0
}

/* ------------------------------------------------------------------ the worker */

#define LOWER(a, b)		((a) < (b) -> (a) : (b))
#define HIGHER(a, b)	((a) > (b) -> (a) : (b))

/*
 * The worker takes over what was recorded before it began (HorizonRaise(), with Min():
 * never above the sequence).
 */
inline take_known_horizon(r)
{
	if
	:: r == WORKER && LOWER(recorded, S) > tracker[r].horizon ->
		tracker[r].horizon = LOWER(recorded, S)
	:: else -> skip
	fi
}

/* A commit of the worker is flushed: synchronous_commit is local. */
inline flush_own_commit()
{
#ifndef NO_INTENT_FLUSH
	flush_wal()
#else
	skip
#endif
}

/* RecordHorizon(), for those who come after a crash. */
inline record_horizon()
{
#ifdef CRASH
	no_false_alarm(S >= highest && S >= watermark);
	if
	:: tracker[WORKER].horizon > recorded ->
		recorded = tracker[WORKER].horizon;
		highest = S
	:: else -> skip
	fi
#else
	skip
#endif
}

/*
 * What the turn has found is committed: the horizon's record, and an intent, or a
 * watermark that has moved over numbers without a row.
 */
inline commit_turn()
{
	d_step {
		record_horizon();
		if
		:: rows != 0 ->
			intent = until;
			intent_rows = rows;
			knows_batch = false;
			insert_wal(INTENT, until)
		:: rows == 0 && until > watermark ->
			watermark = until;
			insert_wal(WATERMARK, until);
			nothing_passed_over(watermark, stored)
		:: else -> skip
		fi;
		flush_own_commit()
	}
}

/* A retry, in whatever process, is known to the receiver by its batch id. */
inline send()
{
	d_step {
		if
		:: !knows_batch ->
			no_duplicate((stored & rows) == 0);
			in_order(watermark >= received);
			comes_after(rows, received);
			stored = stored | rows;
			received = until;
			knows_batch = true;
			cover_prepared_delivered(second_phase & rows)
		:: else ->
			cover_retry_after_crash(true)
		fi
	}
}

inline acknowledge()
{
	d_step {
		watermark = until;
		intent = 0;
		intent_rows = 0;
		knows_batch = false;
		insert_wal(WATERMARK, until);
		flush_own_commit();
		nothing_passed_over(watermark, stored)
	}
}

/* What can come between these steps is a crash. */
inline deliver()
{
#ifdef CRASH
	send();
	acknowledge()
#else
	atomic { send(); acknowledge() }
#endif
}

/* After a crash: the intent's range again. */
inline read_intent()
{
	d_step {
		until = intent;
		take_snapshot(0);
		scan(watermark, until);
		same_range(rows == intent_rows)
	}
}

inline read_up_to_horizon(own, since, bound)
{
	atomic {
#ifndef NO_SNAPSHOT_AFTER_HORIZON
		take_snapshot(own);
#endif
		until = bound;
		d_step { scan(since, until) };
		if
		:: skip
		:: (rows & (rows - 1)) != 0 -> d_step { cut_behind_first() }	/* flush_rows, max_rows */
		fi
	}
}

inline forget()
{
	S = 0; t = 0; holders = 0; seen = 0; rows = 0; until = 0
}

/* IsQuiet(): nothing is drawn, nothing waits, nothing is left to read. */
#define QUIET	(intent == 0 && tracker[WORKER].count == 0 && \
				 tracker[WORKER].horizon == LAST_DRAWN && watermark == LAST_DRAWN)

proctype Worker()
{
	byte S, t, holders, seen, rows, until;

end:
	do
	:: {
			!QUIET;
			if
			:: intent != 0 -> read_intent()
			:: else ->
#ifdef NO_SNAPSHOT_AFTER_HORIZON
				take_snapshot(0);
#endif
				advance_horizon(WORKER, 0);
				read_up_to_horizon(0, watermark, tracker[WORKER].horizon);
				commit_turn()
			fi;
			if
			:: intent != 0 -> deliver()
			:: else -> skip
			fi;
			d_step { forget() }
		}
#ifdef CRASH
		unless { down[WORKER] };
		if
		:: down[WORKER] -> d_step { down[WORKER] = false; forget() }
		:: else -> skip
		fi
#endif
	od
}

/* ------------------------------------------------------------------ a session */

/* FindCurrentState(): what the worker found may be ahead of what the session can know. */
inline current_state()
{
	d_step {
		token_survives(token <= S);
		bound = HIGHER(tracker[READER].horizon, tracker[WORKER].horizon);
		bound = LOWER(HIGHER(bound, recorded), S)
	}
}

/* FlushAllWal(), before the first row or token leaves. */
#if defined(CRASH) && !defined(NO_READ_FLUSH)
#define flush_before_rows_leave()	d_step { flush_wal() };
#else
#define flush_before_rows_leave()
#endif

inline hand_out()
{
	no_duplicate((got & rows) == 0);
	no_phantom(LESS(rows, visible) == 0);
	comes_after(rows, token);
	got = got | rows;
	token = HIGHER(token, until);
	nothing_passed_over(token, got)
}

/* May begin in a transaction that has drawn and has more to do. */
inline begin_in_transaction()
{
	if
	:: skip
	:: atomic { phase[0] == OPEN && num[0] != 0 -> in_call = true; own = 1 }
	fi
}

#ifdef OWN
#define begin_call()	begin_in_transaction();
#define end_call()		in_call = false
#else
#define begin_call()
#define end_call()
#endif

proctype Session()
{
	byte S, t, holders, seen, rows, until, bound, own;

end:
	do
	:: {
			token < LAST_DRAWN;
			begin_call()
#ifdef NO_SNAPSHOT_AFTER_HORIZON
			take_snapshot(own);
#endif
			advance_horizon(READER, own);
			current_state();
			read_up_to_horizon(own, token, bound);
			flush_before_rows_leave()
			d_step { hand_out(); forget(); bound = 0; own = 0; end_call() }
		}
#ifdef CRASH
		unless { down[READER] };
		if
		:: down[READER] -> d_step { down[READER] = false; forget(); bound = 0; own = 0 }
		:: else -> skip
		fi
#endif
	od
}

/* ------------------------------------------------------------------ a crash */

#ifdef CRASH
/* Recovery: transactions are committed, prepared, or have never been. */
inline recover_transactions()
{
	x = 0;
	do
	:: x < TXNS ->
		if
		:: phase[x] == NONE || phase[x] == ENDED || phase[x] == PREPARED -> skip
		:: else ->
			if
			:: IN(durable, x) ->
				phase[x] = COMMITTED;
				if
				:: !IN(visible, x) -> row_appears(x)
				:: else -> skip
				fi
			:: else ->
				phase[x] = ENDED;
				TAKE(visible, x);
				num[x] = 0
			fi;
			release_locks(x)
		fi;
		x++
	:: else -> break
	od;
	x = 0
}

/* The last SEQ_LOG record that was flushed is what the sequence stands at. */
inline recover_sequence()
{
	last_value = (durable_seq == 0 -> 1 : durable_seq);
	is_called = (durable_seq != 0);
	log_cnt = 0
}

inline forget_memory(r)
{
	tracker[r].horizon = 0;
	drop_candidates(r, tracker[r].count);
	down[r] = true
}

inline recover_catalog()
{
	intent = durable_intent;
	watermark = durable_watermark;
	if
	:: intent == 0 -> intent_rows = 0; knows_batch = false
	:: else -> skip
	fi
}

proctype Crash()
{
	atomic {
		/* as much as the WAL writer happens to have flushed */
		do
		:: nempty(wal) -> d_step { flush_record() }
		:: break
		od;
		d_step {
			do
			:: nempty(wal) -> wal?kind,x
			:: empty(wal) -> break
			od;
			kind = 0;
			cover_number_again((durable_seq == 0 -> 1 : durable_seq) < last_value);
			cover_numbers_skipped(durable_seq > last_value);
			recover_sequence();
			recover_catalog();
			forget_memory(WORKER);
			forget_memory(READER);
			recover_transactions();
			crashed = true;
			token_survives(token <= LAST_DRAWN && watermark <= LAST_DRAWN);
			no_phantom(LESS(stored | got, visible) == 0)
		}
	}
}
#endif

init
{
	atomic {
#ifdef NO_CACHE_OF_ONE
		run Writer(0, 0, 1); run Writer(1, 2, 2);
#else
		run Writer(0, 0, 0); run Writer(1, 1, 1);
#if TXNS > 2
		run Writer(2, 2, 2);
#endif
#if TXNS > 3
		run Writer(3, 3, 3);
#endif
#endif
#if PREPARE > 0 && !defined(NO_END_OF_PREPARED)
		run SecondPhase(0);
#endif
#if PREPARE > 1 && !defined(NO_END_OF_PREPARED)
		run SecondPhase(1);
#endif
#if PREPARE > 2 && !defined(NO_END_OF_PREPARED)
		run SecondPhase(2);
#endif
#ifndef ALONE
		run Worker();
#endif
#ifdef SESSION
		run Session();
#endif
#ifdef CRASH
		run Crash()
#endif
	}
}

/*
 * Every transaction ends: then every row that is committed, and that no crash takes
 * back, is exported.  The transactions are all alike: what is true of 0 is of each.
 */
#ifdef LIVENESS
ltl delivered { [] (phase[0] == COMMITTED -> <> ((stored & 1) == 1 || phase[0] == ENDED)) }
#endif
