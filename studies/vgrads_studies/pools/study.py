"""Number of workers of a pool: the policies of Yu's thesis (Notre Dame 2013), today's tools and
ours, on a manager in virtual time.

Tables: a reproduction of the thesis's Table 4.2 (D1 to D7 on P1 to P5); all policies against ours
(D8); the same on random work, on which D8's constants were chosen, and on other random work;
capacity against the knee of a sweep, and figures 4.6 to 4.8; stability of D8. The link, the think
time and the cost of a worker to the manager's loop were set so that P1 under D1 is about as
printed; everything else follows.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from vgrads.kernel.report_page import html_table, paragraph, write_page
from vgrads.pool.sizing import SIZINGS
from vgrads_studies.pools.capacity import FIGURES, estimate, figure, places
from vgrads_studies.pools.loads import KINDS, PATTERNS, Load, other, pattern, policy
from vgrads_studies.pools.printed import PRINTED
from vgrads_studies.pools.stage import simulate
from vgrads_studies.pools.steady import constant, schedule
from vgrads_studies.report import Rows, as_json, markdown_table, study_parser

THESIS = ("d1", "d2", "d3", "d4", "d5", "d6", "d7")
RIVALS = tuple(name for name in SIZINGS if name != "d8")
NEAR, LEAN, QUICK = 1.10, 0.75, 1.03
"""A rival counts if it takes at most this many times the fastest; the targets for ours are this
share of the leanest's worker time beyond execution, and this many times its turnaround."""
Cell = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class StudyTable:
    """A table, its caption, and its numbers."""

    title: str
    head: tuple[str, ...]
    rows: Rows
    verdict: str
    numbers: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalRow:
    """D8 and the leanest of the fast policies: ``beyond`` and ``turnaround`` are ratios,
    ``efficiency`` is execution over worker time."""

    leanest: str
    beyond: float
    turnaround: float
    efficiency: float

    @property
    def good(self) -> bool:
        """Return True where both targets are met."""
        return self.beyond <= LEAN and self.turnaround <= QUICK


def cell(load: Callable[[int], Load], sizing: str, seeds: Sequence[int]) -> Cell:
    """Return means over simulations: turnaround, worker time and execution in s, cycles."""
    results = []
    for seed in seeds:
        item = load(seed)
        ran = simulate(item.batches, item.config, policy(sizing), seed)
        results.append((ran.turnaround_s, ran.worker_s, ran.execution_s, float(ran.cycles)))
    return tuple(map(float, np.mean(results, axis=0)))  # type: ignore[return-value]


def cells(load: Callable[[int], Load], seeds: Sequence[int]) -> dict[str, Cell]:
    """Return all policies on one kind of work."""
    return {name: cell(load, name, seeds) for name in SIZINGS}


def against(cells: Mapping[str, Cell]) -> RivalRow:
    """Compare D8 with the leanest rival among those that are nearly as fast as the fastest."""
    quick = NEAR * min(cells[name][0] for name in RIVALS)
    leanest = min(
        (name for name in RIVALS if cells[name][0] <= quick),
        key=lambda name: cells[name][1] - cells[name][2],
    )
    mine, its = cells["d8"], cells[leanest]
    return RivalRow(
        leanest=leanest,
        beyond=(mine[1] - mine[2]) / (its[1] - its[2]),
        turnaround=mine[0] / its[0],
        efficiency=mine[2] / mine[1],
    )


def table42(result: Mapping[str, Mapping[str, Cell]]) -> StudyTable:
    """Return D1 to D7, printed values in brackets, and the ratios of D6 and D7 to D1."""
    rows = []
    for name in THESIS:
        row = [name.upper()]
        for work in PATTERNS:
            took, printed = result[work][name], PRINTED[work][name]
            row.append(
                f"{took[0]:.0f} / {took[1] / 1000:.0f}k / {took[3]:.0f} ({printed[0]} / "
                f"{printed[1] / 1000:.0f}k / {printed[2]})"
            )
        rows.append(row)
    order, off = [], {}
    for name in ("d6", "d7"):
        row = [f"{name.upper()} ÷ D1"]
        for work in PATTERNS:
            mine = [result[work][name][n] / result[work]["d1"][n] for n in (0, 1, 3)]
            theirs = [PRINTED[work][name][n] / PRINTED[work]["d1"][n] for n in range(3)]
            row.append(
                " / ".join(f"{m:.2f}" for m in mine)
                + " ("
                + " / ".join(f"{t:.2f}" for t in theirs)
                + ")"
            )
            order += [_sign(m) == _sign(t) for m, t in zip(mine, theirs, strict=True)]
            off[name, work] = mine[1] - theirs[1]
        rows.append(row)
    near = [abs(off["d6", work]) <= 0.1 for work in ("P1", "P4", "P5")]
    verdict = (
        f"Order against D1 as published in {sum(order)} of {len(order)} comparisons (equal "
        "within 1.5 %); D6's worker time "
        f"within ±.10 of the published part of D1's in {sum(near)} of 3 (P1, P4, P5)."
    )
    return StudyTable(
        "Table 4.2: turnaround s / worker time s / cycles (published)",
        ("policy", *PATTERNS),
        rows,
        verdict,
        {work: dict(result[work]) for work in PATTERNS},
    )


