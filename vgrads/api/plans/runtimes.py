"""Learned run times: they are put into a set for each kind of task before it is planned, so users
need not state them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import PurePosixPath
from statistics import fmean
from typing import Any, NamedTuple

from vgrads.api.plans.attempts import TaskAttempt
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import ReplicaState
from vgrads.execmgr.core.times import Times
from vgrads.kernel.units import format_count
from vgrads.runtimes.common import Common, estimate
from vgrads.runtimes.machines import Scores
from vgrads.runtimes.model import RuntimeModel, make_model
from vgrads.runtimes.prediction import Prediction
from vgrads.runtimes.task_history import KindRecords, TaskHistory
from vgrads.runtimes.tools import NO_TOOLS, Tools
from vgrads.traces.task_record import TaskRecord
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.runtimes import OF_LIMIT
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import MEMORY_FACTOR, MEMORY_RETRIES, RuntimeSpread
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import ErrorRule

Json = dict[str, Any]
MIB = 1024 * 1024
_UNKNOWN = "?"  # name without a machine: prediction for an unseen one
MEMORY, _MEMORY_ONCE = 0.98, 0.999
"""Quantiles of the peak that are requested if no memory is stated: at most two tasks of a hundred
need a second try, with more; and of tasks that cannot have more, by the rules of their user or for
lack of a larger node."""
_MORE_MEMORY = ErrorRule(exits=(137,), retries=MEMORY_RETRIES, memory=MEMORY_FACTOR)
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
_BASES = {
    "learned": "earlier runs of the same kind",
    "tool": "other uses of the same tool",
    "limit": "a third of the limit",
    "guess": "wide guesses",
}
"""Where a run time comes from that a task does not state, by the source of its kind."""
_MOST_NEAR = 20  # kinds of a set for which similar names are looked up
_NUMBER = re.compile(r"[-_.#]?[0-9]+$")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, eq=False)
class RunTimes:
    """Learned run times and machines."""

    history: KindRecords
    model: RuntimeModel

    def derive_kind(self, task: Task) -> str:
        """Return the learned kind of a task, or its own where none was learned."""
        return self.history.named(derive_kind(task))


def learn_run_times(
    history: TaskHistory = TaskHistory(), scores: Mapping[str, Scores] | None = None
) -> RunTimes:
    """Learn from records, and scores of machines."""
    return learn_from_estimates(history, estimate(history, scores))


def learn_from_estimates(
    records: KindRecords, common: Common, others: Tools = NO_TOOLS
) -> RunTimes:
    """Return the learned run times of records, given what was estimated from them. ``others``:
    tools as other owners have run them."""
    return RunTimes(records, make_model(records, common, others))


NOTHING = learn_run_times()


def derive_kind(task: Task) -> str:
    """Return the kind of a task: as stated, or its program, or its name without a number at the
    end."""
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


def sum_input_bytes(workflow: Workflow, task: Task) -> float | None:
    """Return the bytes of a task's inputs, if all their sizes are known."""
    sizes = [workflow.file_mib.get(name) for name in task.inputs]
    if not sizes or any(size is None for size in sizes):
        return None
    total = sum(size or 0.0 for size in sizes)
    return total * MIB if total > 0 else None


def add_run_times(
    workflow_set: WorkflowSet, run_times: RunTimes, catalog: Catalog
) -> tuple[WorkflowSet, Mapping[str, Json]]:
    """Return the set with run times and spreads of all its tasks, and their basis per kind of task.

    Stated run times remain if their kind was never observed, or is not stated: a guess by the name
    of a program would be worse than a stated value.
    """
    world = _World(
        _find_reference_speed(run_times.model, catalog),
        _compute_site_spread(run_times.model, catalog),
        _limit_memory_mib(catalog),
        tuple(sorted({_name(run_times.model, site.name) for site in catalog.sites})) or ("",),
    )
    done: dict[int, Mapping[str, Task]] = {}
    basis: dict[str, Json] = {}
    workflows = []
    for workflow in workflow_set.workflows:
        # equal workflows share their tasks: predicted once, and shared again
        tasks = done.get(id(workflow.tasks))
        if tasks is None:
            tasks = {
                t.id: _predict_task(workflow, t, run_times, world) for t in workflow.tasks.values()
            }
            if all(
                new is old for new, old in zip(tasks.values(), workflow.tasks.values(), strict=True)
            ):
                # the same mapping, so that the workflow keeps what was computed of its shape
                tasks = workflow.tasks
            done[id(workflow.tasks)] = tasks
        for task in workflow.tasks.values():
            _report(basis, task, tasks[task.id], run_times)
        same = tasks is workflow.tasks
        workflows.append(workflow if same else replace(workflow, tasks=tasks))
    return replace(workflow_set, workflows=tuple(workflows)), basis


