/*
 * delivery.pml
 *		One delivery of a forward sink: intent, send, acknowledgement, watermark.
 *
 * A table whose rows appear below the horizon, a database that crashes with and
 * without the commits that had not reached the disk, workers that are killed or
 * stand still, a network that loses, delays and repeats requests, and a receiver
 * that keeps its contract (doc/receivers.md).
 *
 * What is in play is chosen by macros; all counts are bounds.
 *	 ROWS			numbers that are given out (at most 4)
 *	 FLIGHT			batches of the delivery on their way at once (1, 2)
 *	 WORKERS		processes; with 2 the ownership can pass to the other one
 *	 NET			requests that the network holds, answered ones not counted
 *	 KILLS			of the worker: everything in its memory is gone
 *	 CRASHES		of the server: commits that are not on the disk are gone too
 *	 DELETES		of rows
 *	 RESTARTS		incsink_alter_sink(watermark => 'restart'): a new epoch from the start
 *	 ADOPTIONS		incsink_adopt_database(): a new epoch where the delivery stands
 *	 FAILOVERS		to a standby that may lack a tail; SYNC_STANDBY: that lacks none
 *	 TAKEOVERS		of the ownership from a worker that stands still
 *	 OUT_OF_ORDER	transactions end in another order than they drew their numbers
 *	 LEDGER_UNTIL	the receiver keeps the highest until of an epoch, not ids
 *	 RESENT			libcurl may send a request twice within one attempt
 *	 SPLIT			a batch that is too large for the receiver may become two
 *	 RESET			the first batch of an epoch asks the receiver to clear the ones before
 *	 COMPLETION		somebody calls incsink_flush()
 * P_... switches an assertion on, COVER_... one that must fail because the place is
 * reached, NO_... a guard off.
 */
#ifndef ROWS
#define ROWS 2
#endif
#ifndef FLIGHT
#define FLIGHT 1
#endif
#ifndef WORKERS
#define WORKERS 1
#endif
#ifndef NET
#define NET 2
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef DELETES
#define DELETES 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef ADOPTIONS
#define ADOPTIONS 0
#endif
#ifndef FAILOVERS
#define FAILOVERS 0
#endif
#ifndef TAKEOVERS
#define TAKEOVERS 0
#endif

#define EPOCHS (2 + RESTARTS + ADOPTIONS + FAILOVERS)	/* from 1 */

/* Rows are sets of bits; a range is half-open, as everywhere. */
#define BIT(row) (1 << ((row) - 1))
#define UPTO(row) ((1 << (row)) - 1)
#define RANGE(since, until) (UPTO(until) & ~UPTO(since))
#define ALL_ROWS UPTO(ROWS)

/* The highest number up to which all are decided. */
#define PREFIX(set) (!((set) & 1) -> 0 : (!((set) & 2) -> 1 : (!((set) & 4) -> 2 : (!((set) & 8) -> 3 : 4))))
#define HIGHEST(set) ((set) & 8 -> 4 : ((set) & 4 -> 3 : ((set) & 2 -> 2 : (set) & 1)))

typedef Intent
{
	byte		id;				/* 0 = there is none */
	byte		epoch;
	byte		since;
	byte		until;
	bit			unsure;			/* an attempt before the last may have been stored */
};

/* What transactions see of the database. */
typedef Catalog
{
	byte		decided;		/* numbers whose transaction has ended */
	byte		rows;			/* those of which a row is there */
	byte		second;			/* and those that were given out a second time */
	byte		epoch;			/* of the watermark */
	byte		wanted;			/* of sink_table_def */
	byte		start;			/* where the epoch began */
	byte		mark;			/* the watermark */
	byte		sent;			/* the end of the last batch */
	byte		ordinal;		/* NO_NONCE: batches so far */
	Intent		intent[2];		/* in their order */
};

Catalog		now;				/* what is committed */
Catalog		disk;				/* and is there after a crash */
#if FAILOVERS
Catalog		standby;
#endif
bit			dirty;				/* now and disk differ */

byte		nonces;				/* drawn so far */
byte		epochs = 1;			/* drawn so far */
bit			life;				/* numbers given out from now on may be second ones */