def _sign(ratio: float) -> int:
    return 0 if abs(ratio - 1.0) <= 0.015 else (1 if ratio > 1.0 else -1)


def peers(result: Mapping[str, Mapping[str, Cell]]) -> StudyTable:
    """Return turnaround and worker time beyond execution of all policies."""
    rows = [
        [
            name,
            *(
                f"{result[work][name][0]:.0f} / {result[work][name][1] - result[work][name][2]:.0f}"
                for work in PATTERNS
            ),
        ]
        for name in SIZINGS
    ]
    ours = {work: against(result[work]) for work in PATTERNS}
    rows += [
        [
            "reference: fast policy with least worker time",
            *(ours[work].leanest for work in PATTERNS),
        ],
        ["D8 overhead ÷ reference", *(f"{ours[work].beyond:.2f}" for work in PATTERNS)],
        ["D8 turnaround ÷ reference", *(f"{ours[work].turnaround:.3f}" for work in PATTERNS)],
        ["D8 efficiency", *(f"{ours[work].efficiency:.2f}" for work in PATTERNS)],
    ]
    good = [work for work in PATTERNS if ours[work].good]
    verdict = f"D8 keeps ≤ {LEAN:g} and ≤ {QUICK:g} on {', '.join(good) or 'none'}."
    return StudyTable(
        "All policies: turnaround s / worker time beyond execution s",
        ("policy", *PATTERNS),
        rows,
        verdict,
        {work: asdict(our) for work, our in ours.items()},
    )


def random_work(title: str, seeds: Sequence[int]) -> StudyTable:
    """Compare D8 with the leanest of the fast policies, one simulation each."""
    rows, payload = [], {}
    for kind in KINDS:
        ran = [against(cells(partial(other, kind), [seed])) for seed in seeds]
        payload[kind] = [asdict(against) for against in ran]
        rows.append(
            [
                kind,
                f"{np.exp(np.mean([np.log(one.beyond) for one in ran])):.2f}",
                f"{np.exp(np.mean([np.log(one.turnaround) for one in ran])):.2f}",
                f"{max(one.turnaround for one in ran):.2f}",
                f"{sum(one.good for one in ran)} of {len(ran)}",
            ]
        )
    head = (
        "work",
        "overhead ÷ reference",
        "turnaround ÷ reference",
        "worst case",
        f"≤ {LEAN:g} and ≤ {QUICK:g}",
    )
    return StudyTable(
        title, head, rows, f"Seeds {seeds[0]} to {seeds[-1]}; geometric means.", payload
    )


def capacities(count: int, simulations: int, seed: int) -> StudyTable:
    """Compare estimates with the knee of a sweep."""
    ran = [estimate(place, n, simulations) for n, place in enumerate(places(count, seed))]
    rows, payload = [], {}
    for name, some in (
        ("serial", [run for run in ran if run.serial]),
        ("overlapping", [run for run in ran if not run.serial]),
        ("all", ran),
    ):
        off = np.abs([estimate.off for estimate in some])
        numbers = (
            float(np.median(off)),
            float(np.median(off, axis=1).max()),
            float(off.max()),
            float(np.mean([estimate.inside for estimate in some])),
            float(np.median(np.abs([estimate.thesis for estimate in some]))),
        )
        payload[name] = numbers
        rows.append([name, str(len(some)), *(f"{100 * number:.1f}" for number in numbers)])
    head = (
        "manager",
        "settings",
        "error, median %",
        "worst setting %",
        "worst simulation %",
        "90 % interval, coverage %",
        "error of Eq 4.5 plus one, median %",
    )
    verdict = (
        f"After 2 × max(20, workers) tasks, {simulations} simulations of each configuration, "
        "with half to twice the knee's workers."
    )
    return StudyTable("Capacity against the knee of a sweep", head, rows, verdict, payload)


