"""Release of nodes: the release policies of Falkon (SC 2007, doi:10.1145/1362622.1362680, §3.1),
and draining.

Falkon's own caveat: a batch job frees its nodes only when all of its agents have left.
``coordinated`` releases an allocation as a whole, which the paper lists as future work. No policy
goes below the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgrads.kernel.units import format_count
from vgrads.pool.view import NOTHING, NodeView, PoolDecision, PoolView


def central_all(view: PoolView) -> PoolDecision:
    """Release all idle nodes when no work is queued."""
    if view.queued:
        return NOTHING
    return _leave(view, view.idle, "no work is waiting")


def distributed(view: PoolView, idle_s: float) -> PoolDecision:
    """Release each node by itself after this idle time."""
    return _leave(view, _list_idle(view, view.idle, idle_s), f"idle for {idle_s:g} s")


def coordinated(view: PoolView, idle_s: float) -> PoolDecision:
    """Release an allocation as a whole, once all of its nodes have been idle for this time; one
    that cannot be released as a whole stays."""
    allocations: dict[str, list[NodeView]] = {}
    for node in view.nodes:
        allocations.setdefault(node.allocation, []).append(node)
    spare, gone = len(view.staying) - view.limits.least, []
    for nodes in allocations.values():
        waits = [node for node in nodes if not node.draining]
        if waits and len(waits) <= spare and len(_list_idle(view, waits, idle_s)) == len(waits):
            spare -= len(waits)
            gone += waits
    return _leave(view, gone, f"the whole allocation is idle for {idle_s:g} s")


def before_the_end(view: PoolView, margin_s: float = 0.0) -> PoolDecision:
    """Drain nodes whose allocation ends before a task started now would.

    The bounds do not apply here: a node that is about to end is not counted.
    """
    late = [
        node.id
        for node in view.staying
        if node.ends_s is not None and node.ends_s - view.now_s < view.task_s + margin_s
    ]
    if not late:
        return NOTHING
    reason = (
        f"{format_count(len(late), 'agent', 'get')} no more work: their allocations end before a "
        "task of "
        f"{view.task_s:g} s could end"
    )
    return PoolDecision(drain=tuple(late), reasons=(reason,))


def _list_idle(view: PoolView, nodes: Iterable[NodeView], idle_s: float) -> list[NodeView]:
    return [
        node
        for node in nodes
        # a time that ends at this instant counts, although sums of instants are rounded
        if node.idle_since_s is not None and view.now_s - node.idle_since_s >= idle_s - 1e-9
    ]


def _leave(view: PoolView, nodes: Sequence[NodeView], why: str) -> PoolDecision:
    """Release these nodes, as far as the minimum allows."""
    going = [node.id for node in nodes][: max(0, len(view.staying) - view.limits.least)]
    if not going:
        return NOTHING
    return PoolDecision(
        drain=tuple(going), reasons=(f"released {format_count(len(going), 'agent')}: {why}",)
    )
