"""The last step of planning: cheaper, against the promise as it will be kept.

What is asked decides what is bought. The phases reckon cautiously, so a plan may be surer than was
asked, or hold more than it needs. Here it is played through (:mod:`vgrads.planner.promise.rollout`)
again and again with less: withdrawn sooner, without some of its slots, without further workflows,
with paid slots asked for later. What still keeps the promise as surely as asked and costs less
(money, then processor-hours, both as expected) is taken. How long that may go on is counted in
copies played, so that equal questions have equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from vgrads.planner.plan import Placement, SlotUse
from vgrads.planner.promise.probability import standard_error
from vgrads.planner.promise.rollout import Played, rollout
from vgrads.planner.rules import EVERYTHING
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.binding import latest_submission

FRESH = 1_000_003
"""From the seed of planning to that of the promise."""
TOLD = 2048
"""Scenarios in which a promise is played before it is told."""
_GLANCE = 64
# scenarios, and standard errors that are forgiven
_LOOKS = ((_GLANCE, 3.0), (512, 1.0), (TOLD, 0.0))
_HOURS_A_DOLLAR = 1000.0  # money first, processor-hours among equals
_PER_SECOND = 2_000_000  # copies that are played in a second, about
_LEAST_HOURS = 0.01  # processor-hours that are worth a change
_LATER = (1.0, 0.5)  # shares of the time that a paid slot could begin later

Part = TypeVar("Part", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A plan in the making: its copies and slots, when the rest is withdrawn, and what playing it
    gave."""

    placements: tuple[Placement, ...]
    uses: tuple[SlotUse, ...]
    spare: int
    promise: float
    usd: float
    hours: float
    played: Played

    def cheaper(self, other: Version) -> bool:
        """True where this one costs less money, or as much and fewer hours."""
        if abs(self.usd - other.usd) > 0.005:
            return self.usd < other.usd
        return self.hours < other.hours - _LEAST_HOURS


