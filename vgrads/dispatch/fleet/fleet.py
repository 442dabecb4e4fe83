"""The hosts of a dispatcher: asked for and given back as ``pool`` decides, through the drivers of
the sites.

What is asked for is in the journal before a site hears of it, so that a manager that comes later
knows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.explaining import unserved
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.supply import Fits, Grid, Supply, Work
from vgrads.drivers.api import SlotSpec, SlotState
from vgrads.execmgr.core.book import spec_id
from vgrads.execmgr.core.states import Event, SiteSilent, SlotNews
from vgrads.execmgr.engines.base import Pilot
from vgrads.execmgr.sites import Sites
from vgrads.pool.overlay import GridRoom
from vgrads.pool.view import Decide, HostView, PoolDecision, PoolLimits, PoolView, RequestView

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0
_MOST_REASONS = 50
_GIVE_UP = 3
"""So many requests in a row that a site refuses for good, and nothing more is asked of it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A site where hosts may come from. ``procs``: of one host; ``longest_s`` and ``widest``
    (hosts): of one request; ``requests``: how many its queue takes of us at once; ``price``: of a
    host, dollars an hour."""

    site: str
    queue: str
    node_type: str
    procs: int
    limits: PoolLimits
    longest_s: float
    decide: Decide
    boot_s: float = 180.0
    widest: int = 1 << 30
    requests: int = 1 << 30
    price: float = 0.0


@dataclass
class _Luck:
    """How a site has answered lately. ``late_s``: how long one was waited for in vain since one
    last came."""

    refused: int = 0
    failed: int = 0
    late_s: float = 0.0
    next_s: float = 0.0
    pause_s: float = _FIRST_PAUSE_S
    wait_s: float = 0.0
    came: int = 0
    words: str = ""


@dataclass
class _Known:
    """What a place has: hosts that are here, requests of which some are to come, slots that have
    not ended."""

    hosts: list[Host] = field(default_factory=list)
    asked: list[RequestView] = field(default_factory=list)
    held: int = 0

    @property
    def busy(self) -> int:
        return sum(bool(host.held) for host in self.hosts)


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
    _luck: dict[str, _Luck] = field(default_factory=dict)
    _to_open: list[str] = field(default_factory=list)
    _to_close: list[str] = field(default_factory=list)
    _found: bool = False
    _busy: dict[int, tuple[int, float]] = field(default_factory=dict)
    _came: Counter[str] = field(default_factory=Counter)
    _supply: Supply = field(default_factory=Supply)
    _grids: Sequence[Grid] = ()

    # what Sites asks

    def place(self, slot: str) -> str:
        """The site of a slot."""
        return self.core.state.slots[slot].site

    def spec(self, slot_id: str, run: str, pilot: Pilot | None = None) -> SlotSpec:
        """What a request asks a site for: as many nodes as hosts, with an agent on each."""
        slot = self.core.state.slots[slot_id]
        where = next(p for p in self.places if p.site == slot.site)
        environment = dict(self.pilot_environment(slot_id)) if pilot else {}
        return SlotSpec(
            id=spec_id(slot_id, run),
            name=slot_id,
            site=where.site,
            queue=where.queue,
            nodes=slot.hosts,
            procs=where.procs * slot.hosts,
            duration_s=where.longest_s,
            node_type=where.node_type,
            environment={**environment, **(pilot.environment if pilot else {})},
            pilot=pilot.command if pilot else "",
            every_node=slot.hosts > 1,
        )

    # deciding, in the loop of the dispatcher

    def decide(self, now_s: float) -> bool:
        """Look at the work and the hosts; what follows is noted, and carried out next. False where
        nothing follows."""
        return self.core.guarded(lambda: self._decide(now_s), now_s)

    def _decide(self, now_s: float) -> bool:
        self._watch(now_s)
        self._count_hosts(now_s)
        moved, known = False, self._known(now_s)
        grids = [self._grid(where, known[where.site], now_s) for where in self.places]
        self._grids = grids
        shares = self._supply.share(
            self.core.state.bags.values(), self.core.serving, grids, self.fits
        )
        for where, work in zip(self.places, shares, strict=True):
            decision = where.decide(self._view(where, work, known[where.site], now_s))
            luck = self._luck[where.site]
            if decision.open and (now_s < luck.next_s or luck.refused >= _GIVE_UP):
                decision = PoolDecision(
                    withdraw=decision.withdraw, drain=decision.drain, reasons=()
                )
            self._note(where, decision, now_s)
            moved = moved or bool(decision.open or decision.withdraw or decision.drain)
        self._close_empty(now_s)
        return moved or bool(self._to_close)

    def _watch(self, now_s: float) -> None:
        """Since when each host has been busy with what it has: told by the ends that are counted of
        it."""
        before, self._busy = self._busy, {}
        for host in self.core.state.hosts.values():
            if host.here and host.held:
                ended = host.done + host.failed
                known = before.get(host.number)
                self._busy[host.number] = known if known and known[0] == ended else (ended, now_s)

    def _known(self, now_s: float) -> dict[str, _Known]:
        """What each place has."""
        known = {where.site: _Known() for where in self.places}
        for host in self.core.state.hosts.values():
            if host.here and host.site in known:
                known[host.site].hosts.append(host)
        for name, slot in self._open_slots():
            if slot.site in known and (missing := self._missing(name, slot, now_s)):
                known[slot.site].asked.append(
                    RequestView(id=name, hosts=missing, asked_s=slot.asked_s)
                )
        for site, held in self._held().items():
            if site in known:
                known[site].held = held
        return known

    def _held(self) -> Counter[str]:
        """Slots of each site that have not ended."""
        slots = self.core.state.slots.values()
        return Counter(s.site for s in slots if s.held)

    def _grid(self, where: Place, known: _Known, now_s: float) -> Grid:
        """A place as the overlay sees it: what is there may stay; more only where something may be
        asked for."""
        luck = self._luck.setdefault(where.site, _Luck())
        hosts, busy, most = len(known.hosts), known.busy, where.limits.most
        idle = sum(not host.held and not host.leaving for host in known.hosts)
        coming = sum(one.hosts for one in known.asked)
        shut = now_s < luck.next_s or luck.refused >= _GIVE_UP
        more = 0 if shut else max(0, where.requests - known.held) * where.widest
        expected_s = max(luck.wait_s if luck.came else where.boot_s, luck.late_s)
        left_s = sum(_going_on(now_s - one.asked_s, expected_s) * one.hosts for one in known.asked)
        errors = luck.failed / max(1, luck.failed + luck.came)
        room = GridRoom(
            procs=where.procs,
            room=max(0, min(most - (hosts - busy - idle), busy + idle + coming + more)),
            busy=busy,
            idle=idle,
            coming=coming,
            coming_s=left_s / max(1, coming),
            wait_s=expected_s,
            price=where.price,
            error_rate=errors,
        )
        ad = {
            "Name": where.site,
            "Limit": most,
            "Free": max(0, most - hosts - coming),
            "Queued": coming,
            "Running": hosts,
            "MeanWait": luck.wait_s,
            "ErrorRate": errors,
            "Price": where.price,
        }
        return Grid(site=where.site, room=room, most=most, ad=ad)

    def _view(self, where: Place, work: Work, known: _Known, now_s: float) -> PoolView:
        return PoolView(
            now_s=now_s,
            queued=max(0, work.loads - known.busy),
            running=known.busy,
            limits=where.limits,
            asked=tuple(known.asked),
            hosts=tuple(self._host_view(host) for host in known.hosts),
            arrived=work.arrived,
            task_s=work.task_s,
            wait_s=self._luck[where.site].wait_s,
        )

    def _host_view(self, host: Host) -> HostView:
        return HostView(
            id=str(host.number),
            allocation=host.slot,
            joined_s=host.joined_s,
            running=len(host.held),
            idle_since_s=None if host.held else host.idle_since_s,
            busy_since_s=self._busy[host.number][1] if host.number in self._busy else None,
            ends_s=None if host.ends_s == float("inf") else host.ends_s,
            draining=bool(host.leaving),
        )

    def _open_slots(self) -> list[tuple[str, SlotRequest]]:
        return [(name, slot) for name, slot in self.core.state.slots.items() if slot.open]

    def _missing(self, name: str, slot: SlotRequest, now_s: float) -> int:
        """Hosts of a request that are still to come; some nodes begin later than others, and some
        never."""
        late = slot.ready_s is not None and now_s - slot.ready_s > self._of(slot.site).boot_s
        return 0 if late else max(0, slot.hosts - self._came[name])

    @property
    def coming(self) -> int:
        """Hosts that were asked for and have not come."""
        return sum(self._missing(name, slot, 0.0) for name, slot in self._open_slots())

    @property
    def expected_wait_s(self) -> float:
        """How long a host that is asked for now is waited for, by what was seen at the quickest
        site; before any has come, by its boot time."""
        lucks = ((self._luck.get(p.site, _Luck()), p) for p in self.places)
        waits = (
            max(luck.wait_s if luck.came else where.boot_s, luck.late_s) for luck, where in lucks
        )
        return min(waits, default=0.0)

    def _note(self, where: Place, decision: PoolDecision, now_s: float) -> None:
        for reason in decision.reasons:
            if not self.reasons or self.reasons[-1][1:] != (where.site, reason):
                self.reasons = [*self.reasons[-_MOST_REASONS:], (now_s, where.site, reason)]
        most = max(0, where.requests - self._held()[where.site]) if decision.open else 0
        for hosts in _split(decision.open, where.widest)[:most]:
            name = f"h{len(self.core.state.slots)}"
            self.core.note(SlotChanged(id=name, site=where.site, hosts=hosts, asked_s=now_s))
            self._to_open.append(name)
        for name in decision.withdraw:
            if not self._came[name]:
                luck, slot = self._luck[where.site], self.core.state.slots[name]
                luck.late_s = max(luck.late_s, now_s - slot.asked_s)
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
        self._came = Counter(host.slot for host in self.core.state.hosts.values())
        for name, slot in self._open_slots():
            if name in self._came and not slot.joined:
                self._joined(name, slot, now_s)

    def _close_empty(self, now_s: float) -> None:
        """A slot goes when its last host has left; one whose hosts never came, after its boot
        time."""
        here = {host.slot for host in self.core.state.hosts.values() if host.here}
        for name, slot in self._open_slots():
            if name in here:
                continue
            if slot.joined and not self._missing(name, slot, now_s):
                self.close(name, "its hosts have left")
            elif (
                not slot.joined
                and slot.ready_s is not None
                and now_s - slot.ready_s > self._of(slot.site).boot_s
            ):
                self._luck[slot.site].words = (
                    f"its nodes did not report within {self._of(slot.site).boot_s:.0f} "
                    "s: can they reach this machine? "
                    "access.contact names the address under which they find it"
                )
                self._disappoint(slot.site, now_s, True)
                self.close(name, "its nodes did not report")

    def _joined(self, name: str, slot: SlotRequest, now_s: float) -> None:
        self.core.note(SlotChanged(id=name, joined=True))
        luck = self._luck.setdefault(slot.site, _Luck())
        luck.refused, luck.pause_s, luck.words, luck.late_s = 0, _FIRST_PAUSE_S, "", 0.0
        luck.came += 1
        luck.wait_s += (now_s - slot.asked_s - luck.wait_s) / luck.came

    def _of(self, site: str) -> Place:
        return next(p for p in self.places if p.site == site)

    # asking the sites, in any one thread

    def carry_out(self) -> list[Event]:
        """Ask the sites what was decided, and how what was asked for stands."""
        found: list[Event] = []
        if not self._found:
            self._found = True
            for name, slot in list(self.core.state.slots.items()):
                if slot.held and name not in self._to_open:
                    found += self.sites.find(self, name, SlotState(slot.state))
        opening, self._to_open = self._to_open, []
        closing, self._to_close = self._to_close, []
        for name in opening:
            found += self.sites.open(self, name)
        for name in closing:
            found += self.sites.close(self, name)
        return found + self.sites.news(self)

    # hearing of it, in the loop again

    def heard(self, events: Sequence[Event], now_s: float) -> None:
        """Take over what the sites told."""
        for event in events:
            if isinstance(event, SiteSilent):
                self._luck.setdefault(event.site, _Luck()).words = event.reason
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
            self._luck.setdefault(slot.site, _Luck()).words = event.reason
            if not any(host.done for host in hosts):  # one that has worked may be replaced at once
                self._disappoint(slot.site, now_s, event.permanent)

    def _disappoint(self, site: str, now_s: float, permanent: bool) -> None:
        """A request came to nothing: the next one waits, longer each time; what is refused for
        good, not often."""
        luck = self._luck.setdefault(site, _Luck())
        luck.refused += 1 if permanent else 0
        luck.failed += 1
        luck.next_s = now_s + luck.pause_s
        luck.pause_s = min(_LONGEST_PAUSE_S, luck.pause_s * 2)

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
        if all(self._luck.get(p.site, _Luck()).refused >= _GIVE_UP for p in self.places):
            return "; ".join(f"{p.site}: {self._luck[p.site].words}" for p in self.places)
        return ""

    def wait_for_end(self) -> bool:
        """Ask everything back; True when nothing is held any more."""
        open_ = [n for n, s in self.core.state.slots.items() if s.held]
        for name in open_:
            self.close(name, "the work is over")
        return not open_


def _going_on(passed_s: float, expected_s: float) -> float:
    """What is left of a wait; what is late is believed to be late by as much again."""
    return abs(expected_s - passed_s)


def _split(sizes: Sequence[int], widest: int) -> list[int]:
    """Requests as wide as a site takes them."""
    return [min(widest, size - begun) for size in sizes for begun in range(0, size, widest)]
