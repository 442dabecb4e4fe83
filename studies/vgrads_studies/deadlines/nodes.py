"""Nodes and requests of a simulated bag, as values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.dispatch.core.state import AgentState
from vgrads.kernel.units import billed_s, billed_usd
from vgrads_studies.deadlines.cases import StudySource


@dataclass(eq=False, slots=True)
class StudyNode:
    """``since_s``: from then on it is paid for; ``tasks``: that run, with their beginnings; its
    ``agent`` is what decisions see of it."""

    source: StudySource
    name: str
    spot: bool
    since_s: float
    agent: AgentState
    tasks: dict[int, float] = field(default_factory=dict)
    idle_s: float = 0.0
    ended_s: float | None = None
    ran: int = 0

    @property
    def here(self) -> bool:
        """Return whether it has not left."""
        return self.ended_s is None

    @property
    def price(self) -> float:
        """Return the dollars for an hour."""
        return self.source.spot_price if self.spot else self.source.price

    def duration_s(self, now_s: float) -> float:
        """Return for how long it was there."""
        return (now_s if self.ended_s is None else self.ended_s) - self.since_s

    def cost_usd(self, now_s: float) -> float:
        """Return what it costs."""
        return billed_usd(1, self.duration_s(now_s), self.source.billing_s, self.price)

    def paid_left_s(self, now_s: float) -> float:
        """Return for how long it is paid already."""
        used_s = now_s - self.since_s
        return billed_s(used_s, self.source.billing_s) - used_s

    def is_at_boundary(self, now_s: float) -> bool:
        """Return whether less than a minute of its paid time is left."""
        return self.paid_left_s(now_s) <= 60.0


def spent_usd(nodes: Sequence[StudyNode], now_s: float) -> float:
    """Return what nodes cost until now."""
    return sum(node.cost_usd(now_s) for node in nodes)


@dataclass(eq=False, slots=True)
class StudyRequest:
    """Nodes that were requested together and have not joined."""

    source: StudySource
    name: str
    spot: bool
    nodes: int
    requested_s: float
    number: int
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyState:
    """State of a bag at a decision. ``each_s``: the estimate of the run time by now; ``ended``:
    tasks so far; ``waiting``: tasks that do not run; ``owed_usd`` and ``paid_s`` as in
    :class:`vgrads.dispatch.fleet.goal_view.GoalView`."""

    now_s: float
    due_s: float
    each_s: float
    ended: int
    waiting: int
    running: int
    spent_usd: float
    owed_usd: float
    paid_s: Mapping[str, float]
    nodes: Mapping[str, list[StudyNode]]
    requests: Mapping[str, list[StudyRequest]]

    @property
    def left(self) -> int:
        """Return the tasks that are not done."""
        return self.waiting + self.running

    def staying(self, name: str) -> int:
        """Return the nodes of a source that accept tasks."""
        return sum(not node.agent.leaving for node in self.nodes.get(name, ()))

    def coming(self, name: str) -> int:
        """Return the requested nodes of a source."""
        return sum(request.nodes for request in self.requests.get(name, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringRules:
    """``idle_s``: idle time after which nodes leave; ``gives_back``: surplus requests are cancelled
    and surplus nodes released; ``budget``: nodes leave that the budget does not pay."""

    idle_s: float = math.inf
    gives_back: bool = True
    budget: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """``in_time``: all tasks were done by the deadline, within the budget; ``promise``: at the
    beginning; ``least_hours``: node hours that the tasks needed which were done; ``requested``
    nodes, and ``useless``: those that came and ran nothing."""

    in_time: bool
    cost_usd: float
    node_hours: float
    least_hours: float
    requested: int
    useless: int
    promise: float | None = None
