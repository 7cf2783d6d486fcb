/*
 * file.h
 *		Objects as files: complete under their name, or not there.
 */
#ifndef INCSINK_FILE_H
#define INCSINK_FILE_H

#include "postgres.h"

typedef enum FilePutOutcome
{
	FILE_PUT_STORED,			/* durable under its name */
	FILE_PUT_EXISTS_SAME,		/* a file of that name was there, with one of
								 * the digests given: ours, made durable */
	FILE_PUT_EXISTS_OTHER,		/* a file of that name was there that is not
								 * ours: untouched */
	FILE_PUT_FAILED				/* nothing durable under the name, error says
								 * why; another FilePut() settles it */
} FilePutOutcome;

typedef struct FilePutResult
{
	FilePutOutcome outcome;
	int			error_number;	/* errno of FILE_PUT_FAILED */
	char		error[512];		/* what could not be done, with which path */
} FilePutResult;

/*
 * Stores length bytes as directory/key, where directory is absolute and exists
 * and key is relative, without empty, "." or ".." segments; missing
 * directories between them are made (mode 0700 less umask, like the data
 * directory's, and fsynced up to "directory").
 *
 * Order: write directory-of-key/.incsink-<batch_id>.tmp (O_CREAT | O_EXCL |
 * O_NOFOLLOW, mode 0600; a leftover of that name is removed), fsync it, link it
 * to its name without replacing (renameat2 RENAME_NOREPLACE, or link and unlink
 * where the file system cannot), fsync the directories.  No symbolic link below
 * directory is followed.  A digest is a SHA-256 in 64 lower-case hex digits.
 *
 * Never raises an ERROR and leaves no descriptor open.
 */
extern void FilePut(const char *directory, const char *key, const char *batch_id,
					const char *body, size_t length,
					const char *const *digests, int ndigests,
					FilePutResult *result);

/*
 * Removes the temporary file that a FilePut() cut short by a crash may have left,
 * for a batch that is not put again.  A file that has its name already stays.
 */
extern void FileForget(const char *directory, const char *key, const char *batch_id);

#endif							/* INCSINK_FILE_H */
