"""How the plan will probably go: its execution in many scenarios, by the very rules of
:mod:`vgrads.execmgr.core.step`.

The phases count a task as failed where its slot is not ready by the planned start. In execution it
starts late, or early, and slack may save it; what stands behind it may pass; its twin is stopped
where it was first; what is not needed any more is withdrawn. All of that is played, event by event
(:mod:`vgrads.planner.promise.playing`), without what only replanning would save.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.streams import stream
from vgrads.planner.plan import Placement, SlotUse
from vgrads.planner.promise.lengths import Lengths, make_lengths
from vgrads.planner.promise.playing import play_all
from vgrads.planner.promise.schedule import Schedule, make_schedule
from vgrads.planner.rules import EVERYTHING
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.fate import slot_fate
from vgrads.vgrid.slot import Slot

Floats = NDArray[np.float64]
_STEPS = 6_000_000  # copies that are played at most: more copies, fewer scenarios
_FEWEST = 32
_THREADS = 2  # that play side by side, where numba's code runs
_AT_ONCE = 256  # scenarios whose run times are drawn at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of a plan in each scenario: ``done_s`` workflow → when it was done (``inf``: not
    by the deadline), slot → ``ready_s`` (``inf``: never) and ``until_s``, until when it was held (0
    where it never was)."""

    scenarios: int
    done_s: Mapping[str, Floats]
    ready_s: Mapping[str, Floats]
    until_s: Mapping[str, Floats]

    def enough_s(self, needed: int) -> Floats:
        """When ``needed`` of the workflows are done in each scenario; ``inf`` where fewer are."""
        if needed <= 0:
            return np.zeros(self.scenarios)
        if len(self.done_s) < needed:
            return np.full(self.scenarios, np.inf)
        rows = np.stack(list(self.done_s.values()))
        return np.asarray(np.partition(rows, needed - 1, axis=0)[needed - 1])

    def promise(self, needed: int) -> float:
        """Share of the scenarios in which ``needed`` of the workflows are done in time."""
        return float(np.isfinite(self.enough_s(needed)).mean())

    def hours_by_slot(self, uses: Iterable[SlotUse]) -> dict[str, float]:
        """Slot → processor-hours for which it is held, on average."""
        return {
            use.slot.id: use.slot.procs * float(self._held_s(use.slot.id).mean()) / 3600.0
            for use in uses
        }

    def usd_by_slot(self, uses: Iterable[SlotUse]) -> dict[str, float]:
        """Slot → what it costs, on average: paid for from when it is ready to when it is given
        back."""
        return {use.slot.id: self._mean_usd(use.slot) for use in uses}

    def hours(self, uses: Iterable[SlotUse]) -> float:
        """Processor-hours held by all slots, on average."""
        return sum(self.hours_by_slot(uses).values())

    def usd(self, uses: Iterable[SlotUse]) -> float:
        """What all slots cost, on average."""
        return sum(self.usd_by_slot(uses).values())

    def _held_s(self, slot: str) -> Floats:
        return np.maximum(self.until_s[slot] - self.ready_s[slot], 0.0)

    def _mean_usd(self, slot: Slot) -> float:
        if not slot.paid:
            return 0.0
        held_s, counts = np.unique(self._held_s(slot.id), return_counts=True)
        return float(np.average([slot.cost_usd(one) for one in held_s.tolist()], weights=counts))


def rollout(
    snapshot: Snapshot,
    placements: Sequence[Placement],
    submits_s: Mapping[str, float],
    spare: int = EVERYTHING,
    scenarios: int | None = None,
) -> Played:
    """Play a plan through; ``submits_s``: slot → when it is asked for; ``spare``: workflows beyond
    the needed that stand before the rest is withdrawn. Very large plans are played in fewer
    scenarios than the snapshot has."""
    most = max(_FEWEST, _STEPS // max(1, len(placements)))
    count = min(scenarios or snapshot.scenarios, snapshot.scenarios, most)
    schedule, _ = make_schedule(snapshot, placements, submits_s)
    fates_s = _fates(snapshot, submits_s, count)
    lengths = make_lengths(snapshot, schedule, list(submits_s))
    drawn = lengths.drawn or bool(schedule.slots.failure.any())
    kinds, which = fates_s, np.arange(count)
    if not drawn:  # what begins alike goes on alike
        rows, which = np.unique(fates_s.reshape(count, -1), axis=0, return_inverse=True)
        kinds = rows.reshape(len(rows), 2, -1)
    done_s, until_s = _play((snapshot, schedule, lengths), kinds, spare, _AT_ONCE if drawn else 0)
    placed, which = {p.workflow for p in placements}, which.ravel()
    return Played(
        scenarios=count,
        done_s={
            w.name: done_s[which, n]
            for n, w in enumerate(snapshot.wanted.workflows)
            if w.name in placed
        },
        ready_s={name: fates_s[:, 0, n] for n, name in enumerate(submits_s)},
        until_s={name: until_s[which, n] for n, name in enumerate(submits_s)},
    )


def _fates(snapshot: Snapshot, submits_s: Mapping[str, float], count: int) -> Floats:
    """When each slot is ready and lost: scenarios × 2 × slots."""
    found = np.zeros((count, 2, len(submits_s)))
    for n, (name, submit_s) in enumerate(submits_s.items()):
        slot = snapshot.slot_by_id[name]
        ready_s, broken_s = slot_fate(slot, count, snapshot.seed)
        later_s = 0.0 if slot.fixed else submit_s  # than its curve takes for granted
        over_s = ready_s + (slot.end_s - submit_s)
        found[:, 0, n] = ready_s + later_s
        found[:, 1, n] = np.minimum(broken_s, over_s) + later_s
    return found


def _play(
    played: tuple[Snapshot, Schedule, Lengths], fates_s: Floats, spare: int, at_once: int
) -> tuple[Floats, Floats]:
    """When each workflow is done and until when each slot is held; ``at_once``: scenarios whose run
    times are drawn together."""
    (snapshot, schedule, lengths), count = played, len(fates_s)
    wanted = snapshot.wanted
    done_s = np.empty((count, len(wanted.workflows)))
    until_s = np.empty((count, fates_s.shape[2]))
    limits = np.array([0.0, wanted.needed, spare, wanted.deadline_s], np.float64)
    step = at_once or max(1, -(-count // _THREADS))
    play = play_all.after(count * (len(schedule.copies) + fates_s.shape[2]) * 30)

    def part(begin: int) -> None:
        rows, own = slice(begin, begin + step), schedule.copied()
        drawn_s = lengths.draw(snapshot.seed, begin, len(done_s[rows]))
        fails = _fails(snapshot, own, begin, len(done_s[rows]))
        play(own, fates_s[rows], drawn_s, fails, limits.copy(), done_s[rows], until_s[rows])

    begins = range(0, count, step)
    if play is play_all.plain:
        for begin in begins:
            part(begin)
    else:
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(part, begins))
    return done_s, until_s


def _fails(snapshot: Snapshot, s: Schedule, begin: int, count: int) -> Floats:
    """At which share of its length each attempt of a copy fails; ``inf`` where it does not; nothing
    where none can."""
    if not s.slots.failure.any():
        return np.zeros((1, 0, 2))
    draws = stream(snapshot.seed, "task", str(begin))
    fails, shares = draws.random((2, count, len(s.copies), 2))
    return np.where(fails < s.slots.failure[s.copies.slot][:, None], shares, np.inf)
