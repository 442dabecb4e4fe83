"""Who answers for a piece of work: a process with a name, until it is dead or silent for too long."""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress

LEASE_S = 30.0
RENEW_S = 5.0


def new_owner() -> str:
    """A name for this process that no other process has, nor this one twice."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def at_work(owner: str, until_s: float) -> bool:
    """True while the process that took a lease is alive, as far as can be told from here."""
    host, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if host == socket.gethostname() and not _lives(int(pid)):
        return False
    return until_s > time.time()


def _lives(pid: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
