"""Runs that an earlier version of vgrads began: slots that it asked for, with its pilots, are asked
for anew.

A job script names the pilot's module as it was when the job was submitted, and what a manager sends
to a pilot names modules as they are today: the two must be of one version.
"""

from __future__ import annotations

from dataclasses import replace

from vgrads.api.plans.execution import Begun, Record
from vgrads.api.wiring import PILOT, is_real
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.journal import advance
from vgrads.execmgr.core.states import AskedAgain, Event
from vgrads.execmgr.runner import Watcher

_QUEUED = "was queued by an earlier version of vgrads; it is requested again"
_THERE = "has a pilot of an earlier version of vgrads; it is requested again"


def with_todays_pilots(begun: Begun, record: Record, watch: Watcher | None = None) -> Begun:
    """The same run, in which every open slot is one to be asked for with today's pilot.

    That is written down before it is noted that the run has today's pilots: whoever is killed
    between the two finds nothing that is open and old, or asks for it once more.
    """
    if begun.setup.pilot == PILOT:
        return begun
    events = _asked_again(begun)
    state = begun.state
    if events:
        record.append(events)
    for event in events:
        state = advance(begun.books, state, event)
    setup = replace(begun.setup, pilot=PILOT)
    record.keep_setup(setup)
    if events and watch:
        watch(begun.books[state.version], state, events)
    return replace(begun, setup=setup, state=state)


def _asked_again(begun: Begun) -> list[Event]:
    """One event for each slot with a pilot that is wanted and may be there."""
    book, catalog = begun.books[begun.state.version], begun.setup.catalog
    found: list[Event] = []
    for slot, record in begun.state.slots.items():
        if record.state is None or record.state.ended or record.closing:
            continue
        if is_real(catalog.site(book.place(slot))):
            said = _THERE if record.state == SlotState.READY else _QUEUED
            found.append(AskedAgain(at_s=begun.passed_s, slot=slot, reason=said))
    return found
