"""Run times of tasks in scenarios: medians, and the errors that are their own or shared
(:mod:`vgrads.workflows.spread`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.streams import stream
from vgrads.planner.rules import ATTEMPTS
from vgrads.planner.schedule import Schedule
from vgrads.planner.snapshot import ReplicaKey, Snapshot
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import estimate_repetitions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_SHARED = ("kind", "workflow")
_MOST_STORED = 2_000_000  # factors of one part of the scenarios


@dataclass(frozen=True, eq=False)
class TaskErrors:
    """Errors of the run times of a set's tasks that do not depend on where they run: standard
    deviations (own, kind, workflow) and groups of each task. What was drawn is stored: candidate
    plans of one set are simulated with the same errors."""

    deviations: Floats
    groups: tuple[Ints, ...]
    drawn: dict[tuple[int, ...], Floats]

    def factors(self, seed: int, begin: int, count: int) -> Floats:
        """Return the factors on the medians, scenarios × tasks."""
        key = seed, begin, count
        factors = self.drawn.get(key)
        if factors is None:
            tasks = self.deviations.shape[1]
            own = stream(seed, "run time", str(begin)).standard_normal((count, tasks))
            errors = self.deviations[0] * own
            for name, deviations, group in zip(
                _SHARED, self.deviations[1:], self.groups, strict=True
            ):
                # each error has a stream of its own, so that leaving one out changes no other
                if deviations.any():
                    draws = stream(seed, f"run time: {name}", str(begin))
                    shared = draws.standard_normal((count, group.max() + 1))
                    errors += deviations * shared[:, group]
            factors = np.exp(errors)
            if factors.size <= _MOST_STORED:
                self.drawn[key] = factors
        return factors

    def failures(self, seed: int, begin: int, count: int, replica: int) -> Floats:
        """Return two uniform numbers for each of two attempts, 2 × scenarios × tasks × 2: whether
        the attempt of this replica of a task fails, and when."""
        key = seed, begin, count, replica
        draws = self.drawn.get(key)
        if draws is None:
            source = stream(seed, "task", str(begin), str(replica))
            draws = source.random((2, count, self.deviations.shape[1], ATTEMPTS))
            if draws.size <= _MOST_STORED:
                self.drawn[key] = draws
        return draws


@dataclass(frozen=True, eq=False)
class Lengths:
    """Distributions of run times, one row per replica of a schedule: ``median_s`` at its site, the
    errors of its task, ``site_deviation`` of the error that it shares with others at its site.
    Replicas of one task have equal run times except for their site, one of ``sites``. ``memory``:
    standard deviations of its peak (own, kind) and the limit above which it is started again, 0
    where it is not."""

    median_s: Floats
    task: Ints
    errors: TaskErrors
    site_deviation: Floats
    site: Ints
    sites: int
    memory: Floats

    @property
    def drawn(self) -> bool:
        """True if any run time is uncertain."""
        errors = self.errors.deviations.any() or self.site_deviation.any()
        return bool(errors or self.memory.any())

    def draw(self, seed: int, begin: int, count: int, rows: Ints | None = None) -> Floats:
        """Sample run times in seconds, scenarios × replicas; ``begin``: the number of the first
        scenario; ``rows``: those of the ``count`` to return, all if None. Always in C order: the
        simulation is compiled anew for another one."""
        if not self.drawn:
            return self.median_s[None]
        chosen = slice(None) if rows is None else rows
        drawn_s = self.median_s * self.errors.factors(seed, begin, count)[chosen][:, self.task]
        if self.site_deviation.any():
            draws = stream(seed, "run time: site", str(begin))
            # all are drawn, so that a scenario is the same whichever others are chosen
            shared = draws.standard_normal((count, self.sites))[chosen][:, self.site]
            drawn_s *= np.exp(self.site_deviation * shared)
        if self.memory.any():
            self._repeat(drawn_s, (seed, begin, count), chosen)
        return np.ascontiguousarray(drawn_s)

    @property
    def _tasks(self) -> int:
        return int(self.errors.deviations.shape[1])

    @property
    def _kinds(self) -> int:
        return int(self.errors.groups[0].max()) + 1

    def _repeat(self, drawn_s: Floats, drawn: tuple[int, int, int], chosen: slice | Ints) -> None:
        """Add the tries of tasks that exceed their memory. Each counts as long as the whole task:
        when the peak occurs is unknown."""
        own, kind, limit = self.memory.astype(np.float32)  # twice as fast, and exact enough
        seed, begin, count = drawn
        draws = stream(seed, "peak memory", str(begin))
        over = draws.standard_normal((count, self._tasks), np.float32)[chosen][:, self.task]
        over *= own
        if kind.any():
            shared = stream(seed, "peak memory: kind", str(begin))
            kinds = self.errors.groups[0][self.task]
            peaks = shared.standard_normal((count, self._kinds), np.float32)
            over += kind * peaks[chosen][:, kinds]
        over -= np.where(limit > 0, limit, np.float32(np.inf))
        exceeded = np.nonzero(over > 0)  # few
        drawn_s[exceeded] *= 1.0 + estimate_repetitions(over[exceeded].astype(np.float64))


def make_lengths(snapshot: Snapshot, schedule: Schedule, slots: Any) -> Lengths:
    """Return the distributions for the replicas of a schedule; ``slots``: ids of its slots."""
    numbers, errors = _number_tasks(snapshot)
    replicas = schedule.replicas
    places: dict[str, int] = {}
    for offered in snapshot.slots:
        places.setdefault(offered.site, len(places))
    results = [snapshot.slot_by_id[slot] for slot in slots]
    site = np.array([places[slot.site] for slot in results], np.int64)
    speed = np.array([slot.speed for slot in results])
    doubt = np.array([slot.doubt for slot in results])
    return Lengths(
        median_s=numbers[0][replicas.task] / speed[replicas.slot],
        task=np.array(replicas.task),
        errors=errors,
        site_deviation=numbers[4][replicas.task] * doubt[replicas.slot],
        site=site[replicas.slot],
        sites=len(places),
        memory=numbers[5:][:, replicas.task],
    )


def _number_tasks(snapshot: Snapshot) -> tuple[Floats, TaskErrors]:
    """Return the numbers of all tasks of a set (:func:`_describe_lengths`) and their errors;
    computed once for a snapshot."""
    stored = snapshot.computed.get("lengths")
    if stored is None:
        workflow_set = snapshot.workflow_set
        kinds: dict[str, int] = {}
        by_kind: dict[int, tuple[Floats, Ints]] = {}
        parts, owner = [], []
        for n, workflow in enumerate(workflow_set.workflows):  # equal ones share their tasks
            if id(workflow.tasks) not in by_kind:
                by_kind[id(workflow.tasks)] = _describe_lengths(workflow_set, workflow, kinds)
            parts.append(by_kind[id(workflow.tasks)])
            owner.append(np.full(len(workflow.order), n, np.int64))
        numbers = np.concatenate([part[0] for part in parts], axis=1)
        kind = np.concatenate([part[1] for part in parts])
        errors = TaskErrors(numbers[1:4], (kind, np.concatenate(owner)), {})
        stored = snapshot.computed["lengths"] = numbers, errors
    return stored


def _describe_lengths(
    workflow_set: WorkflowSet, workflow: Any, kinds: dict[str, int]
) -> tuple[Floats, Ints]:
    """Return median, deviations and memory (8 × tasks) in the workflow's order, and the number of
    each task's kind."""
    tasks = [workflow.tasks[task_id] for task_id in workflow.order]
    rows = [
        (
            t.runtime_s,
            *(s.own, s.kind, s.workflow, s.site),
            *(s.memory_own, s.memory_kind, s.memory_limit),
        )
        for t in tasks
        for s in (workflow_set.spread(t),)
    ]
    which = [kinds.setdefault(task.kind, len(kinds)) for task in tasks]
    return np.array(rows).T, np.array(which, np.int64)


def drawn_factor(snapshot: Snapshot, seed: int, key: ReplicaKey, site: str) -> float:
    """Return the sampled run time of a replica over its median in one execution; replicas that
    share errors get the same ones."""
    task = snapshot.task(key[:2])
    spread = snapshot.workflow_set.spread(task)

    def drawn(deviation: float, *names: str) -> float:
        return deviation * stream(seed, *names).standard_normal() if deviation else 0.0

    error = (
        drawn(spread.own, "run time", *key[:2])
        + drawn(spread.kind, "run time: kind", task.kind)
        + drawn(spread.workflow, "run time: workflow", key[0])
        + drawn(spread.site, "run time: site", site)
    )
    peak = drawn(spread.memory_own, "peak memory", *key[:2])
    peak += drawn(spread.memory_kind, "peak memory: kind", task.kind)
    over = peak - spread.memory_limit if spread.memory_limit else -np.inf
    return float(np.exp(error) * (1.0 + estimate_repetitions(np.array([over]))[0]))
