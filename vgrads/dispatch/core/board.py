"""What the parts of a dispatcher share: the state, what is noted of it, and who is to be looked at
next."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from vgrads.bags.bag import Bag
from vgrads.bags.record import HostRecord
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.events import AgentLeft, BagCancelled, BagFailed
from vgrads.dispatch.core.faults import BagFault
from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import Copied, Given, Kept, Record, bag_of
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.core.tasks import PENDING

_NEW = HostRecord()
_GIVES = frozenset({Given, Kept, Copied})
Held = tuple[int, int, int]
"""Host, bag, task."""


T = TypeVar("T")


class Board:
    """``tell``: takes each record before anything follows from it.

    ``waiting``: hosts that hold the line for work; ``urgent``: those that are to be told something;
    ``serving``: bags that are not over; ``places``: processors of the hosts that are here and stay;
    ``tails``: bags whose last part has begun; ``copies``: of each bag the tasks that one more host
    is to have, and how urgent that is; ``ready``: bags with tasks that wait; ``arrived``: bags that
    hosts may be given tasks of which they could not before, since hosts were looked through;
    ``load`` and ``shares``: processor seconds that each bag and each owner has had and has in hand,
    by weight; ``counting``: bags whose policies read how many jobs are left; ``faults``: what
    failed bags, to be logged.
    """

    def __init__(self, state: State, rules: Rules, tell: Callable[[Record], None]) -> None:
        self.state, self.rules, self._tell = state, rules, tell
        self.bags: dict[int, Bag] = {}
        self.digests: dict[int, Callable[[int], Sequence[str]]] = {}
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.urgent: dict[int, None] = {}
        self.fresh = True  # tasks have come to wait since hosts were looked through
        self.places = 0
        self.changed: dict[int, None] = {}  # bags that came, went or stand otherwise
        self.arrived: set[int] = set()
        self.ready: set[int] = set()
        self.load: dict[int, float] = {}
        self.shares: dict[str, float] = {}
        self.counting: set[int] = set()
        self._in_flight: dict[int, float] = {}
        self._flight: dict[str, float] = {}
        self._serves: set[int] = set()
        self.tails: set[int] = set()
        self.copies: dict[int, OrderedDict[int, None]] = {}
        self.given_s: dict[Held, float] = {}  # since when, of bags with a policy
        # and since when it runs, as far as can be told, of bags that learn
        self.begun_s: dict[Held, float] = {}
        self.serving: list[BagState] = []
        self._staying: dict[int, int] = {}
        self._later: list[tuple[float, int]] = []
        self.faults: list[BagFault] = []
        self.refresh()

    def note(self, record: Record) -> list[Effect]:
        """Write down what is to be, and let it be."""
        self._tell(record)
        touched = _touched(record, self.state)
        effects = apply(self.state, record)
        gives = type(record) in _GIVES
        if not gives and not self.fresh:
            self.fresh = not effects or any([effect.again for effect in effects])
        for number in touched:
            self._follow(number)
            if not gives and number in self.counting:
                self.change(number)
        return effects

    def call_off(self, number: int, bag: int, task: int) -> None:
        """Have a host told that it need not go on with a task."""
        host = self.state.hosts[number]
        host.to_cancel.append((bag, task, host.held.get((bag, task), 0)))
        self.urgent[number] = None

    def drop(self, event: BagCancelled | BagFailed) -> None:
        """Drop what has not ended of a bag; hosts are told."""
        bag = self.state.bags[event.number]
        for task in bag.tasks.where:
            for host in bag.tasks.hosts_of(task):
                self.call_off(host, event.number, task)
        if not bag.over:
            self.note(event)
        self.refresh()

    def fail(self, fault: BagFault, at_s: float) -> bool:
        """Fail a bag that cannot be served; False where it was over before, so that nothing is
        different now."""
        self.faults.append(fault)
        if self.state.bags[fault.bag].over:
            return False
        self.drop(BagFailed(number=fault.bag, at_s=at_s, reason=fault.reason))
        return True

    def guarded(self, work: Callable[[], T], at_s: float) -> T:
        """What some work comes to; a bag in which something goes wrong is failed, and the work done
        without it."""
        while True:
            try:
                return work()
            except BagFault as fault:
                if not self.fail(fault, at_s):
                    raise

    def change(self, number: int) -> None:
        """A bag stands otherwise: hosts that it was not for may be asked anew."""
        self.changed[number] = None
        self.arrived.add(number)
        self.fresh = True

    def _follow(self, number: int) -> None:
        """Keep up with what a bag has waiting and in hand."""
        bag = self.state.bags[number]
        if not bag.tasks.counts[PENDING]:
            self.ready.discard(number)
            if number in self._serves and bag.over:
                self._serves.discard(number)
                self.serving = [other for other in self.serving if other is not bag]
                self.copies.pop(number, None)
                self.changed[number] = None
        elif number not in self.ready:
            self.ready.add(number)
            self.arrived.add(number)
        if len(self.serving) < 2:
            return  # nobody to share with
        in_flight, owner = bag.in_flight(self.state.now_s), bag.owner
        flight = self._flight.get(owner, 0.0) + in_flight - self._in_flight.get(number, 0.0)
        self._in_flight[number], self._flight[owner] = in_flight, flight
        self.load[number] = bag.had + in_flight
        self.shares[owner] = self.state.owners[owner].had + flight

    def refresh(self) -> None:
        """Which bags are not over, and what they have in hand: after a change that is rare."""
        self.serving = [b for b in self.state.bags.values() if not b.over]
        before, self._serves = self._serves, {bag.number for bag in self.serving}
        self.changed.update(dict.fromkeys(before - self._serves))
        self.copies = {n: tasks for n, tasks in self.copies.items() if n in self._serves}
        self.ready = {bag.number for bag in self.serving if bag.tasks.counts[PENDING]}
        self._weigh()

    def _weigh(self) -> None:
        """What bags and owners have had and have in hand."""
        now_s = self.state.now_s
        self._in_flight = {bag.number: bag.in_flight(now_s) for bag in self.serving}
        self.load = {bag.number: bag.had + bag.in_flight(now_s) for bag in self.serving}
        self._flight = {}
        for bag in self.serving:
            self._flight[bag.owner] = self._flight.get(bag.owner, 0.0) + bag.in_flight(now_s)
        owners = self.state.owners
        self.shares = {
            bag.owner: owners[bag.owner].had + self._flight[bag.owner] for bag in self.serving
        }

    def take_on(self, number: int) -> None:
        """A bag has come."""
        bag = self.state.bags[number]
        if not bag.over and number not in self._serves:
            self._serves.add(number)
            self.serving = [*self.serving, bag]
            if len(self.serving) == 2:
                self._weigh()
        self._follow(number)
        self.change(number)

    def count_in(self, host: Host) -> None:
        """Count a host's processors, or no more."""
        self.places -= self._staying.pop(host.number, 0)
        if host.here and not host.leaving:
            self._staying[host.number] = host.procs
            self.places += host.procs

    @property
    def hosts(self) -> int:
        """How many hosts are here and stay."""
        return len(self._staying)

    def has_host(self, sites: Collection[str], procs: int) -> bool:
        """True where a host of one of these sites stays that has so many processors."""
        hosts = (self.state.hosts[number] for number in self._staying)
        return any(host.site in sites and host.procs >= procs for host in hosts)

    def record(self, host: Host) -> HostRecord:
        """What is known of the machine that a host runs on."""
        return self.state.records.get(host.machine, _NEW)

    def work_for(self, bag: BagState) -> bool:
        """True where a bag has something to give."""
        return bag.number in self.ready or bool(self.copies.get(bag.number))

    @property
    def work(self) -> bool:
        """True where any bag has."""
        return bool(self.ready) or any(self.copies.values())

    def look_again(self, host: Host, at_s: float) -> None:
        """A host that waits is to be looked at anew at an instant."""
        heapq.heappush(self._later, (at_s, host.number))

    def awake(self, now_s: float) -> list[int]:
        """Hosts whose instant has come."""
        found = []
        while self._later and self._later[0][0] <= now_s:
            found.append(heapq.heappop(self._later)[1])
        return found

    @property
    def next_s(self) -> float:
        """When one is to be looked at; ``inf`` if never."""
        return self._later[0][0] if self._later else float("inf")


def _touched(record: Record, state: State) -> Collection[int]:
    """The bags that a record changes."""
    if isinstance(record, AgentLeft):
        return {bag for bag, _ in state.hosts[record.number].held}
    number = bag_of(record)
    return () if number < 0 else (number,)
