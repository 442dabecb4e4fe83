"""Sets of recorded tasks, on a machine or in a run from which nothing was learned.

Nextflow: each node is left out in turn. A workflow of a set is one recorded run of the node: a
chain of its kinds of tasks, with their sizes and processors. WfFormat: each run is left out in
turn. The set is one workflow: some tasks of each kind of the run, with the dependencies between
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numpy.random import Generator

from vgrads.api.plans.runtimes import MIB, RunTimes, learn_run_times
from vgrads.kernel.errors import InputError
from vgrads.planner.snapshot import TaskKey
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_files import read_task_records
from vgrads.traces.task_record import TaskRecord
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.task import UNSTATED, Task
from vgrads_studies.runtimes.recorded_tasks import SIZES, records, scores, traces, workflows

_KINDS = 0.6  # share of the kinds of a workflow that a set contains
_LEAST, _MOST = 2, 6  # runs in a set
_MOST_ALIKE = 8  # tasks of one kind in a part of a run
Rows = Mapping[str, Sequence[TaskRecord]]


@dataclass(frozen=True, slots=True)
class SampledSet:
    """Workflows without run times, and how long each of their tasks took."""

    workflows: tuple[Workflow, ...]
    actual_s: Mapping[TaskKey, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutRuns:
    """A node or a run (``name``) that was left out: what was learned from the others, and sets of
    its tasks. ``machine``: the site of the sets."""

    source: str
    workflow: str
    name: str
    machine: str
    run_times: RunTimes
    draw: Callable[[Generator], SampledSet]


def targets(folder: Path) -> Iterator[LeftOutRuns]:
    """Return every node and run that can be left out; ``folder`` has ``nextflow/`` and
    ``workflows/wfformat/``."""
    yield from nodes(folder / "nextflow")
    yield from runs(folder / "workflows" / "wfformat")


def nodes(folder: Path) -> Iterator[LeftOutRuns]:
    """Leave out each node of each Nextflow workflow."""
    payload = scores(folder)
    for name in workflows(folder):
        by_node = {
            node: [_timed(row) for row in records(frame, node, SIZES[0])]
            for node, frame in traces(folder, name).items()
        }
        for node, rows in by_node.items():
            others = [row for other in by_node if other != node for row in by_node[other]]
            yield LeftOutRuns(
                source="nextflow",
                workflow=name,
                name=node,
                machine=node,
                run_times=learn_run_times(learn(TaskHistory(), others), payload),
                draw=_from_runs(rows),
            )


def _timed(row: TaskRecord) -> TaskRecord:
    """Return a record without memory, which is not studied, and without the name of its tool: the
    first word of a script, which differs for one tool."""
    return replace(row, memory_bytes=None, tool="")


def _from_runs(rows: Sequence[TaskRecord]) -> Callable[[Generator], SampledSet]:
    """Return a function that draws sets of recorded runs of one protocol (label)."""
    by_label: dict[str, dict[str, dict[str, list[TaskRecord]]]] = {}
    for row in rows:
        by_run = by_label.setdefault(row.run.split("/")[1], {})
        by_run.setdefault(row.run, {}).setdefault(row.kind, []).append(row)
    labels = [by_run for _, by_run in sorted(by_label.items()) if len(by_run) >= _LEAST]
    kinds = list(dict.fromkeys(row.kind for row in rows))

    def draw(draws: Generator) -> SampledSet:
        by_run = labels[int(draws.integers(len(labels)))]
        count = min(int(draws.integers(_LEAST, _MOST + 1)), len(by_run))
        chosen = draws.choice(sorted(by_run), count, replace=False)
        some = _some(kinds, draws)
        chains = [_chain(f"w-{n}", by_run[run], some, draws) for n, run in enumerate(chosen)]
        return SampledSet(
            tuple(workflow for workflow, _ in chains),
            {key: seconds for _, actual_s in chains for key, seconds in actual_s.items()},
        )

    return draw


def _some(kinds: Sequence[str], draws: Generator) -> list[str]:
    return [kind for kind in kinds if draws.random() < _KINDS] or list(kinds[:1])


def _chain(
    name: str, rows: Rows, kinds: Sequence[str], draws: Generator
) -> tuple[Workflow, dict[TaskKey, float]]:
    """Return one task of each kind of a run as a chain, and the recorded times."""
    tasks: list[Task] = []
    sizes: dict[str, float] = {}
    actual_s: dict[TaskKey, float] = {}
    for kind in [kind for kind in kinds if kind in rows] or list(rows)[:1]:
        row = rows[kind][int(draws.integers(len(rows[kind])))]
        sizes[f"{kind}.in"] = (row.input_bytes or 0.0) / MIB
        parents = (tasks[-1].id,) if tasks else ()
        tasks.append(
            Task(
                id=kind,
                runtime_s=UNSTATED,
                kind=kind,
                procs=row.procs,
                inputs=(f"{kind}.in",),
                parents=parents,
            )
        )
        actual_s[name, kind] = row.seconds
    return make_workflow(name, tasks, sizes), actual_s


def runs(folder: Path) -> Iterator[LeftOutRuns]:
    """Leave out each run recorded as WfFormat."""
    paths = sorted(folder.glob("*.json*"))
    if not paths:
        raise InputError("contains no WfFormat run", where=str(folder))
    by_run = {path: [_timed(row) for row in read_task_records(path).records] for path in paths}
    for path, rows in by_run.items():
        others = [row for other in paths if other != path for row in by_run[other]]
        yield LeftOutRuns(
            source="wfformat",
            workflow=path.name.split("-")[0],
            name=path.name.split(".")[0],
            machine=Counter(row.machine for row in rows).most_common(1)[0][0],
            run_times=learn_run_times(learn(TaskHistory(), others)),
            draw=_from_run(load_workflow(path), rows),
        )


def _from_run(workflow: Workflow, rows: Sequence[TaskRecord]) -> Callable[[Generator], SampledSet]:
    """Return a function that draws parts of one recorded run."""
    by_kind: dict[str, list[TaskRecord]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)

    def draw(draws: Generator) -> SampledSet:
        most = int(draws.integers(1, _MOST_ALIKE + 1))
        part: dict[str, TaskRecord] = {}
        for kind in _some(list(by_kind), draws):
            alike = by_kind[kind]
            for n in draws.choice(len(alike), min(most, len(alike)), replace=False):
                part[alike[n].task] = alike[n]
        return SampledSet(
            (_part(workflow, part),), {(workflow.name, n): row.seconds for n, row in part.items()}
        )

    return draw


def _part(workflow: Workflow, part: Mapping[str, TaskRecord]) -> Workflow:
    """Return some tasks of a workflow; paths through omitted tasks remain dependencies."""
    before: dict[str, dict[str, None]] = {}  # task → the nearest tasks of the part at or above it
    tasks = []
    for task_id in workflow.order:
        task = workflow.tasks[task_id]
        parents = {name: None for parent in task.parents for name in before[parent]}
        before[task_id] = {task_id: None} if task_id in part else parents
        if task_id in part:
            tasks.append(
                Task(
                    id=task_id,
                    runtime_s=UNSTATED,
                    kind=part[task_id].kind,
                    procs=part[task_id].procs,
                    inputs=task.inputs,
                    parents=tuple(parents),
                )
            )
    return make_workflow(workflow.name, tasks, workflow.file_mib)
