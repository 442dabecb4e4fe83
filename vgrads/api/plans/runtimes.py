"""Run times that nobody has to state: what is known of each kind of task is put into a set before
it is planned."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from statistics import fmean
from typing import Any, NamedTuple

from vgrads.api.plans.attempts import Attempt
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import CopyState
from vgrads.execmgr.core.times import Times
from vgrads.runtimes.known import Known
from vgrads.runtimes.machines import Scores
from vgrads.runtimes.model import Model, fit
from vgrads.runtimes.prediction import Prediction
from vgrads.traces.task_record import TaskRecord
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import Task

Json = dict[str, Any]
MIB = 1024 * 1024
_UNKNOWN = "?"  # no machine is called so: what is thought of one that was never seen
_MEMORY = (
    0.99  # quantile of the peak that is asked for where nobody said how much memory a task needs
)
_INTERPRETERS = frozenset(
    (
        "bash",
        "sh",
        "python",
        "python3",
        "perl",
        "Rscript",
        "java",
        "env",
        "time",
        "srun",
        "mpirun",
        "mpiexec",
        "nice",
    )
)
_NUMBER = re.compile(r"[-_.#]?[0-9]+$")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, eq=False)
class RunTimes:
    """What was learned of run times and machines."""

    known: Known
    model: Model


def learned(known: Known = Known(), scores: Mapping[str, Scores] | None = None) -> RunTimes:  # noqa: B008 - frozen
    """The value behind records, and scores of machines."""
    return RunTimes(known, fit(known, scores))


NOTHING = learned()


def kind_of(task: Task) -> str:
    """By what a task is taken for alike: its kind as written, its program, its name without a
    number at the end."""
    if task.kind:
        return task.kind
    for word in task.command.split():
        name = PurePosixPath(word).name.strip("\"'")
        if (
            name
            and not word.startswith("-")
            and not _ASSIGNS.match(word)
            and name not in _INTERPRETERS
        ):
            return name
    return _NUMBER.sub("", task.id) or task.id


def input_bytes(workflow: Workflow, task: Task) -> float | None:
    """What a task reads, where the sizes of all its inputs are known."""
    sizes = [workflow.file_mib.get(name) for name in task.inputs]
    if not sizes or any(size is None for size in sizes):
        return None
    total = sum(size or 0.0 for size in sizes)
    return total * MIB if total > 0 else None


def with_run_times(
    wanted: WorkflowSet, known: RunTimes, catalog: Catalog
) -> tuple[WorkflowSet, Mapping[str, Json]]:
    """The set with run times and spreads of all its tasks, and per kind of task what they rest on.

    What is stated stays as it is where its kind was never seen, or is not written down: a guess by
    the name of a program would be worse than what a person says.
    """
    world = _World(
        _reference_speed(known.model, catalog),
        _site_spread(known.model, catalog),
        _most_mib(catalog),
        tuple(sorted({_name(known.model, site.name) for site in catalog.sites})) or ("",),
    )
    done: dict[int, Mapping[str, Task]] = {}
    basis: dict[str, Json] = {}
    workflows = []
    for workflow in wanted.workflows:
        tasks = done.get(id(workflow.tasks))
        if tasks is None:
            tasks = {t.id: _predicted(workflow, t, known, world) for t in workflow.tasks.values()}
            if all(
                new is old for new, old in zip(tasks.values(), workflow.tasks.values(), strict=True)
            ):
                tasks = workflow.tasks
            done[id(workflow.tasks)] = tasks
        for task in workflow.tasks.values():
            _tell(basis, task, tasks[task.id], known)
        same = tasks is workflow.tasks
        workflows.append(workflow if same else replace(workflow, tasks=tasks))
    return replace(wanted, workflows=tuple(workflows)), basis


class _World(NamedTuple):
    """Speed of the machine that the model calls 1, doubt of sites' speeds, memory of the largest
    node, and sites by the names that the model knows them by: what a kind makes of a machine beyond
    its speed is in the kind's doubt."""

    reference: float
    site: float
    most_mib: float
    sites: tuple[str, ...]


def _most_mib(catalog: Catalog) -> float:
    """So much memory at most is asked for by what was only learned: a guess must not keep a task
    from every site."""
    return max(
        (n.memory_mib or math.inf for site in catalog.sites for n in site.nodes), default=math.inf
    )


def _predicted(workflow: Workflow, task: Task, known: RunTimes, world: _World) -> Task:
    reference, site, most_mib, sites = world
    kind = kind_of(task)
    seen = kind in known.model.times
    if task.stated and not (seen and task.kind):
        return task
    stated_s = task.runtime_s / reference if task.stated and task.runtime_s > 0 else None
    size = input_bytes(workflow, task)
    found = [known.model.predict(kind, name, size, task.procs, stated_s) for name in sites]
    levels = [
        math.log(one.median_s * known.model.speed(n)[0])
        for n, one in zip(sites, found, strict=True)
    ]
    level = fmean(levels)
    unsure = max(math.hypot(one.kind, at - level) for one, at in zip(found, levels, strict=True))
    own, memory_mib = max(one.own for one in found), min(_memory_mib(found[0]), most_mib)
    return replace(
        task,
        runtime_s=math.exp(level) * reference,
        kind=kind,
        memory_mib=task.memory_mib or memory_mib,
        spread=RuntimeSpread(own=own, kind=unsure, workflow=found[0].workflow, site=site),
    )


