"""The four phases for large sets: workflows are placed and replicated whole
(:mod:`vgrads.planner.placement.single_slot`).

The same steps in the same order as :mod:`vgrads.planner.phases`, for workflows instead of tasks,
and in batches, so that planning time is linear in the number of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter

from vgrads.planner.phases import Phase, Steps, free_slots
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.pack import find_cheapest_packing, pack_batch, pack_minimum, put_whole
from vgrads.planner.placement.packing import MOST_WORK, Packing
from vgrads.planner.placement.single_slot import SingleSlotPlacements
from vgrads.vgrid.slot import Slot

LARGE = 3_000
"""Number of tasks from which a set is planned by whole workflows."""
_MISSES = 30  # shapes without room, one after the other, until a batch ends
_BATCHES = 24  # steps of a phase; each handles one part of the rest


def coarse_pipeline(draft: Draft) -> tuple[tuple[str, Phase], ...]:
    """Return the phases, which share cached data of workflows and slots."""
    single_slot_placements = SingleSlotPlacements(draft)
    return (
        ("minimal", lambda _: _place_minimum(draft, single_slot_placements)),
        ("trade-off", lambda _: _trade_batches(draft, single_slot_placements)),
        ("additional", lambda _: _place_additional(draft, single_slot_placements)),
        ("cloud", _place_in_cloud),
    )


def _place_minimum(draft: Draft, single_slot_placements: SingleSlotPlacements) -> Steps:
    """Place the needed number of workflows on free sites: whole in one slot, otherwise spread over
    several."""
    needed = draft.snapshot.workflow_set.needed
    _place_each(draft, single_slot_placements, draft.snapshot.by_length, needed)
    missing = needed - len(draft.done)
    if missing > 0:
        names = [name for name in draft.snapshot.by_length if name not in draft.replicas]
        pack_batch(draft, names, missing, free_slots(draft), 0.0)
    return [{"workflows": len(draft.done), "promise": draft.promise}]


def _trade_batches(draft: Draft, single_slot_placements: SingleSlotPlacements) -> Steps:
    """Compare a batch of further workflows with a batch of replicas of the weakest, while either
    helps."""
    steps: Steps = []
    size = max(1, len(draft.snapshot.workflow_set.workflows) // _BATCHES)
    while draft.promise < 1.0 and len(steps) < 2 * _BATCHES:
        before = draft.promise, draft.expected_done
        with draft.trial() as mark:
            _place_next_workflows(draft, single_slot_placements, size)
            more, with_more = (draft.promise, draft.expected_done), draft.since(mark)
        mark = draft.mark()
        _replicate_weakest(draft, single_slot_placements, size)
        replica = draft.promise, draft.expected_done
        if more >= replica or replica <= before:
            draft.back_to(mark)
        if max(more, replica) <= before:
            break
        if more >= replica:
            # the trial with more workflows was undone at its end
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


def _place_additional(draft: Draft, single_slot_placements: SingleSlotPlacements) -> Steps:
    """Place all other workflows, then one more replica of each that can still gain from it."""
    every = len(draft.snapshot.workflow_set.workflows)
    steps: Steps = [
        {
            "workflows": _place_next_workflows(draft, single_slot_placements, every),
            "promise": draft.promise,
        }
    ]
    if draft.promise < 1.0:
        steps.append(
            {
                "copies": _replicate_weakest(draft, single_slot_placements, every),
                "promise": draft.promise,
            }
        )
    return steps


def _place_next_workflows(
    draft: Draft, single_slot_placements: SingleSlotPlacements, most: int
) -> int:
    """Place at most ``most`` workflows that are not in the plan yet; return how many were
    placed."""
    names = [name for name in draft.snapshot.by_length if name not in draft.replicas]
    placed = _place_each(draft, single_slot_placements, names, most)
    names = [name for name in draft.snapshot.by_length if name not in draft.replicas]
    if placed < most and names:
        placed += pack_batch(draft, names, most - placed, free_slots(draft), 0.0)
    return placed


def _replicate_weakest(
    draft: Draft, single_slot_placements: SingleSlotPlacements, most: int
) -> int:
    """Replicate at most ``most`` workflows, the weakest first; return how many were replicated."""
    share = draft.scenarios.share
    weakest = sorted(draft.done, key=lambda name: share(draft.done[name]))[:most]
    names = [name for name in weakest if share(draft.done[name]) < 0.999]
    return _place_each(draft, single_slot_placements, names, most)


def _place_each(
    draft: Draft, single_slot_placements: SingleSlotPlacements, names: Iterable[str], most: int
) -> int:
    """Place at most ``most`` of these workflows, or replicas of them, each in one free slot, until
    many of different shapes in succession have no room; return how many were placed."""
    placed, failed, misses = 0, set[int](), 0
    for name in names:
        # equal workflows share one mapping of tasks, so its identity stands for the shape
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if placed >= most or misses >= _MISSES:
            break
        if shape in failed:
            continue
        if single_slot_placements.place(name, free_slots(draft)):
            placed, misses = placed + 1, 0
        else:  # workflows of the same shape would not fit either
            failed.add(shape)
            misses += 1
    return placed


def _place_in_cloud(draft: Draft) -> Steps:
    """Place the missing part of the minimum in paid slots; then further workflows and replicas of
    the weakest, as few as reach the requested probability, or as many as the budget permits."""
    steps = pack_minimum(draft, draft.snapshot.slots)
    paid = [slot for slot in draft.snapshot.slots if slot.paid]
    while paid and len(draft.done) >= draft.snapshot.workflow_set.needed and len(steps) < _BATCHES:
        if draft.promise >= draft.snapshot.workflow_set.probability or draft.work > MOST_WORK:
            break
        best = _find_most_probable_batch(draft, paid)
        if best is None:
            steps += _find_refused_cost(draft, paid)
            break
        put_whole(draft, best)
        steps.append(
            {
                "workflows": len(best.rows),
                "promise": draft.promise,
                "cost_usd": round(draft.cost_usd, 2),
            }
        )
    return steps


_Rank = tuple[float, float, int]
"""Promise, expected number done, and size of a batch, negative."""


def _find_most_probable_batch(draft: Draft, paid: Sequence[Slot]) -> Packing | None:
    """Return the smallest batch that reaches the requested probability, otherwise the one that
    raises it most: among sizes that are powers of four, and half of the best of these."""
    workflow_set = draft.snapshot.workflow_set
    names, left_usd = _sort_missing_then_weakest(draft), workflow_set.most_usd - draft.cost_usd

    def tried(size: int) -> tuple[_Rank, Packing | None]:
        packing = find_cheapest_packing(draft, names[:size], size, paid, left_usd)
        with draft.trial():
            if put_whole(draft, packing) < size:
                full.append(size)
            if draft.promise >= workflow_set.probability:
                return (workflow_set.probability, 0.0, -size), packing
            return (draft.promise, draft.expected_done, -size), packing

    full = list[int]()
    best: tuple[_Rank, Packing | None] = (draft.promise, draft.expected_done, 0), None
    size = 0
    while size < len(names) and not full and draft.work < MOST_WORK:
        size = min(4 * size, len(names)) or 1
        best = max(best, tried(size), key=itemgetter(0))
        if best[0][0] >= workflow_set.probability:
            break
    # a power of four can be far more than is needed
    half = -best[0][2] // 2
    return (max(best, tried(half), key=itemgetter(0)) if half else best)[1]


def _find_refused_cost(draft: Draft, paid: Sequence[Slot]) -> Steps:
    """Return the cost of a batch that the budget does not permit."""
    workflow_set = draft.snapshot.workflow_set
    if math.isinf(workflow_set.most_usd):
        return []
    with draft.trial():
        names = _sort_missing_then_weakest(draft)[: max(1, workflow_set.needed)]
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


def _sort_missing_then_weakest(draft: Draft) -> list[str]:
    share = draft.scenarios.share
    missing = [name for name in draft.snapshot.by_length if name not in draft.replicas]
    return [*missing, *sorted(draft.done, key=lambda name: share(draft.done[name]))]
