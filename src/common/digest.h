/*
 * digest.h
 *		SHA-256, by the server's own implementation.
 */
#ifndef INCSINK_DIGEST_H
#define INCSINK_DIGEST_H

#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"

#define SHA256_HEX_LENGTH (PG_SHA256_DIGEST_LENGTH * 2)

/* Lower-case hex, terminated; out has SHA256_HEX_LENGTH + 1 bytes. */
extern void Sha256Hex(const void *data, size_t length, char *out);

/*
 * In pieces.  Sha256Finish() gives the digest, PG_SHA256_DIGEST_LENGTH bytes, and begins
 * anew.  The resource owner of a (sub)transaction that is aborted frees it, too.
 */
typedef pg_cryptohash_ctx Sha256;

extern Sha256 *Sha256Begin(void);
extern void Sha256Add(Sha256 *hash, const void *data, size_t length);
extern void Sha256Finish(Sha256 *hash, uint8 *digest);
extern void Sha256FinishHex(Sha256 *hash, char *out);
extern void Sha256Free(Sha256 *hash);

/* The same digest in base64, from its hex form; palloc'd. */
extern char *Sha256HexToBase64(const char *hex);

#endif							/* INCSINK_DIGEST_H */
