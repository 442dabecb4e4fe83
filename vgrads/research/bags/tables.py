"""Bags of tasks for a person: fits, figures of a simulation, policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from vgrads.kernel.units import format_duration
from vgrads.research.bags.answers import FittedHistory

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


def figures_table(told: Mapping[str, Any]) -> Group:
    """Figures for a terminal."""
    title = (
        f"{told['tasks']:,} tasks in {told['bags']:,} bags on {told['processors']:,} processors, "
        f"load {told['load']:.0%}, utilisation {told['utilisation']:.0%}"
    )
    table = Table(box=SIMPLE_HEAD)
    table.add_column("of all bags")
    table.add_column("", justify="right")
    for name in ("makespan_s", "wait_s", "response_s"):
        table.add_row(name.removesuffix("_s"), format_duration(told[name]))
    for name in ("length", "slowdown", "utilisation", "finished"):
        table.add_row({"length": "normalised length"}.get(name, name), f"{told[name]:.3f}")
    table.add_row("copies", f"{told['copies']:,}")
    for row in told["by_size"]:
        table.add_row(
            f"bags of {size_range(row['from'], row['to'])}",
            f"{format_duration(row['makespan_s'])}, length {row['length']:.3f}",
        )
    return Group(Text(title), table)


def size_range(low: int, high: int | None) -> str:
    """A class of sizes: ``1``, ``2–4``, ``1,000 and more``.

    >>> size_range(1, 1), size_range(2, 4), size_range(1000, None)
    ('1', '2–4', '1,000 and more')
    """
    if high is None:
        return f"{low:,} and more"
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def policies_compared(told: Mapping[str, Any]) -> Group:
    """Every policy that a history was played under, the lowest makespan first; what is best in a
    column is bold."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    columns = ("makespan_s", "length", "wait_s", "slowdown", "utilisation", "finished", "copies")
    for name in columns:
        table.add_column(name.removesuffix("_s"), justify="right")
    best = {name: min(row[name] for row in told["policies"]) for name in columns[:4]}
    for row in told["policies"]:
        shown = (
            Text(_shown(name, row[name]), "bold" if row[name] == best.get(name) else "")
            for name in columns
        )
        table.add_row(f"{row['selection']} {row['scheduling']}", *shown)
    return Group(Text(_of_history(told)), table)


def _shown(name: str, value: float) -> str:
    if name.endswith("_s"):
        return format_duration(value)
    return f"{value:,}" if name == "copies" else f"{value:,.3f}"


def _of_history(told: Mapping[str, Any]) -> str:
    system = ", ".join(f"{c['procs']:,} of speed {c['speed']:g}" for c in told["clusters"])
    load = "all at once" if told["load"] is None else f"load {told['load']:.0%}"
    load += ", more than the system can do" if (told["load"] or 0.0) > 1 else ""
    lines = [
        (
            f"{told['history']}: {told['tasks']:,} tasks in {told['bags']:,} bags on "
            f"{told['processors']:,} processors ({system}), {load}"
        )
    ]
    if told["parallel"]:
        lines.append(
            f"{told['parallel']:,} of them were parallel jobs: each is played as one task "
            "of all its processor time."
        )
    lines += [
        _best_of(told, "makespan_s", "average makespan"),
        _best_of(told, "length", "normalised length"),
    ]
    return "\n".join(lines)


def _best_of(told: Mapping[str, Any], name: str, title: str) -> str:
    """Who is best, and how many others are as good for all that one workload can tell."""
    best = min(told["policies"], key=lambda row: row[name])
    near = sum(row[name] <= 1.01 * best[name] for row in told["policies"]) - 1
    others = f"; {near} more within 1 %" if near else ""
    return f"Lowest {title}: {best['selection']} {best['scheduling']}{others}."


def policies_table(told: Mapping[str, Sequence[Json]]) -> Table:
    """For a terminal. K known, H from history, U unknown."""
    table = Table(box=SIMPLE_HEAD)
    for head in ("policy", "knows (processors, tasks)", "what it does"):
        table.add_column(head)
    for row in told["selection"]:
        table.add_row(row["name"], "", row["about"])
    for row in told["scheduling"]:
        table.add_row(row["name"], f"({row['resources']}, {row['tasks']})", row["about"])
    return table
