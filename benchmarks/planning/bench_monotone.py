"""Promises of easier requests, and remedies: is more given ever worse, and is less enough?

``python -m benchmarks.planning.bench_monotone --count 200 --remedies 60``. Each set is planned
separately with eight deadlines, eight budgets and every number of needed workflows; a promise more
than .01 below that of a harder request counts, as stated and in scenarios that no planner has used,
and both also up to the requested probability. Remedies of tight sets on the shipped sites are
requested, and 5 % less of each (one workflow less): that should not suffice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from benchmarks.planning.judging import Candidate, default_plan, judge
from benchmarks.planning.random_sets import (
    random_snapshot,
    recorded_snapshot,
    shipped_set,
    tight_set,
    tight_snapshot,
)
from vgrads.api.plans.planning import GridSnapshot, plan_set, take_snapshot
from vgrads.kernel.compile_state import working_time_s
from vgrads.planner.make import Options
from vgrads.planner.plan import Plan, Relaxation
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.sets import WorkflowSet

_TOLERANCE = 0.01
_SCENARIOS = 12_288
_DEADLINES = (1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
_BUDGETS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 2.0)  # of the cost without a budget
_LESS = 0.95  # of the change of a remedy
_MOST_RECORDED = 120  # tasks of a recorded set: each is planned twenty times
Number = TypeVar("Number", int, float)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The promise of one of several requests, as stated and as judged; ``seconds``: processor
    time of planning."""

    step: float
    stated: float
    judged: float
    usd: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Answers to requests that differ in one thing, from hard to easy."""

    set_name: str
    axis: str
    requested: float
    answers: tuple[Answer, ...]

    def drops(self, field: str, limit: float = 1.0) -> list[float]:
        """Return by how much each answer is below the best of a harder request, up to a limit."""
        values = [min(getattr(answer, field), limit) for answer in self.answers]
        return [max(values[:n]) - values[n] for n in range(1, len(values))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A remedy of a set: what is promised and judged with it (``exact``), and with less of it.

    ``less``: None if there is nothing less that could be tried.
    """

    set_number: int
    change: str
    amount: float
    unit: str
    requested: float
    exact: Answer
    less: Answer | None

    @property
    def is_minimal(self) -> bool:
        """True if less of it does not reach the request."""
        return self.less is None or self.less.stated < self.requested

    @property
    def is_verified(self) -> bool:
        """True if it reaches the request in other scenarios too."""
        return self.exact.judged >= self.requested - _TOLERANCE


def _answer(step: float, snapshot: Snapshot, plan: Plan, seconds: float) -> Answer:
    (judged,) = judge(snapshot, [Candidate.of(plan)], _SCENARIOS)
    return Answer(
        step=step,
        stated=plan.promise.probability,
        judged=judged.probability,
        usd=judged.usd,
        seconds=seconds,
    )


def _series(
    name: str, axis: str, steps: Sequence[float], snapshot_at: Callable[[float], Snapshot]
) -> Series:
    answers = []
    for step in steps:
        snapshot = snapshot_at(step)
        plan, seconds = default_plan(snapshot)
        answers.append(_answer(step, snapshot, plan, seconds))
    return Series(
        set_name=name,
        axis=axis,
        requested=snapshot.workflow_set.probability,
        answers=tuple(answers),
    )


def extended(snapshot: Snapshot, factor: float) -> Snapshot:
    """Return the same with a later deadline, until which its slots last; none starts later than
    before."""
    workflow_set = snapshot.workflow_set
    more_s = (factor - 1.0) * workflow_set.deadline_s
    return replace(
        snapshot,
        workflow_set=replace(workflow_set, deadline_s=workflow_set.deadline_s + more_s),
        slots=tuple(replace(slot, end_s=slot.end_s + more_s) for slot in snapshot.slots),
    )


