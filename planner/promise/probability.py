"""Joint probabilities by Monte Carlo over availability samples of the slots.

The paper multiplies along edges and takes minima (SC'09 §3.2.2). But tasks in one slot share its
availability, and slots of one queue are delayed together. Here a scenario samples, once for all
tasks, when each slot is ready (:func:`vgrads.vgrid.availability.sample_availability`: slots of one
queue together) and when it breaks. A replica succeeds if its slot is ready by its start, lives to
its end, and the data of every parent is available from any replica that succeeded in time. All
scenarios are processed at once, one bit each. A task that starts late may still be done in time, so
this is a conservative estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.arrays import Bins, Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.streams import stream
from vgrads.planner.plan import Placement
from vgrads.planner.snapshot import ReplicaKey, Snapshot
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.shape import ShapeArrays

Bits = NDArray[np.uint8]
_AT_ONCE = 256  # replicas processed together
_MAX_REMEMBERED = 100_000  # cached bit sets: 50 MB at 4,096 scenarios


class Scenarios:
    """Availability samples of all slots: common random numbers for every plan over one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.count = snapshot.scenarios
        self.all = np.packbits(np.ones(self.count, dtype=bool))
        self.none = np.zeros_like(self.all)
        self._alive: dict[tuple[str, float, float], Bits] = {}
        self._fates: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def alive(self, slot: Slot, start_s: float, end_s: float) -> Bits:
        """Scenarios in which the slot is ready by ``start_s`` and not broken before ``end_s``."""
        key = (slot.id, start_s, end_s)
        bits = self._alive.get(key)
        if bits is None:
            ready, broken = self.availability(slot)
            bits = np.packbits((ready <= start_s) & (broken >= end_s))
            if len(self._alive) >= _MAX_REMEMBERED:
                # emptied at once: what is still in use is soon computed again
                self._alive.clear()
            self._alive[key] = bits
        return bits

    def alive_all(self, replicas: Sequence[Placement]) -> Bits:
        """:meth:`alive` for many replicas, one row each, without the scenarios in which they fail
        by themselves."""
        result = np.empty((len(replicas), len(self.all)), np.uint8)
        by_slot: dict[str, list[int]] = {}
        for n, p in enumerate(replicas):
            by_slot.setdefault(p.slot, []).append(n)
        for slot_id, own in by_slot.items():
            slot = self.snapshot.slot_by_id[slot_id]
            (ready_s, broken_s), failure = self.availability(slot), self.snapshot.failure(slot)
            for begin in range(0, len(own), _AT_ONCE):
                rows = own[begin : begin + _AT_ONCE]
                starts_s, ends_s = (
                    np.array(column)[:, None]
                    for column in zip(
                        *((replicas[n].start_s, replicas[n].end_s) for n in rows), strict=True
                    )
                )
                result[rows] = np.packbits((ready_s <= starts_s) & (broken_s >= ends_s), axis=1)
            for n in own if failure > 0 else ():
                result[n] &= self.task_works(replicas[n].key, failure)
        return result

    def alive_throughout(self, replicas: Iterable[Placement]) -> Bits:
        """Scenarios in which each slot is ready by its first start and lives to the last end."""
        by_slot: dict[str, tuple[float, float]] = {}
        for p in replicas:
            first_s, last_s = by_slot.get(p.slot, (p.start_s, p.end_s))
            by_slot[p.slot] = min(first_s, p.start_s), max(last_s, p.end_s)
        bits = self.all
        for slot_id, (first_s, last_s) in by_slot.items():
            bits = bits & self.alive(self.snapshot.slot_by_id[slot_id], first_s, last_s)
        return bits

    def task_works(self, key: ReplicaKey, failure: float) -> Bits:
        """Scenarios in which a replica does not fail by itself."""
        # by its key: a replica fails in the same scenarios in every plan
        draws = stream(self.snapshot.seed, "task", *map(str, key))
        return np.packbits(draws.random(self.count) >= failure)

    def chances(
        self, slot: Slot, starts_s: Sequence[float], ends_s: Sequence[float]
    ) -> NDArray[np.float64]:
        """Return P(ready by each start, not broken before the corresponding end)."""
        ready_s, broken_s = self.availability(slot)
        order = np.argsort(ready_s)
        ready = np.searchsorted(ready_s[order], starts_s, side="right")
        alive = np.empty(len(ready))
        for count in np.unique(ready):  # few: whole workflows wait until their slot is certain
            rows = ready == count
            lost = np.searchsorted(np.sort(broken_s[order[:count]]), np.asarray(ends_s)[rows])
            alive[rows] = count - lost
        return alive / self.count

    def availability(self, slot: Slot) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return when the slot is ready and when it breaks, in each scenario."""
        if slot.id not in self._fates:
            self._fates[slot.id] = sample_availability(slot, self.count, self.snapshot.seed)
        return self._fates[slot.id]

    def share(self, bits: Bits) -> float:
        """Return the share of scenarios in a bit set."""
        return int(np.bitwise_count(bits).sum()) / self.count

    def unpack(self, bits: Bits) -> NDArray[np.int32]:
        """Return 0 or 1 for each scenario."""
        return np.unpackbits(bits, count=self.count).astype(np.int32)


class WorkflowOutcome:
    """Scenarios in which the replicas of one workflow's tasks succeed."""

    def __init__(self, workflow: Workflow, scenarios: Scenarios) -> None:
        self.workflow, self._scenarios = workflow, scenarios
        self.replicas: dict[str, list[tuple[Placement, Bits]]] = {}
        self._tails = [t for t in workflow.order if not workflow.children[t]]

    def inputs(self, task_id: str, site: str, start_s: float) -> Bits:
        """Scenarios in which all the task's inputs are at ``site`` by ``start_s``."""
        bits = self._scenarios.all
        for parent in self.workflow.tasks[task_id].parents:
            # any replica of each parent will do, but every parent is needed
            bits = bits & self._arrived(parent, task_id, site, start_s)
        return bits

    def _arrived(self, parent: str, task_id: str, site: str, start_s: float) -> Bits:
        snapshot = self._scenarios.snapshot
        bits = self._scenarios.none
        for placement, done in self.replicas.get(parent, ()):
            if placement.end_s > start_s + 1e-9:  # too late even without a transfer
                continue
            source = snapshot.slot_by_id[placement.slot].site
            arrival_s = placement.end_s + snapshot.transfer_s(
                self.workflow, parent, task_id, (source, site)
            )
            # starts are sums of the same terms in another order
            if arrival_s <= start_s + 1e-9:
                bits = bits | done
        return bits

    def success(self, placement: Placement) -> Bits:
        """Scenarios in which this replica succeeds, given the replicas of its parents."""
        slot = self._scenarios.snapshot.slot_by_id[placement.slot]
        alive = self._scenarios.alive(slot, placement.start_s, placement.end_s)
        whole = alive & self.inputs(placement.task, slot.site, placement.start_s)
        failure = self._scenarios.snapshot.failure(slot)
        return whole & self._scenarios.task_works(placement.key, failure) if failure > 0 else whole

    def _succeed(self, placements: Mapping[str, Sequence[Placement]]) -> None:
        """Compute :meth:`success` of all replicas of all tasks in one pass."""
        order, snapshot = self.workflow.order, self._scenarios.snapshot
        replicas = [p for task_id in order for p in placements.get(task_id, ())]
        if not replicas:
            self.replicas = {task_id: [] for task_id in order}
            return
        slots = [snapshot.slot_by_id[p.slot] for p in replicas]
        site = {name: n for n, name in enumerate(dict.fromkeys(slot.site for slot in slots))}
        counts = [len(placements.get(task_id, ())) for task_id in order]
        spread = Spread(
            replicas_at=np.cumsum([0, *counts]),
            site=np.array([site[slot.site] for slot in slots]),
            start_s=np.array([p.start_s for p in replicas], np.float64),
            end_s=np.array([p.end_s for p in replicas], np.float64),
            links=snapshot.links_between(list(site)),
            alive=self._scenarios.alive_all(replicas),
        )
        bins = np.empty_like(spread.alive)
        succeed.after(10 * len(replicas))(self.workflow.shape.arrays, spread, bins)
        rows = iter(zip(replicas, bins, strict=True))
        self.replicas = {t: list(islice(rows, n)) for t, n in zip(order, counts, strict=True)}

    def task_done(self, task_id: str) -> Bits:
        """Scenarios in which any replica of the task succeeds."""
        bits = self._scenarios.none
        for _, done in self.replicas.get(task_id, ()):
            bits = bits | done
        return bits

    def recompute(
        self, placements: Mapping[str, Sequence[Placement]], touched: Collection[str]
    ) -> Bits:
        """Propagate a change of these tasks' replicas down the DAG; return the scenarios in which
        all is done.

        O(replicas of the touched tasks and of those descendants for which something changes).
        """
        affected = set(touched)
        # one compiled pass over all tasks is faster than most of them one by one
        if 2 * len(affected) > len(self.workflow.order):
            self._succeed(placements)
            affected.clear()
        for task_id in self.workflow.order if affected else ():
            if task_id in affected:
                before = self.replicas.get(task_id, [])
                self.replicas[task_id] = [(p, self.success(p)) for p in placements.get(task_id, ())]
                if task_id in touched or _differ(before, self.replicas[task_id]):
                    affected.update(self.workflow.children[task_id])
        whole = self._scenarios.all
        # a tail is done only where all of its ancestors are
        for task_id in self._tails:
            whole = whole & self.task_done(task_id)
        return whole