def figures(seed: int) -> StudyTable:
    """Return figures 4.6 to 4.8."""
    ran = [figure(name, seed) for name in FIGURES]
    rows = [
        [
            figure.name,
            f"{figure.end:.0f} ({figure.thesis_end:.0f})",
            f"{figure.settled_s:.0f} ({figure.thesis_settled_s:.0f})",
            f"{100 * figure.dip:.1f} ({100 * figure.thesis_dip:.1f})",
        ]
        for figure in ran
    ]
    head = ("figure", "final capacity", "within 10 % of it from s on", "deepest dip %")
    return StudyTable(
        "As workers arrive: vgrads (Eq 4.5 over the last tasks)",
        head,
        rows,
        "Dips are counted after 2 × max(20, workers) tasks have ended.",
        [asdict(figure) for figure in ran],
    )


def rest(seeds: Sequence[int], schedules: int) -> StudyTable:
    """Simulate constant loads, and random schedules that become constant."""
    rows: list[list[str]] = []
    payload: dict[str, Any] = {}
    for name, shown in (
        ("known", "backlog, capacity known"),
        ("backlog", "backlog"),
        ("flow", "flow"),
    ):
        ran = [constant(name, seed) for seed in seeds]
        payload[name] = [asdict(rest) for rest in ran]
        rows.append(
            [
                f"constant {shown}",
                str(len(ran)),
                str(max(rest.reversals for rest in ran)),
                f"{100 * max(one.stated_overshoot for one in ran):.1f}",
                f"{100 * max(one.overshoot for one in ran):.0f}",
            ]
        )
    for name, losses in (("then constant", False), ("constant but for losses", True)):
        turns = [schedule(seed, losses=losses) for seed in range(schedules)]
        cycles_at = [number for number in turns if number is not None]
        cycles = sum(number >= 3 for number in cycles_at)
        payload[name] = {"schedules": len(cycles_at), "limit cycles": cycles}
        rows.append(
            [
                f"schedules, {name}",
                str(len(cycles_at)),
                str(max(cycles_at, default=0)),
                f"{cycles} limit cycles",
                "–",
            ]
        )
    head = (
        "load",
        "plays",
        "most reversals",
        "overshoot after a capacity was known %",
        "from the beginning %",
    )
    return StudyTable(
        "Does D8 come to rest?",
        head,
        rows,
        "A reversal is a change of direction by more than 10 %; three within ten waits are a "
        "limit cycle.",
        payload,
    )


def tables(chosen: Namespace) -> list[StudyTable]:
    """Return all requested tables."""
    study_tables: list[StudyTable] = []
    seeds = range(chosen.seed, chosen.seed + chosen.plays)
    some = max(1, chosen.plays // 2)
    if {"table", "peers"} & set(chosen.only):
        work = {name: cells(partial(pattern, name), seeds) for name in PATTERNS}
        makers = {"table": table42, "peers": peers}
        study_tables += [make(work) for name, make in makers.items() if name in chosen.only]
    if "random" in chosen.only:
        study_tables.append(
            random_work("Random work on which D8's constants were chosen", range(500, 500 + some))
        )
        study_tables.append(
            random_work("Other random work", range(600 + chosen.seed, 600 + chosen.seed + some))
        )
    if "capacity" in chosen.only:
        study_tables += [capacities(chosen.settings, some, 1 + chosen.seed), figures(chosen.seed)]
    if "rest" in chosen.only:
        study_tables.append(rest(seeds, chosen.schedules))
    return study_tables


def _arguments() -> ArgumentParser:
    parser = study_parser("pool", __doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument(
        "--plays", type=int, default=12, help="simulations of each pattern and policy"
    )
    parser.add_argument(
        "--settings", type=int, default=60, help="number of managers whose capacity is estimated"
    )
    parser.add_argument(
        "--schedules", type=int, default=200, help="number of random schedules, for limit cycles"
    )
    return parser


PARTS = ("table", "peers", "random", "capacity", "rest")


def main(arguments: Sequence[str]) -> None:
    """Simulate and print."""
    chosen = _arguments().parse_args(arguments)
    study_tables = tables(chosen)
    if chosen.json:
        print(
            json.dumps(
                as_json({study_table.title: study_table.numbers for study_table in study_tables}),
                indent=1,
            )
        )
    else:
        for table in study_tables:
            print(f"\n{table.title}\n\n{markdown_table(table.head, table.rows)}\n\n{table.verdict}")
    if chosen.report:
        parts = [
            part
            for study_table in study_tables
            for part in (
                f"<h2>{study_table.title}</h2>",
                html_table(study_table.head, study_table.rows),
                paragraph(study_table.verdict),
            )
        ]
        verdict = study_tables[0].verdict
        write_page(chosen.report, "How many workers should a pool hold?", verdict, parts)
