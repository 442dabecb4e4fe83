"""Work for pools: the thesis's patterns, and others, on which constants were chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgrads.kernel.streams import stream
from vgrads.pool.decide import PoolPolicy
from vgrads.pool.share import SharePolicy
from vgrads.pool.sizing import SIZINGS
from vgrads_studies.pools.pool_decisions import OURS
from vgrads_studies.pools.values import Batch, StudyConfig

PATTERNS = ("P1", "P2", "P3", "P4", "P5")
_P3 = ((3.0, 2.0), (1.0, 1.0), (5.0, 3.0), (1.0, 1.0), (10.0, 2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Work and its setting."""

    name: str
    batches: tuple[Batch, ...]
    config: StudyConfig = field(default_factory=StudyConfig)


def pattern(name: str, seed: int) -> Load:
    """Return P1 to P5 (thesis, §4.7.1); the input of a batch is one file. P4 and P5 are drawn again
    with each seed."""
    uniform = Batch(at_s=0.0, tasks=500, in_mib=2.0, out_mib=2.0, execution_s=15.0)
    if name == "P1":
        return Load(name=name, batches=(uniform,))
    if name in {"P2", "P3"}:
        sizes = _P3 if name == "P3" else ((2.0, 2.0),) * 5
        return Load(
            name=name,
            batches=tuple(
                Batch(at_s=400.0 * n, tasks=500, in_mib=i, out_mib=o, execution_s=15.0)
                for n, (i, o) in enumerate(sizes)
            ),
        )
    draws, at_s, batches = stream(seed, "pool", name), 0.0, []
    for _ in range(50):
        in_mib, out_mib, execution_s = (
            (2.0, 2.0, 15.0)
            if name == "P4"
            else (
                float(draws.uniform(1.0, 5.0)),
                float(draws.uniform(1.0, 5.0)),
                float(draws.uniform(5.0, 15.0)),
            )
        )
        tasks = int(draws.integers(1, 101))
        batches.append(
            Batch(at_s=at_s, tasks=tasks, in_mib=in_mib, out_mib=out_mib, execution_s=execution_s)
        )
        at_s += float(draws.uniform(1.0, 50.0))
    return Load(name=name, batches=tuple(batches))


KINDS = ("one batch", "batches", "stages", "trickle", "bursts")


def other(kind: str, seed: int) -> Load:
    """Return random work in a random setting: sizes, times, links and waits over an order of
    magnitude or more, unlike P1–P5."""
    draws = stream(seed, "pool", "other", kind)

    def between(low: float, high: float) -> float:
        return float(low * (high / low) ** draws.random())

    config = StudyConfig(
        mib_s=between(5.0, 100.0),
        think_s=between(0.01, 0.3),
        per_worker_s=between(1e-4, 1e-3),
        wait_s=between(15.0, 240.0),
        wait_spread_s=between(5.0, 60.0),
        speeds=between(0.02, 0.3),
    )
    execution_s, spread = between(4.0, 90.0), between(0.05, 0.6)
    in_mib, out_mib, shared = between(0.2, 12.0), between(0.2, 8.0), bool(draws.random() < 0.7)

    def batch(at_s: float, tasks: float, change: float = 1.0) -> Batch:
        factor = between(1.0 / change, change)
        return Batch(
            at_s=at_s,
            tasks=max(1, round(tasks)),
            in_mib=in_mib * factor,
            out_mib=out_mib / factor,
            execution_s=execution_s * factor,
            shared=shared,
            spread=spread,
        )

    tasks = between(60.0, 1500.0)
    if kind == "one batch":
        return Load(name=kind, config=config, batches=(batch(0.0, tasks),))
    if kind in {"batches", "stages"}:
        gap_s, change = between(60.0, 1200.0), 1.0 if kind == "batches" else 3.0
        count = int(draws.integers(3, 8))
        return Load(
            name=kind,
            config=config,
            batches=tuple(batch(n * gap_s, tasks / 2.0, change) for n in range(count)),
        )
    at_s, result = 0.0, []
    mean = between(5.0, 40.0) if kind == "trickle" else between(20.0, 150.0)
    gap_s, change = between(5.0, 80.0), 1.0 if kind == "trickle" else 2.0
    for _ in range(40):
        result.append(batch(at_s, draws.exponential(mean), change))
        at_s += float(draws.exponential(gap_s))
    return Load(name=kind, config=config, batches=tuple(result))


def policy(name: str) -> PoolPolicy:
    """Return a policy with the thesis's settings (200 workers, 60 a minute, 20 while unknown); ours
    needs none of them."""
    thesis = SIZINGS[name].paced and name not in OURS
    share = SharePolicy(
        max_workers=200,
        max_change=60.0 if thesis else None,
        default_capacity=None if name in OURS else 20.0,
    )
    return PoolPolicy(share=share, sizing=name)
