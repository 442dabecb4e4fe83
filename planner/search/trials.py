"""Simulation of candidate plans, with a limit of effort."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from vgrads.kernel.compiled import working_time_s
from vgrads.planner.plan import Placement, SlotUse, in_queue_order
from vgrads.planner.promise.probability import standard_error
from vgrads.planner.promise.rollout import SimulatedPlan, rollout
from vgrads.planner.rules import EVERYTHING
from vgrads.planner.snapshot import QUANTILE_LEVELS, Snapshot
from vgrads.vgrid.binding import priced
from vgrads.vgrid.slot import Slot

FRESH = 1_000_003
"""Difference between the seed of planning and that of the promise."""
REPORTED_SCENARIOS = 2048
"""Scenarios in which a promise is simulated before it is reported."""
GLANCE, LOOK = 64, 1024
"""Scenarios of the first checks of a candidate."""
_PER_SECOND = 4_000_000  # replicas simulated per second, about
_PER_VERSION = 4_000  # what a version costs besides, in these
_PATIENCE = 3.0  # the search ends at so many times its effort in processor time at the latest
_LEAST_HOURS = 0.01  # smallest saving in processor-hours that is worth a change
_LEAST_USD = 0.005

Placements = tuple[Placement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A candidate plan: its replicas and slots, the number of spare workflows before early release,
    and the results of its simulation; ``rule``: how it was made; ``quantile``: that of the run
    times for which it reserves time."""

    placements: Placements
    uses: tuple[SlotUse, ...]
    spare_workflows: int
    promise: float
    usd: float
    hours: float
    simulated: SimulatedPlan
    rule: str = ""
    quantile: float = QUANTILE_LEVELS[0]

    @property
    def most_usd(self) -> float:
        """What counts against the budget: the cost as planned, or on average if that is more."""
        return max(self.usd, sum(use.cost_usd for use in self.uses))

    def cheaper(self, other: Version) -> bool:
        """True if this version costs less money, on average and then at most, or the same and fewer
        hours."""
        for mine, its in ((self.usd, other.usd), (self.most_usd, other.most_usd)):
            if abs(mine - its) > _LEAST_USD:
                return mine < its
        return self.hours < other.hours - _LEAST_HOURS

    def rank(self, required: float) -> tuple[float, ...]:
        """Rank by the required probability: if it is reached, the cheapest is best; otherwise the
        most probable."""
        return min(self.promise, required), -self.usd, -self.most_usd, -self.hours


Uses = dict[object, SlotUse]


def slot_uses(
    snapshot: Snapshot, placements: Iterable[Placement], cache: Uses | None = None
) -> tuple[SlotUse, ...]:
    """Return the use of each slot by these replicas, requested as late as possible without loss of
    probability or of the order in its queue. ``cache``: uses of slots by the same snapshot, by
    their replicas' times."""
    by_slot: dict[str, list[tuple[float, float]]] = {}
    for p in placements:
        by_slot.setdefault(p.slot, []).append((p.start_s, p.end_s))
    uses = {} if cache is None else cache
    results = []
    for slot in snapshot.slots:
        times_s = by_slot.get(slot.id)
        if times_s:
            key = slot.id, tuple(times_s)
            if key not in uses:
                uses[key] = _use(slot, times_s)
            results.append(uses[key])
    return in_queue_order(results)


def _use(slot: Slot, times_s: Sequence[tuple[float, float]]) -> SlotUse:
    begin_s, last_s = min(a for a, _ in times_s), max(b for _, b in times_s)
    request = priced(slot, times_s)
    return SlotUse(
        slot=slot,
        submit_s=request.submit_s,
        start_s=begin_s,
        end_s=last_s if slot.paid else slot.end_s,
        probability=slot.curve.by(begin_s) * slot.up,
        cost_usd=request.usd,
    )


def renumbered(placements: Iterable[Placement]) -> Placements:
    """Number the replicas of each task anew."""
    numbers: defaultdict[tuple[str, str], int] = defaultdict(int)
    rows = []
    for p in placements:
        n = numbers[p.task_key]
        numbers[p.task_key] = n + 1
        rows.append(p if p.replica == n else replace(p, replica=n))
    return tuple(rows)


class Trials:
    """Simulates candidate plans of one snapshot until ``effort_s`` is used up.

    The effort is counted in simulated replicas, so equal inputs have equal results; a clock ends
    the search only on a machine that is several times slower.
    """

    def __init__(self, snapshot: Snapshot, effort_s: float) -> None:
        self.snapshot, self.left = replace(snapshot), effort_s * _PER_SECOND
        self.required = snapshot.workflow_set.probability
        self.needed = snapshot.workflow_set.needed
        self._fresh = replace(snapshot, seed=snapshot.seed + FRESH)
        self._uses = Uses()
        self._over_at = working_time_s() + _PATIENCE * effort_s

    def spend(self, steps: float) -> bool:
        """Use up effort; return False if too little is left."""
        if steps > self.left or working_time_s() > self._over_at:
            return False
        self.left -= steps
        return True

    def part(self, share: float) -> Trials:
        """Return trials with this share of the remaining effort; :meth:`give_back` its rest."""
        result = copy(self)
        result.left = share * self.left
        self.left -= result.left
        return result

    def give_back(self, part: Trials) -> None:
        """Take back what a part has not used."""
        self.left += max(part.left, 0.0)

    def snapshot_at(self, quantile: float) -> Snapshot:
        """Return the snapshot with another quantile of run times."""
        return replace(self.snapshot, quantile=quantile)

    def affords(self, version: Version) -> bool:
        """True if a version costs no more than the set's budget."""
        return version.most_usd <= self.snapshot.workflow_set.most_usd + 1e-9

    def spend_on_policy(self, per_task: float) -> bool:
        """Use up the effort of planning by another policy, which costs ``per_task`` for each task
        and slot."""
        tasks = self.snapshot.workflow_set.task_count
        return self.spend(per_task * tasks * len(self.snapshot.slots))

    def version(
        self,
        placements: Placements,
        scenarios: int,
        spare_workflows: int = EVERYTHING,
        rule: str = "",
        quantile: float = QUANTILE_LEVELS[0],
    ) -> Version | None:
        """Simulate these placements; None if there is nothing to simulate or no effort is left.

        With the number of scenarios of a reported promise, other scenarios are used than in the
        first checks: an accepted version was not chosen by them alone.
        """
        if not placements or not self.spend(_PER_VERSION + len(placements) * scenarios):
            return None
        uses = slot_uses(self.snapshot, placements, self._uses)
        submits_s = {use.slot.id: use.submit_s for use in uses}
        snapshot = self._fresh if scenarios == REPORTED_SCENARIOS else self.snapshot
        simulated = rollout(snapshot, placements, submits_s, spare_workflows, scenarios)
        return Version(
            placements=placements,
            uses=uses,
            spare_workflows=spare_workflows,
            promise=simulated.promise(self.needed),
            usd=simulated.usd(uses),
            hours=simulated.hours(uses),
            simulated=simulated,
            rule=rule,
            quantile=quantile,
        )

    def like(
        self,
        version: Version,
        placements: Placements,
        scenarios: int,
        spare_workflows: int | None = None,
    ) -> Version | None:
        """:meth:`version` of other placements, otherwise as the given version."""
        spare = version.spare_workflows if spare_workflows is None else spare_workflows
        return self.version(placements, scenarios, spare, version.rule, version.quantile)


def doubt(version: Version, errors: float) -> float:
    """Return so many standard errors of a version's promise."""
    return errors * standard_error(version.promise, version.simulated.scenarios)
