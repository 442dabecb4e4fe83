"""Entry point of the pool: the current decision for all its managers, and the reasons, with numbers
from which it can be recomputed.

Each manager is sized (``vgrads.pool.sizing``), its workers from elsewhere are subtracted, the pool
is shared (``vgrads.pool.share``), and missing workers are requested. Where the policy gives back,
requests beyond the shares are cancelled, newest first, then idle workers are released by price:
those nearest to the end of a paid cycle, with the least in their cache, with the shortest time
left; never a busy one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vgrads.kernel.units import format_count
from vgrads.pool.capacity import Interval
from vgrads.pool.share import (
    ManagerAd,
    SharePolicy,
    compute_default_most,
    compute_need,
    count_elsewhere,
    fill,
    limit_total,
)
from vgrads.pool.size_view import Memory, SizeView, SizingResult
from vgrads.pool.sizing import SIZINGS
from vgrads.pool.view import RequestView

BOUNDARY_S = 30.0
"""How long before the end of its paid cycle a worker leaves, in seconds; one decision earlier if it
would miss that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker of this pool. ``manager``: the one it serves, if any; ``cache_mib``: cached data
    lost with it; ``ends_s``: end of its allocation."""

    id: str
    joined_s: float
    manager: str | None = None
    idle_since_s: float | None = None
    cache_mib: float = 0.0
    ends_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """Input of a pool's decision. ``previous``: the last shares, ``elapsed_s`` ago; ``others``:
    workers that other pools have decided for a manager and not yet delivered; ``wait_s``,
    ``wait_low_s``: after which half of the workers, and one in ten, have come."""

    now_s: float
    pool: str = ""
    managers: tuple[ManagerAd, ...] = ()
    workers: tuple[WorkerView, ...] = ()
    requests: tuple[RequestView, ...] = ()
    previous: Mapping[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0
    others: Mapping[str, int] = field(default_factory=dict)
    wait_s: float = 0.0
    wait_low_s: float = 0.0
    memory: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """Sharing policy, and the sizing policy out of ``SIZINGS``."""

    share: SharePolicy
    sizing: str = "d8"


@dataclass(frozen=True, slots=True)
class DecisionReason:
    """A reason: its kind, its manager, its numbers and names."""

    kind: str
    about: str
    numbers: Mapping[str, float]
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the reason as a sentence."""
        if self.kind == "size":
            return f"size {self.about}: {_explain_terms(self.numbers)}"
        return _SENTENCES[self.kind].format_map({**self.numbers, "about": self.about})

    def as_json(self) -> dict[str, Any]:
        """Encode it for ``--json``; ``reason_from_json`` decodes it."""
        return {
            "kind": self.kind,
            "about": self.about,
            "numbers": dict(self.numbers),
            "names": list(self.names),
        }


_SENTENCES = {
    "share": "share {about}: {share:g} workers; it needs {need:g}, its weight is {weight:g}",
    "total": (
        "total: {shared out:g} workers of at most {most now:g}; {there:g} are there, "
        "{on their way:g} are on their way, {requested:g} are requested"
    ),
    "withdraw": "withdraw: {taken:g} requests; {beyond:g} workers are too many",
    "release": "release: {taken:g} workers; {beyond:g} are too many",
}
"""Reasons in words, by kind; the numbers have the names of the decision's steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Workers by manager, how many to request, which requests to cancel, which workers to release,
    the reasons, and the memory for the next decision."""

    shares: Mapping[str, int] = field(default_factory=dict)
    ask: int = 0
    withdraw: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    reasons: tuple[DecisionReason, ...] = ()
    memory: Mapping[str, Memory] = field(default_factory=dict)


def _explain_terms(numbers: Mapping[str, float]) -> str:
    """Return the decisive term with its bounds, the values of the others, and the subtracted
    workers."""
    terms: dict[str, dict[str, float]] = {}
    for key, number in numbers.items():
        name, colon, bound = key.partition(": ")
        if colon:
            terms.setdefault(name, {})[bound] = number
    least = {name: max(0.0, min(bounds.values())) for name, bounds in terms.items()}
    first, *rest = sorted(least, key=lambda name: -least[name])
    bounds = ", ".join(f"{bound} {number:g}" for bound, number in terms[first].items())
    others = "; smaller: " + ", ".join(f"{name} {least[name]:g}" for name in rest) if rest else ""
    return (
        f"{format_count(f'{least[first]:g}', 'worker', 'are')} of use: '{first}' is the least of "
        f"{bounds}{others}; "
        f"{numbers['from elsewhere']:g} come from elsewhere"
    )


