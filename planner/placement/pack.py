"""Packing of whole workflows into slots at minimum additional cost.

Available and paid slots are used first. Then equal machines are opened, each for a number of
billing units, at once or one after the other, to hold the rest: the cheapest set that suffices, or,
if the budget does not suffice, the one that holds most. Static and dynamic provisioning of
ensembles (Malawski et al., SC'12, doi:10.1109/SC.2012.38) uses one kind of machine and one number
of machines; here every kind and duration is evaluated by placing everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.packing import WAYS, Packer, Packing, Row
from vgrads.planner.placement.windows import PaidSlots, Window, lead_s, machines, open_windows
from vgrads.planner.plan import Placement
from vgrads.vgrid.slot import Slot

Steps = list[Mapping[str, Any]]
_SHARES = (1.0, 0.97, 0.75)  # of its best probability, for a slot to count as ready
_MIXED = 3  # kinds of machine that others are added to
_WORK_PER_PLACEMENT = 1_500
_FINEST = 50  # relative precision (1/50) of the number of billing units


def find_cheapest_packing(
    draft: Draft, names: Sequence[str], count: int, slots: Sequence[Slot], budget_usd: float
) -> Packing:
    """Return the cheapest packing of ``count`` of these workflows, or of as many as the budget
    permits."""
    taken = {
        p.slot
        for name in names
        for replicas in draft.replicas.get(name, {}).values()
        for p in replicas
    }
    offered = tuple(slot for slot in slots if slot.id not in taken)
    packer = Packer(draft=draft, names=names, count=count, slots=offered)
    required, there = draft.snapshot.workflow_set.probability, open_windows(draft, offered)
    best, paid = Packing(), [window for window in there if window.slot.paid]
    shares = _SHARES if any(_is_uncertain(slot) for slot in offered) else _SHARES[:1]
    for base in (paid, there) if len(paid) < len(there) else (there,):
        for share in shares:
            packing = _add_machines(packer, base, share, budget_usd)
            best = max(best, packing, key=lambda p: p.rank(required))
            if packer.exhausted:
                return best
            if _is_enough(best, packer, required):
                break
    return best


def _add_machines(
    packer: Packer, base: Sequence[Window], share: float, budget_usd: float
) -> Packing:
    """Return the best packing in addition to existing windows: machines of one kind, and further
    ones if these are too few. The first may be of any kind, or of those with the highest use per
    cost, even if they do not hold everything."""
    required, packing = packer.draft.snapshot.workflow_set.probability, packer.trial(base)
    if _is_enough(packing, packer, required):
        return packing
    kinds = len(machines(packer.draft, packer.slots, share))
    best = packing
    for first in (kinds, *range(1, min(kinds, _MIXED + 1))):
        mixed = _mix_kinds(packer, packing, base, (first, share, budget_usd))
        best = max(best, mixed, key=lambda p: p.rank(required))
        if packer.exhausted:
            break
    return best


def _mix_kinds(
    packer: Packer, result: Packing, base: Sequence[Window], how: tuple[int, float, float]
) -> Packing:
    """Add machines of one of the first kinds to a packing, then, as long as that helps, of any."""
    required, (first, share, budget_usd) = packer.draft.snapshot.workflow_set.probability, how
    kinds: int | None = first
    while not _is_enough(result, packer, required):
        search = _PackingSearch(packer, result.windows or base, share, budget_usd)
        search.kinds = search.kinds[:kinds]
        more, kinds = search.best(result), None
        if len(more.rows) == len(result.rows) or packer.exhausted:
            return max(more, result, key=lambda p: p.rank(required))
        result = more
    return result


def _is_uncertain(slot: Slot) -> bool:
    """True for a paid slot that may be ready before its certain start."""
    return slot.paid and slot.curve.best > 0 and lead_s(slot, _SHARES[-1]) < lead_s(slot)


def _is_enough(packing: Packing, packer: Packer, required: float) -> bool:
    return len(packing.rows) == packer.count and packing.sure >= required


@dataclass(kw_only=True)
class _Layout:
    """Machines of one kind, each for ``units``, requested over ``spread_s``; ``fewest``: lower
    bound of units."""

    kind: PaidSlots
    adjacent: tuple[Window, ...]
    units: int
    spread_s: float
    way: str
    fewest: int
    most: int


class _PackingSearch:
    """Tries machines in addition to existing windows, in order of lowest possible cost."""

    def __init__(
        self, packer: Packer, base: Sequence[Window], share: float, budget_usd: float
    ) -> None:
        self.packer, self.base, self.count = packer, tuple(base), packer.count
        used = {window.slot.id for window in base}
        rest = [slot for slot in packer.slots if slot.id not in used]
        self.kinds, self.spent_usd = machines(packer.draft, rest, share), sum(map(_bound_usd, base))
        self.budget_usd = budget_usd - self.spent_usd
        self.required_probability = packer.draft.snapshot.workflow_set.probability
        self.deadline_s = packer.draft.snapshot.workflow_set.deadline_s

    def best(self, best: Packing) -> Packing:
        """Return the best of all layouts and the given packing."""
        # cheapest possible first: a complete packing then excludes dearer layouts without a trial
        layouts = sorted(self._layouts(), key=lambda a: (a.fewest * a.kind.unit_usd, -a.most))
        for layout in layouts:
            most = layout.most
            if _is_enough(best, self.packer, self.required_probability):
                # more units than these would cost more than the best packing
                dearer = (best.usd - self.spent_usd) / layout.kind.unit_usd
                most = min(most, math.ceil(dearer - 1e-9) - 1)
            if most >= min(layout.fewest, layout.most):
                best = max(
                    best,
                    self._tightest(layout, most, len(best.rows)),
                    key=lambda p: p.rank(self.required_probability),
                )
            if self.packer.exhausted:
                break
        return best

    def _layouts(self) -> Iterator[_Layout]:
        there_s = sum((w.end_s - w.begin_s) * w.slot.procs * w.slot.speed for w in self.base)
        work_s, longest_s = self.packer.least_s
        for kind in self.kinds:
            paid_slots = self._adjacent(kind)
            for units in kind.holds(self.deadline_s):
                useful_s = kind.useful_s(units)
                duration_s = units * kind.slots[0].billing_s
                more = (
                    tuple(_list_single_windows(paid_slots, duration_s, self.deadline_s))
                    if paid_slots
                    else ()
                )
                most = units * len(kind.slots)
                if self.budget_usd < math.inf:
                    left_usd = self.budget_usd - sum(map(_bound_usd, more))
                    most = min(most, int(left_usd / kind.unit_usd + 1e-9))
                slack_s = max(0.0, self.deadline_s - duration_s)
                spreads = sorted({0.0, min(longest_s, slack_s), slack_s})
                if useful_s > 0 and most > 0:
                    fewest = max(1, math.ceil((work_s - there_s) / useful_s * units))
                    for spread_s, way in product(spreads, WAYS):
                        yield _Layout(
                            kind=kind,
                            adjacent=more,
                            units=units,
                            spread_s=spread_s,
                            way=way,
                            fewest=fewest,
                            most=most,
                        )

    def _adjacent(self, kind: PaidSlots) -> PaidSlots | None:
        """Return the cheapest machines that hold tasks that these do not; those that hold most
        kinds of them if none hold all."""
        rest = [needs for needs in self.packer.needs if not kind.slots[0].holds(needs)]
        if not rest:
            return None
        fitting = {id(k): sum(k.slots[0].holds(needs) for needs in rest) for k in self.kinds}
        best = max(self.kinds, key=lambda k: fitting[id(k)])  # sorted with the cheapest first
        return best if fitting[id(best)] else None

    def _tightest(self, layout: _Layout, most: int, windows: int) -> Packing:
        """Return the fewest units of a layout that hold everything; with all permitted units if
        none do."""
        low, high = min(layout.fewest, most) - 1, most
        best = self._with(layout, high, min(windows, self.count - 1))
        if len(best.rows) < self.count:
            return best
        step = 1
        while high - low > max(1, high // _FINEST) and not self.packer.exhausted:
            # the fewest are near the lower bound: steps double from there until one holds
            # everything
            middle = min(low + step, (low + high) // 2)
            packing = self._with(layout, middle, self.count - 1)
            if len(packing.rows) == self.count:
                high, best = (
                    middle,
                    max(best, packing, key=lambda p: p.rank(self.required_probability)),
                )
            else:
                low, step = middle, step * 2
        return best

    def _with(self, layout: _Layout, total: int, above: int) -> Packing:
        hired = layout.kind.hired(total, layout.units, layout.spread_s, self.deadline_s)
        return self.packer.trial((*self.base, *layout.adjacent, *hired), layout.way, above)


def _list_single_windows(kind: PaidSlots, duration_s: float, deadline_s: float) -> Iterator[Window]:
    """Return one machine, held for this time."""
    units = math.ceil(duration_s / kind.slots[0].billing_s)
    return kind.hired(units, units, 0.0, deadline_s)


def _bound_usd(window: Window) -> float:
    return window.slot.cost_usd(window.end_s - window.requested_s) if window.opened else 0.0


def pack_minimum(draft: Draft, slots: Sequence[Slot]) -> Steps:
    """Place the missing part of the minimum in paid windows, in free slots and in as few others as
    hold it, within the budget. The last step says what more money would place, if anything."""
    snapshot = draft.snapshot
    missing = snapshot.workflow_set.needed - len(draft.replicas)
    if missing <= 0 or not any(slot.paid for slot in slots):
        return []
    names = [name for name in snapshot.by_length if name not in draft.replicas]
    before_usd, budget_usd, steps = draft.cost_usd, snapshot.workflow_set.most_usd, Steps()
    packing, whole = (
        find_cheapest_packing(draft, names, missing, slots, budget_usd - before_usd),
        Packing(),
    )
    if len(packing.rows) < missing and budget_usd < math.inf:  # before it takes slots
        whole = find_cheapest_packing(draft, names, missing, slots, math.inf)
    placed = put_whole(draft, packing)
    if placed:
        steps.append(
            {"packed": placed, "promise": draft.promise, "cost_usd": round(draft.cost_usd, 2)}
        )
    if len(whole.rows) > placed:
        steps.append(
            {
                "refused": "budget",
                "budget_usd": budget_usd,
                "would_cost_usd": round(before_usd + whole.usd, 2),
                "would_promise": whole.sure,
                "would_place": len(whole.rows),
                "missing": missing,
            }
        )
    return steps


def pack_batch(
    draft: Draft, names: Sequence[str], count: int, slots: Sequence[Slot], budget_usd: float
) -> int:
    """Place ``count`` of these workflows, or replicas of them, within this additional budget;
    return how many gain from it."""
    return put_whole(draft, find_cheapest_packing(draft, names, count, slots, budget_usd))


def put_whole(draft: Draft, packing: Packing) -> int:
    """Place a packing; return the number of workflows that it completes or makes more probable."""
    draft.work += _WORK_PER_PLACEMENT * sum(len(row[1]) for row in packing.rows)
    return sum(_put(draft, packing, row) for row in packing.rows)


def _put(draft: Draft, packing: Packing, row: Row) -> bool:
    name, order, starts_s, where = row
    workflow = draft.snapshot.workflow_by_name[name]
    replicas = draft.replicas.get(name, {})
    placements = [
        Placement(
            workflow=name,
            task=task_id,
            replica=len(replicas.get(task_id, ())),
            slot=packing.windows[w].slot.id,
            start_s=start_s,
            end_s=start_s
            + draft.snapshot.duration_s(workflow.tasks[task_id], packing.windows[w].slot),
            procs=workflow.tasks[task_id].procs,
        )
        for task_id, start_s, w in zip(order, starts_s.tolist(), where.tolist(), strict=True)
    ]
    if not draft.place_workflow(placements):
        return False
    for placement in placements:
        draft.note(placement, "whole workflows at least cost", {})
    return True
