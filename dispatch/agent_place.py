"""What an agent's host is: its place in the allocation, its machine. Standard library only, Python 3.8 and newer."""

from __future__ import annotations

import hashlib
import json
import math
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Mapping, NamedTuple

_CARDS = Path("/sys/class/net")


class Place(NamedTuple):
    """What this host is in its allocation. ``machine``: what stays when it is installed anew; ``attributes``: what its
    site says of it, for policies."""

    slot: str
    node: int
    procs: int
    left_s: float | None
    cache: str
    turns: bool
    name: str
    machine: str
    attributes: dict[str, Any]

    @classmethod
    def told(cls, environment: Mapping[str, str]) -> Place:
        """From the agent's environment."""
        whole, nodes = (
            int(environment.get("VGRADS_PROCS", "1")),
            int(environment.get("VGRADS_NODES", "1")),
        )
        own = environment.get("VGRADS_HOST_PROCS")
        left = environment.get("VGRADS_LEFT_S")
        named = environment.get("VGRADS_HOST_NAME") or environment.get("SLURMD_NODENAME") or ""
        return cls(
            environment.get("VGRADS_SLOT", ""), int(environment.get("VGRADS_NODE", "0")),
            max(1, int(own) if own else math.ceil(whole / max(1, nodes))), float(left) if left else None,
            environment.get("VGRADS_CACHE", ""), bool(environment.get("VGRADS_TURNS")),
            named or socket.gethostname(), named or _card(_CARDS) or socket.gethostname(),
            _attributes(environment.get("VGRADS_HOST_ATTRIBUTES", "")),
        )  # fmt: skip

    @property
    def host(self) -> str:
        """The same for every agent of this slot's node on this machine. Images share their machine's number: the name
        tells them apart."""
        number = ""
        with suppress(OSError):
            number = Path("/etc/machine-id").read_text().strip()
        parts = (number, socket.gethostname(), self.name, self.slot, str(self.node))
        return hashlib.sha256(".".join(parts).encode()).hexdigest()[:32]


def _card(cards: Path) -> str:
    """The address of a network card as its maker gave it: disks are wiped, names are given anew, containers make up
    addresses of their own."""
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
