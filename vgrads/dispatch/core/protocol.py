"""Answers to agents as values, and the rules of assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.exchange.values import Triple


@dataclass(slots=True)
class AgentReply:
    """An answer to an agent."""

    give: list[Triple] = field(default_factory=list)
    evict: list[Triple] = field(default_factory=list)
    cancel: list[Triple] = field(default_factory=list)
    drain: bool = False
    stop: bool = False
    new_bags: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.give or self.evict or self.cancel or self.drain or self.stop)


@dataclass(frozen=True)
class Files:
    """The files of a task: input name → digest, names of outputs."""

    inputs: Mapping[str, str]
    outputs: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of assignment. ``lost_s``: an agent without a heartbeat for this long is lost;
    ``stuck_s``: a dispatcher whose loop makes no progress for this long is ended."""

    policy: str = "fair-share"
    in_hand_s: float = 0.1
    lost_s: float = 60.0
    stuck_s: float = 30.0
