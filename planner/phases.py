"""The four phases (SC'09 §3.2): minimum, trade-off, additional, paid cloud. Each returns its steps.

If the free sites cannot hold the minimum, the cloud phase may still complete it within the budget;
the paper stops there. Decision 0004 has the reasons.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from vgrads.kernel.progress import report_progress
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.mapping import place_workflow
from vgrads.planner.placement.pack import pack_minimum
from vgrads.planner.placement.replicate import add_replica, add_workflow_replica
from vgrads.planner.plan import PhaseReport, Placement
from vgrads.planner.snapshot import TaskKey
from vgrads.vgrid.slot import Slot

Steps = list[Mapping[str, Any]]
_MOST_STEPS = 1000  # of one phase: limits planning time of large sets
_TWINS = 2  # further replicas of a whole workflow in free slots
_PLACING = "placing workflows"
_TRIED_WEAK = 4  # weakest workflows considered in each cloud step


def minimal(draft: Draft) -> Steps:
    """Place the needed number of workflows on sites without cost."""
    steps: Steps = []
    for name in draft.snapshot.by_length:
        if len(draft.scheduled) >= draft.snapshot.workflow_set.needed:
            break
        report_progress(_PLACING, len(draft.scheduled), draft.snapshot.workflow_set.needed)
        placed = place_workflow(draft, name, free_slots(draft))
        steps.append({"workflow": name, "placed": placed, "promise": draft.promise})
        if not placed and len(steps) >= _MOST_STEPS:
            break
    return steps


def trade_off(draft: Draft) -> Steps:
    """Add another workflow or a replica of the weakest task, whichever raises the promise more,
    repeatedly."""
    steps: Steps = []
    checked: set[TaskKey] = set()
    with_more: list[Placement] = []
    while draft.promise < 1.0 and len(steps) < _MOST_STEPS and draft.scheduled:
        before = draft.promise
        report_progress("adding workflows and replicas", len(steps))
        more, with_more = _try(draft, partial(_make_workflow_option, draft, with_more))
        replica, with_copy = _replica_weakest(draft, checked)
        if max(more, replica) <= before:
            break
        # both trials were undone at their ends
        draft.replay(with_more if more > replica else with_copy)
        chosen = "workflow" if more > replica else "copy"
        # a placed workflow cannot be tried again: the next one is placed anew
        with_more = [] if more > replica else with_more
        steps.append(
            {"chosen": chosen, "before": before, "with_workflow": more, "with_copy": replica}
        )
    return steps


def additional(draft: Draft) -> Steps:
    """Use the remaining space: the other workflows, then replicas of tasks that still gain from
    one."""
    steps = more_workflows(draft)
    for key in _sort_weakest_first(draft)[:_MOST_STEPS]:
        if len(draft.replicas[key[0]][key[1]]) > 1 or draft.task_probability(key) >= 0.999:
            continue
        mark, before = draft.mark(), draft.promise
        replica = add_replica(draft, key, free_slots(draft))
        if draft.promise < before:  # by the paper's rule, a replica can harm its dependents
            draft.back_to(mark)
        elif replica is not None:
            steps.append({"copy_of": list(key), "slot": replica.slot, "promise": draft.promise})
    return steps + _add_twins(draft)


def _add_twins(draft: Draft) -> Steps:
    """Add second and third replicas of whole workflows, the weakest first, until the requested
    probability is reached: replicas of single tasks must end before the first of their dependents
    starts, whole ones need not."""
    steps: Steps = []
    for name in [*_sort_weakest_workflows(draft)] * _TWINS:
        if draft.promise >= draft.snapshot.workflow_set.probability:
            break
        if add_workflow_replica(draft, name, free_slots(draft)):
            steps.append({"replica_of": name, "promise": draft.promise})
    return steps


def more_workflows(draft: Draft) -> Steps:
    """Use the remaining space for the other workflows; no replicas."""
    steps: Steps = []
    for name in draft.snapshot.by_length:
        report_progress(_PLACING, len(draft.scheduled), len(draft.snapshot.by_length))
        if name not in draft.replicas and place_workflow(draft, name, free_slots(draft)):
            steps.append({"workflow": name, "promise": draft.promise})
    return steps


def cloud_for_minimum(draft: Draft) -> Steps:
    """Use paid slots only for workflows that the minimum lacks, within the budget."""
    return pack_minimum(draft, draft.snapshot.slots)


def cloud(draft: Draft) -> Steps:
    """Use paid slots for the remaining risk, most promise per dollar first, within the budget.

    Missing workflows of the minimum come first. Stops at the requested probability; the last step
    reports the cost of more.
    """
    steps = pack_minimum(draft, draft.snapshot.slots)
    workflow_set = draft.snapshot.workflow_set
    budget = workflow_set.most_usd
    if len(draft.scheduled) < workflow_set.needed:
        return steps
    while draft.promise < workflow_set.probability and len(steps) < _MOST_STEPS:
        report_progress("adding paid slots", len(steps))
        options = _list_cloud_options(draft)
        affordable = [o for o in options if o[1] <= budget + 1e-9]
        best = max(affordable, key=lambda o: _compute_gain_per_usd(draft, o), default=None)
        if best is None:
            steps += _list_refused_by_budget(options, budget)
            break
        draft.replay(best[2])
        steps.append(
            {"promise": draft.promise, "cost_usd": round(draft.cost_usd, 2), "placed": len(best[2])}
        )
    return steps


Option = tuple[float, float, list[Placement]]  # promise, cost of the whole draft, placements


def _list_cloud_options(draft: Draft) -> list[Option]:
    """Return the trials that raise the promise."""
    paid = tuple(slot for slot in draft.snapshot.slots if slot.paid)
    every = draft.snapshot.slots
    trials: list[Callable[[], object]] = []
    if paid:
        trials.append(lambda: _add_next_workflow(draft, paid) or _add_next_workflow(draft, every))
        tasks = _sort_weakest_first(draft)
        for name in _sort_weakest_workflows(draft)[:_TRIED_WEAK]:
            trials.append(partial(add_workflow_replica, draft, name, paid))
            weakest = [key for key in tasks if key[0] == name][:2]
            trials += [partial(add_replica, draft, key, paid) for key in weakest]
    options: list[Option] = []
    promise = draft.promise
    for trial in trials:
        with draft.trial() as mark:
            if trial() and draft.promise > promise:
                options.append((draft.promise, draft.cost_usd, draft.since(mark)))
    return options


def _compute_gain_per_usd(draft: Draft, option: Option) -> float:
    gain = option[0] - draft.promise + 1e-6
    # within a billing unit that is paid for, more work costs nothing
    return gain / max(option[1] - draft.cost_usd, 0.01)


def _list_refused_by_budget(options: list[Option], budget: float) -> Steps:
    if not options:
        return []
    best = min(options, key=lambda o: o[1])
    return [
        {
            "refused": "budget",
            "budget_usd": budget,
            "would_cost_usd": best[1],
            "would_promise": best[0],
        }
    ]


def free_slots(draft: Draft) -> tuple[Slot, ...]:
    """Return the slots without cost."""
    return tuple(slot for slot in draft.snapshot.slots if not slot.paid)


def _add_next_workflow(draft: Draft, slots: tuple[Slot, ...] | None = None) -> bool:
    for name in draft.snapshot.by_length:
        if name not in draft.replicas:
            return place_workflow(draft, name, slots or free_slots(draft))
    return False


def _try(draft: Draft, act: Callable[[], object]) -> tuple[float, list[Placement]]:
    """Return the promise after an act and its placements; −1 if it could place nothing."""
    with draft.trial() as mark:
        if not act():
            return -1.0, []
        return draft.promise, draft.since(mark)


def _make_workflow_option(draft: Draft, placements: list[Placement]) -> bool:
    """Add one more workflow: as tried last if that still fits, otherwise placed again."""
    return _repeat_placements(draft, placements) or _add_next_workflow(draft)


def _repeat_placements(draft: Draft, placements: list[Placement]) -> bool:
    """Repeat these placements on a draft that has changed; return False if they no longer fit."""
    mark = draft.mark()
    for p in placements:
        start_s = draft.slots.calendar(p.slot).earliest_fit(
            p.start_s, p.end_s - p.start_s, p.procs, p.end_s
        )
        if start_s != p.start_s:
            draft.back_to(mark)
            return False
        draft.place(p)
    for workflow in sorted({p.workflow for p in placements}):
        draft.settle(workflow)
    return bool(placements)


def _replica_weakest(draft: Draft, checked: set[TaskKey]) -> tuple[float, list[Placement]]:
    """Replicate the weakest task that gains from it; others are added to ``checked``."""
    before = draft.promise
    for key in _sort_weakest_first(draft):
        if len(checked) >= _MOST_STEPS:
            break
        if key not in checked:
            promise, placed = _try(draft, partial(add_replica, draft, key, free_slots(draft)))
            if promise > before:
                return promise, placed
            checked.add(key)
    return -1.0, []


def _sort_weakest_first(draft: Draft) -> list[TaskKey]:
    """Return the tasks of scheduled workflows by probability; among equals the longest first."""
    keys = [(name, task_id) for name in draft.scheduled for task_id in draft.replicas[name]]
    rank = {
        key: (round(draft.task_probability(key), 4), -draft.snapshot.task(key).runtime_s)
        for key in keys
    }
    return sorted(keys, key=lambda key: rank[key])


def _sort_weakest_workflows(draft: Draft) -> list[str]:
    return sorted(draft.scheduled, key=lambda name: draft.scenarios.share(draft.done[name]))


Phase = Callable[[Draft], Steps]
Pipeline = tuple[tuple[str, Phase], ...]
PIPELINE: Pipeline = (
    ("minimal", minimal),
    ("trade-off", trade_off),
    ("additional", additional),
    ("cloud", cloud),
)


def run_phases(
    draft: Draft, pipeline: Iterable[tuple[str, Phase]] = PIPELINE
) -> tuple[PhaseReport, ...]:
    """Run the phases in order and report the changes of each."""
    reports = []
    for name, phase in pipeline:
        begin, before, placed = time.perf_counter(), draft.promise, draft.mark()
        draft.phase = name
        steps = phase(draft)
        reports.append(
            PhaseReport(
                name=name,
                seconds=time.perf_counter() - begin,
                placed=draft.mark() - placed,
                probability_before=before,
                probability_after=draft.promise,
                steps=tuple(steps),
            )
        )
    return tuple(reports)
