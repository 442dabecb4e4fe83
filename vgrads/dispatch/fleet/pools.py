"""Hosts that pools lend: how many each pool has here, and which go when it has decided for fewer.

A pool never takes a host away. It says how many it has decided for; the manager lets the others go
when what they run has ended (Yu 2013, section 4.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.server.messages import BEAT_S

POOL = "pool"
"""The attribute by which a host says whose it is."""
_SILENT_S = 2.2 * BEAT_S
OWN = ""
"""Instead of a pool's name: hosts that the manager asked for itself, and guests."""


def pool_of(host: Host) -> str:
    """The pool that lends a host."""
    return str(host.attributes.get(POOL, OWN))


def staying(core: Core, now_s: float) -> list[Host]:
    """Hosts that are here and stay; one that has missed two signs of life is not counted on."""
    hosts, heard_s = core.state.hosts.values(), core.heard_s
    return [
        h
        for h in hosts
        if h.here and not h.leaving and now_s - heard_s.get(h.number, now_s) < _SILENT_S
    ]


def lent(hosts: Iterable[Host]) -> Counter[str]:
    """Processors that each pool has among hosts."""
    found: Counter[str] = Counter()
    for host in hosts:
        found[pool_of(host)] += host.procs
    return found


def excess(hosts: Iterable[Host], decided: Mapping[str, int]) -> list[tuple[Host, str]]:
    """Of hosts that stay those to let go, and why; ``decided``: processors by pool. Those that have
    least in hand go first, the newest of them: what others have in their caches stays. A pool that
    has said nothing keeps its hosts here."""
    lending = [host for host in hosts if pool_of(host) in decided]
    there, found = lent(lending), list[tuple[Host, str]]()
    for host in sorted(lending, key=lambda one: (len(one.held), -one.joined_s, one.number)):
        pool = pool_of(host)
        if there[pool] - host.procs >= decided[pool]:
            why = f"{pool} has decided for {decided[pool]} processors here, {there[pool]} are"
            there[pool] -= host.procs
            found.append((host, why))
    return found
