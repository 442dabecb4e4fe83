"""Runs that an earlier version of vgrads began: slots that it requested, with its pilots, are
requested again.

A job script contains the name of the pilot's module at submission, and messages of a manager
contain current module names: both must be of one version.
"""

from __future__ import annotations

from dataclasses import replace

from vgrads.api.plans.execution import Record, StartedRun
from vgrads.api.wiring import PILOT, is_real
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.journal import advance
from vgrads.execmgr.core.states import Event, SlotRequestedAgain
from vgrads.execmgr.runner import Watcher

_QUEUED = "was queued by an earlier version of vgrads; it is requested again"
_THERE = "has a pilot of an earlier version of vgrads; it is requested again"


def update_pilots(begun: StartedRun, record: Record, watch: Watcher | None = None) -> StartedRun:
    """Return the same run with every open slot to be requested again with the current pilot.

    This is journalled before the new pilot version is stored: if the process is killed in between,
    its successor finds no old open slots, or requests them once more.
    """
    if begun.setup.pilot == PILOT:
        return begun
    events = _rerequest_slots(begun)
    state = begun.state
    if events:
        record.append(events)
    for event in events:
        state = advance(begun.executions, state, event)
    setup = replace(begun.setup, pilot=PILOT)
    record.keep_setup(setup)
    if events and watch:
        watch(begun.executions[state.version], state, events)
    return replace(begun, setup=setup, state=state)


def _rerequest_slots(begun: StartedRun) -> list[Event]:
    """Return one event for each slot with a pilot that is needed and may exist."""
    execution, catalog = begun.executions[begun.state.version], begun.setup.catalog
    events: list[Event] = []
    for slot, record in begun.state.slots.items():
        if record.state is None or record.state.ended or record.closing:
            continue
        if is_real(catalog.site(execution.place(slot))):
            reason = _THERE if record.state == SlotState.READY else _QUEUED
            events.append(SlotRequestedAgain(at_s=begun.elapsed_s, slot=slot, reason=reason))
    return events
