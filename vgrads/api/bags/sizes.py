"""Size estimates: time and cost of sets, bags and matrices against the number of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.api.plans.set_files import SetOverrides, load_set
from vgrads.api.plans.unit_mistakes import find_question
from vgrads.bags.bag import BagSpec
from vgrads.dispatch.document import load_bag
from vgrads.kernel.documents import load_mapping
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.kernel.units import format_count, format_seconds
from vgrads.kernel.values import field_values
from vgrads.pool.models import (
    Implementation,
    Resources,
    allpairs_best_s,
    choose_allpairs,
    choose_wavefront,
    graph_s,
    wavefront_best,
)
from vgrads.pool.size import AgentPrice, SizePoint, compute_curve, find_notable_sizes
from vgrads.workflows.formats.load import format_of, is_workflow
from vgrads.workflows.sets import WorkflowSet

_GRID = re.compile(r"(\d{1,9})(?:x(\d{1,9}))?")


@dataclass(frozen=True, kw_only=True)
class SizeQuestion:
    """``procs``: of a node; ``most``: maximum number of nodes; ``wait_s``: until nodes are ready;
    ``dispatch_s``: until a task starts; ``capacity``: processors that the manager can keep busy,
    None for all; ``deadline_text``: the deadline as written."""

    procs: int = 1
    most: int = 256
    price: AgentPrice = AgentPrice()  # noqa: RUF009 frozen
    wait_s: float = 0.0
    dispatch_s: float = 0.0
    capacity: float | None = None
    deadline_s: float | None = None
    deadline_text: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkModel:
    """``run_s``: run time on a number of processors; ``total_s``: processor-seconds in all."""

    what: str
    run_s: Callable[[int], float]
    total_s: float
    widest: int = 1
    deadline_s: float | None = None
    deadline_text: str = ""
    how: Mapping[str, Any] | None = None


def read_work(path: Path, dispatch_s: float) -> WorkModel:
    """Return the work of a file with a workflow set, a workflow or a bag."""
    bare = is_workflow(format_of(path, read_text(path)))
    if bare or "workflows" in load_mapping(path):
        # a set must have a deadline; that of a bare workflow is dropped below
        workflow_set, _ = load_set(path, overrides=SetOverrides(deadline="1d" if bare else None))
        for workflow in workflow_set.workflows:
            for task in workflow.tasks.values():
                if not task.stated:
                    raise InputError(
                        "is not given, and no measured run time is recorded",
                        where=f"{path}: {workflow.name}: task '{task.id}': runtime_s",
                        fix="give runtime_s; 'vgrads runtimes predict' shows the known run times",
                    )
        work = _size_set(workflow_set, dispatch_s)
        return replace(work, deadline_s=None) if bare else work
    document, bag = load_bag(path)
    if document.runtime_s is None:
        raise InputError(
            "is not given, and no measured run time is recorded",
            where=f"{path}: runtime_s",
            fix="give runtime_s",
        )
    return _size_bag(bag, document.runtime_s, dispatch_s)


def _size_set(workflow_set: WorkflowSet, dispatch_s: float) -> WorkModel:
    times: list[float] = []
    widths: list[int] = []
    parents: list[list[int]] = []
    for workflow in workflow_set.workflows:
        at = {name: len(times) + n for n, name in enumerate(workflow.tasks)}
        for task in workflow.tasks.values():
            times.append(task.runtime_s + dispatch_s)
            widths.append(task.procs)
            parents.append([at[parent] for parent in task.parents])
    # to start a task takes time, but is no work
    total_s = sum(t * w for t, w in zip(times, widths, strict=True)) - dispatch_s * sum(widths)
    return WorkModel(
        what=(
            f"{format_count(len(workflow_set.workflows), 'workflow')}, "
            f"{format_count(len(times), 'task')}"
        ),
        total_s=total_s,
        widest=max(widths, default=1),
        run_s=lambda procs: graph_s(times, parents, procs, widths),
        deadline_s=workflow_set.deadline_s,
        deadline_text=workflow_set.deadline_text,
    )


def _size_bag(bag: BagSpec, runtime_s: float, dispatch_s: float) -> WorkModel:
    tasks, each_s = len(bag.commands), runtime_s + dispatch_s
    return WorkModel(
        what=f"{format_count(tasks, 'task')} of {format_seconds(runtime_s)}",
        total_s=tasks * runtime_s * bag.procs,
        widest=bag.procs,
        run_s=lambda procs: -(-tasks // (procs // bag.procs)) * each_s,
        deadline_s=bag.deadline_s,
    )


def parse_matrix_sides(kind: str, grid: str, cell_s: float) -> tuple[int, int]:
    """Return the rows and columns of a matrix of ``grid`` cells: N, or NxM, each ``cell_s``."""
    match = _GRID.fullmatch(grid)
    if match is None:
        raise InputError(
            f"'{grid}' is not a matrix size", where=f"--{kind}", fix="write 1000 or 4000x500"
        )
    rows, cols = int(match[1]), int(match[2] or match[1])
    if not rows or not cols or cell_s <= 0:
        raise InputError("a matrix must have cells, and they must take time", where=f"--{kind}")
    return rows, cols


def make_matrix_work(kind: str, grid: str, cell_s: float, machines: Resources) -> WorkModel:
    """Return the work of All-Pairs or a Wavefront of ``grid`` cells (N, or NxM), each ``cell_s``,
    with the blocks of its models. Time against nodes is that of the best blocks for each number."""
    rows, cols = parse_matrix_sides(kind, grid, cell_s)
    if kind == "wavefront":
        run_s, how = (
            lambda procs: (
                wavefront_best((rows, cols), cell_s, machines, procs // machines.cores).seconds
            ),
            choose_wavefront(rows, cell_s, machines, cols),
        )
    else:
        run_s, how = (
            lambda procs: allpairs_best_s(rows, cols, cell_s, machines, procs // machines.cores),
            choose_allpairs(rows, cols, cell_s, machines),
        )
    return WorkModel(
        what=f"{kind}, {rows} x {format_count(cols, 'cell')} of {format_seconds(cell_s)}",
        run_s=run_s,
        total_s=rows * cols * cell_s,
        how=_make_answer(how),
    )


def _make_answer(value: SizePoint | Implementation) -> dict[str, Any]:
    row = field_values(value)
    return {"hosts": row.pop("nodes")} | row


def size(work: WorkModel, question: SizeQuestion) -> dict[str, Any]:
    """Return ``vgrads size --json``: a row for each size, and the recommended ones."""
    if work.widest > question.procs * question.most:
        raise InputError(
            (
                f"a task needs {format_count(work.widest, 'processor')}, "
                f"{format_count(question.most, 'node', 'have')} "
                f"{question.procs * question.most}"
            ),
            where="--most",
        )
    least = -(-work.widest // question.procs)
    floor_s = work.total_s / question.capacity if question.capacity else 0.0

    def run_s(agents: int) -> float:
        return max(floor_s, work.run_s(max(agents, least) * question.procs))

    deadline_s = question.deadline_s if question.deadline_s is not None else work.deadline_s
    sizes = [
        sized
        for sized in compute_curve(
            run_s, work.total_s / question.procs, question.most, question.price, question.wait_s
        )
        if sized.nodes >= least
    ]
    fastest_s = min((sized.seconds for sized in sizes), default=0.0)
    late = deadline_s is not None and fastest_s > deadline_s
    stated = question.deadline_text or work.deadline_text
    return {
        "work": work.what,
        "question": find_question(stated, fastest_s) if late else "",
        "work_s": work.total_s,
        "procs": question.procs,
        "deadline_s": deadline_s,
        "how": work.how,
        "sizes": [_make_answer(point) for point in sizes],
        "worth": {
            name: _make_answer(point)
            for name, point in find_notable_sizes(sizes, deadline_s).items()
        },
    }
