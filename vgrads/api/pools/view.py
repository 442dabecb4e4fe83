"""Conversion of ledger entries into the input of a pool's decision, and of the decision into
entries and targets. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vgrads.api.pools.document import PoolDocument
from vgrads.api.pools.ledger import Json, LedgerEntries
from vgrads.pool.decide import Decision, PoolPolicy, PoolSnapshot, WorkerView, decide
from vgrads.pool.ledger import PoolClaim, sum_claimed_before
from vgrads.pool.share import ManagerAd, SharePolicy, fill
from vgrads.pool.size_view import Memory
from vgrads.pool.time_slice import share_by_turns
from vgrads.pool.view import RequestView


@dataclass(frozen=True, kw_only=True)
class PoolStatus:
    """Workers of the pool by manager: running, and waiting for an agent. ``wait_s``: expected wait
    for an agent."""

    now_s: float
    running: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    hosts: int = 0
    coming: int = 0
    wait_s: float = 0.0

    def there(self, manager: str) -> int:
        """Return the workers for a manager, running or waiting."""
        return self.running.get(manager, 0) + self.waiting.get(manager, 0)


@dataclass(frozen=True, kw_only=True)
class PoolMemory:
    """State between decisions. ``requested_s``: since when a manager's workers wait for agents;
    ``claimed_s``: when its share was last increased."""

    at_s: float | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    announced: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, Memory] = field(default_factory=dict)
    requested_s: Mapping[str, float] = field(default_factory=dict)
    claimed_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PoolDecided:
    """``shares``: published to managers; ``targets``: current number of workers, which may be
    larger, since workers of managers with a smaller share stay until disconnected."""

    shares: Mapping[str, int] = field(default_factory=dict)
    targets: Mapping[str, int] = field(default_factory=dict)
    claim_age_s: Mapping[str, float] = field(default_factory=dict)
    other_pools: tuple[str, ...] = ()
    capacity: float | None = None
    decision: Decision = field(default_factory=Decision)


def decide_now(
    entries: LedgerEntries, document: PoolDocument, here: PoolStatus, memory: PoolMemory
) -> tuple[PoolDecided, PoolMemory]:
    """Return the pool's current decision; a function of ledger and memory."""
    ads = tuple(_convert_ad(entry, document.worker.procs) for entry in entries.managers)
    requested_s = {
        name: memory.requested_s.get(name, here.now_s)
        for name, count in here.waiting.items()
        if count
    }
    view = PoolSnapshot(
        now_s=here.now_s,
        pool=document.name,
        managers=ads,
        workers=_count_workers(here),
        previous=memory.shares,
        requests=tuple(
            RequestView(id=n, nodes=here.waiting[n], requested_s=at)
            for n, at in sorted(requested_s.items())
        ),
        elapsed_s=float(document.period) if memory.at_s is None else here.now_s - memory.at_s,
        others=_count_other_workers(entries, document, here, memory),
        wait_s=here.wait_s,
        # not measured: half of the usual wait is assumed
        wait_low_s=here.wait_s / 2.0,
        memory=memory.sizes,
    )
    decision = decide(view, PoolPolicy(share=_read_policy(document), sizing=document.policy))
    needs = {
        reason.about: (int(reason.numbers["need"]), reason.numbers["weight"])
        for reason in decision.reasons
        if reason.kind == "share"
    }
    waiting_s = {name: here.now_s - at_s for name, at_s in requested_s.items()}
    payload = share_by_turns(
        decision.shares, needs, here.running, waiting_s, float(document.period)
    )
    shares = {name: count for name, count in payload.items() if count}
    claimed_s = {
        name: here.now_s
        if count > memory.announced.get(name, 0)
        else memory.claimed_s.get(name, here.now_s)
        for name, count in shares.items()
    }
    decided = PoolDecided(
        shares=shares,
        targets=_limit_targets(shares, here, document.max_workers),
        decision=decision,
        claim_age_s={name: here.now_s - at_s for name, at_s in claimed_s.items()},
        other_pools=tuple(ad.name for ad in ads),
        capacity=_sum_capacity(ads),
    )
    return decided, PoolMemory(
        at_s=here.now_s,
        shares={n: c for n, c in decision.shares.items() if c},
        announced=shares,
        sizes=decision.memory,
        requested_s=requested_s,
        claimed_s=claimed_s,
    )


