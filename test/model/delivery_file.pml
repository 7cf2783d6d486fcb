/*
 * delivery_file.pml
 *		One batch of a file sink: FilePut() in src/transport/file.c, and crashes of the machine.
 *
 * WRITERS processes make the file of one intent: the temporary file, its content, fsync, the
 * rename that does not replace, the fsync of the directory, and only then the
 * acknowledgement.  A writer can be killed at any place (and comes again from the
 * start), or stand still while another one takes over its work (WRITERS=2).  A row
 * may be deleted between two attempts (CHANGES): then the bodies differ, and the
 * intent knows the digests of both.  A crash of the machine keeps of the file system
 * what was fsynced, and of the rest anything or nothing.
 *
 * Names and content are separate: a name stands for a file (an inode), the file has a content.
 */
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef CHANGES
#define CHANGES 0
#endif
#ifndef FILES
#define FILES 5					/* from 1; three are ever made, the last is somebody else's */
#endif

/* Contents. */
#define EMPTY 0
#define FIRST_BODY 1
#define SECOND_BODY 2			/* CHANGES */
#define FOREIGN 3				/* what somebody else has put there */

#define NO_FILE 0

byte		content[FILES];		/* of files, from 1 */
byte		content_on_disk[FILES];
byte		temporary;			/* what the names stand for */
byte		temporary_on_disk;
byte		final;
byte		final_on_disk;
byte		made;				/* files so far */

byte		body = FIRST_BODY;	/* what the range gives now */
byte		digests = FIRST_BODY;	/* bodies that the intent knows: a set */
bit			acknowledged;
byte		acknowledged_content;
bit			foreign_came;
byte		kills, crashes, changes;

/* The steps of a put, by the calls that it makes. */
#define START 0
#define MAKE 1
#define WRITE 2
#define SYNC 3
#define CHECK 4
#define RENAME 5
#define SYNC_NAME 6
#define EXISTING 7
#define HALTED 8

byte		steps[WRITERS];

#define step steps[me]

#define IS_OURS(file) ((content[file] & digests) != 0 && content[file] != FOREIGN)

inline check()
{
#ifdef P_NAMED_IS_COMPLETE
	/* whatever has the name is whole, and of one attempt */
	assert(final == NO_FILE || content[final] != EMPTY);
#endif
#ifdef P_DURABLE
	assert(!acknowledged || (final != NO_FILE && content[final] == acknowledged_content));
#endif
#ifdef P_NEVER_REPLACED
	assert(!foreign_came || content[final] == FOREIGN);
#endif
	skip
}

inline sync_directory()
{
#ifndef NO_DIRECTORY_FSYNC
	temporary_on_disk = temporary;
	final_on_disk = final;
#endif
	skip
}

inline sync_file(file)
{
#ifndef NO_FSYNC
	content_on_disk[file] = content[file];
#endif
	skip
}

inline acknowledge()
{
#ifdef P_OURS
	assert(IS_OURS(final));
#endif
	if
	:: !acknowledged ->
		acknowledged = 1;
		acknowledged_content = content[final]
	:: else
	fi;
	check();
	mine = NO_FILE;
	step = 0;
#ifdef COVER_ACKNOWLEDGED_SECOND
	assert(acknowledged_content != SECOND_BODY);
#endif
}

/* RenameNoReplace() */
inline rename_it()
{
	if
	:: temporary == NO_FILE -> mine = NO_FILE; step = START		/* ENOENT */
#ifdef NO_RENAME_NOREPLACE
	:: temporary != NO_FILE ->
#else
	:: temporary != NO_FILE && final != NO_FILE -> step = EXISTING
	:: temporary != NO_FILE && final == NO_FILE ->
#endif
		final = temporary;
		temporary = NO_FILE;
		check();
		step = SYNC_NAME
	fi
}

proctype Writer(byte me)
{
	byte		mine, my_body;

end:
	do
	/* JudgeExisting() */
	:: atomic
		{
			step == START && !acknowledged ->
			my_body = body;
			step = (final != NO_FILE -> EXISTING : MAKE)
		}
	:: atomic
		{
			step == EXISTING ->
			if
#ifdef NO_DIGEST
			:: true ->
#else
			:: IS_OURS(final) ->
#endif
#ifndef NO_SECOND_FSYNC
				sync_file(final);
				sync_directory();
#endif
#ifdef COVER_EXISTING
				assert(false);
#endif
				acknowledge()
			:: else -> mine = NO_FILE; step = HALTED
			fi
		}
	/* CreateTemporary(): what a killed process left is removed */
	:: atomic
		{
			step == MAKE && made + 2 < FILES ->
			made++;
			mine = made;
			temporary = mine;
			step = WRITE
		}
	/* WriteBody(), of which nothing shows until it is whole */
	:: atomic { step == WRITE -> content[mine] = my_body; check(); step = SYNC }
	:: atomic { step == SYNC -> sync_file(mine); step = CHECK }
	/* CheckTemporary(): the name may mean another's file by now */
	:: atomic
		{
			step == CHECK ->
			if
#ifdef NO_TEMPORARY_CHECK
			:: true -> step = RENAME
#else
			:: temporary == mine -> step = RENAME
			:: else -> mine = NO_FILE; step = START
#endif
			fi;
#ifndef NO_CHECKED_RENAME
			/* as if it were one call with the next */
			if
			:: step == RENAME -> rename_it()
			:: else
			fi
#endif
		}
#ifdef NO_CHECKED_RENAME
	:: atomic { step == RENAME -> rename_it() }
#endif
	:: atomic { step == SYNC_NAME -> sync_directory(); acknowledge() }
	/* It is killed, or its put fails, and it begins again. */
	:: atomic { kills < KILLS && step != START && step != HALTED -> kills++; mine = NO_FILE; step = START }
	od
}

/* Names and contents that were not fsynced may be there after a crash, or not. */
inline crash()
{
	if
	:: temporary = temporary_on_disk
	:: true
	fi;
	if
	:: final = final_on_disk
	:: true
	fi;
	if
	:: content[1] = content_on_disk[1]
	:: true
	fi;
	if
	:: content[2] = content_on_disk[2]
	:: true
	fi;
	if
	:: content[3] = content_on_disk[3]
	:: true
	fi;
	if
	:: temporary == final -> temporary = NO_FILE
	:: else
	fi;
	temporary_on_disk = temporary;
	final_on_disk = final;
	content_on_disk[1] = content[1];
	content_on_disk[2] = content[2];
	content_on_disk[3] = content[3];
	steps[0] = START;
#if WRITERS == 2
	steps[1] = START;
#endif
	check()
}

proctype World()
{
end:
	do
	:: atomic { crashes < CRASHES -> crashes++; crash() }
	/* A row of the range is deleted; the next attempt's digest is recorded before it begins. */
	:: d_step { changes < CHANGES && !acknowledged -> changes++; body = SECOND_BODY; digests = FIRST_BODY | SECOND_BODY }
#ifdef OTHERS
	/* Somebody else puts a file of that name there. */
	:: d_step
		{
			!foreign_came && final == NO_FILE ->
			foreign_came = 1;
			final = FILES - 1;
			content[final] = FOREIGN;
			content_on_disk[final] = FOREIGN;
			final_on_disk = final
		}
#endif
	od
}

init
{
	atomic
	{
		run Writer(0);
#if WRITERS == 2
		run Writer(1);
#endif
		run World()
	}
}
