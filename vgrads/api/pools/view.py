"""The ledger as a pool's decider sees it, and its decision as the ledger and the dispatcher are
told it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vgrads.api.pools.document import PoolDocument
from vgrads.api.pools.ledger import Json, Standing
from vgrads.pool.decide import Decision, PoolNow, PoolPolicy, WorkerNow, decide
from vgrads.pool.ledger import Claim, claimed_before
from vgrads.pool.meanwhile import meanwhile
from vgrads.pool.share import ManagerAd, SharePolicy, fill
from vgrads.pool.size_view import Memory
from vgrads.pool.view import RequestView


@dataclass(frozen=True, kw_only=True)
class Here:
    """What the pool has, in workers by manager: at work, and waiting for a host. ``wait_s``: how
    long a host takes."""

    now_s: float
    running: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    hosts: int = 0
    coming: int = 0
    wait_s: float = 0.0

    def there(self, manager: str) -> int:
        """Workers for a manager, at work or not yet."""
        return self.running.get(manager, 0) + self.waiting.get(manager, 0)


@dataclass(frozen=True, kw_only=True)
class PoolMemory:
    """From one decision to the next. ``asked_s``: since when a manager's workers wait for hosts;
    ``claimed_s``: since when it was last given more."""

    at_s: float | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, Memory] = field(default_factory=dict)
    asked_s: Mapping[str, float] = field(default_factory=dict)
    claimed_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Decided:
    """``shares``: what managers are told; ``targets``: how many workers there are to be meanwhile,
    since those whose manager is to have fewer stay until it lets them go."""

    shares: Mapping[str, int] = field(default_factory=dict)
    targets: Mapping[str, int] = field(default_factory=dict)
    claim_age_s: Mapping[str, float] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    capacity: float | None = None
    decision: Decision = field(default_factory=Decision)


def decide_now(
    standing: Standing, document: PoolDocument, here: Here, memory: PoolMemory
) -> tuple[Decided, PoolMemory]:
    """What the pool does now; the same ledger and memory give the same answer."""
    ads = tuple(_ad(entry, document.worker.procs) for entry in standing.managers)
    asked_s = {
        name: memory.asked_s.get(name, here.now_s) for name, count in here.waiting.items() if count
    }
    view = PoolNow(
        now_s=here.now_s,
        pool=document.name,
        managers=ads,
        workers=_workers(here),
        previous=memory.shares,
        asked=tuple(
            RequestView(id=n, hosts=here.waiting[n], asked_s=at)
            for n, at in sorted(asked_s.items())
        ),
        elapsed_s=float(document.period) if memory.at_s is None else here.now_s - memory.at_s,
        others=_others(standing, document, here, memory),
        wait_s=here.wait_s,
        wait_low_s=here.wait_s / 2.0,
        memory=memory.sizes,
    )
    decision = decide(view, PoolPolicy(share=_policy(document), sizing=document.policy))
    needs = {
        one.about: (int(one.numbers["need"]), one.numbers["weight"])
        for one in decision.reasons
        if one.kind == "share"
    }
    waiting_s = {name: here.now_s - at_s for name, at_s in asked_s.items()}
    told = meanwhile(decision.shares, needs, here.running, waiting_s, float(document.period))
    shares = {name: count for name, count in told.items() if count}
    claimed_s = {
        name: here.now_s
        if count > memory.told.get(name, 0)
        else memory.claimed_s.get(name, here.now_s)
        for name, count in shares.items()
    }
    found = Decided(
        shares=shares,
        targets=_targets(shares, here, document.max_workers),
        decision=decision,
        claim_age_s={name: here.now_s - at_s for name, at_s in claimed_s.items()},
        seen=tuple(ad.name for ad in ads),
        capacity=_capacity(ads),
    )
    return found, PoolMemory(
        at_s=here.now_s,
        shares={n: c for n, c in decision.shares.items() if c},
        told=shares,
        sizes=decision.memory,
        asked_s=asked_s,
        claimed_s=claimed_s,
    )


def _ad(entry: Mapping[str, Any], procs: int) -> ManagerAd:
    """A manager's entry, counted in workers of so many processors."""
    known = entry.get("capacity") or {}
    low, value, high = (
        known[key] / procs if key in known else None for key in ("low", "value", "high")
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
        execution_s=known.get("execution_s"),
        cycle_s=known.get("cycle_s"),
        arrived=math.ceil(entry.get("arrived", 0) / procs),
        failing=bool(entry.get("failing")),
    )


