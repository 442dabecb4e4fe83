"""Random workflow sets of several kinds, with slots on offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from vgrads_studies.promises.quality import random_dag, random_slots
from vgrads_studies.promises.replication import lead

from vgrads.api.config import embedded_data
from vgrads.api.plans.planning import GridSnapshot, open_grid, take_snapshot
from vgrads.kernel.streams import stream
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.slot import Slot, StartCurve, make_certain_curve
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

RECORDED = Path(__file__).resolve().parents[2].parent / "shared" / "traces" / "workflows"
_MOST_RECORDED = 120  # tasks of a workflow
Draws = np.random.Generator
Kinds = dict[str, Callable[[Draws], Snapshot]]


def random_snapshot(number: int) -> tuple[str, Snapshot]:
    """Return a set of one of the kinds, in turn, and its kind."""
    return _of_kind(KINDS, number)


def tight_snapshot(number: int) -> tuple[str, Snapshot]:
    """Return a set of one of the kinds that leave little room or time."""
    return _of_kind(TIGHT_KINDS, number)


def _of_kind(kinds: Kinds, number: int) -> tuple[str, Snapshot]:
    names = sorted(kinds)
    name = names[number % len(names)]
    return name, replace(kinds[name](stream(number, "rivals", name)), seed=number)


def _snapshot(shape: Workflow, draws: Draws, **more: object) -> Snapshot:
    tightness = float(draws.choice([1.05, 1.15, 1.4, 2.0, 3.0]))
    count = int(draws.integers(1, 7))
    deadline_s = tightness * max(shape.critical_path_s(10.0), 600.0)
    workflow_set = WorkflowSet(
        name="random",
        workflows=tuple(shape.renamed(f"w{n}") for n in range(count)),
        deadline_s=deadline_s,
        needed=int(draws.integers(1, count + 1)),
        probability=float(draws.choice([0.8, 0.9, 0.95, 0.99])),
        **more,  # type: ignore[arg-type]
    )
    return Snapshot(workflow_set=workflow_set, slots=random_slots(deadline_s, draws))


def mixed(draws: Draws) -> Snapshot:
    """Random DAGs over two or three queues, a free and a paid cloud."""
    return _snapshot(random_dag(draws), draws)


def uncertain(draws: Draws) -> Snapshot:
    """The same with uncertain run times."""
    spread = float(draws.uniform(0.05, 0.4))
    return _snapshot(random_dag(draws), draws, runtime_spread=spread)


def budgeted(draws: Draws) -> Snapshot:
    """The same with a budget."""
    return _snapshot(random_dag(draws), draws, budget_usd=float(draws.choice([0.5, 1, 2, 5, 10])))


def failing(draws: Draws) -> Snapshot:
    """Slots in which tasks fail."""
    snapshot = _snapshot(random_dag(draws), draws)
    slots = tuple(replace(s, task_failure=float(draws.uniform(0, 0.03))) for s in snapshot.slots)
    return replace(snapshot, slots=slots)


def queues_only(draws: Draws) -> Snapshot:
    """LEAD over queues, without a cloud."""
    snapshot = _snapshot(lead(), draws)
    return replace(snapshot, slots=tuple(s for s in snapshot.slots if s.queue))


def chains(draws: Draws) -> Snapshot:
    """Chains of one to four tasks of different lengths over narrow slots, one paid."""
    workflows = []
    for n in range(int(draws.integers(1, 9))):
        tasks = [
            Task(
                id=f"t{m}",
                runtime_s=float(draws.lognormal(6.0, 0.8)),
                procs=int(draws.choice([1, 1, 2])),
                parents=(f"t{m - 1}",) if m else (),
            )
            for m in range(int(draws.integers(1, 5)))
        ]
        workflows.append(make_workflow(f"w{n}", tasks, {}))
    longest = max(w.critical_path_s(10.0) for w in workflows)
    deadline_s = float(draws.choice([1.1, 1.5, 2.5, 4.0])) * longest
    slots = []
    for n in range(int(draws.integers(2, 6))):
        times = np.linspace(0.0, deadline_s, 50)
        best, scale = float(draws.uniform(0.5, 0.99)), float(draws.uniform(0.05, 0.8)) * deadline_s
        slots.append(
            Slot(
                id=f"s{n}",
                site=f"x{n % 3}",
                queue="q",
                kind="batch",
                procs=int(draws.choice([1, 2, 4])),
                curve=StartCurve(times, best * (1 - np.exp(-times / scale))),
                end_s=deadline_s,
                shared=f"x{n % 3}",
                up=float(draws.uniform(0.9, 1.0)),
            )
        )
    boot = make_certain_curve(float(draws.uniform(60, 300)), float(draws.uniform(0.85, 0.99)))
    slots.append(
        Slot(
            id="c",
            site="c",
            queue="",
            kind="cloud",
            procs=4,
            curve=boot,
            end_s=deadline_s,
            shared="c",
            price_usd_per_hour=0.5,
        )
    )
    workflow_set = WorkflowSet(
        name="chains",
        workflows=tuple(workflows),
        deadline_s=deadline_s,
        needed=int(draws.integers(1, len(workflows) + 1)),
        probability=float(draws.choice([0.9, 0.99])),
    )
    return Snapshot(workflow_set=workflow_set, slots=tuple(slots))


def different(draws: Draws) -> Snapshot:
    """Workflows of different shapes, tight for the longest, over few queues."""
    count = int(draws.integers(2, 7))
    workflows = tuple(random_dag(draws).renamed(f"w{n}") for n in range(count))
    longest_s = max(w.critical_path_s(10.0) for w in workflows)
    return _tight(workflows, float(draws.uniform(1.02, 1.5)) * longest_s, 8, draws)


def narrow(draws: Draws) -> Snapshot:
    """Short workflows, most of them needed, over two to four narrow queues."""
    workflows = []
    for n in range(int(draws.integers(2, 6))):
        tasks = [
            Task(
                id=f"t{m}",
                runtime_s=float(draws.uniform(100, 900)),
                procs=int(draws.integers(1, 3)),
                parents=tuple(f"t{k}" for k in range(m) if draws.random() < 0.4),
            )
            for m in range(int(draws.integers(1, 6)))
        ]
        workflows.append(make_workflow(f"w{n}", tasks, {}))
    longest_s = max(w.critical_path_s(10.0) for w in workflows)
    return _tight(tuple(workflows), float(draws.uniform(1.05, 2.5)) * longest_s, 2, draws)


def tight(draws: Draws) -> Snapshot:
    """Equal workflows with a deadline close to their critical path."""
    shape = lead() if draws.random() < 0.3 else random_dag(draws)
    workflows = tuple(shape.renamed(f"w{n}") for n in range(int(draws.integers(1, 7))))
    deadline_s = float(draws.uniform(1.02, 1.25)) * shape.critical_path_s(10.0)
    return _tight(workflows, deadline_s, 16, draws)


def _tight(
    workflows: tuple[Workflow, ...], deadline_s: float, procs: int, draws: Draws
) -> Snapshot:
    """Half of the workflows or more are needed; queues with waits short enough for them, of so many
    processors or twice as many, and in half of the sets two paid slots, perhaps with a budget."""
    slots = []
    for n in range(int(draws.integers(2, 6))):
        times_s = np.linspace(0.0, deadline_s, 100)
        scale_s = float(draws.uniform(0.02, 0.3)) * deadline_s
        best = float(draws.uniform(0.5, 0.98))
        slots.append(
            Slot(
                id=f"s{n}",
                site=f"x{n % 3}",
                queue="q",
                kind="batch",
                procs=procs * int(draws.integers(1, 3)),
                curve=StartCurve(times_s, best * (1 - np.exp(-times_s / scale_s))),
                end_s=deadline_s,
                shared=f"x{n % 3}",
                up=float(draws.uniform(0.9, 1.0)),
                speed=float(draws.choice([1.0, 1.0, 1.3])),
            )
        )
    is_sold = draws.random() < 0.5
    for n in range(2 if is_sold else 0):
        boot = make_certain_curve(float(draws.uniform(0.01, 0.15)) * deadline_s, 0.97)
        slots.append(
            Slot(
                id=f"c{n}",
                site="c",
                queue="",
                kind="cloud",
                procs=procs,
                curve=boot,
                end_s=deadline_s,
                shared=f"c{n}",
                price_usd_per_hour=0.7,
            )
        )
    workflow_set = WorkflowSet(
        name="tight",
        workflows=workflows,
        deadline_s=deadline_s,
        needed=int(draws.integers((len(workflows) + 1) // 2, len(workflows) + 1)),
        probability=float(draws.choice([0.8, 0.9, 0.95, 0.99])),
        budget_usd=float(draws.choice([0.5, 1.0, 3.0])) if draws.random() < 0.5 else None,
    )
    return Snapshot(workflow_set=workflow_set, slots=tuple(slots))


def _by_name(*functions: Callable[[Draws], Snapshot]) -> Kinds:
    return {function.__name__: function for function in functions}


KINDS = _by_name(mixed, uncertain, budgeted, failing, queues_only, chains)
TIGHT_KINDS = _by_name(different, narrow, tight)


def shipped_grid(draws: Draws) -> GridSnapshot:
    """Return the shipped sites at one of their instants."""
    catalog = load_catalog(embedded_data() / "sites.toml")
    return open_grid(catalog, float(draws.uniform(5.0, 28.0)) * 86_400.0)


def shipped_set(number: int) -> tuple[WorkflowSet, GridSnapshot]:
    """Return LEAD, and the shipped sites at one of their instants."""
    draws = stream(number, "shipped sites")
    count = int(draws.choice([1, 1, 4, 8]))
    workflow_set = WorkflowSet(
        name="lead",
        workflows=tuple(lead().renamed(f"w{n}") for n in range(count)),
        deadline_s=float(draws.choice([5400.0, 5600.0, 7200.0, 9000.0])),
        needed=int(draws.integers(1, count + 1)),
        probability=float(draws.choice([0.9, 0.95, 0.99])),
    )
    return workflow_set, shipped_grid(draws)


def shipped_snapshot(number: int) -> tuple[str, Snapshot]:
    """Return LEAD with the offers of the shipped sites."""
    return "shipped sites", take_snapshot(*shipped_set(number), number)


def tight_set(number: int) -> tuple[WorkflowSet, GridSnapshot]:
    """Return LEAD or random DAGs with a deadline about their critical path, every second one with a
    budget, and the shipped sites."""
    draws = stream(number, "tight sets")
    shape = lead() if number % 3 else random_dag(draws)
    count = int(draws.integers(1, 9))
    workflow_set = WorkflowSet(
        name="tight",
        workflows=tuple(shape.renamed(f"w{n}") for n in range(count)),
        deadline_s=float(draws.uniform(0.85, 1.3)) * max(shape.critical_path_s(10.0), 600.0),
        needed=int(draws.integers((count + 1) // 2, count + 1)),
        probability=float(draws.choice([0.8, 0.9, 0.95, 0.99])),
        budget_usd=float(draws.choice([0.5, 2.0, 5.0])) if number % 2 else None,
    )
    return workflow_set, shipped_grid(draws)


def recorded_snapshot(number: int) -> tuple[str, Snapshot]:
    """Return recorded workflows (of ``../shared``) over random slots."""
    files = sorted(RECORDED.glob("wfformat/*.json")) + sorted(RECORDED.glob("dax/*_[23]?.xml"))
    draws = stream(number, "recorded workflows")
    while True:
        shape = load_workflow(files[int(draws.integers(len(files)))])
        if len(shape.tasks) <= _MOST_RECORDED and shape.critical_path_s(10.0) > 0:
            return "recorded", replace(_snapshot(shape, draws), seed=number)


SOURCES: dict[str, Callable[[int], tuple[str, Snapshot]]] = {
    "random": random_snapshot,
    "tight": tight_snapshot,
    "shipped": shipped_snapshot,
    "recorded": recorded_snapshot,
}
