"""The sites of a run, through their drivers: slots are requested, polled and released, even if a
site is silent for a while.

Calls to a site that does not answer are retried with backoff; a slot that could not be released is
released later. A permanent refusal makes the slot fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from vgrads.drivers.api import Driver, SlotSpec, SlotState, SlotStatus
from vgrads.execmgr.core.states import Event, SlotUpdate
from vgrads.execmgr.pilot_reports import PilotReports
from vgrads.execmgr.pilots import Pilot, SitePolling
from vgrads.execmgr.site_backoff import SiteBackoff
from vgrads.execmgr.slot_names import SlotNames
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError

_AT_ONCE = SitePolling()
_SOON_S = 1.0


class Slots(Protocol):
    """Slots to request, by name: of a plan
    (:class:`vgrads.execmgr.core.execution_plan.ExecutionPlan`) or of a pool of nodes."""

    def place(self, slot: str) -> str:
        """Return the site of a slot."""

    def spec(self, slot_id: str, run: str, pilot: Pilot | None = None) -> SlotSpec:
        """Return the request for a slot."""


class Sites:
    """Requests to the drivers, and the last reported states of slots that are not terminal."""

    def __init__(
        self,
        run: str,
        drivers: Mapping[str, Driver],
        clock: Clock,
        polling: Mapping[str, SitePolling],
    ) -> None:
        self._run, self._drivers, self._clock, self._polling = run, drivers, clock, polling
        self._states: dict[str, SlotState] = {}
        self._to_open: set[str] = set()
        self._to_close: set[str] = set()
        self._to_look: set[str] = set()
        self._silent = SiteBackoff(clock)
        self.reasons = self._silent.reasons  # why sites do not answer
        self._looked_s: dict[str, float] = {}
        self._pilots, self._names = PilotReports(clock, polling), SlotNames(run)

    def rename(self, execution: Slots, slot: str, again: int) -> None:
        """Use the slot's new name; slots under earlier names are released first."""
        self._names.rename(slot, again, execution.place(slot))

    def find(self, execution: Slots, slot: str, state: SlotState) -> list[Event]:
        """Watch a slot that an earlier manager requested: submission is idempotent, and finds it;
        at once, so that no other slot gets its resources first."""
        self._states[slot] = state
        self._to_open.add(slot)
        return self._retry(execution, execution.place(slot))

    def know(self, slot: str, state: SlotState) -> list[Event]:
        """Record a slot of an earlier manager that is only to be released: nothing is requested."""
        self._states[slot] = state
        return []

    def open(self, execution: Slots, slot: str) -> list[Event]:
        """Request a slot, now or when its site answers again."""
        self._states[slot] = SlotState.REQUESTED
        self._to_open.add(slot)
        return self._retry(execution, execution.place(slot))

    def close(self, execution: Slots, slot: str) -> list[Event]:
        """Release a slot, now or when its site answers again."""
        self._to_close.add(slot)
        return self._retry(execution, execution.place(slot))

    def news(self, execution: Slots) -> list[Event]:
        """Return state changes: one call to each site that has slots that are not terminal."""
        events: list[Event] = []
        for site, driver in self._drivers.items():
            if not self._silent.may_ask(site):
                continue
            events += self._retry(execution, site)
            if self._silent.may_ask(site) and self._is_time(site, driver):
                events += self._query(execution, site)
        waiting = [slot for slot in self._states if slot not in self._to_open]
        ready = self._pilots.ready(waiting, self._states, execution.place)
        new = [e.slot for e in ready if self._states[e.slot] == SlotState.REQUESTED]
        for site in sorted(self._drivers.keys() & {execution.place(slot) for slot in new}):
            if self._silent.may_ask(site):  # only sites name the job of a pilot that is quick
                events += self._query(execution, site)
        ready = [e for e in ready if self._states.get(e.slot, SlotState.READY) < SlotState.READY]
        self._states.update(dict.fromkeys((event.slot for event in ready), SlotState.READY))
        return [*events, *ready]

    def _query(self, execution: Slots, site: str) -> list[Event]:
        """Ask a site for all its slots that are not known to be terminal."""
        requested = self._open_slots(execution, site)
        if not requested:
            return []
        self._to_look.discard(site)
        self._looked_s[site] = self._clock.now()
        try:
            answers = self._drivers[site].status([self._names.of(slot) for slot in requested])
        except SiteError as error:
            # virtual time advances to what is due, so the repetition must be due
            if self._clock.virtual:
                self._to_look.add(site)
            return self._silent.note(site, error)
        self._silent.record_answer(site)
        events: list[Event] = []
        for slot, status in zip(requested, answers, strict=True):
            reported = self._reported(site, slot, status)
            if reported.state > self._states[slot]:
                self._states[slot] = reported.state
                if reported.state.ended:
                    del self._states[slot]
                    self._to_close.discard(slot)
                events.append(_update(reported, slot))
        return events

    def _reported(self, site: str, slot: str, status: SlotStatus) -> SlotStatus:
        """Return the status of a slot, which is ready only when its pilot also accepts tasks."""
        # it ended on request, however its site calls that
        if slot in self._to_close and status.state.ended:
            return replace(status, state=SlotState.RELEASED, reason="released")
        if status.state != SlotState.READY or self._states[slot] == SlotState.READY:
            return status
        confirmed = self._pilots.confirmed(site, slot, status)
        if confirmed.state == SlotState.GRANTED:
            # its pilot may report at any time, so the site is asked again soon
            self._to_look.add(site)
        elif confirmed.state == SlotState.FAILED:
            # its job still runs there and must be released
            self._to_close.add(slot)
        return confirmed

    def _retry(self, execution: Slots, site: str) -> list[Event]:
        """Make the pending requests to a site."""
        requested = self._to_close or self._to_open or self._names.any_outdated
        if not requested or not self._silent.may_ask(site):
            return []
        events = self._release_outdated(site)
        if self._names.outdated(site):
            return events
        for slot in sorted(s for s in self._to_close if execution.place(s) == site):
            if self._pilots.is_ending(site, slot, self._states.get(slot)):
                self._to_look.add(site)
                continue
            events += self._try(site, slot, execution, closing=True)
        for slot in sorted(s for s in self._to_open if execution.place(s) == site):
            if self._silent.may_ask(site):
                events += self._try(site, slot, execution, closing=False)
        return events

    def _release_outdated(self, site: str) -> list[Event]:
        """Release slots under earlier names before any other request to a site: an earlier pilot
        would take the place of the new one."""
        for name in self._names.outdated(site):
            try:
                self._drivers[site].cancel(name)
            except SiteError as error:
                if error.transient:
                    return self._silent.note(site, error)
            self._names.drop(name)
            self._to_look.add(site)
        return []

    def _try(self, site: str, slot: str, execution: Slots, closing: bool) -> list[Event]:
        pending = self._to_close if closing else self._to_open
        try:
            if closing:
                # it is cancelled nevertheless: a request without an
                # answer may have reached the site
                self._to_open.discard(slot)
                self._drivers[site].cancel(self._names.of(slot))
            else:
                name, pilot = self._names.of(slot), self._polling.get(site, _AT_ONCE).new_pilot()
                spec = execution.spec(slot, self._run, pilot)
                self._drivers[site].submit(named_spec(spec, slot, name, pilot))
        except SiteError as error:
            if error.transient:
                return self._silent.note(site, error)
            pending.discard(slot)
            self._states.pop(slot, None)
            failed = SlotStatus(
                id=slot,
                state=SlotState.FAILED,
                since_s=self._clock.now(),
                reason=str(error),
                # other slots of the queue would be refused too; a refused release says nothing
                # about them
                permanent=not closing,
            )
            return [_update(failed, slot)]
        pending.discard(slot)
        self._silent.record_answer(site)
        self._to_look.add(site)  # effects of the request show at once, or later
        return []

    def _is_time(self, site: str, driver: Driver) -> bool:
        """True if a poll is due: after its interval, a second after a request, or when the driver
        may report a change in virtual time."""
        now, pause_s = self._clock.now(), self._polling.get(site, _AT_ONCE).poll_s
        if site in self._to_look:
            pause_s = min(pause_s, _SOON_S)
        elif self._clock.virtual and pause_s == 0 and now < driver.wake_at() < float("inf"):
            return False
        return now >= self._looked_s.get(site, -pause_s) + pause_s

    def _open_slots(self, execution: Slots, site: str) -> list[str]:
        """Return the requested slots of a site that are not known to be terminal."""
        return [
            slot
            for slot in self._states
            if slot not in self._to_open and execution.place(slot) == site
        ]

    def wake_at(self, execution: Slots) -> float:
        """Return when a poll can report a change in virtual time."""
        pending = {execution.place(slot) for slot in (*self._to_open, *self._to_close)}
        watched = pending | {execution.place(slot) for slot in self._states}
        at_once = pending | self._to_look
        due = []
        for site in watched & self._drivers.keys():
            if not self._silent.may_ask(site):
                due.append(self._silent.next_s(site))
            else:
                due.append(self._clock.now() if site in at_once else self._drivers[site].wake_at())
        return min(due, default=float("inf"))

    def forget(self) -> None:
        """Make no more requests and release nothing."""
        # without drivers nothing can be requested, and leave releases nothing
        self._drivers = {}

    def leave(self) -> None:
        """Release all slots; those left at a silent site are listed by ``vgrads sites sweep``."""
        errors = []
        for driver in self._drivers.values():
            try:
                driver.close()
            except SiteError as error:
                errors.append(error)
        if errors and not self._clock.virtual:
            raise errors[0]


def _update(status: SlotStatus, slot: str) -> SlotUpdate:
    return SlotUpdate(
        at_s=status.since_s,
        slot=slot,
        state=status.state,
        reason=status.reason,
        permanent=status.permanent,
    )


def named_spec(spec: SlotSpec, slot: str, name: str, pilot: Pilot | None) -> SlotSpec:
    """Return the request for a slot under this name at its site."""
    more = pilot.of_slot(slot, name) if pilot else {}
    return replace(spec, id=name, environment={**spec.environment, **more})