def _differ(before: list[tuple[Placement, Bits]], after: list[tuple[Placement, Bits]]) -> bool:
    pairs = zip(before, after, strict=True)
    return any(not np.array_equal(old, new) for (_, old), (_, new) in pairs)


def standard_error(probability: float, count: int) -> float:
    """Return the standard error of a share among ``count`` independent scenarios; the rule of
    succession keeps it above 0."""
    shrunk = (probability * count + 1) / (count + 2)
    return float(np.sqrt(shrunk * (1 - shrunk) / count))


def compute_paper_probability(
    workflow: Workflow, placements: Iterable[Placement], slots: Mapping[str, Slot]
) -> float:
    """Return the probability of a workflow by the paper's rule: that of its least probable tail."""
    sure = compute_paper_promise(workflow, placements, slots)
    return min(sure[task_id] for task_id in workflow.order if not workflow.children[task_id])


def compute_paper_promise(
    workflow: Workflow, placements: Iterable[Placement], slots: Mapping[str, Slot]
) -> dict[str, float]:
    """Return task → probability by the paper's rule: products over independent slots, minima within
    one.

    A replica has the probability of the weakest parent in its own slot (of the slot, if none is
    there), times all parents in other slots; a task that of any of its replicas.
    """
    replicas: dict[str, list[Placement]] = {}
    for p in placements:
        replicas.setdefault(p.task, []).append(p)
    sure: dict[str, float] = {}  # of tasks
    there: dict[tuple[str, str], float] = {}  # of their replicas, by slot
    for task_id in workflow.order:
        parents = workflow.tasks[task_id].parents
        for p in replicas.get(task_id, ()):
            near = [there[q, p.slot] for q in parents if (q, p.slot) in there]
            own = slots[p.slot].curve.by(p.start_s) * slots[p.slot].up
            far = [sure[q] for q in parents if (q, p.slot) not in there]
            there[task_id, p.slot] = min(near, default=own) * float(np.prod(far))
        misses = [1.0 - there[task_id, p.slot] for p in replicas.get(task_id, ())]
        sure[task_id] = 1.0 - float(np.prod(misses))
    return sure


