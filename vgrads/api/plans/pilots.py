"""Pilot runs: kinds of tasks to run once, before the set, so that its promise becomes higher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from vgrads.api.plans.pilot_choice import SHARE, UncertainKind, choose_pilots, count_kinds
from vgrads.api.plans.pilot_set import choose_pilot_tasks
from vgrads.api.plans.planning import Planned, take_snapshot
from vgrads.planner.make import STANDARD, Options, make_plan
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

Json = dict[str, Any]
_VISIBLE_GAIN = 0.0005
"""Of a probability that is written with three digits."""


def pilots(planned: Planned, seed: int = 0, options: Options = STANDARD) -> list[Json]:
    """Return the pilot runs that visibly raise the promise, the most probability per second first.

    Those that make the set's run time less uncertain are tried, and the gain of each is measured:
    the set is planned again with the uncertainty that its kind would have after the run. Together
    they take at most a twentieth of the set's work.
    """
    every = _list_kinds(planned)
    chosen = choose_pilots((kind.reduced() for kind in _select_uncertain(every)), every)
    measured = _measure_pilots(planned, [(kind, {}) for kind in chosen], (seed, options))
    return [item for item in measured if item["gain"] >= _VISIBLE_GAIN]


def choose_pilots_to_start(
    planned: Planned, seed: int = 0, options: Options = STANDARD
) -> tuple[list[Json], list[Json]]:
    """Return the pilot runs that can be started as the set is, and the kinds for which none is,
    with the reason.

    They use the inputs of a task of their kind, whole, so they cost its whole run time.
    """
    every, tasks_of = _list_kinds(planned), choose_pilot_tasks(planned)
    whole = {
        kind.kind: replace(kind, pilot_s=tasks_of[kind.kind].runtime_s)
        for kind in _select_uncertain(every)
    }
    able = [kind for kind in whole.values() if tasks_of[kind.kind].key]
    chosen = choose_pilots(able, every)
    work_s, names = sum(kind.work_s for kind in every.values()), {kind.kind for kind in chosen}
    left = [
        _describe_kind(kind)
        | {"reason": tasks_of[kind.kind].reason or _make_unchosen(kind, work_s)}
        for kind in whole.values()
        if kind.kind not in names
    ]
    tasks = [
        (kind, {"workflow": key[0], "task": key[1]})
        for kind in chosen
        if (key := tasks_of[kind.kind].key)
    ]
    return _measure_pilots(planned, tasks, (seed, options)), left


def _make_unchosen(kind: UncertainKind, work_s: float) -> str:
    share = kind.pilot_s / work_s
    if share > SHARE:
        return f"takes {share:.1%} of the set's work; all pilots together may take {SHARE:.0%}"
    return "other pilots make the set's run time less uncertain for their time"


def _list_kinds(planned: Planned) -> dict[str, UncertainKind]:
    return count_kinds(planned.snapshot.workflow_set, planned.grid.run_times.derive_kind)


def _select_uncertain(every: Mapping[str, UncertainKind]) -> list[UncertainKind]:
    return [kind for kind in every.values() if kind.shared > 0]


def _describe_kind(kind: UncertainKind) -> Json:
    return {
        "kind": kind.kind,
        "tasks": kind.tasks,
        "doubt_s": round(kind.doubt_s, 1),
        "pilot_s": round(kind.pilot_s, 1),
    }


def _measure_pilots(
    planned: Planned, items: Iterable[tuple[UncertainKind, Json]], how: tuple[int, Options]
) -> list[Json]:
    """Return pilots with the promise after each, and what it gains; ``how``: seed and options of
    the plan."""
    timed, (seed, options) = planned.snapshot.workflow_set, how
    results = list[tuple[float, Json]]()
    for kind, more in items:
        after = _update_after_pilot(timed, kind, planned.grid.run_times.derive_kind)
        plan = make_plan(take_snapshot(after, planned.grid, seed), options)
        probability = plan.promise.probability
        gain = probability - planned.plan.promise.probability
        item = {"probability": round(probability, 4), "gain": round(gain, 4)}
        results.append((-gain / kind.pilot_s, _describe_kind(kind) | more | item))
    return [item for _, item in sorted(results, key=lambda result: result[0])]


def _update_after_pilot(
    workflow_set: WorkflowSet, kind: UncertainKind, kind_of: Callable[[Task], str]
) -> WorkflowSet:
    """Return the set with the uncertainty that a kind has after one run."""
    left = kind.shared_after / kind.shared

    def changed(task: Task) -> Task:
        if task.spread is None or not task.spread.kind or kind_of(task) != kind.kind:
            return task
        return replace(task, spread=replace(task.spread, kind=left * task.spread.kind))

    workflows = tuple(
        replace(w, tasks={name: changed(task) for name, task in w.tasks.items()})
        for w in workflow_set.workflows
    )
    return replace(workflow_set, workflows=workflows)
