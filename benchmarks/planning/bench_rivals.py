"""Our plans against plans that need no planner, on random sets.

``python -m benchmarks.planning.bench_rivals --source all --count 100 --save after.json --against
before.json``. Rivals: ten simple rules (:mod:`benchmarks.planning.simple_plans`), within the
budget, each with the better of no early release and the earliest one. Rivals are chosen in
scenarios of their own; then the best, the cheapest and that with the fewest hours are judged with
ours in the same scenarios, which neither has used. Probabilities count up to the requested one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planning.judging import CHOICE, EVERYTHING, Candidate, Judged, default_plan, judge
from benchmarks.planning.random_sets import SOURCES
from benchmarks.planning.simple_plans import simple_plans
from vgrads.planner.snapshot import Snapshot

_WORSE, _MUCH_WORSE = 0.005, 0.02
_PRICE, _CENT = 1.03, 0.01
_HOURS, _HOURS_SHARE = 0.01, 1.05
_SCREENED = 1_000_000  # simulated replicas of each version of a rival
_SCREEN_LIMITS = 256, 2_048  # scenarios of a screening
_CLOSE = 0.01  # of our promise in the screening, for rivals that may cost less
_SEMIFINAL = 4  # rivals that are compared in four times as many scenarios


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A judged plan of one set."""

    rule: str
    probability: float
    usd: float
    hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours and the rivals on one set, the most probable rival first; ``error``: standard error of
    the difference to that; ``seconds``: processor time of planning."""

    source: str
    number: int
    kind: str
    requested: float
    ours: Result
    rivals: tuple[Result, ...]
    error: float
    seconds: float

    def __str__(self) -> str:
        best = self.best
        rival = f"{best.rule} {best.probability:.3f} ${best.usd:.2f}" if best else "no rival"
        return (
            f"{self.source} {self.number} ({self.kind}): requested {self.requested}, ours "
            f"{self.ours.probability:.3f} ${self.ours.usd:.2f} {self.ours.hours:.1f} h, {rival}; "
            f"short {self.short:.3f} (s.e. {self.error:.3f}), dearer ${self.dearer:.2f}, hours "
            f"{self.longer:.1%} above"
        )

    def worth(self, plan: Result | None) -> float:
        """Return the probability of a plan up to the requested one; 0 of none."""
        return min(plan.probability, self.requested) if plan else 0.0

    @property
    def best(self) -> Result | None:
        """The most probable rival, if any rule makes a plan within the budget."""
        return self.rivals[0] if self.rivals else None

    @property
    def short(self) -> float:
        """How far ours is below the best rival; negative if it is above."""
        return self.worth(self.best) - self.worth(self.ours)

    @property
    def dearer(self) -> float:
        """What ours costs more than a rival of at least its promise, in USD, beyond 3 % and a
        cent."""
        usd = [r.usd for r in self._equal]
        return max(0.0, self.ours.usd - _PRICE * min(usd) - _CENT) if usd else 0.0

    @property
    def longer(self) -> float:
        """By which share ours needs more processor-hours than a rival of at least its promise that
        costs no more, if by more than 5 %."""
        cheap = [r.hours for r in self._equal if r.usd <= self.ours.usd + _CENT / 2]
        hours = min(cheap, default=np.inf)
        over = self.ours.hours > _HOURS_SHARE * hours + _HOURS
        return self.ours.hours / max(hours, 1e-9) - 1 if over else 0.0

    @property
    def _equal(self) -> list[Result]:
        return [r for r in self.rivals if self.worth(r) >= self.worth(self.ours) - 1e-9]


def compare(number: int, source: str = "random") -> Comparison:
    """Plan one set by all rules."""
    kind, snapshot = SOURCES[source](number)
    plan, seconds = default_plan(snapshot)
    ours = Candidate.of(plan)
    candidates = [ours, *_chosen(snapshot, ours)]
    judged = judge(snapshot, candidates)
    rivals = [j for j in judged[1:] if j.usd <= snapshot.workflow_set.most_usd + 1e-9]
    error = 0.0
    if rivals and len(rivals[0].done) == len(judged[0].done):
        difference = rivals[0].done.astype(float) - judged[0].done
        error = float(difference.std() / np.sqrt(len(difference)))
    return Comparison(
        source=source,
        number=number,
        kind=kind,
        requested=snapshot.workflow_set.probability,
        ours=_result(judged[0]),
        rivals=tuple(_result(j) for j in rivals),
        error=error,
        seconds=seconds,
    )


def _result(judged: Judged) -> Result:
    return Result(
        rule=judged.rule, probability=judged.probability, usd=judged.usd, hours=judged.hours
    )


def _chosen(snapshot: Snapshot, ours: Candidate) -> list[Candidate]:
    """Return the best rival, then the cheapest and the one with the fewest hours of those that may
    be as probable as ours; chosen in scenarios of the choice."""
    requested = snapshot.workflow_set.probability
    rivals = list(_versions(snapshot))
    if not rivals:
        return []
    most = max(len(c.placements) for c, _ in rivals)
    count = _screen(most)
    rivals.sort(key=lambda r: r[1].rank(requested), reverse=True)
    first = [c for c, _ in rivals[:_SEMIFINAL]]
    again = judge(snapshot, first, 4 * count, 2 * CHOICE)
    best = first[max(range(len(first)), key=lambda n: again[n].rank(requested))]
    (mine,) = judge(snapshot, [ours], count, CHOICE)
    equal = [r for r in rivals if r[1].worth(requested) >= mine.worth(requested) - _CLOSE]
    cheapest = sorted(equal, key=lambda r: (r[1].usd, r[1].hours))[:2]
    shortest = sorted(equal, key=lambda r: (r[1].usd > mine.usd + _CENT, r[1].hours))[:2]
    results = [best]
    for candidate, _ in (*cheapest, *shortest):
        if all(candidate is not other for other in results):
            results.append(candidate)
    return results


def _screen(replicas: int) -> int:
    fewest, most = _SCREEN_LIMITS
    return max(fewest, min(most, _SCREENED // replicas))


def _versions(snapshot: Snapshot) -> Iterator[tuple[Candidate, Judged]]:
    """Return the better version of each rule, with early release and without, that costs no more
    than the budget on average."""
    workflow_set = snapshot.workflow_set
    for plan in simple_plans(snapshot):
        versions = [
            Candidate(
                rule=plan.rule, placements=plan.placements, uses=plan.uses, spare_workflows=spare
            )
            for spare in (EVERYTHING, 0)
        ]
        judged = judge(snapshot, versions, _screen(len(plan.placements)), CHOICE)
        pairs = [
            (version, result)
            for version, result in zip(versions, judged, strict=True)
            if result.usd <= workflow_set.most_usd + 1e-9
        ]
        if pairs:
            yield max(pairs, key=lambda p: p[1].rank(workflow_set.probability))


def table(results: Sequence[Comparison]) -> str:
    """Return the comparison by kind of set."""
    lines = [
        "| kind | sets | worse > .005 | worse > .02 | worst | dearer > 3 % | hours > 5 % above | "
        "rival short | of these ours better | mean ours | mean best rival | CPU s, median | "
        "longest |",
        "| --- |" + " --: |" * 12,
    ]
    for kind in [*sorted({r.kind for r in results}), ""]:
        rows = [r for r in results if kind in ("", r.kind)]
        worse = sum(r.short > _WORSE for r in rows)
        below = [r for r in rows if r.worth(r.best) < r.requested]
        better = sum(r.short < -_WORSE for r in below)
        seconds = [r.seconds for r in rows]
        lines.append(
            f"| {kind or 'all'} | {len(rows)} | {worse} ({worse / len(rows):.1%}) | "
            f"{sum(r.short > _MUCH_WORSE for r in rows)} | "
            f"{max(0.0, *(r.short for r in rows)):.3f} | {sum(r.dearer > 0 for r in rows)} | "
            f"{sum(r.longer > 0 for r in rows)} | {len(below)} | "
            f"{better} ({better / max(1, len(below)):.0%}) | "
            f"{np.mean([r.worth(r.ours) for r in rows]):.4f} | "
            f"{np.mean([r.worth(r.best) for r in rows]):.4f} | "
            f"{np.median(seconds):.2f} | {max(seconds):.2f} |"
        )
    return "\n".join(lines)


def changes(results: Sequence[Comparison], before: Sequence[Comparison]) -> str:
    """Return how the plans of the same sets differ from earlier ones."""
    earlier = {(r.source, r.number): r for r in before}
    pairs = [(earlier[key], r) for r in results if (key := (r.source, r.number)) in earlier]
    if not pairs:
        return "no set in common with the earlier results"
    gains = [new.worth(new.ours) - old.worth(old.ours) for old, new in pairs]
    lines = [
        f"  {new.source} {new.number} ({new.kind}): {old.ours.probability:.3f} "
        f"${old.ours.usd:.2f} {old.ours.hours:.1f} h before, {new.ours.probability:.3f} "
        f"${new.ours.usd:.2f} {new.ours.hours:.1f} h now"
        for (old, new), gain in zip(pairs, gains, strict=True)
        if abs(gain) > _WORSE
    ]
    seconds = [sum(r.seconds for r in side) for side in zip(*pairs, strict=True)]
    lines.append(
        f"{len(pairs)} sets in common: {sum(g > _WORSE for g in gains)} better and "
        f"{sum(g < -_WORSE for g in gains)} worse by > .005, {np.mean(gains):+.4f} on average; "
        f"USD {sum(new.ours.usd - old.ours.usd for old, new in pairs):+.2f}, hours "
        f"{sum(new.ours.hours - old.ours.hours for old, new in pairs):+.1f}; CPU s "
        f"{seconds[0]:.1f} before, {seconds[1]:.1f} now"
    )
    return "\n".join(lines)


def read_results(path: Path) -> list[Comparison]:
    """Read what ``--save`` has written."""
    return [
        Comparison(
            **{
                **row,
                "ours": Result(**row["ours"]),
                "rivals": tuple(Result(**r) for r in row["rivals"]),
            }
        )
        for row in json.loads(path.read_text())
    ]


def run_all(sources: Sequence[str], chosen: argparse.Namespace) -> Iterator[Comparison]:
    """Compare the sets of all sources, in this process if it is the only one."""
    numbers = range(chosen.first, chosen.first + chosen.count)
    if chosen.processes == 1:
        yield from (compare(number, source) for source in sources for number in numbers)
        return
    with ProcessPoolExecutor(chosen.processes) as pool:
        for source in sources:
            yield from pool.map(partial(compare, source=source), numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", choices=(*SOURCES, "all"), default="random")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=144, help="sets of each source")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each set")
    parser.add_argument("--save", type=Path, help="write all results to this file (JSON)")
    parser.add_argument("--against", type=Path, help="compare with saved results, set by set")
    chosen = parser.parse_args()
    sources = tuple(SOURCES) if chosen.source == "all" else (chosen.source,)
    results: list[Comparison] = []
    for result in run_all(sources, chosen):
        results.append(result)
        if chosen.json:
            print(json.dumps(asdict(result)), flush=True)
        elif result.short > _WORSE or result.dearer > 0 or result.longer > 0:
            print(f"  {result}", flush=True)
        if chosen.save:
            rows: list[dict[str, Any]] = [asdict(r) for r in results]
            chosen.save.write_text(json.dumps(rows))
    print(table(results))
    if chosen.against:
        print(changes(results, read_results(chosen.against)))


if __name__ == "__main__":
    main()