/* A batch in the memory of a worker. */
#define AT_REST 0
#define READY 1					/* its intent is committed */
#define UNDERWAY 2
#define FAILED 3				/* or read from the catalog by a new process */
#define ACKNOWLEDGED 4
#define UNRECORDED 5			/* NO_INTENT_FIRST: sent, not committed yet */

/* Answers. */
#define SUCCESS 1
#define FAILURE 2				/* proves nothing */
#define TOO_LARGE 3				/* proves that the request was not stored */
#define REDIRECT 4				/* the success is somebody else's */

typedef Batch
{
	byte		phase;
	byte		id;
	byte		epoch;
	byte		since;
	byte		until;
	byte		body;			/* rows, as they were encoded */
	byte		second;
	byte		answer;
	bit			proved;			/* the last attempt was certainly not stored */
	bit			resent;			/* or had a copy that may be on its way */
};

Batch		batch[WORKERS * FLIGHT];
byte		owner = 1;			/* the worker that has the lock, from 1 */

#define FIRST(worker) (((worker) - 1) * FLIGHT)

#define NOBODY 255

typedef Request
{
	byte		id;				/* 0 = a free place */
	byte		epoch;
	byte		since;
	byte		until;
	byte		body;
	byte		second;
	bit			reset;
	byte		sender;			/* who waits for the answer, an index of batch */
};

Request		net[NET];

/* The receiver: what it has stored, of first and of second rows, by epoch. */
byte		stored[EPOCHS];
byte		stored_second[EPOCHS];
short		ledger;				/* ids */
byte		highest[EPOCHS];	/* LEDGER_UNTIL */
byte		barrier;			/* RESET: epochs before are over */

byte		kills, crashes, deletes, restarts, adoptions, failovers, takeovers;

/* Of monitors only. */
short		on_disk;			/* ids whose intent has been on the disk */
byte		top[EPOCHS];		/* the highest watermark seen */
byte		covered;			/* FAILOVERS: what the standby knew to be in batches */
byte		last_until[EPOCHS];	/* of what was stored */
bit			asked;				/* COMPLETION */
byte		target;
bit			completed;
byte		happened;			/* liveness: what the last step was */

#define SENT_ONE 1
#define GOT_SUCCESS 2

inline copy(to, from)
{
	to.decided = from.decided;
	to.rows = from.rows;
	to.second = from.second;
	to.epoch = from.epoch;
	to.wanted = from.wanted;
	to.start = from.start;
	to.mark = from.mark;
	to.sent = from.sent;
	to.ordinal = from.ordinal;
	copy_intent(to.intent[0], from.intent[0]);
	copy_intent(to.intent[1], from.intent[1]);
}

inline copy_intent(to, from)
{
	to.id = from.id;
	to.epoch = from.epoch;
	to.since = from.since;
	to.until = from.until;
	to.unsure = from.unsure;
}

inline clear_intent(which)
{
	which.id = 0;
	which.epoch = 0;
	which.since = 0;
	which.until = 0;
	which.unsure = 0;
}

inline clear_batch(b)
{
	b.phase = AT_REST;
	b.id = 0;
	b.epoch = 0;
	b.since = 0;
	b.until = 0;
	b.body = 0;
	b.second = 0;
	b.answer = 0;
	b.proved = 0;
	b.resent = 0;
}

inline clear_request(r)
{
	r.id = 0;
	r.epoch = 0;
	r.since = 0;
	r.until = 0;
	r.body = 0;
	r.second = 0;
	r.reset = 0;
	r.sender = NOBODY;
}

inline note(what)
{
#ifdef LIVENESS
	happened = what
#else
	skip
#endif
}

/* The write-ahead log reaches the disk, from its beginning to now. */
inline flush()
{
	copy(disk, now);
	dirty = 0;
#if defined(P_INTENT_BEFORE_SEND)
	if
	:: now.intent[0].id -> on_disk = on_disk | (1 << now.intent[0].id)
	:: else
	fi;
	if
	:: now.intent[1].id -> on_disk = on_disk | (1 << now.intent[1].id)
	:: else
	fi;
#endif
#ifdef SYNC_STANDBY
	copy(standby, now);
#endif
}

/* The end of a transaction of a worker. */
inline commit()
{
#ifdef NO_FLUSH
	dirty = 1;
#else
	flush();
#endif
	check_catalog();
}

