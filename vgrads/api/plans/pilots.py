"""Pilot runs: kinds of tasks to run once, on reduced inputs, before the set, so that its promise
becomes higher."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import hypot
from typing import Any

from vgrads.api.plans.planning import Planned, take_snapshot
from vgrads.planner.make import STANDARD, Options, make_plan
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

Json = dict[str, Any]
SMALL = 0.1
"""Size of a pilot's input, and about of its run time, of the smallest task of its kind."""
EXTRAPOLATED = 0.3
"""Standard deviation of the logarithm of what a run on so small an input says of a full one."""
_SHARE, _MOST = 0.05, 5
"""Of the set's work that pilots may take; and their number."""


def pilots(planned: Planned, seed: int = 0, options: Options = STANDARD) -> list[Json]:
    """Return the pilot runs that raise the promise, the most probability per second first.

    The gain of each is measured: the set is planned again with the uncertainty that its kind would
    have after the run. Together they take at most a twentieth of the set's work.
    """
    timed = planned.snapshot.workflow_set
    work_s = sum(t.runtime_s for w in timed.workflows for t in w.tasks.values())
    results: list[Json] = []
    for item in _candidates(planned.plan.run_times, _SHARE * work_s):
        changed = take_snapshot(_after_pilot(timed, item["kind"]), planned.grid, seed)
        probability = make_plan(changed, options).promise.probability
        item |= {
            "probability": round(probability, 4),
            "gain": round(probability - planned.plan.promise.probability, 4),
        }
        results.append(item)
    return sorted(results, key=lambda item: -item["gain"] / item["pilot_s"])


def _candidates(basis: Iterable[Mapping[str, Any]], most_s: float) -> list[Json]:
    """Return the kinds that are tried: most seconds of uncertainty per second of running first.

    The uncertainty of a kind is shared by all its tasks: for ``n`` tasks of median ``m`` with a
    standard deviation ``s`` of the logarithm it is about ``n m s``.
    """
    every = [
        {
            "kind": entry["kind"],
            "tasks": entry["tasks"],
            "doubt_s": round(entry["tasks"] * entry["longest_s"] * entry["kind_spread"], 1),
            "pilot_s": round(max(1.0, SMALL * entry["shortest_s"]), 1),
        }
        for entry in basis
        if entry["kind_spread"] > 0
    ]
    results = list[Json]()
    for item in sorted(every, key=lambda item: -item["doubt_s"] / item["pilot_s"]):
        if len(results) < _MOST and item["pilot_s"] <= most_s:
            most_s -= item["pilot_s"]
            results.append(item)
    return results


def _after_pilot(workflow_set: WorkflowSet, kind: str) -> WorkflowSet:
    """Return the set with the uncertainty that a kind has after one run on a small input."""

    def changed(task: Task) -> Task:
        if task.kind != kind or task.spread is None or not task.spread.kind:
            return task
        shown = hypot(task.spread.own, EXTRAPOLATED)
        after = task.spread.kind * shown / hypot(task.spread.kind, shown)
        return replace(task, spread=replace(task.spread, kind=after))

    workflows = tuple(
        replace(w, tasks={name: changed(task) for name, task in w.tasks.items()})
        for w in workflow_set.workflows
    )
    return replace(workflow_set, workflows=workflows)