class _World(NamedTuple):
    """Speed of the machine that is 1 in the model, uncertainty of sites' speeds, memory of the
    largest node, and sites by their names in the model: effects of a machine on a kind beyond its
    speed are part of the kind's uncertainty."""

    reference: float
    site: float
    most_mib: float
    sites: tuple[str, ...]


def _limit_memory_mib(catalog: Catalog) -> float:
    """Return the limit on requests of learned memory: a guess must not exclude a task from every
    site."""
    return max(
        (n.memory_mib or math.inf for site in catalog.sites for n in site.nodes), default=math.inf
    )


def _predict_task(workflow: Workflow, task: Task, run_times: RunTimes, world: _World) -> Task:
    reference, site, most_mib, sites = world
    kind = run_times.derive_kind(task)
    is_learned = run_times.model.times.find(kind) is not None
    if task.stated and not (is_learned and task.kind):
        return task
    is_estimate = task.stated and task.runtime_s > 0 and task.spread != OF_LIMIT
    stated_s = task.runtime_s / reference if is_estimate else None
    size = sum_input_bytes(workflow, task)
    predictions = [
        run_times.model.predict(kind, name, size, task.procs, stated_s, task.command)
        for name in sites
    ]
    levels = [
        # at speed 1: what is left differs by what a machine does beyond its speed
        math.log(site.median_s * run_times.model.speed(n)[0])
        for n, site in zip(sites, predictions, strict=True)
    ]
    level = fmean(levels)
    unsure = max(
        math.hypot(prediction.kind, at - level)
        for prediction, at in zip(predictions, levels, strict=True)
    )
    own = max(prediction.own for prediction in predictions)
    spread = RuntimeSpread(own=own, kind=unsure, workflow=predictions[0].workflow, site=site)
    if not task.memory_mib:
        task, spread = _add_learned_memory(task, spread, predictions[0], most_mib)
    return replace(task, runtime_s=math.exp(level) * reference, kind=kind, spread=spread)


def _add_learned_memory(
    task: Task, spread: RuntimeSpread, prediction: Prediction, most_mib: float
) -> tuple[Task, RuntimeSpread]:
    """Return a task that requests the memory learned for it, if any was, and its spread with what
    it may exceed."""
    if prediction.memory_bytes is None or prediction.memory_sd is None:
        return task, spread
    errors = (*task.environment.errors, _MORE_MEMORY)  # those of the user go first
    environment = replace(task.environment, errors=errors)
    rule = environment.rule_for(None, 137) or _MORE_MEMORY
    request_mib = (prediction.memory_quantile(MEMORY) or 0.0) / MIB
    if rule.retries > 0 and rule.memory > 1.0 and request_mib * rule.memory <= most_mib:
        spread = replace(
            spread,
            memory_own=math.sqrt(max(0.0, prediction.memory_sd**2 - prediction.memory_kind**2)),
            memory_kind=prediction.memory_kind,
            memory_limit=math.log(request_mib * MIB / prediction.memory_bytes),
        )
    else:
        request_mib = min((prediction.memory_quantile(_MEMORY_ONCE) or 0.0) / MIB, most_mib)
    return replace(task, memory_mib=request_mib, environment=environment), spread


def _report(basis: dict[str, Json], task: Task, timed: Task, run_times: RunTimes) -> None:
    """Count a task in the entry of its kind."""
    kind, spread = run_times.derive_kind(task), timed.spread
    entry = basis.setdefault(
        kind,
        {
            "kind": kind,
            "tasks": 0,
            "source": "limit" if task.spread == OF_LIMIT else "stated",
            "predicted": 0,
            "observations": 0,
            "shortest_s": math.inf,
            "longest_s": 0.0,
        },
    )
    entry["tasks"] += 1
    entry["shortest_s"] = min(entry["shortest_s"], timed.runtime_s)
    entry["longest_s"] = max(entry["longest_s"], timed.runtime_s)
    if timed is not task or task.spread == OF_LIMIT:
        entry["predicted"] += 1
    if timed is not task:
        observations = run_times.model.times.find(kind)
        entry["observations"] = 0 if observations is None else len(observations.sample.y)
        entry["source"] = "guess" if observations is None else "learned"
        if observations is None and entry["tasks"] == 1:
            entry["tool"] = run_times.model.tool_of(kind, task.command)
        if observations is None and len(basis) <= _MOST_NEAR:
            entry["near"] = get_close_matches(kind, run_times.history.kinds, 1)
    entry["spread"] = round(0.0 if spread is None else spread.total, 4)
    entry["kind_spread"] = round(0.0 if spread is None else spread.kind, 4)


