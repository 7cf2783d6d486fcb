/*
 * http_tls.c
 *		Certificates, keys and authorities of a request, from memory.
 *
 * Verification is never off.
 */
#include "postgres.h"

#include "transport/http_private.h"

#if LIBCURL_VERSION_NUM >= 0x074D00
#define HAVE_TLS_BLOBS
#endif

/* Raises an ERROR where libcurl cannot do what is asked for. */
void
HttpCheckTls(const HttpTls *tls)
{
#ifndef HAVE_TLS_BLOBS
	if (tls->client_certificate != NULL || tls->ca_certificate != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("certificates of sinks need libcurl 7.77 or later")));
#endif
}

#ifdef HAVE_TLS_BLOBS

/* NULL takes the option back. */
static CURLcode
SetBlob(CURL *easy, CURLoption option, const char *text)
{
	struct curl_blob blob;

	if (text == NULL)
		return curl_easy_setopt(easy, option, NULL);
	blob.data = unconstify(char *, text);
	blob.len = strlen(text);
	blob.flags = CURL_BLOB_COPY;
	return curl_easy_setopt(easy, option, &blob);
}

/* The folder of authorities that libcurl was built with, or NULL. */
static const char *
SystemAuthorities(void)
{
	curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);

	return info->age >= CURLVERSION_SEVENTH ? info->capath : NULL;
}

/* Given authorities replace the system's file and, unlike libcurl, its folder. */
static CURLcode
SetAuthorities(CURL *easy, const char *ca_certificate)
{
	CURLcode	code = SetBlob(easy, CURLOPT_CAINFO_BLOB, ca_certificate);

	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_CAPATH,
								ca_certificate != NULL ? NULL : SystemAuthorities());
	return code;
}

static CURLcode
SetClientCertificate(CURL *easy, const HttpTls *tls)
{
	CURLcode	code = SetBlob(easy, CURLOPT_SSLCERT_BLOB, tls->client_certificate);

	if (code == CURLE_OK)
		code = SetBlob(easy, CURLOPT_SSLKEY_BLOB, tls->client_key);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_KEYPASSWD, tls->client_key_password);
	return code;
}

#endif							/* HAVE_TLS_BLOBS */

/* An easy handle serves many requests: what one has set the next takes back. */
CURLcode
HttpTransferSetTls(HttpTransfer *transfer, const HttpTls *tls)
{
	CURL	   *easy = transfer->easy;
	bool		own = tls->client_certificate != NULL || tls->ca_certificate != NULL ||
		tls->only_1_3;
	CURLcode	code;

	if (!own && !transfer->own_tls)
		return CURLE_OK;
	transfer->own_tls = true;	/* whatever comes of it */
	code = curl_easy_setopt(easy, CURLOPT_SSLVERSION,
							(long) (tls->only_1_3 ? CURL_SSLVERSION_TLSv1_3 :
									CURL_SSLVERSION_TLSv1_2));
#ifdef HAVE_TLS_BLOBS
	if (code == CURLE_OK)
		code = SetAuthorities(easy, tls->ca_certificate);
	if (code == CURLE_OK)
		code = SetClientCertificate(easy, tls);
#endif
	if (code == CURLE_OK)
		transfer->own_tls = own;
	return code;
}
