"""Plans that need no planner: ten rules that anybody could follow, for comparison with ours.

- *HEFT at 0, .25, .5, .75* (four rules): one replica of each task, where it ends first, workflows
  shortest first; a slot begins when it is ready with this share of its highest probability
- *everywhere at 0, .5* (two rules): every workflow whole in every slot, begun with another workflow
  in each slot
- *single site*: the same in the slots of one site
- *one replica each*: every workflow whole in the slot that is most probably ready
- *free, then cloud*: everywhere without cost, and the needed workflows also in paid slots, as late
  as they would be in time
- *cheapest cloud*: as few paid slots as hold the needed workflows

HEFT and *everywhere* are applied to the slots without cost and to all slots. Times are reserved as
the snapshot says; where run times are uncertain, also for their medians.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from vgrads.kernel.profile import Profile
from vgrads.planner.plan import Placement, SlotUse
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.binding import price_request
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow

Placements = tuple[Placement, ...]
Times = dict[str, tuple[float, float]]
_HEFT_SHARES, _SHARES = (0.0, 0.25, 0.5, 0.75), (0.0, 0.5)
_MEDIAN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SimplePlan:
    """The plan of a rule, by its name."""

    rule: str
    placements: Placements
    uses: tuple[SlotUse, ...]


def simple_plans(snapshot: Snapshot) -> Iterator[SimplePlan]:
    """Return the different plans of all rules that place the needed workflows within the budget."""
    workflow_set = snapshot.workflow_set
    done = set[Placements]()
    bases = [("", snapshot)]
    if workflow_set.uncertain:
        bases.append((", medians", replace(snapshot, quantile=_MEDIAN)))
    for suffix, basis in bases:
        for rule, placements in _rules(basis):
            if len({p.workflow for p in placements}) < workflow_set.needed or placements in done:
                continue
            done.add(placements)
            uses = slot_uses(snapshot, placements)
            if sum(use.cost_usd for use in uses) <= workflow_set.most_usd + 1e-9:
                yield SimplePlan(rule=rule + suffix, placements=placements, uses=uses)


def _rules(snapshot: Snapshot) -> Iterator[tuple[str, Placements]]:
    slots, needed = snapshot.slots, snapshot.workflow_set.needed
    free = [slot for slot in slots if not slot.paid]
    paid = [slot for slot in slots if slot.paid]
    offers = [("", free), (", paid too", slots)] if paid else [("", free)]
    for suffix, chosen in offers:
        for share in _HEFT_SHARES:
            yield f"HEFT at {share}{suffix}", heft(snapshot, chosen, share, snapshot.by_length)
        for share in _SHARES:
            yield f"everywhere at {share}{suffix}", everywhere(snapshot, chosen, share)
    if paid:  # further workflows cost more
        for share in _HEFT_SHARES:
            names = snapshot.by_length[:needed]
            yield f"HEFT at {share}, needed, paid too", heft(snapshot, slots, share, names)
    for site in sorted({slot.site for slot in slots}):
        here = [slot for slot in slots if slot.site == site]
        yield f"single site {site}", everywhere(snapshot, here, 0.5)
    yield "one replica each", single_replicas(snapshot, slots)
    yield "free, then cloud", free_then_cloud(snapshot, free, paid)
    yield "cheapest cloud", cheapest_cloud(snapshot, paid)


def heft(
    snapshot: Snapshot, slots: Sequence[Slot], share: float, names: Sequence[str]
) -> Placements:
    """One replica of each task, in the slot in which it ends first, by descending upward rank;
    workflows that do not fit are omitted."""
    rows = _Rows(snapshot)
    usable = [slot for slot in slots if slot.curve.reaches_s(share) < math.inf]
    for name in names:
        rows.add_heft(name, usable, share)
    return tuple(rows.placements)


def everywhere(snapshot: Snapshot, slots: Iterable[Slot], share: float) -> Placements:
    """A complete replica of every workflow in every slot in which it fits, from the instant at
    which the slot is ready with this share of its highest probability; the order begins with
    another workflow in each slot."""
    rows = _Rows(snapshot)
    for number, slot in enumerate(slots):
        begin_s = slot.curve.reaches_s(share)
        turn = number % max(1, len(snapshot.by_length))
        for name in (*snapshot.by_length[turn:], *snapshot.by_length[:turn]):
            rows.add(name, slot, begin_s)
    return tuple(rows.placements)


def single_replicas(snapshot: Snapshot, slots: Sequence[Slot]) -> Placements:
    """One replica of every workflow, in the slot that is most probably ready at its start; of equal
    ones in the cheapest, then in the emptiest."""
    rows = _Rows(snapshot)
    for name in snapshot.by_length:
        ranked = sorted(
            slots,
            key=lambda s: (
                -round(s.curve.best * s.up, 2),
                s.price_usd_per_hour * s.nodes,
                rows.count(s),
                s.id,
            ),
        )
        any(rows.add(name, slot, slot.curve.reaches_s(0.75)) for slot in ranked)
    return tuple(rows.placements)


def free_then_cloud(snapshot: Snapshot, free: Sequence[Slot], paid: Sequence[Slot]) -> Placements:
    """Every workflow in every free slot, and the needed number also in paid slots, one in each, as
    late as it would still be in time."""
    rows = _Rows(snapshot)
    for slot in free:
        for name in snapshot.by_length:
            rows.add(name, slot, slot.curve.reaches_s(0.5))
    unused = list(paid)
    for name in snapshot.by_length[: snapshot.workflow_set.needed]:
        for slot in list(unused):
            boot_s = slot.curve.reaches_s(1.0)
            times_s = rows.schedule(snapshot.workflow_by_name[name], slot, 0.0)
            if times_s is None or boot_s == math.inf:
                continue
            latest_s = rows.limit_s(slot) - max(end_s for _, end_s in times_s.values())
            if rows.add(name, slot, max(boot_s, latest_s - 0.25 * boot_s)):
                unused.remove(slot)
                break
    return tuple(rows.placements)


def cheapest_cloud(snapshot: Snapshot, paid: Sequence[Slot]) -> Placements:
    """The needed workflows in paid slots alone, the cheapest first, each filled before the next."""
    rows = _Rows(snapshot)
    ranked = sorted(paid, key=lambda s: (s.price_usd_per_hour * s.nodes, s.id))
    for name in snapshot.by_length[: snapshot.workflow_set.needed]:
        any(rows.add(name, slot, slot.curve.reaches_s(1.0)) for slot in ranked)
    return tuple(rows.placements)


def slot_uses(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[SlotUse, ...]:
    """Return the use of each slot by these replicas, requested as late as possible without loss of
    probability; no free slot of a queue is requested after a later one of that queue."""
    times_s = defaultdict[str, list[tuple[float, float]]](list)
    for p in placements:
        times_s[p.slot].append((p.start_s, p.end_s))
    latest_s, results = dict[str, float](), list[SlotUse]()
    for slot in reversed(snapshot.slots):
        if slot.id not in times_s:
            continue
        request = price_request(slot, times_s[slot.id])
        submit_s = request.submit_s
        if slot.queue and not slot.fixed and not slot.paid:
            submit_s = min(submit_s, latest_s.get(slot.shared, submit_s))
        latest_s[slot.shared] = submit_s
        begin_s = min(start_s for start_s, _ in times_s[slot.id])
        results.append(
            SlotUse(
                slot=slot,
                submit_s=submit_s,
                start_s=begin_s,
                end_s=max(end_s for _, end_s in times_s[slot.id]) if slot.paid else slot.end_s,
                probability=slot.curve.by(begin_s) * slot.up,
                cost_usd=request.usd,
            )
        )
    return tuple(reversed(results))


class _Rows:
    """Placements so far, with the free processors of each slot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.placements: list[Placement] = []
        self._profiles = {s.id: Profile(s.procs, s.end_s) for s in snapshot.slots}
        self._replicas = defaultdict[str, int](int)
        self._counts = defaultdict[str, int](int)

    def count(self, slot: Slot) -> int:
        """Return the number of complete replicas of workflows in a slot."""
        return self._counts[slot.id]

    def limit_s(self, slot: Slot) -> float:
        """Return when a task must have ended."""
        return min(slot.end_s, self.snapshot.workflow_set.deadline_s)

    def add(self, name: str, slot: Slot, begin_s: float) -> bool:
        """Add a replica of a workflow if it fits by the deadline."""
        workflow = self.snapshot.workflow_by_name[name]
        times_s = self.schedule(workflow, slot, begin_s)
        if times_s is None:
            return False
        self._counts[slot.id] += 1
        replica = self._replicas[name]
        self._replicas[name] += 1
        for task_id, span_s in times_s.items():
            self._reserve(workflow, task_id, slot, span_s)
            self._append(workflow, task_id, slot, span_s, replica)
        return True

    def schedule(self, workflow: Workflow, slot: Slot, begin_s: float) -> Times | None:
        """Return start and end of each task; None if the whole workflow does not fit."""
        rooms = {slot.id: slot}
        chosen = self._try(workflow, workflow.order, rooms, {slot.id: begin_s})
        return None if chosen is None else {t: span_s for t, (_, span_s) in chosen.items()}

    def add_heft(self, name: str, slots: Sequence[Slot], share: float) -> bool:
        """Add a workflow, each task where it ends first."""
        workflow = self.snapshot.workflow_by_name[name]
        ranks = self._upward_ranks(workflow)
        order = sorted(workflow.order, key=lambda t: -ranks[t])  # stable: parents before children
        begins_s = {slot.id: slot.curve.reaches_s(share) for slot in slots}
        chosen = self._try(workflow, order, {slot.id: slot for slot in slots}, begins_s)
        for task_id, (slot, span_s) in (chosen or {}).items():
            self._reserve(workflow, task_id, slot, span_s)
            self._append(workflow, task_id, slot, span_s, 0)
        return chosen is not None

    def _upward_ranks(self, workflow: Workflow) -> dict[str, float]:
        ranks: dict[str, float] = {}
        for task_id in reversed(workflow.order):
            below = (ranks[child] for child in workflow.children[task_id])
            ranks[task_id] = self.snapshot.length_s(workflow.tasks[task_id]) + max(below, default=0)
        return ranks

    def _try(
        self,
        workflow: Workflow,
        order: Iterable[str],
        slots: dict[str, Slot],
        begins_s: dict[str, float],
    ) -> dict[str, tuple[Slot, tuple[float, float]]] | None:
        """Return slot, start and end of each task, each where it ends first; nothing stays
        reserved."""
        chosen: dict[str, tuple[Slot, tuple[float, float]]] = {}
        for task_id in order:
            choice = self._first_end(workflow, task_id, chosen, (slots, begins_s))
            if choice is None:
                break
            chosen[task_id] = choice
            self._reserve(workflow, task_id, *choice)
        for task_id, choice in reversed(chosen.items()):
            self._reserve(workflow, task_id, *choice, sign=-1)
        return chosen if len(chosen) == len(workflow.tasks) else None

    def _first_end(
        self,
        workflow: Workflow,
        task_id: str,
        chosen: dict[str, tuple[Slot, tuple[float, float]]],
        offered: tuple[dict[str, Slot], dict[str, float]],
    ) -> tuple[Slot, tuple[float, float]] | None:
        task, best = workflow.tasks[task_id], None
        slots, begins_s = offered
        for slot in slots.values():
            ready_s = begins_s[slot.id]
            if ready_s == math.inf or not slot.holds(task.needs):
                continue
            for parent in task.parents:
                sites = chosen[parent][0].site, slot.site
                moved_s = self.snapshot.transfer_s(workflow, parent, task_id, sites)
                ready_s = max(ready_s, chosen[parent][1][1] + moved_s)
            length_s = self.snapshot.duration_s(task, slot)
            profile = self._profiles[slot.id]
            start_s = profile.earliest_fit(ready_s, length_s, task.procs, self.limit_s(slot))
            if start_s is not None and (best is None or start_s + length_s < best[1][1]):
                best = slot, (start_s, start_s + length_s)
        return best

    def _reserve(
        self,
        workflow: Workflow,
        task_id: str,
        slot: Slot,
        span_s: tuple[float, float],
        sign: int = 1,
    ) -> None:
        self._profiles[slot.id].add(*span_s, sign * workflow.tasks[task_id].procs)

    def _append(
        self,
        workflow: Workflow,
        task_id: str,
        slot: Slot,
        span_s: tuple[float, float],
        replica: int,
    ) -> None:
        self.placements.append(
            Placement(
                workflow=workflow.name,
                task=task_id,
                replica=replica,
                slot=slot.id,
                start_s=span_s[0],
                end_s=span_s[1],
                procs=workflow.tasks[task_id].procs,
            )
        )
