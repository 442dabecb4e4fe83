"""Our plans against exhaustive search over slot orders, on tiny sets.

``python -m benchmarks.planning.bench_optimum --count 100``. Enumerated: replicas of every task in
some of the slots, in every order in each slot, each as early as it can; workflows beyond the needed
ones may be absent. The best are chosen in 128, then 1,024, then 32,768 scenarios, and judged with
ours in as many others. Probabilities count up to the requested one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.planning.judging import CHOICE, Candidate, default_plan, judge
from benchmarks.planning.simple_plans import Placements, slot_uses
from vgrads.kernel.streams import stream
from vgrads.planner.plan import Placement, SlotUse
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_BRIEF, _CLOSER, _MANY = 128, 1_024, 32_768  # scenarios
_CLOSER_COUNT, _MANY_COUNT = 200, 12  # candidates that are simulated in more of them
_MOST_PLANS, _MOST_STEPS = 40_000, 400_000
_REQUESTED = 0.999
_SHORT = 0.02
Row = tuple[float, int, int]
"""Start, slot and task of a replica, these by number."""


def tiny_snapshot(number: int) -> Snapshot:
    """Draw one to three workflows of at most six tasks together, two or three narrow slots; every
    third set: two workflows, both needed, with a tight deadline."""
    draws = stream(number, "tiny sets of orders")
    both = number % 3 == 0
    slots_count = int(draws.integers(2, 4))
    most = 4 if slots_count == 3 else 6
    total = int(draws.integers(4 if both else 2, most + 1))
    sizes = _sizes(total, both, draws)
    workflows = [_tiny_workflow(f"w{n}", size, draws) for n, size in enumerate(sizes)]
    longest_s = max(w.critical_path_s(1.0) for w in workflows)
    tightness = [1.1, 1.3, 1.6] if both else [1.1, 1.5, 2.5]
    deadline_s = float(draws.choice(tightness)) * longest_s
    workflow_set = WorkflowSet(
        name="tiny",
        workflows=tuple(workflows),
        deadline_s=deadline_s,
        needed=len(workflows) if both else int(draws.integers(1, len(workflows) + 1)),
        probability=_REQUESTED,
    )
    slots = tuple(_tiny_slot(n, deadline_s, draws) for n in range(slots_count))
    return Snapshot(workflow_set=workflow_set, slots=slots, seed=number)


def _sizes(total: int, both: bool, draws: np.random.Generator) -> list[int]:
    if both:
        first = int(draws.integers(1, total))
        return [first, total - first]
    results: list[int] = []
    while sum(results) < total:
        results.append(int(draws.integers(1, total - sum(results) + 1)))
    return results


def _tiny_workflow(name: str, size: int, draws: np.random.Generator) -> Workflow:
    tasks = [
        Task(
            id=f"t{n}",
            runtime_s=float(draws.uniform(100, 900)),
            procs=int(draws.integers(1, 3)),
            parents=tuple(f"t{m}" for m in range(n) if draws.random() < 0.5),
        )
        for n in range(size)
    ]
    return make_workflow(name, tasks, {})


def _tiny_slot(number: int, deadline_s: float, draws: np.random.Generator) -> Slot:
    times_s = np.linspace(0.0, deadline_s, 40)
    best, scale_s = float(draws.uniform(0.5, 0.95)), float(draws.uniform(0.05, 0.6)) * deadline_s
    return Slot(
        id=f"s{number}",
        site=f"x{number}",
        queue="q",
        kind="batch",
        procs=int(draws.integers(2, 4)),
        curve=StartCurve(times_s, best * (1 - np.exp(-times_s / scale_s))),
        end_s=deadline_s,
        shared=f"x{number}",
        up=float(draws.uniform(0.9, 1.0)),
    )


class _TooManyError(Exception):
    """A set has too many plans."""


class _Enumeration:
    """All different plans in which every replica starts as early as it can without overtaking one
    before it in its slot, added by ascending start."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.slots, workflow_set = snapshot.slots, snapshot.workflow_set
        self.keys = [(w.name, t) for w in workflow_set.workflows for t in w.order]
        self.tasks = [snapshot.task(key) for key in self.keys]
        numbers = {key: n for n, key in enumerate(self.keys)}
        self.parents = [
            [numbers[key[0], p] for p in task.parents]
            for key, task in zip(self.keys, self.tasks, strict=True)
        ]
        self.lengths_s = [[snapshot.duration_s(t, s) for s in self.slots] for t in self.tasks]
        self.limits_s = [min(s.end_s, workflow_set.deadline_s) for s in self.slots]
        self.moved_s = {
            (p, n, a, b): self._moved_s(p, n, a, b)
            for n, above in enumerate(self.parents)
            for p in above
            for a, b in product(range(len(self.slots)), repeat=2)
        }
        self.rows: list[Row] = []
        self.plans: list[Placements] = []
        self._visited: set[frozenset[Row]] = set()

    def _moved_s(self, parent: int, child: int, slot: int, other: int) -> float:
        workflow = self.snapshot.workflow_by_name[self.keys[child][0]]
        sites = self.slots[slot].site, self.slots[other].site
        return self.snapshot.transfer_s(workflow, self.keys[parent][1], self.keys[child][1], sites)

    def extend(self) -> None:
        """Add each possible next replica in turn; note every plan of enough whole workflows."""
        rows = frozenset(self.rows)
        if rows in self._visited:  # two that start together in a slot, in the other order
            return
        self._visited.add(rows)
        if len(self._visited) > _MOST_STEPS or len(self.plans) > _MOST_PLANS:
            raise _TooManyError
        if self._is_whole():
            self.plans.append(self._placements())
        last = self.rows[-1][:2] if self.rows else (0.0, -1)
        placed = {(slot, task) for _, slot, task in self.rows}
        for slot, task in product(range(len(self.slots)), range(len(self.tasks))):
            if (slot, task) in placed:
                continue
            start_s = self._start_s(slot, task)
            is_late = start_s + self.lengths_s[task][slot] > self.limits_s[slot] + 1e-9
            if not is_late and (start_s, slot) >= last:
                self.rows.append((start_s, slot, task))
                self.extend()
                self.rows.pop()

    def _is_whole(self) -> bool:
        placed = {self.keys[task] for _, _, task in self.rows}
        names = {workflow for workflow, _ in placed}
        size = sum(len(self.snapshot.workflow_by_name[name].tasks) for name in names)
        return len(placed) == size and len(names) >= self.snapshot.workflow_set.needed

    def _start_s(self, slot: int, task: int) -> float:
        """Return the earliest start; ``inf`` while a parent has no replica, or if the slot is too
        narrow."""
        here = [(start_s, n) for start_s, s, n in self.rows if s == slot]
        ready_s = max((start_s for start_s, _ in here), default=0.0)
        for parent in self.parents[task]:
            arrivals_s = [
                start_s + self.lengths_s[n][s] + self.moved_s[parent, task, s, slot]
                for start_s, s, n in self.rows
                if n == parent
            ]
            ready_s = max(ready_s, min(arrivals_s, default=math.inf))
        if ready_s == math.inf:
            return ready_s
        running = [(start_s + self.lengths_s[n][slot], self.tasks[n].procs) for start_s, n in here]
        free = self.slots[slot].procs - self.tasks[task].procs
        for instant_s in (ready_s, *sorted(end_s for end_s, _ in running if end_s > ready_s)):
            if sum(procs for end_s, procs in running if end_s > instant_s) <= free:
                return instant_s
        return math.inf

    def _placements(self) -> Placements:
        counts = [0] * len(self.tasks)
        results = []
        for start_s, slot, task in self.rows:
            workflow, name = self.keys[task]
            results.append(
                Placement(
                    workflow=workflow,
                    task=name,
                    replica=counts[task],
                    slot=self.slots[slot].id,
                    start_s=start_s,
                    end_s=start_s + self.lengths_s[task][slot],
                    procs=self.tasks[task].procs,
                )
            )
            counts[task] += 1
        return tuple(results)


