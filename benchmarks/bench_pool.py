"""How long a pool thinks: sharing by rounds in one pass against bisection on the water level, and a
whole decision.

python benchmarks/bench_pool.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from vgrads.pool.decide import PoolPolicy, PoolSnapshot, WorkerView, decide
from vgrads.pool.share import ManagerAd, SharePolicy, compute_default_most, fill, needs

MANAGERS, WORKERS = 1000, 50


def best_s(what: Callable[[], object], times: int = 7) -> float:
    """The shortest of some tries, in seconds."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        what()
        took.append(time.perf_counter() - begun)
    return min(took)


def bisected(required: Mapping[str, int], weights: Mapping[str, float], total: int) -> float:
    """The level to which water rises, by 60 halvings."""
    low, high = 0.0, max(required[name] / weights[name] for name in required)
    for _ in range(60):
        middle = (low + high) / 2
        filled = sum(min(required[name], middle * weights[name]) for name in required)
        low, high = (middle, high) if filled < total else (low, middle)
    return high


def main() -> None:
    """Print both, and what a whole decision takes."""
    ads = [
        ManagerAd(name=f"m{n:04}", waiting=n * n % 977, capacity=1.5 ** (n % 30), workers=n % 7)
        for n in range(MANAGERS)
    ]
    policy = SharePolicy(max_workers=50_000, distribution=((".*[05]", 3), (".*", 1)))
    required, weights = (
        needs(ads, policy, "p"),
        compute_default_most([ad.name for ad in ads], policy),
    )
    rounds_s = best_s(lambda: fill(required, weights, 50_000))
    halvings_s = best_s(lambda: bisected(required, weights, 50_000))
    print(
        f"{MANAGERS} managers shared out: {rounds_s * 1e3:.2f} ms, bisection "
        f"{halvings_s * 1e3:.2f} ms, {halvings_s / rounds_s:.1f} x"
    )
    view = PoolSnapshot(
        now_s=1000.0,
        pool="p",
        managers=tuple(ads),
        wait_s=60.0,
        wait_low_s=30.0,
        workers=tuple(
            WorkerView(id=f"{ad.name}.{k}", joined_s=0.0, manager=ad.name)
            for ad in ads
            for k in range(WORKERS)
        ),
    )
    whole_s = best_s(lambda: decide(view, PoolPolicy(share=policy)), 3)
    print(
        f"a decision for {MANAGERS} managers and {MANAGERS * WORKERS:,} workers: "
        f"{whole_s * 1e3:.0f} ms"
    )


if __name__ == "__main__":
    main()
