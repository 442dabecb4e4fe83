"""The search: begin with the best of several plans, make it more probable, then cheaper.

One plan is better than another if its promise is higher, up to the requested probability; then if
it costs less money, then fewer processor-hours. A plan is taken in scenarios that did not choose
it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from vgrads.planner.effort import Effort
from vgrads.planner.evidence import draft_of
from vgrads.planner.obstacles import explain_lacking
from vgrads.planner.plan import PhaseReport, Plan, Promise, SlotUse
from vgrads.planner.promise.reported import REPORTED_SCENARIOS, add_promise
from vgrads.planner.search.compare import ComparedPlan, compare, surely
from vgrads.planner.search.moves import Moves
from vgrads.planner.search.starts import OWN
from vgrads.planner.search.versions import Simulator, Version
from vgrads.planner.search.walk import Walk
from vgrads.planner.snapshot import Snapshot

_MOST_SLOTS = 500  # that are searched
_HOPELESS = 0.2  # a lower promise is hardly raised to what is required
_LIMITS = (0.0, 0.5, 0.75, 0.9)  # of the cost, that are tried
_CLIMBING, _CLOSELY = 0.55, 0.4  # shares of the effort
_ROUGHLY = 0.5  # share of the usual scenarios while much is changed
_CHANGES = 3  # random ones between two climbs
_CHEAPENED, _FIRST = 3, 0.25  # plans that are made cheaper, with which share of the effort each
_FOR_HOURS = 0.4  # share of the effort where no money is to be saved
_MUCH = 0.02  # by which a plan may fall short in other scenarios by chance
_VERIFIED = 6  # versions that are simulated in other scenarios, the best first
_CHEAPER = 0.03  # of the money, else of the processor-hours: worth another verification
_LOSS = 0.0025  # of the promise of a plan that falls short, for a lower cost


def search(
    snapshot: Snapshot,
    plan: Plan,
    effort: Effort,
    others: Iterable[Plan] = (),
    brief: bool = False,
) -> Plan:
    """Return the best plan that is found within the effort, at least as good as ``plan``;
    ``others``: further plans to begin with, perhaps of another request. ``brief``: begin with these
    alone, make none cheaper, and state the promise in the scenarios of the choice, less a margin
    for its error."""
    begin, plans = time.perf_counter(), [plan, *others]
    snapshot = _reduce_slots(snapshot, plans)
    starts = compare(snapshot, plans, effort, brief)
    if not starts:
        return plan
    before = plan.promise.probability
    compared = PhaseReport(
        name="comparing",
        seconds=time.perf_counter() - begin,
        placed=0,
        probability_before=before,
        probability_after=before,
        steps=tuple(_step_of(f.rule, f.version) for f in starts),
    )
    begin = time.perf_counter()
    # set aside, so that the best versions can still be simulated in other scenarios
    reserve = effort.part(0.15)
    improvement = _Improvement(snapshot, effort)
    versions = improvement.versions(starts, brief)
    effort.take_back(reserve)
    if brief:
        return _make_unverified(plan, versions[-1], improvement.required)
    own = next((f for f in starts if f.rule == OWN), None)
    chosen, result = _verify_best(snapshot, (plan, own), versions, effort)
    improved = PhaseReport(
        name="improving",
        seconds=time.perf_counter() - begin,
        placed=len(chosen.placements) - len(plan.placements),
        probability_before=before,
        probability_after=chosen.promise.probability,
        steps=(
            *((_step_of_plan(plan),) if plan.placements else ()),
            _step_of_plan(chosen)
            | ({} if result is None else {"compared": _step_of(result.rule, result.version)}),
        ),
    )
    return replace(
        chosen,
        phases=(*plan.phases, compared, improved),
        seconds={**plan.seconds, "comparing": compared.seconds, "improving": improved.seconds},
    )


def search_anew(
    snapshot: Snapshot, like: Plan, effort: Effort, others: Iterable[Plan], brief: bool = False
) -> Plan:
    """Return the best plan that is found without a first plan, for offers or a request other than
    those of ``like``; begin with ``others``. It has no placements if none is found."""
    request = snapshot.workflow_set
    nothing = replace(
        like,
        deadline_s=request.deadline_s,
        needed=request.needed,
        feasible=False,
        promise=Promise(probability=0.0, standard_error=0.0, by_workflow={}),
        placements=(),
        uses=(),
        phases=(),
    )
    return search(snapshot, nothing, effort, others, brief)


def _reduce_slots(snapshot: Snapshot, plans: Sequence[Plan]) -> Snapshot:
    """Return the snapshot without the slots that are least likely to help, if there are very many;
    those that plans use remain. Starting plans take time for each slot, whatever the effort."""
    if len(snapshot.slots) <= _MOST_SLOTS:
        return snapshot
    chosen = {use.slot.id for plan in plans for use in plan.uses}
    ranked = sorted(snapshot.slots, key=lambda s: (s.curve.reaches_s(0.5), -s.curve.best))
    for paid in (False, True):
        chosen.update([s.id for s in ranked if s.paid == paid][: _MOST_SLOTS // 2])
    return replace(snapshot, slots=tuple(s for s in snapshot.slots if s.id in chosen))


class _Improvement:
    """Makes plans more probable, then cheaper."""

    def __init__(self, snapshot: Snapshot, effort: Effort) -> None:
        self.snapshot, self.effort = snapshot, effort
        # equal snapshots must have equal plans
        self.draws = random.Random(snapshot.seed)
        self.required = snapshot.workflow_set.probability

    def versions(self, starts: list[ComparedPlan], brief: bool) -> list[ComparedPlan]:
        """Return versions of these plans, the best last."""
        self.required = surely(self.required, len(starts[0].version.outcome.done))
        starts = self._climbed(starts)
        if brief:
            return starts[::-1]
        required = min(self.required, starts[0].version.promise - _LOSS)
        enough = [f for f in starts if f.version.promise >= max(required, _LOSS)][:_CHEAPENED]
        results = list(starts)
        if enough:
            results += self._all_cheapened(starts, enough, required)
        return sorted(results, key=lambda f: f.version.rank(required))

    def _all_cheapened(
        self, starts: list[ComparedPlan], enough: list[ComparedPlan], required: float
    ) -> list[ComparedPlan]:
        """Make the plans that suffice cheaper, and the best of the results once more; with less
        effort if one costs no money."""
        whole, free = self.effort, enough[0].version.usd == 0
        self.effort = whole.part(_FOR_HOURS if free else 1.0)
        if not free:
            enough = [*self._for_less(starts, enough[0], required), *enough[1:]]
        results = list(enough)
        for start in enough:
            results += self._cheapened(start, _FIRST, required)
        best = max(results, key=lambda f: f.version.rank(required))
        results += self._cheapened(best, 1.0, required)
        whole.take_back(self.effort)
        self.effort = whole
        return results

    def _cheapened(self, start: ComparedPlan, share: float, required: float) -> list[ComparedPlan]:
        part = self.effort.part(share)
        walk = self._walk(start, part, required)
        versions = [replace(start, version=v) for v in walk.cheapen(start.version, part)[1:]]
        self.effort.take_back(part)
        return versions

    def _for_less(
        self, starts: list[ComparedPlan], best: ComparedPlan, required: float
    ) -> list[ComparedPlan]:
        """Search within less money, for plans that still reach the required promise; the cheapest
        first."""
        results, part = [best], self.effort.part(0.5)
        for share in _LIMITS:
            limit_usd = share * results[0].version.most_usd
            within = [self._within(f, limit_usd, part) for f in (results[0], *starts[:3])]
            able = sorted(filter(None, within), key=lambda f: f.version.rank(required))
            if not able or able[-1].version.promise < required - _HOPELESS:
                continue
            some = part.part(0.4)
            simulator = Simulator(able[-1].problem, some)
            simulator.budget_usd = limit_usd
            walk = Walk(simulator, Moves(able[-1].problem, self.draws), required)
            last = walk.climb(able[-1].version, some)[-1]
            part.take_back(some)
            if last.promise >= required:
                results.insert(0, replace(able[-1], version=last))
                if share == 0.0:
                    break
        self.effort.take_back(part)
        return results

    def _within(
        self, result: ComparedPlan, limit_usd: float, effort: Effort
    ) -> ComparedPlan | None:
        """Return a plan without the slots that a limit of its cost excludes."""
        simulator = Simulator(result.problem, effort)
        simulator.budget_usd = limit_usd
        candidate = simulator.candidate(result.version.orders)
        version = candidate and simulator.version(candidate, len(result.version.outcome.done))
        return replace(result, version=version) if version else None

    def _climbed(self, starts: list[ComparedPlan]) -> list[ComparedPlan]:
        """Return the plans, the best first, after the two best of those that fall short were made
        more probable, and the better of them again and again after random changes."""
        if any(f.version.promise >= self.required for f in starts):
            return starts
        part = self.effort.part(_CLIMBING)
        climbed = self._ranked([self._climb(start, part, 0.2, _ROUGHLY) for start in starts[:2]])
        best = self._climb(climbed[0], part, 0.4, _ROUGHLY)
        while part.left > 0 and best.version.promise < self.required:
            other = self._climb(self._changed(best, part), part, 0.5, _ROUGHLY)
            best = self._ranked([best, other])[0]
        self.effort.take_back(part)
        part = self.effort.part(_CLOSELY)
        best = self._climb(best, part, 1.0, 1.0)
        self.effort.take_back(part)
        return self._ranked([best, *starts])

    def _changed(self, start: ComparedPlan, effort: Effort) -> ComparedPlan:
        """Return a plan after a few random changes, whatever they cost."""
        walk = self._walk(start, effort, self.required)
        return replace(start, version=walk.wander(start.version, _CHANGES))

    def _climb(
        self, start: ComparedPlan, effort: Effort, share: float, closely: float
    ) -> ComparedPlan:
        """``closely``: share of the usual number of scenarios."""
        part, walk = effort.part(share), self._walk(start, effort, self.required)
        count = walk.simulator.usual_count(start.version.candidate, closely)
        if len(start.version.outcome.done) != count:
            version = walk.simulator.version(start.version.candidate, count)
            start = replace(start, version=version) if version else start
        versions = walk.climb(start.version, part)
        effort.take_back(part)
        return replace(start, version=versions[-1])

    def _walk(self, start: ComparedPlan, effort: Effort, required: float) -> Walk:
        simulator = Simulator(start.problem, effort)
        return Walk(simulator, Moves(start.problem, self.draws), required)

    def _ranked(self, starts: Sequence[ComparedPlan]) -> list[ComparedPlan]:
        return sorted(starts, key=lambda f: f.version.rank(self.required), reverse=True)


def _verify_best(
    snapshot: Snapshot,
    own: tuple[Plan, ComparedPlan | None],
    versions: Sequence[ComparedPlan],
    effort: Effort,
) -> tuple[Plan, ComparedPlan | None]:
    """Return the best version that still reaches the request in other scenarios, otherwise the most
    probable of the best few; the first plan, ``own``, if none is better. Each with its results in
    the scenarios of the choice, if they were simulated."""
    (plan, _), best, least, budget_usd = own, own, 0.0, snapshot.workflow_set.most_usd
    left, requested = list(versions), snapshot.workflow_set.probability
    for number in range(_VERIFIED):
        if best[0].meets_request and best is not own:  # others have less margin, but may suffice
            left = [f for f in left if f.version.promise >= requested and _is_cheaper(f, best[0])]
            least = 0.0
        if not left:
            break
        sure = [f for f in left if f.version.promise > least]
        result = sure[-1] if sure else max(left, key=lambda f: f.version.promise)
        work = REPORTED_SCENARIOS * len(result.version.orders.task)
        if not effort.spend(work) and number > 1:
            break
        left.remove(result)
        created = _make_plan(snapshot, plan, result)
        if created.problems(snapshot):
            continue
        lacking = explain_lacking(snapshot, created)
        created = replace(created, feasible=not lacking, lacking=lacking)
        if _rank(created, budget_usd) > _rank(best[0], budget_usd):
            best = created, result
        short = requested - created.promise.probability
        least = result.version.promise + 0.8 * short
        if short > _MUCH:  # another start may be better in other scenarios
            left = [r for r in left if r.rule != result.rule]
            least = 0.0
    return best


def _is_cheaper(result: ComparedPlan, plan: Plan) -> bool:
    version, margin_usd = result.version, max(0.01, _CHEAPER * plan.expected_usd)
    if abs(version.usd - plan.expected_usd) > margin_usd:
        return version.usd < plan.expected_usd
    return version.hours < (1.0 - _CHEAPER) * plan.expected_hours


def _rank(plan: Plan, budget_usd: float) -> tuple[float, ...]:
    promise = min(plan.promise.probability, plan.requested_probability)
    affordable = plan.cost_usd <= budget_usd + 1e-9
    return plan.feasible, affordable, promise, -plan.expected_usd, -plan.expected_hours


def _make_plan(snapshot: Snapshot, plan: Plan, result: ComparedPlan) -> Plan:
    """Return a version as a plan, with the probability of each replica, simulated in other
    scenarios than those of the choice."""
    problem, orders = result.problem, result.version.orders
    placements = problem.placements(orders, result.version.candidate.starts_s)
    uses = tuple(_list_uses(result))
    draft = draft_of(problem.snapshot, placements, uses)
    probabilities = draft.probabilities()
    by_slot = {(p.task_key, p.slot): p.key for p in plan.placements}
    reasons = {}
    for p in placements:
        before = by_slot.get((p.task_key, p.slot))
        reasons[p.key] = plan.reasons.get(before) if before else None
    compared = {"phase": "comparing", "rule": result.rule}
    created = replace(
        plan,
        placements=tuple(p.with_probability(probabilities[p.key]) for p in placements),
        uses=uses,
        reasons={key: why or compared for key, why in reasons.items()},
        spare_workflows=orders.spare_workflows,
        quantile=problem.snapshot.quantile,
        policy=plan.policy if result.rule == OWN else f"vgrads, from {result.rule}",
        promise=replace(plan.promise, cautious=draft.promise),
    )
    return add_promise(snapshot, created)


def _make_unverified(plan: Plan, result: ComparedPlan, required: float) -> Plan:
    orders, version = result.version.orders, result.version
    probability = max(0.0, version.promise - (required - plan.requested_probability))
    return replace(
        plan,
        feasible=True,
        lacking="",
        placements=result.problem.placements(orders, version.candidate.starts_s),
        uses=tuple(_list_uses(result)),
        spare_workflows=orders.spare_workflows,
        quantile=result.problem.snapshot.quantile,
        promise=replace(plan.promise, probability=probability),
        expected_usd=round(version.usd, 2),
        expected_hours=round(version.hours, 2),
    )


def _list_uses(result: ComparedPlan) -> Iterator[SlotUse]:
    candidate, slots = result.version.candidate, result.problem.slots
    for n in candidate.used.tolist():
        slot, here = slots[n], candidate.orders.slot == n
        submit_s = float(candidate.orders.submits_s[n])
        start_s, last_s = float(candidate.starts_s[here].min()), float(candidate.ends_s[here].max())
        yield SlotUse(
            slot=slot,
            submit_s=submit_s,
            start_s=start_s,
            end_s=last_s if slot.paid else slot.end_s,
            probability=slot.curve.by(start_s - slot.zero_s(submit_s)) * slot.up,
            cost_usd=slot.cost_usd(last_s - submit_s),
        )


def _step_of(rule: str, version: Version) -> dict[str, Any]:
    costs = version.usd, version.hours
    return _step(rule, version.promise, costs, len(version.candidate.used))


def _step_of_plan(plan: Plan) -> dict[str, Any]:
    costs = plan.expected_usd, plan.expected_hours
    return _step(plan.policy, plan.promise.probability, costs, len(plan.uses))


def _step(rule: str, promise: float, costs: tuple[float, float], slots: int) -> dict[str, Any]:
    """Return a plan as a step of a report; ``costs``: mean dollars and processor-hours."""
    return {
        "rule": rule,
        "promise": promise,
        "expected_usd": round(costs[0], 2),
        "expected_hours": round(costs[1], 1),
        "slots": slots,
    }
