"""Pilot runs: kinds of tasks to run once, before the set, so that its promise becomes higher."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import hypot
from typing import Any

from vgrads.api.plans.pilot_set import SHARE, smallest_tasks
from vgrads.api.plans.planning import Planned, take_snapshot
from vgrads.planner.make import STANDARD, Options, make_plan
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

Json = dict[str, Any]
SMALL = 0.1
"""Size of a pilot's input, and about of its run time, of the smallest task of its kind."""
EXTRAPOLATED = 0.3
"""Standard deviation of the logarithm of what a run on so small an input says of a full one."""
_MOST = 5
"""Number of pilots whose gain is measured."""


def pilots(planned: Planned, seed: int = 0, options: Options = STANDARD) -> list[Json]:
    """Return the pilot runs that raise the promise, the most probability per second first.

    The gain of each is measured: the set is planned again with the uncertainty that its kind would
    have after the run. Together they take at most a twentieth of the set's work.
    """
    every = [
        entry | {"pilot_s": round(max(1.0, SMALL * entry["shortest_s"]), 1)}
        for entry in _uncertain(planned)
    ]
    chosen, _ = _choose(every, SHARE * _work_s(planned))
    return _measured(planned, chosen, EXTRAPOLATED, (seed, options))


def pilots_to_start(
    planned: Planned, seed: int = 0, options: Options = STANDARD
) -> tuple[list[Json], list[Json]]:
    """Return the pilot runs that can be started as the set is, and the kinds for which none is,
    with the reason.

    They use the inputs of the smallest task of their kind, whole, so they cost its whole run time.
    """
    smallest, work_s = smallest_tasks(planned), _work_s(planned)
    ready, left = list[Json](), list[Json]()
    for entry in _uncertain(planned):
        task = smallest[entry["kind"]]
        item = entry | {"pilot_s": round(task.runtime_s, 1)}
        if task.key is None:
            left.append(item | {"reason": task.reason})
        else:
            ready.append(item | {"workflow": task.key[0], "task": task.key[1]})
    chosen, others = _choose(ready, SHARE * work_s)
    for item in others:
        text = f"would take {item['pilot_s'] / work_s:.1%} of the set's work"
        left.append(item | {"reason": f"{text}; all pilots together may take {SHARE:.0%}"})
    return _measured(planned, chosen, 0.0, (seed, options)), left


def _work_s(planned: Planned) -> float:
    timed = planned.snapshot.workflow_set
    return sum(t.runtime_s for w in timed.workflows for t in w.tasks.values())


def _uncertain(planned: Planned) -> list[Json]:
    """Return the kinds of tasks whose run time has an uncertainty that they share.

    For ``n`` tasks of median ``m`` with a standard deviation ``s`` of the logarithm it is about
    ``n m s``.
    """
    return [
        {
            "kind": entry["kind"],
            "tasks": entry["tasks"],
            "shortest_s": entry["shortest_s"],
            "doubt_s": round(entry["tasks"] * entry["longest_s"] * entry["kind_spread"], 1),
        }
        for entry in planned.plan.run_times
        if entry["kind_spread"] > 0
    ]


def _choose(every: Iterable[Json], most_s: float) -> tuple[list[Json], list[Json]]:
    """Return the kinds that are tried, and the others: most seconds of uncertainty per second of
    running first."""
    chosen, others = list[Json](), list[Json]()
    for item in sorted(every, key=lambda item: -item["doubt_s"] / item["pilot_s"]):
        if len(chosen) < _MOST and item["pilot_s"] <= most_s:
            most_s -= item["pilot_s"]
            chosen.append(item)
        else:
            others.append(item)
    return chosen, others


def _measured(
    planned: Planned, items: Iterable[Json], extrapolated: float, how: tuple[int, Options]
) -> list[Json]:
    """Return pilots with the promise after each, and what it gains; ``extrapolated``: standard
    deviation of what a run says of the set's tasks, in addition to their own; ``how``: seed and
    options of the plan."""
    timed, (seed, options) = planned.snapshot.workflow_set, how
    results = list[Json]()
    for item in items:
        after = _after_pilot(timed, item["kind"], extrapolated)
        plan = make_plan(take_snapshot(after, planned.grid, seed), options)
        probability = plan.promise.probability
        gain = probability - planned.plan.promise.probability
        results.append(item | {"probability": round(probability, 4), "gain": round(gain, 4)})
    return sorted(results, key=lambda item: -item["gain"] / item["pilot_s"])


def _after_pilot(workflow_set: WorkflowSet, kind: str, extrapolated: float) -> WorkflowSet:
    """Return the set with the uncertainty that a kind has after one run."""

    def changed(task: Task) -> Task:
        if task.kind != kind or task.spread is None or not task.spread.kind:
            return task
        shown = hypot(task.spread.own, extrapolated)
        after = task.spread.kind * shown / hypot(task.spread.kind, shown)
        return replace(task, spread=replace(task.spread, kind=after))

    workflows = tuple(
        replace(w, tasks={name: changed(task) for name, task in w.tasks.items()})
        for w in workflow_set.workflows
    )
    return replace(workflow_set, workflows=workflows)
