"""Plans of nodes against an integer programme over the same scenarios at the same probability.

A small case has so few possible numbers of nodes that the programme contains each of them as a
binary column with its expected dollars, and its deadline in each scenario as a row: exactly one
column is chosen, and the scenarios that it keeps reach the probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.pool.deadline.plan import Goal, SimulatedPlans, plan_nodes
from vgrads.pool.deadline.values import NodePlan, NodeSource, Work
from vgrads.vgrid.solver import Highs

SCENARIOS = 40
_SECONDS, _GAP = 60.0, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgrammeCase:
    """A case and its result. ``ratio``: the price of the plan over that of the programme; None
    where no numbers of nodes reach the probability."""

    number: int
    probability: float
    ratio: float | None


def programme_case(number: int, seed: int = 0) -> ProgrammeCase:
    """Return the comparison in a random case: one or two queues, mostly with a cloud on demand."""
    draws = stream(seed, "deadline programme", number)
    sources = [
        NodeSource(
            name=f"queue{position}",
            cloud=False,
            workers=4,
            most=int(draws.integers(3, 7)),
            usd_per_hour=float(draws.uniform(0.1, 1.0)),
            length_s=float(draws.choice([7200.0, 86400.0])),
            waits_s=tuple(np.sort(draws.lognormal(draws.uniform(3.0, 8.0), 1.0, 50)).tolist()),
        )
        for position in range(int(draws.integers(1, 3)))
    ]
    if number % 4:
        sources.append(
            NodeSource(
                name="cloud",
                cloud=True,
                workers=4,
                most=int(draws.integers(3, 7)),
                usd_per_hour=float(draws.uniform(1.0, 4.0)),
                billing_s=float(draws.choice([1.0, 3600.0])),
                boot_s=float(draws.uniform(60.0, 300.0)),
            )
        )
    work = Work(tasks=int(draws.integers(50, 500)), mean_s=float(draws.uniform(60.0, 900.0)))
    most = sum(source.most * source.workers for source in sources)
    goal = Goal(
        deadline_s=work.total_s / most * draws.uniform(1.5, 5.0) + 2.0 * work.mean_s,
        probability=float(draws.uniform(0.5, 0.95)),
    )
    return _compare(number, work, sources, goal, seed)


def _compare(
    number: int, work: Work, sources: Sequence[NodeSource], goal: Goal, seed: int
) -> ProgrammeCase:
    chosen = plan_nodes(work, sources, goal, SCENARIOS, seed).chosen
    simulated = SimulatedPlans(work, sources, goal, SCENARIOS, seed)
    queues = [range(source.most + 1) for source in sources if not source.cloud]
    cloud = max((source.most for source in sources if source.cloud), default=0)
    plans = [
        NodePlan(queues=nodes, cloud=count, late=late)
        for *nodes_list, count in product(*queues, range(cloud + 1))
        for nodes in [tuple(nodes_list)]
        for late in ((False, True) if count else (False,))
        if count or any(nodes)
    ]
    outcomes = simulated.outcomes(plans)
    prices = np.array([planned.price for planned, _ in outcomes])
    in_time = np.array([outcome.end_s <= goal.deadline_s for _, outcome in outcomes])
    least = _least(prices, in_time, goal.probability)
    ratio = None if least is None else chosen.price / least
    if least is not None and chosen.probability < goal.probability - 1e-9:
        ratio = float("inf")  # a plan was possible, and was not found
    return ProgrammeCase(number=number, probability=goal.probability, ratio=ratio)


def _least(
    prices: np.ndarray[tuple[int], np.dtype[np.float64]],
    in_time: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    probability: float,
) -> float | None:
    """Return the least price by the integer programme; None without a solution."""
    import pulp  # noqa: PLC0415 slow to import

    problem = pulp.LpProblem("nodes", pulp.LpMinimize)
    columns = [problem.add_variable(f"plan{n}", cat="Binary") for n in range(len(prices))]
    reached = [problem.add_variable(f"in_time{s}", 0, 1) for s in range(in_time.shape[1])]
    problem += pulp.lpSum(p * x for p, x in zip(prices.tolist(), columns, strict=True))
    problem += pulp.lpSum(columns) == 1
    for scenario, variable in enumerate(reached):
        able = np.flatnonzero(in_time[:, scenario])
        problem += variable <= pulp.lpSum(columns[n] for n in able)
    problem += pulp.lpSum(reached) >= probability * len(reached) - 1e-6
    status = problem.solve(Highs(_SECONDS, _GAP))
    if pulp.LpStatus[status] != "Optimal":
        return None
    return float(pulp.value(problem.objective))
