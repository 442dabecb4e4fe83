"""The last step of planning: make the plan cheaper while the promise remains sufficient.

The phases compute conservatively, so a plan may exceed the requested probability, or hold more than
it needs. This step simulates it (:mod:`vgrads.planner.promise.rollout`) repeatedly with less: with
earlier release, without some of its slots, without further workflows, with paid slots requested
later. A version is accepted if it still reaches the requested probability and costs less (money,
then processor-hours, both as expected). The effort is limited by the number of simulated replicas,
so equal inputs have equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from vgrads.planner.plan import Placement, SlotUse
from vgrads.planner.promise.probability import standard_error
from vgrads.planner.promise.rollout import SimulatedPlan, rollout
from vgrads.planner.rules import EVERYTHING
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.binding import latest_submission

FRESH = 1_000_003
"""Difference between the seed of planning and that of the promise."""
REPORTED_SCENARIOS = 2048
"""Scenarios in which a promise is simulated before it is reported."""
_GLANCE = 64
# scenarios, and standard errors of tolerance
_LOOKS = ((_GLANCE, 3.0), (512, 1.0), (REPORTED_SCENARIOS, 0.0))
_HOURS_A_DOLLAR = 1000.0  # money first, processor-hours among equals
_PER_SECOND = 2_000_000  # replicas simulated per second, about
_LEAST_HOURS = 0.01  # smallest saving in processor-hours that is worth a change
_LATER = (1.0, 0.5)  # fractions of the possible delay of a paid slot

Part = TypeVar("Part", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A candidate plan: its replicas and slots, the number of spare workflows before early release,
    and the results of its simulation."""

    placements: tuple[Placement, ...]
    uses: tuple[SlotUse, ...]
    spare_workflows: int
    promise: float
    usd: float
    hours: float
    simulated: SimulatedPlan

    def cheaper(self, other: Version) -> bool:
        """True if this version costs less money, or the same and fewer hours."""
        if abs(self.usd - other.usd) > 0.005:
            return self.usd < other.usd
        return self.hours < other.hours - _LEAST_HOURS