def enumerate_plans(snapshot: Snapshot) -> list[Placements] | None:
    """Return the plans of all slot orders that place enough workflows; None if there are too
    many."""
    enumeration = _Enumeration(snapshot)
    try:
        enumeration.extend()
    except _TooManyError:
        return None
    return enumeration.plans


class _Search:
    """Finds the best of many plans in scenarios of its own."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = replace(snapshot, seed=snapshot.seed + CHOICE, scenarios=_MANY)
        self._submits_s: dict[tuple[tuple[str, float, float], ...], dict[str, float]] = {}

    def best(self, plans: Sequence[Placements]) -> Candidate:
        """Return the most probable plan."""
        closer = self._first(plans, _BRIEF, _CLOSER_COUNT)
        many = self._first(closer, _CLOSER, _MANY_COUNT)
        (placements,) = self._first(many, _MANY, 1)
        return Candidate(rule="enumerated", placements=placements, uses=self._uses(placements))

    def _first(self, plans: Iterable[Placements], scenarios: int, count: int) -> list[Placements]:
        ranked = sorted(plans, key=lambda p: -self._probability(p, scenarios))
        return ranked[:count]

    def _uses(self, placements: Placements) -> tuple[SlotUse, ...]:
        return slot_uses(self.snapshot, placements)

    def _probability(self, placements: Placements, scenarios: int) -> float:
        times_s = tuple((p.slot, p.start_s, p.end_s) for p in placements)
        if times_s not in self._submits_s:
            self._submits_s[times_s] = {u.slot.id: u.submit_s for u in self._uses(placements)}
        submits_s = self._submits_s[times_s]
        simulated = rollout(self.snapshot, placements, submits_s, scenarios=scenarios)
        return simulated.promise(self.snapshot.workflow_set.needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The best enumerated probability of a set, and ours; ``seconds``: processor time of ours."""

    number: int
    plans: int
    best: float
    ours: float
    seconds: float

    @property
    def short(self) -> float:
        """How far ours is below, up to the requested probability."""
        return min(self.best, _REQUESTED) - min(self.ours, _REQUESTED)


