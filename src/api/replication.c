/*
 * replication.c
 *		The trigger of tables that a subscription fills.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"

#include "cache/subscription.h"

PG_FUNCTION_INFO_V1(incsink_number_row);

Datum
incsink_number_row(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!(TRIGGER_FIRED_BY_INSERT(trigger->tg_event) || TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"" NUMBER_ROW_TRIGGER "\" is called by triggers BEFORE INSERT OR UPDATE, FOR EACH ROW only")));
	return PointerGetDatum(NumberReplicatedRow(trigger));
}