def decide(view: PoolSnapshot, policy: PoolPolicy) -> Decision:
    """Return the current decision."""
    sizing = SIZINGS[policy.sizing]
    reasons: list[DecisionReason] = []
    sizes, memory = {}, {}
    for ad, size in _compute_sizes(view, policy):
        sized = sizing.size(size, view.memory.get(ad.name, Memory()))
        memory[ad.name] = sized.memory
        reason = _size_reason(ad, sized, view)
        reasons.append(reason)
        sizes[ad.name] = _compute_need(reason, policy.share)
    weights = compute_default_most(list(sizes), policy.share)
    limits = policy.share if sizing.paced else _remove_pace(policy.share)
    total = limit_total(limits, sum(view.previous.values()), view.elapsed_s)
    shares = fill(sizes, weights, total).decided
    reasons += [
        DecisionReason(
            "share", name, {"need": sizes[name], "weight": weights[name], "share": workers}
        )
        for name, workers in shares.items()
    ]
    target, coming = sum(shares.values()), sum(request.nodes for request in view.requests)
    there = len(view.workers)
    ask = max(0, target - there - coming)
    reasons.append(
        DecisionReason(
            "total",
            "",
            {
                "most now": total,
                "shared out": target,
                "there": there,
                "on their way": coming,
                "requested": ask,
            },
        )
    )
    withdraw: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    if sizing.gives_back:
        withdraw = _list_withdrawn(view, min(coming, there + coming - target))
        release = _list_released(view, shares, there - target, policy.share.billing_cycle_s)
    reasons += [
        DecisionReason(kind, "", {"beyond": beyond, "taken": len(names)}, names)
        for kind, beyond, names in (
            ("withdraw", there + coming - target, withdraw),
            ("release", there - target, release),
        )
        if names
    ]
    return Decision(
        shares=shares,
        ask=ask,
        withdraw=withdraw,
        release=release,
        reasons=tuple(reasons),
        memory=memory,
    )


def recompute(reasons: Sequence[DecisionReason], policy: PoolPolicy) -> Decision:
    """Recompute the decision from the numbers of its reasons alone."""
    needs = {
        reason.about: _compute_need(reason, policy.share)
        for reason in reasons
        if reason.kind == "size"
    }
    weights = {
        reason.about: reason.numbers["weight"] for reason in reasons if reason.kind == "share"
    }
    total = next(reason.numbers for reason in reasons if reason.kind == "total")
    shares = fill(needs, weights, int(total["most now"])).decided
    ask = max(0, sum(shares.values()) - int(total["there"]) - int(total["on their way"]))
    taken = {
        reason.kind: reason.names for reason in reasons if reason.kind in {"withdraw", "release"}
    }
    return Decision(
        shares=shares,
        ask=ask,
        withdraw=taken.get("withdraw", ()),
        release=taken.get("release", ()),
        reasons=tuple(reasons),
    )


def _size_reason(ad: ManagerAd, sized: SizingResult, view: PoolSnapshot) -> DecisionReason:
    numbers: dict[str, float] = {
        f"{term.name}: {name}": number for term in sized.terms for name, number in term.bounds
    }
    numbers["from elsewhere"] = count_elsewhere(ad, view.pool, view.others)
    numbers["received"], numbers["waiting"] = ad.by_pool.get(view.pool, 0), ad.waiting
    return DecisionReason("size", ad.name, numbers)


def _compute_need(reason: DecisionReason, policy: SharePolicy) -> int:
    """Return a manager's need of this pool: the largest of the terms' minima, without workers from
    elsewhere; in the other reading never less than it has (Eq 4.6, 4.8)."""
    terms: dict[str, int] = {}
    for key, number in reason.numbers.items():
        name, colon, _ = key.partition(": ")
        if colon:
            terms[name] = min(terms.get(name, int(number)), int(number))
    workers = max(0, *terms.values())
    others = int(reason.numbers["from elsewhere"])
    if policy.reading == "example":
        return max(0, workers - others)
    received, waiting = int(reason.numbers["received"]), int(reason.numbers["waiting"])
    ad = ManagerAd(name=reason.about, waiting=waiting, by_pool={"": received})
    return compute_need(ad, workers, others, "", policy.reading)


