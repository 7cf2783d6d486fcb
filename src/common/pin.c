/*
 * pin.c
 *		The settings that output functions look at, each at one fixed value.
 *
 * The encoders' own writers read no setting.  What goes through the output
 * function of its type (arrays, composites, intervals, money, reg* ...) does:
 * without this, a retry from a session with another TimeZone would have
 * another body (DESIGN.md, I10).
 */
#include "postgres.h"

#include "utils/guc.h"

#include "common/pin.h"

typedef struct PinnedSetting
{
	const char *name;
	const char *value;			/* as GetConfigOption() would return it */
} PinnedSetting;

static const PinnedSetting PinnedSettings[] = {
	{"DateStyle", "ISO, YMD"},
	{"IntervalStyle", "postgres"},
	{"TimeZone", "UTC"},
	{"extra_float_digits", "1"},	/* the shortest text that reads back */
	{"bytea_output", "hex"},
	{"xmlbinary", "base64"},
	{"lc_monetary", "C"},
	{"lc_numeric", "C"},
	{"lc_time", "C"},
	{"quote_all_identifiers", "off"},
	{"search_path", "pg_catalog, pg_temp"}, /* reg* names, and safety */
};

/*
 * PinOutputSettings
 *		Pins every setting that an output function could look at.
 *
 * The caller has called NewGUCNestLevel(), and undoes this with
 * AtEOXact_GUC(); an abort of the (sub)transaction undoes it as well.  A
 * setting that has its value already is left alone: for a worker, whose own
 * settings are these, pinning costs a few comparisons a batch.
 *
 * client_encoding is not among them: output functions give the server's
 * encoding, and the encoders convert from there.
 */
void
PinOutputSettings(void)
{
	for (int i = 0; i < lengthof(PinnedSettings); i++)
	{
		const PinnedSetting *setting = &PinnedSettings[i];
		const char *now = GetConfigOption(setting->name, false, false);

		if (now != NULL && strcmp(now, setting->value) == 0)
			continue;
		(void) set_config_option(setting->name, setting->value,
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	}
}
