"""A manager that takes hosts of pools: what it says of itself in the ledger, and how it follows
what pools decide."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from vgrads.api.pools.ledger import PERIOD_S, Json, Standing, decided_for, period_of
from vgrads.api.pools.ledger_line import LedgerLine
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.tasks import GIVEN
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.meter import TaskMeter
from vgrads.dispatch.fleet.pools import excess, lent, staying
from vgrads.dispatch.fleet.supply import demand_of
from vgrads.dispatch.server.keys import key_of
from vgrads.dispatch.server.manager import GUEST, Manager
from vgrads.dispatch.storage.kept import Keys
from vgrads.execmgr.core.book import spec_id

SLOT = f"{GUEST}.pool"
"""The slot of all hosts that pools lend: its key opens this manager and nothing else, and ends with
its folder."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where hosts find a manager, and what lets them in."""

    run: str
    port: int
    keys: Keys
    contact: str = ""

    def told(self) -> Json:
        """The part of an entry that a pool hands to its hosts."""
        slot = spec_id(SLOT, self.run)
        return {
            "contact": " ".join(f"tls://{name}:{self.port}" for name in _addresses(self.contact)),
            "certificate": self.keys.certificate,
            "slot": slot,
            "key": key_of(self.keys.secret, slot),
        }


def _addresses(contact: str) -> list[str]:
    """Under which names this machine may be found, the likeliest first."""
    if contact:
        return contact.split()
    found = [socket.getfqdn(), socket.gethostname()]
    with suppress(OSError):
        found.insert(0, socket.gethostbyname(socket.gethostname()))
    return list(dict.fromkeys([*found, "127.0.0.1"]))


def entry_of(
    manager: Manager, where: Where, project: str, meter: TaskMeter, period_s: float
) -> Json:
    """How a manager stands, in processors (Yu 2013, section 4.4.1)."""
    serving = manager.core.serving
    running = sum(bag.tasks.counts[GIVEN] * bag.procs for bag in serving)
    hosts = lent(staying(manager.core, manager.clock.now()))
    return {
        "id": where.run,
        "project": project,
        "period_s": period_s,
        "running": running,
        "waiting": sum(demand_of(bag) for bag in serving) - running,
        "procs": hosts.total(),
        "by_pool": dict(hosts),
        "bags": [bag.name for bag in serving][:20],
        "capacity": meter.capacity_json(),
        "failing": meter.failing,
        "arrived": sum(len(bag.tasks) * bag.procs for bag in manager.state.bags.values()),
        **where.told(),
    }


@dataclass
class Advertiser:
    """Publishes a manager's entry each period and lets go of hosts that a pool has decided for
    others.

    While the ledger cannot be reached, the shares that were decided last stand.
    """

    line: LedgerLine
    project: str
    contact: str = ""
    decided: Mapping[str, int] = field(default_factory=dict)
    meter: TaskMeter = field(default_factory=TaskMeter)
    _used_s: float = 0.0
    _manager: Manager | None = None
    _where: Where | None = None
    _period_s: float = PERIOD_S

    def begin(self, run: str, port: int, keys: Keys) -> None:
        """The manager listens now."""
        self._where = Where(run=run, port=port, keys=keys, contact=self.contact)
        self._used_s = time.thread_time()

    def look(self, manager: Manager, _: Fleet) -> None:
        """Called often, in the manager's loop."""
        self._manager = manager
        standing = self.line.heard()
        if standing is not None:
            self._follow(manager, standing)
        if self._where is not None and self.line.is_due():
            used_s, self._used_s = self._used_s, time.thread_time()
            here = [host for host in manager.state.hosts.values() if host.here]
            busy = sum(min(host.procs, len(host.held)) for host in here)
            self.meter.look(self._used_s - used_s, busy)
            entry = entry_of(manager, self._where, self.project, self.meter, self._period_s)
            publish = self.line.ledger.publish_manager
            self.line.ask(lambda: publish(self.line.name, entry), self._period_s)

    def _follow(self, manager: Manager, standing: Standing) -> None:
        self._period_s = min(PERIOD_S, period_of(standing))
        self.line.soon(self._period_s)
        self.decided = decided_for(standing, self.line.name)
        for host, why in excess(staying(manager.core, manager.clock.now()), self.decided):
            manager.dismiss(host, why)

    def told(self, bag: int, end: End) -> None:
        """A task has ended."""
        if self._manager is None:
            self.meter.add(1, end, "")
            return
        of, files = self._manager.state.bags[bag], self._manager.files.get(bag)
        reads = files.reads(end.task) if files is not None and end.fetched_s > 0.0 else ()
        self.meter.add(of.procs, end, of.name, reads)

    def standing(self) -> Json:
        """For the status of the manager."""
        return {
            "decided": dict(self.decided),
            "problem": self.line.problem,
            "capacity": self.meter.capacity_json(),
        }

    def end(self) -> None:
        """The manager is over: pools may send its hosts elsewhere at once."""
        self.line.end()
