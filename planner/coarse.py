"""The four phases for large sets: workflows are placed and copied whole (:mod:`planner.gang`).

The same questions in the same order as :mod:`planner.phases`, asked of workflows instead of tasks,
and in batches, so that planning grows with the number of tasks and no faster.
"""

from __future__ import annotations

from planner.draft import Draft
from planner.gang import Gangs
from planner.mapping import place_workflow
from planner.pack import pack_minimum
from planner.phases import Phase, Steps, free_slots
from vgrid.slot import Slot

LARGE = 3_000
"""Tasks from which on a set is planned whole workflows at a time."""
_BATCHES = 24  # steps of a phase: each looks at one more part of what is left


def coarse_pipeline(draft: Draft) -> tuple[tuple[str, Phase], ...]:
    """The phases, sharing what they remember of workflows and slots."""
    gangs = Gangs(draft)
    return (
        ("minimal", lambda _: _minimal(draft, gangs)),
        ("trade-off", lambda _: _trade_off(draft, gangs)),
        ("additional", lambda _: _additional(draft, gangs)),
        ("cloud", lambda _: _cloud(draft, gangs)),
    )


def _minimal(draft: Draft, gangs: Gangs) -> Steps:
    """The needed number of workflows on free sites: whole, else task by task."""
    failed: set[int] = set()
    for name in draft.snapshot.by_length:
        if len(draft.done) >= draft.snapshot.wanted.needed:
            break
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if gangs.place(name, free_slots(draft)) or shape in failed:
            continue
        if not place_workflow(draft, name, free_slots(draft)):
            failed.add(shape)  # its equals would not fit either
    return [{"workflows": len(draft.done), "promise": draft.promise}]


def _trade_off(draft: Draft, gangs: Gangs) -> Steps:
    """A batch of further workflows against a batch of copies of the weakest, while one helps."""
    steps: Steps = []
    size = max(1, len(draft.snapshot.wanted.workflows) // _BATCHES)
    while draft.promise < 1.0 and len(steps) < 2 * _BATCHES:
        before = draft.promise, draft.expected_done
        with draft.trial() as mark:
            _next_workflows(draft, gangs, size)
            more, with_more = (draft.promise, draft.expected_done), draft.since(mark)
        with draft.trial() as mark:
            _copies(draft, gangs, size)
            copy, with_copy = (draft.promise, draft.expected_done), draft.since(mark)
        if max(more, copy) <= before:
            break
        draft.replay_whole(with_more if more >= copy else with_copy)
        steps.append({"chosen": "workflows" if more >= copy else "copies", "before": before[0],
                      "with_workflow": more[0], "with_copy": copy[0]})  # fmt: skip
    return steps


def _additional(draft: Draft, gangs: Gangs) -> Steps:
    """All other workflows, then one more copy of each that could still gain by it."""
    every = len(draft.snapshot.wanted.workflows)
    steps: Steps = [{"workflows": _next_workflows(draft, gangs, every), "promise": draft.promise}]
    if draft.promise < 1.0:
        steps.append({"copies": _copies(draft, gangs, every), "promise": draft.promise})
    return steps


def _next_workflows(draft: Draft, gangs: Gangs, most: int) -> int:
    """Place up to so many of the workflows that are not in the plan yet; how many were."""
    placed, failed = 0, set[int]()
    for name in draft.snapshot.by_length:
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if placed >= most:
            break
        if name not in draft.copies and shape not in failed:
            if gangs.place(name, free_slots(draft)):
                placed += 1
            else:
                failed.add(shape)
    return placed


def _copies(draft: Draft, gangs: Gangs, most: int) -> int:
    """Copy up to so many of the workflows, the weakest first; how many were."""
    share, copied, failed = draft.scenarios.share, 0, set[int]()
    for name in sorted(draft.done, key=lambda name: share(draft.done[name]))[:most]:
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if share(draft.done[name]) < 0.999 and shape not in failed:
            if gangs.place(name, free_slots(draft)):
                copied += 1
            else:
                failed.add(shape)
    return copied


def _cloud(draft: Draft, gangs: Gangs) -> Steps:
    """Paid slots, one after the other, until the promise is as sure as asked or money is gone."""
    wanted = draft.snapshot.wanted
    budget, steps = wanted.most_usd, pack_minimum(draft, draft.snapshot.slots)
    if len(draft.done) < wanted.needed:
        return steps
    for slot in sorted(
        (s for s in draft.snapshot.slots if s.paid), key=lambda s: s.cost_usd(3600.0)
    ):
        if draft.promise >= wanted.probability:
            break
        mark, before = draft.mark(), (draft.promise, draft.expected_done)
        placed = _fill(draft, gangs, slot)
        if draft.cost_usd > budget + 1e-9 or (draft.promise, draft.expected_done) <= before:
            if draft.cost_usd > budget + 1e-9:
                steps.append({"refused": "budget", "budget_usd": budget, "would_cost_usd": round(draft.cost_usd, 2),
                              "would_promise": draft.promise})  # fmt: skip
            draft.back_to(mark)
            break
        steps.append({"slot": slot.id, "workflows": placed, "promise": draft.promise,
                      "cost_usd": round(draft.cost_usd, 2)})  # fmt: skip
    return steps


def _fill(draft: Draft, gangs: Gangs, slot: Slot) -> int:
    """What a paid slot can hold: missing workflows first, then copies of the weakest."""
    share = draft.scenarios.share
    missing = [name for name in draft.snapshot.by_length if name not in draft.copies]
    weakest = sorted(draft.done, key=lambda name: share(draft.done[name]))
    placed = 0
    for name in [*missing, *weakest]:
        if not gangs.place(name, (slot,)):
            break
        placed += 1
        if draft.promise >= draft.snapshot.wanted.probability:
            break
    return placed