def slot_uses(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[SlotUse, ...]:
    """Return the use of each slot by these replicas, requested as late as possible without loss of
    probability."""
    by_slot: dict[str, list[Placement]] = {}
    for p in placements:
        by_slot.setdefault(p.slot, []).append(p)
    results = []
    for slot in snapshot.slots:
        placed = by_slot.get(slot.id)
        if placed:
            starts_s = [p.start_s for p in placed]
            begin_s, last_s = min(starts_s), max(p.end_s for p in placed)
            submit_s = latest_submission(slot, starts_s)
            results.append(
                SlotUse(
                    slot=slot,
                    submit_s=submit_s,
                    start_s=begin_s,
                    end_s=last_s if slot.paid else slot.end_s,
                    probability=slot.curve.by(begin_s) * slot.up,
                    cost_usd=slot.cost_usd(last_s - submit_s),
                )
            )
    return tuple(results)


def improve(snapshot: Snapshot, placements: Sequence[Placement], effort_s: float) -> list[Version]:
    """Return ever cheaper versions of a plan that all reach the requested probability, the plan
    itself first."""
    search = _CostSearch(snapshot, effort_s)
    first = search.version(tuple(placements), EVERYTHING, REPORTED_SCENARIOS)
    if first is None or first.promise < snapshot.workflow_set.probability:
        return [first] if first else []
    versions = [first]
    steps = (
        search.release_sooner,
        search.later,
        search.without_slots,
        search.without_replicas,
        search.without_workflows,
        search.later,
        search.release_sooner,
    )
    for step in steps:
        versions += step(versions[-1])
    return versions


class _CostSearch:
    def __init__(self, snapshot: Snapshot, effort_s: float) -> None:
        self.snapshot, self.left = snapshot, effort_s * _PER_SECOND
        self.fresh = replace(snapshot, seed=snapshot.seed + FRESH)
        self.required_probability = snapshot.workflow_set.probability

    def version(
        self, placements: tuple[Placement, ...], spare_workflows: int, scenarios: int
    ) -> Version | None:
        """Simulate these placements; None if there is nothing to simulate or no effort is left.

        With the number of scenarios of a reported promise, other scenarios are used than in the
        first checks: an accepted version was not chosen by them alone.
        """
        self.left -= len(placements) * scenarios
        if self.left < 0 or not placements:
            return None
        uses = slot_uses(self.snapshot, placements)
        submits_s = {use.slot.id: use.submit_s for use in uses}
        snapshot = self.fresh if scenarios == REPORTED_SCENARIOS else self.snapshot
        simulated = rollout(snapshot, placements, submits_s, spare_workflows, scenarios)
        return Version(
            placements=placements,
            uses=uses,
            spare_workflows=spare_workflows,
            promise=simulated.promise(self.snapshot.workflow_set.needed),
            usd=simulated.usd(uses),
            hours=simulated.hours(uses),
            simulated=simulated,
        )

    def _taken(
        self, now: Version, placements: tuple[Placement, ...], spare_workflows: int | None = None
    ) -> Version | None:
        """Return the version if it reaches the requested probability and is cheaper; few scenarios
        suffice to reject most others."""
        for count, doubt in _LOOKS:
            tried = self.version(
                placements,
                now.spare_workflows if spare_workflows is None else spare_workflows,
                count,
            )
            if tried is None:
                return None
            if (
                tried.promise + doubt * standard_error(tried.promise, count)
                < self.required_probability
            ):
                return None
        return tried if tried is not None and tried.cheaper(now) else None

    def release_sooner(self, now: Version) -> list[Version]:
        """Find the smallest number of spare workflows that still keeps the promise."""
        reserve = len({p.workflow for p in now.placements}) - self.snapshot.workflow_set.needed
        for spare_workflows in range(min(reserve, now.spare_workflows - 1) + 1):
            tried = self._taken(now, now.placements, spare_workflows)
            if tried is not None:
                return [tried]
        return []

    def without_slots(self, now: Version) -> list[Version]:
        """Omit some of the slots."""
        return self._without(now, [use.slot.id for use in now.uses], lambda p: p.slot)

    def without_replicas(self, now: Version) -> list[Version]:
        """Omit second replicas of workflows, slot by slot."""
        parts = {(p.slot, p.workflow): None for p in now.placements if p.replica > 0}
        return self._without(now, list(parts), lambda p: (p.slot, p.workflow))

    def without_workflows(self, now: Version) -> list[Version]:
        """Omit workflows beyond the needed number."""
        names = list({p.workflow: None for p in now.placements})
        if len(names) <= self.snapshot.workflow_set.needed:
            return []
        return self._without(now, names, lambda p: p.workflow)

    def _without(
        self, now: Version, parts: Sequence[Part], part_of: Callable[[Placement], Part]
    ) -> list[Version]:
        """Simulate the plan briefly without each part; then omit together the parts that save most
        per loss of promise, as many as the promise permits."""
        glance = self.version(now.placements, now.spare_workflows, _GLANCE)
        ranked: list[tuple[float, int, Part]] = []
        for part in parts if glance else ():
            tried = self.version(self._left(now, {part}, part_of), now.spare_workflows, _GLANCE)
            if (
                glance
                and tried
                and tried.promise + 3 * standard_error(tried.promise, _GLANCE)
                >= self.required_probability
            ):
                saves = (
                    max(glance.usd - tried.usd, 0.0) * _HOURS_A_DOLLAR + glance.hours - tried.hours
                )
                loses = max(glance.promise - tried.promise, 0.0) + 1e-3
                ranked.append((-saves / loses, len(ranked), part))
        order = [part for saves, _, part in sorted(ranked) if saves < 0]
        versions, low, high = list[Version](), 0, len(order)
        while low < high:
            middle = (low + high + 1) // 2
            tried = self._taken(now, self._left(now, set(order[:middle]), part_of))
            low, high = (middle, high) if tried else (low, middle - 1)
            versions = [tried] if tried else versions
        return versions

    def _left(
        self, now: Version, gone: set[Part], part_of: Callable[[Placement], Part]
    ) -> tuple[Placement, ...]:
        return self._whole(p for p in now.placements if part_of(p) not in gone)

    def _whole(self, placements: Iterable[Placement]) -> tuple[Placement, ...]:
        """Omit workflows that lack all replicas of a task, and renumber the replicas."""
        left = list(placements)
        tasks: dict[str, set[str]] = {}
        for p in left:
            tasks.setdefault(p.workflow, set()).add(p.task)
        flows = self.snapshot.workflow_by_name
        whole = {name for name, have in tasks.items() if len(have) == len(flows[name].tasks)}
        observed: dict[tuple[str, str], int] = {}
        results = []
        for p in left:
            if p.workflow in whole:
                replica = observed.get(p.task_key, 0)
                observed[p.task_key] = replica + 1
                results.append(p if p.replica == replica else replace(p, replica=replica))
        return tuple(results)

    def later(self, now: Version) -> list[Version]:
        """Request paid slots later, all or each by itself: other slots may be ready by then."""
        rooms_s = {
            use.slot.id: self._room_s(now, use)
            for use in now.uses
            if use.slot.paid and not use.slot.fixed
        }
        rooms_s = {slot: room_s for slot, room_s in rooms_s.items() if room_s > 1.0}
        every = self._taken(now, self._moved(now, rooms_s)) if len(rooms_s) > 1 else None
        if every is not None:
            return [every]
        results = []
        for slot, room_s in rooms_s.items():
            for share in _LATER:
                tried = self._taken(now, self._moved(now, {slot: share * room_s}))
                if tried is not None:
                    now = tried
                    results.append(tried)
                    break
        return results

    def _room_s(self, now: Version, use: SlotUse) -> float:
        """Return by how much everything in a slot can be delayed so that dependents in other slots
        are still in time."""
        flows, slots = self.snapshot.workflow_by_name, self.snapshot.slot_by_id
        here = [p for p in now.placements if p.slot == use.slot.id]
        room_s = min(use.slot.end_s, self.snapshot.workflow_set.deadline_s) - max(
            p.end_s for p in here
        )
        starts: dict[tuple[str, str], list[Placement]] = {}
        for p in now.placements:
            if p.slot != use.slot.id:
                starts.setdefault(p.task_key, []).append(p)
        for p in here:
            for child in flows[p.workflow].children[p.task]:
                for q in starts.get((p.workflow, child), ()):
                    sites = (use.slot.site, slots[q.slot].site)
                    moved_s = self.snapshot.transfer_s(flows[p.workflow], p.task, child, sites)
                    room_s = min(room_s, q.start_s - moved_s - p.end_s)
        return max(0.0, room_s)

    def _moved(self, now: Version, by_s: Mapping[str, float]) -> tuple[Placement, ...]:
        later = ((p, by_s.get(p.slot, 0.0)) for p in now.placements)
        return tuple(
            replace(p, start_s=p.start_s + s, end_s=p.end_s + s) if s else p for p, s in later
        )
