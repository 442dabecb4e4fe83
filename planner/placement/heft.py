"""HEFT (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3) 2002, doi:10.1109/71.993206), the baseline.

Each task, by upward rank, goes to the slot in which it ends first, gaps used. HEFT ignores
probabilities: slots count from the instant at which half of their highest probability is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.profile import Steps, fit, use
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import Placement
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Link
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.shape import ShapeArrays


class SlotArrays(NamedTuple):
    """Slots as numbers: which tasks each holds, from when, the latest end of its tasks, its site;
    ``moves``: latency and seconds per MiB, sites × sites; and the steps of each calendar, one row
    each."""

    procs: Ints
    begin_s: Floats
    end_s: Floats
    site: Ints
    moves: Floats
    times_s: Floats
    used: Ints
    heads: Ints


@compiled
def compute_upward_ranks(
    s: ShapeArrays, slowness: float, latency_s: float, per_mib: float
) -> Floats:
    """Return for each task the longest path to the end by mean run and transfer times (equation
    7)."""
    ranks = np.zeros(len(s.runtime_s))
    # tasks are numbered parents first: the ranks of children are complete
    for t in range(len(ranks) - 1, -1, -1):
        below = 0.0
        for n in range(s.children_at[t], s.children_at[t + 1]):
            below = max(below, latency_s + s.children_mib[n] * per_mib + ranks[s.children[n]])
        ranks[t] = s.runtime_s[t] * slowness + below
    return ranks


@compiled
def place_all(
    s: ShapeArrays, m: SlotArrays, ranks: Floats, lengths_s: Floats, slots: Ints, starts_s: Floats
) -> bool:
    """Place every task, by rank, where it ends first; return False if any cannot end in time.
    ``lengths_s``: in each slot, ``inf`` if it does not fit; filled: slot and start of each."""
    ends_s = np.zeros(len(ranks))
    # stable: where a task takes no time its children have its rank, and must stay behind it
    for t in np.argsort(-ranks, kind="mergesort"):
        best, best_s, hoped_s = -1, np.inf, np.inf
        for n in range(len(m.procs)):
            ready_s = m.begin_s[n]
            for k in range(s.parents_at[t], s.parents_at[t + 1]):
                p, site = s.parents[k], m.site[n]
                source = m.site[slots[p]]
                moved_s = ends_s[p] + m.moves[0, source, site] + s.mib[k] * m.moves[1, source, site]
                ready_s = max(ready_s, moved_s)
            # the end if the slot were empty: the calendar is searched only where that is better
            hope_s = ready_s + lengths_s[t, n]
            if hope_s >= best_s:
                continue  # cannot end before the best
            steps = Steps(m.times_s[n], m.used[n], m.heads[n])
            start_s = fit(steps, m.procs[n], ready_s, lengths_s[t, n], s.procs[t], m.end_s[n])
            end_s = start_s + lengths_s[t, n]
            if end_s < best_s or (end_s == best_s < np.inf and hope_s < hoped_s):
                best, best_s, hoped_s, starts_s[t] = n, end_s, hope_s, start_s
        if best < 0:
            return False
        slots[t], ends_s[t] = best, best_s
        use(Steps(m.times_s[best], m.used[best], m.heads[best]), starts_s[t], best_s, s.procs[t])
    return True


def place_heft(draft: Draft, name: str, slots: Sequence[Slot], share: float = 0.5) -> bool:
    """Place a workflow by HEFT; return False, with nothing placed, if a task ends after the
    deadline. Slots count from the instant with this share of their highest probability."""
    if not slots:
        return False
    workflow, snapshot = draft.snapshot.workflow_by_name[name], draft.snapshot
    shape, count = workflow.shape.arrays, len(workflow.order)
    work = count * len(slots) * 5
    slowness = float(np.mean([1.0 / slot.speed for slot in slots]))
    ranks = compute_upward_ranks.after(work)(shape, slowness, *_compute_mean_link(snapshot, slots))
    lengths_s = _compute_lengths_s(workflow, snapshot, slots)
    chosen, starts_s = np.zeros(count, np.int64), np.zeros(count)
    machines = _make_machines(draft, slots, (count, share))
    if not place_all.after(work)(shape, machines, ranks, lengths_s, chosen, starts_s):
        return False
    ends_s = starts_s + lengths_s[np.arange(count), chosen]
    placements = [
        Placement(
            workflow=name,
            task=task_id,
            replica=0,
            slot=slots[slot].id,
            start_s=start_s,
            end_s=end_s,
            procs=procs,
        )
        for task_id, slot, start_s, end_s, procs in zip(
            workflow.order,
            chosen.tolist(),
            starts_s.tolist(),
            ends_s.tolist(),
            shape.procs.tolist(),
            strict=True,
        )
    ]
    draft.place_all(placements)
    for placement, rank_s in zip(placements, ranks.tolist(), strict=True):
        draft.note(placement, "ends first (HEFT)", {"rank_s": rank_s})
    draft.settle(name)
    return True


def _make_machines(draft: Draft, slots: Sequence[Slot], how: tuple[int, float]) -> SlotArrays:
    """Return these slots as arrays with space for more tasks, from a share of their probability
    on."""
    more, share = how
    number: dict[str, int] = {}
    site = np.array([number.setdefault(slot.site, len(number)) for slot in slots])
    calendars = [draft.slots.calendar(slot.id).steps(more) for slot in slots]
    widest = max(len(steps.times_s) for steps in calendars)
    times_s, used = np.zeros((len(slots), widest)), np.zeros((len(slots), widest), np.int64)
    for n, steps in enumerate(calendars):
        times_s[n, : len(steps.times_s)], used[n, : len(steps.used)] = steps.times_s, steps.used
    deadline_s = draft.snapshot.workflow_set.deadline_s
    return SlotArrays(
        procs=np.array([slot.procs for slot in slots]),
        begin_s=np.array([slot.curve.reaches_s(share) for slot in slots], np.float64),
        end_s=np.array([min(slot.end_s, deadline_s) for slot in slots], np.float64),
        site=site,
        moves=draft.snapshot.moves_between(list(number)),
        times_s=times_s,
        used=used,
        heads=np.array([steps.head for steps in calendars]),
    )


def _compute_lengths_s(workflow: Workflow, snapshot: Snapshot, slots: Sequence[Slot]) -> Floats:
    """Return the run time of each task in each slot, as in :meth:`Snapshot.duration_s`; ``inf`` if
    it does not fit."""
    speeds = np.array([slot.speed for slot in slots])
    result: Floats = snapshot.lengths_s(workflow)[:, None] / speeds
    for needs in workflow.shape.distinct_needs:
        none = np.array([not slot.holds(needs) for slot in slots])
        if none.any():
            mine = np.array([workflow.tasks[task_id].needs == needs for task_id in workflow.order])
            result[np.ix_(mine, none)] = np.inf
    return result


def _compute_mean_link(snapshot: Snapshot, slots: Sequence[Slot]) -> tuple[float, float]:
    """Return mean latency and seconds per MiB over all pairs of slots; 0 within a site."""
    sites = [slot.site for slot in slots]
    pairs = [(a, b) for n, a in enumerate(sites) for b in sites[n + 1 :]]
    moves = [_move(snapshot, *pair) for pair in pairs] or [(0.0, 0.0)]
    latency_s, per_mib = np.mean(moves, axis=0)
    return float(latency_s), float(per_mib)


def _move(snapshot: Snapshot, name: str, other: str) -> tuple[float, float]:
    """Return latency and seconds per MiB between two sites; 0 within a site."""
    if name == other:
        return 0.0, 0.0
    link = snapshot.links.get(frozenset((name, other)), Link())
    return link.latency_s, 1.0 / link.bandwidth_mib_s
