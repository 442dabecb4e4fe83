"""The four phases for large sets: workflows are placed and copied whole
(:mod:`vgrads.planner.placement.gang`).

The same questions in the same order as :mod:`vgrads.planner.phases`, asked of workflows instead of
tasks, and in batches, so that planning grows with the number of tasks and no faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgrads.planner.phases import Phase, Steps, free_slots
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.gang import Gangs
from vgrads.planner.placement.pack import pack_batch, pack_minimum
from vgrads.vgrid.slot import Slot

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
        ("cloud", _cloud),
    )


def _minimal(draft: Draft, gangs: Gangs) -> Steps:
    """The needed number of workflows on free sites: whole in one slot, else spread over several."""
    failed: set[int] = set()
    for name in draft.snapshot.by_length:
        if len(draft.done) >= draft.snapshot.wanted.needed:
            break
        shape = id(draft.snapshot.workflow_by_name[name].tasks)
        if shape not in failed and not gangs.place(name, free_slots(draft)):
            failed.add(shape)  # its equals would not fit either
    missing = draft.snapshot.wanted.needed - len(draft.done)
    if missing > 0:
        names = [name for name in draft.snapshot.by_length if name not in draft.copies]
        pack_batch(draft, names, missing, free_slots(draft), 0.0)
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
        steps.append(
            {
                "chosen": "workflows" if more >= copy else "copies",
                "before": before[0],
                "with_workflow": more[0],
                "with_copy": copy[0],
            }
        )
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
    names = [name for name in draft.snapshot.by_length if name not in draft.copies]
    if placed < most and names:
        placed += pack_batch(draft, names, most - placed, free_slots(draft), 0.0)
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


def _cloud(draft: Draft) -> Steps:
    """What the minimum lacks in paid slots; then further workflows and copies of the weakest, as
    few as make the promise as sure as asked, or as many as there is money for."""
    steps = pack_minimum(draft, draft.snapshot.slots)
    paid = [slot for slot in draft.snapshot.slots if slot.paid]
    while paid and len(draft.done) >= draft.snapshot.wanted.needed and len(steps) < _BATCHES:
        if draft.promise >= draft.snapshot.wanted.probability:
            break
        best = _surest_batch(draft, paid)
        if best is None:
            steps += _refused(draft, paid)
            break
        pack_batch(draft, *best)
        steps.append(
            {"workflows": best[1], "promise": draft.promise, "cost_usd": round(draft.cost_usd, 2)}
        )
    return steps


Batch = tuple[Sequence[str], int, Sequence[Slot], float]
"""Workflows, so many of which go into slots for so much money."""


def _surest_batch(draft: Draft, paid: Sequence[Slot]) -> Batch | None:
    """The smallest batch that makes the promise as sure as asked, among doubled sizes; else the one
    that raises it most."""
    wanted, best = draft.snapshot.wanted, None
    names, left_usd = _missing_then_weakest(draft), wanted.most_usd - draft.cost_usd
    promise, size = (draft.promise, draft.expected_done), 1
    while size <= len(names) and promise[0] < wanted.probability:
        with draft.trial():
            placed = pack_batch(draft, names[:size], size, paid, left_usd)
            found = draft.promise, draft.expected_done
        if found > promise:
            promise, best = found, (names[:size], size, paid, left_usd)
        if placed < size:
            break
        size = min(2 * size, len(names)) if size < len(names) else size + 1
    return best


def _refused(draft: Draft, paid: Sequence[Slot]) -> Steps:
    """What a batch would cost that the budget does not allow."""
    wanted = draft.snapshot.wanted
    if math.isinf(wanted.most_usd):
        return []
    with draft.trial():
        names = _missing_then_weakest(draft)[: max(1, wanted.needed)]
        before = draft.promise
        pack_batch(draft, names, len(names), paid, math.inf)
        if draft.promise <= before:
            return []
        return [
            {
                "refused": "budget",
                "budget_usd": wanted.most_usd,
                "would_cost_usd": round(draft.cost_usd, 2),
                "would_promise": draft.promise,
            }
        ]


def _missing_then_weakest(draft: Draft) -> list[str]:
    share = draft.scenarios.share
    missing = [name for name in draft.snapshot.by_length if name not in draft.copies]
    return [*missing, *sorted(draft.done, key=lambda name: share(draft.done[name]))]