def _workers(here: Here) -> tuple[WorkerNow, ...]:
    """Those at work; a manager lets its idle ones go itself, so none is idle for the pool."""
    return tuple(
        WorkerNow(id=f"{name}.{n}", joined_s=here.now_s, manager=name)
        for name, count in sorted(here.running.items())
        for n in range(count)
    )


def _policy(document: PoolDocument) -> SharePolicy:
    """A manager is called by its bag and its dispatcher; patterns are of the first, or of both."""
    return SharePolicy(
        max_workers=document.max_workers,
        max_change=document.max_change,
        default_capacity=document.default_capacity,
        distribution=tuple(
            (rf"(?:{one})(?:\.[0-9a-z]+)?", value) for one, value in document.distribution.items()
        ),
        billing_cycle_s=None if document.billing_cycle is None else float(document.billing_cycle),
        reading=document.reading,
    )


def _others(
    standing: Standing, document: PoolDocument, here: Here, memory: PoolMemory
) -> dict[str, int]:
    """Workers, of our size, that other pools have promised before us and not yet delivered."""
    claims = [
        Claim(
            pool=str(pool["name"]),
            manager=manager,
            workers=int(workers),
            procs=int(pool["procs"]),
            age_s=float(pool["age_s"]) + float(pool.get("claim_age_s", {}).get(manager, 0.0)),
        )
        for pool in standing.pools
        if pool["name"] != document.name
        for manager, workers in pool.get("decisions", {}).items()
    ]
    mine = {name: here.now_s - at_s for name, at_s in memory.claimed_s.items()}
    lent = {str(m["name"]): m["by_pool"] for m in standing.managers}
    before = claimed_before(claims, document.name, mine, lent)
    return {name: math.ceil(procs / document.worker.procs) for name, procs in before.items()}


def _targets(shares: Mapping[str, int], here: Here, most: int) -> dict[str, int]:
    """Workers are never more than the pool may have: who is to get more waits until others have let
    go."""
    names = sorted({*shares, *here.running, *here.waiting})
    kept = {
        name: max(here.running.get(name, 0), min(here.there(name), shares.get(name, 0)))
        for name in names
    }
    lacking = {name: shares[name] - kept[name] for name in shares if shares[name] > kept[name]}
    room = max(0, most - sum(kept.values()))
    more = (
        fill(lacking, {name: float(count) for name, count in lacking.items()}, room).decided
        if lacking
        else {}
    )
    return {name: kept[name] + more.get(name, 0) for name in names}


def _capacity(ads: tuple[ManagerAd, ...]) -> float | None:
    """What all managers together can use, for the picture; None while none of them knows."""
    known = [ad.capacity for ad in ads if ad.capacity is not None]
    return sum(known) if known else None


def entry_of(
    document: PoolDocument, run: str, decided: Decided, here: Here, problem: str = ""
) -> Json:
    """The pool's entry in the ledger."""
    return {
        "id": run or "?",
        "period_s": float(document.period),
        "procs": document.worker.procs,
        "policy": document.policy,
        "max_workers": document.max_workers,
        "decisions": dict(decided.shares),
        "seen": list(decided.seen),
        "claim_age_s": dict(decided.claim_age_s),
        "asked": {n: c for n, c in here.waiting.items() if c},
        "decided": sum(decided.shares.values()),
        "running": sum(here.running.values()),
        "hosts": here.hosts,
        "coming": here.coming,
        "capacity": decided.capacity,
        "problem": problem,
        "reasons": [one.text[:1000] for one in decided.decision.reasons],
        "working": {"reasons": [one.as_json() for one in decided.decision.reasons]},
    }
