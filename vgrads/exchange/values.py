"""Messages of agents as values: between the wire format and those who decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

COULD_NOT = -32768
"""In place of an exit code: the node could not run the task."""
UNSENT = -1000
"""In place of exit code 0: not all outputs were written and sent."""
Triple = tuple[int, int, int]
"""Bag, task, attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of an agent: its slot, which of the slot's ``nodes`` it is on (``node``),
    its processors, the tasks that it holds.

    ``machine``: the machine's identity, unchanged by a reinstallation; ``attributes``: further ones
    for dispatch policies.
    """

    slot: str
    node: int = 0
    nodes: int = 1
    procs: int = 1
    memory_mib: float = 0.0
    name: str = ""
    left_s: float | None = None
    machine: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    assigned: tuple[tuple[int, int, int], ...] = ()
    cached: tuple[str, ...] = ()


class AttemptEnd(NamedTuple):
    """End of an attempt. Times in seconds; ``code``: exit code, minus the signal,
    :data:`COULD_NOT` or :data:`UNSENT`."""

    task: int
    agent: int
    at_s: float
    code: int
    attempt: int
    ran_s: float = 0.0
    waited_s: float = 0.0
    fetched_s: float = 0.0
    sent_s: float = 0.0
    cpu_s: float = 0.0
    peak_gib: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of an agent (docs/dispatch.md). ``ends``: by bag; ``running``: running tasks, and
    their run time in seconds."""

    agent: str
    incarnation: str
    seq: int
    hello: Hello | None = None
    ends: Sequence[tuple[int, AttemptEnd]] = ()
    returned: Sequence[Triple] = ()
    leaving: str = ""
    cached: Sequence[str] = ()
    running: Sequence[tuple[Triple, float]] = ()
