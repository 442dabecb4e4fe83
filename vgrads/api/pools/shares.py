"""What a pool decides brought to its dispatcher: each manager has a bag, and as many workers in it
as were decided."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vgrads.api.pools.document import AGENT, TOLD, WORK, PoolDocument, bag_of
from vgrads.api.pools.ledger import Json, Standing
from vgrads.api.pools.ledger_line import LedgerLine
from vgrads.api.pools.view import Decided, Here, PoolMemory, decide_now, entry_of
from vgrads.dispatch.agent_file import agent_file
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.tasks import GIVEN, PENDING
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.pools import POOL
from vgrads.dispatch.server.manager import Manager
from vgrads.dispatch.storage.journal import write_whole
from vgrads.dispatch.storage.kept import (
    Keys,
    close_bag,
    is_closed,
    keep_bag,
    kept_bags,
    more_commands,
    open_bag,
)

AWAY_S = 60.0
"""So long a worker looks for a manager that does not answer, before its host works for another
one."""


@dataclass
class PoolShares:
    """Beside a pool's dispatcher: asks the ledger each period, decides, and has the bags follow.

    While the ledger cannot be reached the shares stand as they were. ``numbers``: of all bags that
    there are, for the dispatcher to take on.
    """

    folder: Path
    document: PoolDocument
    line: LedgerLine
    decided: Decided = field(default_factory=Decided)
    numbers: list[int] = field(default_factory=list)
    _memory: PoolMemory = field(default_factory=PoolMemory)
    _bags: dict[str, int] = field(default_factory=dict)
    _asked_with: Mapping[str, int] = field(default_factory=dict)
    _run: str = ""

    def begin(self, run: str, port: int, keys: Keys) -> None:  # noqa: ARG002 as others are told
        """The dispatcher is there; which bag is whose is known from its folder."""
        self._run = run
        for number in kept_bags(self.folder):
            self.numbers.append(number)
            if not is_closed(self.folder, number):
                self._bags[open_bag(self.folder, number).files.source.name] = number

    def look(self, manager: Manager, fleet: Fleet) -> None:
        """Called twice a second, in the dispatcher's loop."""
        standing = self.line.heard()
        if standing is not None:
            self._decide(standing, manager, fleet)
        if self.line.is_due():
            self._asked_with = self._there(manager)
            self.line.ask(self.line.ledger.read, float(self.document.period))

    def _decide(self, standing: Standing, manager: Manager, fleet: Fleet) -> None:
        here = self._here(manager, fleet)
        self.decided, self._memory = decide_now(standing, self.document, here, self._memory)
        entries = {str(entry["name"]): entry for entry in standing.managers}
        for name in sorted(self.decided.targets.keys() | here.running.keys()):
            self._follow(manager, name, self.decided.targets.get(name, 0), entries.get(name))
        entry = entry_of(self.document, self._run, self.decided, self._here(manager, fleet))
        self.line.say(lambda: self.line.ledger.publish_pool(self.document.name, entry))

    @staticmethod
    def _there(manager: Manager) -> Counter[str]:
        """Workers of each manager that have not ended."""
        found: Counter[str] = Counter()
        for bag in manager.core.serving:
            found[bag.name] += bag.tasks.counts[PENDING] + bag.tasks.counts[GIVEN]
        return found

    def _here(self, manager: Manager, fleet: Fleet) -> Here:
        """Workers by manager: those at work, and those that wait for a host."""
        running, waiting = dict[str, int](), dict[str, int]()
        for bag in manager.core.serving:
            running[bag.name] = running.get(bag.name, 0) + bag.tasks.counts[GIVEN]
            waiting[bag.name] = waiting.get(bag.name, 0) + bag.tasks.counts[PENDING]
        return Here(
            now_s=manager.clock.now(),
            running=running,
            waiting=waiting,
            coming=fleet.coming,
            hosts=sum(host.here for host in manager.state.hosts.values()),
            wait_s=fleet.expected_wait_s,
        )

    def _follow(self, manager: Manager, name: str, target: int, entry: Json | None) -> None:
        """Have as many workers for a manager as were decided: those that wait for a host are taken
        back; those at work stay until the manager lets them go."""
        mine = [bag for bag in manager.core.serving if bag.name == name]
        current = None if entry is None else self._bags.get(identity_of(entry))
        for bag in [b for b in mine if b.number != current]:  # of a manager that is gone
            manager.core.shrink(bag.number, len(bag.tasks), manager.clock.now())
            close_bag(self.folder, bag.number)
            self._bags = {one: number for one, number in self._bags.items() if number != bag.number}
        if entry is None:
            return
        if current is None:
            current = self._open(entry)
        there = self._there(manager)[name]
        known = max(
            there, self._asked_with.get(name, 0)
        )  # who has ended since may have had a reason
        if target > known:
            more_commands(self.folder, current, [WORK] * (target - known))
        elif target < there and current in manager.state.bags:
            manager.core.shrink(current, there - target, manager.clock.now())

    def _open(self, entry: Json) -> int:
        """A bag for a manager that is new."""
        name, identity = str(entry["name"]), identity_of(entry)
        source = self.folder / "managers" / identity
        source.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(source / AGENT, agent_file())
        told = {
            "VGRADS_CONTACT": entry["contact"],
            "VGRADS_CERT": entry["certificate"],
            "VGRADS_SLOT": entry["slot"],
            "VGRADS_HOST_KEY": entry["key"],
            "VGRADS_PROCS": str(self.document.worker.procs),
            "VGRADS_AWAY_S": str(AWAY_S),
            "VGRADS_HOST_ATTRIBUTES": json.dumps({POOL: self.document.name}),
        }
        write_whole(source / TOLD, json.dumps(told).encode())
        (source / TOLD).chmod(0o600)
        number = max([-1, *kept_bags(self.folder)]) + 1
        keep_bag(self.folder, number, bag_of(self.document, name), source)
        self._bags[identity] = number
        self.numbers.append(number)
        return number

    # the rest of what goes on beside a dispatcher

    def told(self, bag: int, end: End) -> None:
        """Workers end in peace or not at all: what they did is their managers' to know."""

    def standing(self) -> Json:
        """For the status."""
        return {"decided": dict(self.decided.targets), "problem": self.line.problem}

    def end(self) -> None:
        """The pool is over."""
        self.line.end()


def identity_of(entry: Mapping[str, object]) -> str:
    """What tells a manager from another one of its name: where it is, and what lets hosts in."""
    told = json.dumps([entry[key] for key in ("name", "contact", "certificate", "slot", "key")])
    return hashlib.sha256(told.encode()).hexdigest()[:32]
