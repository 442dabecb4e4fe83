"""Rollout of a plan: its execution in many scenarios, by the same rules as
:mod:`vgrads.execmgr.core.step`.

The phases count a task as failed if its slot is not ready by the planned start. In execution it
starts late, or early, and slack may save it; later tasks may backfill; its other replicas are
cancelled after the first success; superfluous work is released early. All of that is simulated,
event by event (:mod:`vgrads.planner.promise.simulation`), except the gains of replanning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.planner.plan import EVERYTHING, Placement, SlotUse
from vgrads.planner.promise.executions import simulate_all
from vgrads.planner.promise.lengths import Lengths, make_lengths
from vgrads.planner.schedule import Schedule, make_schedule
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.slot import Slot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_STEPS = 3_000_000  # most replicas simulated: more replicas, fewer scenarios
_FEWEST = 32
_STEPS_PER_EVENT = 12  # microseconds of the plain form
_THREADS = 2  # run in parallel where the code is compiled by numba
_MOST_ALONE = 150_000  # events up to which starting threads takes longer than it saves
_AT_ONCE = 256  # scenarios whose run times are sampled at once


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlan:
    """Result of a plan in each scenario: ``done_s`` workflow → when it was done (``inf``: not by
    the deadline), slot → ``ready_s`` (``inf``: never) and ``until_s``, until when it was held (0 if
    never)."""

    scenarios: int
    done_s: Mapping[str, Floats]
    ready_s: Mapping[str, Floats]
    until_s: Mapping[str, Floats]

    def enough_s(self, needed: int) -> Floats:
        """Return when ``needed`` of the workflows are done in each scenario; ``inf`` if fewer
        are."""
        if needed <= 0:
            return np.zeros(self.scenarios)
        if len(self.done_s) < needed:
            return np.full(self.scenarios, np.inf)
        rows = np.stack(list(self.done_s.values()))
        return np.asarray(np.partition(rows, needed - 1, axis=0)[needed - 1])

    def promise(self, needed: int) -> float:
        """Return the share of the scenarios in which ``needed`` of the workflows are done in
        time."""
        return float(np.isfinite(self.enough_s(needed)).mean())

    def hours_by_slot(self, uses: Iterable[SlotUse]) -> dict[str, float]:
        """Return slot → average processor-hours for which it is held."""
        return {
            use.slot.id: use.slot.procs * float(self._slot_seconds(use.slot.id).mean()) / 3600.0
            for use in uses
        }

    def usd_by_slot(self, uses: Iterable[SlotUse]) -> dict[str, float]:
        """Return slot → average cost: paid for from when it is ready until it is released."""
        return {use.slot.id: self._mean_usd(use.slot) for use in uses}

    def hours(self, uses: Iterable[SlotUse]) -> float:
        """Return the average processor-hours of all slots."""
        return sum(self.hours_by_slot(uses).values())

    def usd(self, uses: Iterable[SlotUse]) -> float:
        """Return the average cost of all slots."""
        return sum(self.usd_by_slot(uses).values())

    def _slot_seconds(self, slot: str) -> Floats:
        return np.maximum(self.until_s[slot] - self.ready_s[slot], 0.0)

    def _mean_usd(self, slot: Slot) -> float:
        if not slot.paid:
            return 0.0
        duration_s, counts = np.unique(self._slot_seconds(slot.id), return_counts=True)
        return float(
            np.average([slot.cost_usd(item) for item in duration_s.tolist()], weights=counts)
        )


def rollout(
    snapshot: Snapshot,
    placements: Sequence[Placement],
    submits_s: Mapping[str, float],
    spare_workflows: int = EVERYTHING,
    scenarios: int | None = None,
) -> SimulatedPlan:
    """Simulate a plan; ``submits_s``: slot → when it is requested; ``spare_workflows``: workflows
    beyond the needed that must be complete before early release. Very large plans are simulated in
    fewer scenarios than the snapshot has."""
    most = max(_FEWEST, _STEPS // max(1, len(placements)))
    count = min(scenarios or snapshot.scenarios, snapshot.scenarios, most)
    schedule, _ = make_schedule(snapshot, placements, submits_s)
    fates_s = sample_fates(snapshot, submits_s, count)
    lengths = make_lengths(snapshot, schedule, list(submits_s))
    drawn = lengths.drawn or bool(schedule.slots.failure.any())
    kinds, which = fates_s, np.arange(count)
    if not drawn:  # equal starts have equal results
        rows, which = _find_distinct(fates_s.reshape(count, -1))
        kinds = rows.reshape(len(rows), 2, -1)
    done_s, until_s = _simulate(
        (snapshot, schedule, lengths), kinds, spare_workflows, _AT_ONCE if drawn else 0
    )
    placed, which = {p.workflow for p in placements}, which.ravel()
    return SimulatedPlan(
        scenarios=count,
        done_s={
            w.name: done_s[which, n]
            for n, w in enumerate(snapshot.workflow_set.workflows)
            if w.name in placed
        },
        ready_s={name: fates_s[:, 0, n] for n, name in enumerate(submits_s)},
        until_s={name: until_s[which, n] for n, name in enumerate(submits_s)},
    )


def simulate_some(
    snapshot: Snapshot,
    schedule: Schedule,
    fates_s: Floats,
    spare_workflows: int,
    scenarios: tuple[Ints, int],
    lengths: Lengths,
) -> tuple[Floats, Floats]:
    """Simulate a plan in some of so many scenarios, by their numbers; ``fates_s``: of these alone.
    Return when each workflow is done and until when each slot is held, scenarios × workflows and ×
    slots."""
    (rows, count), workflow_set = scenarios, snapshot.workflow_set
    done_s = np.empty((len(rows), len(workflow_set.workflows)))
    until_s = np.empty((len(rows), fates_s.shape[2]))
    simulate = simulate_all.after(len(rows) * len(schedule.replicas) * _STEPS_PER_EVENT)
    simulate(
        schedule.as_objects() if simulate is simulate_all.plain else schedule,
        fates_s,
        lengths.draw(snapshot.seed, 0, count, rows),
        _fails(snapshot, schedule, lengths, 0, count, rows),
        _make_limits(snapshot, spare_workflows),
        done_s,
        until_s,
    )
    return done_s, until_s


def _make_limits(snapshot: Snapshot, spare_workflows: int) -> Floats:
    workflow_set = snapshot.workflow_set
    return np.array([0.0, workflow_set.needed, spare_workflows, workflow_set.deadline_s])


def _find_distinct(rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the distinct rows in ascending order, and which of them each row is: ``np.unique``,
    which takes several times as long."""
    order = np.lexsort(rows.T[::-1]) if rows.size else np.arange(len(rows))
    ascending = rows[order]
    new = np.ones(len(rows), dtype=np.bool_)
    new[1:] = (ascending[1:] != ascending[:-1]).any(axis=1)
    which = np.empty(len(rows), dtype=np.int64)
    which[order] = np.cumsum(new) - 1
    return ascending[new], which