def question(number: int) -> tuple[str, Snapshot, Callable[[float], Snapshot]]:
    """Return a set, its kind, and the same set with its deadline multiplied; in turn of the random
    ones, the tight ones, recorded workflows and LEAD on the shipped sites."""
    if number % 4 == 3:
        workflow_set, grid = shipped_set(number)

        def offered(factor: float) -> Snapshot:
            later_s = factor * workflow_set.deadline_s
            return take_snapshot(replace(workflow_set, deadline_s=later_s), grid, number)

        return f"shipped {number}", offered(1.0), offered
    kind, snapshot = (tight_snapshot if number % 4 == 1 else random_snapshot)(number)
    if number % 4 == 2:
        kind, snapshot = next(
            item
            for n in range(1000)
            if (item := recorded_snapshot(number + 100_000 * n))[1].workflow_set.task_count
            <= _MOST_RECORDED
        )
    return f"{kind} {number}", snapshot, lambda factor: extended(snapshot, factor)


def all_series(number: int) -> list[Series]:
    """Plan a set with other deadlines, budgets and numbers of needed workflows."""
    name, snapshot, by_deadline = question(number)
    workflow_set = snapshot.workflow_set
    results = [_series(name, "deadline", _DEADLINES, by_deadline)]

    def needing(count: float) -> Snapshot:
        return replace(snapshot, workflow_set=replace(workflow_set, needed=int(count)))

    counts = range(len(workflow_set.workflows), 0, -1)
    if len(counts) > 1:
        results.append(_series(name, "needed", counts, needing))

    def within(usd: float) -> Snapshot:
        return replace(snapshot, workflow_set=replace(workflow_set, budget_usd=usd))

    if any(slot.paid for slot in snapshot.slots):
        free = replace(snapshot, workflow_set=replace(workflow_set, budget_usd=None))
        most_usd = max(1.0, default_plan(free)[0].cost_usd)
        budgets = [round(share * most_usd, 2) for share in _BUDGETS]
        results.append(_series(name, "budget", budgets, within))
    return results


