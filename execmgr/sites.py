"""The sites of a run, through their drivers: slots opened, watched and given back, however often a
site is silent.

A site that does not answer is asked again, less and less often; a slot that could not be given back
is given back later. A site that refuses for good makes its slot fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from vgrads.drivers.api import Driver, SlotSpec, SlotState, SlotStatus
from vgrads.execmgr.core.states import Event, SlotNews
from vgrads.execmgr.engines.base import Pilot, Reach
from vgrads.execmgr.pilot_reports import PilotReports
from vgrads.execmgr.silent_sites import SilentSites
from vgrads.execmgr.slot_names import SlotNames
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError

_AT_ONCE = Reach()
_SOON_S = 1.0


class Slots(Protocol):
    """What slots are to be asked for, by name: of a plan (:class:`vgrads.execmgr.core.book.Book`)
    or of a pool of hosts."""

    def place(self, slot: str) -> str:
        """The site of a slot."""

    def spec(self, slot_id: str, run: str, pilot: Pilot | None = None) -> SlotSpec:
        """What to ask it for."""


class Sites:
    """What is asked of the drivers, and what they told last."""

    def __init__(
        self, run: str, drivers: Mapping[str, Driver], clock: Clock, reach: Mapping[str, Reach]
    ) -> None:
        self._run, self._drivers, self._clock, self._reach = run, drivers, clock, reach
        self._seen: dict[str, SlotState] = {}
        self._to_open: set[str] = set()
        self._to_close: set[str] = set()
        self._to_look: set[str] = set()
        self._silent = SilentSites(clock)
        self._looked_s: dict[str, float] = {}
        self._pilots = PilotReports(clock, reach)
        self._names = SlotNames(run)

    def rename(self, book: Slots, slot: str, again: int) -> None:
        """A slot was asked for anew so often: under its new name, once what bears the ones before
        is given back."""
        self._names.rename(slot, again, book.place(slot))

    def find(self, book: Slots, slot: str, state: SlotState) -> list[Event]:
        """Watch a slot that an earlier manager asked for: asking again is asking once, and finds
        it.

        At once, where its site answers: what a slot holds is not to be given to another one before.
        """
        self._seen[slot] = state
        self._to_open.add(slot)
        return self._retry(book, book.place(slot))

    def know(self, slot: str, state: SlotState) -> list[Event]:
        """A slot that an earlier manager asked for and that is only to be given back: nothing is
        asked for."""
        self._seen[slot] = state
        return []

    def open(self, book: Slots, slot: str) -> list[Event]:
        """Ask for a slot, now or when its site answers again."""
        self._seen[slot] = SlotState.REQUESTED
        self._to_open.add(slot)
        return self._retry(book, book.place(slot))

    def close(self, book: Slots, slot: str) -> list[Event]:
        """Give a slot back, now or when its site answers again."""
        self._to_close.add(slot)
        return self._retry(book, book.place(slot))

    def news(self, book: Slots) -> list[Event]:
        """What moved on, one call to each site with open slots; a slot known to have ended is asked
        no more."""
        found: list[Event] = []
        for site, driver in self._drivers.items():
            if not self._silent.may_ask(site):
                continue
            found += self._retry(book, site)
            asked = self._open_slots(book, site)
            if asked and self._silent.may_ask(site) and self._is_time(site):
                self._to_look.discard(site)
                self._looked_s[site] = self._clock.now()
                found += self._asked(site, driver, asked)
        return found

    def _asked(self, site: str, driver: Driver, asked: list[str]) -> list[Event]:
        try:
            answers = driver.status([self._names.of(slot) for slot in asked])
        except SiteError as error:
            return self._silent.note(site, error)
        self._silent.heard(site)
        found: list[Event] = []
        for slot, status in zip(asked, answers, strict=True):
            told = self._reported(site, slot, status)
            if told.state > self._seen[slot]:
                self._seen[slot] = told.state
                found.append(
                    SlotNews(
                        at_s=told.since_s,
                        slot=slot,
                        state=told.state,
                        reason=told.reason,
                        permanent=told.permanent,
                    )
                )
        return found

    def _reported(self, site: str, slot: str, status: SlotStatus) -> SlotStatus:
        """A slot is ready when its pilot is there for tasks too."""
        if status.state != SlotState.READY or self._seen[slot] == SlotState.READY:
            return status
        told = self._pilots.confirmed(site, slot, status)
        if told.state == SlotState.GRANTED:
            self._to_look.add(site)
        elif told.state == SlotState.FAILED:
            self._to_close.add(slot)
        return told

    def _retry(self, book: Slots, site: str) -> list[Event]:
        """Requests to a site that are still to be made."""
        if not self._silent.may_ask(site):
            return []
        found = self._give_back_outdated(site)
        if self._names.outdated(site):
            return found
        for slot in sorted(s for s in self._to_close if book.place(s) == site):
            found += self._try(site, slot, book, closing=True)
        for slot in sorted(s for s in self._to_open if book.place(s) == site):
            if self._silent.may_ask(site):
                found += self._try(site, slot, book, closing=False)
        return found

    def _give_back_outdated(self, site: str) -> list[Event]:
        """Before anything else is asked of a site: a pilot of before would take the place of the
        one that is asked for now."""
        for name in self._names.outdated(site):
            try:
                self._drivers[site].cancel(name)
            except SiteError as error:
                if error.transient:
                    return self._silent.note(site, error)
            self._names.drop(name)
        return []

    def _try(self, site: str, slot: str, book: Slots, closing: bool) -> list[Event]:
        pending = self._to_close if closing else self._to_open
        try:
            if closing:
                self._to_open.discard(slot)
                self._drivers[site].cancel(self._names.of(slot))
            else:
                spec = book.spec(slot, self._run, self._pilot(site))
                self._drivers[site].submit(replace(spec, id=self._names.of(slot)))
        except SiteError as error:
            if error.transient:
                return self._silent.note(site, error)
            pending.discard(slot)
            self._seen[slot] = SlotState.FAILED
            news = SlotNews(
                at_s=self._clock.now(),
                slot=slot,
                state=SlotState.FAILED,
                reason=str(error),
                permanent=not closing,
            )
            return [news]
        pending.discard(slot)
        self._silent.heard(site)
        self._to_look.add(site)  # what was asked shows at once, or later
        return []

    def _is_time(self, site: str) -> bool:
        """True where a look is due: after its pause, and a second after something was asked for."""
        pause_s = self._reach.get(site, _AT_ONCE).poll_s
        if site in self._to_look:
            pause_s = min(pause_s, _SOON_S)
        return self._clock.now() >= self._looked_s.get(site, -pause_s) + pause_s

    def _pilot(self, site: str) -> Pilot | None:
        make = self._reach.get(site, _AT_ONCE).pilot
        return make() if make else None

    def _open_slots(self, book: Slots, site: str) -> list[str]:
        """Slots asked of a site that are not known to have ended."""
        return [
            slot
            for slot, state in self._seen.items()
            if not state.ended and slot not in self._to_open and book.place(slot) == site
        ]

    def wake_at(self, book: Slots) -> float:
        """When asking can bring news in virtual time."""
        due = []
        for site, driver in self._drivers.items():
            pending = any(book.place(slot) == site for slot in (*self._to_open, *self._to_close))
            if not pending and not self._open_slots(book, site):
                continue
            if not self._silent.may_ask(site):
                due.append(self._silent.next_s(site))
            else:
                due.append(
                    self._clock.now() if pending or site in self._to_look else driver.wake_at()
                )
        return min(due, default=float("inf"))

    def forget(self) -> None:
        """Ask nothing more and give nothing back."""
        self._drivers = {}

    def leave(self) -> None:
        """Give back everything that is held; what a silent site keeps is told by ``vgrads sites
        sweep``."""
        errors = []
        for driver in self._drivers.values():
            try:
                driver.close()
            except SiteError as error:
                errors.append(error)
        if errors and not self._clock.virtual:
            raise errors[0]