/* Everything that must be true of the catalog whenever it has changed. */
inline check_catalog()
{
	skip;
#ifdef P_NO_LOSS
	assert((now.rows & ~now.second & RANGE(now.start, now.mark) & ~stored[now.epoch]) == 0);
	assert((now.rows & now.second & RANGE(now.start, now.mark) & ~stored_second[now.epoch]) == 0);
#endif
#ifdef P_WATERMARK_MONOTONIC
	assert(now.mark >= top[now.epoch]);
	top[now.epoch] = now.mark;
#endif
}

inline drop_intent(which)
{
	if
	:: now.intent[0].id == which ->
		copy_intent(now.intent[0], now.intent[1]);
		clear_intent(now.intent[1])
	:: now.intent[0].id != which && now.intent[1].id == which ->
		clear_intent(now.intent[1])
	:: else
	fi
}

inline put_intent(new_id, from, to)
{
	if
	:: now.intent[0].id == 0 -> i = 0
	:: else -> i = 1
	fi;
	now.intent[i].id = new_id;
	now.intent[i].epoch = now.epoch;
	now.intent[i].since = from;
	now.intent[i].until = to;
	now.intent[i].unsure = 0
}

/* MakeBatchId() */
inline draw_id(new_id)
{
#ifdef NO_NONCE
	now.ordinal++;
	new_id = now.ordinal;
#else
	nonces++;
	new_id = nonces;
#endif
}

/* EncodeRange(): the rows of a range, as they are now. */
inline encode(b, from, to)
{
	b.body = now.rows & RANGE(from, to);
	b.second = now.second & b.body;
#ifdef P_NOTHING_ABOVE_HORIZON
	assert((b.body & ~UPTO(PREFIX(now.decided))) == 0);
#endif
}

#define INTENTS ((now.intent[0].id != 0) + (now.intent[1].id != 0))
#ifdef NO_OWNER					/* each believes that the intents are its own only */
#define READ_TO now.mark
#define SENT_TO now.sent
#else
#define READ_TO (INTENTS == 0 -> now.mark : now.intent[INTENTS - 1].until)
#define SENT_TO (INTENTS == 0 -> now.sent : now.intent[INTENTS - 1].until)
#endif

#ifdef NO_HORIZON
#define LIMIT HIGHEST(now.decided)
#else
#define LIMIT PREFIX(now.decided)
#endif

#ifdef NO_EPOCH_CHECK
#define EPOCH_MAY_BEGIN true
#else
#define EPOCH_MAY_BEGIN (INTENTS == 0)
#endif
#define EPOCH_IS_DUE (now.wanted != now.epoch)

/* BeginEpoch() */
inline begin_epoch()
{
	if
	:: EPOCH_IS_DUE ->
		now.epoch = now.wanted;
		now.start = now.mark
	:: else
	fi
}

#ifdef RESET
#define CARRIES_RESET (now.epoch > 1 && (now.start == SENT_TO && INTENTS == 0))
#else
#define CARRIES_RESET false
#endif

/* CutStep(): a batch in place k of the memory, or a range without rows that is passed. */
inline cut(k)
{
	atomic
	{
		d_step { begin_epoch(); from = READ_TO };
		select(to : from + 1 .. LIMIT);
		skip;
		d_step
		{
			if
			:: (now.rows & RANGE(from, to)) == 0 && !CARRIES_RESET ->
				/* PassEmptyRange(): nothing of it can be in flight, the mark may not overtake */
				if
				:: INTENTS == 0 -> now.mark = to; commit()
				:: else
				fi
			:: else ->
				encode(batch[k], from, to);
				from = SENT_TO;
				draw_id(batch[k].id);
				batch[k].epoch = now.epoch;
				batch[k].since = from;
				batch[k].until = to;
				batch[k].phase = READY;
#ifdef NO_ACKNOWLEDGEMENT_FIRST
				now.mark = to;
#endif
#ifndef NO_INTENT_FIRST
				put_intent(batch[k].id, from, to);
				commit();
#endif
			fi;
			from = 0; to = 0; i = 0
		}
	}
}

