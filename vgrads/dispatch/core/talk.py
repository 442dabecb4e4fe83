"""What hosts say and are told, as values: between the messages on the wire and the core that
decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vgrads.dispatch.core.hosts import Hello
from vgrads.dispatch.core.records import End

Triple = tuple[int, int, int]
"""Bag, task, attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a host says (docs/dispatch.md). ``ends``: by bag; ``running``: what runs there, and
    since how many seconds."""

    host: str
    life: str
    seq: int
    hello: Hello | None = None
    ends: Sequence[tuple[int, End]] = ()
    returned: Sequence[Triple] = ()
    leaving: str = ""
    cached: Sequence[str] = ()
    running: Sequence[tuple[Triple, float]] = ()


@dataclass(slots=True)
class Answer:
    """What a host is told."""

    give: list[Triple] = field(default_factory=list)
    recall: list[Triple] = field(default_factory=list)
    cancel: list[Triple] = field(default_factory=list)
    drain: bool = False
    stop: bool = False
    new_bags: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.give or self.recall or self.cancel or self.drain or self.stop)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How tasks are given out. ``lost_s``: a host that is silent for so long is lost."""

    policy: str = "fair-share"
    in_hand_s: float = 0.1
    lost_s: float = 60.0
