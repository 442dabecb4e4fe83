"""Sites, their queues and our leftovers there, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from vgrads.api.queues.log_queues import history_text
from vgrads.kernel.units import format_duration, format_usd
from vgrads.portal.cli.terminal import rows_under

Json = dict[str, Any]


def sites_table(rows: Sequence[Json]) -> Table:
    """Return the table of sites."""
    heads = (
        "site",
        "kind",
        "driver",
        "nodes",
        "queues and histories",
        "boot time",
        "observed slots",
    )
    table = rows_under(*heads)
    for row in rows:
        binding = row["binding"]
        span = (
            f"{format_duration(binding['p50_s'])} "
            f"({format_duration(binding['p5_s'])}–{format_duration(binding['p95_s'])})"
        )
        table.add_row(
            row["name"],
            row["kind"],
            row["driver"],
            "\n".join(_node_text(row, node) for node in row["nodes"]),
            "\n".join(map(_queue_text, row["queues"])) or "–",
            span if binding["p95_s"] else "at once",
            _observed_text(row["learned"]),
        )
    return table


def _observed_text(learned: Sequence[Json]) -> str:
    """Return the observations of slots that runs requested."""
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
    return "\n".join(parts) or "nothing"


def learned_table(site: Json) -> Table:
    """Return the observations of one site, next to its description."""
    heads = (
        "queue",
        "slots requested",
        "grant probability",
        "survival probability",
        "boot time",
    )
    table = rows_under(*heads, title=f"Observations of '{site['name']}'")
    for row in site["learned"]:
        binding, stated = row["binding"], row["stated"]
        table.add_row(
            row["queue"],
            _observed_text([row]),
            f"{binding['acquire']:.3f} ({stated['acquire']:g} stated)",
            f"{binding['up']:.3f} ({stated['up']:g} stated)",
            f"{format_duration(binding['p50_s'])} ({format_duration(stated['boot_s'])} stated)",
        )
    return table


def _node_text(site: Json, node: Json) -> str:
    count = site["procs"] // node["cores"]
    price = f", {format_usd(node['price_usd_per_hour'])}/h" if node["price_usd_per_hour"] else ""
    spot = node["spot_price_usd_per_hour"]
    market = f", spot {format_usd(spot)}/h" if spot is not None else ""
    return f"{count} × {node['cores']} cores{price}{market}"


def _queue_text(queue: Json) -> str:
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
        f"{queue['name']}: ≤ {queue['max_procs']} processors, {history_text(history)} until "
        f"{history['until'][:10]}"
    )


def checks_table(rows: Sequence[Json]) -> Table:
    """Return the table of checks."""
    table = rows_under("site", "driver", "usable", "can", "problem")
    for row in rows:
        usable = Text("yes", "green") if row["usable"] else Text("no", "red")
        table.add_row(
            row["name"], row["driver"], usable, "\n".join(row["can"]), row["problem"] or ""
        )
    return table


def leftovers_table(rows: Sequence[Json]) -> Table:
    """Return the table of leftovers."""
    table = rows_under("site", "what", "slot", "state", "since", "run")
    for row in rows:
        since = "–" if row["age_s"] is None else format_duration(row["age_s"])
        existing = row["run"] or "a running run"
        owner = Text("no running run", "red") if row["orphan"] else Text(existing)
        table.add_row(row["site"], row["handle"], row["slot"] or "–", row["state"], since, owner)
    return table


def queue_table(answer: Json) -> Table:
    """Return the table of a queue: sums for each queue."""
    table = Table(box=SIMPLE_HEAD, title=_forecast_text(answer), title_justify="left")
    for title in (
        "queue",
        "waiting",
        "processors waiting",
        "longest wait",
        "running",
        "processors running",
    ):
        table.add_column(title, justify="left" if title == "queue" else "right")
    for name in sorted({j["queue"] for j in (*answer["waiting"], *answer["running"])}):
        waiting = [j for j in answer["waiting"] if j["queue"] == name]
        running = [j for j in answer["running"] if j["queue"] == name]
        longest = max((j["waited_s"] for j in waiting), default=0.0)
        table.add_row(
            name or "any",
            str(len(waiting)),
            str(sum(j["procs"] for j in waiting)),
            format_duration(longest) if waiting else "–",
            str(len(running)),
            str(sum(j["procs"] for j in running)),
        )
    return table


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
    text = ", ".join(f"{row['queue']}: {row['jobs']} jobs" for row in result["queues"])
    return f"{result['added']} new, {result['changed']} changed; {text}"
