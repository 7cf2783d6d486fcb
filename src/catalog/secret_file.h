/*
 * secret_file.h
 *		Secrets in a file of the server: name=value, one a line.
 */
#ifndef INCSINK_SECRET_FILE_H
#define INCSINK_SECRET_FILE_H

#include "postgres.h"

#include "nodes/pg_list.h"

/*
 * The secrets in a file, a list of Secret in the current memory context.  False and
 * a sentence that names the file, and nothing of what it holds, when it cannot be
 * read or is malformed.
 */
extern bool ReadSecretFile(const char *path, List **secrets, char **problem);

#endif							/* INCSINK_SECRET_FILE_H */
