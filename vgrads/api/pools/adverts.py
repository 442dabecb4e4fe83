"""Advertisement of a manager that uses agents of pools: its entry in the ledger, and how it follows
the decisions of pools."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from vgrads.api.pools.ledger import PERIOD_S, Json, LedgerEntries, choose_period, sum_decided
from vgrads.api.pools.ledger_connection import LedgerConnection
from vgrads.dispatch.core.tasks import ASSIGNED
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.meter import TaskMeter
from vgrads.dispatch.fleet.pools import count_leased, find_excess, list_staying
from vgrads.dispatch.fleet.supply import compute_demand
from vgrads.dispatch.server.manager import AD_HOC, DispatchManager
from vgrads.exchange.keys import Keys, derive_key
from vgrads.exchange.values import AttemptEnd
from vgrads.execmgr.slot_names import spec_id

SLOT = f"{AD_HOC}.pool"
"""The slot of all agents leased by pools: its key gives access to this manager only, and ends with
its folder."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """Address of a manager, and the keys that admit agents."""

    run: str
    port: int
    keys: Keys
    contact: str = ""

    def to_json(self) -> Json:
        """Return the part of an entry that a pool passes to its agents."""
        slot = spec_id(SLOT, self.run)
        return {
            "contact": " ".join(
                f"tls://{name}:{self.port}" for name in _list_addresses(self.contact)
            ),
            "certificate": self.keys.certificate,
            "slot": slot,
            "key": derive_key(self.keys.secret, slot),
        }


def _list_addresses(contact: str) -> list[str]:
    """Return names of this machine under which it may be reached, the most probable first."""
    if contact:
        return contact.split()
    texts = [socket.getfqdn(), socket.gethostname()]
    with suppress(OSError):
        texts.insert(0, socket.gethostbyname(socket.gethostname()))
    return list(dict.fromkeys([*texts, "127.0.0.1"]))


def entry_of(
    manager: DispatchManager, where: Where, project: str, meter: TaskMeter, period_s: float
) -> Json:
    """Return the state of a manager, in processors (Yu 2013, section 4.4.1)."""
    serving = manager.core.serving
    running = sum(bag.tasks.counts[ASSIGNED] * bag.procs for bag in serving)
    hosts = count_leased(list_staying(manager.core, manager.clock.now()))
    return {
        "id": where.run,
        "project": project,
        "period_s": period_s,
        "running": running,
        "waiting": sum(compute_demand(bag) for bag in serving) - running,
        "procs": hosts.total(),
        "by_pool": dict(hosts),
        "bags": [bag.name for bag in serving][:20],
        "capacity": meter.capacity_json(),
        "failing": meter.failing,
        "arrived": sum(len(bag.tasks) * bag.procs for bag in manager.state.bags.values()),
        **where.to_json(),
    }


@dataclass
class Advertiser:
    """Publishes a manager's entry each period and disconnects agents that a pool has assigned to
    others.

    While the ledger cannot be reached, the last decided shares remain.
    """

    line: LedgerConnection
    project: str
    contact: str = ""
    decided: Mapping[str, int] = field(default_factory=dict)
    meter: TaskMeter = field(default_factory=TaskMeter)
    _used_s: float = 0.0
    _manager: DispatchManager | None = None
    _where: Where | None = None
    _period_s: float = PERIOD_S

    def begin(self, run: str, port: int, keys: Keys) -> None:
        """Called when the manager listens."""
        self._where = Where(run=run, port=port, keys=keys, contact=self.contact)
        # of this thread alone, which runs the manager's loop
        self._used_s = time.thread_time()

    def look(self, manager: DispatchManager, _: Fleet) -> None:
        """Called often, in the manager's loop."""
        self._manager = manager
        entries = self.line.latest()
        if entries is not None:
            self._follow(manager, entries)
        if self._where is not None and self.line.is_due():
            used_s, self._used_s = self._used_s, time.thread_time()
            here = [host for host in manager.state.agents.values() if host.here]
            busy = sum(min(host.procs, len(host.assigned)) for host in here)
            self.meter.look(self._used_s - used_s, busy)
            entry = entry_of(manager, self._where, self.project, self.meter, self._period_s)
            publish = self.line.ledger.publish_manager
            self.line.ask(lambda: publish(self.line.name, entry), self._period_s)

    def _follow(self, manager: DispatchManager, entries: LedgerEntries) -> None:
        self._period_s = min(PERIOD_S, choose_period(entries))
        self.line.soon(self._period_s)
        self.decided = sum_decided(entries, self.line.name)
        for host, why in find_excess(list_staying(manager.core, manager.clock.now()), self.decided):
            manager.disconnect(host, why)

    def on_end(self, bag: int, end: AttemptEnd) -> None:
        """Record the end of a task."""
        if self._manager is None:
            self.meter.add(1, end, "")
            return
        of, files = self._manager.state.bags[bag], self._manager.files.get(bag)
        reads = files.reads(end.task) if files is not None and end.fetched_s > 0.0 else ()
        self.meter.add(of.procs, end, of.name, reads)

    def status(self) -> Json:
        """Return its part of the manager's status."""
        return {
            "decided": dict(self.decided),
            "problem": self.line.problem,
            "capacity": self.meter.capacity_json(),
        }

    def end(self) -> None:
        """Withdraw the entry: pools may send the agents elsewhere at once."""
        self.line.end()
