"""The identity of an agent's node: its position in the allocation, its machine. Standard library
only, Python 3.8 and newer."""

from __future__ import annotations

import hashlib
import json
import math
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Mapping, NamedTuple

GIVE_UP_S = 900.0
_CARDS = Path("/sys/class/net")


class NodeIdentity(NamedTuple):
    """Identity of this node in its allocation. ``machine``: unchanged by a reinstallation;
    ``attributes``: of its site, for dispatch policies; ``own``: its tasks belong to the user who
    started it; ``pass_env``: variables that its site passes to all tasks; ``away_s``: how long it
    searches for an unreachable manager; ``within``: the mark of the task that it is itself, and
    ``/``."""

    slot: str
    node: int
    procs: int
    left_s: float | None
    cache: str
    turns: bool
    name: str
    machine: str
    attributes: dict[str, Any]
    away_s: float = GIVE_UP_S
    within: str = ""
    own: bool = False
    pass_env: tuple[str, ...] = ()
    nodes: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> NodeIdentity:
        """Read it from the agent's environment."""
        whole, nodes = (
            int(environment.get("VGRADS_PROCS", "1")),
            int(environment.get("VGRADS_NODES", "1")),
        )
        own = environment.get("VGRADS_HOST_PROCS")
        left = environment.get("VGRADS_LEFT_S")
        within = environment.get("VGRADS_COPY", "") if environment.get("VGRADS_SCRATCH") else ""
        named = environment.get("VGRADS_HOST_NAME") or environment.get("SLURMD_NODENAME") or ""
        return cls(
            environment.get("VGRADS_SLOT", ""),
            int(environment.get("VGRADS_NODE", "0")),
            max(1, int(own) if own else math.ceil(whole / max(1, nodes))),
            float(left) if left else None,
            environment.get("VGRADS_CACHE", ""),
            bool(environment.get("VGRADS_TURNS")),
            named or socket.gethostname(),
            named or _find_network_card(_CARDS) or socket.gethostname(),
            _parse_attributes(environment.get("VGRADS_HOST_ATTRIBUTES", "")),
            float(environment.get("VGRADS_AWAY_S", GIVE_UP_S)),
            f"{within}/" if within else "",
            bool(environment.get("VGRADS_OWN")),
            tuple(environment.get("VGRADS_PASS_ENV", "").split()),
            nodes,
        )

    def for_tasks(self) -> dict[str, str]:
        """Return the variables of the node for its tasks: the end of its slot (seconds since
        1970)."""
        return {} if self.left_s is None else {"VGRADS_UNTIL": f"{time.time() + self.left_s:.0f}"}

    def to_hello(self) -> dict[str, Any]:
        """Return the description of the node for the first message to the manager."""
        memory_mib = 0
        with suppress(OSError, ValueError):
            memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        return {
            "slot": self.slot,
            "node": self.node,
            "nodes": self.nodes,
            "procs": self.procs,
            "memory_mib": memory_mib,
            "name": self.name,
            "machine": self.machine,
            "attributes": self.attributes,
        }

    @property
    def host(self) -> str:
        """Return the same name for every agent of this slot's node on this machine. Images share
        their machine's number: the name distinguishes them."""
        number = ""
        with suppress(OSError):
            number = Path("/etc/machine-id").read_text().strip()
        parts = (number, socket.gethostname(), self.name, self.slot, str(self.node))
        return hashlib.sha256(".".join(parts).encode()).hexdigest()[:32]


def as_a_task(payload: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an agent that runs as a task of another one: its files are in the
    task's folder, and each such task counts as a node of its own, which ends with the agent that
    runs it."""
    until = environment.get("VGRADS_UNTIL")
    left = {"VGRADS_LEFT_S": f"{max(1.0, float(until) - time.time()):.0f}"} if until else {}
    return {
        "VGRADS_SCRATCH": str(Path.cwd()),
        "VGRADS_NODE": environment.get("VGRADS_TASK", "0"),
        **left,
        **payload,
    }


def _find_network_card(cards: Path) -> str:
    """Return the manufacturer's address of a network card: disks are wiped, names are reassigned,
    containers use addresses of their own."""
    for path in sorted(cards.glob("*/address")):
        with suppress(OSError, ValueError):
            address = path.read_text().strip()
            first = int(address[:2], 16)
            # neither a multicast nor a locally assigned address
            if address.strip("0:") and not first & 3:
                return address
    return ""


def _parse_attributes(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        result = json.loads(text) if text else {}
        return dict(result) if isinstance(result, dict) else {}
    return {}
