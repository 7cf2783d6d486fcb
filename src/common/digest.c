/*
 * digest.c
 *		SHA-256, by the server's own implementation (OpenSSL where it has it).
 */
#include "postgres.h"

#include "common/base64.h"
#include "common/digest.h"
#include "utils/builtins.h"

static void
Check(bool works)
{
	if (!works)
		elog(ERROR, "could not compute a SHA-256 digest");
}

Sha256 *
Sha256Begin(void)
{
	Sha256	   *hash = pg_cryptohash_create(PG_SHA256);

	Check(hash != NULL && pg_cryptohash_init(hash) >= 0);
	return hash;
}

void
Sha256Add(Sha256 *hash, const void *data, size_t length)
{
	Check(pg_cryptohash_update(hash, data, length) >= 0);
}

void
Sha256Finish(Sha256 *hash, uint8 *digest)
{
	Check(pg_cryptohash_final(hash, digest, PG_SHA256_DIGEST_LENGTH) >= 0 &&
		  pg_cryptohash_init(hash) >= 0);
}

void
Sha256FinishHex(Sha256 *hash, char *out)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	Sha256Finish(hash, digest);
	(void) hex_encode((const char *) digest, sizeof(digest), out);
	out[SHA256_HEX_LENGTH] = '\0';
}

void
Sha256Free(Sha256 *hash)
{
	pg_cryptohash_free(hash);
}

void
Sha256Hex(const void *data, size_t length, char *out)
{
	Sha256	   *hash = Sha256Begin();

	Sha256Add(hash, data, length);
	Sha256FinishHex(hash, out);
	Sha256Free(hash);
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
