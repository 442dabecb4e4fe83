"""Sites, their queues and our leftovers there, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vgrads.api.queues.log_queues import describe_history
from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count, format_duration, format_usd

Json = dict[str, Any]


def sites_table(rows: Sequence[Json]) -> TextTable:
    """Return the table of sites; nodes, queues and observations are lines below each."""
    columns = (
        Column("site", shorten=True),
        Column("kind"),
        Column("driver"),
        Column("boot time", fold=1),
    )
    return TextTable(columns, tuple(map(_make_site_row, rows)))


def _make_site_row(row: Json) -> Row:
    binding = row["binding"]
    span = (
        f"{format_duration(binding['p50_s'])} "
        f"({format_duration(binding['p5_s'])}–{format_duration(binding['p95_s'])})"
    )
    cells = (row["name"], row["kind"], row["driver"], span if binding["p95_s"] else "at once")
    nodes = [_format_node(row, node) for node in row["nodes"]]
    observed = [f"observed slots: {text}" for text in _format_observed(row["learned"])]
    return Row(cells, (*nodes, *map(_format_queue, row["queues"]), *observed))


def _format_observed(learned: Sequence[Json]) -> list[str]:
    """Return the observations of slots that runs requested, queue by queue."""
    parts = []
    for row in learned:
        observed = row["observed"]
        if observed["requested"]:
            where = f"{row['queue']}: " if len(learned) > 1 else ""
            bad = "".join(
                f", {observed[what]} {what}" for what in ("refused", "broken") if observed[what]
            )
            parts.append(
                f"{where}{observed['requested']} requested, {observed['ready']} ready{bad}"
            )
    return parts


def learned_table(site: Json) -> TextTable:
    """Return the observations of one site, next to its description."""
    columns = (
        Column("queue", shorten=True),
        Column("granted", right=True),
        Column("survive", right=True, fold=1),
        Column("boot time", right=True, fold=2),
    )
    return TextTable(
        columns,
        tuple(map(_make_learned_row, site["learned"])),
        title=f"Observations of '{site['name']}' (stated values in brackets)",
    )


def _make_learned_row(row: Json) -> Row:
    binding, stated = row["binding"], row["stated"]
    cells = (
        row["queue"],
        f"{binding['acquire']:.3f} ({stated['acquire']:g})",
        f"{binding['up']:.3f} ({stated['up']:g})",
        f"{format_duration(binding['p50_s'])} ({format_duration(stated['boot_s'])})",
    )
    return Row(cells, tuple(_format_observed([row])) or ("no slot was requested",))


def _format_node(site: Json, node: Json) -> str:
    count = site["procs"] // node["cores"]
    price = f", {format_usd(node['price_usd_per_hour'])}/h" if node["price_usd_per_hour"] else ""
    spot = node["spot_price_usd_per_hour"]
    market = f", spot {format_usd(spot)}/h" if spot is not None else ""
    return f"{count} × {format_count(node['cores'], 'core')}{price}{market}"


def _format_queue(queue: Json) -> str:
    if "problem" in queue:
        return f"{queue['name']}: {queue['problem']}"
    history = queue["history"]
    if history is None:
        stated = queue["stated_probability"]
        if stated:
            return (
                f"{queue['name']}: no history; stated: starts within "
                f"{format_duration(queue['stated_wait_s'])} with probability {stated}"
            )
        return f"{queue['name']}: no history, treated as unknown (probability 0)"
    return (
        f"{queue['name']}: ≤ {format_count(queue['max_procs'], 'processor')}, "
        f"{describe_history(history)} until "
        f"{history['until'][:10]}"
    )


def checks_table(rows: Sequence[Json]) -> TextTable:
    """Return the table of checks; what a site can do, or its problem, is below its line."""
    columns = (Column("site", shorten=True), Column("driver"), Column("usable"))
    return TextTable(columns, tuple(map(_check_row, rows)))


def _check_row(row: Json) -> Row:
    cells = (row["name"], row["driver"], "yes" if row["usable"] else "no")
    warnings = (f"warning: {text}" for text in row["warnings"])
    quality = [f"driver {row['driver_quality']}"] if row["driver_quality"] else []
    problem = [row["problem"]] if row["problem"] else []
    notes = (*row["can"], *problem, *quality, *warnings)
    return Row(cells, notes, {"usable": "green" if row["usable"] else "red"})


def leftovers_table(rows: Sequence[Json]) -> TextTable | None:
    """Return the table of leftovers; None where there are none."""
    columns = (
        Column("site", shorten=True),
        Column("what", shorten=True),
        Column("slot", shorten=True, fold=3),
        Column("state", fold=1),
        Column("since", right=True, fold=2),
        Column("run"),
    )
    return TextTable(columns, tuple(map(_make_leftover_row, rows))) if rows else None


def _make_leftover_row(row: Json) -> Row:
    since = "–" if row["age_s"] is None else format_duration(row["age_s"])
    owner = "no running run" if row["orphan"] else row["run"] or "a running run"
    cells = (row["site"], row["handle"], row["slot"] or "–", row["state"], since, owner)
    return Row(cells, (), {"run": "red" if row["orphan"] else ""})


def queue_table(answer: Json) -> TextTable:
    """Return the table of a queue: sums for each queue."""
    columns = (
        Column("queue", shorten=True),
        Column("waiting", right=True),
        Column("processors", right=True, fold=1),
        Column("longest wait", right=True, fold=2),
        Column("running", right=True),
        Column("processors", right=True, fold=3),
    )
    rows = []
    for name in sorted({j["queue"] for j in (*answer["waiting"], *answer["running"])}):
        waiting = [j for j in answer["waiting"] if j["queue"] == name]
        running = [j for j in answer["running"] if j["queue"] == name]
        longest = max((j["waited_s"] for j in waiting), default=0.0)
        cells = (
            name or "any",
            str(len(waiting)),
            str(sum(j["procs"] for j in waiting)),
            format_duration(longest) if waiting else "–",
            str(len(running)),
            str(sum(j["procs"] for j in running)),
        )
        rows.append(Row(cells))
    notes = [] if rows else ["no job is waiting or running"]
    ineligible = len(answer["ineligible"])
    if ineligible:
        jobs = format_count(ineligible, "further job", "wait")
        notes.append(f"{jobs} and cannot start yet: held, or for other jobs or a begin time")
    return TextTable(columns, tuple(rows), title=_forecast_text(answer), notes=tuple(notes))


def _forecast_text(answer: Json) -> str:
    if "forecast_start_in_s" not in answer:
        return ""
    seconds = answer["forecast_start_in_s"]
    if seconds is None:
        return "The site provides no start forecast for such a job."
    return (
        f"The site forecasts that such a job starts in {format_duration(seconds)}; this is "
        "not a promise."
    )


def collected_text(result: Json) -> str:
    """Return the result of a collection as text."""
    text = ", ".join(
        f"{row['queue']}: {format_count(row['jobs'], 'job')}" for row in result["queues"]
    )
    shared = "".join(
        f"\n{row['queue']} shares nodes with {', '.join(row['shares_nodes_with'])}, one machine"
        for row in result["queues"]
        if row["shares_nodes_with"]
    )
    unread = f"\nnot used: {'; '.join(result['not_used'])}" if result["not_used"] else ""
    return f"{result['added']} new, {result['changed']} changed; {text}{shared}{unread}"
