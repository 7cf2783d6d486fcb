/*
 * text.h
 *		Text that people will read in a view, cut to its place.
 */
#ifndef INCSINK_TEXT_H
#define INCSINK_TEXT_H

#include "postgres.h"

/*
 * Copies as much of "in" as fits and is valid in the server's encoding, and
 * terminates it: a character that is cut in half would make the view unreadable.
 */
extern void ClipText(char *out, const char *in, size_t size);

#endif							/* INCSINK_TEXT_H */
