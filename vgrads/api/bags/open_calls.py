"""What an executor needs of a dispatcher, in this process or behind a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Ended:
    """The end that decides a task. ``code``: 0 where the call returned, 1 where it raised, else how
    its process ended; ``value``: packed, in base64, or in ``file``, which is removed when it was
    read if it is ``temporary``."""

    task: int
    code: int | None
    value: str = ""
    out: str = ""
    err: str = ""
    how: str = ""
    ran_s: float = 0.0
    file: Path | None = None
    temporary: bool = False


OnEnds = Callable[[Sequence[Ended]], None]


class OpenCalls(Protocol):
    """An open bag of calls. ``address``: where later programs find it; empty where it ends with
    this one."""

    address: str

    def put(self, digest: str, parts: Sequence[Any]) -> None:
        """Store packed parts under the digest of the packed bytes, if they are not there."""

    def add(self, commands: Sequence[str]) -> None:
        """Add calls: they are numbered from 0 in the order of all calls."""

    def cancel(self, tasks: Sequence[int]) -> set[int]:
        """Drop those of these tasks that no agent has; return them."""

    def is_running(self, task: int) -> bool:
        """Return True while an agent has the task."""

    def close(self) -> None:
        """Close: no more calls are added."""


class Channel(Protocol):
    """A connection to a dispatcher. ``places``: how many calls run at once."""

    places: int

    def open(self, document: Mapping[str, Any], on_ends: OnEnds) -> OpenCalls:
        """Add an open bag; ``on_ends`` is called, in another thread, with the ends of its tasks."""

    def attach(self, address: str, task: int, on_ends: OnEnds) -> bool:
        """Pass on the end of a task of an earlier program's bag; False where it has no such
        task."""

    def interrupt(self) -> None:
        """End calls that end with this process; wait for no other at the shutdown."""

    def shutdown(self, wait: bool) -> None:
        """End when all closed bags have ended."""