def gap(number: int) -> Gap | None:
    """Compare one set; None for those that have no plan or too many."""
    snapshot = tiny_snapshot(number)
    plans = enumerate_plans(snapshot)
    if not plans:
        return None
    plan, seconds = default_plan(snapshot)
    best, ours = judge(snapshot, [_Search(snapshot).best(plans), Candidate.of(plan)], _MANY)
    return Gap(
        number=number,
        plans=len(plans),
        best=best.probability,
        ours=ours.probability,
        seconds=seconds,
    )


def _gaps(first: int, count: int, processes: int) -> Iterator[Gap]:
    """Compare so many sets that can be enumerated."""
    numbers, compared = range(first, first + 20 * count), 0
    with ProcessPoolExecutor(processes) as pool:
        for result in pool.map(gap, numbers):
            if result is not None:
                yield result
                compared += 1
            if compared == count:
                pool.shutdown(cancel_futures=True)
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save", type=Path, help="write all results to this file (JSON)")
    chosen = parser.parse_args()
    gaps: list[Gap] = []
    for result in _gaps(chosen.first, chosen.count, chosen.processes):
        gaps.append(result)
        if result.short > _SHORT / 4:
            print(
                f"  {result.number}: best of {result.plans:,} plans {result.best:.3f}, ours "
                f"{result.ours:.3f}",
                flush=True,
            )
        if chosen.save:
            chosen.save.write_text(json.dumps([asdict(g) for g in gaps]))
    short = [g.short for g in gaps]
    print(
        f"{len(gaps)} sets: below the best of all slot orders by {np.mean(short):.4f} on average, "
        f"{max(short):.3f} at worst, by more than .02 in {sum(s > _SHORT for s in short)}; "
        f"CPU s of planning: median {np.median([g.seconds for g in gaps]):.2f}, longest "
        f"{max(g.seconds for g in gaps):.2f}"
    )


if __name__ == "__main__":
    main()
