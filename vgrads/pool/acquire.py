"""Requests for nodes: the five acquisition policies of Falkon (Raicu et al., SC 2007,
doi:10.1145/1362622.1362680, §3.1).

The paper names them and measures the first; it does not state whether a series of requests is sent
at once or one request per poll, so both are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Literal

from vgrads.kernel.units import format_count
from vgrads.pool.view import NOTHING, PoolDecision, PoolView

Pace = Literal["at_once", "per_poll"]
Series = Callable[[int, int | None, int], tuple[int, ...]]
"""Sizes of the requests for a number of nodes, some of them free (None: unknown), from the k-th
request on."""


def _split_growing(size: Callable[[int], int]) -> Series:
    def series(nodes: int, free: int | None, first: int) -> tuple[int, ...]:  # noqa: ARG001 one signature
        counts: list[int] = []
        for k in count(first):
            if nodes <= 0:
                break
            counts.append(min(nodes, size(k)))
            nodes -= counts[-1]
        return tuple(counts)

    return series


def _limit_to_free(nodes: int, free: int | None, first: int) -> tuple[int, ...]:  # noqa: ARG001 one signature
    count = nodes if free is None else min(nodes, free)
    return (count,) if count > 0 else ()


ACQUISITIONS: Mapping[str, Series] = {
    "all-at-once": lambda nodes, _free, _first: (nodes,) if nodes > 0 else (),
    "one-at-a-time": _split_growing(lambda _k: 1),
    "arithmetic": _split_growing(lambda k: k),
    "exponential": _split_growing(lambda k: 2 ** (k - 1)),
    "what-is-free": _limit_to_free,
}


def requests(policy: str, nodes: int, free: int | None = None, first: int = 1) -> tuple[int, ...]:
    """Return the sizes of the requests for ``nodes`` nodes; their sum is ``nodes``, less those that
    are not free."""
    return ACQUISITIONS[policy](nodes, free, first)


def acquire(view: PoolView, policy: str = "all-at-once", pace: Pace = "at_once") -> PoolDecision:
    """Request nodes for the queued work; cancel requests that are no longer needed."""
    return toward(view, len(view.staying) + view.coming + view.need, policy, pace)


def toward(
    view: PoolView, nodes: int, policy: str = "all-at-once", pace: Pace = "at_once"
) -> PoolDecision:
    """Request nodes until the given number is present or requested, or cancel requests: newest
    first, whole allocations, none that is needed even in part."""
    missing = min(view.room, nodes - len(view.staying) - view.coming)
    if missing < 0:
        return _withdraw(view, -missing, nodes)
    first = len(view.requests) + 1 if pace == "per_poll" else 1
    sizes = requests(policy, missing, view.free, first)
    sizes = sizes[:1] if pace == "per_poll" else sizes
    if not sizes:
        return NOTHING
    reason = (
        f"requested {format_count(sum(sizes), 'agent')} ({policy.replace('-', ' ')}): "
        f"{format_count(view.queued, 'load')} "
        f"wait, {view.running} run, "
        f"{format_count(len(view.staying), 'agent', 'are')} available and {view.coming} are "
        "requested"
    )
    return PoolDecision(open=sizes, reasons=(reason,))


def _withdraw(view: PoolView, surplus: int, nodes: int) -> PoolDecision:
    gone = []
    for request in sorted(
        view.requests, key=lambda item: (item.requested_s, item.id), reverse=True
    ):
        # older requests have waited longer: none of them is cancelled instead of this one
        if request.nodes > surplus:
            break
        surplus -= request.nodes
        gone.append(request.id)
    if not gone:
        return NOTHING
    reason = (
        f"withdrew {format_count(len(gone), 'request')}: {format_count(nodes, 'agent', 'are')} "
        "enough for "
        f"{format_count(view.queued + view.running, 'load')}"
    )
    return PoolDecision(withdraw=tuple(gone), reasons=(reason,))
