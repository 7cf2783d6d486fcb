/*
 * signature.c
 *		Signatures of request bodies by the Standard Webhooks specification.
 */
#include "postgres.h"

#include "common/base64.h"
#include "common/hmac.h"
#include "common/signature.h"
#include "utils/resowner.h"

#define SIGNING_PREFIX "whsec_"
#define SIGNATURE_VERSION "v1,"

int
DecodeSigningSecret(const char *secret, uint8 *key)
{
	uint8		decoded[SIGNING_KEY_MAX + 3];
	const char *encoded = secret + strlen(SIGNING_PREFIX);
	int			length;

	if (strncmp(secret, SIGNING_PREFIX, strlen(SIGNING_PREFIX)) != 0 ||
		strlen(encoded) % 4 != 0 || strchr(encoded, ' ') != NULL ||
		pg_b64_dec_len(strlen(encoded)) > sizeof(decoded))
		return -1;
	length = pg_b64_decode(encoded, strlen(encoded), (void *) decoded, sizeof(decoded));
	if (length < SIGNING_KEY_MIN || length > SIGNING_KEY_MAX)
		return -1;
	if (key != NULL)
		memcpy(key, decoded, length);
	return length;
}

static void
ComputeHmac(const void *key, size_t key_length, const SignedPiece *pieces, int npieces,
			uint8 digest[PG_SHA256_DIGEST_LENGTH])
{
	pg_hmac_ctx *hmac = pg_hmac_create(PG_SHA256);
	bool		works = hmac != NULL && pg_hmac_init(hmac, key, key_length) >= 0;

	for (int i = 0; works && i < npieces; i++)
		works = pg_hmac_update(hmac, pieces[i].data, pieces[i].length) >= 0;
	works = works && pg_hmac_final(hmac, digest, PG_SHA256_DIGEST_LENGTH) >= 0;
	pg_hmac_free(hmac);
	if (!works)
		elog(ERROR, "could not compute an HMAC");
}

/* The server notes contexts with a resource owner, and outside of transactions has none. */
void
HmacSha256(const void *key, size_t key_length, const SignedPiece *pieces, int npieces,
		   uint8 digest[PG_SHA256_DIGEST_LENGTH])
{
	ResourceOwner saved = CurrentResourceOwner;
	ResourceOwner own = ResourceOwnerCreate(NULL, "incsink signature");

	PG_TRY();
	{
		CurrentResourceOwner = own;
		ComputeHmac(key, key_length, pieces, npieces, digest);
	}
	PG_FINALLY();
	{
		ResourceOwnerRelease(own, RESOURCE_RELEASE_BEFORE_LOCKS, false, false);
		ResourceOwnerRelease(own, RESOURCE_RELEASE_LOCKS, false, false);
		ResourceOwnerRelease(own, RESOURCE_RELEASE_AFTER_LOCKS, false, false);
		CurrentResourceOwner = saved;
		ResourceOwnerDelete(own);
	}
	PG_END_TRY();
}

char *
SignWebhook(const char *secret, const char *id, int64 timestamp, const void *body, size_t length)
{
	char	   *head = psprintf("%s.%lld.", id, (long long) timestamp);
	SignedPiece pieces[] = {{head, strlen(head)}, {body, length}};
	uint8		key[SIGNING_KEY_MAX];
	int			key_length = DecodeSigningSecret(secret, key);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	int			size = strlen(SIGNATURE_VERSION) + pg_b64_enc_len(sizeof(digest)) + 1;
	char	   *out = palloc0(size);

	if (key_length < 0)
		elog(ERROR, "signing secret is not valid");
	HmacSha256(key, key_length, pieces, lengthof(pieces), digest);
	strcpy(out, SIGNATURE_VERSION);
	if (pg_b64_encode((const void *) digest, sizeof(digest), out + strlen(out),
					  size - strlen(out)) < 0)
		elog(ERROR, "could not encode a signature");
	pfree(head);
	return out;
}
