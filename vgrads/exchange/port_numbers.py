"""Numbers of the ports that servers listen on and return to after a restart."""

from __future__ import annotations

import random
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DYNAMIC = range(49_152, 65_536)  # RFC 6335, 6: where the system does not say
_SERVERS = range(20_000, 65_536)  # below them lie the registered ports of most services


def client_ports(file: Path = _RANGE) -> range:
    """Return the ports that the kernel gives to clients by itself (ip(7))."""
    try:
        first, last = map(int, file.read_text().split())
    except (OSError, ValueError):
        return _DYNAMIC
    return range(first, last + 1)


def draw_server_ports(count: int, clients: range) -> list[int]:
    """Return at most so many different ports, at random, none of which the kernel gives to a
    client: while a server is away, a port of a client may be taken by any connection of the
    machine, also by one that looks for the server. Empty where the clients have all of them."""
    ports = [number for number in _SERVERS if number not in clients]
    return random.sample(ports, min(count, len(ports)))
