"""What the planner is given: the set, the slots that could be had, the network between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from vgrads.vgrid.catalog import Link
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

PLACES = (0.99, 0.9, 0.75, 0.5, 0.25, 0.1)
"""Quantiles of a run time that a task's place in a plan may be made for, the safest first. Below
the median it is hoping: for those who would have no plan at all otherwise."""
_OVERRUN = 1.0 - PLACES[0]
_OVERRUNS = 0.5
"""So many tasks of the largest workflow are taken to fail by overrunning their places, at most:
what overruns eats slack or makes others late, as playing the plan tells; taken for failures, a
thousand would leave no chance of a plan at all."""
TaskKey = tuple[str, str]
"""(workflow, task)"""
CopyKey = tuple[str, str, int]
"""(workflow, task, copy); copy 0 is the first."""


_LINK = Link()  # where none is written down


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Frozen input of a plan; same snapshot, same plan. ``places``: for which quantile of its run
    time a task's place is made; what takes longer eats slack, or makes others late."""

    wanted: WorkflowSet
    slots: tuple[Slot, ...]
    links: Mapping[frozenset[str], Link] = field(default_factory=dict)
    seed: int = 0
    scenarios: int = 4096
    places: float = PLACES[0]

    @cached_property
    def slot_by_id(self) -> Mapping[str, Slot]:
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def workflow_by_name(self) -> Mapping[str, Workflow]:
        return {workflow.name: workflow for workflow in self.wanted.workflows}

    @cached_property
    def by_length(self) -> tuple[str, ...]:
        """Workflows by critical path, shortest first: the easiest to keep a promise with."""
        lengths: dict[int, float] = {}
        for w in self.wanted.workflows:  # equal workflows share their tasks: reckon each shape once
            if id(w.tasks) not in lengths:
                lengths[id(w.tasks)] = self.longest_s(w)
        return tuple(
            w.name for w in sorted(self.wanted.workflows, key=lambda w: lengths[id(w.tasks)])
        )

    def task(self, key: TaskKey) -> Task:
        """The task behind a key."""
        return self.workflow_by_name[key[0]].tasks[key[1]]

    def length_s(self, task: Task) -> float:
        """Time that a task is given on a machine of speed 1."""
        return task.runtime_s * self.wanted.spread(task).factor(self.places)

    def lengths_s(self, workflow: Workflow) -> NDArray[np.float64]:
        """:meth:`length_s` of all tasks, in the workflow's order."""
        found = self._lengths_s.get(id(workflow.tasks))
        if found is None:
            tasks = workflow.tasks
            found = np.array([self.length_s(tasks[task_id]) for task_id in workflow.order])
            self._lengths_s[id(workflow.tasks)] = found
        return found

    @cached_property
    def _lengths_s(self) -> dict[int, NDArray[np.float64]]:
        return {}  # by the tasks, which equal workflows share

    def longest_s(self, workflow: Workflow) -> float:
        """The longest chain of times that tasks are given, at speed 1, without transfers."""
        ends: dict[str, float] = {}
        for task_id, length_s in zip(workflow.order, self.lengths_s(workflow), strict=True):
            begins = (ends[p] for p in workflow.tasks[task_id].parents)
            ends[task_id] = max(begins, default=0.0) + float(length_s)
        return max(ends.values())

    def duration_s(self, task: Task, slot: Slot) -> float:
        """Time that a task is given in a slot."""
        return self.length_s(task) / slot.speed

    def failure(self, slot: Slot) -> float:
        """P(a task fails in a slot that lives): by itself, or because it overruns its place."""
        return 1.0 - (1.0 - slot.task_failure) * (1.0 - self._overrun)

    @cached_property
    def _overrun(self) -> float:
        if not self.wanted.uncertain:
            return 0.0
        return min(_OVERRUN, _OVERRUNS / max(len(w.tasks) for w in self.wanted.workflows))

    def transfer_s(
        self, workflow: Workflow, parent: str, child: str, sites: tuple[str, str]
    ) -> float:
        """Seconds to move what ``child`` reads of ``parent`` between two sites; 0 within one."""
        if sites[0] == sites[1]:
            return 0.0
        link = self.links.get(frozenset(sites), _LINK)
        return link.latency_s + workflow.transfer_mib(parent, child) / link.bandwidth_mib_s

    def links_between(self, sites: Sequence[str]) -> NDArray[np.float64]:
        """Latency in seconds and bandwidth in MiB/s, sites × sites: nothing and ``inf`` within
        one."""
        found = np.zeros((2, len(sites), len(sites)))
        found[1] = np.inf
        for one, other in permutations(range(len(sites)), 2):
            link = self.links.get(frozenset((sites[one], sites[other])), _LINK)
            found[:, one, other] = link.latency_s, link.bandwidth_mib_s
        return found

    def moves_between(self, sites: Sequence[str]) -> NDArray[np.float64]:
        """Latency in seconds and seconds a MiB, sites × sites: nothing within one."""
        found = self.links_between(sites)
        found[1] = 1.0 / found[1]
        return found
