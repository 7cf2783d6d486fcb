/*
 * inject.c
 *		Named injection points, armed by files; see inject.h.
 *
 * A point is looked for with access() first, so that a test library without
 * armed points does next to nothing more than a release one.  Files are read
 * with plain system calls: InjectionErrno() is used where nothing may be raised.
 */
#include "postgres.h"

#ifdef INCSINK_INJECT

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "common/inject.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

#define INJECTION_DIRECTORY "incsink_inject"
#define WAIT_STEP_MS 10L

typedef enum InjectionKind
{
	INJECTION_NONE,
	INJECTION_ERROR,
	INJECTION_KILL,
	INJECTION_WAIT,
	INJECTION_ERRNO
} InjectionKind;

typedef struct InjectionAction
{
	InjectionKind kind;
	bool		once;
	int			error_number;	/* of INJECTION_ERRNO */
} InjectionAction;

PG_FUNCTION_INFO_V1(incsink_inject);

static void
InjectionPath(const char *name, const char *suffix, char *path)
{
	snprintf(path, MAXPGPATH, "%s/%s/%s%s", DataDir, INJECTION_DIRECTORY, name, suffix);
}

static bool
IsArmed(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Takes " once" from the end of text. */
static bool
TakeOnce(char *text)
{
	size_t		length = strlen(text);

	if (length < 5 || strcmp(text + length - 5, " once") != 0)
		return false;
	text[length - 5] = '\0';
	return true;
}

/* Understands an action; false when it is none.  Changes text. */
static bool
ParseAction(char *text, InjectionAction *action)
{
	char	   *end;

	action->once = TakeOnce(text);
	action->error_number = EIO;
	if (strcmp(text, "error") == 0)
		action->kind = INJECTION_ERROR;
	else if (strcmp(text, "kill") == 0)
		action->kind = INJECTION_KILL;
	else if (strcmp(text, "wait") == 0 && !action->once)
		action->kind = INJECTION_WAIT;
	else if (strncmp(text, "errno ", 6) == 0 && text[6] >= '1' && text[6] <= '9')
	{
		long		number = strtol(text + 6, &end, 10);

		if (*end != '\0' || number > 4095)
			return false;
		action->kind = INJECTION_ERRNO;
		action->error_number = (int) number;
	}
	else
		return false;
	return true;
}

/*
 * Reads what a point is armed with, nothing when it is not, and disarms it when
 * that was for once.  Raises nothing.
 */
static InjectionAction
ArmedAction(const char *name, char *path)
{
	InjectionAction action = {INJECTION_NONE, false, 0};
	char		text[32];
	ssize_t		length;
	int			fd;

	InjectionPath(name, "", path);
	if (!IsArmed(path))
		return action;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return action;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return action;
	text[length] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (!ParseAction(text, &action))
		action.kind = INJECTION_NONE;
	else if (action.once)
		unlink(path);
	return action;
}

/* SIGKILL is not handled, only suffered. */
static void
KillMyself(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

/* Tells the test that the point is reached, or not any more. */
static void
MarkReached(const char *name, bool reached)
{
	char		path[MAXPGPATH];
	int			fd;

	InjectionPath(name, ".reached", path);
	if (!reached)
	{
		unlink(path);
		return;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, PG_FILE_MODE_OWNER);
	if (fd >= 0)
		close(fd);
}

/*
 * Waits until the point is disarmed, serving interrupts, which may raise an
 * ERROR or end the process.  The latch is set afterwards: whoever set it
 * meanwhile meant the caller.
 */
static void
WaitServingInterrupts(const char *name, const char *path)
{
	MarkReached(name, true);
	while (IsArmed(path) && !ShutdownRequestPending)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 WAIT_STEP_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	MarkReached(name, false);
	SetLatch(MyLatch);
}

/* Waits where nothing may be raised: until disarmed, or told to end. */
static void
WaitWithoutInterrupts(const char *name, const char *path)
{
	MarkReached(name, true);
	while (IsArmed(path) && !ProcDiePending && !ShutdownRequestPending)
		pg_usleep(WAIT_STEP_MS * 1000L);
	MarkReached(name, false);
}

/* See inject.h.  Raises an ERROR when told to, and what interrupts raise. */
void
InjectionPoint(const char *name)
{
	char		path[MAXPGPATH];
	InjectionAction action = ArmedAction(name, path);

	switch (action.kind)
	{
		case INJECTION_NONE:
			break;
		case INJECTION_KILL:
			KillMyself();
			break;
		case INJECTION_WAIT:
			WaitServingInterrupts(name, path);
			break;
		case INJECTION_ERROR:
		case INJECTION_ERRNO:
			errno = action.error_number;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("injected error at point \"%s\": %m", name)));
			break;
	}
}

/* See inject.h: errno to fail with, or 0.  Raises nothing. */
int
InjectionErrno(const char *name)
{
	char		path[MAXPGPATH];
	InjectionAction action = ArmedAction(name, path);

	switch (action.kind)
	{
		case INJECTION_NONE:
			break;
		case INJECTION_KILL:
			KillMyself();
			break;
		case INJECTION_WAIT:
			WaitWithoutInterrupts(name, path);
			break;
		case INJECTION_ERROR:
		case INJECTION_ERRNO:
			return action.error_number;
	}
	return 0;
}

static void
CheckPointName(const char *name)
{
	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN ||
		name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name of an injection point: \"%s\"", name),
				 errhint("Names consist of lower-case letters, digits and hyphens.")));
}

static void
CheckAction(const char *text)
{
	InjectionAction action;

	if (!ParseAction(pstrdup(text), &action))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid action of an injection point: \"%s\"", text),
				 errhint("Actions are \"error\", \"kill\", \"errno N\", each also followed by \" once\", and \"wait\".")));
}

/* Removes a file that may not be there. */
static void
RemoveIfExists(const char *path)
{
	if (unlink(path) < 0 && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
}

/*
 * Writes the action beside its name and renames it, so that no process reads
 * half of it.
 */
static void
ArmPoint(const char *name, const char *action)
{
	char		path[MAXPGPATH];
	char		draft[MAXPGPATH];
	size_t		length = strlen(action);
	int			fd;
	bool		ok;

	InjectionPath("", "", path);
	if (mkdir(path, pg_dir_create_mode) < 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", path)));
	InjectionPath(name, "", path);
	InjectionPath(name, ".draft", draft);
	fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, PG_FILE_MODE_OWNER);
	ok = fd >= 0 && write(fd, action, length) == (ssize_t) length;
	if (fd >= 0)
		close(fd);
	if (!ok || rename(draft, path) < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", path)));
}

/*
 * incsink_inject(point text, action text): arms a point, or, with an action of
 * NULL, disarms it.
 */
Datum
incsink_inject(PG_FUNCTION_ARGS)
{
	char		path[MAXPGPATH];
	char	   *name;

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to use injection points")));
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name of an injection point must not be null")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	CheckPointName(name);

	InjectionPath(name, ".reached", path);
	RemoveIfExists(path);
	if (PG_ARGISNULL(1))
	{
		InjectionPath(name, "", path);
		RemoveIfExists(path);
	}
	else
	{
		char	   *action = text_to_cstring(PG_GETARG_TEXT_PP(1));

		CheckAction(action);
		ArmPoint(name, action);
	}
	PG_RETURN_VOID();
}

#endif							/* INCSINK_INJECT */
