"""Bags carried out at simulated sites, in virtual time: the dispatcher's own core, fleet and
journal, without a wire.

What is simulated is the sites with their histories as other people's load, the hosts, and how long
tasks run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vgrads.api.bags.places import places_of
from vgrads.api.bags.work import Watch, Wishes
from vgrads.api.queues.histories import open_history
from vgrads.api.wiring import Surrounding, all_simulated, make_drivers
from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.faults import fault_in
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.virtual import RunTime, VirtualHosts
from vgrads.dispatch.fleet.world import World
from vgrads.dispatch.server.manager import GUEST
from vgrads.dispatch.server.messages import BEAT_S
from vgrads.dispatch.standing import Rates, status_json
from vgrads.dispatch.storage.journal import Journal, read_state
from vgrads.dispatch.storage.kept import (
    KeptBag,
    is_closed,
    kept_bags,
    name_of,
    open_bag,
    readable_bags,
    write_host_names,
    write_status,
)
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock
from vgrads.kernel.streams import stream
from vgrads.vgrid.catalog import Catalog

_HORIZON_S = 30 * 86400.0  # how far other people's load is laid out
_LOOK_S = 0.5  # of real time
_LATELY = 200


def simulated_part(catalog: Catalog, folder: Path) -> Catalog | None:
    """The sites that a dispatcher's bags may use, where all of them are simulated; None where they
    are real."""
    named = [kept.document.sites for kept in readable_bags(folder)]
    if any(GUEST in names for names in named):
        return None
    wanted = {name for names in named for name in names or [s.name for s in catalog.sites]}
    sites = tuple(site for site in catalog.sites if site.name in wanted)
    return replace(catalog, sites=sites) if all_simulated(sites) else None


@dataclass(frozen=True)
class Played:
    """How a dispatcher in virtual time ended."""

    ended_early: bool
    hopeless: str


@dataclass
class VirtualBagWork:
    """One dispatcher's folder and what is made of it, as :class:`vgrads.api.bags.work.BagWork`, at
    simulated sites.

    Simulated sites end with their manager: one that comes later has the tasks that were done, and
    asks for hosts anew.
    """

    folder: Path
    catalog: Catalog
    run: str
    wishes: Callable[[], Wishes]
    watch: Watch = lambda _: None
    rules: Rules = field(default_factory=Rules)
    seed: int = 0
    _rates: Rates = field(default_factory=Rates)
    _looked: float = -1e9
    _known: dict[int, KeptBag] = field(default_factory=dict)
    _ended: bool = False
    _stay: bool = False

    def carry_out(self) -> Played:
        """Work until there is nothing to do."""
        state = read_state(self.folder / "journal")
        self._journal = Journal(self.folder / "journal")
        self._core = Core(state, self.rules, self._journal.add)
        self._began_unix_s = time.time()
        clock = SimClock(state.now_s)
        self._forget_hosts(state)
        numbers = kept_bags(self.folder)
        for number in numbers:
            self._take(number)
        numbers = sorted(self._known)
        hosts = VirtualHosts(self._core, self._run_times(), beat_s=self._beat_s())
        hosts.now_s = clock.now()
        self._fleet, sites = self._around(clock, numbers)
        world = World(
            self._core,
            self._fleet,
            sites,
            hosts,
            clock,
            lambda: self._control(clock),
            self._write_now_and_then,
            steady=any(
                kept.document.hosts.release == "look-ahead" for kept in self._known.values()
            ),
        )
        try:
            hopeless = world.run()
            self._tell(clock, "ended")
        finally:
            self._write()
            self._journal.close()
        return Played(self._ended, hopeless)

    def end(self) -> None:
        """Stop, also from a signal's handler."""
        self._ended = True

    leave = end

    def _beat_s(self) -> float:
        """Hosts say what they run as real ones do where that decides anything: it costs a
        simulation most of its time."""
        bags = [kept.bag for kept in self._known.values()]
        return BEAT_S if any(bag.policy or bag.learns for bag in bags) else float("inf")

    def _forget_hosts(self, state: State) -> None:
        for host in state.hosts.values():
            if host.here:
                self._core.gone(host, state.now_s, lost=False)
        for name, slot in state.slots.items():
            if not slot.ended:
                self._core.note(SlotChanged(id=name, ended=True))

    def _run_times(self) -> RunTime:
        """As the bags say; a task fails as often as its site's do."""
        draws = stream(self.seed, "bag tasks")
        failing = {s.name: s.task_failure for s in self.catalog.sites if s.task_failure > 0}
        state = self._core.state

        def runs(bag: int, _task: int, host: str) -> tuple[float, int]:
            seconds = state.bags[bag].stated_s or 0.0
            chance = failing.get(state.hosts[state.by_id[host]].site, 0.0)
            if chance and draws.random() < chance:
                return seconds * float(draws.random()), 1
            return seconds, 0

        return runs

    def _around(self, clock: SimClock, numbers: Sequence[int]) -> tuple[Fleet, Sites]:
        logs = {
            (site.name, queue.name): open_history(queue.history)
            for site in self.catalog.sites
            for queue in site.queues
            if queue.history is not None
        }
        instants = {key: log.instant(None) for key, log in logs.items()}
        around = Surrounding(
            logs=logs, instants=instants, until_s=clock.now() + _HORIZON_S, seed=self.seed
        )
        drivers = make_drivers(self.catalog, [s.name for s in self.catalog.sites], clock, around)
        sites = Sites(self.run, drivers, clock, {})
        places = places_of(self.catalog, [self._known[n].document for n in numbers])
        fleet = Fleet(
            core=self._core,
            sites=sites,
            places=places,
            run=self.run,
            pilot_environment=lambda _: {},
            fits=self._core.fits,
        )
        return fleet, sites

    def _take(self, number: int) -> None:
        """Take a bag on; one that cannot be is failed."""
        if fault := fault_in(number, lambda: self._take_on(number)):
            self._known.pop(number, None)
            self._core.reject(fault, name_of(self.folder, number), self._core.state.now_s)

    def _take_on(self, number: int) -> None:
        kept = self._known[number] = open_bag(self.folder, number)
        if number not in self._core.state.bags:
            self._core.add(number, kept.bag, self._core.state.now_s, kept.document.open)
        elif kept.document.open:  # what came while nobody was at work
            known = self._core.state.bags[number].tasks
            self._core.grow(number, len(kept.bag.commands) - len(known))
        self._core.attach(number, kept.bag)

    def _control(self, clock: SimClock) -> bool:
        works = any(not bag.tasks.over for bag in self._core.serving)
        if time.monotonic() - self._looked > _LOOK_S or not works:
            self._hear_wishes(clock)
        while self._stay and not self._ended and all(b.tasks.over for b in self._core.serving):
            time.sleep(_LOOK_S)  # whoever brings more does so in real time
            self._hear_wishes(clock)
        return self._ended or all(bag.over for bag in self._core.serving)

    def _hear_wishes(self, clock: SimClock) -> None:
        wishes = self.wishes()
        fresh = [n for n in wishes.new if n not in self._core.state.bags]
        for number in fresh:
            self._take(number)
        if fresh:
            documents = [kept.document for kept in self._known.values()]
            self._fleet.ask_at(places_of(self.catalog, documents))
        for number, kept in self._known.items():
            if kept.document.open and not self._core.state.bags[number].over:
                closed = is_closed(
                    self.folder, number
                )  # looked at first: what came before it counts
                self._core.grow(number, kept.grown())
                if closed:
                    self._core.close(number, clock.now())
        for number, why in wishes.stops.items():
            if number in self._core.state.bags and not self._core.state.bags[number].over:
                self._core.cancel(number, clock.now(), why)
        self._stay = wishes.stay or any(bag.open for bag in self._core.serving)
        self._tell(clock, "working")

    def _tell(self, clock: SimClock, state: str) -> None:
        self._looked = time.monotonic()
        now = clock.now()
        self._rates.look(self._core.state, now)
        status = status_json(
            self._core.state,
            self._rates,
            now,
            self._fleet.unserved,
            {
                "state": state,
                "began_unix_s": self._began_unix_s,
                "problem": self._fleet.hopeless,
                "refused": 0,
                "exchanges": 0,
                "virtual": True,
                "reasons": [
                    {"at_s": at, "site": s, "reason": r}
                    for at, s, r in self._fleet.reasons[-_LATELY:]
                ],
                "coming": self._fleet.coming,
            },
        )
        write_status(self.folder, status)
        write_host_names(self.folder, [h.name or h.id for h in self._core.state.hosts.values()])
        self.watch(status)

    def _write_now_and_then(self) -> None:
        if time.monotonic() - self._looked > _LOOK_S:
            self._write()

    def _write(self) -> None:
        group = self._journal.take()
        if group:
            self._journal.write(group)
        if self._journal.full:
            self._journal.roll(self._core.state).carry_out()
