"""Relaxations: the smallest change of each kind with which the request is met.

Each is found by the search, which begins with the plans that fall short or suffice with another
amount, and is verified by a plan: none is proposed that falls short of the requested probability. A
later deadline needs new offers, because slots end with it, so the caller passes a function that
returns the snapshot of a changed set.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from vgrads.kernel.progress import report_progress, send_progress
from vgrads.planner.effort import Effort
from vgrads.planner.make import first_plan
from vgrads.planner.plan import Plan, Relaxation
from vgrads.planner.promise.reported import add_promise
from vgrads.planner.search.search import search_anew
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.sets import WorkflowSet

FEWER = "fewer workflows"
Ask = Callable[[WorkflowSet], Snapshot]
Change = Callable[[float], Snapshot]
_LATER = (1.03, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, 400.0, 3600.0)
"""Later deadlines that are tried, as multiples of the deadline, before the least is narrowed down;
the last ones for deadlines in a mistaken unit."""
_PROBE, _CHECK = 0.12, 0.4  # shares of the effort of a kind of change
_LEAST = 100_000, 300
"""Effort of a plan, and for each replica, whatever is left: what suffices is found in a few."""
_ANEW = 600_000  # effort of a plan with other starts, whatever is left
_CLOSE = 0.04  # share of the change to which the least is narrowed down
_NARROWINGS = 3  # at least
_THOROUGH = 1_000_000  # effort of a plan after another has fallen short in other scenarios
_RETRIES = 6  # larger changes that are tried where a plan falls short in other scenarios
_PER_OFFER = 2_000  # effort of asking sites again, for each slot
SMALL = 600
"""Tasks up to which every change is tried."""


def relaxations(
    snapshot: Snapshot, plan: Plan, ask: Ask, effort: Effort, widens: bool = True
) -> tuple[Relaxation, ...]:
    """Return relaxations of a set whose request ``plan`` does not meet: fewer workflows, later
    deadline, more money, wider slot (if it ``widens``); each alone."""
    small = snapshot.workflow_set.task_count <= SMALL
    kinds = (
        {_require_fewer: 0, _raise_budget: 2, _widen_slot: 3, _extend_deadline: 1}
        if small
        else {_require_fewer: 0, _extend_deadline: 1}
    )
    if not widens:
        kinds.pop(_widen_slot, None)
    results: list[tuple[int, Relaxation]] = []
    for number, (kind, place) in enumerate(kinds.items()):  # the last has what others leave
        report_progress("looking for changes that meet the request", number, len(kinds))
        part = effort.part(1.0 / (len(kinds) - number))
        results += [(place, r) for r in kind(_Probes(snapshot, plan, part), ask)]
        effort.take_back(part)
    return tuple(relaxation for _, relaxation in sorted(results, key=itemgetter(0)))


class _Probes:
    """Plans of changed sets, with the effort of one kind of change. The phases of such a plan are
    not those of the caller's."""

    def __init__(self, snapshot: Snapshot, plan: Plan, effort: Effort) -> None:
        self.snapshot, self.workflow_set, self.effort = snapshot, snapshot.workflow_set, effort
        self._whole, self._plan = effort.left, plan
        self._starts = [plan] if plan.placements else []
        self.anew = False

    def meets(self, changed: Snapshot, share: float = _PROBE) -> Plan | None:
        """Return a plan of a changed set that meets the request; None if none is found with this
        share of the effort."""
        part = self.effort.part(min(1.0, share * self._whole / max(self.effort.left, 1.0)))
        least = _LEAST[0] + _LEAST[1] * max((len(p.placements) for p in self._starts), default=0)
        raised = self._whole > 0.0 and part.left < least
        part.left = least if raised else part.left
        # progress is counted in kinds of changes, not in their plans
        with send_progress(None):
            plan = self._planned(changed, part)
        # what is left of a raised part was never taken from the whole
        if not raised:
            self.effort.take_back(part)
        if plan.placements:
            self._starts = [plan, *self._starts][:3]
        return plan if plan.meets_request else None

    def _planned(self, changed: Snapshot, effort: Effort) -> Plan:
        """Plan a changed set: briefly from the present plans, and from others if that falls short
        and plans of the changed set may look different."""
        if self._searches(changed):
            brief = search_anew(changed, self._plan, effort, self._starts, brief=True)
            if brief.meets_request or not self.anew:
                return brief
            effort = Effort(max(effort.left, _ANEW))
        return self._planned_anew(changed, effort)

    def _searches(self, changed: Snapshot) -> bool:
        return self._whole > 0 and changed.workflow_set.task_count <= SMALL

    def _planned_anew(self, changed: Snapshot, effort: Effort) -> Plan:
        """Plan a small set by a search, a large one by the four phases alone."""
        if self._searches(changed):
            return search_anew(changed, self._plan, effort, self._starts)
        effort.spend(min(effort.left, first_plan_work(changed)))
        return first_plan(changed)

    def least(
        self, change: Change, grid: Sequence[float], whole: bool = False
    ) -> tuple[float, Plan] | None:
        """Return the least amount that meets the request: of a rising grid, by bisection, then
        narrowed down from there; ``whole``: in whole numbers. None if none does."""
        plans: dict[float, Plan | None] = {}

        def meets(amount: float) -> bool:
            plans[amount] = self.meets(change(amount))
            return plans[amount] is not None

        # as if every larger amount sufficed: a plan that a search misses makes the result larger
        number = bisect_left(grid, True, key=meets)
        best = plans.get(grid[number]) if number < len(grid) else None
        if best is None:
            return None
        low = grid[number - 1] if number else 0.0
        high, plan = self._narrowed(change, (low, grid[number]), best, whole)
        for step in range(_RETRIES):
            verified = self._verified(change(high), plan)
            if verified.meets_request:
                return high, verified
            high += max(float(whole), _CLOSE * high) * 2**step
            changed = change(high)
            plan = self._planned_anew(changed, Effort(_THOROUGH))
        return None

    def _narrowed(
        self, change: Change, limits: tuple[float, float], best: Plan, whole: bool
    ) -> tuple[float, Plan]:
        """Return the least amount between one that does not suffice and one that does, and its
        plan; with more effort in the end, less may suffice."""
        low, high = limits
        count = 0
        while (close := max(float(whole), _CLOSE * high)) < high - low:
            count += 1
            if self.effort.left <= 0 and count > _NARROWINGS:
                break
            middle = (low + high) / 2
            middle = float(math.floor(middle)) if whole else middle
            plan = self.meets(change(middle))
            low, high, best = (middle, high, best) if plan is None else (low, middle, plan)
        while self.effort.left > 0 and high > close:
            plan = self.meets(change(high - close), _CHECK)
            if plan is None:
                break
            high, best = high - close, plan
        return high, best

    @staticmethod
    def _verified(changed: Snapshot, plan: Plan) -> Plan:
        """Return a plan with its promise in other scenarios than those that chose it."""
        verified = add_promise(changed, plan)
        return verified if not verified.problems(changed) else replace(verified, feasible=False)