def sample_fates(snapshot: Snapshot, submits_s: Mapping[str, float], count: int) -> Floats:
    """Return when each slot is ready and lost: scenarios × 2 × slots."""
    released = np.zeros((count, 2, len(submits_s)))
    for n, (name, submit_s) in enumerate(submits_s.items()):
        slot = snapshot.slot_by_id[name]
        ready_s, broken_s = sample_availability(slot, count, snapshot.seed)
        later_s = slot.zero_s(submit_s)
        over_s = ready_s + (slot.end_s - submit_s)
        released[:, 0, n] = ready_s + later_s
        # a slot is lost when it breaks or when its time is over, whichever comes first
        released[:, 1, n] = np.minimum(broken_s, over_s) + later_s
    return released


def _simulate(
    simulated: tuple[Snapshot, Schedule, Lengths],
    fates_s: Floats,
    spare_workflows: int,
    at_once: int,
) -> tuple[Floats, Floats]:
    """Return when each workflow is done and until when each slot is held; ``at_once``: scenarios
    whose run times are sampled together."""
    (snapshot, schedule, lengths), count = simulated, len(fates_s)
    workflow_set = snapshot.workflow_set
    done_s = np.empty((count, len(workflow_set.workflows)))
    until_s = np.empty((count, fates_s.shape[2]))
    limits = _make_limits(snapshot, spare_workflows)
    events = count * (len(schedule.replicas) + fates_s.shape[2])
    parts = _THREADS if events > _MOST_ALONE else 1
    step = at_once or max(1, -(-count // parts))
    simulate = simulate_all.after(events * _STEPS_PER_EVENT)
    is_plain = simulate is simulate_all.plain

    def part(begin: int) -> None:
        rows = slice(begin, begin + step)
        # a simulation writes into its records and limits, so each part has its own
        own = schedule.as_objects() if is_plain else schedule.copied()
        drawn_s = lengths.draw(snapshot.seed, begin, len(done_s[rows]))
        fails = _fails(snapshot, schedule, lengths, begin, len(done_s[rows]))
        simulate(own, fates_s[rows], drawn_s, fails, limits.copy(), done_s[rows], until_s[rows])

    begins = range(0, count, step)
    if is_plain or events <= _MOST_ALONE:
        for begin in begins:
            part(begin)
    else:
        with ThreadPoolExecutor(_THREADS) as threads:
            # list() waits for all parts, and raises what was raised in one
            list(threads.map(part, begins))
    return done_s, until_s


def _fails(
    snapshot: Snapshot,
    s: Schedule,
    lengths: Lengths,
    begin: int,
    count: int,
    rows: Ints | None = None,
) -> Floats:
    """Return the share of its length at which each attempt of a replica fails; ``inf`` if it does
    not; empty if none can. The n-th replica of a task fails alike in every plan."""
    if not s.slots.failure.any():
        return np.zeros((1, 0, 2))
    chosen = slice(None) if rows is None else rows
    failure = s.slots.failure[s.replicas.slot][:, None]
    # by number and not by row: other plans have the same replica in another row
    number = s.numbers()
    result = np.full((count if rows is None else len(rows), len(number), 2), np.inf)
    for n in range(int(number.max()) + 1):
        draws, mine = lengths.errors.failures(snapshot.seed, begin, count, n), number == n
        fails, shares = draws[:, chosen][:, :, lengths.task[mine]]
        result[:, mine] = np.where(fails < failure[mine], shares, np.inf)
    return result
