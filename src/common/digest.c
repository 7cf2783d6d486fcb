/*
 * digest.c
 *		SHA-256, by the server's own implementation (OpenSSL where it has it).
 */
#include "postgres.h"

#include "common/base64.h"
#include "common/cryptohash.h"
#include "common/digest.h"
#include "utils/builtins.h"

void
Sha256Hex(const void *data, size_t length, char *out)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);

	if (hash == NULL || pg_cryptohash_init(hash) < 0 ||
		pg_cryptohash_update(hash, data, length) < 0 ||
		pg_cryptohash_final(hash, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute a SHA-256 digest");
	pg_cryptohash_free(hash);
	(void) hex_encode((const char *) digest, sizeof(digest), out);
	out[SHA256_HEX_LENGTH] = '\0';
}

char *
Sha256HexToBase64(const char *hex)
{
	char		digest[PG_SHA256_DIGEST_LENGTH];
	int			size = pg_b64_enc_len(PG_SHA256_DIGEST_LENGTH) + 1;
	char	   *out = palloc0(size);

	(void) hex_decode(hex, SHA256_HEX_LENGTH, digest);
	if (pg_b64_encode((const void *) digest, PG_SHA256_DIGEST_LENGTH, out, size) < 0)
		elog(ERROR, "could not encode a digest");
	return out;
}
