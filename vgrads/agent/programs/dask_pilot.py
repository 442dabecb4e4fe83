"""A slot's pilot in a worker of a user's Dask cluster: a process that ends with the slot.

Sent to the workers by value, so it needs the standard library only. A released slot leaves a mark
on the worker's machine: a pilot that the scheduler starts late finds it and exits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

TIMED_OUT = 124
_LOOK_S = 0.5
_RETENTION_S = 600.0
_GRACE_S = 7.0  # agents take up to five seconds to report what they ended


def run_pilot(
    pilot: str, environment: dict[str, str], duration_s: float, name: str
) -> tuple[int, str]:
    """Run a pilot and return (exit status, last line of its output). ``name``: the slot and, after
    a dot, the node; processes left by an earlier try on this machine are killed first."""
    _kill(name)
    mark = name.rpartition(".")[0]
    end_s = time.monotonic() + duration_s
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", pilot],
            env={**os.environ, **environment, "VGRADS_DASK_SLOT": name},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        code = None
        # the mark is looked for too: the scheduler may start a pilot after its slot was released
        while code is None and time.monotonic() < end_s and not _release_mark(mark).exists():
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(max(0.01, min(_LOOK_S, end_s - time.monotonic())))
        if code is None:
            _signal(name, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        _kill(name)
        process.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    return TIMED_OUT if code is None else abs(code), lines[-1][:300] if lines else ""


def give_back(mark: str) -> None:
    """Ask the pilots of a slot on this machine to end, and prevent late starts."""
    for old in Path(tempfile.gettempdir()).glob(f"vgrads-{os.getuid()}-*.given-back"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > _RETENTION_S:
                old.unlink()
    _release_mark(mark).touch()
    _signal(mark, signal.SIGTERM)


def _release_mark(mark: str) -> Path:
    return Path(tempfile.gettempdir()) / f"vgrads-{os.getuid()}-{mark}.given-back"


def _kill(name: str) -> None:
    _signal(name, signal.SIGKILL)


def _signal(name: str, number: int) -> None:
    """Send a signal to the processes of a slot, or of one of its nodes."""
    variable = b"VGRADS_DASK_SLOT="
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                value = entry[len(variable) :].decode() if entry.startswith(variable) else ""
                if value == name or value.rpartition(".")[0] == name:
                    os.kill(int(folder.name), number)
