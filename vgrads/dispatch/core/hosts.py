"""A host as the dispatcher knows it, and what hosts say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[int, int]
"""A task: its bag's number and its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a host says of itself when it comes: its slot, its processors, what it has in hand.

    ``machine``: what it runs on, the same after a reinstall; ``attributes``: more, for policies to
    read.
    """

    slot: str
    node: int = 0
    procs: int = 1
    memory_mib: float = 0.0
    name: str = ""
    left_s: float | None = None
    machine: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[tuple[int, int, int], ...] = ()
    cached: tuple[str, ...] = ()


@dataclass(slots=True)
class Host:
    """Where tasks run. ``held``: task → attempt; ``life``: the agent's process, told from others of
    the host; ``machine``: what stays the same when it is started anew, in another slot, on a disk
    that was wiped."""

    number: int
    id: str
    slot: str
    node: int
    procs: int
    memory_mib: float
    name: str
    site: str = ""
    machine: str = ""
    life: str = ""
    seq: int = 0
    here: bool = True
    held: dict[Key, int] = field(default_factory=dict)
    busy_procs: int = 0
    joined_s: float = 0.0
    idle_since_s: float = 0.0
    ends_s: float = float("inf")
    leaving: str = ""
    cached: set[str] = field(default_factory=set)
    past_lives: set[str] = field(default_factory=set)
    known_bags: set[int] = field(default_factory=set)
    gives_back: bool = False
    recalled: set[Key] = field(default_factory=set)
    to_cancel: list[tuple[int, int, int]] = field(default_factory=list)
    to_recall: list[tuple[int, int, int]] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    lost: int = 0
    revoked: bool = False
    given_s: float = 0.0
    attributes: dict[str, Any] = field(default_factory=dict)