def _memory_mib(found: Prediction) -> float:
    """Memory that nearly always suffices; 0 where nothing is known."""
    return (found.memory_quantile(_MEMORY) or 0.0) / MIB


def _tell(basis: dict[str, Json], asked: Task, given: Task, known: RunTimes) -> None:
    """Count a task among those of its kind."""
    kind, spread = kind_of(asked), given.spread
    entry = basis.setdefault(
        kind,
        {
            "kind": kind,
            "tasks": 0,
            "source": "stated",
            "observations": 0,
            "shortest_s": math.inf,
            "longest_s": 0.0,
        },
    )
    entry["tasks"] += 1
    entry["shortest_s"] = min(entry["shortest_s"], given.runtime_s)
    entry["longest_s"] = max(entry["longest_s"], given.runtime_s)
    if given is not asked:
        seen = known.model.times.get(kind)
        entry["observations"] = 0 if seen is None else len(seen.sample.y)
        entry["source"] = "guess" if seen is None else "learned"
    entry["spread"] = round(0.0 if spread is None else spread.total, 4)
    entry["kind_spread"] = round(0.0 if spread is None else spread.kind, 4)


def told(basis: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is to be warned of: kinds of tasks of which nobody knows how long they take."""
    wild = sorted(entry["kind"] for entry in basis if entry["source"] == "guess")
    if not wild:
        return []
    named = ", ".join(wild[:5]) + (f" and {len(wild) - 5} more" if len(wild) > 5 else "")
    return [
        f"nothing is known of how long {named} takes: a wide guess stands in its place, "
        "and the promise is as weak; "
        "give runtime_s, or learn from an earlier run: vgrads runtimes learn FILE"
    ]


def source_text(entry: Mapping[str, Any]) -> str:
    """What a kind's run times rest on, in words."""
    count = entry["observations"]
    words = {"stated": "stated", "guess": "a guess, wide"}
    return words.get(entry["source"], f"learned from {count} run{'' if count == 1 else 's'}")


def sped(slots: Iterable[Slot], known: RunTimes, catalog: Catalog) -> tuple[Slot, ...]:
    """Slots with the speed of their sites as far as that was learned, and how much of it is
    open."""
    reference, widest = _reference_speed(known.model, catalog), _site_spread(known.model, catalog)
    found = []
    for slot in slots:
        if not _is_known(known.model, slot.site):
            found.append(slot)
            continue
        speed, sd = known.model.speed(slot.site)
        found.append(
            replace(slot, speed=speed * reference, doubt=min(1.0, sd / widest) if widest else 0.0)
        )
    return tuple(found)


def _is_known(model: Model, machine: str) -> bool:
    return machine == model.reference or machine in model.machines


def _reference_speed(model: Model, catalog: Catalog) -> float:
    """The speed, as the catalogue states it, of the machine that the model calls 1; one that it
    does not list has 1."""
    for site in catalog.sites:
        if site.name == model.reference and site.nodes:
            return site.nodes[0].speed
    return 1.0


def _site_spread(model: Model, catalog: Catalog) -> float:
    """How far the site that is known least may be from its speed: standard deviation of the
    logarithm."""
    return max((model.speed(_name(model, site.name))[1] for site in catalog.sites), default=0.0)


def _name(model: Model, site: str) -> str:
    return site if _is_known(model, site) else _UNKNOWN


def records_of(
    book: Book, attempts: Iterable[Attempt], run: tuple[str, float], own_mib: float = 0.0
) -> Iterator[TaskRecord]:
    """What a run that really took place tells of run times; ``run``: its id, and when it began,
    since the epoch. Copies that were stopped would have taken longer. ``own_mib``: the manager's
    own peak, below which the system tells nothing of its children's."""
    run_id, at_s = run
    for one in attempts:
        finished = one.state == CopyState.DONE
        if one.end_s is None or not (finished or one.state == CopyState.CANCELLED):
            continue
        workflow, times = book.workflow(one.key), one.times or Times()
        task = workflow.tasks[one.key[1]]
        seconds = times.ran_s or one.end_s - one.start_s
        if seconds > 0:
            yield TaskRecord(
                kind=kind_of(task),
                seconds=seconds,
                finished=finished,
                workflow=_NUMBER.sub("", one.key[0]),
                run=f"{run_id}/{one.key[0]}",
                task=one.key[1],
                machine=one.site,
                procs=task.procs,
                input_bytes=input_bytes(workflow, task),
                memory_bytes=times.peak_mib * MIB if times.peak_mib > own_mib else None,
                cpu_seconds=times.cpu_s or None,
                ended_at_s=at_s + one.end_s,
            )
