"""GridBot's tables (Silberstein and others, SC'09, doi:10.1145/1654059.1654071) on the dispatcher's
own core.

Grids are simulated (hosts that wait in queues, work, and vanish without a word), decisions are not:
policies are ClassAds, read, remembered and asked as in service. What is assumed of the grids stands
in docs/gridbot.md. Sizes are the paper's times --scale, jobs and hosts alike. Means stand with 95 %
intervals over seeds, ratios are taken seed by seed. Seeds 100 to 105 and 200 to 203 were looked at
while learned copies were improved; the default begins at 1000.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vgrads.research.gridbot import order
from vgrads.research.gridbot import replicas as copies
from vgrads.research.gridbot.fleet import play_fleet
from vgrads.research.picture import diagrams

Told = tuple[Table, Any]
BAGS, JOBS_OF_A_BAG = 50, 1200
RESTRICTIVE = "restrictive, restrictive"


def interval(values: Iterable[float], digits: int = 2) -> str:
    """Mean and half the width of its 95 % interval."""
    found = np.array(list(values), float)
    half = 1.96 * found.std(ddof=1) / len(found) ** 0.5 if len(found) > 1 else 0.0
    return f"{found.mean():.{digits}f} ± {half:.{digits}f}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for n, name in enumerate(columns):
        table.add_column(name, justify="left" if n == 0 else "right")
    return table


def replication(seeds: Sequence[int], scale: float) -> Told:
    """The table of collaborative grids."""
    found = copies.table(seeds, scale)
    table = _table(
        f"30,000 jobs × {scale:g}, {len(seeds)} seeds (printed)",
        "replication, scheduling",
        "replicas %",
        "waste %",
        "called off %",
        "in vain % of time",
        "hours",
        "against restrictive",
    )
    base = [one.hours for one in found[RESTRICTIVE]]
    for row in copies.rows(scale):
        ran = found[row.name]
        texts = [
            interval(getattr(one, name) for one in ran)
            for name in ("replicas", "waste", "called_off", "vain", "hours")
        ]
        if row.printed:
            for at, printed in zip((0, 1, 4), row.printed, strict=True):
                texts[at] += f" ({printed:g})"
        ratio = interval((one.hours / b for one, b in zip(ran, base, strict=True)), 3)
        table.add_row(row.name, *texts, ratio)
    return table, {name: [asdict(one) for one in ran] for name, ran in found.items()}


def ranks(seeds: Sequence[int], scale: float) -> Told:
    """Figure 7."""
    jobs = max(12, round(JOBS_OF_A_BAG * scale))
    table = _table(
        f"Bags of {jobs} jobs of 3 min, Rank 1 to their number",
        "bags",
        "begin in order %",
        "first bag h",
        "from end to end, min",
    )
    told = {}
    for bags in (10, BAGS):
        ran = [order.order(bags, jobs, seed, scale) for seed in seeds]
        told[bags] = [asdict(one) for one in ran]
        table.add_row(
            str(bags),
            interval(one.in_order for one in ran),
            interval(one.hours[0] for one in ran),
            interval(60.0 * one.gap_hours for one in ran),
        )
    return table, told


def holes(seeds: Sequence[int], scale: float) -> Told:
    """Black holes, by how long a task takes."""
    hosts = max(20, round(1000 * scale))
    table = _table(
        f"One of 20 of {hosts} hosts is a black hole",
        "a task takes s",
        "attempts before barred",
        "failed attempts %",
        "of the time %",
        "throughput %",
        "healed, back after s",
        "honest hosts barred",
    )
    told = {}
    for task_s in (10.0, 30.0, 60.0, 180.0):
        ran = [order.black_holes(hosts, seed, task_s, 1.0) for seed in seeds]
        told[task_s] = [asdict(one) for one in ran]
        table.add_row(
            f"{task_s:g}",
            str(max(one.first for one in ran)),
            interval(one.share for one in ran),
            interval((one.time_share for one in ran), 3),
            interval(one.throughput for one in ran),
            f"{max(one.back_s for one in ran):.0f}",
            str(sum(one.honest for one in ran)),
        )
    return table, told


def long_ones(seeds: Sequence[int], scale: float) -> Told:
    """Long honest tasks and stragglers, learned copies."""
    hosts = max(20, round(1000 * scale))
    table = _table(
        f"Long tasks on {hosts} hosts",
        "tasks",
        "given up wrongly",
        "long ones copied %",
        "stragglers in the tail",
        "95 % copied within, of p95",
        "in 2 × p95",
    )
    told = {}
    for kind in ("bimodal", "stragglers"):
        ran = [order.long_tasks(hosts, seed, kind) for seed in seeds]
        told[kind] = [asdict(one) for one in ran]
        with_some = [one.late_s / one.p95_s for one in ran if one.straggling]
        table.add_row(
            kind,
            str(sum(one.aborted for one in ran)),
            interval(one.copied for one in ran),
            str(sum(one.straggling for one in ran)),
            interval(with_some) if with_some else "–",
            f"{sum(late <= 2 for late in with_some)} of {len(with_some)}",
        )
    return table, told


def fair(seeds: Sequence[int], scale: float) -> Told:
    """Owners with weights."""
    hosts = max(50, round(2000 * scale))
    table = _table(
        f"Owners with work all the time, {hosts} hosts: most off in any 10 min, %",
        "weights",
        "length of tasks",
        "mean",
        "at worst",
    )
    told = {}
    for weights in ((1, 1), (1, 2, 3, 4), (1, 9)):
        for stated in (True, False):
            ran = [order.shares(weights, hosts, seed, stated) for seed in seeds]
            told[f"{weights} {stated}"] = ran
            table.add_row(
                " : ".join(map(str, weights)),
                "stated" if stated else "learned",
                interval(ran),
                f"{max(ran):.2f}",
            )
    return table, told


def tails(seeds: Sequence[int], scale: float) -> Told:
    """Figure 8."""
    scale = min(1.0, 2 * scale)
    table = _table(
        (
            f"Five bags of {1200 * scale:.0f} jobs of 3 min, B5 first: minutes until done / "
            "from 90 % on"
        ),
        *["policies", *(name for name, _ in copies.five())],
    )
    told = {}
    for learned in (False, True):
        ran = np.array([copies.play_five(learned, seed, scale) for seed in seeds])
        name = "learned" if learned else "as printed"
        told[name] = ran.tolist()
        mean = ran.mean(axis=0)
        table.add_row(name, *(f"{done:.0f} / {tail:.0f}" for done, tail in mean))
    return table, told


def community(seeds: Sequence[int], scale: float) -> Told:
    """Figure 9, and what stands at R4's place."""
    scale *= 0.3
    seeds = seeds[: max(1, len(seeds) // 2)]
    table = _table(
        (
            f"Four bags of {30_000 * scale:.0f} jobs with a community grid, {len(seeds)} "
            "seeds, R4 first: hours, replicas / waste % (printed)"
        ),
        "at R4's place",
        *(f"{name} ({replicas}/{waste})" for name, _, (replicas, waste) in copies.four(scale)),
        "R4 at the threshold = 1",
    )
    told: dict[str, Any] = {}
    for last in ("2000", "4000", "learned"):
        ran = [copies.play_four(last, seed, scale) for seed in seeds]
        told[last] = [[asdict(one) for one in four] for four in ran]
        cells = [
            (
                f"{interval(four[n].hours for four in ran)}, "
                f"{np.mean([four[n].replicas for four in ran]):.0f} / "
                f"{np.mean([four[n].waste for four in ran]):.0f}"
            )
            for n in range(4)
        ]
        base = [four[3]["hours"] for four in told["2000"]]
        table.add_row(
            last, *cells, interval(four[3].hours / b for four, b in zip(ran, base, strict=True))
        )
    return table, told


def naive(seeds: Sequence[int], scale: float) -> Told:
    """Figure 5."""
    scale *= 0.5
    table = _table(
        f"{30_000 * scale:.0f} jobs over all grids: hours (printed: naive 280, policies 8)",
        "dispatch",
        "hours",
        "naive is so many times as long",
    )
    found = {
        kind: [copies.play_naive(kind, seed, scale) for seed in seeds]
        for kind in ("naive", "restrictive", "learned")
    }
    for kind, hours in found.items():
        times = interval((n / h for n, h in zip(found["naive"], hours, strict=True)), 1)
        table.add_row(kind, interval(hours, 1), times)
    return table, found


def fleet(seeds: Sequence[int], scale: float) -> Told:
    """Hosts that the overlay constructor asks for."""
    table = _table(
        "Hosts asked for by the overlay constructor",
        "hosts say they go",
        "hosts at once",
        "idle % of host time",
        "hosts beyond the work in the tail, longest s",
        "hours",
    )
    told = {}
    for vanish in (False, True):
        ran = [play_fleet(seed, scale / 2, vanish) for seed in seeds[: max(1, len(seeds) // 2)]]
        told["vanish" if vanish else "stay"] = [asdict(one) for one in ran]
        table.add_row(
            "vanish" if vanish else "stay",
            interval((one.most for one in ran), 0),
            interval(one.idle for one in ran),
            interval((one.beyond_s for one in ran), 0),
            interval(one.hours for one in ran),
        )
    return table, told


PARTS: dict[str, Callable[[Sequence[int], float], Told]] = {
    "replication": replication,
    "order": ranks,
    "holes": holes,
    "long": long_ones,
    "shares": fair,
    "tails": tails,
    "community": community,
    "naive": naive,
    "fleet": fleet,
}


def draw(seeds: Sequence[int], scale: float, path: Path) -> None:
    """Jobs that are left over time, the last tenth of them, by row of the table; one diagram for
    each of some seeds."""
    some = seeds[:3]
    with diagrams(path, len(some), (4.0 * len(some), 3.2), sharey=True) as axes:
        for ax, seed in zip(axes, some, strict=True):
            for row in copies.rows(scale):
                done = copies.course(row, seed, scale)
                last = done[int(0.9 * len(done)) :]
                left = 100.0 * np.arange(len(last), 0, -1) / len(done)
                ax.step(last, left, where="pre", label=row.name, linewidth=1.2)
            ax.set(yscale="log", xlabel="hours", title=f"seed {seed}")
        axes[0].set_ylabel("jobs left, %")
        axes[0].legend(fontsize=6)


def _arguments() -> ArgumentParser:
    parser = ArgumentParser(
        "vgrads study gridbot", description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=6, help="plays of each row")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument(
        "--scale", type=float, default=0.1, help="jobs and hosts against the paper's"
    )
    parser.add_argument("--picture", type=Path, help="where the diagram of tails goes (SVG)")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Play, print, and write down what was asked for."""
    chosen: Namespace = _arguments().parse_args(arguments)
    console = Console(width=200)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    found: dict[str, Any] = {}
    for name in chosen.only:
        table, found[name] = PARTS[name](seeds, chosen.scale)
        console.print(table)
    if chosen.picture:
        draw(seeds, chosen.scale, chosen.picture)
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
