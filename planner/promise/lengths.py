"""Run times of tasks in scenarios: medians, and the errors that are their own or shared
(:mod:`vgrads.workflows.spread`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.streams import stream
from vgrads.planner.promise.schedule import Schedule
from vgrads.planner.snapshot import ReplicaKey, Snapshot
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import repetitions

Floats = NDArray[np.float64]
_SHARED = ("kind", "workflow", "site")


@dataclass(frozen=True, eq=False)
class Lengths:
    """Distributions of run times, one row per replica of a schedule: ``median_s`` at its site,
    standard deviations (own, kind, workflow, site), and the groups whose errors it shares. Replicas
    of one task have equal run times except for their site. ``memory``: standard deviations of its
    peak (own, kind) and the limit above which it is started again, 0 where it is not."""

    median_s: Floats
    task: NDArray[np.int64]
    tasks: int
    deviations: Floats
    memory: Floats
    groups: tuple[NDArray[np.int64], ...]

    @property
    def drawn(self) -> bool:
        """True if any run time is uncertain."""
        return bool(self.deviations.any() or self.memory.any())

    def draw(self, seed: int, begin: int, count: int) -> Floats:
        """Sample run times in seconds, scenarios × replicas; ``begin``: the number of the first
        scenario. Always in C order: the simulation is compiled anew for another one."""
        if not self.drawn:
            return self.median_s[None]
        own = stream(seed, "run time", str(begin)).standard_normal((count, self.tasks))
        errors = self.deviations[0] * own[:, self.task]
        for name, deviations, group in zip(_SHARED, self.deviations[1:], self.groups, strict=True):
            if deviations.any():
                draws = stream(seed, f"run time: {name}", str(begin))
                errors += deviations * draws.standard_normal((count, group.max() + 1))[:, group]
        drawn_s = self.median_s * np.exp(errors)
        if self.memory.any():
            self._repeat(drawn_s, seed, begin)
        return np.ascontiguousarray(drawn_s)

    def _repeat(self, drawn_s: Floats, seed: int, begin: int) -> None:
        """Add the tries of tasks that exceed their memory. Each counts as long as the whole task:
        when the peak occurs is unknown."""
        own, kind, limit = self.memory.astype(np.float32)  # twice as fast, and exact enough
        count = len(drawn_s)
        draws = stream(seed, "peak memory", str(begin))
        over = draws.standard_normal((count, self.tasks), np.float32)[:, self.task]
        over *= own
        if kind.any():
            shared = stream(seed, "peak memory: kind", str(begin))
            kinds = self.groups[0]
            over += kind * shared.standard_normal((count, kinds.max() + 1), np.float32)[:, kinds]
        over -= np.where(limit > 0, limit, np.float32(np.inf))
        exceeded = np.nonzero(over > 0)  # few
        drawn_s[exceeded] *= 1.0 + repetitions(over[exceeded].astype(np.float64))


def make_lengths(snapshot: Snapshot, schedule: Schedule, slots: Any) -> Lengths:
    """Return the distributions for the replicas of a schedule; ``slots``: ids of its slots."""
    workflow_set, replicas = snapshot.workflow_set, schedule.replicas
    kinds: dict[str, int] = {}
    by_kind: dict[int, tuple[Floats, NDArray[np.int64]]] = {}
    parts = []
    for workflow in workflow_set.workflows:  # equal ones share their tasks
        if id(workflow.tasks) not in by_kind:
            by_kind[id(workflow.tasks)] = _of_tasks(workflow_set, workflow, kinds)
        parts.append(by_kind[id(workflow.tasks)])
    numbers = np.concatenate([part[0] for part in parts], axis=1)[:, replicas.task]
    places: dict[str, int] = {}
    results = [snapshot.slot_by_id[slot] for slot in slots]
    site = np.array([places.setdefault(slot.site, len(places)) for slot in results], np.int64)
    speed = np.array([slot.speed for slot in results])
    kind = np.concatenate([part[1] for part in parts])[replicas.task]
    numbers[4] *= np.array([slot.doubt for slot in results])[replicas.slot]
    return Lengths(
        median_s=numbers[0] / speed[replicas.slot],
        task=np.array(replicas.task),
        tasks=len(schedule.tasks) - 1,
        deviations=numbers[1:5],
        memory=numbers[5:],
        groups=(kind, np.array(schedule.tasks.workflow[replicas.task]), site[replicas.slot]),
    )


def _of_tasks(
    workflow_set: WorkflowSet, workflow: Any, kinds: dict[str, int]
) -> tuple[Floats, NDArray[np.int64]]:
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
    return float(np.exp(error) * (1.0 + repetitions(np.array([over]))[0]))
