"""The one door: what a pool does now for all its managers, and why, with numbers from which it can
be worked out again.

Each manager is sized (``vgrads.pool.sizing``), what it has from elsewhere is taken off, the pool is
shared out (``vgrads.pool.share``), and what is missing is asked for. Where the policy gives back,
requests beyond the shares are withdrawn, newest first, then idle workers go by price: those nearest
to the end of a paid cycle, with the least in their cache, with the shortest time left; never one
that works.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vgrads.pool.capacity import Interval
from vgrads.pool.share import (
    ManagerAd,
    SharePolicy,
    default_most,
    elsewhere,
    fill,
    need,
    total_most,
)
from vgrads.pool.size_view import Memory, Sized, SizeView
from vgrads.pool.sizing import SIZINGS
from vgrads.pool.view import RequestView

BOUNDARY_S = 30.0
"""A worker leaves so long before its paid cycle ends, and one decision earlier if it would miss
that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNow:
    """A worker of this pool. ``manager``: whom it serves, if any; ``cache_mib``: what it would
    lose; ``ends_s``: when its allocation ends."""

    id: str
    joined_s: float
    manager: str | None = None
    idle_since_s: float | None = None
    cache_mib: float = 0.0
    ends_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNow:
    """What a pool sees. ``previous``: the last shares, ``elapsed_s`` ago; ``others``: workers that
    other pools have decided for a manager and not yet delivered; ``wait_s``, ``wait_low_s``: after
    which half of the workers, and one in ten, have come."""

    now_s: float
    pool: str = ""
    managers: tuple[ManagerAd, ...] = ()
    workers: tuple[WorkerNow, ...] = ()
    asked: tuple[RequestView, ...] = ()
    previous: Mapping[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0
    others: Mapping[str, int] = field(default_factory=dict)
    wait_s: float = 0.0
    wait_low_s: float = 0.0
    memory: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """How to share, and by which of ``SIZINGS`` to size."""

    share: SharePolicy
    sizing: str = "d8"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: of which kind, about whom, with which numbers and names."""

    kind: str
    about: str
    numbers: Mapping[str, float]
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In words."""
        if self.kind == "size":
            return f"size {self.about}: {_in_terms(self.numbers)}"
        told = ", ".join(f"{name} {number:g}" for name, number in self.numbers.items())
        return f"{self.kind} {self.about}: {told}" if self.about else f"{self.kind}: {told}"

    def as_json(self) -> dict[str, Any]:
        """For ``--json``; ``reason_from_json`` reads it."""
        return {
            "kind": self.kind,
            "about": self.about,
            "numbers": dict(self.numbers),
            "names": list(self.names),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Workers by manager, how many to ask for, which requests to take back, which workers to let
    go, why, and what is to be remembered."""

    shares: Mapping[str, int] = field(default_factory=dict)
    ask: int = 0
    withdraw: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    memory: Mapping[str, Memory] = field(default_factory=dict)


def _in_terms(numbers: Mapping[str, float]) -> str:
    """The term that counts with its bounds, what the others come to, and what is taken off."""
    terms: dict[str, dict[str, float]] = {}
    for key, number in numbers.items():
        name, colon, bound = key.partition(": ")
        if colon:
            terms.setdefault(name, {})[bound] = number
    least = {name: max(0.0, min(bounds.values())) for name, bounds in terms.items()}
    first, *rest = sorted(least, key=lambda name: -least[name])
    bounds = ", ".join(f"{bound} {number:g}" for bound, number in terms[first].items())
    others = (
        "; other terms " + ", ".join(f"{name} {least[name]:g}" for name in rest) if rest else ""
    )
    return (
        f"{least[first]:g} by '{first}' (the least of: {bounds}){others}; from elsewhere "
        f"{numbers['from elsewhere']:g}"
    )


def reason_from_json(document: Mapping[str, Any]) -> Reason:
    """A reason as it was written."""
    return Reason(
        document["kind"], document["about"], document["numbers"], tuple(document["names"])
    )


def decide(view: PoolNow, policy: PoolPolicy) -> Decision:
    """What to do now."""
    sizing = SIZINGS[policy.sizing]
    reasons: list[Reason] = []
    wanted, memory = {}, {}
    for ad, one in _sizes(view, policy):
        sized = sizing.size(one, view.memory.get(ad.name, Memory()))
        memory[ad.name] = sized.memory
        reason = _size_reason(ad, sized, view)
        reasons.append(reason)
        wanted[ad.name] = _need(reason, policy.share)
    weights = default_most(list(wanted), policy.share)
    limits = policy.share if sizing.paced else _unpaced(policy.share)
    total = total_most(limits, sum(view.previous.values()), view.elapsed_s)
    shares = fill(wanted, weights, total).decided
    reasons += [
        Reason("share", name, {"need": wanted[name], "weight": weights[name], "share": workers})
        for name, workers in shares.items()
    ]
    target, coming = sum(shares.values()), sum(one.hosts for one in view.asked)
    held = len(view.workers)
    ask = max(0, target - held - coming)
    reasons.append(
        Reason(
            "total",
            "",
            {
                "most now": total,
                "shared out": target,
                "there": held,
                "on their way": coming,
                "asked for": ask,
            },
        )
    )
    withdraw: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    if sizing.gives_back:
        withdraw = _withdrawn(view, min(coming, held + coming - target))
        release = _released(view, shares, held - target, policy.share.billing_cycle_s)
    reasons += [
        Reason(kind, "", {"beyond": beyond, "taken": len(names)}, names)
        for kind, beyond, names in (
            ("withdraw", held + coming - target, withdraw),
            ("release", held - target, release),
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


def recompute(reasons: Sequence[Reason], policy: PoolPolicy) -> Decision:
    """The decision that reasons tell of, worked out from their numbers alone."""
    wanted = {one.about: _need(one, policy.share) for one in reasons if one.kind == "size"}
    weights = {one.about: one.numbers["weight"] for one in reasons if one.kind == "share"}
    total = next(one.numbers for one in reasons if one.kind == "total")
    shares = fill(wanted, weights, int(total["most now"])).decided
    ask = max(0, sum(shares.values()) - int(total["there"]) - int(total["on their way"]))
    taken = {one.kind: one.names for one in reasons if one.kind in {"withdraw", "release"}}
    return Decision(
        shares=shares,
        ask=ask,
        withdraw=taken.get("withdraw", ()),
        release=taken.get("release", ()),
        reasons=tuple(reasons),
    )


def _size_reason(ad: ManagerAd, sized: Sized, view: PoolNow) -> Reason:
    numbers: dict[str, float] = {
        f"{one.name}: {name}": number for one in sized.terms for name, number in one.bounds
    }
    numbers["from elsewhere"] = elsewhere(ad, view.pool, view.others)
    numbers["received"], numbers["waiting"] = ad.by_pool.get(view.pool, 0), ad.waiting
    return Reason("size", ad.name, numbers)


def _need(reason: Reason, policy: SharePolicy) -> int:
    """What a manager needs of this pool: the largest of the least numbers of each term, without
    what comes from elsewhere; in the other reading never less than it has (Eq 4.6, 4.8)."""
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
    return need(ad, workers, others, "", policy.reading)


def _sizes(view: PoolNow, policy: PoolPolicy) -> list[tuple[ManagerAd, SizeView]]:
    """Each manager as its sizing policy sees it; workers on their way are counted where they are
    missing."""
    idle = Counter(one.manager for one in view.workers if one.idle_since_s is not None)
    free = sum(one.manager is None for one in view.workers)
    coming = [(one.asked_s, one.hosts) for one in sorted(view.asked, key=lambda one: one.asked_s)]
    coming = [(view.now_s - view.wait_s, free), *coming] if free else coming  # these come at once
    found, limits = [], policy.share
    for ad in sorted(view.managers, key=lambda one: one.name):
        missing = max(0, view.previous.get(ad.name, 0) - ad.by_pool.get(view.pool, 0))
        mine, coming = (coming, []) if len(view.managers) == 1 else _taken(coming, missing)
        low, high = ad.capacity_low or ad.capacity, ad.capacity_high or ad.capacity
        known = (
            None
            if ad.capacity is None or low is None or high is None
            else Interval(low, ad.capacity, high)
        )
        found.append(
            (
                ad,
                SizeView(
                    now_s=view.now_s,
                    waiting=ad.waiting,
                    running=ad.running,
                    connected=ad.workers,
                    idle=idle[ad.name],
                    asked=tuple(mine),
                    capacity=known,
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
    return found


def _taken(
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


def _unpaced(policy: SharePolicy) -> SharePolicy:
    return SharePolicy(max_workers=policy.max_workers)


def _withdrawn(view: PoolNow, beyond: int) -> tuple[str, ...]:
    """Whole requests, newest first, that are not needed even in part."""
    gone = []
    for one in sorted(view.asked, key=lambda one: (-one.asked_s, one.id)):
        if one.hosts > beyond:
            break
        beyond -= one.hosts
        gone.append(one.id)
    return tuple(gone)


def _released(
    view: PoolNow, shares: Mapping[str, int], beyond: int, billing_s: float | None
) -> tuple[str, ...]:
    """Idle workers that serve nobody, or a manager with more than its share, by price."""
    if beyond <= 0:
        return ()
    there = Counter(one.manager for one in view.workers)
    over = {
        name: count if name is None else max(0, count - shares.get(name, 0))
        for name, count in there.items()
    }
    idle = sorted(
        (_paid_s(one, view.now_s, billing_s), one.cache_mib, one.ends_s, one.id, one.manager)
        for one in view.workers
        if one.idle_since_s is not None and over[one.manager] > 0
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


def _paid_s(worker: WorkerNow, now_s: float, billing_s: float | None) -> float:
    """Seconds until the cycle ends that is paid for."""
    return 0.0 if billing_s is None else (worker.joined_s - now_s) % billing_s
