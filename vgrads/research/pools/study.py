"""How many workers should a pool hold? The policies of Yu's thesis (Notre Dame 2013), today's tools
and ours, on a manager in virtual time.

Tables: the thesis's Table 4.2 remade (D1 to D7 on P1 to P5); all policies beside ours (D8); the
same on random work, on which D8's constants were chosen, and on other random work; capacity against
the knee of a sweep, and figures 4.6 to 4.8; whether D8 comes to rest. The link, the think time and
what every worker costs the manager's loop were set so that P1 under D1 is about as printed;
everything else follows.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from vgrads.pool.sizing import SIZINGS
from vgrads.research.pools.capacity import FIGURES, estimate, figure, places
from vgrads.research.pools.loads import KINDS, PATTERNS, Load, other, pattern, policy
from vgrads.research.pools.printed import PRINTED
from vgrads.research.pools.stage import play
from vgrads.research.pools.steady import constant, schedule
from vgrads.research.report import (
    Rows,
    as_json,
    html_table,
    paragraph,
    study_parser,
    text_table,
    write_page,
)

THESIS = ("d1", "d2", "d3", "d4", "d5", "d6", "d7")
RIVALS = tuple(name for name in SIZINGS if name != "d8")
NEAR, LEAN, QUICK = 1.10, 0.75, 1.03
"""A rival counts if it takes at most so many times the fastest; ours should have so much of the
leanest's worker time beyond execution, in so many times its turnaround."""
Cell = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Told:
    """A table, a sentence under it, and its numbers."""

    title: str
    head: tuple[str, ...]
    rows: Rows
    verdict: str
    numbers: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """D8 and the leanest of the quick: ``beyond`` and ``turnaround`` are ratios, ``efficiency`` is
    execution over worker time."""

    leanest: str
    beyond: float
    turnaround: float
    efficiency: float

    @property
    def good(self) -> bool:
        """As little and as quick as it should be."""
        return self.beyond <= LEAN and self.turnaround <= QUICK


def cell(load: Callable[[int], Load], sizing: str, seeds: Sequence[int]) -> Cell:
    """Means over plays: turnaround, worker time and execution in s, cycles."""
    found = []
    for seed in seeds:
        one = load(seed)
        ran = play(one.batches, one.setting, policy(sizing), seed)
        found.append((ran.turnaround_s, ran.worker_s, ran.execution_s, float(ran.cycles)))
    return tuple(map(float, np.mean(found, axis=0)))  # type: ignore[return-value]


def cells(load: Callable[[int], Load], seeds: Sequence[int]) -> dict[str, Cell]:
    """All policies on one kind of work."""
    return {name: cell(load, name, seeds) for name in SIZINGS}


def against(found: Mapping[str, Cell]) -> Against:
    """D8 against the leanest rival among those that are nearly as quick as the quickest."""
    quick = NEAR * min(found[name][0] for name in RIVALS)
    leanest = min(
        (name for name in RIVALS if found[name][0] <= quick),
        key=lambda name: found[name][1] - found[name][2],
    )
    mine, its = found["d8"], found[leanest]
    return Against(
        leanest=leanest,
        beyond=(mine[1] - mine[2]) / (its[1] - its[2]),
        turnaround=mine[0] / its[0],
        efficiency=mine[2] / mine[1],
    )


def table42(found: Mapping[str, Mapping[str, Cell]]) -> Told:
    """D1 to D7, in brackets as printed, and how D6 and D7 stand to D1."""
    rows = []
    for name in THESIS:
        row = [name.upper()]
        for work in PATTERNS:
            took, printed = found[work][name], PRINTED[work][name]
            row.append(
                f"{took[0]:.0f} / {took[1] / 1000:.0f}k / {took[3]:.0f} ({printed[0]} / "
                f"{printed[1] / 1000:.0f}k / {printed[2]})"
            )
        rows.append(row)
    order, off = [], {}
    for name in ("d6", "d7"):
        row = [f"{name.upper()} ÷ D1"]
        for work in PATTERNS:
            mine = [found[work][name][n] / found[work]["d1"][n] for n in (0, 1, 3)]
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
        f"Order against D1 as printed in {sum(order)} of {len(order)} comparisons (equal "
        "within 1.5 %); D6's worker time "
        f"within ±.10 of the printed part of D1's in {sum(near)} of 3 (P1, P4, P5)."
    )
    return Told(
        "Table 4.2: turnaround s / worker time s / cycles (printed)",
        ("policy", *PATTERNS),
        rows,
        verdict,
        {work: dict(found[work]) for work in PATTERNS},
    )


