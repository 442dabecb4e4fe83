"""Compare the plan of the phases with others, make the best more probable, then cheaper."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from vgrads.planner.make import SINGLE, STANDARD, Options, plan_alone, with_promise
from vgrads.planner.obstacles import lacking_of
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import PhaseReport, Plan
from vgrads.planner.search.climb import climb
from vgrads.planner.search.improve import improve
from vgrads.planner.search.starts import Start, completed, starting_plans
from vgrads.planner.search.trials import LOOK, REPORTED_SCENARIOS, Trials, Version, doubt
from vgrads.planner.search.whole import WholeReplicas
from vgrads.planner.snapshot import Snapshot

_QUICK, _SLOW = 200.0, 3_000.0  # effort of planning by a policy, for each task and slot
_POLICIES = (  # policy, rule of probability, whether it needs paid slots, effort
    ("no-replication", "joint", False, _QUICK),
    ("heft", "joint", False, _QUICK),
    ("cloud-only", "joint", True, _QUICK),
    ("vgrads", "paper", False, _SLOW),
    ("cloud-first", "joint", True, _SLOW),
)
_OTHER_LEVELS = (0.75, 0.5, 0.25)  # quantiles of run times that are also tried
_MIDDLE = 0.5  # quantile of run times at which most is placed without optimism
_MOST_TASKS = 1_500  # up to which other plans are tried
_SCREEN, _LOOKED_AT = 128, 6  # scenarios of the first comparison, and how many remain
_IMPROVED = 4  # candidates that are made cheaper, further ones if effort is left
_COMPARING, _CLIMBING = 0.5, 0.5  # shares of the effort that is left
_LEAST_CHANGES = 4  # versions of a candidate for which effort is reserved
OWN = "the four phases"


def search(snapshot: Snapshot, plan: Plan, effort_s: float) -> Plan:
    """Return the cheapest plan that reaches the requested probability, otherwise the most probable;
    ``plan`` itself if nothing better is found within the effort."""
    trials, begin = Trials(snapshot, effort_s), time.perf_counter()
    part = trials.part(_COMPARING)
    candidates = _compared(part, plan)
    trials.give_back(part)
    candidates = _climbed(trials, candidates)
    compared = _report("comparing", begin, (plan, plan), candidates)
    begin = time.perf_counter()
    versions = _improved(trials, candidates)
    chosen = _first_valid(snapshot, plan, versions)
    improved = _report("improving", begin, (plan, chosen), versions)
    if improved.steps:
        promise, costs = plan.promise.probability, (plan.expected_usd, plan.expected_hours)
        before = _step(OWN, promise, *costs, len(plan.uses))
        improved = replace(improved, steps=(before, *improved.steps))
    return replace(
        chosen,
        phases=(*plan.phases, compared, improved),
        seconds={**plan.seconds, "comparing": compared.seconds, "improving": improved.seconds},
    )


def tightened(snapshot: Snapshot, plan: Plan, effort_s: float) -> Plan:
    """Return the plan of a set whose tasks must run once each, or a more probable one that reserves
    less time per task."""
    trials = Trials(snapshot, effort_s)
    plans = [plan, *_at_other_quantiles(trials, plan, SINGLE)]
    return max(plans, key=lambda p: (p.feasible, min(p.promise.probability, trials.required)))


def _at_other_quantiles(trials: Trials, plan: Plan, options: Options) -> Iterator[Plan]:
    """Plan with less time reserved per task, until the requested probability is reached: the sum of
    many worst cases exceeds the worst case of the sum, especially if errors are large."""
    snapshot = trials.snapshot
    for quantile in _OTHER_LEVELS if snapshot.workflow_set.uncertain and plan.feasible else ():
        if quantile < plan.quantile and not plan.meets_request and trials.spend_on_policy(_SLOW):
            other = plan_alone(replace(snapshot, quantile=quantile), options)
            plan = max(plan, other, key=attrgetter("promise.probability"))
            yield replace(other, policy=f"{OWN} with less time per task")


def _compared(trials: Trials, plan: Plan) -> list[Version]:
    """Return the plan and others as candidates, simulated in the scenarios of the choice. A plan
    that reaches the requested probability without cost needs no comparison."""
    own = Start(rule=OWN, placements=plan.placements, quantile=plan.quantile)
    candidates = _screened(trials, [own])
    for source in (_simple_starts, _other_policies) if _small(trials.snapshot) else ():
        best = candidates[0] if candidates else None
        if best and best.usd == 0 and best.promise >= trials.required:
            break
        candidates = _ranked(trials, [*candidates, *_screened(trials, source(trials, plan))])
    return candidates


def _small(snapshot: Snapshot) -> bool:
    """True if other plans are tried."""
    return snapshot.workflow_set.task_count <= _MOST_TASKS


def _screened(trials: Trials, starts: Iterable[Start]) -> list[Version]:
    """Simulate different starts briefly, and the best of them in the scenarios of the choice."""
    briefly, placed = list[Version](), set[frozenset[object]]()
    for start in starts:
        same = frozenset((p.task_key, p.slot, p.start_s) for p in start.placements)
        whole = len({p.workflow for p in start.placements}) >= trials.needed
        if same in placed or not whole:
            continue
        placed.add(same)
        tried = trials.version(start.placements, _SCREEN, rule=start.rule, quantile=start.quantile)
        if tried is not None and trials.affords(tried):
            briefly.append(tried)
    looks = (trials.like(v, v.placements, LOOK) for v in _ranked(trials, briefly)[:_LOOKED_AT])
    return [version for version in looks if version is not None]


def _simple_starts(trials: Trials, plan: Plan) -> Iterator[Start]:
    """Return the plans of simple rules, and the plan with complete replicas."""
    snapshot = trials.snapshot
    levels = dict.fromkeys((snapshot.quantile, plan.quantile))
    if snapshot.workflow_set.uncertain:
        levels[_MIDDLE] = None
    for quantile in levels:
        whole = WholeReplicas(trials.snapshot_at(quantile))
        yield from starting_plans(whole)
        if quantile == plan.quantile:
            yield from completed(whole, plan.placements)


def _other_policies(trials: Trials, plan: Plan) -> Iterator[Start]:
    """Return the plans of other planning policies, those that plan quickly first."""
    usual, paid = trials.snapshot_at(plan.quantile), any(s.paid for s in trials.snapshot.slots)
    plans = list(_at_other_quantiles(trials, plan, STANDARD))
    for policy, rule, needs_paid, per_task in _POLICIES:
        if paid >= needs_paid and trials.spend_on_policy(per_task):
            other = plan_alone(usual, Options(policy=policy, probability=rule), judged=True)
            plans.append(replace(other, policy="the paper's rule" if rule == "paper" else policy))
    for other in plans:
        yield Start(rule=other.policy, placements=other.placements, quantile=other.quantile)


def _ranked(trials: Trials, candidates: Sequence[Version]) -> list[Version]:
    """Sort those with different results by the request, the best first; a promise within its
    error counts as sufficient."""

    def rank(version: Version) -> tuple[float, float, float]:
        sure = min(version.promise + doubt(version, 1), trials.required)
        return -sure, version.usd, version.hours

    ranked = sorted(candidates, key=rank, reverse=True)
    different = {(round(v.promise * _SCREEN), round(v.usd, 2), round(v.hours)): v for v in ranked}
    return sorted(different.values(), key=rank)


def _climbed(trials: Trials, candidates: list[Version]) -> list[Version]:
    """Make the candidates more probable if all fall short, the best first: it may use half of the
    effort for climbing, the next all that is left of it."""
    enough = any(candidate.promise >= trials.required for candidate in candidates)
    if enough or not _small(trials.snapshot):
        return candidates
    climbed, reserved = list[Version](), (1.0 - _CLIMBING) * trials.left
    for start in candidates:
        room = (trials.left - reserved) / (1 if climbed else 2)
        if room <= 0:
            break
        part = trials.part(room / trials.left)
        climbed.append(climb(part, WholeReplicas(part.snapshot_at(start.quantile)), start))
        trials.give_back(part)
    return _ranked(trials, [*climbed, *candidates])


def _improved(trials: Trials, candidates: Sequence[Version]) -> list[Version]:
    """Return versions of the best candidates in the scenarios of a reported promise, each cheaper
    than before, the best last."""
    versions = list[Version]()
    best = max((v.promise - doubt(v, 3) for v in candidates), default=0.0)
    hopeful = [v for v in candidates if v.promise + doubt(v, 3) >= min(best, trials.required)]
    for n, candidate in enumerate(hopeful):
        least = _LEAST_CHANGES * len(candidate.placements) * REPORTED_SCENARIOS
        if n >= _IMPROVED and least > trials.left:
            break
        share = max(1.0 / max(_IMPROVED - n, 1), min(1.0, least / max(trials.left, 1.0)))
        part = trials.part(share)
        first = part.like(candidate, candidate.placements, REPORTED_SCENARIOS)
        if first is not None:
            versions += [v for v in improve(part, first) if trials.affords(v)]
        trials.give_back(part)
    return sorted(versions, key=lambda v: v.rank(trials.required))


def _first_valid(snapshot: Snapshot, plan: Plan, versions: Sequence[Version]) -> Plan:
    """Return the best version that is a plan without problems, or the plan itself."""
    for version in reversed([v for v in versions if v.promise > 0]):
        if version.rule == OWN and version.placements == plan.placements:
            return with_promise(
                replace(plan, spare_workflows=version.spare_workflows), version.simulated
            )
        created = _as_plan(snapshot, plan, version)
        if not created.problems(snapshot):
            lacking = lacking_of(snapshot, created)
            return replace(created, feasible=not lacking, lacking=lacking)
    return plan


def _as_plan(snapshot: Snapshot, plan: Plan, version: Version) -> Plan:
    """Return a version as a plan, with the probability of each replica."""
    draft = Draft(replace(snapshot, quantile=version.quantile))
    for name in dict.fromkeys(p.workflow for p in version.placements):
        draft.place_all([p for p in version.placements if p.workflow == name])
        draft.settle(name)
    probabilities = draft.probabilities()
    by_slot = {(p.task_key, p.slot): p.key for p in plan.placements}
    reasons = {}
    for p in version.placements:
        before = by_slot.get((p.task_key, p.slot))
        reasons[p.key] = plan.reasons.get(before) if before else None
    compared = {"phase": "comparing", "rule": version.rule}
    own = version.rule == OWN
    return with_promise(
        replace(
            plan,
            placements=tuple(p.with_probability(probabilities[p.key]) for p in version.placements),
            uses=version.uses,
            reasons={key: why or compared for key, why in reasons.items()},
            spare_workflows=version.spare_workflows,
            quantile=version.quantile,
            policy=plan.policy if own else f"vgrads, as {version.rule}",
            promise=replace(plan.promise, cautious=draft.promise),
        ),
        version.simulated,
    )


def _step(rule: str, promise: float, usd: float, hours: float, slots: int) -> dict[str, Any]:
    """Return a plan or a version of it as a step of a report."""
    return {
        "rule": rule,
        "promise": promise,
        "expected_usd": round(usd, 2),
        "expected_hours": round(hours, 1),
        "slots": slots,
    }


def _report(
    name: str, begin: float, plans: tuple[Plan, Plan], versions: Sequence[Version]
) -> PhaseReport:
    before, after = plans
    steps = [_step(v.rule, v.promise, v.usd, v.hours, len(v.uses)) for v in versions]
    return PhaseReport(
        name=name,
        seconds=time.perf_counter() - begin,
        placed=len(after.placements) - len(before.placements),
        probability_before=before.promise.probability,
        probability_after=after.promise.probability,
        steps=tuple(steps),
    )
