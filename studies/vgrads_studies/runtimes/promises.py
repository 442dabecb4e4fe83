"""Promises with learned run times: sets of recorded tasks, planned without any stated time.

Each set runs on a machine, or comes from a run, from which nothing was learned
(:mod:`vgrads_studies.runtimes.recorded_sets`). It is planned for deadlines over the whole
distribution of its predicted duration, and each plan is executed with the recorded times. Slots are
certain, so only run times are uncertain.

Spreads: ``joint`` as shipped; ``alone``: as wide, each task for itself; ``none``. ``control``:
joint, with times drawn from the model itself, anew for each plan.

The sets of a spread are sorted by promised probability into fifths. A promise is right if
promised and kept shares of a fifth differ by at most .05 and two standard errors. These are
clustered by the machine or run left out and by the workflow (two ways: Cameron, Gelbach and Miller
2011).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from vgrads.api.plans.planning import GridSnapshot, take_snapshot
from vgrads.api.plans.runtimes import add_run_times
from vgrads.kernel.profile import use_all
from vgrads.kernel.report_page import html_table, write_page
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Plan
from vgrads.planner.promise.executions import simulate_all
from vgrads.planner.promise.lengths import drawn_factor
from vgrads.planner.promise.rollout import SimulatedPlan, rollout
from vgrads.planner.snapshot import Snapshot, TaskKey
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import EXACT
from vgrads.workflows.task import Task
from vgrads_studies.report import as_json, markdown_table, study_parser
from vgrads_studies.runtimes.recorded_sets import LeftOutRuns, SampledSet, targets
from vgrads_studies.runtimes.recorded_tasks import single_site

SPREADS = ("joint", "alone", "none", "control")
TOLERANCE = 0.05
_FIFTHS = 5
_DEADLINES = 5  # of each set of tasks
_QUICK = Options(effort=0.0)
_REQUESTED = (0.5, 0.7, 0.9)
_SCENARIOS = 256
_LATE_S = 1e8  # a deadline that no set exceeds


@dataclass(frozen=True, slots=True)
class SetOutcome:
    """One set: its promise, and whether it was kept."""

    source: str
    workflow: str
    target: str
    promise: float
    kept: bool


@dataclass(frozen=True, slots=True)
class FifthRow:
    """A fifth of the sets of a spread, from the least to the most probable."""

    spread: str
    fifth: int
    sets: int
    promised: float
    kept: float
    gap: float
    two_se: float
    within: bool


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """All sets of a workflow, with the joint spread."""

    source: str
    workflow: str
    targets: int
    sets: int
    promised: float
    kept: float
    brier: float


def outcomes(
    chosen: Iterator[LeftOutRuns], draws: int, seed: int = 0
) -> dict[str, list[SetOutcome]]:
    """Return the outcomes of every spread; ``draws``: sets of tasks for each target, of which each
    deadline makes a set."""
    results: dict[str, list[SetOutcome]] = {spread: [] for spread in SPREADS}
    for target in chosen:
        for draw in range(draws):
            draws_of_set = stream(seed, target.workflow, target.name, str(draw))
            for spread, promise, kept in _plan_set(target, draws_of_set):
                results[spread].append(
                    SetOutcome(target.source, target.workflow, target.name, promise, kept)
                )
    return results


def _plan_set(target: LeftOutRuns, draws: Generator) -> Iterator[tuple[str, float, bool]]:
    """Plan and execute a set for every deadline; return spread, promise, and whether it was
    kept."""
    recorded, seed = target.draw(draws), int(draws.integers(2**31))
    widest = max(t.procs for w in recorded.workflows for t in w.tasks.values())
    catalog = single_site(target.machine, widest * int(draws.integers(1, 5)))
    grid = GridSnapshot(
        catalog=catalog, logs={}, instants={}, forecasts={}, run_times=target.run_times
    )
    stated = WorkflowSet(
        name=target.workflow,
        workflows=recorded.workflows,
        deadline_s=_LATE_S,
        needed=int(draws.integers(1, len(recorded.workflows) + 1)),
        probability=float(draws.choice(_REQUESTED)),
    )
    workflow_set, _ = add_run_times(stated, target.run_times, catalog)
    ends_s = _predicted_s(_snapshot(workflow_set, grid, seed))
    for n in range(_DEADLINES):
        deadline_s = float(np.quantile(ends_s, (n + draws.random()) / _DEADLINES))
        snapshot = _snapshot(replace(workflow_set, deadline_s=deadline_s), grid, seed)
        yield from _execute(snapshot, recorded, int(draws.integers(2**31)))


def _snapshot(workflow_set: WorkflowSet, grid: GridSnapshot, seed: int) -> Snapshot:
    return replace(take_snapshot(workflow_set, grid, seed), scenarios=_SCENARIOS)


def _predicted_s(snapshot: Snapshot) -> NDArray[np.float64]:
    """Return the duration of a set without a deadline in every scenario."""
    return _simulated(snapshot, make_plan(snapshot, _QUICK)).enough_s(snapshot.workflow_set.needed)


def _execute(
    snapshot: Snapshot, recorded: SampledSet, seed: int
) -> Iterator[tuple[str, float, bool]]:
    """Plan with every spread and execute; ``seed``: of the control's times."""
    for spread in SPREADS:
        if spread != "control":
            changed = replace(snapshot, workflow_set=_spread(snapshot.workflow_set, spread))
            plan = make_plan(changed, _QUICK)
            actual = _as_recorded(snapshot, recorded.actual_s)
        if spread == "joint":
            joint = plan
        elif spread == "control":
            plan, actual = joint, _drawn(snapshot, seed)
        if plan.placements:
            done = _simulated(actual, plan, 1).promise(plan.needed)
            yield spread, plan.promise.probability, done > 0.5


