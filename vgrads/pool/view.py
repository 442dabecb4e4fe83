"""Input and decisions of the pool, as frozen values.

Work is counted in *host-loads*: how many nodes it would keep busy at once; the caller converts
tasks and processors into that. Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node that has joined. ``ends_s``: end of its allocation; a draining one gets no more
    work."""

    id: str
    allocation: str
    joined_s: float
    idle_since_s: float | None = None
    busy_since_s: float | None = None
    running: int = 0
    ends_s: float | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A requested allocation that has not started."""

    id: str
    nodes: int
    requested_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Bounds on the number of nodes, and the maximum length of an allocation and of a node's
    idling."""

    least: int = 0
    most: int = 1
    longest_s: float | None = None
    idle_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise ValueError(f"least and most do not fit: {self.least}, {self.most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """Current state. ``arrived``: host-loads submitted since the start. ``free``: nodes that the
    site could provide at once, None where it does not report that. ``wait_s`` and ``task_s``:
    observed time until a requested node has joined, and until a task has ended."""

    now_s: float
    queued: int
    running: int
    limits: PoolLimits
    nodes: tuple[NodeView, ...] = ()
    requests: tuple[RequestView, ...] = ()
    arrived: int = 0
    free: int | None = None
    wait_s: float = 0.0
    task_s: float = 0.0

    @property
    def staying(self) -> tuple[NodeView, ...]:
        """Return the nodes that accept work."""
        return tuple(node for node in self.nodes if not node.draining)

    @property
    def idle(self) -> tuple[NodeView, ...]:
        """Return those of them without work, the longest idle first."""
        idle = [node for node in self.staying if node.idle_since_s is not None]
        return tuple(sorted(idle, key=lambda node: (node.idle_since_s or 0.0, node.id)))

    @property
    def coming(self) -> int:
        """Return the number of requested nodes."""
        return sum(request.nodes for request in self.requests)

    @property
    def room(self) -> int:
        """Return how many more may be requested; a draining node counts until it has left."""
        return max(0, self.limits.most - len(self.nodes) - self.coming)

    @property
    def demand(self) -> int:
        """Return the nodes that the current work would keep busy, within the bounds."""
        return max(self.limits.least, min(self.limits.most, self.queued + self.running))

    @property
    def need(self) -> int:
        """Return the nodes to request now; below 0: the number of surplus nodes, present or
        requested."""
        return min(self.room, self.demand - len(self.staying) - self.coming)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDecision:
    """A decision: nodes of each new allocation, requests to cancel, nodes to drain, and the
    reasons."""

    open: tuple[int, ...] = ()
    withdraw: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


NOTHING = PoolDecision()
Decide = Callable[[PoolView], PoolDecision]
"""Decides how many nodes are requested, and which are released."""


def merge_decisions(decisions: Iterable[PoolDecision]) -> PoolDecision:
    """Merge several decisions; duplicates are removed."""
    pool_decisions = tuple(decisions)
    return PoolDecision(
        open=tuple(nodes for decision in pool_decisions for nodes in decision.open),
        withdraw=tuple(
            dict.fromkeys(request for decision in pool_decisions for request in decision.withdraw)
        ),
        drain=tuple(dict.fromkeys(node for decision in pool_decisions for node in decision.drain)),
        reasons=tuple(
            dict.fromkeys(reason for decision in pool_decisions for reason in decision.reasons)
        ),
    )
