"""Climb in simulated probability: change a plan step by step while its promise rises.

Steps: add a complete replica, move one to another slot, put one first in its slot, and, for small
sets, add or move the replica of a single task. Promising ones come first: a further replica helps
in the scenarios in which the plan fails although its slot would be ready early enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from vgrads.planner.search.retime import retimed
from vgrads.planner.search.starts import with_replica
from vgrads.planner.search.trials import LOOK, Placements, Trials, Version, renumbered
from vgrads.planner.search.whole import WholeReplicas
from vgrads.vgrid.slot import Slot

_MOST_TASKS = 15
"""Tasks up to which single ones are moved."""
_TURN_S = 1e-3  # between starts of which only the order counts
_PER_STEP = 100  # effort of making a step, for each replica


def climb(trials: Trials, whole: WholeReplicas, start: Version) -> Version:
    """Return a more probable version, as long as effort is left, or the same; simulated in
    :data:`LOOK` scenarios of the choice."""
    best = trials.like(start, start.placements, LOOK)
    if best is None:
        return start
    while best.promise < trials.required:
        better = _first_better(trials, whole, best)
        if better is None:
            return best
        best = better
    return best


def _first_better(trials: Trials, whole: WholeReplicas, now: Version) -> Version | None:
    for placements in _steps(trials, whole, now):
        if not trials.spend(_PER_STEP * len(now.placements)):
            return None
        if placements is None:
            continue
        tried = trials.like(now, placements, LOOK)
        if tried is None:
            return None
        if _value(tried, trials) > _value(now, trials) and trials.affords(tried):
            return tried
    return None


def _value(version: Version, trials: Trials) -> float:
    """Return the promise; among equals, more workflows done on average count."""
    finite = [float(np.isfinite(done_s).mean()) for done_s in version.simulated.done_s.values()]
    return version.promise + 1e-3 * min(sum(finite), trials.needed) / trials.needed


def _steps(trials: Trials, whole: WholeReplicas, now: Version) -> Iterator[Placements | None]:
    """Return the placements after each possible step, None for one that does not fit."""
    slots = _promising(trials, now)
    names = _weakest(now, trials)
    for slot in slots:
        for name in names:
            yield with_replica(whole, now.placements, slot, name)
    yield from _reordered(whole, now, (slots, names))
    if trials.snapshot.workflow_set.task_count <= _MOST_TASKS:
        yield from _single_tasks(trials, now, slots)


def _promising(trials: Trials, now: Version) -> list[Slot]:
    """Return the slots, those first that are ready in most of the scenarios in which the plan
    fails."""
    fails = ~np.isfinite(now.simulated.enough_s(trials.needed))
    used = now.simulated.ready_s

    def ready(slot: Slot) -> float:
        if slot.id in used and fails.any():
            return float(np.isfinite(used[slot.id])[fails].mean())
        return slot.curve.best

    return sorted(trials.snapshot.slots, key=lambda s: (-ready(s) * s.up, s.paid, s.id))


def _weakest(now: Version, trials: Trials) -> list[str]:
    done = now.simulated.done_s
    chance = {n: float(np.isfinite(done[n]).mean()) if n in done else 0.0 for n in _names(trials)}
    return sorted(chance, key=lambda name: chance[name])


def _names(trials: Trials) -> list[str]:
    return [w.name for w in trials.snapshot.workflow_set.workflows]


def _reordered(
    whole: WholeReplicas, now: Version, order: tuple[list[Slot], list[str]]
) -> Iterator[Placements]:
    """Put a workflow first in a slot that holds complete replicas only; those for which no room is
    left leave it."""
    slots, names = order
    for slot in slots:
        here = [p for p in now.placements if p.slot == slot.id]
        rest = tuple(p for p in now.placements if p.slot != slot.id)
        present = list(dict.fromkeys(p.workflow for p in here))
        counts = {n: sum(p.workflow == n for p in here) for n in present}
        flows = whole.snapshot.workflow_by_name
        if any(counts[n] != len(flows[n].tasks) for n in present):
            continue
        for name in names:
            if present[:1] == [name]:
                continue
            content = (name, *(n for n in present if n != name))
            rows = whole.placements({slot.id: content})
            if rows and any(p.workflow == name for p in rows):
                yield renumbered((*rest, *rows))


def _single_tasks(trials: Trials, now: Version, slots: list[Slot]) -> Iterator[Placements | None]:
    """Add the replica of one task to a slot, or move one there, before or after the others."""
    snapshot = trials.snapshot
    for slot in slots:
        here = {p.task_key for p in now.placements if p.slot == slot.id}
        last_s = max(
            (p.start_s + _TURN_S for p in now.placements if p.slot == slot.id), default=0.0
        )
        if slot.curve.best <= 0:
            continue
        for p in now.placements:
            if p.task_key in here or not slot.holds(snapshot.task(p.task_key).needs):
                continue
            first_s = max(slot.curve.reaches_s(0.0), p.start_s)
            for start_s in dict.fromkeys((slot.curve.reaches_s(0.5), first_s, last_s)):
                other = replace(p, slot=slot.id, start_s=start_s, end_s=start_s)
                added = renumbered((*now.placements, other))
                moved = tuple(other if q is p else q for q in now.placements)
                for changed in (added, moved):
                    yield retimed(snapshot, changed)
                    yield retimed(snapshot, _as_early(changed, slot))


def _as_early(placements: Placements, slot: Slot) -> Placements:
    """Let everything in a slot start as early as it can, in the same order."""
    order = sorted({p.start_s for p in placements if p.slot == slot.id})
    turn = {start_s: n * _TURN_S for n, start_s in enumerate(order)}
    return tuple(
        replace(p, start_s=turn[p.start_s], end_s=turn[p.start_s]) if p.slot == slot.id else p
        for p in placements
    )