class _Remedies:
    """A tight set with the remedies of its plan."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.workflow_set, self.grid = tight_set(number)
        self.planned = plan_set(self.workflow_set, self.grid, number)

    def all(self) -> Iterator[Remedy]:
        """Request each remedy, and less of it."""
        for relaxation in self.planned.plan.relaxations:
            less = self._less(relaxation)
            yield Remedy(
                set_number=self.number,
                change=relaxation.change.partition(" in ")[0],
                amount=relaxation.amount,
                unit=relaxation.unit,
                requested=self.workflow_set.probability,
                exact=self._try(relaxation, relaxation.amount),
                less=self._try(relaxation, less) if less > 0 else None,
            )

    def _less(self, relaxation: Relaxation) -> float:
        """Return 5 % less of a change, at least one of what can be counted."""
        if relaxation.unit == "workflows":
            return relaxation.amount - 1
        if relaxation.unit == "processors":
            return float(int(min(_LESS * relaxation.amount, relaxation.amount - 1)))
        return round(_LESS * relaxation.amount, 2)

    def _try(self, relaxation: Relaxation, amount: float) -> Answer:
        begin_s = working_time_s()
        snapshot, plan = self._changed(relaxation, amount)
        return _answer(amount, snapshot, plan, working_time_s() - begin_s)

    def _changed(self, relaxation: Relaxation, amount: float) -> tuple[Snapshot, Plan]:
        workflow_set = self.workflow_set
        if relaxation.unit == "processors":
            slot_id = relaxation.change.partition(" in ")[2]
            slots = tuple(
                replace(s, procs=s.procs + int(amount)) if s.id == slot_id else s
                for s in self.planned.snapshot.slots
            )
            snapshot = replace(self.planned.snapshot, slots=slots)
            return snapshot, default_plan(snapshot)[0]
        if relaxation.unit == "workflows":
            changed = replace(workflow_set, needed=workflow_set.needed - int(amount))
        elif relaxation.unit == "USD":
            changed = replace(workflow_set, budget_usd=workflow_set.most_usd + amount)
        else:
            changed = replace(workflow_set, deadline_s=workflow_set.deadline_s + amount)
        return _planned(changed, self.grid, self.number)


def _planned(workflow_set: WorkflowSet, grid: GridSnapshot, seed: int) -> tuple[Snapshot, Plan]:
    planned = plan_set(workflow_set, grid, seed, Options(relax=False))
    return planned.snapshot, planned.plan


def remedies(number: int) -> list[Remedy]:
    """Request the remedies of a tight set."""
    return list(_Remedies(number).all())


def series_table(results: Sequence[Series]) -> str:
    """Return, by what differs, how many promises fall, and by how much at worst."""
    lines = [
        "| easier by | easier requests | stated: lower by > .01 (worst) | up to the requested | "
        "judged: lower by > .01 (worst) | up to the requested |",
        "| --- |" + " --: |" * 5,
    ]
    for axis in dict.fromkeys(r.axis for r in results):
        rows = [r for r in results if r.axis == axis]
        cells = []
        for field in ("stated", "judged"):
            for drops in (
                [d for r in rows for d in r.drops(field)],
                [d for r in rows for d in r.drops(field, r.requested)],
            ):
                count = sum(d > _TOLERANCE for d in drops)
                cells.append(f"{count} ({max(0.0, *drops):.3f})")
        easier = sum(len(r.answers) - 1 for r in rows)
        lines.append(f"| {axis} | {easier} | {' | '.join(cells)} |")
    return "\n".join(lines)


def remedy_table(results: Sequence[Remedy]) -> str:
    """Return, by change, how many remedies are not minimal or not verified."""
    lines = ["| remedy | stated | not minimal | not verified | lowest, judged − requested |"]
    lines.append("| --- |" + " --: |" * 4)
    for change in dict.fromkeys(r.change for r in results):
        rows = [r for r in results if r.change == change]
        lowest = min(r.exact.judged - r.requested for r in rows)
        lines.append(
            f"| {change} | {len(rows)} | {sum(not r.is_minimal for r in rows)} | "
            f"{sum(not r.is_verified for r in rows)} | {lowest:+.3f} |"
        )
    return "\n".join(lines)


def _run(
    work: Callable[[int], list[Result]], numbers: Sequence[int], processes: int
) -> Iterator[Result]:
    if processes == 1:
        for number in numbers:
            yield from work(number)
        return
    with ProcessPoolExecutor(processes) as pool:
        for results in pool.map(work, numbers):
            yield from results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="sets with other requests")
    parser.add_argument("--remedies", type=int, default=20, help="tight sets with remedies")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save", type=Path, help="write all results to this file (JSON)")
    chosen = parser.parse_args()
    series: list[Series] = []
    changes: list[Remedy] = []

    def save() -> None:
        if chosen.save:
            rows = {"series": list(map(asdict, series)), "remedies": list(map(asdict, changes))}
            chosen.save.write_text(json.dumps(rows))

    numbers = range(chosen.first, chosen.first + chosen.count)
    for result in _run(all_series, numbers, chosen.processes):
        series.append(result)
        if max(result.drops("judged", result.requested), default=0.0) > _TOLERANCE:
            print(
                f"  {result.set_name}, {result.axis}: requested {result.requested}, judged "
                + ", ".join(f"{a.step:g}: {a.judged:.3f}" for a in result.answers),
                flush=True,
            )
        save()
    if series:
        print(series_table(series), flush=True)
    numbers = range(chosen.first, chosen.first + chosen.remedies)
    for remedy in _run(remedies, numbers, chosen.processes):
        changes.append(remedy)
        if not remedy.is_minimal or not remedy.is_verified:
            less = f"{remedy.less.step:g} {remedy.less.stated:.3f}" if remedy.less else "–"
            print(
                f"  tight {remedy.set_number}: requested {remedy.requested}, {remedy.change} "
                f"{remedy.amount:g} {remedy.unit}: judged {remedy.exact.judged:.3f}; less: {less}",
                flush=True,
            )
        save()
    if changes:
        print(remedy_table(changes))


if __name__ == "__main__":
    main()
