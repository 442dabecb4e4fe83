"""The overlay constructor: 1,000 bags × 50 grids, against the same programme by HiGHS (scipy) and
by CBC (PuLP).

Fitness, demands, weights, room and sizes of hosts are drawn anew each time; some draws are short of
room, some sparse. The peers get the sum of both aims in one linear objective; what they serve and
what it costs must be the same.

    python benchmarks/bench_overlay.py [--bags 1000] [--grids 50] [--draws 40]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import pulp
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from vgrads.pool.overlay import Demand, GridRoom, overlay

Case = tuple[list[Demand], list[GridRoom], NDArray[np.bool_]]


def draw(rng: np.random.Generator, bags: int, grids: int) -> Case:
    """Any bags and grids."""
    density = rng.choice([0.04, 0.1, 0.3, 0.5, 0.9])
    short = rng.choice([0.3, 0.9, 1.0, 1.1, 3.0])
    procs = rng.choice([1, 4, 8, 24, 64], grids)
    demand = rng.integers(1, 400, bags)
    part = rng.dirichlet(np.ones(grids)) * demand.sum() * short
    rooms = [
        GridRoom(
            procs=int(p),
            room=int(room),
            busy=int(room) // 3,
            coming=int(room) // 4,
            coming_s=float(rng.integers(0, 600)),
            wait_s=float(rng.integers(0, 3600)),
        )
        for p, room in zip(procs, np.ceil(part / procs), strict=True)
    ]
    weights = rng.choice([1.0, 2.0, 5.0, 10.0], bags)
    demands = [Demand(procs=int(d), weight=float(w)) for d, w in zip(demand, weights, strict=True)]
    return demands, rooms, rng.random((bags, grids)) < density


def columns(case: Case) -> tuple[list[tuple[int, int, float]], list[tuple[int, int]]]:
    """Variables (bag, part, worth) and parts (grid, processors): weights count above all ranks of
    hosts."""
    demands, grids, fits = case
    parts = sorted((o, g, n * r.procs) for g, r in enumerate(grids) for o, n in r.parts if n)
    ranks = {order: n for n, order in enumerate(sorted({o for o, _, _ in parts}))}
    results = [
        (b, k, demands[b].weight * 4 * len(ranks) - ranks[order])
        for k, (order, g, _) in enumerate(parts)
        for b in np.flatnonzero(fits[:, g])
    ]
    return results, [(g, procs) for _, g, procs in parts]


def by_highs(case: Case) -> float:
    """The best sum, by HiGHS."""
    result, parts = columns(case)
    rows = np.array([[b, len(case[0]) + k] for b, k, _ in result])
    matrix = csr_matrix(
        (np.ones(2 * len(result)), (rows.ravel(), np.repeat(np.arange(len(result)), 2)))
    )
    bounds = [d.procs for d in case[0]] + [procs for _, procs in parts]
    worth = np.array([w for _, _, w in result])
    solved = linprog(-worth, A_ub=matrix, b_ub=bounds[: matrix.shape[0]], method="highs")
    return -float(solved.fun)


def by_cbc(case: Case) -> float:
    """The same through PuLP."""
    result, parts = columns(case)
    model = pulp.LpProblem("overlay", pulp.LpMaximize)
    x = [model.add_variable(f"x{n}", lowBound=0, cat="Integer") for n in range(len(result))]
    model.setObjective(pulp.LpAffineExpression([(x[n], w) for n, (_, _, w) in enumerate(result)]))
    of: dict[int, list[tuple[pulp.LpVariable, int]]] = {}
    for n, (b, k, _) in enumerate(result):
        of.setdefault(b, []).append((x[n], 1))
        of.setdefault(len(case[0]) + k, []).append((x[n], 1))
    bounds = [d.procs for d in case[0]] + [procs for _, procs in parts]
    for row, terms in of.items():
        model.addConstraint(pulp.LpAffineExpression(terms) <= bounds[row])
    model.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, gapRel=0.0))
    return float(pulp.value(model.objective))


def worth(case: Case, procs: NDArray[np.int64]) -> float:
    """What an answer is worth in the peers' sum."""
    demands, grids, _ = case
    parts = sorted((o, g, n * r.procs) for g, r in enumerate(grids) for o, n in r.parts if n)
    ranks = {order: n for n, order in enumerate(sorted({o for o, _, _ in parts}))}
    served, used = procs.sum(axis=1), procs.sum(axis=0).copy()
    total = 4 * len(ranks) * sum(d.weight * int(s) for d, s in zip(demands, served, strict=True))
    for order, g, size in parts:
        taken = min(size, int(used[g]))
        used[g] -= taken
        total -= ranks[order] * taken
    return total


def timed(call, case: Case) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """Milliseconds, and what came out."""
    began = time.perf_counter()
    result = call(case)
    return 1e3 * (time.perf_counter() - began), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bags", type=int, default=1000)
    parser.add_argument("--grids", type=int, default=50)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--peers", type=int, default=6, help="draws that the peers solve too")
    args = parser.parse_args()
    rng = np.random.default_rng(26)
    cases = [draw(rng, args.bags, args.grids) for _ in range(args.draws)]
    for _ in range(5):
        overlay(*cases[0])  # compiled from here on
    ours = [timed(lambda case: overlay(*case).procs, case) for case in cases]
    ms = [t for t, _ in ours]
    print(
        f"{args.draws} draws of {args.bags} bags × {args.grids} grids: median "
        f"{statistics.median(ms):.1f} ms, worst {max(ms):.1f} ms"
    )
    for name, peer in (("HiGHS, LP", by_highs), ("CBC by PuLP, integer", by_cbc)):
        results = [timed(peer, case) for case in cases[: args.peers]]
        for (_, value), (_, procs), case in zip(results, ours, cases, strict=False):
            assert abs(value - worth(case, procs)) <= 1e-6 * max(1.0, value), (
                value,
                worth(case, procs),
            )
        ratio = statistics.median(t / ms[n] for n, (t, _) in enumerate(results))
        print(
            f"{name}: median {statistics.median(t for t, _ in results):.0f} ms on "
            f"{len(results)} of them, {ratio:.0f} times ours, the same optimum"
        )


if __name__ == "__main__":
    main()
