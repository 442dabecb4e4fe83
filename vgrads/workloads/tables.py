"""Bags of tasks as text: fits, metrics of a simulation, policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count, format_duration
from vgrads.workloads.answers import FittedHistory

Json = dict[str, Any]


def fits_table(fitted: FittedHistory) -> TextTable:
    """Return a table of every family of every characteristic with its D, the best first."""
    sizes = fitted.bags.sizes
    title = (
        f"{format_count(len(fitted.bags), 'bag')}, {int((sizes >= 2).sum()):,} of two tasks or "
        "more; "
        f"users Z({fitted.users[0]:.2f}, {fitted.users[1]})"
    )
    columns = (
        Column("characteristic"),
        Column("values", right=True, fold=1),
        Column("best"),
        Column("D", right=True),
    )
    rows = []
    for name, fit in fitted.fits.items():
        rest = ", ".join(f"{f.distribution} {f.d:.3f}" for f in fit.fits[1:])
        cells = (name, f"{len(fit.values):,}", str(fit.best.distribution), f"{fit.best.d:.3f}")
        rows.append(Row(cells, (f"others (D): {rest}",) if rest else ()))
    return TextTable(columns, tuple(rows), title=title)


def figures_table(payload: Mapping[str, Any]) -> TextTable:
    """Return a table of metrics."""
    counts, utilisation = _format_counts(payload), payload["utilisation"]
    title = f"{counts}, load {payload['load']:.0%}, utilisation {utilisation:.0%}"
    cells = [
        (name.removesuffix("_s"), format_duration(payload[name]))
        for name in ("makespan_s", "wait_s", "response_s")
    ]
    cells += [
        ({"length": "normalised length"}.get(name, name), f"{payload[name]:.3f}")
        for name in ("length", "slowdown", "utilisation", "finished")
    ]
    cells.append(("replicas", f"{payload['replicas']:,}"))
    cells += [
        (
            f"bags of {size_range(row['from'], row['to'])}",
            f"{format_duration(row['makespan_s'])}, length {row['length']:.3f}",
        )
        for row in payload["by_size"]
    ]
    columns = (Column("all bags"), Column("", right=True))
    return TextTable(columns, tuple(map(Row, cells)), title=title)


def size_range(low: int, high: int | None) -> str:
    """Format a class of sizes: ``1``, ``2–4``, ``1,000 and more``.

    >>> size_range(1, 1), size_range(2, 4), size_range(1000, None)
    ('1', '2–4', '1,000 and more')
    """
    if high is None:
        return f"{low:,} and more"
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def policies_compared(payload: Mapping[str, Any]) -> TextTable:
    """Return a table of every simulated policy of a history, the lowest makespan first; the best
    value of a column is bold."""
    names = ("makespan_s", "length", "wait_s", "slowdown", "utilisation", "finished", "replicas")
    folds = (0, 0, 1, 2, 3, 4, 5)
    columns = [
        Column(name.removesuffix("_s"), right=True, fold=fold)
        for name, fold in zip(names, folds, strict=True)
    ]
    best = {name: min(row[name] for row in payload["policies"]) for name in names[:4]}
    rows = tuple(
        Row(
            (
                f"{row['selection']} {row['scheduling']}",
                *(_format_parameter(name, row[name]) for name in names),
            ),
            styles={n.removesuffix("_s"): "bold" for n in best if row[n] == best[n]},
        )
        for row in payload["policies"]
    )
    return TextTable((Column("policy"), *columns), rows, title=_describe_history(payload))


def _format_parameter(name: str, value: float) -> str:
    if name.endswith("_s"):
        return format_duration(value)
    return f"{value:,}" if name == "replicas" else f"{value:,.3f}"


def _format_counts(payload: Mapping[str, Any]) -> str:
    tasks, bags, procs = (
        format_count(payload[name], noun)
        for name, noun in (("tasks", "task"), ("bags", "bag"), ("processors", "processor"))
    )
    return f"{tasks} in {bags} on {procs}"


def _describe_history(payload: Mapping[str, Any]) -> str:
    system = ", ".join(f"{c['procs']:,} of speed {c['speed']:g}" for c in payload["clusters"])
    load = "all at once" if payload["load"] is None else f"load {payload['load']:.0%}"
    load += ", more than the capacity of the system" if (payload["load"] or 0.0) > 1 else ""
    lines = [f"{payload['history']}: {_format_counts(payload)} ({system}), {load}"]
    if payload["parallel"]:
        lines.append(
            f"{payload['parallel']:,} of them were parallel jobs: each is simulated as one task "
            "with its total processor time."
        )
    lines += [
        _find_best(payload, "makespan_s", "average makespan"),
        _find_best(payload, "length", "normalised length"),
    ]
    return "\n".join(lines)


def _find_best(payload: Mapping[str, Any], name: str, title: str) -> str:
    """Return the best policy, and how many others are as good within the uncertainty of one
    workload."""
    best = min(payload["policies"], key=lambda row: row[name])
    near = sum(row[name] <= 1.01 * best[name] for row in payload["policies"]) - 1
    others = f"; {near} more within 1 %" if near else ""
    return f"Lowest {title}: {best['selection']} {best['scheduling']}{others}."


def policies_table(payload: Mapping[str, Sequence[Json]]) -> TextTable:
    """Return a table of policies. K known, H from history, U unknown."""
    columns = (
        Column("policy"),
        Column("information"),
        Column("description", below=True),
    )
    selection = (Row((row["name"], "", row["about"])) for row in payload["selection"])
    scheduling = (
        Row((row["name"], f"({row['resources']}, {row['tasks']})", row["about"]))
        for row in payload["scheduling"]
    )
    notes = ("information used of (processors, tasks): K known, H from history, U unknown",)
    return TextTable(columns, (*selection, *scheduling), notes=notes)
