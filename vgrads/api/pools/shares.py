"""Application of a pool's decisions to its dispatcher: each manager has a bag, with the decided
number of workers."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vgrads.api.pools.document import AGENT, MANAGER_FILE, WORK, PoolDocument, make_worker_bag
from vgrads.api.pools.ledger import Json, LedgerEntries
from vgrads.api.pools.ledger_connection import LedgerConnection
from vgrads.api.pools.view import PoolDecided, PoolMemory, PoolStatus, decide_now, entry_of
from vgrads.dispatch.core.tasks import ASSIGNED, PENDING
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.pools import POOL
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.folder import (
    append_commands,
    close_bag,
    is_closed,
    keep_bag,
    list_bags,
    open_bag,
)
from vgrads.exchange.agent_file import build_agent_file
from vgrads.exchange.keys import Keys
from vgrads.exchange.values import AttemptEnd
from vgrads.kernel.files import write_whole

AWAY_S = 60.0
"""Time for which a worker tries to reach a manager that does not answer, before its agent works for
another."""


@dataclass
class PoolShares:
    """Extension of a pool's dispatcher: reads the ledger each period, decides, and adjusts the
    bags.

    While the ledger cannot be reached, the shares remain unchanged. ``numbers``: of all existing
    bags, for the dispatcher.
    """

    folder: Path
    document: PoolDocument
    line: LedgerConnection
    decided: PoolDecided = field(default_factory=PoolDecided)
    numbers: list[int] = field(default_factory=list)
    _memory: PoolMemory = field(default_factory=PoolMemory)
    _bags: dict[str, int] = field(default_factory=dict)
    _requested_shares: Mapping[str, int] = field(default_factory=dict)
    _run: str = ""

    def begin(self, run: str, port: int, keys: Keys) -> None:  # noqa: ARG002 as others are told
        """Called when the dispatcher has started; the bags of managers are read from its folder."""
        self._run = run
        for number in list_bags(self.folder):
            self.numbers.append(number)
            if not is_closed(self.folder, number):
                self._bags[open_bag(self.folder, number).files.source.name] = number

    def look(self, manager: DispatchManager, fleet: Fleet) -> None:
        """Called twice a second, in the dispatcher's loop."""
        entries = self.line.latest()
        if entries is not None:
            self._decide(entries, manager, fleet)
        if self.line.is_due():
            self._requested_shares = self._there(manager)
            self.line.ask(self.line.ledger.read, float(self.document.period))

    def _decide(self, status: LedgerEntries, manager: DispatchManager, fleet: Fleet) -> None:
        here = self._here(manager, fleet)
        self.decided, self._memory = decide_now(status, self.document, here, self._memory)
        entries = {str(entry["name"]): entry for entry in status.managers}
        for name in sorted(self.decided.targets.keys() | here.running.keys()):
            self._follow(manager, name, self.decided.targets.get(name, 0), entries.get(name))
        entry = entry_of(self.document, self._run, self.decided, self._here(manager, fleet))
        self.line.send(lambda: self.line.ledger.publish_pool(self.document.name, entry))

    @staticmethod
    def _there(manager: DispatchManager) -> Counter[str]:
        """Return the number of workers of each manager that are not terminal."""
        counts: Counter[str] = Counter()
        for bag in manager.core.serving:
            counts[bag.name] += bag.tasks.counts[PENDING] + bag.tasks.counts[ASSIGNED]
        return counts

    def _here(self, manager: DispatchManager, fleet: Fleet) -> PoolStatus:
        """Return workers by manager: running, and waiting for an agent."""
        running, waiting = dict[str, int](), dict[str, int]()
        for bag in manager.core.serving:
            running[bag.name] = running.get(bag.name, 0) + bag.tasks.counts[ASSIGNED]
            waiting[bag.name] = waiting.get(bag.name, 0) + bag.tasks.counts[PENDING]
        return PoolStatus(
            now_s=manager.clock.now(),
            running=running,
            waiting=waiting,
            coming=fleet.coming,
            hosts=sum(host.here for host in manager.state.agents.values()),
            wait_s=fleet.expected_wait_s,
        )

    def _follow(self, manager: DispatchManager, name: str, target: int, entry: Json | None) -> None:
        """Adjust the workers of a manager to the decision: those that wait for an agent are
        cancelled; running ones stay until the manager disconnects them."""
        # a manager that has started anew has the same name, but other keys and another bag
        mine = [bag for bag in manager.core.serving if bag.name == name]
        current = None if entry is None else self._bags.get(derive_identity(entry))
        for bag in [b for b in mine if b.number != current]:  # of a manager that is gone
            manager.core.shrink(bag.number, len(bag.tasks), manager.clock.now())
            close_bag(self.folder, bag.number)
            self._bags = {
                name: number for name, number in self._bags.items() if number != bag.number
            }
        if entry is None:
            return
        if current is None:
            current = self._open(entry)
        there = self._there(manager)[name]
        newest = max(
            there, self._requested_shares.get(name, 0)
        )  # workers that ended since may have had a reason
        if target > newest:
            append_commands(self.folder, current, [WORK] * (target - newest))
        elif target < there and current in manager.state.bags:
            manager.core.shrink(current, there - target, manager.clock.now())

    def _open(self, entry: Json) -> int:
        """Open a bag for a new manager."""
        name, identity = str(entry["name"]), derive_identity(entry)
        source = self.folder / "managers" / identity
        source.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(source / AGENT, build_agent_file())
        payload = {
            "VGRADS_CONTACT": entry["contact"],
            "VGRADS_CERT": entry["certificate"],
            "VGRADS_SLOT": entry["slot"],
            "VGRADS_HOST_KEY": entry["key"],
            "VGRADS_PROCS": str(self.document.worker.procs),
            "VGRADS_AWAY_S": str(AWAY_S),
            "VGRADS_HOST_ATTRIBUTES": json.dumps({POOL: self.document.name}),
        }
        write_whole(source / MANAGER_FILE, json.dumps(payload).encode())
        # it has a key; its folder was closed to others before it was written
        (source / MANAGER_FILE).chmod(0o600)
        number = max([-1, *list_bags(self.folder)]) + 1
        keep_bag(self.folder, number, make_worker_bag(self.document, name), source)
        self._bags[identity] = number
        self.numbers.append(number)
        return number

    # other methods of a dispatcher extension

    def on_end(self, bag: int, end: AttemptEnd) -> None:
        """Do nothing: results of workers belong to their managers."""

    def status(self) -> Json:
        """Return its part of the status."""
        return {"decided": dict(self.decided.targets), "problem": self.line.problem}

    def end(self) -> None:
        """Called when the pool has ended."""
        self.line.end()


def derive_identity(entry: Mapping[str, object]) -> str:
    """Return the identity of a manager among those of its name: its address and its keys."""
    text = json.dumps([entry[key] for key in ("name", "contact", "certificate", "slot", "key")])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
