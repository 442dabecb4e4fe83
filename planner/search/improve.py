"""The last step of planning: make the plan cheaper while the promise remains sufficient.

The phases compute conservatively, so a plan may exceed the requested probability, or hold more than
it needs. This step simulates it (:mod:`vgrads.planner.promise.rollout`) repeatedly with less: with
earlier release, without some of its slots, without further workflows, with paid slots requested
later. A version is accepted if it still reaches the requested probability, or that of a plan which
falls short of it, and costs less (money, then processor-hours, both as expected).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from vgrads.planner.plan import Placement, SlotUse, precedence_problems
from vgrads.planner.search.retime import retimed
from vgrads.planner.search.trials import (
    GLANCE,
    LOOK,
    REPORTED_SCENARIOS,
    Placements,
    Trials,
    Version,
    doubt,
    renumbered,
)
from vgrads.planner.snapshot import TaskKey

_LOOKS = ((GLANCE, 3.0), (LOOK, 1.0))  # scenarios, and standard errors of tolerance
_VERIFIED = 3  # changes of a step that are simulated in other scenarios
_HOURS_A_DOLLAR = 1000.0  # money first, processor-hours among equals
_HALVINGS = 5  # of the possible delay of a paid slot
_LOSS = 0.001  # of the promise of a plan that falls short, for a lower cost

Part = TypeVar("Part", bound=Hashable)


def improve(trials: Trials, first: Version) -> list[Version]:
    """Return ever cheaper versions of a plan, simulated in the scenarios of a reported promise; the
    plan itself first."""
    search = _CostSearch(trials, min(trials.required, first.promise - _LOSS))
    versions = [first]
    if search.needs_everything(first):
        return [first, *search.later(first)]
    steps = (
        search.release_sooner,
        search.later,
        search.without_slots,
        search.without_replicas,
        search.without_workflows,
    )
    before = None
    while versions[-1] is not before:  # until a round of all steps saves nothing
        before = versions[-1]
        for step in steps:
            versions += step(versions[-1])
    return versions


class _CostSearch:
    """Each step returns the version that it leads to, or nothing. Many changes are tried in the
    scenarios of the choice; the best that pass are then simulated in others."""

    def __init__(self, trials: Trials, required: float) -> None:
        self.snapshot, self.trials = trials.snapshot, trials
        self.required_probability = required
        self._brief: dict[int, tuple[Version, Version | None]] = {}

    def needs_everything(self, now: Version) -> bool:
        """True if there is one replica of each task, and no workflow beyond the needed ones."""
        tasks = {p.task_key for p in now.placements}
        workflows = {workflow for workflow, _ in tasks}
        return len(tasks) == len(now.placements) and len(workflows) <= self.trials.needed

    def _passes(
        self, now: Version, placements: Placements, spare_workflows: int | None = None
    ) -> Version | None:
        """Return the changed version if it seems to reach the required probability and is cheaper;
        few scenarios suffice to reject most others."""
        tried = None
        for count, errors in _LOOKS:
            tried = self.trials.like(now, placements, count, spare_workflows)
            if tried is None or tried.promise + doubt(tried, errors) < self.required_probability:
                return None
        return tried if tried is not None and tried.cheaper(now) else None

    def _verified(self, now: Version, tried: Sequence[Version]) -> list[Version]:
        """Return the first that reaches the required probability and is cheaper in the scenarios of
        a reported promise."""
        for version in tried[:_VERIFIED]:
            placements = self._in_time(version.placements)
            if placements is None:
                continue
            full = self.trials.like(version, placements, REPORTED_SCENARIOS)
            if full and full.promise >= self.required_probability and full.cheaper(now):
                return [full]
        return []

    def _in_time(self, placements: Placements) -> Placements | None:
        """Let replicas start later whose data came from a replica that was omitted; None if they
        would end too late."""
        if precedence_problems(placements, self.snapshot):
            return retimed(self.snapshot, placements)
        return placements

    def release_sooner(self, now: Version) -> list[Version]:
        """Find the smallest number of spare workflows that still keeps the promise."""
        reserve = len({p.workflow for p in now.placements}) - self.snapshot.workflow_set.needed
        look, passing = self._brief_of(now, LOOK), list[Version]()
        if look is None:
            return []
        for spare_workflows in range(min(reserve, now.spare_workflows - 1) + 1):
            tried = self._passes(look, now.placements, spare_workflows)
            if tried is not None:
                passing.append(tried)
            if len(passing) == _VERIFIED:
                break
        return self._verified(now, passing)

    def _brief_of(self, now: Version, scenarios: int) -> Version | None:
        """Return the version in scenarios of the choice, to compare others with it."""
        if scenarios not in self._brief or self._brief[scenarios][0] is not now:
            self._brief[scenarios] = now, self.trials.like(now, now.placements, scenarios)
        return self._brief[scenarios][1]

    def without_slots(self, now: Version) -> list[Version]:
        """Omit some of the slots."""
        return self._without(now, [use.slot.id for use in now.uses], lambda p: p.slot)

    def without_replicas(self, now: Version) -> list[Version]:
        """Omit replicas of workflows, slot by slot."""
        parts = dict.fromkeys((p.slot, p.workflow) for p in now.placements)
        return self._without(now, list(parts), lambda p: (p.slot, p.workflow))

    def without_workflows(self, now: Version) -> list[Version]:
        """Omit workflows beyond the needed number."""
        names = list(dict.fromkeys(p.workflow for p in now.placements))
        if len(names) <= self.snapshot.workflow_set.needed:
            return []
        return self._without(now, names, lambda p: p.workflow)

    def _without(
        self, now: Version, parts: Sequence[Part], part_of: Callable[[Placement], Part]
    ) -> list[Version]:
        """Simulate the plan briefly without each part; then omit together the parts that save most
        per loss of promise, as many as the promise permits."""
        glance, look = self._brief_of(now, GLANCE), self._brief_of(now, LOOK)
        if glance is None or look is None:
            return []
        order = self._by_saving(glance, parts, part_of)
        passing, low, high = list[Version](), 0, len(order)
        while low < high:
            middle = (low + high + 1) // 2
            tried = self._passes(look, self._left(now, set(order[:middle]), part_of))
            low, high = (middle, high) if tried else (low, middle - 1)
            passing = [tried, *passing] if tried else passing
        return self._verified(now, passing)

    def _by_saving(
        self, glance: Version, parts: Sequence[Part], part_of: Callable[[Placement], Part]
    ) -> list[Part]:
        """Return the parts whose omission saves anything, those first that save most per loss."""
        ranked: list[tuple[float, int, Part]] = []
        for part in parts:
            tried = self.trials.like(glance, self._left(glance, {part}, part_of), GLANCE)
            if tried and tried.promise + doubt(tried, 3) >= self.required_probability:
                usd = max(glance.usd - tried.usd, 0.0)
                most_usd = max(glance.most_usd - tried.most_usd, 0.0)
                saves = usd * _HOURS_A_DOLLAR + most_usd + glance.hours - tried.hours
                loses = max(glance.promise - tried.promise, 0.0) + 1e-3
                ranked.append((-saves / loses, len(ranked), part))
        return [part for saves, _, part in sorted(ranked) if saves < 0]

    def _left(
        self, now: Version, gone: set[Part], part_of: Callable[[Placement], Part]
    ) -> Placements:
        return self._whole(p for p in now.placements if part_of(p) not in gone)

    def _whole(self, placements: Iterable[Placement]) -> Placements:
        """Omit workflows that lack all replicas of a task, and renumber the replicas."""
        left = list(placements)
        tasks: dict[str, set[str]] = {}
        for p in left:
            tasks.setdefault(p.workflow, set()).add(p.task)
        flows = self.snapshot.workflow_by_name
        whole = {name for name, have in tasks.items() if len(have) == len(flows[name].tasks)}
        return renumbered(p for p in left if p.workflow in whole)

    def later(self, now: Version) -> list[Version]:
        """Request paid slots later, all or each by itself: other slots may be ready by then."""
        rooms_s = {
            use.slot.id: self._room_s(now, use)
            for use in now.uses
            if use.slot.paid and not use.slot.fixed
        }
        rooms_s = {slot: room_s for slot, room_s in rooms_s.items() if room_s > 1.0}
        every = self._latest(now, rooms_s) if len(rooms_s) > 1 else []
        if every:
            return every
        results = list[Version]()
        for slot, room_s in rooms_s.items():
            results += self._latest(results[-1] if results else now, {slot: room_s})
        return results

    def _latest(self, now: Version, rooms_s: Mapping[str, float]) -> list[Version]:
        """Delay some slots by the largest share of their room that keeps the promise."""
        look, passing = self._brief_of(now, LOOK), list[Version]()
        low, high, share = 0.0, 1.0, 1.0
        if look is None or not self._saves(now, self._moved(now, rooms_s)):
            return []
        for _ in range(_HALVINGS):
            by_s = {slot: share * room_s for slot, room_s in rooms_s.items()}
            tried = self._passes(look, self._moved(now, by_s))
            low, high = (share, high) if tried else (low, share)
            passing = [tried, *passing] if tried else passing
            if low == high:
                break
            share = (low + high) / 2
        return self._verified(now, passing)

    def _saves(self, now: Version, placements: Placements) -> bool:
        """True if a change seems to save anything."""
        glance = self._brief_of(now, GLANCE)
        tried = self.trials.like(now, placements, GLANCE)
        return tried is not None and glance is not None and tried.cheaper(glance)

    def _room_s(self, now: Version, use: SlotUse) -> float:
        """Return by how much everything in a slot can be delayed so that dependents in other slots
        are still in time, unless another replica serves them."""
        here = [p for p in now.placements if p.slot == use.slot.id]
        last_s = max(p.end_s for p in here)
        room_s = min(use.slot.end_s, self.snapshot.workflow_set.deadline_s) - last_s
        others: dict[TaskKey, list[Placement]] = {}
        for p in now.placements:
            if p.slot != use.slot.id:
                others.setdefault(p.task_key, []).append(p)
        for p in here:
            copies = others.get(p.task_key, ())
            for child in self.snapshot.workflow_by_name[p.workflow].children[p.task]:
                for q in others.get((p.workflow, child), ()):
                    if all(self._arrives_s(copy, q) > q.start_s for copy in copies):
                        room_s = min(room_s, q.start_s - self._arrives_s(p, q))
        return max(0.0, room_s)

    def _arrives_s(self, p: Placement, child: Placement) -> float:
        """Return when the data of a replica can be at the site of a dependent."""
        slots = self.snapshot.slot_by_id
        sites = (slots[p.slot].site, slots[child.slot].site)
        flow = self.snapshot.workflow_by_name[p.workflow]
        return p.end_s + self.snapshot.transfer_s(flow, p.task, child.task, sites)

    def _moved(self, now: Version, by_s: Mapping[str, float]) -> Placements:
        later = ((p, by_s.get(p.slot, 0.0)) for p in now.placements)
        return tuple(
            replace(p, start_s=p.start_s + s, end_s=p.end_s + s) if s else p for p, s in later
        )
