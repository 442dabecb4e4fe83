"""An agent's scratch folder, and what an agent that was killed leaves: its folder, and processes of
its tasks.

Each agent has a guardian, its parent process. When the agent has ended, however it ended, the
guardian kills what is left of its tasks and removes its folder before it ends itself, so that a
slot is over only when its tasks are. Where both were killed, the next agent of this machine does
it: nobody holds the lock in a dead agent's folder.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from .processes import kill_marked

_PREFIX = "vgrads-"
_LOCK, _MARK = "lock", "mark"
_PAUSE_S = 0.02
_STALE_S = 600.0  # of files that a release or a killed start left: nobody looks at them any more


def make_scratch(near: str | None, mark: str) -> Path:
    """A new folder that is locked while this process or one that it forks lives. ``mark``: of its
    tasks' processes."""
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=near)).resolve()
    (scratch / _MARK).write_text(mark)
    draft = scratch / "lock.draft"
    fcntl.flock(os.open(draft, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
    draft.rename(scratch / _LOCK)  # never there without its lock
    return scratch


def end_tasks(mark: str) -> None:
    """Kill all processes of an agent's tasks; none runs when this returns."""
    while kill_marked({mark.encode() + b"."}, whole=False):
        time.sleep(_PAUSE_S)


def sweep(near: str | None) -> None:
    """End and remove what dead agents of this user have left on this machine."""
    folder = Path(near or tempfile.gettempdir())
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        _sweep_one(Path(entry.path), entry.stat(follow_symlinks=False).st_mtime)


def _sweep_one(path: Path, changed_s: float) -> None:
    if path.name.endswith((".pyz", ".given-back")):
        if time.time() - changed_s > _STALE_S:
            path.unlink()
        return
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW)  # no agent's folder: OSError
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its agent lives: OSError
        mark = (path / _MARK).read_text()
        if mark:
            end_tasks(mark)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def fork_agent(mark: str, scratch: Path) -> int:
    """In a new process: a descriptor that is readable when the guardian is gone. The process that
    calls this becomes the guardian, and ends here with the agent's exit code."""
    alive, held = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(held)
        return alive
    os.close(alive)

    def forward(signal_number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(number, signal_number)

    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, forward)
    status = os.waitpid(number, 0)[1]
    end_tasks(mark)
    os.chdir("/")
    shutil.rmtree(scratch, ignore_errors=True)
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    os._exit(code)
