"""The hosts of a dispatcher: asked for and given back as ``pool`` decides, through the drivers of
the sites.

What is asked for is in the journal before a site hears of it, so that a manager that comes later
knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.explaining import unserved
from vgrads.dispatch.fleet.site_view import (
    BusySince,
    Place,
    SiteHealth,
    grid_of,
    pool_view,
)
from vgrads.dispatch.fleet.slots import FleetSlots, present
from vgrads.dispatch.fleet.supply import Fits, Grid, Supply
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.states import Event, SiteSilent, SlotNews
from vgrads.execmgr.sites import Sites
from vgrads.pool.view import PoolDecision

_MOST_REASONS = 50


@dataclass
class Fleet:
    """Requests for hosts and what became of them. ``fits``: may a bag use a grid? Told the grid's
    ad: ``Name``, ``Limit``, ``Free``, ``Queued``, ``Running`` (hosts), ``MeanWait`` (s),
    ``ErrorRate`` (of requests), ``Price``."""

    core: Core
    sites: Sites
    places: Sequence[Place]
    run: str
    pilot_environment: Callable[[str], Mapping[str, str]]
    fits: Fits = lambda bag, grid: True  # noqa: ARG005 any grid will do
    guests: bool = False
    reasons: list[tuple[float, str, str]] = field(default_factory=list)
    _health: dict[str, SiteHealth] = field(default_factory=dict)
    _to_open: list[str] = field(default_factory=list)
    _to_close: list[str] = field(default_factory=list)
    _found: bool = False
    _busy: BusySince = field(default_factory=BusySince)
    _supply: Supply = field(default_factory=Supply)
    _grids: Sequence[Grid] = ()

    def __post_init__(self) -> None:
        self.slots = FleetSlots(self.core.state, self.places, self.pilot_environment)

    def ask_at(self, places: Sequence[Place]) -> None:
        """Ask for hosts at these places from now on."""
        self.places = self.slots.places = places

    # deciding, in the loop of the dispatcher

    def decide(self, now_s: float) -> bool:
        """Look at the work and the hosts; what follows is noted, and carried out next. False where
        nothing follows."""
        return self.core.guarded(lambda: self._decide(now_s), now_s)

    def _decide(self, now_s: float) -> bool:
        self._busy.look(self.core.state.hosts.values(), now_s)
        self._count_hosts(now_s)
        moved, known = False, present(self.core.state, self.slots, now_s)
        grids = self._grids = [
            grid_of(where, known[where.site], self._of_site(where.site), now_s)
            for where in self.places
        ]
        shares = self._supply.share(
            self.core.state.bags.values(), self.core.serving, grids, self.fits
        )
        for where, work in zip(self.places, shares, strict=True):
            health = self._of_site(where.site)
            view = pool_view(where, work, known[where.site], health, self._busy, now_s)
            decision = where.decide(view)
            if decision.open and health.closed(now_s):
                decision = replace(decision, open=(), reasons=())
            self._note(where, decision, now_s)
            moved = moved or bool(decision.open or decision.withdraw or decision.drain)
        self._close_empty(now_s)
        return moved or bool(self._to_close)

    @property
    def coming(self) -> int:
        """Hosts that were asked for and have not come."""
        return sum(self.slots.missing(name, slot, 0.0) for name, slot in self.slots.open_slots())

    @property
    def expected_wait_s(self) -> float:
        """How long a host that is asked for now is waited for, by what was seen at the quickest
        site; before any has come, by its boot time."""
        waits = (self._of_site(p.site).expected_s(p.boot_s) for p in self.places)
        return min(waits, default=0.0)

    def _note(self, where: Place, decision: PoolDecision, now_s: float) -> None:
        for reason in decision.reasons:
            if not self.reasons or self.reasons[-1][1:] != (where.site, reason):
                self.reasons = [*self.reasons[-_MOST_REASONS:], (now_s, where.site, reason)]
        most = max(0, where.requests - self.slots.held()[where.site]) if decision.open else 0
        for hosts in _split(decision.open, where.widest)[:most]:
            name = f"h{len(self.core.state.slots)}"
            self.core.note(SlotChanged(id=name, site=where.site, hosts=hosts, asked_s=now_s))
            self._to_open.append(name)
        for name in decision.withdraw:
            if not self.slots.came[name]:
                health, slot = self._of_site(where.site), self.core.state.slots[name]
                health.late_s = max(health.late_s, now_s - slot.asked_s)
                self.close(name, "no more work for it")
        for number in decision.drain:
            self.core.dismiss(self.core.state.hosts[int(number)], "given back")

    def close(self, name: str, why: str) -> None:
        """Give a request or a slot back."""
        if not self.core.state.slots[name].closing:
            self.core.note(SlotChanged(id=name, closing=why))
            self._to_close.append(name)

    def _count_hosts(self, now_s: float) -> None:
        """How many hosts of each slot have come so far."""
        self.slots.count()
        for name, slot in self.slots.open_slots():
            if name in self.slots.came and not slot.joined:
                self._joined(name, slot, now_s)

    def _close_empty(self, now_s: float) -> None:
        """A slot goes when its last host has left; one whose hosts never came, after its boot
        time."""
        here = {host.slot for host in self.core.state.hosts.values() if host.here}
        for name, slot in self.slots.open_slots():
            if name in here:
                continue
            if slot.joined and not self.slots.missing(name, slot, now_s):
                self.close(name, "its hosts have left")
            elif (
                not slot.joined
                and slot.ready_s is not None
                and now_s - slot.ready_s > self.slots.place_of(slot.site).boot_s
            ):
                self._of_site(slot.site).words = (
                    f"its nodes did not report within {self.slots.place_of(slot.site).boot_s:.0f} "
                    "s: can they reach this machine? "
                    "access.contact names the address under which they find it"
                )
                self._of_site(slot.site).record_failure(now_s, permanent=True)
                self.close(name, "its nodes did not report")

    def _joined(self, name: str, slot: SlotRequest, now_s: float) -> None:
        self.core.note(SlotChanged(id=name, joined=True))
        self._of_site(slot.site).record_arrival(now_s - slot.asked_s)

    # asking the sites, in any one thread

    def carry_out(self) -> list[Event]:
        """Ask the sites what was decided, and how what was asked for stands."""
        found: list[Event] = []
        if not self._found:
            self._found = True
            for name, slot in list(self.core.state.slots.items()):
                if slot.held and name not in self._to_open:
                    found += self.sites.find(self.slots, name, SlotState(slot.state))
        opening, self._to_open = self._to_open, []
        closing, self._to_close = self._to_close, []
        for name in opening:
            found += self.sites.open(self.slots, name)
        for name in closing:
            found += self.sites.close(self.slots, name)
        return found + self.sites.news(self.slots)

    # hearing of it, in the loop again

    def heard(self, events: Sequence[Event], now_s: float) -> None:
        """Take over what the sites told."""
        for event in events:
            if isinstance(event, SiteSilent):
                self._of_site(event.site).words = event.reason
            elif isinstance(event, SlotNews):
                self._slot_news(event, now_s)

    def _slot_news(self, event: SlotNews, now_s: float) -> None:
        changed = SlotChanged(
            id=event.slot,
            state=int(event.state),
            reason=event.reason,
            ready_s=now_s if event.state == SlotState.READY else None,
            ended=event.state.ended or None,
        )
        self.core.note(changed)
        if not event.state.ended:
            return
        slot = self.core.state.slots[event.slot]
        hosts = [host for host in self.core.state.hosts.values() if host.slot == event.slot]
        for host in hosts:
            if host.here:
                self.core.gone(host, now_s, lost=event.state == SlotState.FAILED)
        if event.state == SlotState.FAILED and not slot.closing:
            self._of_site(slot.site).words = event.reason
            if not any(host.done for host in hosts):  # one that has worked may be replaced at once
                self._of_site(slot.site).record_failure(now_s, event.permanent)

    def _of_site(self, site: str) -> SiteHealth:
        return self._health.setdefault(site, SiteHealth())

    @property
    def unserved(self) -> dict[int, str]:
        """Bags (number) that policies keep from all hosts or grids, in words."""
        core, ads = self.core, [grid.ad for grid in self._grids]
        now_s = core.state.now_s
        return core.guarded(lambda: unserved(core, ads, now_s), now_s)

    @property
    def hopeless(self) -> str:
        """Why no host can come any more; empty while one can."""
        if any(h.here for h in self.core.state.hosts.values()) or not self.places or self.guests:
            return ""
        if all(self._of_site(p.site).given_up for p in self.places):
            return "; ".join(f"{p.site}: {self._of_site(p.site).words}" for p in self.places)
        return ""

    def wait_for_end(self) -> bool:
        """Ask everything back; True when nothing is held any more."""
        open_ = [n for n, s in self.core.state.slots.items() if s.held]
        for name in open_:
            self.close(name, "the work is over")
        return not open_


def _split(sizes: Sequence[int], widest: int) -> list[int]:
    """Requests as wide as a site takes them."""
    return [min(widest, size - begun) for size in sizes for begun in range(0, size, widest)]