#if FLIGHT == 2
#define KNOWS(which) (batch[FIRST(me)].id == which || batch[FIRST(me) + 1].id == which)
#define UNKNOWN_INTENT ((INTENTS > 0 && !KNOWS(now.intent[0].id)) || (INTENTS > 1 && !KNOWS(now.intent[1].id)))
#else
#define KNOWS(which) (batch[FIRST(me)].id == which)
#define UNKNOWN_INTENT (INTENTS > 0)
#endif

#define EXISTS(which) (now.intent[0].id == which || now.intent[1].id == which)

/* A new process, or one that was fenced, finds an intent: ReloadBatch(). */
inline load(k)
{
	d_step
	{
		i = (KNOWS(now.intent[0].id) -> 1 : 0);
		batch[k].id = now.intent[i].id;
		batch[k].epoch = now.intent[i].epoch;
		batch[k].since = now.intent[i].since;
		batch[k].until = now.intent[i].until;
		batch[k].phase = FAILED;
		i = 0
	}
}

/* AttemptStep(): the intent's range as it is now, under its id. */
inline attempt(k)
{
	d_step
	{
		if
		:: !EXISTS(batch[k].id) -> clear_batch(batch[k])	/* fenced: NoteAttempt() */
		:: else ->
			i = (now.intent[0].id == batch[k].id -> 0 : 1);
			now.intent[i].unsure = now.intent[i].unsure | !batch[k].proved;
			batch[k].proved = 0;
#if defined(NO_FIXED_RANGE_OLD_ID) || defined(NO_FIXED_RANGE_NEW_ID)
			now.intent[i].until = PREFIX(now.decided);
			batch[k].until = now.intent[i].until;
#endif
#ifdef NO_FIXED_RANGE_NEW_ID
			nonces++;
			now.intent[i].id = nonces;
			batch[k].id = nonces;
#endif
			encode(batch[k], batch[k].since, batch[k].until);
#ifdef COVER_EMPTY_RETRY
			assert(batch[k].body);
#endif
#ifdef RESET
			if
			:: batch[k].body == 0 && !(batch[k].epoch > 1 && batch[k].since == now.start) -> batch[k].phase = ACKNOWLEDGED
			:: else -> batch[k].phase = READY
			fi;
#else
			batch[k].phase = (batch[k].body -> READY : ACKNOWLEDGED);
#endif
			commit();
			i = 0
		fi
	}
}

/* SendBatch(): no transaction is open.  A place in the network is free. */
inline send(k)
{
	d_step
	{
#ifdef P_INTENT_BEFORE_SEND
		assert(on_disk & (1 << batch[k].id));
#endif
		i = 0;
		do
		:: net[i].id == 0 -> break
		:: else -> i++
		od;
		net[i].id = batch[k].id;
		net[i].epoch = batch[k].epoch;
		net[i].since = batch[k].since;
		net[i].until = batch[k].until;
		net[i].body = batch[k].body;
		net[i].second = batch[k].second;
		net[i].sender = k;
#ifdef RESET
		net[i].reset = batch[k].epoch > 1 && batch[k].since == 0;
#endif
		batch[k].body = 0;
		batch[k].second = 0;
#ifdef NO_INTENT_FIRST
		batch[k].phase = (EXISTS(batch[k].id) -> UNDERWAY : UNRECORDED);
#else
		batch[k].phase = UNDERWAY;
#endif
		batch[k].resent = 0;
		note(SENT_ONE);
		i = 0
	}
}

/* libcurl: the connection was gone, the request goes again on another. */
inline resend(k)
{
	d_step
	{
		i = 0;
		do
		:: net[i].id == 0 -> break
		:: else -> i++
		od;
		j = 0;
		do
		:: net[j].sender == k -> break
		:: else -> j++
		od;
		net[i].id = net[j].id;
		net[i].epoch = net[j].epoch;
		net[i].since = net[j].since;
		net[i].until = net[j].until;
		net[i].body = net[j].body;
		net[i].second = net[j].second;
		net[i].reset = net[j].reset;
		net[i].sender = NOBODY;
		batch[k].resent = 1;
		i = 0; j = 0
	}
}