def _compute_sizes(view: PoolSnapshot, policy: PoolPolicy) -> list[tuple[ManagerAd, SizeView]]:
    """Return each manager as the view of its sizing policy; requested workers are counted where
    they are missing."""
    idle = Counter(worker.manager for worker in view.workers if worker.idle_since_s is not None)
    free = sum(worker.manager is None for worker in view.workers)
    coming = [
        (worker.requested_s, worker.nodes)
        for worker in sorted(view.requests, key=lambda request: request.requested_s)
    ]
    # these are available at once
    coming = [(view.now_s - view.wait_s, free), *coming] if free else coming
    results, limits = [], policy.share
    for ad in sorted(view.managers, key=lambda manager_ad: manager_ad.name):
        missing = max(0, view.previous.get(ad.name, 0) - ad.by_pool.get(view.pool, 0))
        # a single manager gets all that is coming, whatever its share was before
        mine, coming = (coming, []) if len(view.managers) == 1 else _take_coming(coming, missing)
        low, high = ad.capacity_low or ad.capacity, ad.capacity_high or ad.capacity
        interval = (
            None
            if ad.capacity is None or low is None or high is None
            else Interval(low, ad.capacity, high)
        )
        results.append(
            (
                ad,
                SizeView(
                    now_s=view.now_s,
                    waiting=ad.waiting,
                    running=ad.running,
                    connected=ad.workers,
                    idle=idle[ad.name],
                    requests=tuple(mine),
                    capacity=interval,
                    execution_s=ad.execution_s,
                    cycle_s=ad.cycle_s or ad.execution_s,
                    arrived=ad.arrived or ad.waiting + ad.running,
                    wait_s=view.wait_s,
                    wait_low_s=view.wait_low_s,
                    previous=view.previous.get(ad.name, 0),
                    elapsed_s=view.elapsed_s,
                    max_workers=limits.max_workers,
                    default_capacity=limits.default_capacity,
                    failing=ad.failing,
                ),
            )
        )
    return results


def _take_coming(
    coming: list[tuple[float, int]], missing: int
) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    mine, left = [], list(coming)
    while left and missing > 0:
        at_s, workers = left[0]
        some = min(workers, missing)
        mine.append((at_s, some))
        missing -= some
        left[:1] = [(at_s, workers - some)] if workers > some else []
    return mine, left


def _remove_pace(policy: SharePolicy) -> SharePolicy:
    return SharePolicy(max_workers=policy.max_workers)


def _list_withdrawn(view: PoolSnapshot, beyond: int) -> tuple[str, ...]:
    """Return whole requests, newest first, that are not needed even in part."""
    gone = []
    for request in sorted(view.requests, key=lambda item: (-item.requested_s, item.id)):
        if request.nodes > beyond:
            break
        beyond -= request.nodes
        gone.append(request.id)
    return tuple(gone)


def _list_released(
    view: PoolSnapshot, shares: Mapping[str, int], beyond: int, billing_s: float | None
) -> tuple[str, ...]:
    """Return idle workers without a manager, or of a manager with more than its share, by price."""
    if beyond <= 0:
        return ()
    there = Counter(worker.manager for worker in view.workers)
    over = {
        name: count if name is None else max(0, count - shares.get(name, 0))
        for name, count in there.items()
    }
    idle = sorted(
        (
            # order: end of the paid cycle, least cached data, end of the allocation
            _compute_paid_s(worker, view.now_s, billing_s),
            worker.cache_mib,
            worker.ends_s,
            worker.id,
            worker.manager,
        )
        for worker in view.workers
        if worker.idle_since_s is not None and over[worker.manager] > 0
    )
    due_s = BOUNDARY_S + view.elapsed_s

    def going() -> list[str]:
        gone = []
        for paid_s, _, _, name, manager in idle:
            if over[manager] > 0 and paid_s <= due_s:
                over[manager] -= 1
                gone.append(name)
        return gone

    return tuple(islice(going(), beyond))


def _compute_paid_s(worker: WorkerView, now_s: float, billing_s: float | None) -> float:
    """Return the seconds until the end of the paid cycle."""
    # the remainder of a negative number by a positive one is positive in Python: the time left
    return 0.0 if billing_s is None else (worker.joined_s - now_s) % billing_s
