/*
 * file_list.h
 *		Which files are below a directory, and what they hold.
 *
 * No symbolic link below the directory is followed.  Descriptors belong to the
 * (sub)transaction: an ERROR in a callback leaves none open.
 */
#ifndef INCSINK_FILE_LIST_H
#define INCSINK_FILE_LIST_H

#include "postgres.h"

typedef struct FileVisitor
{
	int			depth;			/* of the files: 1 = in the directory itself */

	/* Is the name, at a level from 0, of interest? */
	bool		(*matches) (void *arg, int level, const char *name);

	/* Something at the last level, whatever it is; the key is relative. */
	void		(*found) (void *arg, const char *key);

	/* A directory on the way could not be read. */
	void		(*failed) (void *arg, const char *key, int error_number);

	void	   *arg;
} FileVisitor;

/*
 * Visits what matches at every level, in no order.  What vanishes meanwhile is passed
 * over.  Raises an ERROR if the directory itself cannot be opened.
 */
extern void VisitFiles(const char *directory, const FileVisitor *visitor);

/* Told the bytes of a file, piece by piece. */
typedef void (*FileSliceFunction) (void *arg, const char *bytes, size_t length);

/* What ReadFileSlices() returns for a directory, a symbolic link, a FIFO ... */
#define FILE_NOT_REGULAR (-1)

/* 0 when all was read, an errno, or FILE_NOT_REGULAR; the callback may have been called. */
extern int	ReadFileSlices(const char *path, FileSliceFunction take, void *arg);

#endif							/* INCSINK_FILE_LIST_H */
