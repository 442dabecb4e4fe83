"""Plans in scenarios that no planner has used, and the processor time of planning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.compile_state import working_time_s
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Placement, Plan, SlotUse
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.snapshot import Snapshot

SCENARIOS, FEWEST_SCENARIOS = 16_384, 10_240
FRESH, CHOICE = 715_827_883, 357_913_941
"""Differences between the seed of a snapshot and those of the scenarios in which plans are judged,
and in which versions of rivals are chosen."""
EVERYTHING = 2**30
"""``spare_workflows`` without early release before enough is done."""
_BATCH = 4_096
_REPLICAS = 6_000_000  # simulated at once; a rollout of more has fewer scenarios
_MANY = 20_000_000  # simulated replicas above which the fewest scenarios suffice


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan to be judged: of ours or of a rule."""

    rule: str
    placements: tuple[Placement, ...]
    uses: tuple[SlotUse, ...]
    spare_workflows: int = EVERYTHING

    @classmethod
    def of(cls, plan: Plan) -> Candidate:
        """Return a plan of the planner as a candidate."""
        return cls(
            rule=plan.policy,
            placements=plan.placements,
            uses=plan.uses,
            spare_workflows=plan.spare_workflows,
        )


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A candidate in scenarios: probability, mean cost and processor-hours; ``done``: in which
    scenarios enough workflows were done."""

    rule: str
    probability: float
    usd: float
    hours: float
    done: NDArray[np.bool_]

    def worth(self, requested: float) -> float:
        """Return the probability up to the requested one."""
        return min(self.probability, requested)

    def rank(self, requested: float) -> tuple[float, float, float]:
        """Rank by probability up to the requested one, then by cost, then by hours."""
        return self.worth(requested), -self.usd, -self.hours


def default_plan(snapshot: Snapshot) -> tuple[Plan, float]:
    """Return the plan at the default effort, checked, and its processor time (s) without loading
    and compiling functions."""
    begin_s = working_time_s()
    plan = make_plan(snapshot, Options())
    seconds = working_time_s() - begin_s
    plan.check(snapshot)
    return plan, seconds


def judge(
    snapshot: Snapshot, candidates: Sequence[Candidate], scenarios: int = 0, shift: int = FRESH
) -> list[Judged]:
    """Judge candidates in the same scenarios: so many, or as many as their size permits, at least
    10,240."""
    most = max((len(c.placements) for c in candidates), default=0) or 1
    if not scenarios:
        scenarios = SCENARIOS if most * SCENARIOS <= _MANY else FEWEST_SCENARIOS
    batch = max(32, min(_BATCH, scenarios, _REPLICAS // most))
    return [_judge(snapshot, c, (scenarios, batch), shift) for c in candidates]


def _judge(snapshot: Snapshot, candidate: Candidate, sizes: tuple[int, int], shift: int) -> Judged:
    scenarios, batch = sizes
    submits_s = {use.slot.id: use.submit_s for use in candidate.uses}
    done, usd, hours = [np.zeros(0, np.bool_)], [0.0], [0.0]
    for number in range(-(-scenarios // batch) if candidate.placements else 0):
        fresh = replace(snapshot, seed=snapshot.seed + shift + 7919 * number, scenarios=batch)
        simulated = rollout(fresh, candidate.placements, submits_s, candidate.spare_workflows)
        done.append(np.isfinite(simulated.enough_s(snapshot.workflow_set.needed)))
        usd.append(simulated.usd(candidate.uses))
        hours.append(simulated.hours(candidate.uses))
    every = np.concatenate(done) if len(done) > 1 else np.zeros(scenarios, np.bool_)
    return Judged(
        rule=candidate.rule,
        probability=float(every.mean()),
        usd=sum(usd) / max(1, len(usd) - 1),
        hours=sum(hours) / max(1, len(hours) - 1),
        done=every,
    )