/* Nobody waits for its answer any more: it may be stored all the same. */
inline abandon(k)
{
	i = 0;
	do
	:: i < NET ->
		if
		:: net[i].id && net[i].sender == k -> net[i].sender = NOBODY
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* JudgeAnswer() */
inline judge(k)
{
	d_step
	{
		if
		:: batch[k].answer == SUCCESS ->
			batch[k].phase = ACKNOWLEDGED;
			note(GOT_SUCCESS)
#ifdef NO_REDIRECT_CHECK
		:: batch[k].answer == REDIRECT -> batch[k].phase = ACKNOWLEDGED
#endif
		:: else ->
			batch[k].phase = FAILED;
#ifdef NO_RESENT_CHECK
			batch[k].proved = (batch[k].answer == TOO_LARGE);
#else
			batch[k].proved = (batch[k].answer == TOO_LARGE && !batch[k].resent);
#endif
			note(0)
		fi;
		batch[k].answer = 0;
		batch[k].resent = 0
	}
}

/* Reset, stalled, timed out: proves nothing. */
inline give_up(k)
{
	d_step
	{
		abandon(k);
		batch[k].answer = 0;
		batch[k].resent = 0;
		batch[k].phase = FAILED;
		note(0)
	}
}

/*
 * AcknowledgeIntent(): the intent goes and the watermark moves, or nothing happens and
 * the worker forgets the batch.
 */
#ifdef NO_FENCE
#define INTENT_IS_THERE(k) true
#define EPOCH_IS_SAME(k) true
#elif defined(NO_EPOCH_CHECK)
#define INTENT_IS_THERE(k) EXISTS(batch[k].id)
#define EPOCH_IS_SAME(k) true
#else
#define INTENT_IS_THERE(k) EXISTS(batch[k].id)
#define EPOCH_IS_SAME(k) (batch[k].epoch == now.epoch)
#endif
#ifdef NO_CONTIGUITY
#define IS_NEXT(k) true
#define IS_EARLIEST(k) true
#else
#define IS_NEXT(k) (batch[k].since == now.sent && now.mark >= batch[k].since)
#define IS_EARLIEST(k) (FLIGHT == 1 || !EXISTS(batch[k].id) || now.intent[0].id == batch[k].id)
#endif

inline advance(k)
{
	d_step
	{
		if
		:: INTENT_IS_THERE(k) && EPOCH_IS_SAME(k) && IS_NEXT(k) && batch[k].until > now.mark ->
#ifdef P_FENCE
			/* the model's own view: whose batch it is, and that the receiver has it or it is empty */
			assert(EXISTS(batch[k].id) && batch[k].epoch == now.epoch);
#endif
			drop_intent(batch[k].id);
#ifdef NO_ONE_COMMIT
			batch[k].phase = UNRECORDED;
			commit()
#else
			now.mark = batch[k].until;
			now.sent = batch[k].until;
			clear_batch(batch[k]);
			commit()
#endif
		:: else ->
#ifdef COVER_FENCED
			assert(false);
#endif
			clear_batch(batch[k])
		fi
	}
}

/* What guards keep from happening. */
inline advance_late(k)
{
	d_step
	{
		now.mark = batch[k].until;
		now.sent = batch[k].until;
		clear_batch(batch[k]);
		commit()
	}
}

inline make_anew(k)
{
	d_step
	{
		drop_intent(batch[k].id);
		clear_batch(batch[k]);
		commit()
	}
}

inline record_late(k)
{
	d_step
	{
		put_intent(batch[k].id, batch[k].since, batch[k].until);
		batch[k].phase = UNDERWAY;
		commit();
		i = 0
	}
}

/* 413: two intents with ids of their own take the place of one. */
#ifdef NO_SURE_CHECK
#define IS_SURE(k) true
#else
#define IS_SURE(k) (!now.intent[0].unsure)
#endif

#define MAY_SPLIT(k) \
	(batch[k].phase == FAILED && owner == me && batch[k].proved && EXISTS(batch[k].id) && \
	 IS_SURE(k) && batch[k].until > batch[k].since + 1)

inline split(k)
{
	d_step
	{
		from = batch[k].since;
		to = batch[k].until;
		drop_intent(batch[k].id);
		clear_batch(batch[k]);
		draw_id(j);
		put_intent(j, from, from + 1);
		draw_id(j);
		put_intent(j, from + 1, to);
		commit();
#ifdef COVER_SPLIT
		assert(false);
#endif
		from = 0; to = 0; i = 0; j = 0
	}
}

#if NET == 1
#define PLACE_IS_FREE (net[0].id == 0)
#elif NET == 2
#define PLACE_IS_FREE (net[0].id == 0 || net[1].id == 0)
#else
#define PLACE_IS_FREE (net[0].id == 0 || net[1].id == 0 || net[2].id == 0)
#endif

#ifdef NO_OWNER
#define MAY_CUT (READ_TO < LIMIT && INTENTS < 2)
#else
#define MAY_CUT \
	(owner == me && !UNKNOWN_INTENT && INTENTS < FLIGHT && READ_TO < LIMIT && \
	 (!EPOCH_IS_DUE || EPOCH_MAY_BEGIN))
#endif

/* What a worker does with one place of its memory. */
proctype Worker(byte me; byte k)
{
	byte		from, to, i, j;

end:
	do
	:: atomic { batch[k].phase == AT_REST && MAY_CUT -> cut(k) }
	:: atomic { batch[k].phase == AT_REST && owner == me && UNKNOWN_INTENT -> load(k) }
	:: atomic { batch[k].phase == FAILED && owner == me -> attempt(k) }
	:: atomic { batch[k].phase == FAILED && owner != me -> clear_batch(batch[k]) }	/* StayOwner() */
#ifdef SPLIT
	:: atomic { MAY_SPLIT(k) -> split(k) }
#endif
	:: atomic { batch[k].phase == READY && PLACE_IS_FREE -> send(k) }
#ifdef RESENT
	:: atomic
		{
			batch[k].phase == UNDERWAY && !batch[k].answer && !batch[k].resent && PLACE_IS_FREE ->
			resend(k)
		}
#endif
	:: atomic { batch[k].phase == UNDERWAY && batch[k].answer -> judge(k) }
	:: atomic { batch[k].phase == UNDERWAY -> give_up(k) }
	:: atomic { batch[k].phase == ACKNOWLEDGED && IS_EARLIEST(k) -> advance(k) }
	/* Its commit may fail: nothing changes, and it comes again. */
#ifdef NO_KEPT_ACKNOWLEDGEMENT
	:: atomic { batch[k].phase == ACKNOWLEDGED && EXISTS(batch[k].id) -> make_anew(k) }
#endif
#ifdef NO_INTENT_FIRST
	:: atomic { batch[k].phase == UNRECORDED && INTENTS < 2 -> record_late(k) }
#endif
#ifdef NO_ONE_COMMIT
	:: atomic { batch[k].phase == UNRECORDED -> advance_late(k) }
#endif
	od
}

#ifdef LEDGER_UNTIL
#define IS_KNOWN(r) (highest[net[r].epoch] >= net[r].until)
#else
#define IS_KNOWN(r) ((ledger & (1 << net[r].id)) != 0)
#endif
#if defined(RESET) && !defined(NO_RESET_CONTRACT)
#define IS_OVER(r) (net[r].epoch < barrier)
#else
#define IS_OVER(r) false
#endif

/* Rows and position in one transaction. */
inline store(r)
{
	if
	:: net[r].reset && net[r].epoch > barrier ->
		barrier = net[r].epoch;
		i = 1;
		do
		:: i < net[r].epoch ->
			stored[i] = 0;
			stored_second[i] = 0;
			i++
		:: else -> break
		od;
		i = 0
	:: else
	fi;
	check_store(r);
	stored[net[r].epoch] = stored[net[r].epoch] | (net[r].body & ~net[r].second);
	stored_second[net[r].epoch] = stored_second[net[r].epoch] | net[r].second;
	note_in_ledger(r)
}

inline note_in_ledger(r)
{
#ifdef NO_LEDGER_TRANSACTION
	if
	:: forgetful
	:: else -> ledger = ledger | (1 << net[r].id)
	fi
#elif defined(LEDGER_UNTIL)
	highest[net[r].epoch] = net[r].until
#else
	ledger = ledger | (1 << net[r].id)
#endif
}

inline check_store(r)
{
	skip;
#ifdef P_NO_DUPLICATE
	assert((net[r].body & ~net[r].second & stored[net[r].epoch]) == 0);
	assert((net[r].second & stored_second[net[r].epoch]) == 0);
#endif
#ifdef P_NO_DUPLICATE_IN_ALL
	/* over all epochs, beyond what "covered" excuses */
	i = 1;
	do
	:: i < EPOCHS ->
		assert((net[r].body & ~net[r].second & stored[i] & UPTO(covered)) == 0);
		assert((net[r].second & stored_second[i] & UPTO(covered)) == 0);
		i++
	:: else -> break
	od;
	i = 0;
#endif
#ifdef P_RANGES_FOLLOW
	assert(net[r].since == last_until[net[r].epoch]);
	last_until[net[r].epoch] = net[r].until;
#endif
#ifdef COVER_CHANGED_BODY
	assert(net[r].body == RANGE(net[r].since, net[r].until));
#endif
#ifdef COVER_SECOND
	assert(net[r].second == 0);
#endif
}

/* The answer goes to the one who waits; the request is gone. */
inline give_answer(r, what)
{
	if
	:: net[r].sender != NOBODY -> batch[net[r].sender].answer = what
	:: else
	fi;
	clear_request(net[r])
}

proctype Receiver(byte r)
{
	byte		i;
	bit			forgetful;

end:
	do
	:: atomic
		{
			net[r].id ->
			if
			/* it works: stored now or before */
			:: d_step
				{
					if
					:: IS_OVER(r) || IS_KNOWN(r) ->
#ifdef COVER_KNOWN_STRAGGLER
						assert(net[r].sender != NOBODY);
#endif
#ifdef COVER_OVER
						assert(!IS_OVER(r));
#endif
						skip
					:: else -> store(r)
					fi;
					give_answer(r, SUCCESS)
				}
			/* it stores and fails, or its answer is lost */
			:: net[r].sender != NOBODY ->
				d_step
				{
#ifdef NO_LEDGER_TRANSACTION
					forgetful = 1;
#endif
					if
					:: IS_OVER(r) || IS_KNOWN(r)
					:: else -> store(r)
					fi;
					forgetful = 0;
					give_answer(r, FAILURE)
				}
			/* it fails, or the request never comes to it */
			:: d_step { give_answer(r, FAILURE) }
#ifdef SPLIT
			/* its limit may be another one the next time */
			:: net[r].until > net[r].since + 1 -> d_step { give_answer(r, TOO_LARGE) }
#endif
#if defined(REDIRECTS)
			:: d_step { give_answer(r, REDIRECT) }
#endif
			fi
		}
	od
}

/* All processes of the database are gone; what they had sent may still arrive. */
inline forget_worker(w)
{
	i = FIRST(w);
	do
	:: i < FIRST(w) + FLIGHT ->
		clear_batch(batch[i]);
		j = 0;
		do
		:: j < NET ->
			if
			:: net[j].id && net[j].sender == i -> net[j].sender = NOBODY
			:: else
			fi;
			j++
		:: else -> break
		od;
		i++
	:: else -> break
	od;
	i = 0; j = 0
}

inline forget_workers()
{
	forget_worker(1);
#if WORKERS == 2
	forget_worker(2);
#endif
}

/* Numbers that a crash has taken back are given out again. */
inline recover_from(which)
{
	forget_workers();
#ifdef P_STORED_IS_COMMITTED
	assert(((stored[1] | stored_second[1] | stored[EPOCHS - 1] | stored_second[EPOCHS - 1]) & ~which.decided) == 0);
#endif
	if
	:: which.decided != now.decided -> life = 1
	:: else
	fi;
	copy(now, which);
	dirty = 0
}

/* One row of a set that is not empty. */
inline pick(set)
{
	if
	:: (set) & 1 -> row = 1
	:: (set) & 2 -> row = 2
	:: (set) & 4 -> row = 3
	:: (set) & 8 -> row = 4
	fi
}

inline new_epoch()
{
	epochs++;
	now.wanted = epochs
}

#define AT_REST_FOR_GOOD (now.decided == ALL_ROWS && now.mark == ROWS && INTENTS == 0 && batch[0].phase == AT_REST)

/* Everybody but the worker and the receiver.  Its commits need not be flushed. */
proctype World()
{
	byte		i, j, row;

end:
	do
	/* A number's transaction ends: its row is there, or it was rolled back. */
	:: atomic
		{
			now.decided != ALL_ROWS ->
#ifdef OUT_OF_ORDER
			pick(ALL_ROWS & ~now.decided);
#else
			row = PREFIX(now.decided) + 1;
#endif
			now.decided = now.decided | BIT(row);
			if
			:: now.rows = now.rows | BIT(row);
				now.second = now.second | (life -> BIT(row) : 0)
			:: true
			fi;
			dirty = 1;
			row = 0
		}
#if CRASHES || FAILOVERS
	:: d_step { dirty -> flush() }
#endif
#if FAILOVERS && !defined(SYNC_STANDBY)
	:: d_step { failovers < FAILOVERS -> copy(standby, disk) }
#endif
#if DELETES
	:: atomic
		{
			deletes < DELETES && now.rows ->
			pick(now.rows);
			now.rows = now.rows & ~BIT(row);
			now.second = now.second & ~BIT(row);
			deletes++;
			dirty = 1;
			row = 0
		}
#endif
#if KILLS
	:: d_step { kills < KILLS -> kills++; forget_worker(1) }
#endif
#if CRASHES
	:: d_step
		{
			crashes < CRASHES ->
			crashes++;
			recover_from(disk);
			check_catalog()
		}
#endif
#if RESTARTS
	/* RestartTable() */
	:: d_step
		{
			restarts < RESTARTS ->
			restarts++;
			new_epoch();
			now.epoch = now.wanted;
			now.start = 0;
			now.mark = 0;
			now.sent = 0;
#ifndef NO_INTENTS_DROPPED
			clear_intent(now.intent[0]);
			clear_intent(now.intent[1]);
#endif
			dirty = 1
		}
#endif
#if ADOPTIONS
	/* AdoptDatabase(): the intents stay */
	:: d_step
		{
			adoptions < ADOPTIONS ->
			adoptions++;
			new_epoch();
			dirty = 1
		}
#endif
#if FAILOVERS
	/* A standby is promoted: another timeline */
	:: d_step
		{
			failovers < FAILOVERS ->
			failovers++;
			recover_from(standby);
			covered = READ_TO;
#ifdef P_WATERMARK_MONOTONIC
			top[now.epoch] = now.mark;
#endif
#ifndef NO_NEW_TIMELINE
			new_epoch();
#endif
			flush();
			check_catalog()
		}
#endif
#if WORKERS == 2
	:: d_step { takeovers < TAKEOVERS -> takeovers++; owner = 3 - owner }
#endif
#ifdef COMPLETION
	/* incsink_flush(): everything drawn up to now */
	:: d_step { !asked && now.decided -> asked = 1; target = HIGHEST(now.decided) }
	:: d_step
		{
			asked && !completed &&
#ifdef NO_COMPLETION_BY_WATERMARK
			(READ_TO >= target)
#else
			(now.mark >= target || (PREFIX(now.decided) >= target && (now.rows & RANGE(now.mark, target)) == 0))
#endif
			-> completed = 1;
#ifdef P_COMPLETE
			assert((now.rows & ~now.second & RANGE(now.start, target) & ~stored[now.epoch]) == 0);
			assert((now.rows & now.second & RANGE(now.start, target) & ~stored_second[now.epoch]) == 0);
#endif
#ifdef COVER_COMPLETE
			assert(false);
#endif
		}
#endif
#ifdef COVER_REST
	:: d_step
		{
			AT_REST_FOR_GOOD && now.rows == ALL_ROWS -> assert(false)
		}
#endif
	od
}

init
{
	atomic
	{
		byte		i = 0;

		now.epoch = 1;
		now.wanted = 1;
		do
		:: i < NET -> net[i].sender = NOBODY; i++
		:: else -> break
		od;
		covered = ROWS;
		copy(disk, now);
#if FAILOVERS
		copy(standby, now);
#endif
		run Worker(1, 0);
#if WORKERS * FLIGHT == 2
		run Worker(WORKERS, 1);
#endif
		run Receiver(0);
		run Receiver(1);
#if NET == 3
		run Receiver(2);
#endif
		run World()
	}
}

#ifdef LIVENESS
/*
 * If of infinitely many attempts infinitely many come to a success, then everything
 * is acknowledged in the end, and nothing happens any more.
 */
ltl comes_to_rest
{
	([]<> (happened == SENT_ONE) -> []<> (happened == GOT_SUCCESS)) -> <>[] AT_REST_FOR_GOOD
}
#endif
