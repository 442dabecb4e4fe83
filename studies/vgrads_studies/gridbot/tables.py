"""GridBot's tables (Silberstein and others, SC'09, doi:10.1145/1654059.1654071) on the dispatcher's
own core.

Grids are simulated (nodes that wait in queues, work, and vanish without a message), decisions are
not: dispatch policies are ClassAds, read, cached and evaluated as in service. Assumptions about the
grids are listed in studies/results/gridbot.md. Sizes are the paper's times --scale, jobs and nodes
alike.
Means are printed with 95 % intervals over seeds, ratios are taken seed by seed. Seeds 100 to 105
and 200 to 203 were used while learned replicas were improved; the default begins at 1000.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.kernel.text_table import TextTable, build_table
from vgrads_studies.gridbot import order
from vgrads_studies.gridbot import replicas as copies
from vgrads_studies.gridbot.fleet import play_fleet
from vgrads_studies.picture import diagrams, picture_file
from vgrads_studies.report import StudyParser, print_table

StudyPart = tuple[TextTable, Any]
BAGS, JOBS_OF_A_BAG = 50, 1200
RESTRICTIVE = "restrictive, restrictive"


def interval(values: Iterable[float], digits: int = 2) -> str:
    """Return the mean and half the width of its 95 % interval."""
    result = np.array(list(values), float)
    half = 1.96 * result.std(ddof=1) / len(result) ** 0.5 if len(result) > 1 else 0.0
    return f"{result.mean():.{digits}f} ± {half:.{digits}f}"


def replication(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print the table of collaborative grids."""
    result = copies.table(seeds, scale)
    title = f"30,000 jobs × {scale:g}, {len(seeds)} seeds (published)"
    head = (
        "replication, scheduling",
        "replicas %",
        "waste %",
        "cancelled %",
        "wasted % of time",
        "hours",
        "relative to restrictive",
    )
    rows: list[Sequence[str]] = []
    base = [item.hours for item in result[RESTRICTIVE]]
    for row in copies.rows(scale):
        ran = result[row.name]
        texts = [
            interval(getattr(item, name) for item in ran)
            for name in ("replicas", "waste", "called_off", "vain", "hours")
        ]
        if row.printed:
            for at, printed in zip((0, 1, 4), row.printed, strict=True):
                texts[at] += f" ({printed:g})"
        ratio = interval((item.hours / b for item, b in zip(ran, base, strict=True)), 3)
        rows.append(
            (
                row.name,
                *texts,
                ratio,
            )
        )
    payload = {name: [asdict(item) for item in ran] for name, ran in result.items()}
    return build_table(head, rows, title), payload


