"""Promises with learned run times: sets of recorded workflows, planned without any stated time.

A set holds samples of a recorded workflow, each a chain of its kinds of tasks with the recorded
sizes. Run times are learned without the node on which the set runs: from shrunken inputs on the
local one with benchmark scores (``scores``), or from every other node (``others``). The set is
planned there, and the plan is carried out with the times recorded there. Slots are certain, so only
run times are uncertain.

Spreads: ``joint`` as shipped; ``alone``: as wide, each task for itself; ``point``: none.
``control``: joint, with times drawn from the model itself, which shows the gap that chance alone
makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.api.plans.planning import GridSnapshot, plan_set
from vgrads.api.plans.runtimes import RunTimes, learned
from vgrads.kernel.documents import validate
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Plan
from vgrads.planner.promise.lengths import drawn_factor
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.snapshot import Snapshot
from vgrads.research.report import as_json, html_table, study_parser, text_table, write_page
from vgrads.research.runtimes.study import LOCAL, SIZES, records, scores, traces, workflows
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_record import TaskRecord
from vgrads.vgrid.catalog import Catalog, build_catalog
from vgrads.vgrid.documents import SitesDocument
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import EXACT
from vgrads.workflows.task import UNSTATED, Task

LEARNED = ("scores", "others")
SPREADS = ("joint", "alone", "point", "control")
_BINS = 10
_QUICK = Options(effort_s=0.0)
_TIGHT = 0.45  # sd of the logarithm of deadlines around the median time


@dataclass(frozen=True, slots=True)
class SetOutcome:
    """One set: its promise, and whether it was kept."""

    group: str
    promise: float
    kept: bool


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """All sets of a condition: ``gap``: mean distance of promise and share kept over ten bins,
    weighted by sets."""

    learned: str
    spread: str
    sets: int
    groups: int
    promised: float
    kept: float
    gap: float
    brier: float


def rows(folder: Path, draws: int, seed: int = 0) -> tuple[ConditionRow, ...]:
    """Return a row for each way of learning and each spread; ``draws``: sets for each workflow and
    node."""
    results: dict[tuple[str, str], list[SetOutcome]] = {
        (w, s): [] for w in LEARNED for s in SPREADS
    }
    for way in LEARNED:
        for name, node, run_times, tests in _worlds(folder, way):
            for draw in range(draws):
                for spread, set_outcome in _plan_set((name, node, seed + draw), run_times, tests):
                    results[way, spread].append(set_outcome)
    return tuple(_row(way, spread, set_outcomes) for (way, spread), set_outcomes in results.items())


def _worlds(folder: Path, way: str) -> Iterator[tuple[str, str, RunTimes, list[TaskRecord]]]:
    payload = scores(folder)
    for name in workflows(folder):
        frames = traces(folder, name)
        for node in frames:
            if node == LOCAL:
                continue
            if way == "scores":
                task_records = records(
                    frames[LOCAL][frames[LOCAL].label != "test"], LOCAL, SIZES[0]
                )
            else:
                task_records = [
                    r
                    for other, frame in frames.items()
                    if other != node
                    for r in records(frame, other, SIZES[0])
                ]
            tests = records(frames[node][frames[node].label == "test"], node, SIZES[0])
            yield name, node, learned(learn(TaskHistory(), task_records), payload), tests


def _plan_set(
    what: tuple[str, str, int], run_times: RunTimes, tests: Sequence[TaskRecord]
) -> Iterator[tuple[str, SetOutcome]]:
    name, node, seed = what
    draws = stream(seed, name, node)
    catalog = _catalog(node, int(draws.integers(2, 9)))
    flows, true_s = _samples(tests, draws)
    workflow_set = WorkflowSet(
        name=name,
        workflows=flows,
        deadline_s=1e6,
        needed=int(draws.integers(1, len(flows) + 1)),
        probability=0.9,
    )
    grid = GridSnapshot(catalog=catalog, logs={}, instants={}, forecasts={}, run_times=run_times)
    middle_s = _middle_s(plan_set(workflow_set, grid, options=_QUICK).snapshot, catalog)
    workflow_set = replace(
        workflow_set, deadline_s=middle_s * float(np.exp(_TIGHT * draws.standard_normal()))
    )
    joint = plan_set(workflow_set, grid, seed, _QUICK)
    for spread in SPREADS:
        snapshot = replace(
            joint.snapshot, workflow_set=_spread(joint.snapshot.workflow_set, spread)
        )
        plan = joint.plan if spread in ("joint", "control") else make_plan(snapshot, _QUICK)
        if plan.placements:
            truth = (
                _drawn(snapshot, seed) if spread == "control" else _as_recorded(snapshot, true_s)
            )
            yield (
                spread,
                SetOutcome(f"{name}/{node}", plan.promise.probability, _keeps(truth, plan)),
            )


def _catalog(node: str, procs: int) -> Catalog:
    site = {"name": node, "kind": "local", "procs": procs, "driver": "simulated"}
    return build_catalog(validate(SitesDocument, {"site": [site]}, node), Path(), node)


def _samples(
    tests: Sequence[TaskRecord], draws: Any
) -> tuple[tuple[Workflow, ...], Mapping[tuple[str, str], float]]:
    """Draw chains of kinds as recorded, each with its own row; and the real time of each task."""
    by_kind: dict[str, list[TaskRecord]] = {}
    for record in tests:
        by_kind.setdefault(record.kind, []).append(record)
    kinds = [kind for kind in by_kind if draws.random() < 0.6] or list(by_kind)[:1]
    flows, true_s = [], {}
    for n in range(int(draws.integers(2, 7))):
        tasks, sizes, before = [], {}, ""
        for kind in kinds:
            row = by_kind[kind][int(draws.integers(len(by_kind[kind])))]
            sizes[f"{kind}.in"] = (row.input_bytes or 0.0) / 2**20
            parents = (before,) if before else ()
            tasks.append(
                Task(
                    id=kind, runtime_s=UNSTATED, kind=kind, inputs=(f"{kind}.in",), parents=parents
                )
            )
            true_s[f"w-{n}", kind], before = row.seconds, kind
        flows.append(make_workflow(f"w-{n}", tasks, sizes))
    return tuple(flows), true_s


def _middle_s(snapshot: Snapshot, catalog: Catalog) -> float:
    """Return the approximate time of the set if all run times are at their median."""
    speed = max(slot.speed for slot in snapshot.slots)
    lengths = sorted(w.critical_path_s() / speed for w in snapshot.workflow_set.workflows)
    needed = lengths[: snapshot.workflow_set.needed]
    return max(*needed, sum(needed) / catalog.sites[0].procs)


def _spread(workflow_set: WorkflowSet, spread: str) -> WorkflowSet:
    def changed(task: Task) -> Task:
        whole = workflow_set.spread(task)
        runtime_spread = {"alone": whole.alone(whole.total), "point": EXACT}.get(spread, whole)
        return replace(task, spread=runtime_spread)

    flows = tuple(
        replace(w, tasks={n: changed(t) for n, t in w.tasks.items()})
        for w in workflow_set.workflows
    )
    return replace(workflow_set, workflows=flows)


def _exactly(snapshot: Snapshot, seconds: Any) -> Snapshot:
    """Return the same future with certain times: ``seconds(workflow, task)`` at speed 1."""
    flows = tuple(
        replace(
            w,
            tasks={
                n: replace(t, runtime_s=seconds(w, t), spread=EXACT) for n, t in w.tasks.items()
            },
        )
        for w in snapshot.workflow_set.workflows
    )
    return replace(snapshot, workflow_set=replace(snapshot.workflow_set, workflows=flows))


def _as_recorded(snapshot: Snapshot, true_s: Mapping[tuple[str, str], float]) -> Snapshot:
    speed = snapshot.slots[0].speed  # one site, one speed
    return _exactly(snapshot, lambda w, t: true_s[w.name, t.id] * speed)


def _drawn(snapshot: Snapshot, seed: int) -> Snapshot:
    site = snapshot.slots[0].site
    return _exactly(
        snapshot,
        lambda w, t: t.runtime_s * drawn_factor(snapshot, seed + 7, (w.name, t.id, 0), site),
    )


def _keeps(truth: Snapshot, plan: Plan) -> bool:
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    return (
        rollout(truth, plan.placements, submits_s, plan.spare_workflows, 1).promise(plan.needed)
        > 0.5
    )


def _row(way: str, spread: str, set_outcomes: Sequence[SetOutcome]) -> ConditionRow:
    promise = np.array([set_outcome.promise for set_outcome in set_outcomes])
    retained = np.array([float(set_outcome.kept) for set_outcome in set_outcomes])
    bins = np.minimum((promise * _BINS).astype(int), _BINS - 1)
    gap = sum(abs(float((promise - retained)[bins == b].sum())) for b in range(_BINS)) / len(
        set_outcomes
    )
    return ConditionRow(
        learned=way,
        spread=spread,
        sets=len(set_outcomes),
        groups=len({set_outcome.group for set_outcome in set_outcomes}),
        promised=round(float(promise.mean()), 3),
        kept=round(float(retained.mean()), 3),
        gap=round(gap, 3),
        brier=round(float(((promise - retained) ** 2).mean()), 3),
    )


def main(arguments: Sequence[str]) -> None:
    """Run ``vgrads study run-times-kept``."""
    parser = study_parser("run-times-kept", __doc__ or "")
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, help="folder that contains nextflow/"
    )
    parser.add_argument(
        "--draws", type=int, default=20, help="number of sets for each workflow and node"
    )
    chosen = parser.parse_args(arguments)
    condition_rows = rows(chosen.folder / "nextflow", chosen.draws, chosen.seed)
    head = [field.name for field in fields(ConditionRow)]
    cells = [[str(value) for value in asdict(row).values()] for row in condition_rows]
    if chosen.report:
        write_page(chosen.report, "Promises where run times are learned", [html_table(head, cells)])
    print(
        as_json({"rows": [asdict(row) for row in condition_rows]})
        if chosen.json
        else text_table(head, cells)
    )
