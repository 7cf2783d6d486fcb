/*
 * delivery_retention.pml
 *		Two deliveries of one table, and retention.
 *
 * Each delivery takes rows from its watermark, has up to FLIGHT batches on their way
 * and acknowledges them in order; what can happen to one batch is in delivery.pml, here
 * an attempt only succeeds or fails.  Rows are read again at each attempt: a row that
 * was removed before is not sent.  Retention removes rows from the front up to a
 * bound that it computes in the statement that removes them; either sink can be
 * restarted, which takes it back to what is left of the table.
 *
 * There is no retention in this version of src/: this is the rule that it has to follow.
 */
#ifndef ROWS
#define ROWS 3
#endif
#ifndef FLIGHT
#define FLIGHT 2
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif

#define BIT(row) (1 << ((row) - 1))
#define UPTO(row) ((1 << (row)) - 1)
#define RANGE(since, until) (UPTO(until) & ~UPTO(since))

typedef Sink
{
	byte		mark;			/* the watermark */
	byte		until[2];		/* ends of the batches on their way, in order; 0 = none */
	bit			acknowledged[2];
	byte		stored;			/* rows at the receiver, of this epoch */
	byte		pruned;			/* rows that were gone when the epoch began */
};

Sink		sink[2];
byte		drawn, rows, removed;
byte		restarts;

/* How far a delivery has read: the end of its last intent. */
#define READ_TO(me) (sink[me].until[1] -> sink[me].until[1] : (sink[me].until[0] -> sink[me].until[0] : sink[me].mark))

#define LEAST(a, b) ((a) < (b) -> (a) : (b))

#if defined(NO_INTENTS_RESPECTED)
#define BOUND LEAST(READ_TO(0), READ_TO(1))
#elif defined(NO_MINIMUM)
#define BOUND sink[0].mark
#else
#define BOUND LEAST(sink[0].mark, sink[1].mark)
#endif

inline check()
{
#ifdef P_RETENTION_SAFE
	/* what retention has removed every sink has, unless it began after */
	assert((removed & ~sink[0].pruned & ~sink[0].stored) == 0);
	assert((removed & ~sink[1].pruned & ~sink[1].stored) == 0);
#endif
#ifdef P_NO_LOSS
	assert((UPTO(sink[0].mark) & ~sink[0].pruned & ~sink[0].stored) == 0);
	assert((UPTO(sink[1].mark) & ~sink[1].pruned & ~sink[1].stored) == 0);
#endif
	skip
}

proctype Delivery(byte me)
{
	byte		to, i;

end:
	do
	:: atomic
		{
			READ_TO(me) < drawn && sink[me].until[FLIGHT - 1] == 0 ->
			select(to : READ_TO(me) + 1 .. drawn);
			i = (sink[me].until[0] -> 1 : 0);
			sink[me].until[i] = to;
			to = 0;
			i = 0
		}
	/* an attempt that succeeds: the rows that are there now.  One that fails changes nothing. */
	:: d_step
		{
			sink[me].until[0] && !sink[me].acknowledged[0] ->
			sink[me].stored = sink[me].stored | (rows & RANGE(sink[me].mark, sink[me].until[0]));
			sink[me].acknowledged[0] = 1
		}
	:: d_step
		{
			sink[me].until[1] && !sink[me].acknowledged[1] ->
			sink[me].stored = sink[me].stored | (rows & RANGE(sink[me].until[0], sink[me].until[1]));
			sink[me].acknowledged[1] = 1
		}
	:: d_step
		{
			sink[me].acknowledged[0] ->
			sink[me].mark = sink[me].until[0];
			sink[me].until[0] = sink[me].until[1];
			sink[me].acknowledged[0] = sink[me].acknowledged[1];
			sink[me].until[1] = 0;
			sink[me].acknowledged[1] = 0;
			check()
		}
	/* the process is killed: acknowledgements are forgotten, intents are not */
	:: d_step
		{
			sink[me].acknowledged[0] || sink[me].acknowledged[1] ->
			sink[me].acknowledged[0] = 0;
			sink[me].acknowledged[1] = 0
		}
#if RESTARTS
	:: d_step
		{
			restarts < RESTARTS && sink[me].mark ->
			restarts++;
			sink[me].mark = 0;
			sink[me].until[0] = 0;
			sink[me].until[1] = 0;
			sink[me].acknowledged[0] = 0;
			sink[me].acknowledged[1] = 0;
			sink[me].stored = 0;
			sink[me].pruned = removed
		}
#endif
	od
}

proctype Table()
{
end:
	do
	:: d_step { drawn < ROWS -> drawn++; rows = rows | BIT(drawn) }
	:: d_step
		{
			(rows & UPTO(BOUND)) != 0 ->
			removed = removed | (rows & UPTO(BOUND));
			rows = rows & ~UPTO(BOUND);
			check()
#ifdef COVER_PRUNED_IN_FLIGHT
			;
			assert(sink[0].until[1] == 0 || sink[1].until[1] == 0)
#endif
		}
	od
}

init
{
	atomic
	{
		run Delivery(0);
		run Delivery(1);
		run Table()
	}
}
