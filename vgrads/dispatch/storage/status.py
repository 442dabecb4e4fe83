"""What a dispatcher publishes in its folder, and the process that works on it. Few imports: showing
the status of bags must be fast.

``status.json`` has the last status.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vgrads.kernel.errors import InputError

_LOOKED_S = 0.2
"""Longer than anybody who only looks holds the lock, and the longest wait for it."""


def news_pipe(folder: Path) -> Path:
    """Return the named pipe through which a dispatcher learns that an open bag has grown."""
    return folder / "news"


def listeners(folder: Path) -> Path:
    """Return the folder of the named pipes of those who wait for ends of tasks."""
    return folder / "listeners"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock on a dispatcher's folder. Raise InputError while another process holds it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("a+") as file:
        end_s = time.monotonic() + _LOOKED_S
        while not _lock(file, fcntl.LOCK_EX):
            if time.monotonic() > end_s:
                raise InputError("is in use by another dispatcher", where=folder.name)
            time.sleep(_LOOKED_S / 20.0)
        yield


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_worked_on(folder: Path) -> bool:
    """Return True while a process works on a dispatcher's folder."""
    try:
        with (folder / "lock").open() as file:
            return not _lock(file, fcntl.LOCK_SH)  # shared: those who look do not see each other
    except FileNotFoundError:
        return False


def write_status(folder: Path, status: dict[str, Any]) -> None:
    """Write the status for readers."""
    _replace(folder / "status.json", status)


def read_status(folder: Path) -> dict[str, Any]:
    """Return the last status; empty where none was written yet."""
    return dict(read_json(folder / "status.json", {}))


def write_agent_names(folder: Path, agents: Sequence[tuple[str, str]]) -> None:
    """Write name and site of all agents that ever joined, by number."""
    # sites first, since readers read names first: so each name that is read has its site
    _replace(folder / "host-sites.json", [site for _, site in agents])
    _replace(folder / "hosts.json", [name for name, _ in agents])


def read_agent_names(folder: Path) -> list[str]:
    """Return the names of agents by number, where known."""
    return list(read_json(folder / "hosts.json", []))


def read_agents_and_sites(folder: Path) -> list[tuple[str, str]]:
    """Return name and site of agents by number, where known."""
    names, sites = read_agent_names(folder), list(read_json(folder / "host-sites.json", []))
    return list(zip(names, [*sites, *[""] * len(names)], strict=False))


def write_latest(folder: Path, number: int, ends: dict[str, Any]) -> None:
    """Write the latest ends of a bag."""
    _replace(folder / "bags" / f"{number:04d}" / "latest.json", ends)


def read_latest(folder: Path, number: int) -> dict[str, Any]:
    """Return the latest ends of a bag: ``last`` and ``wrong``, newest first."""
    latest = read_json(folder / "bags" / f"{number:04d}" / "latest.json", {})
    return {"last": [], "wrong": []} | dict(latest)


def _replace(path: Path, value: object) -> None:
    """Replace a file atomically."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(value))
    draft.replace(path)


def read_json(path: Path, nothing: object) -> Any:
    """Return the content of a JSON file; ``nothing`` where it is missing or cannot be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return nothing
