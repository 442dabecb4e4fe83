"""The four phases for large sets: workflows are placed and replicated whole
(:mod:`vgrads.planner.placement.single_slot`).

The same steps in the same order as :mod:`vgrads.planner.phases`, for workflows instead of tasks,
and in batches, so that planning time is linear in the number of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgrads.planner.phases import Phase, Steps, free_slots
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.pack import pack_batch, pack_minimum
from vgrads.planner.placement.single_slot import SingleSlotPlacements
from vgrads.vgrid.slot import Slot

LARGE = 3_000
"""Number of tasks from which a set is planned by whole workflows."""
_BATCHES = 24  # steps of a phase; each handles one part of the rest


def coarse_pipeline(draft: Draft) -> tuple[tuple[str, Phase], ...]:
    """Return the phases, which share cached data of workflows and slots."""
    single_slot_placements = SingleSlotPlacements(draft)
    return (
        ("minimal", lambda _: _minimal(draft, single_slot_placements)),
        ("trade-off", lambda _: _trade_off(draft, single_slot_placements)),
        ("additional", lambda _: _additional(draft, single_slot_placements)),
        ("cloud", _cloud),
    )


def _minimal(draft: Draft, single_slot_placements: SingleSlotPlacements) -> Steps:
    """Place the needed number of workflows on free sites: whole in one slot, otherwise spread over
    several."""
    failed: set[int] = set()
    for name in draft.snapshot.by_length:
        if len(draft.done) >= draft.snapshot.workflow_set.needed:
            break
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if shape not in failed and not single_slot_placements.place(name, free_slots(draft)):
            failed.add(shape)  # workflows of the same shape would not fit either
    missing = draft.snapshot.workflow_set.needed - len(draft.done)
    if missing > 0:
        names = [name for name in draft.snapshot.by_length if name not in draft.replicas]
        pack_batch(draft, names, missing, free_slots(draft), 0.0)
    return [{"workflows": len(draft.done), "promise": draft.promise}]


def _trade_off(draft: Draft, single_slot_placements: SingleSlotPlacements) -> Steps:
    """Compare a batch of further workflows with a batch of replicas of the weakest, while either
    helps."""
    steps: Steps = []
    size = max(1, len(draft.snapshot.workflow_set.workflows) // _BATCHES)
    while draft.promise < 1.0 and len(steps) < 2 * _BATCHES:
        before = draft.promise, draft.expected_done
        with draft.trial() as mark:
            _next_workflows(draft, single_slot_placements, size)
            more, with_more = (draft.promise, draft.expected_done), draft.since(mark)
        mark = draft.mark()
        _replicas(draft, single_slot_placements, size)
        replica = draft.promise, draft.expected_done
        if more >= replica or replica <= before:
            draft.back_to(mark)
        if max(more, replica) <= before:
            break
        if more >= replica:
            draft.replay_whole(with_more)
        steps.append(
            {
                "chosen": "workflows" if more >= replica else "copies",
                "before": before[0],
                "with_workflow": more[0],
                "with_copy": replica[0],
            }
        )
    return steps


def _additional(draft: Draft, single_slot_placements: SingleSlotPlacements) -> Steps:
    """Place all other workflows, then one more replica of each that can still gain from it."""
    every = len(draft.snapshot.workflow_set.workflows)
    steps: Steps = [
        {
            "workflows": _next_workflows(draft, single_slot_placements, every),
            "promise": draft.promise,
        }
    ]
    if draft.promise < 1.0:
        steps.append(
            {"copies": _replicas(draft, single_slot_placements, every), "promise": draft.promise}
        )
    return steps


def _next_workflows(draft: Draft, single_slot_placements: SingleSlotPlacements, most: int) -> int:
    """Place at most ``most`` workflows that are not in the plan yet; return how many were
    placed."""
    placed, failed = 0, set[int]()
    for name in draft.snapshot.by_length:
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if placed >= most:
            break
        if name not in draft.replicas and shape not in failed:
            if single_slot_placements.place(name, free_slots(draft)):
                placed += 1
            else:
                failed.add(shape)
    names = [name for name in draft.snapshot.by_length if name not in draft.replicas]
    if placed < most and names:
        placed += pack_batch(draft, names, most - placed, free_slots(draft), 0.0)
    return placed


def _replicas(draft: Draft, single_slot_placements: SingleSlotPlacements, most: int) -> int:
    """Replicate at most ``most`` workflows, the weakest first; return how many were replicated."""
    share, copied, failed = draft.scenarios.share, 0, set[int]()
    for name in sorted(draft.done, key=lambda name: share(draft.done[name]))[:most]:
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if share(draft.done[name]) < 0.999 and shape not in failed:
            if single_slot_placements.place(name, free_slots(draft)):
                copied += 1
            else:
                failed.add(shape)
    return copied


def _cloud(draft: Draft) -> Steps:
    """Place the missing part of the minimum in paid slots; then further workflows and replicas of
    the weakest, as few as reach the requested probability, or as many as the budget permits."""
    steps = pack_minimum(draft, draft.snapshot.slots)
    paid = [slot for slot in draft.snapshot.slots if slot.paid]
    while paid and len(draft.done) >= draft.snapshot.workflow_set.needed and len(steps) < _BATCHES:
        if draft.promise >= draft.snapshot.workflow_set.probability:
            break
        best = _most_probable_batch(draft, paid)
        if best is None:
            steps += _refused(draft, paid)
            break
        pack_batch(draft, *best)
        steps.append(
            {"workflows": best[1], "promise": draft.promise, "cost_usd": round(draft.cost_usd, 2)}
        )
    return steps


Batch = tuple[Sequence[str], int, Sequence[Slot], float]
"""Workflows, how many of them to place, in which slots, at which maximum cost."""


def _most_probable_batch(draft: Draft, paid: Sequence[Slot]) -> Batch | None:
    """Return the smallest batch that reaches the requested probability, among doubled sizes;
    otherwise the one that raises it most."""
    workflow_set, best = draft.snapshot.workflow_set, None
    names, left_usd = _missing_then_weakest(draft), workflow_set.most_usd - draft.cost_usd
    promise, size = (draft.promise, draft.expected_done), 1
    while size <= len(names) and promise[0] < workflow_set.probability:
        with draft.trial():
            placed = pack_batch(draft, names[:size], size, paid, left_usd)
            before = draft.promise, draft.expected_done
        if before > promise:
            promise, best = before, (names[:size], size, paid, left_usd)
        if placed < size:
            break
        size = min(2 * size, len(names)) if size < len(names) else size + 1
    return best


def _refused(draft: Draft, paid: Sequence[Slot]) -> Steps:
    """Return the cost of a batch that the budget does not permit."""
    workflow_set = draft.snapshot.workflow_set
    if math.isinf(workflow_set.most_usd):
        return []
    with draft.trial():
        names = _missing_then_weakest(draft)[: max(1, workflow_set.needed)]
        before = draft.promise
        pack_batch(draft, names, len(names), paid, math.inf)
        if draft.promise <= before:
            return []
        return [
            {
                "refused": "budget",
                "budget_usd": workflow_set.most_usd,
                "would_cost_usd": round(draft.cost_usd, 2),
                "would_promise": draft.promise,
            }
        ]


def _missing_then_weakest(draft: Draft) -> list[str]:
    share = draft.scenarios.share
    missing = [name for name in draft.snapshot.by_length if name not in draft.replicas]
    return [*missing, *sorted(draft.done, key=lambda name: share(draft.done[name]))]
