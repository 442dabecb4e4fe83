"""Input of the planner: the set, the slots on offer, the network between sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.vgrid.catalog import Link
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

QUANTILE_LEVELS = (0.99, 0.9, 0.75, 0.5, 0.25, 0.1)
"""Quantiles of a run time for which a placement may reserve time, the safest first. Below the
median it is optimistic: only for sets that would have no plan otherwise."""
_OVERRUN = 1.0 - QUANTILE_LEVELS[0]
_OVERRUNS = 0.5
"""Maximum number of tasks of the largest workflow that are assumed to fail by overrunning their
placements. An overrun uses slack or delays others, as the simulation shows; if all were counted as
failures, a thousand tasks would leave no chance of a plan."""
TaskKey = tuple[str, str]
"""(workflow, task)"""
ReplicaKey = tuple[str, str, int]
"""(workflow, task, replica); replica 0 is the first."""


_LINK = Link()  # if none is given


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Frozen input of a plan; equal snapshots have equal plans. ``quantile``: the quantile of its
    run time for which a task's placement is made; a longer task uses slack or delays others."""

    workflow_set: WorkflowSet
    slots: tuple[Slot, ...]
    links: Mapping[frozenset[str], Link] = field(default_factory=dict)
    seed: int = 0
    scenarios: int = 4096
    quantile: float = QUANTILE_LEVELS[0]

    @cached_property
    def slot_by_id(self) -> Mapping[str, Slot]:
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def workflow_by_name(self) -> Mapping[str, Workflow]:
        return {workflow.name: workflow for workflow in self.workflow_set.workflows}

    @cached_property
    def by_length(self) -> tuple[str, ...]:
        """Workflows by critical path, shortest first: the easiest to keep a promise with."""
        lengths: dict[int, float] = {}
        for (
            w
        ) in self.workflow_set.workflows:  # equal workflows share tasks: compute each shape once
            if id(w.tasks) not in lengths:
                lengths[id(w.tasks)] = self.longest_s(w)
        return tuple(
            w.name for w in sorted(self.workflow_set.workflows, key=lambda w: lengths[id(w.tasks)])
        )

    def task(self, key: TaskKey) -> Task:
        """Return the task of a key."""
        return self.workflow_by_name[key[0]].tasks[key[1]]

    def length_s(self, task: Task) -> float:
        """Return the reserved time of a task on a machine of speed 1."""
        return task.runtime_s * self.workflow_set.spread(task).factor(self.quantile)

    def lengths_s(self, workflow: Workflow) -> NDArray[np.float64]:
        """:meth:`length_s` of all tasks, in the workflow's order."""
        result = self._lengths_s.get(id(workflow.tasks))
        if result is None:
            tasks = workflow.tasks
            result = np.array([self.length_s(tasks[task_id]) for task_id in workflow.order])
            self._lengths_s[id(workflow.tasks)] = result
        return result

    @cached_property
    def computed(self) -> dict[str, Any]:
        """What others have computed from it once, by name."""
        return {}

    @cached_property
    def _lengths_s(self) -> dict[int, NDArray[np.float64]]:
        return {}  # by the tasks, which equal workflows share

    def longest_s(self, workflow: Workflow) -> float:
        """Return the longest chain of reserved times, at speed 1, without transfers."""
        ends: dict[str, float] = {}
        for task_id, length_s in zip(workflow.order, self.lengths_s(workflow), strict=True):
            begins = (ends[p] for p in workflow.tasks[task_id].parents)
            ends[task_id] = max(begins, default=0.0) + float(length_s)
        return max(ends.values())

    def duration_s(self, task: Task, slot: Slot) -> float:
        """Return the reserved time of a task in a slot."""
        return self.length_s(task) / slot.speed

    def failure(self, slot: Slot) -> float:
        """Return P(a task fails in a slot that lives): by itself, or because it overruns its
        placement."""
        return 1.0 - (1.0 - slot.task_failure) * (1.0 - self._overrun)

    @cached_property
    def _overrun(self) -> float:
        if not self.workflow_set.uncertain:
            return 0.0
        return min(_OVERRUN, _OVERRUNS / max(len(w.tasks) for w in self.workflow_set.workflows))

    def transfer_s(
        self, workflow: Workflow, parent: str, child: str, sites: tuple[str, str]
    ) -> float:
        """Return the seconds to move the data that ``child`` reads from ``parent`` between two
        sites; 0 within one."""
        if sites[0] == sites[1]:
            return 0.0
        link = self.links.get(frozenset(sites), _LINK)
        return link.latency_s + workflow.transfer_mib(parent, child) / link.bandwidth_mib_s

    def links_between(self, sites: Sequence[str]) -> NDArray[np.float64]:
        """Return latency in seconds and bandwidth in MiB/s, sites × sites: 0 and ``inf`` within a
        site."""
        number = {site: n for n, site in enumerate(sites)}
        result = np.empty((2, len(sites), len(sites)))
        result[0], result[1] = _LINK.latency_s, _LINK.bandwidth_mib_s
        for pair, link in self.links.items():
            if len(pair) == 2 and pair <= number.keys():
                # a link is the same in both directions
                for there, back in permutations(number[site] for site in pair):
                    result[:, there, back] = link.latency_s, link.bandwidth_mib_s
        np.fill_diagonal(result[0], 0.0)
        np.fill_diagonal(result[1], np.inf)
        return result

    def moves_between(self, sites: Sequence[str]) -> NDArray[np.float64]:
        """Return latency in seconds and seconds per MiB, sites × sites: 0 within a site."""
        links = self.links_between(sites)
        links[1] = 1.0 / links[1]
        return links
