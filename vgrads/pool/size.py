"""Time and cost of work as a function of the number of nodes, and the notable sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgrads.kernel.units import billed_usd

_SOON = 1.01
"""Sizes within this factor of the fastest count as fastest: of these the fewest nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPrice:
    """Price of a node: dollars per hour, started periods of ``billing_s`` are paid in full (0: by
    the second)."""

    usd_per_hour: float = 0.0
    billing_s: float = 0.0

    def of(self, nodes: int, seconds: float) -> float:
        """Return the dollars of some nodes for this time."""
        return billed_usd(nodes, seconds, self.billing_s, self.usd_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """``nodes`` from the time of their request: ``seconds`` until all is done, share of node time
    spent on work (``efficiency``), their cost."""

    nodes: int
    seconds: float
    efficiency: float
    cost_usd: float


def compute_curve(
    run_s: Callable[[int], float], work_s: float, most: int, price: AgentPrice, wait_s: float = 0.0
) -> list[SizePoint]:
    """Return sizes from 1 node to ``most``, each about a seventh more than the last. ``run_s``:
    work time on a number of nodes; ``work_s``: total work in node seconds; ``wait_s``: until nodes
    join."""
    results = []
    for nodes in sorted(
        {*range(1, min(most, 8) + 1), *(min(most, round(1.15**k)) for k in range(1, 90))}
    ):
        seconds = run_s(nodes)
        results.append(
            SizePoint(
                nodes=nodes,
                seconds=wait_s + seconds,
                cost_usd=price.of(nodes, seconds),
                efficiency=min(1.0, work_s / (nodes * seconds)) if seconds > 0 else 0.0,
            )
        )
    return results


def find_notable_sizes(
    sizes: Sequence[SizePoint], deadline_s: float | None
) -> dict[str, SizePoint]:
    """Return the notable sizes. ``quickest``: the fewest nodes that are nearly as fast as any;
    ``cheapest``, where nodes have a price: of those by the deadline, if any is; ``knee``: where
    time × node seconds is least, unless that is the largest size (more nodes might be better
    still); ``in time``: the cheapest, then the fewest, by the deadline, if any is."""
    quick_s = min(size.seconds for size in sizes)
    points = {"quickest": next(size for size in sizes if size.seconds <= quick_s * _SOON)}
    in_time = [size for size in sizes if deadline_s is not None and size.seconds <= deadline_s]
    if any(size.cost_usd for size in sizes):
        points["cheapest"] = min(in_time or sizes, key=lambda size: (size.cost_usd, size.seconds))
    knee = min(sizes, key=lambda size: size.seconds * size.seconds * size.nodes)
    if knee is not sizes[-1]:
        points["knee"] = knee
    if in_time:
        points["in time"] = min(in_time, key=lambda point: (point.cost_usd, point.nodes))
    return points
