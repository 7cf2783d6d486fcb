/*
 * signature.h
 *		Signatures of request bodies by the Standard Webhooks specification.
 */
#ifndef INCSINK_SIGNATURE_H
#define INCSINK_SIGNATURE_H

#include "postgres.h"

#include "common/sha2.h"

/* Bytes that a key may have. */
#define SIGNING_KEY_MIN 24
#define SIGNING_KEY_MAX 64

/*
 * Decodes "whsec_" and base64 into "key", of SIGNING_KEY_MAX bytes, which may be NULL.
 * Gives the length of the key, -1 for anything else.
 */
extern int	DecodeSigningSecret(const char *secret, uint8 *key);

/*
 * HMAC-SHA256 over several pieces, as if they were one.  Works outside of
 * transactions; raises an ERROR only if the server's library fails.
 */
typedef struct SignedPiece
{
	const void *data;
	size_t		length;
} SignedPiece;

extern void HmacSha256(const void *key, size_t key_length, const SignedPiece *pieces,
					   int npieces, uint8 digest[PG_SHA256_DIGEST_LENGTH]);

/* "v1,<base64>" over id.timestamp.body with the key of a valid secret; palloc'd. */
extern char *SignWebhook(const char *secret, const char *id, int64 timestamp,
						 const void *body, size_t length);

#endif							/* INCSINK_SIGNATURE_H */
