"""The last step of planning: cheaper, against the promise as it will be kept.

What is asked decides what is bought. The phases reckon cautiously, so a plan may be surer than was asked, or hold more
than it needs. Here it is played through (:mod:`planner.rollout`) again and again with less: withdrawn sooner, without some
of its slots, without further workflows, with paid slots asked for later. What still keeps the promise as surely as asked
and costs less (money, then processor-hours, both as expected) is taken. How long that may go on is counted in copies
played, so that equal questions have equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.plan import Placement, SlotUse
from planner.probability import standard_error
from planner.rollout import Played, rollout
from planner.rules import EVERYTHING
from planner.snapshot import Snapshot
from vgrid.binding import latest_submission

_SCENARIOS = 512
_PER_SECOND = 1_000_000  # copies that are played in a second, about
_LEAST_HOURS = 0.01  # processor-hours that are worth a change
_LATER = (1.0, 0.5)  # shares of the time that a paid slot could begin later


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A plan in the making: its copies and slots, when the rest is withdrawn, and what playing it gave."""

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
                    slot=slot, submit_s=submit_s, start_s=begin_s, end_s=last_s if slot.paid else slot.end_s,
                    probability=slot.curve.by(begin_s) * slot.up, cost_usd=slot.cost_usd(last_s - submit_s),
                )
            )  # fmt: skip
    return tuple(found)


def improve(snapshot: Snapshot, placements: Sequence[Placement], effort_s: float) -> list[Version]:
    """Ever cheaper versions of a plan that all keep the promise as surely as asked, the plan itself first."""
    search = _Search(snapshot, effort_s)
    first = search.version(tuple(placements), EVERYTHING)
    if first is None or first.promise < search.target:
        return [first] if first else []
    found = [first]
    for step in (search.withdraw_sooner, search.without_slots, search.without_workflows, search.later, search.withdraw_sooner):  # fmt: skip
        found += step(found[-1])
    return found


class _Search:
    def __init__(self, snapshot: Snapshot, effort_s: float) -> None:
        self.snapshot, self.left = snapshot, effort_s * _PER_SECOND
        wanted = snapshot.wanted
        count = min(_SCENARIOS, snapshot.scenarios)
        self.target = min(1.0, wanted.probability + standard_error(wanted.probability, count) / 2)

    def version(self, placements: tuple[Placement, ...], spare: int) -> Version | None:
        """What playing these gives; None where there is nothing to play or no effort is left."""
        self.left -= len(placements) * _SCENARIOS
        if self.left < 0 or not placements:
            return None
        uses = slot_uses(self.snapshot, placements)
        submits_s = {use.slot.id: use.submit_s for use in uses}
        played = rollout(self.snapshot, placements, submits_s, spare, _SCENARIOS)
        return Version(
            placements=placements, uses=uses, spare=spare, promise=played.promise(self.snapshot.wanted.needed),
            usd=played.usd(uses), hours=played.hours(uses), played=played,
        )  # fmt: skip

    def _taken(self, now: Version, placements: tuple[Placement, ...], spare: int) -> Version | None:
        tried = self.version(placements, spare)
        if tried is None or tried.promise < self.target or not tried.cheaper(now):
            return None
        return tried

    def withdraw_sooner(self, now: Version) -> list[Version]:
        """The fewest workflows in reserve with which the promise is still kept."""
        reserve = len({p.workflow for p in now.placements}) - self.snapshot.wanted.needed
        for spare in range(min(reserve, now.spare - 1) + 1):
            tried = self._taken(now, now.placements, spare)
            if tried is not None:
                return [tried]
        return []

    def without_slots(self, now: Version) -> list[Version]:
        """Without slots, the dearest first, many at a time while that goes well."""
        usd, hours = now.played.usd_by_slot(now.uses), now.played.hours_by_slot(now.uses)
        order = sorted(hours, key=lambda slot: (usd[slot], hours[slot]), reverse=True)
        return self._without(now, order, lambda p: p.slot)

    def without_workflows(self, now: Version) -> list[Version]:
        """Without workflows beyond the needed, first those that are seldom among the first to be done."""
        names = list(now.played.done_s)
        done_s = np.stack([now.played.done_s[name] for name in names])
        kept = np.isfinite(done_s) & (done_s <= now.played.enough_s(self.snapshot.wanted.needed))
        rank = dict(zip(names, kept.mean(axis=1), strict=True))
        spare = len(names) - self.snapshot.wanted.needed
        return self._without(now, sorted(names, key=rank.__getitem__)[:spare], lambda p: p.workflow)

    def _without(self, now: Version, parts: list[str], part_of: Callable[[Placement], str]) -> list[Version]:  # fmt: skip
        found, size = list[Version](), max(1, len(parts) // 2)
        while parts and self.left > 0:
            gone, parts = set(parts[:size]), parts[size:]
            left = self._whole(p for p in now.placements if part_of(p) not in gone)
            tried = self._taken(now, left, now.spare)
            if tried is not None:
                now = tried
                found.append(tried)
            elif size > 1:  # some of these
                parts, size = [*sorted(gone), *parts], size // 2
        return found

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
        """Paid slots asked for later: others may have come by then."""
        found = []
        for use in now.uses:
            if use.slot.paid and not use.slot.fixed:
                room_s = self._room_s(now, use)
                for share in _LATER:
                    moved = self._moved(now, use.slot.id, share * room_s)
                    tried = self._taken(now, moved, now.spare) if room_s > 0 else None
                    if tried is not None:
                        now = tried
                        found.append(tried)
                        break
        return found

    def _room_s(self, now: Version, use: SlotUse) -> float:
        """How much later everything in a slot could run, with what needs it from elsewhere still in time."""
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

    def _moved(self, now: Version, slot: str, by_s: float) -> tuple[Placement, ...]:
        return tuple(
            replace(p, start_s=p.start_s + by_s, end_s=p.end_s + by_s) if p.slot == slot else p
            for p in now.placements
        )
