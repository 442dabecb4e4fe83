"""Rankings of queues and scores of forecasts as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count, format_duration, format_share, format_usd
from vgrads.qbets.views import VIEWS

Json = dict[str, Any]


def ranking_table(document: Json) -> TextTable:
    """Return the ranked queues, the cheapest cloud, and what was left out."""
    columns = (
        Column("queue", shorten=True),
        Column("50 % start in", right=True),
        Column("25 % start in", right=True, fold=2),
        Column("95 % start in", right=True, fold=1),
        Column("method", fold=3),
        Column("jobs", right=True, fold=4),
    )
    notes = [f"{r['site']}/{r['queue']} left out: {r['error']}" for r in document["left_out"]]
    rows = tuple(map(_make_ranked_row, document["queues"]))
    return TextTable(columns, rows, notes=(_format_cloud(document["cloud"]), *notes))


def _make_ranked_row(row: Json) -> Row:
    times = ("expected_start_s", "earliest_start_s", "latest_start_s")
    cells = (f"{row['site']}/{row['queue']}", *(_format_time(row[name]) for name in times))
    notes = [f"warning: {row['warning']}"] if row["warning"] else []
    notes += [f"such a job probably {row['closure']}"] if row["closure"] else []
    return Row((*cells, row["method"], str(row["jobs"])), tuple(notes), {"": "yellow"})


def _format_cloud(cloud: Json | None) -> str:
    if cloud is None:
        return "No cloud has as many processors."
    kind = f" of type {cloud['node_type']}" if cloud["node_type"] else ""
    return (
        f"Cheapest cloud: {cloud['site']}, {format_count(cloud['nodes'], 'node')}{kind}, ready in "
        f"{format_duration(cloud['start_s'])}, {format_usd(cloud['cost_usd'])}."
    )


def scores_table(document: Json) -> TextTable:
    """Return a row for each queue, and the promises."""
    columns = (
        Column("queue", shorten=True),
        Column("scored", right=True, fold=1),
        Column("open", right=True, fold=2),
        Column(".5", right=True, fold=4),
        Column(".75", right=True, fold=3),
        Column(".9", right=True),
        Column(".95", right=True),
    )
    names = _list_queue_names(document["queues"])
    rows = tuple(map(_score_row, names, document["queues"]))
    promises = document["promises"]
    text = (
        f"Promises: {promises['kept']} of {promises['promises']} kept, {promises['open']} open."
        if promises["promises"]
        else f"Promises: none is decided, {promises['open']} are open."
    )
    return TextTable(columns, rows, notes=(text,))


def _list_queue_names(entries: Sequence[Json]) -> list[str]:
    """Return the names of queues; of a log the name of its file, where no other has the same."""
    sites = dict.fromkeys(str(entry["site"]) for entry in entries)
    files = Counter(Path(site).name for site in sites)
    names = {site: name if files[name := Path(site).name] == 1 else site for site in sites}
    return [
        names[str(entry["site"])] + ("" if entry["queue"] == "*" else f" {entry['queue']}")
        for entry in entries
    ]


def _score_row(name: str, entry: Json) -> Row:
    records, warning = entry["records"], entry["warning"]
    counts = (str(records["scored"]), str(records["open"]))
    shares = (format_share(row["coverage"], row["bounds"]) for row in entry["quantiles"])
    notes = (f"warning: {warning}",) if warning else ()
    return Row((name, *counts, *shares), notes, {"": "yellow"})


def score_text(document: Json) -> list[TextTable | str]:
    """Return the score of a queue."""
    names = ("quantile", "bounds", "coverage", "pinball loss")
    columns = tuple(Column(name, right=bool(n)) for n, name in enumerate(names))
    cells = (
        (
            str(row["quantile"]),
            str(row["bounds"]),
            format_share(row["coverage"], row["bounds"]),
            _format_time(row["pinball_s"]),
        )
        for row in document["quantiles"]
    )
    records = document["records"]
    lines: list[TextTable | str] = [
        f"{format_count(records['issued'], 'answer')}; of their records {records['scored']} are "
        "scored, "
        f"{records['open']} are open, {records['without_start']} had no start within a month, "
        f"{records['retrospective']} are about the past."
        f"{_format_unknown(document['watched'])}",
        TextTable(columns, tuple(map(Row, cells))),
        *_make_views_tables(document["views"]),
        *[
            f"probability {row['stated']:.2f}: {round(row['observed'] * row['statements'])} of "
            f"{format_count(row['statements'], 'statement')} came true"
            for row in document["reliability"]
        ],
        *_format_slurm(document["slurm"]),
    ]
    if document["warning"]:
        lines.append(f"Warning: {document['warning']}.")
    return lines


def _make_views_tables(views: Sequence[Json]) -> list[TextTable]:
    """Return which jobs of the queue the answers showed, and their coverage; nothing where none is
    scored."""
    names = ("view", "scored", "bounds at .95", "coverage")
    columns = tuple(Column(name, right=bool(n)) for n, name in enumerate(names))
    rows = tuple(
        Row(
            (
                f"{row['view']}: {VIEWS[row['view']]}" if row["view"] else "not recorded",
                str(row["scored"]),
                str(row["bounds"]),
                format_share(row["coverage"], row["bounds"]),
            )
        )
        for row in views
    )
    return [TextTable(columns, rows)] if rows else []


def _format_unknown(watched: Json) -> str:
    """Return how many of the newest bounds are not known, though their time has passed."""
    if not watched["unknown"]:
        return ""
    of = watched["bounds"] + watched["unknown"]
    return (
        f" Of the last {of} bounds at 0.95 whose time has passed, {watched['unknown']} are not "
        "known yet: the history does not show the jobs that wait."
    )


def _format_slurm(comparison: Json | None) -> list[str]:
    if comparison is None:
        return []
    left_out = (
        f"{format_count(comparison['left_out'], 'job', 'are')} left out: Slurm stated no "
        "start for them."
    )
    if not comparison["jobs"]:
        return [left_out]
    error = comparison["median_error_s"]
    return [
        f"Median error on the same {format_count(comparison['jobs'], 'job')}: vgrads "
        f"{_format_time(error['vgrads'])}, "
        f"Slurm's own estimate {_format_time(error['slurm'])}.",
        left_out,
    ]


def _format_time(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)
