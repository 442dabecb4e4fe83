"""Processes of tasks as the system lists them (proc(5)): those that bear a mark, and the memory of
sessions.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Iterator, Mapping

MARK = "VGRADS_COPY"
"""The variable that all processes of a task have its mark in."""
_SWEEP_S = 0.25  # between looks through all processes
_WITHIN = ord("/")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Marks:
    """The marks of an agent's tasks, and those of ended ones that may have left processes."""

    def __init__(self, mark: str) -> None:
        """``mark``: the agent's own, with which those of its tasks begin."""
        self._mark = mark.encode()
        self._suspected: set[bytes] = set()
        self._swept_s = 0.0

    def of(self, key: tuple[int, int, int]) -> bytes:
        """A task's."""
        return b"%s.%d.%d.%d" % (self._mark, *key)

    def suspect(self, key: tuple[int, int, int]) -> None:
        """Look for what this task has left, until nothing is found."""
        self._suspected.add(self.of(key))

    def is_suspected(self, key: tuple[int, int, int]) -> bool:
        """True while something of this task may still run."""
        return self.of(key) in self._suspected

    def look(self, now_s: float) -> None:
        """Kill what has outlived its task, now and then."""
        if self._suspected and now_s - self._swept_s >= _SWEEP_S:
            self._swept_s = now_s
            self._suspected &= kill_marked(self._suspected)

    def next_look_s(self, now_s: float) -> float:
        """How long until :meth:`look` has something to do, in seconds."""
        return self._swept_s + _SWEEP_S - now_s if self._suspected else float("inf")

    def kill_all(self, end_s: float) -> None:
        """Kill the processes of all tasks, until this instant at most."""
        while kill_marked({self._mark + b"."}, whole=False) and time.monotonic() < end_s:
            time.sleep(0.01)


def kill_marked(marks: set[bytes], whole: bool = True) -> set[bytes]:
    """Kill the processes that bear one of these marks in their environment; the marks that were
    found.

    ``whole``: the marks are whole, else what they begin with. A task may itself be an agent: what
    its tasks bear is their own mark behind its.
    """
    found = set()
    word = MARK.encode() + b"="
    for number in _all():
        with suppress(OSError):
            with open(f"/proc/{number}/environ", "rb") as file:  # noqa: PTH123
                _, there, rest = (b"\0" + file.read()).partition(b"\0" + word)
            mark = rest.partition(b"\0")[0]
            around = {mark[:at] for at, one in enumerate(mark) if one == _WITHIN}
            if there and (marks & {mark, *around} if whole else _begins(mark, marks)):
                os.kill(int(number), signal.SIGKILL)
                found |= {mark, *around}
    return found


def _all() -> Iterator[str]:
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112
        if entry.name.isdigit():
            yield entry.name


def _begins(mark: bytes, marks: set[bytes]) -> bool:
    """True where a mark, or one that stands within it, begins with one of these."""
    return any(one.startswith(tuple(marks)) for one in (mark, *mark.split(b"/")))


def memory_mib(sessions: Mapping[int, object]) -> dict[int, float]:
    """Resident memory of all processes of these sessions (stat: fields 5, 6 and 24)."""
    used = dict.fromkeys(sessions, 0.0)
    for number in _all():
        with suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
            for leader in {int(fields[2]), int(fields[3])} & used.keys():
                used[leader] += int(fields[21]) * _PAGE_MIB
    return used
