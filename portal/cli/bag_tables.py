"""Bags of tasks for a person: fits, figures of a simulation, policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from desk.bags import FittedHistory
from kernel.units import format_duration

Json = dict[str, Any]


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
