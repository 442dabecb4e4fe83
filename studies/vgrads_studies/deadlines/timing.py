"""How long planning and one decision take."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.state import AgentState
from vgrads.dispatch.fleet.goal_view import GoalView
from vgrads.dispatch.fleet.goals import GoalControl
from vgrads.dispatch.fleet.site_view import SiteHealth, SiteInventory
from vgrads.pool.deadline.plan import Goal, plan_nodes
from vgrads.pool.deadline.values import NodeSource, Work
from vgrads.pool.spot.history import SpotHistory
from vgrads_studies.deadlines.cases import StudySource
from vgrads_studies.deadlines.ours import fleet_sites

_NODES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningTimes:
    """Processor seconds: the plan of a bag of a million tasks, and one decision with 1,000 nodes,
    plan included."""

    plan_s: float
    decision_s: float


def planning_times() -> PlanningTimes:
    """Measure both; the median of three."""
    return PlanningTimes(
        plan_s=sorted(_plan_s(seed) for seed in range(3))[1],
        decision_s=sorted(_decision_s() for _ in range(3))[1],
    )


def _plan_s(seed: int) -> float:
    waits_s = tuple(60.0 * n for n in range(1, 200))
    queues = [
        NodeSource(
            name=f"queue{n}",
            cloud=False,
            workers=8,
            most=500,
            length_s=7200.0 * (n + 1),
            waits_s=waits_s,
        )
        for n in range(2)
    ]
    cloud = NodeSource(
        name="cloud",
        cloud=True,
        workers=8,
        most=500,
        usd_per_hour=3.06,
        billing_s=1.0,
        boot_s=120.0,
        spot_usd_per_hour=0.9731,
        history=SpotHistory(0.0, first=True),
    )
    work = Work(tasks=1_000_000, mean_s=60.0)
    goal = Goal(deadline_s=20.0 * 3600.0 + seed, probability=0.95)
    began_s = time.process_time()
    plan_nodes(work, [*queues, cloud], goal, seed=seed)
    return time.process_time() - began_s


def _decision_s() -> float:
    source = StudySource(name="cloud", workers=8, most=_NODES, price=3.06, boot_s=120.0)
    agents = [AgentState(n, "", "", 0, 8, 0.0, "cloud") for n in range(_NODES)]
    sites = fleet_sites(source)
    view = GoalView(
        now_s=600.0,
        due_s=72_000.0,
        goal=BagGoal(deadline_s=72_000.0),
        left=1_000_000,
        each_s=60.0,
        sampled=20_000,
        tasks=1_020_000,
        procs=1,
        spent_usd=0.0,
    )
    health: defaultdict[str, SiteHealth] = defaultdict(SiteHealth)
    began_s = time.process_time()
    GoalControl().decide(view, sites, {"cloud": SiteInventory(agents=agents)}, health)
    return time.process_time() - began_s
