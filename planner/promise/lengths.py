"""How long tasks take in scenarios: medians, and the errors that they have alone or share
(:mod:`vgrads.workflows.spread`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.streams import stream
from vgrads.planner.promise.schedule import Schedule
from vgrads.planner.snapshot import CopyKey, Snapshot
from vgrads.workflows.sets import WorkflowSet

Floats = NDArray[np.float64]
_SHARED = ("kind", "workflow", "site")


@dataclass(frozen=True, eq=False)
class Lengths:
    """What run times are drawn from, a row each copy of a schedule: ``median_s`` where it runs,
    standard deviations (own, kind, workflow, site), and whose errors it shares. Copies of one task
    run equally long but for their site."""

    median_s: Floats
    task: NDArray[np.int64]
    tasks: int
    deviations: Floats
    groups: tuple[NDArray[np.int64], ...]

    @property
    def drawn(self) -> bool:
        """True where some run time is uncertain."""
        return bool(self.deviations.any())

    def draw(self, seed: int, begin: int, count: int) -> Floats:
        """Seconds, scenarios × copies; ``begin``: the number of the first scenario."""
        if not self.drawn:
            return self.median_s[None]
        own = stream(seed, "run time", str(begin)).standard_normal((count, self.tasks))
        errors = self.deviations[0] * own[:, self.task]
        for name, deviations, group in zip(_SHARED, self.deviations[1:], self.groups, strict=True):
            if deviations.any():
                draws = stream(seed, f"run time: {name}", str(begin))
                errors += deviations * draws.standard_normal((count, group.max() + 1))[:, group]
        return np.asarray(self.median_s * np.exp(errors))


def make_lengths(snapshot: Snapshot, schedule: Schedule, slots: Any) -> Lengths:
    """What the copies of a schedule are drawn from; ``slots``: ids of its slots."""
    wanted, copies = snapshot.wanted, schedule.copies
    kinds: dict[str, int] = {}
    known: dict[int, tuple[Floats, NDArray[np.int64]]] = {}
    parts = []
    for workflow in wanted.workflows:  # equal ones share their tasks
        if id(workflow.tasks) not in known:
            known[id(workflow.tasks)] = _of_tasks(wanted, workflow, kinds)
        parts.append(known[id(workflow.tasks)])
    numbers = np.concatenate([part[0] for part in parts], axis=1)[:, copies.task]
    places: dict[str, int] = {}
    found = [snapshot.slot_by_id[slot] for slot in slots]
    site = np.array([places.setdefault(slot.site, len(places)) for slot in found], np.int64)
    speed = np.array([slot.speed for slot in found])
    kind = np.concatenate([part[1] for part in parts])[copies.task]
    numbers[4] *= np.array([slot.doubt for slot in found])[copies.slot]
    return Lengths(
        median_s=numbers[0] / speed[copies.slot],
        task=np.array(copies.task),
        tasks=len(schedule.tasks) - 1,
        deviations=numbers[1:],
        groups=(kind, np.array(schedule.tasks.workflow[copies.task]), site[copies.slot]),
    )


def _of_tasks(
    wanted: WorkflowSet, workflow: Any, kinds: dict[str, int]
) -> tuple[Floats, NDArray[np.int64]]:
    """Median and deviations (5 × tasks) in the workflow's order, and the number of each task's
    kind."""
    tasks = [workflow.tasks[task_id] for task_id in workflow.order]
    rows = [
        (t.runtime_s, s.own, s.kind, s.workflow, s.site) for t in tasks for s in (wanted.spread(t),)
    ]
    which = [kinds.setdefault(task.kind, len(kinds)) for task in tasks]
    return np.array(rows).T, np.array(which, np.int64)


def drawn_factor(snapshot: Snapshot, seed: int, key: CopyKey, site: str) -> float:
    """What one execution draws for a copy: its run time over its median; the same errors for all
    that share them."""
    task = snapshot.task(key[:2])
    spread = snapshot.wanted.spread(task)
    if not spread.total:
        return 1.0
    names = (
        ("run time", *key[:2]),
        ("run time: kind", task.kind),
        ("run time: workflow", key[0]),
        ("run time: site", site),
    )
    deviations = (spread.own, spread.kind, spread.workflow, spread.site)
    errors = [
        d * stream(seed, *n).standard_normal() for d, n in zip(deviations, names, strict=True) if d
    ]
    return float(np.exp(sum(errors)))
