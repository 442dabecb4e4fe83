"""Whole workflows into slots for as little more money as possible.

What is there or paid for comes first. Then so many equal machines are opened, each for so many
billing units, at once or one after the other, that they hold what is missing: the cheapest that do,
or, where the budget does not suffice, those that hold most. Static and dynamic provisioning of
ensembles (Malawski et al., SC'12, doi:10.1109/SC.2012.38) know one kind of machine and one number
of them; here every kind and length of time is weighed by placing everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.packing import WAYS, Packer, Packing, Row
from vgrads.planner.placement.windows import Machines, Window, lead_s, machines, standing
from vgrads.planner.plan import Placement
from vgrads.vgrid.slot import Slot

Steps = list[Mapping[str, Any]]
_MOST_TASKS = 1_500_000  # that are placed in trials, all together
_SHARES = (1.0, 0.97, 0.75)  # of its best chance, with which a slot is reckoned to be there
_MIXED = 3  # kinds of machine that others are added to
_FINEST = 50  # a number of billing units is found to this part of itself


def cheapest(
    draft: Draft, names: Sequence[str], count: int, slots: Sequence[Slot], budget_usd: float
) -> Packing:
    """The packing of so many of these workflows, or of as many as this budget allows, that costs
    least."""
    taken = {
        p.slot for name in names for copies in draft.copies.get(name, {}).values() for p in copies
    }
    offered = tuple(slot for slot in slots if slot.id not in taken)
    packer = Packer(draft=draft, names=names, count=count, slots=offered)
    asked, there = draft.snapshot.wanted.probability, standing(draft, offered)
    best, paid = Packing(), [window for window in there if window.slot.paid]
    for base in (paid, there) if len(paid) < len(there) else (there,):
        for share in _SHARES:
            found = _with_machines(packer, base, share, budget_usd)
            best = max(best, found, key=lambda p: p.rank(asked))
            if _enough(best, packer, asked) or not any(_unsure(slot) for slot in offered):
                break
    return best


def _with_machines(
    packer: Packer, base: Sequence[Window], share: float, budget_usd: float
) -> Packing:
    """The best beside what stands: machines of one kind, and further ones where these are too few.
    The first may be of any kind, or of those with most use for their money, even if they do not
    hold everything."""
    asked, found = packer.draft.snapshot.wanted.probability, packer.trial(base)
    if _enough(found, packer, asked):
        return found
    kinds = len(machines(packer.draft, packer.slots, share))
    firsts = (kinds, *range(1, min(kinds, _MIXED + 1)))
    mixed = (_mixed(packer, found, base, (first, share, budget_usd)) for first in firsts)
    return max(mixed, key=lambda p: p.rank(asked))


def _mixed(
    packer: Packer, found: Packing, base: Sequence[Window], how: tuple[int, float, float]
) -> Packing:
    """Beside what is found: machines of one of the first kinds, then, as long as that helps, of
    any."""
    asked, (first, share, budget_usd) = packer.draft.snapshot.wanted.probability, how
    kinds: int | None = first
    while not _enough(found, packer, asked):
        search = _Search(packer, found.windows or base, share, budget_usd)
        search.kinds = search.kinds[:kinds]
        more, kinds = search.best(found), None
        if len(more.rows) == len(found.rows):
            return max(more, found, key=lambda p: p.rank(asked))
        found = more
    return found


def _unsure(slot: Slot) -> bool:
    """True for a paid slot that may be there before it surely is."""
    return slot.paid and slot.curve.best > 0 and lead_s(slot, _SHARES[-1]) < lead_s(slot)


def _enough(packing: Packing, packer: Packer, asked: float) -> bool:
    return len(packing.rows) == packer.count and packing.sure >= asked


@dataclass(kw_only=True)
class _Layout:
    """Machines of one kind, each for so many units, asked for over so much time; ``fewest`` units
    that could do."""

    kind: Machines
    beside: tuple[Window, ...]
    units: int
    spread_s: float
    way: str
    fewest: int
    most: int


class _Search:
    """Tries machines beside what stands, what could be cheapest first."""

    def __init__(
        self, packer: Packer, base: Sequence[Window], share: float, budget_usd: float
    ) -> None:
        self.packer, self.base, self.count = packer, tuple(base), packer.count
        used = {window.slot.id for window in base}
        rest = [slot for slot in packer.slots if slot.id not in used]
        self.kinds, self.spent_usd = machines(packer.draft, rest, share), sum(map(_most_usd, base))
        self.budget_usd = budget_usd - self.spent_usd
        self.asked = packer.draft.snapshot.wanted.probability
        self.deadline_s = packer.draft.snapshot.wanted.deadline_s

    def best(self, best: Packing) -> Packing:
        """The best of all layouts, or of the packing given."""
        layouts = sorted(self._layouts(), key=lambda a: (a.fewest * a.kind.unit_usd, -a.most))
        for layout in layouts:
            if self.packer.tried > _MOST_TASKS:
                break
            most = layout.most
            if _enough(best, self.packer, self.asked):
                dearer = (best.usd - self.spent_usd) / layout.kind.unit_usd
                most = min(most, math.ceil(dearer - 1e-9) - 1)
            if most >= min(layout.fewest, layout.most):
                best = max(
                    best,
                    self._tightest(layout, most, len(best.rows)),
                    key=lambda p: p.rank(self.asked),
                )
        return best

    def _layouts(self) -> Iterator[_Layout]:
        there_s = sum((w.end_s - w.begin_s) * w.slot.procs * w.slot.speed for w in self.base)
        work_s, longest_s = self.packer.least_s
        for kind in self.kinds:
            beside = self._beside(kind)
            for units in kind.holds(self.deadline_s):
                useful_s = kind.useful_s(units)
                held_s = units * kind.slots[0].billing_s
                more = tuple(_one(beside, held_s, self.deadline_s)) if beside else ()
                most = units * len(kind.slots)
                if self.budget_usd < math.inf:
                    left_usd = self.budget_usd - sum(map(_most_usd, more))
                    most = min(most, int(left_usd / kind.unit_usd + 1e-9))
                slack_s = max(0.0, self.deadline_s - held_s)
                spreads = sorted({0.0, min(longest_s, slack_s), slack_s})
                if useful_s > 0 and most > 0:
                    fewest = max(1, math.ceil((work_s - there_s) / useful_s * units))
                    for spread_s, way in product(spreads, WAYS):
                        yield _Layout(
                            kind=kind,
                            beside=more,
                            units=units,
                            spread_s=spread_s,
                            way=way,
                            fewest=fewest,
                            most=most,
                        )

    def _beside(self, kind: Machines) -> Machines | None:
        """The cheapest machines that hold what these do not; the roomiest where none hold all of
        it."""
        rest = [needs for needs in self.packer.needs if not kind.slots[0].holds(needs)]
        if not rest:
            return None
        held = {id(k): sum(k.slots[0].holds(needs) for needs in rest) for k in self.kinds}
        best = max(self.kinds, key=lambda k: held[id(k)])  # they come with the cheapest first
        return best if held[id(best)] else None

    def _tightest(self, layout: _Layout, most: int, known: int) -> Packing:
        """The fewest units of a layout that hold everything; all that may be had where none do."""
        low, high = min(layout.fewest, most) - 1, most
        best = self._with(layout, high, min(known, self.count - 1))
        if len(best.rows) < self.count:
            return best
        step = 1
        while high - low > max(1, high // _FINEST):
            middle = min(low + step, (low + high) // 2)
            found = self._with(layout, middle, self.count - 1)
            if len(found.rows) == self.count:
                high, best = middle, max(best, found, key=lambda p: p.rank(self.asked))
            else:
                low, step = middle, step * 2
        return best

    def _with(self, layout: _Layout, total: int, above: int) -> Packing:
        hired = layout.kind.hired(total, layout.units, layout.spread_s, self.deadline_s)
        return self.packer.trial((*self.base, *layout.beside, *hired), layout.way, above)


def _one(kind: Machines, held_s: float, deadline_s: float) -> Iterator[Window]:
    """One machine, held so long."""
    units = math.ceil(held_s / kind.slots[0].billing_s)
    return kind.hired(units, units, 0.0, deadline_s)


def _most_usd(window: Window) -> float:
    return window.slot.cost_usd(window.end_s - window.asked_s) if window.opened else 0.0


def pack_minimum(draft: Draft, slots: Sequence[Slot]) -> Steps:
    """What the minimum lacks, in what is paid for, in free slots and in as few others as hold it,
    within the budget."""
    snapshot = draft.snapshot
    missing = snapshot.wanted.needed - len(draft.copies)
    if missing <= 0 or not any(slot.paid for slot in slots):
        return []
    names = [name for name in snapshot.by_length if name not in draft.copies]
    before_usd, budget_usd, steps = draft.cost_usd, snapshot.wanted.most_usd, Steps()
    placed = pack_batch(draft, names, missing, slots, budget_usd - before_usd)
    if placed:
        steps.append(
            {"packed": placed, "promise": draft.promise, "cost_usd": round(draft.cost_usd, 2)}
        )
    if placed < missing and budget_usd < math.inf:
        whole = cheapest(draft, names, missing, slots, math.inf)
        if len(whole.rows) > placed:
            steps.append(
                {
                    "refused": "budget",
                    "budget_usd": budget_usd,
                    "would_cost_usd": round(before_usd + whole.usd, 2),
                    "would_promise": whole.sure,
                }
            )
    return steps


def pack_batch(
    draft: Draft, names: Sequence[str], count: int, slots: Sequence[Slot], budget_usd: float
) -> int:
    """So many of these workflows, or copies of them, for at most so much more money; how many gain
    by it."""
    packing = cheapest(draft, names, count, slots, budget_usd)
    return put(draft, packing, "whole workflows at least cost")


def put(draft: Draft, packing: Packing, rule: str) -> int:
    """Place what is packed; how many workflows that are done by it, or surer by it."""
    return sum(_put(draft, packing, row, rule) for row in packing.rows)


def _put(draft: Draft, packing: Packing, row: Row, rule: str) -> bool:
    name, order, starts_s, where = row
    workflow = draft.snapshot.workflow_by_name[name]
    mark = draft.mark()
    copies = draft.copies.get(name, {})
    before = draft.scenarios.share(draft.done[name]) if name in draft.done else 0.0
    placements = []
    for task_id, start_s, w in zip(order, starts_s.tolist(), where.tolist(), strict=True):
        task, slot = workflow.tasks[task_id], packing.windows[w].slot
        placements.append(
            Placement(
                workflow=name,
                task=task_id,
                copy=len(copies.get(task_id, ())),
                slot=slot.id,
                start_s=start_s,
                end_s=start_s + draft.snapshot.duration_s(task, slot),
                procs=task.procs,
            )
        )
    if len({p.slot for p in placements}) == 1:
        if not draft.place_gang(placements):
            return False
    else:
        for placement in placements:
            draft.place(placement)
        draft.settle(name)
    if draft.scenarios.share(draft.done[name]) <= before:
        draft.back_to(mark)
        return False
    for placement in placements:
        draft.note(placement, rule, {})
    return True
