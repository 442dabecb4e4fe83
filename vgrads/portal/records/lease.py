"""Who answers for a piece of work: a process, until it is known to be dead, or was silent for a
whole lease.

No wall clock decides. On one machine a process is told by its number and when it began, and silence
by the machine's monotonic clock, which all its processes share; another machine's process is judged
by the clock of PostgreSQL, or, where the database has no clock of its own (SQLite), by a counter
that stood still for a lease of the watcher's own time.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import func, literal, select
from sqlmodel import Session

from vgrads.execmgr.tasks.processes import start_ticks
from vgrads.kernel.clock import boot_id
from vgrads.portal.records.tables import LeaseRow, WorkRow

LEASE_S = 30.0
RENEW_S = 5.0


@cache
def _machine() -> str:
    """This machine since it was started, and the space of its process numbers that we see."""
    return f"{boot_id()}.{Path('/proc/self/ns/pid').readlink().name.strip('pid:[]')}"


def new_owner() -> str:
    """A name for this process that no other process has, nor this one twice."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{start_ticks(pid)}:{secrets.token_hex(4)}"


def process_of(owner: str) -> str:
    """The number of an owner's process, for people."""
    return owner.split(":")[1] if ":" in owner else owner


@dataclass(frozen=True, slots=True)
class Beat:
    """The last sign of life of an owner: how many there were, the owner's monotonic clock, its age
    by the database's clock (None: it has none)."""

    owner: str
    count: int
    at_s: float
    age_s: float | None = None


def is_dead(beat: Beat, now_s: float | None = None) -> bool | None:
    """True: dead, or silent for too long. False: at work. None: only time will tell
    (:class:`Watch`)."""
    machine, _, rest = beat.owner.partition(":")
    pid, _, rest = rest.partition(":")
    if machine == _machine() and pid.isdigit():
        began = start_ticks(int(pid))
        if began is None or str(began) != rest.partition(":")[0]:
            return True
        return (time.monotonic() if now_s is None else now_s) - beat.at_s > LEASE_S
    return None if beat.age_s is None else beat.age_s > LEASE_S


@dataclass
class Watch:
    """Looks at owners that only time can tell of: how long each counter has stood still, by our own
    clock."""

    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def judge(self, beat: Beat) -> bool | None:
        """True: dead, or silent for a whole lease while we looked. False: at work. None: not known
        yet."""
        known = is_dead(beat)
        if known is not None:
            return known
        count, since_s = self._seen.setdefault(beat.owner, (beat.count, self.clock()))
        if count != beat.count:
            del self._seen[beat.owner]
            return False
        return True if self.clock() - since_s > LEASE_S else None


def sign_of_life(session: Session) -> dict[str, Any]:
    """What an owner writes into its row to be known to live; the counter beside it goes up by
    one."""
    return {"beat_s": time.monotonic(), "beaten_s": _database_now(session)}


def beat_of(session: Session, row: LeaseRow | WorkRow) -> Beat:
    """The last sign of life of whoever took a row."""
    if session.get_bind().dialect.name != "postgresql":
        return Beat(row.owner, row.beats, row.beat_s)
    now_s = float(session.execute(select(_database_now(session))).scalar_one())
    return Beat(row.owner, row.beats, row.beat_s, now_s - row.beaten_s)


def _database_now(session: Session) -> Any:
    """The clock of the database, in seconds; 0 where it is only that of whoever asks."""
    if session.get_bind().dialect.name == "postgresql":
        return func.extract("epoch", func.clock_timestamp())
    return literal(0.0)
