"""Alarms of a run besides their messages: its owner's rules at the start, and what is
acknowledged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vgrads.kernel.errors import InputError
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.owner_rules import OwnerRules
from vgrads.portal.records.reading.run_rows import GOES_ON, InapplicableError
from vgrads.portal.records.store import Store

if TYPE_CHECKING:
    from vgrads.api.plans.planning import Planned


def with_owner_rules(store: Store, owner: str, planned: Planned) -> Planned:
    """Return a plan whose set has its owner's rules of alarms where it states none. They are those
    of its run from here on: rules that change later do not concern it."""
    rules = None
    if planned.snapshot.workflow_set.alarms is None:
        rules = OwnerRules(store.engine).find(owner)
    if rules is None:
        return planned
    workflow_set = replace(planned.snapshot.workflow_set, alarms=rules)
    return replace(planned, snapshot=replace(planned.snapshot, workflow_set=workflow_set))


def acknowledge_alarms(store: Store, run_id: str, by: str, upto: int | None = None) -> int:
    """Send a run's manager who takes care of its alarms, up to a number (None: all so far); return
    the number. InapplicableError where the run has ended, InputError without such an alarm."""
    # imported late: the service starts without what runs are made of
    from vgrads.execmgr.core.journal import fold
    from vgrads.portal.records.run_record import RunRecord

    if store.get_run(run_id).state not in GOES_ON:
        raise InapplicableError(f"run '{run_id}' has ended: there is nothing to acknowledge")
    record = RunRecord(store.engine, run_id)
    executions = record.executions()
    count = len(fold(executions, record.stored.events()).alarms) if executions else 0
    number = count if upto is None else upto
    if not 1 <= number <= count:
        raise InputError(f"run '{run_id}' has no alarm {number or 'so far'}", where=run_id)
    MessageBox(store.engine, run_id).send({"kind": "acknowledge", "upto": number, "by": by})
    return number