def ranks(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print Figure 7."""
    jobs = max(12, round(JOBS_OF_A_BAG * scale))
    title = f"Bags of {jobs} jobs of 3 min, Rank from 1 to the number of bags"
    head = (
        "bags",
        "started in order %",
        "first bag h",
        "from end to end, min",
    )
    rows: list[Sequence[str]] = []
    payload = {}
    for bags in (10, BAGS):
        ran = [order.order(bags, jobs, seed, scale) for seed in seeds]
        payload[bags] = [asdict(order_statistics) for order_statistics in ran]
        rows.append(
            (
                str(bags),
                interval(order_statistics.in_order for order_statistics in ran),
                interval(order_statistics.hours[0] for order_statistics in ran),
                interval(60.0 * order_statistics.gap_hours for order_statistics in ran),
            )
        )
    return build_table(head, rows, title), payload


def holes(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print the results of black holes, by task length."""
    agents = max(20, round(1000 * scale))
    title = f"One of 20 of {agents} nodes is a black hole"
    head = (
        "task run time s",
        "attempts until quarantined",
        "failed attempts %",
        "failed % of time",
        "throughput %",
        "repaired, back after s",
        "healthy nodes quarantined",
    )
    rows: list[Sequence[str]] = []
    payload = {}
    for task_s in (10.0, 30.0, 60.0, 180.0):
        ran = [order.black_holes(agents, seed, task_s, 1.0) for seed in seeds]
        payload[task_s] = [asdict(holes) for holes in ran]
        rows.append(
            (
                f"{task_s:g}",
                str(max(holes.first for holes in ran)),
                interval(holes.share for holes in ran),
                interval((holes.time_share for holes in ran), 3),
                interval(holes.throughput for holes in ran),
                f"{max(one.back_s for one in ran):.0f}",
                str(sum(holes.healthy for holes in ran)),
            )
        )
    return build_table(head, rows, title), payload


def long_ones(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print the results of long healthy tasks and stragglers with learned replicas."""
    agents = max(20, round(1000 * scale))
    title = f"Long tasks on {agents} nodes"
    head = (
        "tasks",
        "wrongly abandoned",
        "long tasks replicated %",
        "stragglers in the tail",
        "95 % replicated within, of p95",
        "in 2 × p95",
    )
    rows: list[Sequence[str]] = []
    payload = {}
    for kind in ("bimodal", "stragglers"):
        ran = [order.long_tasks(agents, seed, kind) for seed in seeds]
        payload[kind] = [asdict(item) for item in ran]
        with_some = [item.late_s / item.p95_s for item in ran if item.straggling]
        rows.append(
            (
                kind,
                str(sum(item.aborted for item in ran)),
                interval(item.copied for item in ran),
                str(sum(item.straggling for item in ran)),
                interval(with_some) if with_some else "–",
                f"{sum(late <= 2 for late in with_some)} of {len(with_some)}",
            )
        )
    return build_table(head, rows, title), payload


def fair(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print the results of owners with weights."""
    agents = max(50, round(2000 * scale))
    title = f"Owners with work all the time, {agents} nodes: largest deviation in any 10 min, %"
    head = (
        "weights",
        "task length",
        "mean",
        "worst case",
    )
    rows: list[Sequence[str]] = []
    payload = {}
    for weights in ((1, 1), (1, 2, 3, 4), (1, 9)):
        for stated in (True, False):
            ran = [order.shares(weights, agents, seed, stated) for seed in seeds]
            payload[f"{weights} {stated}"] = ran
            rows.append(
                (
                    " : ".join(map(str, weights)),
                    "stated" if stated else "learned",
                    interval(ran),
                    f"{max(ran):.2f}",
                )
            )
    return build_table(head, rows, title), payload


def tails(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print Figure 8."""
    scale = min(1.0, 2 * scale)
    title = (
        f"Five bags of {1200 * scale:.0f} jobs of 3 min, B5 first: minutes until done / "
        "from 90 % on"
    )
    head = ("policies", *(name for name, _ in copies.five()))
    rows: list[Sequence[str]] = []
    payload = {}
    for learned in (False, True):
        ran = np.array([copies.play_five(learned, seed, scale) for seed in seeds])
        name = "learned" if learned else "as printed"
        payload[name] = ran.tolist()
        mean = ran.mean(axis=0)
        rows.append(
            (
                name,
                *(f"{done:.0f} / {tail:.0f}" for done, tail in mean),
            )
        )
    return build_table(head, rows, title), payload


def community(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print Figure 9, with the policies in place of R4."""
    scale *= 0.3
    seeds = seeds[: max(1, len(seeds) // 2)]
    title = (
        f"Four bags of {30_000 * scale:.0f} jobs with a community grid, {len(seeds)} "
        "seeds, R4 first: hours, replicas / waste % (published)"
    )
    head = (
        "R4 replaced by",
        *(f"{name} ({replicas}/{waste})" for name, _, (replicas, waste) in copies.four(scale)),
        "R4 at the threshold = 1",
    )
    rows: list[Sequence[str]] = []
    payload: dict[str, Any] = {}
    for last in ("2000", "4000", "learned"):
        ran = [copies.play_four(last, seed, scale) for seed in seeds]
        payload[last] = [[asdict(result) for result in four] for four in ran]
        cells = [
            (
                f"{interval(four[n].hours for four in ran)}, "
                f"{np.mean([four[n].replicas for four in ran]):.0f} / "
                f"{np.mean([four[n].waste for four in ran]):.0f}"
            )
            for n in range(4)
        ]
        base = [four[3]["hours"] for four in payload["2000"]]
        rows.append(
            (
                last,
                *cells,
                interval(four[3].hours / b for four, b in zip(ran, base, strict=True)),
            )
        )
    return build_table(head, rows, title), payload


def naive(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print Figure 5."""
    scale *= 0.5
    title = f"{30_000 * scale:.0f} jobs over all grids: hours (published: naive 280, policies 8)"
    head = (
        "dispatch",
        "hours",
        "ratio naive / policies",
    )
    rows: list[Sequence[str]] = []
    result = {
        kind: [copies.play_naive(kind, seed, scale) for seed in seeds]
        for kind in ("naive", "restrictive", "learned")
    }
    for kind, hours in result.items():
        times = interval((n / h for n, h in zip(result["naive"], hours, strict=True)), 1)
        rows.append(
            (
                kind,
                interval(hours, 1),
                times,
            )
        )
    return build_table(head, rows, title), result


def fleet(seeds: Sequence[int], scale: float) -> StudyPart:
    """Print the nodes that the overlay constructor requests."""
    title = "Nodes requested by the overlay constructor"
    head = (
        "nodes announce departure",
        "nodes at once",
        "idle % of node time",
        "surplus nodes in the tail, longest s",
        "hours",
    )
    rows: list[Sequence[str]] = []
    payload = {}
    for vanish in (False, True):
        ran = [play_fleet(seed, scale / 2, vanish) for seed in seeds[: max(1, len(seeds) // 2)]]
        payload["vanish" if vanish else "stay"] = [asdict(fleeted) for fleeted in ran]
        rows.append(
            (
                "vanish" if vanish else "stay",
                interval((fleeted.most for fleeted in ran), 0),
                interval(fleeted.idle for fleeted in ran),
                interval((fleeted.beyond_s for fleeted in ran), 0),
                interval(fleeted.hours for fleeted in ran),
            )
        )
    return build_table(head, rows, title), payload


PARTS: dict[str, Callable[[Sequence[int], float], StudyPart]] = {
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
    """Draw the remaining jobs over time, the last tenth of them, by row of the table; one diagram
    for each of some seeds."""
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
    parser = StudyParser("gridbot", __doc__)
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=6, help="simulations of each row")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument(
        "--scale", type=float, default=0.1, help="scale of jobs and nodes relative to the paper"
    )
    parser.add_argument("--picture", type=picture_file, help="file for the diagram of tails (SVG)")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Simulate, print, and write the requested files."""
    chosen: Namespace = _arguments().parse_args(arguments)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    result: dict[str, Any] = {}
    for name in chosen.only:
        table, result[name] = PARTS[name](seeds, chosen.scale)
        print_table(table)
    if chosen.picture:
        draw(seeds, chosen.scale, chosen.picture)
    if chosen.out:
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")
