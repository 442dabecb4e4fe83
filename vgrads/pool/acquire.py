"""How hosts are asked for: the five acquisition policies of Falkon (Raicu et al., SC 2007,
doi:10.1145/1362622.1362680, §3.1).

The paper names them and measures the first; it does not say whether a series of requests goes out
at once or one request a poll, so both are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Literal

from vgrads.pool.view import NOTHING, PoolDecision, PoolView

Pace = Literal["at_once", "per_poll"]
Series = Callable[[int, int | None, int], tuple[int, ...]]
"""Requests for so many hosts, of which so many are free (None: not known), from the k-th request
on."""


def _growing(size: Callable[[int], int]) -> Series:
    def series(hosts: int, free: int | None, first: int) -> tuple[int, ...]:  # noqa: ARG001 one signature
        found: list[int] = []
        for k in count(first):
            if hosts <= 0:
                break
            found.append(min(hosts, size(k)))
            hosts -= found[-1]
        return tuple(found)

    return series


def _what_is_free(hosts: int, free: int | None, first: int) -> tuple[int, ...]:  # noqa: ARG001 one signature
    asked = hosts if free is None else min(hosts, free)
    return (asked,) if asked > 0 else ()


ACQUISITIONS: Mapping[str, Series] = {
    "all-at-once": lambda hosts, _free, _first: (hosts,) if hosts > 0 else (),
    "one-at-a-time": _growing(lambda _k: 1),
    "arithmetic": _growing(lambda k: k),
    "exponential": _growing(lambda k: 2 ** (k - 1)),
    "what-is-free": _what_is_free,
}


def requests(policy: str, hosts: int, free: int | None = None, first: int = 1) -> tuple[int, ...]:
    """The sizes of the requests for ``hosts`` hosts; their sum is ``hosts``, but for what is not
    free."""
    return ACQUISITIONS[policy](hosts, free, first)


def acquire(view: PoolView, policy: str = "all-at-once", pace: Pace = "at_once") -> PoolDecision:
    """Ask for what the queued work needs; take back what it needs no more."""
    return toward(view, len(view.staying) + view.coming + view.need, policy, pace)


def toward(
    view: PoolView, hosts: int, policy: str = "all-at-once", pace: Pace = "at_once"
) -> PoolDecision:
    """Ask until so many hosts are there or on their way, or take requests back: newest first, whole
    allocations, none that is needed even in part."""
    missing = min(view.room, hosts - len(view.staying) - view.coming)
    if missing < 0:
        return _withdraw(view, -missing, hosts)
    first = len(view.asked) + 1 if pace == "per_poll" else 1
    sizes = requests(policy, missing, view.free, first)
    sizes = sizes[:1] if pace == "per_poll" else sizes
    if not sizes:
        return NOTHING
    reason = (
        f"asked for {sum(sizes)} hosts ({policy.replace('-', ' ')}): {view.queued} loads "
        f"wait, {view.running} run, "
        f"{len(view.staying)} hosts are there and {view.coming} on their way"
    )
    return PoolDecision(open=sizes, reasons=(reason,))


def _withdraw(view: PoolView, surplus: int, hosts: int) -> PoolDecision:
    gone = []
    for request in sorted(view.asked, key=lambda one: (one.asked_s, one.id), reverse=True):
        if request.hosts > surplus:
            break
        surplus -= request.hosts
        gone.append(request.id)
    if not gone:
        return NOTHING
    reason = (
        f"took back {len(gone)} requests: {hosts} hosts are enough for "
        f"{view.queued + view.running} loads"
    )
    return PoolDecision(withdraw=tuple(gone), reasons=(reason,))
