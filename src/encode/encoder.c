/*
 * encoder.c
 *		The formats that there are.
 */
#include "postgres.h"

#include "encode/encoder.h"

static const EncoderRoutine *const Encoders[] = {
	&NdjsonEncoder,
	&JsonArrayEncoder,
	&CloudEventsEncoder,
};

/*
 * EncoderForFormat
 *		Looks up the value of the option "format"; NULL for an unknown one, so
 *		that the caller can name the option in its error.
 */
const EncoderRoutine *
EncoderForFormat(const char *format)
{
	for (int i = 0; i < lengthof(Encoders); i++)
	{
		if (strcmp(Encoders[i]->format, format) == 0)
			return Encoders[i];
	}
	return NULL;
}
