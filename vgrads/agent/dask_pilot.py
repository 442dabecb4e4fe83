"""What runs in a worker of somebody's Dask cluster: a slot's pilot, as a process that ends with the
slot.

Sent to the workers by value, so it needs the standard library only. A slot that was given back
leaves a mark on the worker's machine: a pilot that the scheduler begins late finds it, and ends.
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
_KEPT_S = 600.0


def run_pilot(
    pilot: str, environment: dict[str, str], duration_s: float, name: str
) -> tuple[int, str]:
    """(exit status, last line that it printed). ``name``: of the slot and, behind a point, the
    node; what an earlier try of it left on this machine ends first."""
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
        while code is None and time.monotonic() < end_s and not _given_back(mark).exists():
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(max(0.01, min(_LOOK_S, end_s - time.monotonic())))
        _kill(name)
        process.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    return TIMED_OUT if code is None else abs(code), lines[-1][:300] if lines else ""


def give_back(mark: str) -> None:
    """End the pilots of a slot on this machine, and those that would begin yet."""
    for old in Path(tempfile.gettempdir()).glob(f"vgrads-{os.getuid()}-*.given-back"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink()
    _given_back(mark).touch()
    _kill(mark)


def _given_back(mark: str) -> Path:
    return Path(tempfile.gettempdir()) / f"vgrads-{os.getuid()}-{mark}.given-back"


def _kill(name: str) -> None:
    """The processes of a slot, or of one of its nodes."""
    variable = b"VGRADS_DASK_SLOT="
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for one in (folder / "environ").read_bytes().split(b"\0"):
                found = one[len(variable) :].decode() if one.startswith(variable) else ""
                if found == name or found.rpartition(".")[0] == name:
                    os.kill(int(folder.name), signal.SIGKILL)
