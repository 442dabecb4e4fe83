"""The dispatcher's state of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Key = tuple[int, int]
"""A task: its bag's number and its own."""


@dataclass(slots=True)
class AgentState:
    """State of an agent. ``assigned``: task → attempt; ``incarnation``: the agent's process,
    distinguished from others of the node; ``machine``: unchanged by a restart, in another slot, or
    on a disk that was wiped."""

    number: int
    id: str
    slot: str
    node: int
    procs: int
    memory_mib: float
    name: str
    site: str = ""
    machine: str = ""
    incarnation: str = ""
    seq: int = 0
    here: bool = True
    assigned: dict[Key, int] = field(default_factory=dict)
    busy_procs: int = 0
    joined_s: float = 0.0
    idle_since_s: float = 0.0
    ends_s: float = float("inf")
    leaving: str = ""
    cached: set[str] = field(default_factory=set)
    past_incarnations: set[str] = field(default_factory=set)
    sent_bags: set[int] = field(default_factory=set)
    gives_back: bool = False
    recalled: set[Key] = field(default_factory=set)
    to_cancel: list[tuple[int, int, int]] = field(default_factory=list)
    to_evict: list[tuple[int, int, int]] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    lost: int = 0
    revoked: bool = False
    assigned_s: float = 0.0
    attributes: dict[str, Any] = field(default_factory=dict)