def _spread(workflow_set: WorkflowSet, spread: str) -> WorkflowSet:
    def changed(task: Task) -> Task:
        whole = workflow_set.spread(task)
        runtime_spread = {"alone": whole.alone(whole.total), "none": EXACT}.get(spread, whole)
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


def _as_recorded(snapshot: Snapshot, actual_s: Mapping[TaskKey, float]) -> Snapshot:
    speed = snapshot.slots[0].speed  # one site, one speed
    return _exactly(snapshot, lambda w, t: actual_s[w.name, t.id] * speed)


def _drawn(snapshot: Snapshot, seed: int) -> Snapshot:
    site = snapshot.slots[0].site
    return _exactly(
        snapshot,
        lambda w, t: t.runtime_s * drawn_factor(snapshot, seed, (w.name, t.id, 0), site),
    )


def _simulated(snapshot: Snapshot, plan: Plan, scenarios: int | None = None) -> SimulatedPlan:
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    return rollout(snapshot, plan.placements, submits_s, plan.spare_workflows, scenarios)


def fifths(spread: str, set_outcomes: Sequence[SetOutcome]) -> list[FifthRow]:
    """Sort sets by promise, and compare promised and kept shares of each fifth. Sets of equal
    promise are in random order."""
    order = stream(0, "equal promises").permutation(len(set_outcomes))
    ordered = sorted((set_outcomes[at] for at in order), key=lambda s: s.promise)
    parts = [
        [ordered[at] for at in part] for part in np.array_split(np.arange(len(ordered)), _FIFTHS)
    ]
    return [_row(spread, number, part) for number, part in enumerate(parts, 1) if part]


def _row(spread: str, number: int, part: Sequence[SetOutcome]) -> FifthRow:
    promised = float(np.mean([s.promise for s in part]))
    kept = float(np.mean([s.kept for s in part]))
    two_se = 2 * standard_error(part)
    return FifthRow(
        spread=spread,
        fifth=number,
        sets=len(part),
        promised=round(promised, 3),
        kept=round(kept, 3),
        gap=round(abs(promised - kept), 3),
        two_se=round(two_se, 3),
        within=abs(promised - kept) <= TOLERANCE + two_se,
    )


def standard_error(part: Sequence[SetOutcome]) -> float:
    """Return the standard error of kept minus promised, clustered by target and by workflow; at
    least that of clusters of both."""
    both = _variance(part, [(s.workflow, s.target) for s in part])
    targets_ = _variance(part, [(s.source, s.target) for s in part])
    flows = _variance(part, [(s.source, s.workflow) for s in part])
    return float(np.sqrt(max(targets_ + flows - both, both)))


def _variance(part: Sequence[SetOutcome], names: Sequence[object]) -> float:
    off = np.array([s.kept - s.promise for s in part])
    numbers = {name: n for n, name in enumerate(dict.fromkeys(names))}
    sums = np.bincount([numbers[name] for name in names], off - off.mean())
    many = len(numbers)
    return float(sums @ sums) / len(part) ** 2 * many / max(many - 1, 1)


def by_workflow(set_outcomes: Sequence[SetOutcome]) -> list[WorkflowRow]:
    """Return a row for each workflow, over all its targets."""
    groups: dict[tuple[str, str], list[SetOutcome]] = {}
    for outcome in set_outcomes:
        groups.setdefault((outcome.source, outcome.workflow), []).append(outcome)
    return [
        WorkflowRow(
            source=source,
            workflow=workflow,
            targets=len({s.target for s in group}),
            sets=len(group),
            promised=round(float(np.mean([s.promise for s in group])), 3),
            kept=round(float(np.mean([s.kept for s in group])), 3),
            brier=round(float(np.mean([(s.promise - s.kept) ** 2 for s in group])), 3),
        )
        for (source, workflow), group in groups.items()
    ]


def _compile() -> None:
    """Use the compiled forms from the beginning: thousands of plans pay for compilation, and each
    call of the others looks for stored forms on disk."""
    for function in (simulate_all, use_all):
        function.fast  # noqa: B018


def _conclusion(sets: Sequence[SetOutcome]) -> str:
    promised, kept = np.mean([s.promise for s in sets]), np.mean([s.kept for s in sets])
    return f"{len(sets)} sets: {promised:.3f} was promised on average, {kept:.3f} were kept."


def main(arguments: Sequence[str]) -> None:
    """Run ``vgrads study run-times-kept``."""
    parser = study_parser("run-times-kept", __doc__ or "")
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="folder that contains nextflow/ and workflows/wfformat/",
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=4,
        help="sets of tasks for each node or run, five deadlines each",
    )
    chosen = parser.parse_args(arguments)
    _compile()
    results = outcomes(targets(chosen.folder), chosen.draws, chosen.seed)
    tables: dict[str, Sequence[Any]] = {
        "fifths": [row for spread, sets in results.items() for row in fifths(spread, sets)],
        "workflows": by_workflow(results["joint"]),
    }
    named = {name: _cells(rows) for name, rows in tables.items()}
    if chosen.report:
        write_page(
            chosen.report,
            "Promises where run times are learned",
            _conclusion(results["joint"]),
            [html_table(*table) for table in named.values()],
        )
    if chosen.json:
        print(as_json({name: [asdict(row) for row in rows] for name, rows in tables.items()}))
    else:
        print("\n\n".join(markdown_table(*table) for table in named.values()))


def _cells(rows: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and cells of a table of rows of one class."""
    return (
        [field.name for field in fields(rows[0])],
        [[str(value) for value in asdict(row).values()] for row in rows],
    )