def slot_uses(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[SlotUse, ...]:
    """What each slot is used for by these copies: asked for as late as costs no probability."""
    by_slot: dict[str, list[Placement]] = {}
    for p in placements:
        by_slot.setdefault(p.slot, []).append(p)
    found = []
    for slot in snapshot.slots:
        placed = by_slot.get(slot.id)
        if placed:
            starts_s = [p.start_s for p in placed]
            begin_s, last_s = min(starts_s), max(p.end_s for p in placed)
            submit_s = latest_submission(slot, starts_s)
            found.append(
                SlotUse(
                    slot=slot,
                    submit_s=submit_s,
                    start_s=begin_s,
                    end_s=last_s if slot.paid else slot.end_s,
                    probability=slot.curve.by(begin_s) * slot.up,
                    cost_usd=slot.cost_usd(last_s - submit_s),
                )
            )
    return tuple(found)


def improve(snapshot: Snapshot, placements: Sequence[Placement], effort_s: float) -> list[Version]:
    """Ever cheaper versions of a plan that all keep the promise as surely as asked, the plan itself
    first."""
    search = _Search(snapshot, effort_s)
    first = search.version(tuple(placements), EVERYTHING, TOLD)
    if first is None or first.promise < snapshot.wanted.probability:
        return [first] if first else []
    found = [first]
    steps = (
        search.withdraw_sooner,
        search.later,
        search.without_slots,
        search.without_twins,
        search.without_workflows,
        search.later,
        search.withdraw_sooner,
    )
    for step in steps:
        found += step(found[-1])
    return found


class _Search:
    def __init__(self, snapshot: Snapshot, effort_s: float) -> None:
        self.snapshot, self.left = snapshot, effort_s * _PER_SECOND
        self.fresh = replace(snapshot, seed=snapshot.seed + FRESH)
        self.asked = snapshot.wanted.probability

    def version(
        self, placements: tuple[Placement, ...], spare: int, scenarios: int
    ) -> Version | None:
        """What playing these gives; None where there is nothing to play or no effort is left.

        Played in so many scenarios as a promise is told with, they are others than at a glance:
        what is taken was not chosen by them alone.
        """
        self.left -= len(placements) * scenarios
        if self.left < 0 or not placements:
            return None
        uses = slot_uses(self.snapshot, placements)
        submits_s = {use.slot.id: use.submit_s for use in uses}
        snapshot = self.fresh if scenarios == TOLD else self.snapshot
        played = rollout(snapshot, placements, submits_s, spare, scenarios)
        return Version(
            placements=placements,
            uses=uses,
            spare=spare,
            promise=played.promise(self.snapshot.wanted.needed),
            usd=played.usd(uses),
            hours=played.hours(uses),
            played=played,
        )

    def _taken(
        self, now: Version, placements: tuple[Placement, ...], spare: int | None = None
    ) -> Version | None:
        """The version, where it is kept as surely as asked and cheaper; most that are not show it
        at a glance."""
        for count, doubt in _LOOKS:
            tried = self.version(placements, now.spare if spare is None else spare, count)
            if tried is None:
                return None
            if tried.promise + doubt * standard_error(tried.promise, count) < self.asked:
                return None
        return tried if tried is not None and tried.cheaper(now) else None

    def withdraw_sooner(self, now: Version) -> list[Version]:
        """The fewest workflows in reserve with which the promise is still kept."""
        reserve = len({p.workflow for p in now.placements}) - self.snapshot.wanted.needed
        for spare in range(min(reserve, now.spare - 1) + 1):
            tried = self._taken(now, now.placements, spare)
            if tried is not None:
                return [tried]
        return []

    def without_slots(self, now: Version) -> list[Version]:
        """Without some of the slots."""
        return self._without(now, [use.slot.id for use in now.uses], lambda p: p.slot)

    def without_twins(self, now: Version) -> list[Version]:
        """Without second copies of workflows, as far as each lies in one slot."""
        parts = {(p.slot, p.workflow): None for p in now.placements if p.copy > 0}
        return self._without(now, list(parts), lambda p: (p.slot, p.workflow))

    def without_workflows(self, now: Version) -> list[Version]:
        """Without workflows beyond the needed."""
        names = list({p.workflow: None for p in now.placements})
        if len(names) <= self.snapshot.wanted.needed:
            return []
        return self._without(now, names, lambda p: p.workflow)

    def _without(
        self, now: Version, parts: Sequence[Part], part_of: Callable[[Placement], Part]
    ) -> list[Version]:
        """Each part is left out for a glance; those that save most for what they cost the promise
        are left out together, as many as it bears."""
        glance = self.version(now.placements, now.spare, _GLANCE)
        ranked: list[tuple[float, int, Part]] = []
        for part in parts if glance else ():
            tried = self.version(self._left(now, {part}, part_of), now.spare, _GLANCE)
            if (
                glance
                and tried
                and tried.promise + 3 * standard_error(tried.promise, _GLANCE) >= self.asked
            ):
                saves = (
                    max(glance.usd - tried.usd, 0.0) * _HOURS_A_DOLLAR + glance.hours - tried.hours
                )
                loses = max(glance.promise - tried.promise, 0.0) + 1e-3
                ranked.append((-saves / loses, len(ranked), part))
        order = [part for saves, _, part in sorted(ranked) if saves < 0]
        found, low, high = list[Version](), 0, len(order)
        while low < high:
            middle = (low + high + 1) // 2
            tried = self._taken(now, self._left(now, set(order[:middle]), part_of))
            low, high = (middle, high) if tried else (low, middle - 1)
            found = [tried] if tried else found
        return found

    def _left(
        self, now: Version, gone: set[Part], part_of: Callable[[Placement], Part]
    ) -> tuple[Placement, ...]:
        return self._whole(p for p in now.placements if part_of(p) not in gone)

    def _whole(self, placements: Iterable[Placement]) -> tuple[Placement, ...]:
        """Without workflows of which a task has no copy any more, copies numbered anew."""
        left = list(placements)
        tasks: dict[str, set[str]] = {}
        for p in left:
            tasks.setdefault(p.workflow, set()).add(p.task)
        flows = self.snapshot.workflow_by_name
        whole = {name for name, have in tasks.items() if len(have) == len(flows[name].tasks)}
        seen: dict[tuple[str, str], int] = {}
        found = []
        for p in left:
            if p.workflow in whole:
                copy = seen.get(p.task_key, 0)
                seen[p.task_key] = copy + 1
                found.append(p if p.copy == copy else replace(p, copy=copy))
        return tuple(found)

    def later(self, now: Version) -> list[Version]:
        """Paid slots asked for later, all or each by itself: others may have come by then."""
        rooms_s = {
            use.slot.id: self._room_s(now, use)
            for use in now.uses
            if use.slot.paid and not use.slot.fixed
        }
        rooms_s = {slot: room_s for slot, room_s in rooms_s.items() if room_s > 1.0}
        every = self._taken(now, self._moved(now, rooms_s)) if len(rooms_s) > 1 else None
        if every is not None:
            return [every]
        found = []
        for slot, room_s in rooms_s.items():
            for share in _LATER:
                tried = self._taken(now, self._moved(now, {slot: share * room_s}))
                if tried is not None:
                    now = tried
                    found.append(tried)
                    break
        return found

    def _room_s(self, now: Version, use: SlotUse) -> float:
        """How much later everything in a slot could run, with what needs it from elsewhere still in
        time."""
        flows, slots = self.snapshot.workflow_by_name, self.snapshot.slot_by_id
        here = [p for p in now.placements if p.slot == use.slot.id]
        room_s = min(use.slot.end_s, self.snapshot.wanted.deadline_s) - max(p.end_s for p in here)
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
