"""How the plan will probably go: its execution, in all scenarios at once.

The phases count a task as failed where its slot is not ready by the planned start. In execution it
starts late, or early, and slack may save it. Here the rules of :mod:`execmgr.core` are followed in
every scenario: a copy starts when its slot is ready, what was planned before it there has started,
what had to end before it has ended, and its data is there from the copy that delivers first. It
counts where it ends before its slot breaks or is over, and before the deadline.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kernel.streams import stream
from planner.plan import Placement, in_order
from planner.snapshot import CopyKey, Snapshot, TaskKey
from vgrid.fate import slot_fate

Floats = NDArray[np.float64]
LARGEST = 20_000
"""Copies up to which plans are played through; beyond, the cautious reckoning stands."""


def rollout(
    snapshot: Snapshot, placements: Sequence[Placement], submits_s: Mapping[str, float]
) -> dict[str, Floats]:
    """Workflow → when it is done in each scenario, ``inf`` where not by the deadline; ``submits_s``: slot → when
    it is asked for."""
    played = _Playing(snapshot, submits_s)
    for placement in in_order(placements, snapshot):
        played.play(placement)
    return {name: played.done_s(name) for name in dict.fromkeys(p.workflow for p in placements)}


class _Playing:
    """Instants of all scenarios, ``inf`` where something never happens."""

    def __init__(self, snapshot: Snapshot, submits_s: Mapping[str, float]) -> None:
        self.snapshot, self.submits_s = snapshot, submits_s
        count = snapshot.scenarios
        self._fates: dict[str, tuple[Floats, Floats]] = {}
        self._copies: dict[TaskKey, list[tuple[str, Floats]]] = defaultdict(list)  # site, ends
        self._started: dict[str, Floats] = defaultdict(lambda: np.zeros(count))
        self._freed: dict[str, Floats] = defaultdict(lambda: np.zeros(count))
        self._open: dict[str, list[tuple[float, CopyKey, Floats]]] = defaultdict(list)

    def _fate(self, slot_id: str) -> tuple[Floats, Floats]:
        """Ready, and the last instant at which it lives, asked for at its own instant."""
        if slot_id not in self._fates:
            slot, submit_s = self.snapshot.slot_by_id[slot_id], self.submits_s[slot_id]
            ready, broken = slot_fate(slot, self.snapshot.scenarios, self.snapshot.seed)
            over = ready + (slot.end_s - submit_s)
            later_s = 0.0 if slot.fixed else submit_s  # than its curve takes for granted
            self._fates[slot_id] = ready + later_s, np.minimum(broken, over) + later_s
        return self._fates[slot_id]

    def play(self, p: Placement) -> None:
        """One copy, after all that were planned to start before it."""
        slot = self.snapshot.slot_by_id[p.slot]
        ready, lives = self._fate(p.slot)
        waiting = self._open[p.slot]
        while waiting and waiting[0][0] <= p.start_s + 1e-9:
            ends = heapq.heappop(waiting)[2]
            self._freed[p.slot] = np.maximum(
                self._freed[p.slot], np.where(np.isinf(ends), 0.0, ends)
            )
        start = np.maximum.reduce([ready, self._started[p.slot], self._freed[p.slot], self._data(p, slot.site)])  # fmt: skip
        ends = start + self._length(p, slot.task_failure)
        ends = np.where(ends <= np.minimum(lives, self.snapshot.wanted.deadline_s + 1e-6), ends, np.inf)  # fmt: skip
        # what cannot end in time is given up, and blocks nobody
        began = np.where(np.isinf(ends), 0.0, start)
        self._started[p.slot] = np.maximum(self._started[p.slot], began)
        heapq.heappush(waiting, (p.end_s, p.key, ends))
        self._copies[p.task_key].append((slot.site, ends))

    def _data(self, p: Placement, site: str) -> Floats:
        """When the outputs of all parents are at a site."""
        workflow = self.snapshot.workflow_by_name[p.workflow]
        latest = np.zeros(self.snapshot.scenarios)
        for parent in workflow.tasks[p.task].parents:
            arrivals = [
                ends + self.snapshot.transfer_s(workflow, parent, p.task, (source, site))
                for source, ends in self._copies[p.workflow, parent]
            ]
            latest = np.maximum(latest, np.minimum.reduce(arrivals) if arrivals else np.inf)
        return latest

    def _length(self, p: Placement, failure: float) -> Floats:
        """Run times; ``inf`` where the task itself fails."""
        planned, spread = p.end_s - p.start_s, self.snapshot.wanted.runtime_spread
        length = np.full(self.snapshot.scenarios, planned)
        if spread > 0:
            draws = stream(self.snapshot.seed, "run time", *map(str, p.task_key))
            z = draws.standard_normal(self.snapshot.scenarios)
            length = planned / self.snapshot.padding * np.exp(spread * z)
        if failure > 0:
            draws = stream(self.snapshot.seed, "task", *map(str, p.key))
            length = np.where(draws.random(self.snapshot.scenarios) < failure, np.inf, length)
        return length

    def done_s(self, workflow: str) -> Floats:
        """When the last task of a workflow ended, each in the copy that was first."""
        last = np.zeros(self.snapshot.scenarios)
        for task_id in self.snapshot.workflow_by_name[workflow].tasks:
            ends = [ends for _, ends in self._copies[workflow, task_id]]
            last = np.maximum(last, np.minimum.reduce(ends) if ends else np.inf)
        return last


def enough_s(done: Mapping[str, Floats], needed: int, scenarios: int) -> Floats:
    """When ``needed`` of these workflows are done in each scenario; ``inf`` where fewer are."""
    if needed <= 0:
        return np.zeros(scenarios)
    if len(done) < needed:
        return np.full(scenarios, np.inf)
    found: Floats = np.partition(np.stack(list(done.values())), needed - 1, axis=0)[needed - 1]
    return found
