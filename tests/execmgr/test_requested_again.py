"""Slots asked for anew, under another name: at any instant, of sites that may be silent."""

import pytest

from tests.execmgr.test_survival import (
    FragileJournal,
    Killed,
    World,
    check_ended_well,
    no_leaving,
    planned,
)
from tests.planner.test_planner import chain
from vgrads.drivers.api import SlotSpec, SlotState, SlotStatus
from vgrads.drivers.simulated import SiteBehaviour
from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.journal import MemoryJournal, fold
from vgrads.execmgr.core.states import SiteSilent, SlotRequestedAgain
from vgrads.execmgr.pilot_reports import PilotReports
from vgrads.execmgr.pilots import SitePolling
from vgrads.execmgr.runner import Runner
from vgrads.execmgr.sites import Sites
from vgrads.execmgr.slot_names import spec_id
from vgrads.kernel.clock import SimClock
from vgrads.kernel.errors import SiteError

__all__ = ["no_leaving"]  # a fixture


def ask_again(world, events):
    """What a manager writes first that can do nothing with the pilots of the one before."""
    state = fold(world.executions, events)
    reserved = [s for s, r in state.slots.items() if r.state is not None and not r.state.ended]
    again = [
        SlotRequestedAgain(at_s=world.clock.now(), slot=slot, reason="is of before")
        for slot in reserved
    ]
    return [*events, *again], reserved


@pytest.mark.parametrize("silence", [0.0, 0.4])
def test_slots_are_requested_again_at_every_position_of_a_journal(silence):
    """All that is old is given back, nothing is lost, and what was done stays done."""
    execution = planned([chain("w", 50.0, 70.0), chain("v", 30.0, 40.0, 20.0)], 2, needed=2)
    behaviour = SiteBehaviour(boot_s=5.0, seed=3)
    requested = 0
    for position in range(1, 40):
        world = World(execution, behaviour, silence=silence, spare_workflows=1)
        journal = FragileJournal(position, before=False)
        runner = Runner("r", execution, world.around(journal))
        try:
            runner.run()
            break
        except Killed:
            events, reserved = ask_again(world, journal.events)
        before = fold(world.executions, journal.events)
        journal = MemoryJournal()
        journal.events = events
        state = fold(world.executions, events)
        runner = Runner("r", world.executions[state.version], world.around(journal))
        state = runner.resume(state)
        check_ended_well(world, state, journal)
        assert dict(before.done).items() <= dict(state.done).items()
        assert len(find_done_workflows(runner.execution, state)) == 2
        for name in reserved:
            requested += state.slots[name].again
            old = world.inner[runner.execution.place(name)].status([spec_id(name, "r")])[0]
            assert old.state.ended
            new = world.inner[runner.execution.place(name)].status([spec_id(name, "r", 1)])[0]
            assert silence or new.reason != "unknown to the site"
    assert requested >= 8


class TwoSlots:
    """Slots ``old`` and ``other`` of one site."""

    def place(self, slot):
        return "a"

    def spec(self, slot_id, run, pilot=None):
        return SlotSpec(
            id=spec_id(slot_id, run), name=slot_id, site="a", queue="", procs=1, duration_s=1.0
        )


class SingleSilence:
    """A site that does not answer about one slot."""

    def __init__(self, about):
        self.about, self.calls = about, []

    def submit(self, spec):
        self.calls.append(("submit", spec.id))

    def cancel(self, name):
        if name == self.about:
            raise SiteError("no answer", site="a", transient=True)
        self.calls.append(("cancel", name))

    def status(self, names):
        return [SlotStatus(id=n, state=SlotState.QUEUED, since_s=0.0) for n in names]


def test_a_slot_is_not_requested_again_before_the_old_slot_is_released():
    clock, site, slots = SimClock(), SingleSilence("r.old"), TwoSlots()
    sites = Sites("r", {"a": site}, clock, {})
    sites.rename(slots, "old", 1)
    (silent,) = sites.find(slots, "old", SlotState.REQUESTED)
    assert isinstance(silent, SiteSilent)
    sites.know("other", SlotState.QUEUED)
    clock.advance_to(10.0)
    sites.close(slots, "other")
    sites.news(slots)
    assert site.calls == []
    site.about = ""
    clock.advance_to(100.0)
    result = {news.slot: news.state for news in sites.news(slots)}
    assert result["old"] == SlotState.QUEUED
    assert site.calls == [("cancel", "r.old"), ("cancel", "r.other"), ("submit", "r.old.again1")]


def test_a_slot_requested_again_waits_for_its_pilot_from_the_beginning():
    """Its site said that it was ready before its first pilot reported; that was long ago."""
    clock, reporting = SimClock(), set()
    polling = SitePolling(reports=reporting.__contains__, patience_s=180.0)
    pilots = PilotReports(clock, {"far": polling})
    ready = SlotStatus(id="s", state=SlotState.READY, since_s=0.0)
    assert pilots.confirmed("far", "s", ready).state == SlotState.GRANTED
    reporting.add("s")
    (update,) = pilots.ready(["s"], {"s": SlotState.GRANTED}, lambda _slot: "far")
    assert update.state == SlotState.READY
    reporting.clear()
    clock.advance_to(500.0)
    assert pilots.confirmed("far", "s", ready).state == SlotState.GRANTED
    clock.advance_to(700.0)
    late = pilots.confirmed("far", "s", ready)
    assert late.state == SlotState.FAILED and late.permanent