def describe_basis(basis: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return warnings: kinds of tasks whose run time is unknown."""
    entries = list(basis)
    near = {e["kind"]: e["near"][0] for e in entries if e.get("near")}
    if near and all(e["source"] == "guess" for e in entries):
        pairs = ", ".join(f"{name} (nearest: {near[name]})" for name in sorted(near)[:5])
        return [
            f"none of the names in this set has learned run times: {pairs}; guesses are used, "
            "which weaken the promise; name the tasks by 'kind' as in "
            "'vgrads runtimes list', or learn with '--map OLD=NEW'"
        ]
    wild = sorted(e["kind"] for e in entries if e["source"] == "guess" and not e.get("tool"))
    if not wild:
        return []
    named = ", ".join(wild[:5]) + (f" and {len(wild) - 5} more" if len(wild) > 5 else "")
    return [
        f"no run time is known for {named}: a wide guess is used, "
        "which weakens the promise; "
        "give runtime_s, or learn from an earlier run: vgrads runtimes learn FILE"
    ]


def describe_promise_basis(basis: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a note on how many tasks state no run time, and what the promise rests on instead;
    none if all state one."""
    entries = list(basis)
    counts: Counter[str] = Counter()
    for entry in entries:
        by_tool = entry["source"] == "guess" and entry.get("tool")
        counts["tool" if by_tool else entry["source"]] += entry["predicted"]
    sources = [f"{text} ({counts[source]:,})" for source, text in _BASES.items() if counts[source]]
    if not sources:
        return ()
    total = format_count(sum(entry["tasks"] for entry in entries), "task")
    return (
        f"no stated run time is used for {sum(counts.values()):,} of {total}: the promise rests on "
        f"{', '.join(sources)}",
    )


def describe_source(entry: Mapping[str, Any]) -> str:
    """Describe the basis of a kind's run times."""
    count = entry["observations"]
    if entry.get("tool"):
        return f"a guess, from other uses of {entry['tool']}"
    words = {"stated": "stated", "limit": "a third of the limit", "guess": "a wide guess"}
    return words.get(entry["source"], f"learned from {count} run{'' if count == 1 else 's'}")


def apply_speeds(slots: Iterable[Slot], run_times: RunTimes, catalog: Catalog) -> tuple[Slot, ...]:
    """Return slots with the learned speed of their sites, and its uncertainty."""
    reference, widest = (
        _find_reference_speed(run_times.model, catalog),
        _compute_site_spread(run_times.model, catalog),
    )
    results = []
    for slot in slots:
        if not _has_machine(run_times.model, slot.site):
            results.append(slot)
            continue
        speed, sd = run_times.model.speed(slot.site)
        results.append(
            replace(slot, speed=speed * reference, doubt=min(1.0, sd / widest) if widest else 0.0)
        )
    return tuple(results)


def _has_machine(model: RuntimeModel, machine: str) -> bool:
    return machine == model.reference or machine in model.machines


def _find_reference_speed(model: RuntimeModel, catalog: Catalog) -> float:
    """Return the stated speed of the machine that is 1 in the model; 1 if the catalogue does not
    list it."""
    for site in catalog.sites:
        if site.name == model.reference and site.nodes:
            return site.nodes[0].speed
    return 1.0


def _compute_site_spread(model: RuntimeModel, catalog: Catalog) -> float:
    """Return the uncertainty of the speed of the least known site: standard deviation of the
    logarithm."""
    return max((model.speed(_name(model, site.name))[1] for site in catalog.sites), default=0.0)


def _name(model: RuntimeModel, site: str) -> str:
    return site if _has_machine(model, site) else _UNKNOWN


def make_records(
    execution: ExecutionPlan,
    attempts: Iterable[TaskAttempt],
    run: tuple[str, float],
    own_mib: float = 0.0,
) -> Iterator[TaskRecord]:
    """Return the records of a real run for learning run times; ``run``: its id, and its start since
    the epoch. Cancelled replicas would have taken longer. ``own_mib``: the manager's own peak
    memory; smaller peaks of its children are not reported by the system."""
    run_id, at_s = run
    for attempt in attempts:
        finished = attempt.state == ReplicaState.DONE
        # a failed attempt does not tell how long its task takes
        if attempt.end_s is None or not (finished or attempt.state == ReplicaState.CANCELLED):
            continue
        workflow, times = execution.workflow(attempt.key), attempt.times or Times()
        task = workflow.tasks[attempt.key[1]]
        seconds = times.ran_s or attempt.end_s - attempt.start_s
        if seconds > 0:
            yield TaskRecord(
                kind=derive_kind(task),
                seconds=seconds,
                finished=finished,
                workflow=_NUMBER.sub("", attempt.key[0]),
                run=f"{run_id}/{attempt.key[0]}",
                task=attempt.key[1],
                machine=attempt.site,
                procs=task.procs,
                input_bytes=sum_input_bytes(workflow, task),
                memory_bytes=times.peak_mib * MIB if times.peak_mib > own_mib else None,
                cpu_seconds=times.cpu_s or None,
                ended_at_s=at_s + attempt.end_s,
            )