def _convert_ad(entry: Mapping[str, Any], procs: int) -> ManagerAd:
    """Convert a manager's entry to workers of this many processors."""
    capacity = entry.get("capacity") or {}
    low, value, high = (
        capacity[key] / procs if key in capacity else None for key in ("low", "value", "high")
    )
    return ManagerAd(
        name=str(entry["name"]),
        waiting=math.ceil(entry["waiting"] / procs),
        running=math.ceil(entry["running"] / procs),
        workers=entry["procs"] // procs,
        by_pool={pool: n // procs for pool, n in entry["by_pool"].items()},
        capacity=value,
        capacity_low=low,
        capacity_high=high,
        execution_s=capacity.get("execution_s"),
        cycle_s=capacity.get("cycle_s"),
        arrived=math.ceil(entry.get("arrived", 0) / procs),
        failing=bool(entry.get("failing")),
    )


def _count_workers(here: PoolStatus) -> tuple[WorkerView, ...]:
    """Return the running workers; a manager disconnects its idle ones itself, so none is idle for
    the pool."""
    return tuple(
        WorkerView(id=f"{name}.{n}", joined_s=here.now_s, manager=name)
        for name, count in sorted(here.running.items())
        for n in range(count)
    )


def _read_policy(document: PoolDocument) -> SharePolicy:
    """Return the sharing policy. A manager's name has its bag and its dispatcher; patterns match
    the first, or both."""
    return SharePolicy(
        max_workers=document.max_workers,
        max_change=document.max_change,
        default_capacity=document.default_capacity,
        distribution=tuple(
            (rf"(?:{name})(?:\.[0-9a-z]+)?", value) for name, value in document.distribution.items()
        ),
        billing_cycle_s=None if document.billing_cycle is None else float(document.billing_cycle),
        reading=document.reading,
    )


def _count_other_workers(
    entries: LedgerEntries, document: PoolDocument, here: PoolStatus, memory: PoolMemory
) -> dict[str, int]:
    """Return the workers, in our size, that other pools have promised before this one and not yet
    delivered."""
    claims = [
        PoolClaim(
            pool=str(pool["name"]),
            manager=manager,
            workers=int(workers),
            procs=int(pool["procs"]),
            # the age of a claim was stated when its entry was published
            age_s=float(pool["age_s"]) + float(pool.get("claim_age_s", {}).get(manager, 0.0)),
        )
        for pool in entries.pools
        if pool["name"] != document.name
        for manager, workers in pool.get("decisions", {}).items()
    ]
    mine = {name: here.now_s - at_s for name, at_s in memory.claimed_s.items()}
    leased = {str(m["name"]): m["by_pool"] for m in entries.managers}
    before = sum_claimed_before(claims, document.name, mine, leased)
    return {name: math.ceil(procs / document.worker.procs) for name, procs in before.items()}


def _limit_targets(shares: Mapping[str, int], here: PoolStatus, most: int) -> dict[str, int]:
    """Limit workers to the maximum of the pool: managers that get more wait until others have
    disconnected workers."""
    names = sorted({*shares, *here.running, *here.waiting})
    stored = {
        name: max(here.running.get(name, 0), min(here.there(name), shares.get(name, 0)))
        for name in names
    }
    lacking = {name: shares[name] - stored[name] for name in shares if shares[name] > stored[name]}
    room = max(0, most - sum(stored.values()))
    more = (
        fill(lacking, {name: float(count) for name, count in lacking.items()}, room).decided
        if lacking
        else {}
    )
    return {name: stored[name] + more.get(name, 0) for name in names}


def _sum_capacity(ads: tuple[ManagerAd, ...]) -> float | None:
    """Return the capacity of all managers together, for the chart; None if none is known."""
    capacities = [ad.capacity for ad in ads if ad.capacity is not None]
    return sum(capacities) if capacities else None


def entry_of(
    document: PoolDocument, run: str, decided: PoolDecided, here: PoolStatus, problem: str = ""
) -> Json:
    """Return the pool's entry in the ledger."""
    return {
        "id": run or "?",
        "period_s": float(document.period),
        "procs": document.worker.procs,
        "policy": document.policy,
        "max_workers": document.max_workers,
        "decisions": dict(decided.shares),
        "seen": list(decided.other_pools),
        "claim_age_s": dict(decided.claim_age_s),
        "asked": {n: c for n, c in here.waiting.items() if c},
        "decided": sum(decided.shares.values()),
        "running": sum(here.running.values()),
        "hosts": here.hosts,
        "coming": here.coming,
        "capacity": decided.capacity,
        "problem": problem,
        # the ledger accepts lines of up to 1,000 characters
        "reasons": [reason.text[:1000] for reason in decided.decision.reasons],
        "working": {"reasons": [reason.as_json() for reason in decided.decision.reasons]},
    }
