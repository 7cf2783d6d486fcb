/*
 * kind.c
 *		The kinds of sinks there are.
 */
#include "postgres.h"

#include "common/settings.h"
#include "sink/kind.h"

static const SinkKind *const kinds[] = {&ForwardKind, &BlobKind};

const SinkKind *
SinkKindByName(const char *name)
{
	for (int i = 0; i < lengthof(kinds); i++)
	{
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	}
	return NULL;
}

void
FillKeyValues(const Batch *batch, KeyValues *values)
{
	memset(values, 0, sizeof(*values));
	values->batch_id = batch->intent->batch_id;
	values->dataset = batch->partition->dataset;
	values->source = batch->partition->source;
	values->sink = batch->sink->name;
	values->destination = batch->intent->destination;
	values->instance = setting_instance;
	values->epoch = batch->intent->epoch;
	values->ext = batch->encoder->extension;
	values->since = batch->intent->since;
	values->until = batch->intent->until;
	values->time = batch->intent->created_at;
}
