"""Ports for what tests begin: no two processes of tests on this machine are given the same one.

Each process claims a block, outside those that the system gives to clients by itself, by a name
that goes with the process.
"""

from __future__ import annotations

import atexit
import errno
import itertools
import socket
from collections.abc import Iterator
from functools import cache

from tests.waiting import listens
from vgrads.exchange.port import read_client_ports

_BLOCKS, _SIZE = range(10_000, 20_000, 200), 200
"""Below the ports that agents' managers choose (vgrads/exchange/port.py)."""


def free_ports(count: int = 1) -> int:
    """The first of so many neighbouring ports of the loopback address that nobody listens on."""
    _, first, turns = _block()
    for _ in range(_SIZE):
        turn = [next(turns) % _SIZE for _ in range(count)]
        if turn[-1] - turn[0] == count - 1 and not any(listens(first + n) for n in turn):
            return first + turn[0]
    raise AssertionError("no free ports")


@cache
def _block() -> tuple[socket.socket, int, Iterator[int]]:
    """What holds this process's block, the block's first port, and whose turn it is."""
    clients = read_client_ports()
    apart = [first for first in _BLOCKS if not {first, first + _SIZE - 1} & {*clients}]
    for first in apart or _BLOCKS:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0vgrads-tests-ports-{first}")
            atexit.register(claim.close)
            return claim, first, itertools.count()
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("all ports for tests are claimed")
