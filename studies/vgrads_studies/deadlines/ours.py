"""The decisions of a dispatcher about a bag with a deadline, on simulated nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.fleet.goal_view import GoalView
from vgrads.dispatch.fleet.goals import GoalControl
from vgrads.dispatch.fleet.site_view import FleetSite, SiteHealth, SiteInventory
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.view import NOTHING, PoolDecision, PoolLimits, PoolView, RequestView
from vgrads_studies.deadlines.cases import SPOT, StudyCase, StudySource
from vgrads_studies.deadlines.nodes import SteeringRules, StudyRequest, StudyState


class GoalSteering:
    """:class:`vgrads.dispatch.fleet.goals.GoalControl` decides, as in a
    dispatcher."""

    rules = SteeringRules(budget=True)

    def __init__(self, case: StudyCase) -> None:
        prior = next((source.prior for source in case.sources if source.cloud), PRIOR)
        self._case, self.control = case, GoalControl(prior=prior)
        self._goal = BagGoal(
            deadline_s=case.deadline_s,
            probability=case.probability,
            budget_usd=case.budget_usd,
        )
        self._sources = [site for source in case.sources for site in fleet_sites(source)]
        self._health: defaultdict[str, SiteHealth] = defaultdict(SiteHealth)

    @property
    def promise(self) -> float | None:
        """Return the promise at the beginning."""
        return self.control.promises[0][1] if self.control.promises else None

    def nodes(self, state: StudyState) -> Mapping[str, int]:
        """Return how many nodes of each source there should be."""
        view = GoalView(
            now_s=state.now_s,
            due_s=state.due_s,
            goal=self._goal,
            left=state.left,
            each_s=state.each_s,
            sampled=state.ended,
            tasks=len(self._case.run_s),
            procs=1,
            spent_usd=state.spent_usd,
            running=state.running,
            owed_usd=state.owed_usd,
            paid_s=state.paid_s,
        )
        present = {
            site.name: SiteInventory(
                agents=[node.agent for node in state.nodes.get(site.name, ())],
                requests=[
                    RequestView(id=str(r.number), nodes=r.nodes, requested_s=r.requested_s)
                    for r in state.requests.get(site.name, ())
                ],
            )
            for site in self._sources
        }
        return self.control.decide(view, self._sources, present, self._health).nodes

    def joined(self, request: StudyRequest, now_s: float) -> None:
        """Record that requested nodes have joined."""
        self._health[request.name].record_arrival(now_s - request.requested_s)
        if request.spot:
            self.control.observe_spot(request.name, True, now_s)

    def lost(self, name: str, now_s: float) -> None:
        """Record that spot nodes were refused or taken back."""
        self._health[name].record_failure(now_s, permanent=False)
        self.control.observe_spot(name, False, now_s)


def fleet_sites(source: StudySource) -> list[FleetSite]:
    """Return a source as a dispatcher's fleet has it, and its spot nodes."""

    def site(market: str, price: float) -> FleetSite:
        return FleetSite(
            site=source.name,
            queue="",
            node_type="",
            procs=source.workers,
            limits=PoolLimits(most=source.most),
            longest_s=source.length_s,
            decide=_nothing,
            boot_s=source.boot_s,
            price=price,
            billing_s=source.billing_s,
            cloud=source.cloud,
            market=market,
            waits_s=(source.boot_s,) if source.cloud else source.waits_s,
        )

    steady = [site("", source.price)]
    return steady if source.spot is None else [*steady, site(SPOT, source.spot_price)]


def _nothing(view: PoolView) -> PoolDecision:  # noqa: ARG001 nodes are counted by the stage
    return NOTHING
