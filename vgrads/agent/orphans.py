"""Processes whose parents have ended: they come to the agent, which ends them with their task.

A process that clears its environment, leaves its session and closes its files has no mark any more,
but it still descends from its task: where its parent ends, the system gives it to the nearest
ancestor that asks for such children (``PR_SET_CHILD_SUBREAPER``, prctl(2), Linux). So descent finds
what belongs to the tasks of this agent and nothing else, whatever its account.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Callable, Collection, Iterable

from .processes import DEATH_S, MARK, kill, parent_of, processes, runs, variable_of

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE_S = 0.02


def adopt() -> None:
    """Become the parent of descendants whose parents end, where the system allows it."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 a part of Python that some nodes lack

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of(parent: int) -> list[int]:
    """Return the children of a process, zombies too."""
    try:
        return [
            int(word)
            for thread in os.listdir(f"/proc/{parent}/task")  # noqa: PTH208
            for word in _words(f"/proc/{parent}/task/{thread}/children")
        ]
    except OSError:  # a kernel without this file
        return [pid for pid in processes() if parent_of(pid) == parent]


def _words(path: str) -> list[str]:
    with open(path) as file:  # noqa: PTH123
        return file.read().split()


def end_descendants(patience_s: float = DEATH_S) -> None:
    """Kill all descendants of this process and wait for them, for this time (seconds) at most; not
    those of its session, which end a container, say, and then themselves."""
    end_s, session = time.monotonic() + patience_s, os.getsid(0)
    while True:
        every = _with_descendants(children_of(os.getpid()))
        left = [pid for pid in every if not _is_helper(pid, session) and not _reap(pid)]
        if not left or time.monotonic() > end_s:
            return
        for pid in left:
            kill(pid)
        time.sleep(_PAUSE_S)


def _with_descendants(pids: Iterable[int]) -> list[int]:
    """Return these processes and all that descend from them."""
    result, parents = list(pids), {pid: parent_of(pid) for pid in processes()}
    by_parent: dict[int | None, list[int]] = {}
    for pid, parent in parents.items():
        by_parent.setdefault(parent, []).append(pid)
    for pid in result:  # which grows
        result += by_parent.get(pid, ())
    return result


def _reap(pid: int) -> bool:
    """Wait for a child if it has ended; return True where it has, or is none."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not runs(pid)


class Orphans:
    """The adopted children of an agent. Each belongs to one of the children that ran when it came:
    to that whose mark it has, else it is ended when none of them runs any more."""

    def __init__(self) -> None:
        self._owners: dict[int, set[int]] = {}
        self._ended: set[int] = set()  # children that have ended since the last look

    def __bool__(self) -> bool:
        return bool(self._owners or self._ended)

    def note_end(self, pid: int) -> None:
        """A child of the agent has ended: it may have left processes."""
        self._ended.add(pid)

    def look(
        self, own: Callable[[], Collection[int] | None], is_owner: Callable[[str], bool]
    ) -> None:
        """End what belongs to no running child. ``own``: returns the agent's own children, None
        while one is being started; ``is_owner``: whether a mark is that of one of them."""
        before = own()
        present = children_of(os.getpid())
        running = own()
        if before is None or running is None:
            return
        known, session = {*before, *running}, os.getsid(0)
        adopted = [pid for pid in present if pid not in known and not _is_helper(pid, session)]
        here = {pid for pid in adopted if not _reap(pid)}
        owners = {pid: self._owners.get(pid, known | self._ended) for pid in here}
        self._ended.clear()
        ending = []
        for pid, possible in owners.items():
            mark = variable_of(pid, MARK)
            if not is_owner(mark) if mark else possible.isdisjoint(running):
                ending.append(pid)
        for pid in _with_descendants(ending) if ending else ():
            kill(pid)
        self._owners = owners


def _is_helper(pid: int, session: int) -> bool:
    """Return True for a process that the agent itself uses: tasks have sessions of their own."""
    try:
        return os.getsid(pid) == session
    except OSError:
        return False
