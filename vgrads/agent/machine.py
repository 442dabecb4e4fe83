"""What an agent's host is: its place in the allocation, its machine. Standard library only, Python
3.8 and newer."""

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


class Place(NamedTuple):
    """What this host is in its allocation. ``machine``: what stays when it is installed anew;
    ``attributes``: what its site says of it, for policies; ``own``: its tasks are those of whoever
    started it; ``pass_env``: variables that its site passes to all tasks; ``away_s``: so long it
    looks for a manager that is away; ``within``: the mark of the task that it is itself, and
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

    @classmethod
    def told(cls, environment: Mapping[str, str]) -> Place:
        """From the agent's environment."""
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
            named or _card(_CARDS) or socket.gethostname(),
            _attributes(environment.get("VGRADS_HOST_ATTRIBUTES", "")),
            float(environment.get("VGRADS_AWAY_S", GIVE_UP_S)),
            f"{within}/" if within else "",
            bool(environment.get("VGRADS_OWN")),
            tuple(environment.get("VGRADS_PASS_ENV", "").split()),
        )

    def for_tasks(self) -> dict[str, str]:
        """What tasks are told of the host: until when it is there (seconds since 1970)."""
        return {} if self.left_s is None else {"VGRADS_UNTIL": f"{time.time() + self.left_s:.0f}"}

    def told_of(self) -> dict[str, Any]:
        """What the manager is told of the host when they meet."""
        memory_mib = 0
        with suppress(OSError, ValueError):
            memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        return {
            "slot": self.slot,
            "node": self.node,
            "procs": self.procs,
            "memory_mib": memory_mib,
            "name": self.name,
            "machine": self.machine,
            "attributes": self.attributes,
        }

    @property
    def host(self) -> str:
        """The same for every agent of this slot's node on this machine. Images share their
        machine's number: the name tells them apart."""
        number = ""
        with suppress(OSError):
            number = Path("/etc/machine-id").read_text().strip()
        parts = (number, socket.gethostname(), self.name, self.slot, str(self.node))
        return hashlib.sha256(".".join(parts).encode()).hexdigest()[:32]


def as_a_task(told: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of an agent that is a task of another one: its files stand in the task's
    folder, each task is a host of its own, and ends with the one that it runs on."""
    until = environment.get("VGRADS_UNTIL")
    left = {"VGRADS_LEFT_S": f"{max(1.0, float(until) - time.time()):.0f}"} if until else {}
    return {
        "VGRADS_SCRATCH": str(Path.cwd()),
        "VGRADS_NODE": environment.get("VGRADS_TASK", "0"),
        **left,
        **told,
    }


def _card(cards: Path) -> str:
    """The address of a network card as its maker gave it: disks are wiped, names are given anew,
    containers make up addresses of their own."""
    for path in sorted(cards.glob("*/address")):
        with suppress(OSError, ValueError):
            address = path.read_text().strip()
            first = int(address[:2], 16)
            if address.strip("0:") and not first & 3:  # neither a group's nor made up
                return address
    return ""


def _attributes(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(text) if text else {}
        return dict(found) if isinstance(found, dict) else {}
    return {}