def _sign(ratio: float) -> int:
    return 0 if abs(ratio - 1.0) <= 0.015 else (1 if ratio > 1.0 else -1)


def peers(found: Mapping[str, Mapping[str, Cell]]) -> Told:
    """All policies: turnaround and worker time beyond execution."""
    rows = [
        [
            name,
            *(
                f"{found[work][name][0]:.0f} / {found[work][name][1] - found[work][name][2]:.0f}"
                for work in PATTERNS
            ),
        ]
        for name in SIZINGS
    ]
    ours = {work: against(found[work]) for work in PATTERNS}
    rows += [
        ["leanest of the quick", *(ours[work].leanest for work in PATTERNS)],
        ["D8 beyond ÷ its", *(f"{ours[work].beyond:.2f}" for work in PATTERNS)],
        ["D8 turnaround ÷ its", *(f"{ours[work].turnaround:.3f}" for work in PATTERNS)],
        ["D8 efficiency", *(f"{ours[work].efficiency:.2f}" for work in PATTERNS)],
    ]
    good = [work for work in PATTERNS if ours[work].good]
    verdict = f"D8 keeps ≤ {LEAN:g} and ≤ {QUICK:g} on {', '.join(good) or 'none'}."
    return Told(
        "All policies: turnaround s / worker time beyond execution s",
        ("policy", *PATTERNS),
        rows,
        verdict,
        {work: asdict(one) for work, one in ours.items()},
    )


def random_work(title: str, seeds: Sequence[int]) -> Told:
    """D8 against the leanest of the quick, one play each."""
    rows, told = [], {}
    for kind in KINDS:
        ran = [against(cells(partial(other, kind), [seed])) for seed in seeds]
        told[kind] = [asdict(one) for one in ran]
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
        "beyond ÷ leanest's",
        "turnaround ÷ its",
        "at worst",
        f"≤ {LEAN:g} and ≤ {QUICK:g}",
    )
    return Told(title, head, rows, f"Seeds {seeds[0]} to {seeds[-1]}; geometric means.", told)


def capacities(count: int, plays: int, seed: int) -> Told:
    """Estimates against the knee of a sweep."""
    ran = [estimate(place, n, plays) for n, place in enumerate(places(count, seed))]
    rows, told = [], {}
    for name, some in (
        ("serial", [one for one in ran if one.serial]),
        ("overlapping", [one for one in ran if not one.serial]),
        ("all", ran),
    ):
        off = np.abs([one.off for one in some])
        numbers = (
            float(np.median(off)),
            float(np.median(off, axis=1).max()),
            float(off.max()),
            float(np.mean([one.inside for one in some])),
            float(np.median(np.abs([one.thesis for one in some]))),
        )
        told[name] = numbers
        rows.append([name, str(len(some)), *(f"{100 * number:.1f}" for number in numbers)])
    head = (
        "manager",
        "settings",
        "off by, median %",
        "worst setting %",
        "worst play %",
        "90 % interval held %",
        "Eq 4.5 and one off by, median %",
    )
    verdict = (
        f"After 2 × max(20, workers) tasks, {plays} plays of each setting, with half to twice "
        "the knee's workers."
    )
    return Told("Capacity against the knee of a sweep", head, rows, verdict, told)


