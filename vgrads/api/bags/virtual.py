"""Execution of bags at simulated sites, in virtual time: the dispatcher's own core, fleet and
journal, without a network.

Simulated: the sites with their histories as background load, the agents, and the run times of
tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from vgrads.api.bags.execution import BagWork, ControlRequests, Watch
from vgrads.api.bags.served import idle
from vgrads.api.bags.sites import find_places
from vgrads.api.queues.history_files import open_history
from vgrads.api.wiring import Wiring, are_all_simulated, make_drivers
from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.faults import fault_in
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.budget import RELEASE_S
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.goal_answer import goal_json
from vgrads.dispatch.fleet.goal_changes import apply_goal_requests
from vgrads.dispatch.fleet.virtual import RunTime, VirtualAgents
from vgrads.dispatch.fleet.world import LOOK_S, World
from vgrads.dispatch.server.manager import AD_HOC
from vgrads.dispatch.status import Rates, status_json
from vgrads.dispatch.storage.folder import (
    StoredBag,
    close_if_silent,
    list_bags,
    name_of,
    open_bag,
    open_readable_bags,
    read_reason_closed,
)
from vgrads.dispatch.storage.journal import DispatchJournal, read_state
from vgrads.dispatch.storage.retries import apply_requests
from vgrads.dispatch.storage.status import read_status, write_agent_names, write_status
from vgrads.exchange.messages import HEARTBEAT_S
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock
from vgrads.kernel.streams import stream
from vgrads.vgrid.catalog import Catalog

_HORIZON_S = 30 * 86400.0  # length of the background load
_LOOK_S = 0.5  # of real time
_LATELY = 200


def find_simulated_part(catalog: Catalog, folder: Path) -> Catalog | None:
    """Return the sites that a dispatcher's bags may use, if all of them are simulated; None if they
    are real."""
    named = [bag.document.sites for bag in open_readable_bags(folder)]
    if any(AD_HOC in names for names in named):
        return None
    required = {name for names in named for name in names or [s.name for s in catalog.sites]}
    sites = tuple(site for site in catalog.sites if site.name in required)
    return replace(catalog, sites=sites) if are_all_simulated(sites) else None


def choose_clock(work: BagWork) -> BagWork | VirtualBagWork:
    """Return the work as it is, or in virtual time where its bags may use simulated sites only."""
    simulated = find_simulated_part(work.catalog, work.folder)
    if simulated is None:
        return work
    return VirtualBagWork(
        work.folder, simulated, work.run, work.control_requests, work.watch, work.rules
    )


@dataclass(frozen=True)
class SimulatedBags:
    """Result of a dispatcher in virtual time."""

    interrupted: bool
    hopeless: str

    @property
    def unfinished(self) -> str:
        """Return why it ended before the work was done; empty where all is done."""
        return self.hopeless or ("interrupted" if self.interrupted else "")


@dataclass
class VirtualBagWork:
    """The work of one dispatcher's folder, as :class:`vgrads.api.bags.execution.BagWork`, at
    simulated sites.

    Simulated sites end with their manager: a later one has the completed tasks, and requests nodes
    again.
    """

    folder: Path
    catalog: Catalog
    run: str
    control_requests: Callable[[], ControlRequests]
    watch: Watch = lambda _: None
    rules: Rules = field(default_factory=Rules)
    seed: int = 0
    _rates: Rates = field(default_factory=Rates)
    _looked: float = -1e9
    _stored_bags: dict[int, StoredBag] = field(default_factory=dict)
    _ended: bool = False
    _stay: bool = False
    has_begun: bool = False  # its bags have been read

    def carry_out(self) -> SimulatedBags:
        """Work until nothing is left."""
        state = read_state(self.folder / "journal")
        self._journal = DispatchJournal(self.folder / "journal")
        self._core = Core(state, self.rules, self._journal.add)
        self._began_unix_s = time.time()
        # the clock goes on from the journal's last instant, which is now: zero is earlier by that
        self._zero_s = self._began_unix_s - state.now_s
        clock = SimClock(state.now_s)
        _forget_agents(self._core)
        numbers = list_bags(self.folder)
        for number in numbers:
            self._take(number)
        numbers = sorted(self._stored_bags)
        agents = VirtualAgents(self._core, self._run_times(), heartbeat_s=self._heartbeat_s())
        agents.now_s = clock.now()
        self._fleet, sites = self._around(clock, numbers)
        world = World(
            self._core,
            self._fleet,
            sites,
            agents,
            clock,
            lambda: self._control(clock),
            self._write_now_and_then,
            steady_s=_choose_interval_s(self._stored_bags.values()),
        )
        self.has_begun = True
        try:
            hopeless = world.run()
            self._report(clock, "ended")
        finally:
            self._write()
            self._journal.close()
        return SimulatedBags(self._ended, hopeless)

    def end(self) -> None:
        """Stop, also from a signal handler."""
        self._ended = True

    def leave(self, idle: bool = True) -> None:  # noqa: ARG002 of BagWork
        """Stop: there are no agents."""
        self.end()

    def _heartbeat_s(self) -> float:
        """Return the interval at which agents report their tasks, as real ones do, if that affects
        decisions: it takes most of the time of a simulation."""
        bags = [bag.bag for bag in self._stored_bags.values()]
        return HEARTBEAT_S if any(bag.policy or bag.learns for bag in bags) else float("inf")

    def _run_times(self) -> RunTime:
        """Return run times as stated by the bags; a task fails with its site's probability."""
        draws = stream(self.seed, "bag tasks")
        failing = {s.name: s.task_failure for s in self.catalog.sites if s.task_failure > 0}
        state = self._core.state

        def runs(bag: int, _task: int, agent: str) -> tuple[float, int]:
            seconds = state.bags[bag].stated_s or 0.0
            chance = failing.get(state.agents[state.by_id[agent]].site, 0.0)
            if chance and draws.random() < chance:
                return seconds * float(draws.random()), 1
            return seconds, 0

        return runs

    def _around(self, clock: SimClock, numbers: Sequence[int]) -> tuple[Fleet, Sites]:
        around = _make_wiring(self.catalog, clock.now() + _HORIZON_S, self.seed, self._zero_s)
        drivers = make_drivers(self.catalog, [s.name for s in self.catalog.sites], clock, around)
        sites = Sites(self.run, drivers, clock, {})
        documents = [self._stored_bags[n].document for n in numbers]
        places = find_places(self.catalog, documents, self._zero_s)
        fleet = Fleet(
            core=self._core,
            sites=sites,
            sources=places,
            run=self.run,
            pilot_environment=lambda _: {},
            fits=self._core.fits,
        )
        fleet.goals.resume(read_status(self.folder))
        return fleet, sites

    def _take(self, number: int) -> None:
        """Add a bag; mark it as failed if that is not possible."""
        if fault := fault_in(number, lambda: self._take_on(number)):
            self._stored_bags.pop(number, None)
            self._core.reject(fault, name_of(self.folder, number), self._core.state.now_s)

    def _take_on(self, number: int) -> None:
        bag = self._stored_bags[number] = open_bag(self.folder, number)
        if number not in self._core.state.bags:
            self._core.add(number, bag.bag, self._core.state.now_s, bag.document.open)
        elif bag.document.open:  # tasks added while no dispatcher was working
            tasks = self._core.state.bags[number].tasks
            self._core.add_tasks(number, len(bag.bag.commands) - len(tasks))
        self._core.attach(number, bag.bag)

    def _control(self, clock: SimClock) -> bool:
        # requests arrive in real time, of which little passes between two events of virtual time
        if time.monotonic() - self._looked > _LOOK_S or idle(self._core):
            self._read_requests(clock)
        while self._stay and not self._ended and idle(self._core):
            time.sleep(_LOOK_S)  # new bags arrive in real time
            self._read_requests(clock)
        return self._ended or all(bag.over for bag in self._core.serving)

    def _read_requests(self, clock: SimClock) -> None:
        control_requests = self.control_requests()
        fresh = [n for n in control_requests.new if n not in self._core.state.bags]
        for number in fresh:
            self._take(number)
        if fresh:
            documents = [bag.document for bag in self._stored_bags.values()]
            self._fleet.ask_at(find_places(self.catalog, documents, self._zero_s))
        for number, stored in self._stored_bags.items():
            if stored.document.open and not self._core.state.bags[number].over:
                close_if_silent(self.folder, number, stored.document)
                # checked first, so that earlier tasks count
                closed = read_reason_closed(self.folder, number)
                self._core.add_tasks(number, stored.added())
                if closed is not None:
                    self._core.close(number, clock.now(), closed)
        for number in filter(self._core.state.bags.__contains__, control_requests.new):
            apply_requests(self.folder, number, self._core, clock.now())
            _change_goal(self.folder, number, self._fleet, clock.now())
        for number, why in control_requests.stops.items():
            if number in self._core.state.bags and not self._core.state.bags[number].over:
                self._core.cancel(number, clock.now(), why)
        self._stay = control_requests.stay or any(b.open for b in self._core.serving)
        self._report(clock, "working")

    def _report(self, clock: SimClock, state: str) -> None:
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
        for bag in status["bags"]:
            bag["goal"] = goal_json(self._fleet.goals, bag["number"], now)
        write_status(self.folder, status)
        agents = self._core.state.agents.values()
        write_agent_names(self.folder, [(h.name or h.id, h.site) for h in agents])
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


