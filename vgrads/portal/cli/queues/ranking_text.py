"""Rankings of queues and scores of forecasts as text."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from vgrads.kernel.units import format_duration, format_usd

Json = dict[str, Any]


def ranking_table(document: Json) -> RenderableType:
    """Return the ranked queues, the cheapest cloud, and what was left out."""
    table = _table("queue", "half start within", "25 % within", "95 % within", "method", "jobs")
    for row in document["queues"]:
        table.add_row(
            f"{row['site']}/{row['queue']}",
            *(_time(row[k]) for k in ("expected_start_s", "earliest_start_s", "latest_start_s")),
            row["method"],
            str(row["jobs"]),
        )
    notes = [
        f"{row['site']}/{row['queue']}: warning: {row['warning']}"
        for row in document["queues"]
        if row["warning"]
    ]
    notes += [f"{r['site']}/{r['queue']} left out: {r['error']}" for r in document["left_out"]]
    return Group(table, _cloud_text(document["cloud"]), *notes)


def _cloud_text(cloud: Json | None) -> str:
    if cloud is None:
        return "No cloud has as many processors."
    kind = f" of type {cloud['node_type']}" if cloud["node_type"] else ""
    return (
        f"Cheapest cloud: {cloud['site']}, {cloud['nodes']} nodes{kind}, ready in "
        f"{format_duration(cloud['start_s'])}, {format_usd(cloud['cost_usd'])}."
    )


def scores_table(document: Json) -> RenderableType:
    """Return a row for each queue, and the promises."""
    table = _table("queue", "scored", "open", ".5", ".75", ".9", ".95", "warning")
    for entry in document["queues"]:
        table.add_row(
            f"{entry['site']} {entry['queue']}",
            str(entry["records"]["scored"]),
            str(entry["records"]["open"]),
            *(_share(row["coverage"]) for row in entry["quantiles"]),
            entry["warning"] or "–",
        )
    promises = document["promises"]
    text = (
        f"Promises: {promises['kept']} of {promises['promises']} kept, {promises['open']} open."
        if promises["promises"]
        else f"Promises: none is decided, {promises['open']} are open."
    )
    return Group(table, text)


def score_text(document: Json) -> RenderableType:
    """Return the score of a queue."""
    table = _table("quantile", "bounds", "coverage", "pinball loss")
    for row in document["quantiles"]:
        table.add_row(
            str(row["quantile"]),
            str(row["bounds"]),
            _share(row["coverage"]),
            _time(row["pinball_s"]),
        )
    records = document["records"]
    lines: list[RenderableType] = [
        f"{records['issued']} answers; of their records {records['scored']} are scored, "
        f"{records['open']} are open, {records['without_start']} had no start within a month, "
        f"{records['retrospective']} are about the past.",
        table,
        *[
            f"probability {row['stated']:.2f}: {row['observed']:.2f} of {row['statements']} "
            "statements came true"
            for row in document["reliability"]
        ],
        *_slurm_lines(document["slurm"]),
    ]
    if document["warning"]:
        lines.append(f"Warning: {document['warning']}.")
    return Group(*lines)


def _slurm_lines(comparison: Json | None) -> list[str]:
    if comparison is None:
        return []
    left_out = f"{comparison['left_out']} jobs are left out: Slurm stated no start for them."
    if not comparison["jobs"]:
        return [left_out]
    error = comparison["median_error_s"]
    return [
        f"Median error on the same {comparison['jobs']} jobs: vgrads {_time(error['vgrads'])}, "
        f"Slurm's own estimate {_time(error['slurm'])}.",
        left_out,
    ]


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
