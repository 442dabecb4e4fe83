"""What the parts of a dispatcher share: the state, what is noted of it, and who is to be looked at next."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence

from bags.bag import Bag
from bags.record import HostRecord
from dispatch.hosts import Host
from dispatch.records import Given, Kept, Record
from dispatch.state import BagState, Effect, State
from dispatch.talk import Rules
from dispatch.tasks import PENDING

_NEW = HostRecord()
Held = tuple[int, int, int]
"""Host, bag, task."""


class Board:
    """``tell``: takes each record before anything follows from it.

    ``waiting``: hosts that hold the line for work; ``urgent``: those that are to be told something; ``serving``: bags
    that are not over; ``places``: processors of the hosts that are here and stay; ``tails``: bags whose last part has
    begun; ``copies``: of each bag the tasks that one more host is to have, and how urgent that is.
    """

    def __init__(self, state: State, rules: Rules, tell: Callable[[Record], None]) -> None:
        self.state, self.rules, self._tell = state, rules, tell
        self.bags: dict[int, Bag] = {}
        self.digests: dict[int, Callable[[int], Sequence[str]]] = {}
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.urgent: dict[int, None] = {}
        self.fresh = True  # tasks have come to wait since hosts were looked through
        self.places = 0
        self.changed: list[int] = []  # bags that came or whose tail began, in that order
        self.tails: set[int] = set()
        self.copies: dict[int, OrderedDict[int, None]] = {}
        self.given_s: dict[Held, float] = {}  # since when, of bags with a policy
        self.begun_s: dict[
            Held, float
        ] = {}  # and since when it runs, as far as can be told, of bags that learn
        self.serving: list[BagState] = []
        self._staying: dict[int, int] = {}
        self._later: list[tuple[float, int]] = []
        self.refresh()

    def note(self, record: Record) -> list[Effect]:
        """Write down what is to be, and let it be."""
        self._tell(record)
        effects = self.state.apply(record)
        if not isinstance(record, Given | Kept):
            self.fresh = self.fresh or not effects or any(effect.again for effect in effects)
        return effects

    def refresh(self) -> None:
        """Which bags are not over: after a change that is rare."""
        self.serving = [b for b in self.state.bags.values() if not b.over]
        numbers = {bag.number for bag in self.serving}
        self.copies = {n: tasks for n, tasks in self.copies.items() if n in numbers}

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
        return bool(bag.tasks.counts[PENDING] or self.copies.get(bag.number))

    @property
    def work(self) -> bool:
        """True where any bag has."""
        return any(b.tasks.counts[PENDING] for b in self.serving) or any(self.copies.values())

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
