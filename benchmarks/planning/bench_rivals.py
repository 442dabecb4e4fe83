"""Our plans against plans that need no planner, on random sets.

``python -m benchmarks.planning.bench_rivals --count 2000``. Each rival
(:mod:`benchmarks.planning.simple_plans`) is made cheaper by the same step as ours, and all are
judged in the same scenarios, which no planner has seen. Required: at no set more than .005 below
the best rival (above the requested probability more counts as equal), nor more than 5 % dearer at
an equal promise.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from benchmarks.planning.random_sets import SOURCES
from benchmarks.planning.simple_plans import simple_plans
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Placement, SlotUse
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.search.improve import improve
from vgrads.planner.search.trials import REPORTED_SCENARIOS, Trials, Version
from vgrads.planner.snapshot import Snapshot

SCENARIOS = 32_768
_SEED = 715_827_883
_PROMISE, _PRICE = 0.005, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A plan in unseen scenarios."""

    rule: str
    probability: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours and the rivals on one set."""

    number: int
    kind: str
    requested: float
    ours: Judged
    rivals: tuple[Judged, ...]
    seconds: float

    def __str__(self) -> str:
        best = self.best
        rival = f"{best.rule} {best.probability:.3f} ${best.usd:.2f}" if best else "no rival"
        return (
            f"{self.number} ({self.kind}): requested {self.requested}, ours "
            f"{self.ours.probability:.3f} ${self.ours.usd:.2f} ({self.ours.rule}), {rival}; "
            f"short {self.short:.3f}, dearer ${self.dearer:.2f}"
        )

    def _worth(self, plan: Judged) -> float:
        return min(plan.probability, self.requested)

    @property
    def best(self) -> Judged | None:
        """The most probable rival, the cheapest among equals."""
        return max(self.rivals, key=lambda r: (self._worth(r), -r.usd), default=None)

    @property
    def short(self) -> float:
        """How far ours is below the best rival."""
        return self._worth(self.best) - self._worth(self.ours) if self.best else 0.0

    @property
    def dearer(self) -> float:
        """What ours costs more than the cheapest rival of at least its promise, in USD, beyond 5 %
        and a cent."""
        equal = [r.usd for r in self.rivals if self._worth(r) >= self._worth(self.ours) - 1e-9]
        return max(0.0, self.ours.usd - _PRICE * min(equal) - 0.01) if equal else 0.0


def judge(
    snapshot: Snapshot, placements: tuple[Placement, ...], uses: tuple[SlotUse, ...], spare: int
) -> tuple[float, float]:
    """Return probability and mean cost in unseen scenarios."""
    if not placements:
        return 0.0, 0.0
    fresh = replace(snapshot, seed=snapshot.seed + _SEED, scenarios=SCENARIOS)
    submits_s = {use.slot.id: use.submit_s for use in uses}
    simulated = rollout(fresh, placements, submits_s, spare)
    return simulated.promise(snapshot.workflow_set.needed), simulated.usd(uses)


def _rivals(snapshot: Snapshot, effort_s: float) -> Iterator[tuple[str, Version]]:
    for plan in simple_plans(snapshot):
        trials = Trials(snapshot, effort_s)
        first = trials.version(plan.placements, REPORTED_SCENARIOS)
        allowed = [v for v in improve(trials, first) if trials.affords(v)] if first else []
        if allowed:
            yield plan.rule, allowed[-1]


def compare(job: tuple[int, float], source: str = "random") -> Comparison:
    """Plan one set by all rules."""
    number, effort_s = job
    kind, snapshot = SOURCES[source](number)
    begin = time.perf_counter()
    plan = make_plan(snapshot, Options(effort_s=effort_s))
    seconds = time.perf_counter() - begin
    plan.check(snapshot)
    probability, usd = judge(snapshot, plan.placements, plan.uses, plan.spare_workflows)
    rivals = []
    for rule, version in _rivals(snapshot, effort_s):
        p, cost = judge(snapshot, version.placements, version.uses, version.spare_workflows)
        rivals.append(Judged(rule=rule, probability=p, usd=cost))
    return Comparison(
        number=number,
        kind=kind,
        requested=snapshot.workflow_set.probability,
        ours=Judged(rule=plan.policy, probability=probability, usd=usd),
        rivals=tuple(rivals),
        seconds=seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=144)
    parser.add_argument("--source", choices=tuple(SOURCES), default="random")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--effort", type=float, default=Options().effort_s)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each set")
    chosen = parser.parse_args()
    jobs = [(n, chosen.effort) for n in range(chosen.first, chosen.first + chosen.count)]
    results = []
    with ProcessPoolExecutor(chosen.processes) as pool:
        for result in pool.map(partial(compare, source=chosen.source), jobs, chunksize=2):
            results.append(result)
            if chosen.json:
                print(json.dumps(asdict(result)), flush=True)
            elif (result.short > _PROMISE or result.dearer > 0) and result.best:
                print(f"  {result}", flush=True)
    print(table(results))


def table(results: Sequence[Comparison]) -> str:
    """Return the comparison by kind of set."""
    lines = [
        "| kind | sets | worse > .005 | worst | dearer > 5 % | mean ours | mean best rival |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for kind in [*sorted({r.kind for r in results}), ""]:
        rows = [r for r in results if kind in ("", r.kind)]
        best = [r.best.probability if r.best else 0.0 for r in rows]
        lines.append(
            f"| {kind or 'all'} | {len(rows)} | {sum(r.short > _PROMISE for r in rows)} | "
            f"{max(r.short for r in rows):.3f} | {sum(r.dearer > 0 for r in rows)} | "
            f"{np.mean([r.ours.probability for r in rows]):.4f} | {np.mean(best):.4f} |"
        )
    seconds = [r.seconds for r in results]
    lines.append(f"planning: median {np.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