def at_least(chances: Iterable[float], needed: int) -> float:
    """Return P(at least ``needed`` of independent events happen): the Poisson binomial, by
    convolution."""
    counts = np.ones(1)
    for chance in chances:
        counts = np.convolve(counts, [1.0 - chance, chance])
    return float(np.clip(counts[needed:].sum(), 0.0, 1.0))


class Spread(NamedTuple):
    """A workflow's replicas task by task, those of task t from ``replicas_at[t]`` on; ``alive``:
    scenarios in which each has its slot and does not fail by itself, one bit each; ``links``:
    latency and MiB per second, sites × sites."""

    replicas_at: Ints
    site: Ints
    start_s: Floats
    end_s: Floats
    links: Floats
    alive: Bins


@compiled
def succeed(s: ShapeArrays, c: Spread, done: Bins) -> None:
    """Fill ``done``: the scenarios in which each replica succeeds."""
    for t in range(len(c.replicas_at) - 1):
        for k in range(c.replicas_at[t], c.replicas_at[t + 1]):
            row, site = c.alive[k].copy(), c.site[k]
            for n in range(s.parents_at[t], s.parents_at[t + 1]):
                parent = s.parents[n]
                here = np.zeros(len(row), np.uint8)
                for m in range(c.replicas_at[parent], c.replicas_at[parent + 1]):
                    source = c.site[m]
                    moved_s = c.links[0, source, site] + s.mib[n] / c.links[1, source, site]
                    if c.end_s[m] + moved_s <= c.start_s[k] + 1e-9:
                        here |= done[m]
                row &= here
            done[k] = row