def figures(seed: int) -> Told:
    """Figures 4.6 to 4.8."""
    ran = [figure(name, seed) for name in FIGURES]
    rows = [
        [
            one.name,
            f"{one.end:.0f} ({one.thesis_end:.0f})",
            f"{one.settled_s:.0f} ({one.thesis_settled_s:.0f})",
            f"{100 * one.dip:.1f} ({100 * one.thesis_dip:.1f})",
        ]
        for one in ran
    ]
    head = ("figure", "capacity at the end", "within a tenth of it from s on", "deepest dip %")
    return Told(
        "As workers come: ours (Eq 4.5 over the last tasks)",
        head,
        rows,
        "Dips count once 2 × max(20, workers) tasks have ended.",
        [asdict(one) for one in ran],
    )


def rest(seeds: Sequence[int], schedules: int) -> Told:
    """Constant loads, and random schedules that become constant."""
    rows: list[list[str]] = []
    told: dict[str, Any] = {}
    for name, shown in (
        ("known", "backlog, capacity known"),
        ("backlog", "backlog"),
        ("flow", "flow"),
    ):
        ran = [constant(name, seed) for seed in seeds]
        told[name] = [asdict(one) for one in ran]
        rows.append(
            [
                f"constant {shown}",
                str(len(ran)),
                str(max(one.reversals for one in ran)),
                f"{100 * max(one.known_overshoot for one in ran):.1f}",
                f"{100 * max(one.overshoot for one in ran):.0f}",
            ]
        )
    for name, losses in (("then constant", False), ("constant but for losses", True)):
        turns = [schedule(seed, losses=losses) for seed in range(schedules)]
        known = [one for one in turns if one is not None]
        cycles = sum(one >= 3 for one in known)
        told[name] = {"schedules": len(known), "limit cycles": cycles}
        rows.append(
            [
                f"schedules, {name}",
                str(len(known)),
                str(max(known, default=0)),
                f"{cycles} limit cycles",
                "–",
            ]
        )
    head = (
        "load",
        "plays",
        "most reversals",
        "overshoot once a capacity was known %",
        "from the beginning %",
    )
    return Told(
        "Does D8 come to rest?",
        head,
        rows,
        "A reversal is a turn of more than a tenth; three within ten waits are a limit cycle.",
        told,
    )


def tables(chosen: Namespace) -> list[Told]:
    """All that were asked for."""
    found: list[Told] = []
    seeds = range(chosen.seed, chosen.seed + chosen.plays)
    some = max(1, chosen.plays // 2)
    if {"table", "peers"} & set(chosen.only):
        work = {name: cells(partial(pattern, name), seeds) for name in PATTERNS}
        makers = {"table": table42, "peers": peers}
        found += [make(work) for name, make in makers.items() if name in chosen.only]
    if "random" in chosen.only:
        found.append(
            random_work("Random work on which D8's constants were chosen", range(500, 500 + some))
        )
        found.append(
            random_work("Other random work", range(600 + chosen.seed, 600 + chosen.seed + some))
        )
    if "capacity" in chosen.only:
        found += [capacities(chosen.settings, some, 1 + chosen.seed), figures(chosen.seed)]
    if "rest" in chosen.only:
        found.append(rest(seeds, chosen.schedules))
    return found


def _arguments() -> ArgumentParser:
    parser = study_parser("pool", __doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--plays", type=int, default=12, help="of each pattern and policy")
    parser.add_argument("--settings", type=int, default=60, help="managers whose capacity is told")
    parser.add_argument("--schedules", type=int, default=200, help="random ones, for limit cycles")
    return parser


PARTS = ("table", "peers", "random", "capacity", "rest")


def main(arguments: Sequence[str]) -> None:
    """Play and print."""
    chosen = _arguments().parse_args(arguments)
    told = tables(chosen)
    if chosen.json:
        print(json.dumps(as_json({one.title: one.numbers for one in told}), indent=1))
    else:
        for one in told:
            print(f"\n{one.title}\n\n{text_table(one.head, one.rows)}\n\n{one.verdict}")
    if chosen.report:
        parts = [
            part
            for one in told
            for part in (
                f"<h2>{one.title}</h2>",
                html_table(one.head, one.rows),
                paragraph(one.verdict),
            )
        ]
        write_page(chosen.report, "How many workers should a pool hold?", parts)
