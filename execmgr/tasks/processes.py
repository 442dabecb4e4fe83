"""Processes of tasks, found by a mark in their environment, and proven dead before anybody says so.

A task's children may leave its process group (``setsid``), outlive it (``&``) or lose their parent
(a shell that was killed); what they cannot help is to have inherited an environment. Linux tells it
in ``/proc``.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from vgrads.execmgr.tasks.containers import CLIENTS, container_name, end_container, ending

MARK = "VGRADS_COPY"
"""In the environment of every process of a task: ``run.kind:workflow/task/copy/attempt``."""
_PAUSE_S = 0.02
DEATH_S = 10.0
"""How long killed processes may take to be gone; one that waits for a dead disk does not die at
all."""
_PROC = Path("/proc")


def run_token(folder: Path) -> str:
    """What the marks of a run's tasks begin with: made from where its files lie."""
    return hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def marked(wanted: Callable[[str], bool]) -> dict[int, str]:
    """Live processes of this user whose mark is wanted: number → mark. Reads all of ``/proc``."""
    found = {}
    for pid in _numbers():
        mark = variable_of(pid, MARK)
        if mark and wanted(mark) and runs(pid):
            found[pid] = mark
    return found


def kill_marked(wanted: Callable[[str], bool], patience_s: float = DEATH_S) -> bool:
    """Kill all of them, and those that they beget meanwhile, with the containers that they look
    after; False where some are still there in the end."""
    end_s = time.monotonic() + patience_s
    clients: dict[str, str] = {}
    while found := marked(wanted):
        clients |= {mark: name_of(pid) for pid, mark in found.items() if name_of(pid) in CLIENTS}
        for pid in found:
            kill(pid)
        if time.monotonic() > end_s:
            return False
        time.sleep(_PAUSE_S)
    for mark, engine in clients.items():
        end_container(ending(engine, container_name(mark)), os.environ)
    return True


def kill(pid: int) -> None:
    """End one process for good; one that has ended is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process group; one that has ended is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def runs(pid: int) -> bool:
    """True while a process is there and is no zombie."""
    try:
        return _stat(pid)[0] not in "ZX"
    except (OSError, IndexError):
        return False


def start_ticks(pid: int) -> int | None:
    """When a process began, in ticks since the machine did: with its number, whose it is. None: not
    there."""
    try:
        return int(_stat(pid)[19])
    except (OSError, IndexError, ValueError):
        return None


def parent_of(pid: int) -> int | None:
    """The number of a process's parent; None where it is not there."""
    try:
        return int(_stat(pid)[1])
    except (OSError, IndexError, ValueError):
        return None


def name_of(pid: int) -> str:
    """The name of a process's program; empty where it is not there."""
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on (proc(5): field 3)."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def is_over(descriptor: int, patience_s: float) -> bool:
    """True when a process's descriptor (pidfd) or the reading end of a pipe tells the end in this
    time."""
    watch = select.poll()
    watch.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(watch.poll(max(0.0, patience_s) * 1000.0))


def _numbers() -> Iterator[int]:
    with os.scandir(_PROC) as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def variable_of(pid: int, name: str) -> str:
    """A variable of the environment that a process began with; empty where it has none, or is not
    ours."""
    try:
        with (_PROC / str(pid) / "environ").open("rb") as file:
            body = b"\0" + file.read()
    except OSError:
        return ""
    _, found, rest = body.partition(b"\0" + name.encode() + b"=")
    return rest.partition(b"\0")[0].decode(errors="replace") if found else ""
