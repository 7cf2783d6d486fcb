/*
 * file_list.c
 *		Which files are below a directory, and what they hold.
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "transport/file_list.h"

#define SLICE (64 * 1024)

static bool
IsRealDirectory(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static void VisitEntry(const char *directory, const char *path, int level,
					   const FileVisitor *visitor);

/* Visits what an open directory holds; 0 or an errno. */
static int
VisitEntries(DIR *dir, const char *directory, const char *path, int level,
			 const FileVisitor *visitor)
{
	struct dirent *entry;

	while (errno = 0, (entry = readdir(dir)) != NULL)
	{
		char	   *child;

		CHECK_FOR_INTERRUPTS();
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			!visitor->matches(visitor->arg, level, entry->d_name))
			continue;
		child = psprintf("%s/%s", path, entry->d_name);
		VisitEntry(directory, child, level, visitor);
		pfree(child);
	}
	return errno;
}

/* "path" is the directory or one below it, down to which "level" names lead. */
static void
VisitDirectory(const char *directory, const char *path, int level, const FileVisitor *visitor)
{
	DIR		   *dir = AllocateDir(path);
	int			error_number = errno;

	if (dir == NULL && level == 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open directory \"%s\": %m", path)));
	if (dir != NULL)
	{
		error_number = VisitEntries(dir, directory, path, level, visitor);
		FreeDir(dir);
	}
	if (error_number != 0 && error_number != ENOENT)
		visitor->failed(visitor->arg, level == 0 ? "" : path + strlen(directory) + 1,
						error_number);
}

static void
VisitEntry(const char *directory, const char *path, int level, const FileVisitor *visitor)
{
	if (level == visitor->depth - 1)
		visitor->found(visitor->arg, path + strlen(directory) + 1);
	else if (IsRealDirectory(path))
		VisitDirectory(directory, path, level + 1, visitor);
}

void
VisitFiles(const char *directory, const FileVisitor *visitor)
{
	VisitDirectory(directory, directory, 0, visitor);
}

/* Reads to the end; 0 or an errno. */
static int
TakeSlices(int fd, char *slice, FileSliceFunction take, void *arg)
{
	for (;;)
	{
		ssize_t		length;

		CHECK_FOR_INTERRUPTS();
		length = read(fd, slice, SLICE);
		if (length == 0)
			return 0;
		if (length > 0)
			take(arg, slice, length);
		else if (errno != EINTR)
			return errno;
	}
}

/* O_NONBLOCK is for a FIFO of that name. */
int
ReadFileSlices(const char *path, FileSliceFunction take, void *arg)
{
	int			fd = OpenTransientFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	struct stat status;
	int			result;

	if (fd < 0)
		return errno == ELOOP || errno == ENXIO ? FILE_NOT_REGULAR : errno;
	if (fstat(fd, &status) < 0)
		result = errno;
	else if (!S_ISREG(status.st_mode))
		result = FILE_NOT_REGULAR;
	else
	{
		char	   *slice = palloc(SLICE);

		result = TakeSlices(fd, slice, take, arg);
		pfree(slice);
	}
	CloseTransientFile(fd);
	return result;
}
