"""An agent's scratch folder, and the remains of a killed agent: its folder, and processes of its
tasks.

Each agent has a guardian, its parent process. When the agent has ended, for any reason, the
guardian kills the remaining processes of its tasks and removes its folder before it exits, so that
a slot ends only after its tasks. An agent whose guardian was killed does it itself. Where both were
killed, the driver that started them or the next agent on this machine cleans up: the lock in a dead
agent's folder is free.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from .marks import end_tasks
from .parent_job import ParentJob
from .processes import adopt, end_descendants, kill

_PREFIX = "vgrads-"
_LOCK, _MARK = "lock", "mark"
_STALE_S = 600.0  # of unused files left by a release or a killed start
_STARTS_S, _PAUSE_S = 2.0, 0.01  # the disk of a program may be dead
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def make_scratch(near: str | None, mark: str) -> tuple[Path, int]:
    """Create a folder, and a descriptor of its lock, which is in use while a process has it: this
    one, and what it forks until that executes a program. ``mark``: of its tasks' processes. Signals
    that end this process wait from here on for :func:`fork_agent`, since nobody would remove the
    folder."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=near)).resolve()
    (scratch / _MARK).write_text(mark)
    draft = scratch / "lock.draft"
    lock = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(scratch / _LOCK)  # never exists without its lock
    return scratch, lock


def sweep(near: str | None) -> None:
    """End and remove the remains of this user's dead agents on this machine."""
    folder = Path(near or tempfile.gettempdir())
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        _sweep_folder(Path(entry.path), entry.stat(follow_symlinks=False).st_mtime)


def _sweep_folder(path: Path, changed_s: float) -> None:
    if path.name.endswith((".pyz", ".given-back")):
        if time.time() - changed_s > _STALE_S:
            path.unlink()
        return
    with _lock_folder(path):
        mark = (path / _MARK).read_text()
        if mark:
            end_tasks(f"{mark}.")
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _lock_folder(scratch: Path) -> Iterator[None]:
    """Have the lock of an agent's folder. Raise OSError where this is none, or while the agent
    lives or starts a task."""
    lock = os.open(scratch / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def fork_agent(mark: str, scratch: Path, lock: int, slot: ParentJob) -> int:
    """Fork the agent; return, in the new process, a descriptor that is readable when the guardian
    is gone. The calling process becomes the guardian, and exits with the agent's exit code."""
    alive, write_end = os.pipe()
    adopt()
    number = os.fork()
    if number == 0:
        adopt()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        os.close(write_end)
        return alive
    os.close(alive)
    os.close(lock)  # the agent's, and that of tasks that it is starting

    def forward(signal_number: int, _: object) -> None:
        kill(number, signal_number)

    for item in _ENDING:
        signal.signal(item, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    status = slot.wait_for(number)
    if os.WIFSIGNALED(status):
        await_starts(scratch)
    end_tasks(f"{mark}.")  # with their containers, which need what watches over them
    end_descendants()  # the agent's own, which have come here
    remove(scratch, mark)
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    os._exit(code)


def await_starts(scratch: Path) -> None:
    """Wait for the tasks that a killed agent was starting: until they execute their programs they
    have its lock, and no mark."""
    end_s = time.monotonic() + _STARTS_S
    while not _is_free(scratch) and time.monotonic() < end_s:
        time.sleep(_PAUSE_S)


def _is_free(scratch: Path) -> bool:
    """Return True where no process has the lock of a folder, or another agent has removed it."""
    try:
        with _lock_folder(scratch):
            return True
    except FileNotFoundError:
        return True
    except OSError:
        return False


def remove(scratch: Path, mark: str) -> None:
    """End the remaining processes of an agent's tasks, and remove its folder."""
    end_tasks(f"{mark}.")
    os.chdir("/")
    shutil.rmtree(scratch, ignore_errors=True)
