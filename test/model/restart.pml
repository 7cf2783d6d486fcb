/*
 * restart.pml
 *		A sequence that begins again: TRUNCATE ... RESTART IDENTITY, whose guard must not
 *		let numbers be given out twice, and ALTER SEQUENCE ... RESTART, which has no guard
 *		and must be noticed.
 *
 * Writers, one row each, and the worker are as in horizon.pml, with less detail: rows
 * are exported up to the horizon at once, nothing crashes.  A table that is truncated
 * loses its rows; they are not missed.
 *
 *	TRUNCATE	the table is truncated once, or that is rolled back
 *	RESTART		the sequence is restarted once
 *
 * Guards: NO_TRUNCATE_GUARD, NO_NET, NO_NET_OF_FILE, NO_LOOK_AGAIN.
 */

#define TXNS	3

#define IN(set, t)		(((set) >> (t)) & 1)
#define ADD(set, t)		set = (set) | (1 << (t))
#define TAKE(set, t)	set = (set) & (255 - (1 << (t)))

#ifdef P_NO_LOSS
#define no_loss(e) assert(e)
#else
#define no_loss(e) skip
#endif
#ifdef P_NO_FALSE_ALARM
#define no_false_alarm(e) assert(e)
#else
#define no_false_alarm(e) skip
#endif
#ifdef COVER_REFILLED
#define cover_refilled(e) assert(!(e))
#else
#define cover_refilled(e) skip
#endif

byte locks;						/* RowExclusiveLock on the sequence, by writers */
bool exclusive;					/* AccessExclusiveLock on it */
byte last_drawn;				/* S */
byte file = 1;					/* relfilenode of the sequence */

byte num[TXNS];
byte visible;
bool lost;						/* a row was committed at or below the watermark */

/* partition_state, as committed */
byte recorded_file = 1;
byte highest;

byte horizon;
byte watermark;
bool halted;
bool restarted;					/* by ALTER SEQUENCE */

proctype Writer(byte t)
{
	atomic { !exclusive -> ADD(locks, t) };
	d_step { last_drawn++; num[t] = last_drawn };
	d_step {
		ADD(visible, t);
		lost = lost || num[t] <= watermark
#ifndef RESTART
		;
		no_loss(!lost)
#endif
	};
	d_step { TAKE(locks, t) }
}

#ifdef TRUNCATE
/* NoteBeforeTruncate(), the command, GuardAfterTruncate(); then commit or abort. */
proctype Truncate()
{
	byte old_drawn, old_file, noted;
	bool sound;

	atomic { locks == 0 && !exclusive -> exclusive = true };
	d_step {
		noted = last_drawn;
		sound = (file == recorded_file && last_drawn >= highest);
		old_drawn = last_drawn;
		old_file = file;
		last_drawn = 0;			/* the new file, which only this transaction sees */
		file = 2
	};
#ifndef NO_TRUNCATE_GUARD
	last_drawn = noted;			/* setval() */
#endif
	if
	:: d_step {
			visible = 0;
#ifndef NO_TRUNCATE_GUARD
			if
			:: sound -> recorded_file = file; highest = (noted > highest -> noted : highest)
			:: else -> skip
			fi
#endif
		}
	:: d_step { last_drawn = old_drawn; file = old_file }
	fi;
	exclusive = false			/* after the state on record is to be seen */
}
#endif

#ifdef RESTART
/* ALTER SEQUENCE ... RESTART: waits for those who have drawn. */
proctype Restart()
{
	atomic { locks == 0 && !exclusive -> exclusive = true };
	d_step { last_drawn = 0; file = 2; restarted = true };
	exclusive = false
}
#endif

#ifdef NO_NET
#define SOUND(record, S, S_file)	true
#elif defined(NO_NET_OF_FILE)
#define SOUND(record, S, S_file)	(S >= highest && S >= last_read && S >= watermark)
#else
#define SOUND(record, S, S_file)	(S >= highest && S >= last_read && S >= watermark && S_file == record)
#endif

/* ReadSequence(): nothing is known while somebody has the sequence to himself. */
inline read_sequence()
{
	d_step {
		known = !exclusive;
		lost_then = lost;
		if
		:: known -> S = last_drawn; S_file = file
		:: else -> skip
		fi
	}
}

/*
 * CheckPartition(): what is on record was read before the sequence was; if the two
 * do not fit, LookAgain() reads both under the sequence's lock.
 */
inline check_partition()
{
	read_sequence();
	if
	:: !known -> readable = false
	:: known && SOUND(record, S, S_file) -> readable = true
	:: else ->
#ifndef NO_LOOK_AGAIN
		d_step {
			readable = !exclusive && SOUND(recorded_file, last_drawn, file);
			halted = halted || (!exclusive && !readable);
			record = recorded_file;
			known = false		/* this turn goes on with nothing */
		}
#else
		d_step { readable = false; halted = true }
#endif
	fi;
	no_false_alarm(!halted || restarted)
}

/* In a new file the sequence begins another life (HorizonTrackerReset()). */
inline reset_tracker()
{
	d_step {
		if
		:: tracker_file != record -> horizon = 0; candidate = 0; holders = 0; last_read = 0
		:: else -> skip
		fi;
		tracker_file = record
	}
}

proctype Worker()
{
	byte S, S_file, record = 1, tracker_file = 1, last_read, candidate, holders;
	bool known, readable, lost_then;

end:
	do
	:: !halted && !(horizon == last_drawn && watermark == horizon && file == tracker_file) ->
		record = recorded_file;
		check_partition();
		if
		:: readable && known ->
			reset_tracker();
			d_step {
				last_read = S;
				if
				:: candidate > 0 && (holders & locks) == 0 ->
					horizon = candidate;
					candidate = 0
				:: else -> skip
				fi
			};
			if
			:: S > horizon && candidate == 0 ->
				d_step { candidate = S; holders = locks }
			:: else -> skip
			fi;
			d_step {
				no_loss(!lost_then);	/* what passes the check misses nothing */
				watermark = (horizon > watermark -> horizon : watermark)
			}
		:: else -> skip
		fi;
		d_step {
			cover_refilled(restarted && halted && lost && last_drawn > last_read);
			S = 0;
			S_file = 0;
			known = false;
			readable = false;
			lost_then = false
		}
	od
}

init
{
	atomic {
		run Writer(0);
		run Writer(1);
		run Writer(2);
		run Worker();
#ifdef TRUNCATE
		run Truncate()
#endif
#ifdef RESTART
		run Restart()
#endif
	}
}
