"""Stability of a pool: constant loads, and random schedules that become constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.kernel.streams import stream
from vgrads_studies.pools.loads import policy
from vgrads_studies.pools.stage import simulate
from vgrads_studies.pools.values import Batch, PoolSample, StudyConfig

SWING = 0.1
"""Share of the level above which a reversal counts as a swing."""
_WAITS = 10.0  # in which a limit cycle would appear


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """``reversals``: reversals of the decision by more than a tenth; ``overshoot``: the highest
    decision relative to ``level``, the mean of the last third; ``stated_overshoot``: the same once
    a capacity was available for a minute and a half."""

    name: str
    reversals: int
    overshoot: float
    stated_overshoot: float
    level: float


def reversals(levels: Sequence[float], swing: float = SWING) -> int:
    """Return the reversals of a curve, without smaller swings (at least two workers)."""
    turns, direction, extreme = 0, 0, levels[0] if levels else 0.0
    for level in levels:
        least = max(2.0, swing * max(level, extreme))
        moved = level - extreme
        if direction * moved > 0.0 or (not direction and abs(moved) > least):
            direction, extreme = (1 if moved > 0.0 else -1), level
        elif direction and abs(moved) > least:
            turns, direction, extreme = turns + 1, -direction, level
    return turns


def flow(
    workers: float, execution_s: float, until_s: float, since_s: float = 0.0, every_s: float = 5.0
) -> tuple[Batch, ...]:
    """Return tasks that keep this many workers busy, a few at each interval, fractions carried
    over."""
    results, owed = [], 0.0
    for n in range(math.ceil((until_s - since_s) / every_s)):
        owed += workers * every_s / execution_s
        if owed >= 1.0:
            results.append(
                Batch(
                    at_s=since_s + n * every_s,
                    tasks=int(owed),
                    in_mib=0.5,
                    out_mib=1.0,
                    execution_s=execution_s,
                    shared=False,
                    spread=0.2,
                )
            )
            owed -= int(owed)
    return tuple(results)


def backlog(
    config: StudyConfig, until_s: float, execution_s: float, since_s: float = 0.0
) -> tuple[Batch, ...]:
    """Return more tasks than can be done."""
    busy_s = 3.0 / config.mib_s + config.think_s
    tasks = int(1.2 * min((until_s - since_s) / busy_s, 200.0 * (until_s - since_s) / execution_s))
    return (
        Batch(
            at_s=since_s,
            tasks=tasks,
            in_mib=1.0,
            out_mib=2.0,
            execution_s=execution_s,
            shared=False,
            spread=0.2,
        ),
    )


def _rest(name: str, looks: Sequence[PoolSample], from_s: float = 0.0) -> SteadyState:
    levels = [float(look.decided) for look in looks if look.at_s >= from_s]
    settled = [float(look.decided) for look in looks if look.estimate and look.at_s >= from_s]
    level = float(np.mean(levels[-len(levels) // 3 :]))
    return SteadyState(
        name=name,
        reversals=reversals(levels),
        level=level,
        overshoot=max(levels) / level - 1.0,
        stated_overshoot=max(settled[6:]) / level - 1.0,
    )


def constant(name: str, seed: int, sizing: str = "d8") -> SteadyState:
    """Simulate a load that never changes, for an hour: a ``flow`` of tasks, a ``backlog``, or a
    ``known`` one: a backlog twenty minutes after the start of a first batch, which has shown the
    capacity."""
    draws = stream(seed, "pool", "constant", name)
    think_s, execution_s = float(draws.uniform(0.1, 0.5)), float(draws.uniform(8.0, 30.0))
    config, from_s = replace(StudyConfig(), think_s=think_s), 1200.0 if name == "known" else 0.0
    until_s = from_s + 3600.0
    if name == "flow":
        part = float(draws.uniform(0.4, 0.8))
        batches = flow(part * min(150.0, execution_s / (think_s + 0.05)), execution_s, until_s)
    else:
        batches = backlog(config, until_s, execution_s, from_s)
    if name == "known":
        batches = (replace(batches[0], at_s=0.0, tasks=400), *batches)
    ran = simulate(batches, replace(config, most_s=until_s), policy(sizing), seed)
    return _rest(name, ran.looks, from_s)


def schedule(seed: int, sizing: str = "d8", losses: bool = False) -> int | None:
    """Return the reversals within ten waits after a random schedule (loads, waits, losses, cache
    bounces) has become constant: earlier work is done, and the first response was allowed two
    waits, a wait being that of the slowest tenth. ``losses``: workers are lost afterwards, too.
    None where it never became constant."""
    draws = stream(seed, "pool", "schedule")
    config = StudyConfig(
        mib_s=float(draws.uniform(5.0, 80.0)),
        think_s=float(draws.uniform(0.02, 0.4)),
        per_worker_s=float(draws.uniform(0.0, 1e-3)),
        wait_s=float(draws.uniform(5.0, 90.0)),
        wait_spread_s=float(draws.uniform(2.0, 40.0)),
        speeds=float(draws.uniform(0.0, 0.3)),
        lifetime_s=math.inf if draws.random() < 0.5 else float(draws.uniform(600.0, 6000.0)),
    )
    execution_s = float(draws.uniform(5.0, 60.0))
    batches = [
        Batch(
            at_s=float(draws.uniform(0.0, 400.0)),
            tasks=int(draws.integers(1, 200)),
            in_mib=float(draws.uniform(0.1, 60.0)),
            out_mib=float(draws.uniform(0.1, 5.0)),
            execution_s=execution_s * float(draws.uniform(0.5, 2.0)),
            spread=0.3,
        )
        for _ in range(int(draws.integers(0, 5)))
    ]
    wait_s = config.wait_s + 2.8 * config.wait_spread_s
    from_s, until_s = 400.0, 400.0 + 2.0 * _WAITS * wait_s
    if draws.random() < 0.5:
        constant_load = backlog(config, until_s, execution_s, from_s)
    else:
        busy_s = config.think_s + 1.5 / config.mib_s
        workers = float(draws.uniform(0.2, 0.9)) * min(150.0, execution_s / busy_s)
        constant_load = flow(workers, execution_s, until_s, from_s)
    config = replace(config, most_s=until_s, losses_until_s=math.inf if losses else from_s)
    before = sum(batch.tasks for batch in batches)
    ran = simulate([*batches, *constant_load], config, policy(sizing), seed)
    begun_s = (
        max(from_s, ran.ends_s[before] if len(ran.ends_s) > before else until_s) + 2.0 * wait_s
    )
    if begun_s + _WAITS * wait_s > until_s:
        return None
    return reversals(
        [float(look.decided) for look in ran.looks if 0.0 <= look.at_s - begun_s <= _WAITS * wait_s]
    )
