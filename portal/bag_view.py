"""Bags of tasks for people and programs: fits with pictures, workloads as logs, outcomes as figures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bags.architectures import Algorithm, simulate
from bags.extract import extract_bags
from bags.fit import Fitted, fit_bags, fit_users
from bags.metrics import by_size, figures
from bags.model import Target, draw_bags, model_named
from bags.scheduling import SCHEDULINGS
from bags.selection import SELECTIONS
from bags.system import paper_system
from bags.workload import Bags
from kernel.errors import InputError
from kernel.files import write_text
from kernel.units import format_duration
from portal.operations import open_history
from portal.sites import resolve_history
from traces.gwf import write_gwf
from traces.swf import write_swf

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class FittedHistory:
    """The bags of a history and what fits them."""

    name: str
    bags: Bags
    fits: Mapping[str, Fitted]
    users: tuple[float, int]


def fit_history(history: Path, gap_s: float) -> FittedHistory:
    """Bags of a history with all fits; InputError names what cannot be fitted."""
    path, queue = resolve_history(history)
    log = open_history(path).only_queue(queue)
    bags = extract_bags(log, gap_s)
    try:
        return FittedHistory(
            name=log.name, bags=bags, fits=fit_bags(bags, log.unix_start_s), users=fit_users(bags)
        )
    except InputError as error:
        raise error.within(str(history)) from error


def fits_json(found: FittedHistory) -> Json:
    """``vgrads bags fit --json``."""
    sizes = found.bags.sizes
    return {
        "bags": len(found.bags), "tasks": int(sizes.sum()), "of_two_or_more": int((sizes >= 2).sum()),
        "users": {"zipf": found.users[0], "count": found.users[1]},
        "characteristics": {
            name: {
                "values": len(one.values),
                "fits": [
                    {"family": f.distribution.family, "parameters": list(f.distribution.parameters), "d": f.d} for f in one.fits
                ],
            }
            for name, one in found.fits.items()
        },
    }  # fmt: skip


def fits_table(found: FittedHistory) -> Table:
    """For a terminal: every family of every characteristic with its D, the best first."""
    sizes = found.bags.sizes
    title = (
        f"{len(found.bags):,} bags, {int((sizes >= 2).sum()):,} of two tasks or more; "
        f"users Z({found.users[0]:.2f}, {found.users[1]})"
    )
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for head in ("characteristic", "values", "best", "D", "others (D)"):
        table.add_column(head)
    for name, one in found.fits.items():
        rest = ", ".join(f"{f.distribution} {f.d:.3f}" for f in one.fits[1:])
        table.add_row(
            name, f"{len(one.values):,}", str(one.best.distribution), f"{one.best.d:.3f}", rest
        )
    return table


def write_report(path: Path, found: FittedHistory) -> None:
    """A page with the distribution functions of every characteristic."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7.5))
    FigureCanvasSVG(figure)
    for place, (name, one) in enumerate(found.fits.items(), 1):
        axes = figure.add_subplot(2, 3, place)
        values = np.sort(one.values)
        axes.plot(
            values,
            np.arange(1, len(values) + 1) / len(values),
            color="#1c2430",
            linewidth=2.5,
            label="history",
        )
        grid = np.linspace(values[0], values[-1], 300)
        for fit in one.fits[:3]:
            axes.plot(
                grid,
                fit.distribution.cdf(grid),
                linewidth=1,
                label=f"{fit.distribution}: D {fit.d:.3f}",
            )
        axes.set_title(name)
        axes.legend(fontsize=7)
    figure.tight_layout()
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    svg = buffer.getvalue()
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{len(one.values):,}</td><td>{escape(str(one.best.distribution))}</td><td>{one.best.d:.3f}</td></tr>"
        for name, one in found.fits.items()
    )
    write_text(
        path,
        _PAGE.format(
            name=escape(found.name),
            rows=rows,
            svg=svg[svg.index("<svg") :],
            bags=f"{len(found.bags):,}",
        ),
    )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Bags of {name} · vgrads</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; }} th, td {{ text-align: left; padding: .25rem .8rem; border-bottom: 1px solid #ddd; }} svg {{ max-width: 100%; height: auto; }}
</style></head><body><h1>Bags of {name}</h1><p>{bags} bags. Times and sizes are logarithms to base 2, the daily cycle counts half hours.
D is the largest distance between the two distribution functions (Kolmogorov–Smirnov).</p>
<table><tr><th>characteristic</th><th>values</th><th>best fit</th><th>D</th></tr>{rows}</table>{svg}</body></html>
"""


def generate(out: Path, model: str, target: tuple[float, int, float], seed: int) -> Json:
    """Draw a workload for (load, processors, days) and write it."""
    load, procs, days = target
    bags = draw_bags(model_named(model), Target(load=load, capacity=float(procs), days=days), seed)
    log = bags.as_log(f"{model} bags")
    note = f"model {model}, load {load}, {procs} processors, {days} days, seed {seed}; nothing has run: waits are 0"
    writers = {".swf": write_swf, ".gwf": write_gwf}
    if out.suffix not in writers:
        raise InputError("ends neither in .swf nor in .gwf", where=str(out))
    write_text(out, writers[out.suffix](log, note))
    return {
        "file": str(out),
        "bags": len(bags),
        "tasks": len(bags.runtime_s),
        "work_s": float(bags.runtime_s.sum()),
    }


def play(names: tuple[str, str, str], model: str, target: tuple[float, float], seed: int) -> Json:
    """Figures of a drawn workload under (selection, scheduling, architecture)."""
    system = paper_system()
    load, days = target
    wanted = Target(load=load, capacity=system.capacity, clusters=len(system.procs), days=days)
    bags = draw_bags(model_named(model), wanted, seed)
    how = Algorithm(selection=names[0], scheduling=names[1], architecture=names[2])
    outcome = simulate(bags, system, how)
    classes = [
        {"from": low, "makespan_s": span, "length": length}
        for low, span, length in by_size(outcome)
    ]
    return {
        "selection": names[0], "scheduling": names[1], "architecture": names[2], "load": load, "bags": len(bags),
        "tasks": len(bags.runtime_s), "processors": int(system.procs.sum()), **asdict(figures(outcome)), "by_size": classes,
    }  # fmt: skip


def figures_table(told: Mapping[str, Any]) -> Table:
    """Figures for a terminal."""
    title = f"{told['tasks']:,} tasks in {told['bags']:,} bags on {told['processors']:,} processors, load {told['load']:.0%}"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("of all bags")
    table.add_column("", justify="right")
    for name in ("makespan_s", "wait_s", "response_s"):
        table.add_row(name.removesuffix("_s"), format_duration(told[name]))
    for name in ("length", "slowdown", "utilisation", "finished"):
        table.add_row({"length": "normalised length"}.get(name, name), f"{told[name]:.3f}")
    table.add_row("copies", f"{told['copies']:,}")
    for row in told["by_size"]:
        table.add_row(
            f"bags of {row['from']} and more",
            f"{format_duration(row['makespan_s'])}, length {row['length']:.3f}",
        )
    return table


def policies() -> Json:
    """``vgrads bags policies --json``."""
    return {
        "selection": [{"name": name, "about": one.about} for name, one in SELECTIONS.items()],
        "scheduling": [
            {"name": name, "resources": one.knows[0], "tasks": one.knows[1], "copies": one.copies, "about": _about(one.rank.__doc__)}
            for name, one in SCHEDULINGS.items()
        ],
    }  # fmt: skip


def _about(text: str | None) -> str:
    return (text or "").rstrip(".").lower()


def policies_table(told: Mapping[str, Sequence[Json]]) -> Table:
    """For a terminal. K known, H from history, U unknown."""
    table = Table(box=SIMPLE_HEAD)
    for head in ("policy", "knows (processors, tasks)", "what it does"):
        table.add_column(head)
    for row in told["selection"]:
        table.add_row(row["name"], "", row["about"])
    for row in told["scheduling"]:
        copies = f", up to {row['copies']} copies" if row["copies"] else ""
        table.add_row(row["name"], f"({row['resources']}, {row['tasks']})", row["about"] + copies)
    return table
