/*
 * digest.h
 *		SHA-256, by the server's own implementation.
 */
#ifndef INCSINK_DIGEST_H
#define INCSINK_DIGEST_H

#include "postgres.h"

#include "common/sha2.h"

#define SHA256_HEX_LENGTH (PG_SHA256_DIGEST_LENGTH * 2)

/* Lower-case hex, terminated; out has SHA256_HEX_LENGTH + 1 bytes. */
extern void Sha256Hex(const void *data, size_t length, char *out);

/* The same digest in base64, from its hex form; palloc'd. */
extern char *Sha256HexToBase64(const char *hex);

#endif							/* INCSINK_DIGEST_H */
