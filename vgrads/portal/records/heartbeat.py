"""Ownership of a piece of work: a process, until it is dead, or was silent for a whole lease.

No wall clock is used. On one machine a process is identified by its number and start time, and
silence is measured by the machine's monotonic clock, which all its processes share; another
machine's process is measured by the clock of PostgreSQL, or, where the database has no clock
(SQLite), by a counter that did not change for a lease of the observer's own time.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from vgrads.agent.processes import start_ticks
from vgrads.kernel.clock import boot_id

LEASE_S = 30.0
RENEW_S = 5.0


@cache
def _identify_machine() -> str:
    """Return this machine's boot, and its visible process number space."""
    return f"{boot_id()}.{Path('/proc/self/ns/pid').readlink().name.strip('pid:[]')}"


def new_owner() -> str:
    """Return a name for this process that is unique among processes and calls."""
    pid = os.getpid()
    return f"{_identify_machine()}:{pid}:{start_ticks(pid)}:{secrets.token_hex(4)}"


def process_of(owner: str) -> str:
    """Return the number of an owner's process, for display."""
    return owner.split(":")[1] if ":" in owner else owner


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last heartbeat of an owner: its count, the owner's monotonic clock, its age by the
    database's clock (None: it has none)."""

    owner: str
    count: int
    at_s: float
    age_s: float | None = None


def is_dead(heartbeat: Heartbeat, now_s: float | None = None) -> bool | None:
    """Return True: dead, or silent for too long. False: active. None: needs observation
    (:class:`Watch`)."""
    machine, _, rest = heartbeat.owner.partition(":")
    pid, _, rest = rest.partition(":")
    if machine == _identify_machine() and pid.isdigit():
        began = start_ticks(int(pid))
        # the number of a process that has ended may be that of another one, which began later
        if began is None or str(began) != rest.partition(":")[0]:
            return True
        return (time.monotonic() if now_s is None else now_s) - heartbeat.at_s > LEASE_S
    return None if heartbeat.age_s is None else heartbeat.age_s > LEASE_S


@dataclass
class Watch:
    """Observes owners whose state needs observation: how long each counter has not changed, by the
    local clock."""

    clock: Callable[[], float] = time.monotonic
    _heartbeats: dict[str, tuple[int, float]] = field(default_factory=dict)

    def judge(self, heartbeat: Heartbeat) -> bool | None:
        """Return True: dead, or silent for a whole lease while observed. False: active. None: not
        known yet."""
        dead = is_dead(heartbeat)
        if dead is not None:
            return dead
        count, since_s = self._heartbeats.setdefault(
            heartbeat.owner, (heartbeat.count, self.clock())
        )
        if count != heartbeat.count:
            del self._heartbeats[heartbeat.owner]
            return False
        return True if self.clock() - since_s > LEASE_S else None