def _change_goal(folder: Path, number: int, fleet: Fleet, now_s: float) -> None:
    """Apply requests to change a goal; their deadlines count from now on in virtual time."""
    spent_usd = partial(fleet.goals.spent_usd, at_s=now_s)

    def apply() -> None:
        apply_goal_requests(folder, number, fleet.core, spent_usd, now_s, lambda _: now_s)

    if fault := fault_in(number, apply):
        fleet.core.fail(fault, now_s)


def _choose_interval_s(bags: Collection[StoredBag]) -> float:
    """Return how often the bags' nodes are considered while all of them are busy."""
    if any(bag.document.hosts.release == "look-ahead" for bag in bags):
        return LOOK_S
    return RELEASE_S / 3.0 if any(bag.bag.goal for bag in bags) else float("inf")


def _forget_agents(core: Core) -> None:
    """Agents and slots of an earlier dispatcher ended with it."""
    state = core.state
    for agent in state.agents.values():
        if agent.here:
            core.gone(agent, state.now_s, lost=False)
    for name, slot in state.slots.items():
        if not slot.ended:
            core.note(SlotChanged(id=name, ended=True, ended_s=state.now_s))


def _make_wiring(catalog: Catalog, until_s: float, seed: int, zero_s: float) -> Wiring:
    """Return the start of the sites, with the whole history of each queue."""
    logs = {
        (site.name, queue.name): open_history(queue.history)
        for site in catalog.sites
        for queue in site.queues
        if queue.history is not None
    }
    return Wiring(
        logs=logs,
        instants={key: log.instant(None) for key, log in logs.items()},
        until_s=until_s,
        seed=seed,
        now_s={site.name: zero_s for site in catalog.sites},
    )
