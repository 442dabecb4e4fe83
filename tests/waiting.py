"""Waiting for real things, by looking: services that come up, processes that end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from vgrads.agent.tcp import connect_tcp


def until(
    done: Callable[[], object], what: str | Callable[[], str] = "it", seconds: float = 30.0
) -> None:
    """Return when ``done`` says so; AssertionError if it does not in time, telling ``what`` as it
    is by then."""
    assert not isinstance(what, int | float), "the seconds are the third argument"
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what() if callable(what) else what} did not come about"
        time.sleep(0.05)


def state_of(pid: int) -> str:
    """The state of a process, one letter (proc(5)); empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def runs(pid: int) -> bool:
    """True while a process runs; one that waits to be collected by its parent does not."""
    return state_of(pid) not in ("", "Z")


def listens(port: int) -> bool:
    """True where somebody listens on a port of the loopback address."""
    try:
        connect_tcp(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