def first_plan_work(snapshot: Snapshot) -> float:
    """Return the effort that a first plan takes, in simulated replicas, about."""
    return 1_000.0 * snapshot.workflow_set.task_count * math.sqrt(len(snapshot.slots))


def _make_relaxation(plan: Plan, change: str, amount: float, unit: str) -> Relaxation:
    return Relaxation(
        change=change,
        amount=amount,
        unit=unit,
        probability=plan.promise.probability,
        cost_usd=plan.cost_usd,
    )


def _require_fewer(probes: _Probes, _: Ask) -> Iterator[Relaxation]:
    """Fewer workflows: as many as reach the requested probability."""
    most = probes.workflow_set.needed - 1

    def change(amount: float) -> Snapshot:
        needed = probes.workflow_set.needed - int(amount)
        return replace(probes.snapshot, workflow_set=replace(probes.workflow_set, needed=needed))

    # doubling steps, and the last one is all that may be given up
    grid = sorted({float(min(2**n, most)) for n in range(most.bit_length() + 1)} - {0.0})
    result = probes.least(change, grid, whole=True)
    if result is not None:
        yield _make_relaxation(result[1], FEWER, result[0], "workflows")


def _extend_deadline(probes: _Probes, ask: Ask) -> Iterator[Relaxation]:
    """A later deadline."""
    probes.anew = True
    now_s = probes.workflow_set.deadline_s

    def change(more_s: float) -> Snapshot:
        probes.effort.spend(min(probes.effort.left, _PER_OFFER * len(probes.snapshot.slots)))
        return ask(replace(probes.workflow_set, deadline_s=now_s + more_s))

    result = probes.least(change, [now_s * (factor - 1.0) for factor in _LATER])
    if result is not None:
        yield _make_relaxation(result[1], "a later deadline", result[0], "s")


def _raise_budget(probes: _Probes, _: Ask) -> Iterator[Relaxation]:
    """More money, if the budget is the limit and something can be bought."""
    budget_usd = probes.workflow_set.budget_usd
    if budget_usd is None or not any(slot.paid for slot in probes.snapshot.slots):
        return

    def change(more_usd: float) -> Snapshot:
        workflow_set = replace(probes.workflow_set, budget_usd=budget_usd + more_usd)
        return replace(probes.snapshot, workflow_set=workflow_set)

    # where unlimited money does not suffice, no budget does; else what is spent then suffices
    free = probes.meets(
        replace(probes.snapshot, workflow_set=replace(probes.workflow_set, budget_usd=None))
    )
    if free is None or free.cost_usd <= budget_usd:
        return
    result = probes.least(change, [free.cost_usd - budget_usd])
    if result is not None:
        # the plan may cost less than the budget with which it was made
        more = max(0.01, result[1].cost_usd - budget_usd)
        yield _make_relaxation(result[1], "a larger budget", round(more, 2), "USD")


def _widen_slot(probes: _Probes, _: Ask) -> Iterator[Relaxation]:
    """More processors in the most probable free slot, up to all that its queue offers."""
    slots = probes.snapshot.slots
    free = [slot for slot in slots if not slot.paid and slot.curve.milestones]
    if not free:
        return
    surest = max(free, key=lambda slot: slot.curve.probabilities[-1] * slot.up)
    most = sum(slot.procs for slot in slots if slot.shared == surest.shared) - surest.procs

    def change(more: float) -> Snapshot:
        wider = (replace(s, procs=s.procs + int(more)) if s is surest else s for s in slots)
        return replace(probes.snapshot, slots=tuple(wider))

    steps = (surest.procs // 2, surest.procs, 2 * surest.procs, 4 * surest.procs, most)
    grid = sorted({float(min(step, most)) for step in steps if min(step, most) > 0})
    result = probes.least(change, grid, whole=True)
    if result is not None:
        yield _make_relaxation(
            result[1], f"more processors in {surest.id}", float(result[0]), "processors"
        )
