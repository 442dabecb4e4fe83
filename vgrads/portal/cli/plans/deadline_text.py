"""``vgrads size BAG --sites SITES`` as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_duration, format_usd


def deadline_table(payload: Mapping[str, Any]) -> TextTable:
    """Return the plans of the front, and notes with the chosen one and the cost by deadline."""
    columns = (
        Column("promise", right=True),
        Column("cost", right=True),
        Column("at most (.95)", right=True, fold=2),
        Column("node hours", right=True, fold=1),
        Column("median end", right=True, fold=3),
        Column("nodes"),
    )
    chosen = payload["chosen"]
    rows = [
        Row(
            (
                f"{plan['probability']:.3f}",
                format_usd(plan["cost_usd"]),
                format_usd(plan["cost_high_usd"]),
                f"{plan['node_hours']:,.1f}",
                _end(plan["end_s"]),
                _format_nodes(plan) + (" ← chosen" if plan == chosen else ""),
            )
        )
        for plan in payload["front"]
    ]
    shortfall = "" if payload["enough"] else f" ({payload['requested']:g} was requested)"
    first = (
        f"Cheapest plan: {_format_nodes(chosen)}; promise {payload['promise']:.3f}{shortfall}, "
        f"{format_usd(chosen['cost_usd'])} expected."
    )
    curve = "; ".join(
        f"{format_duration(item['deadline_s'])}: {format_usd(item['cost_usd'])}, "
        f"{item['probability']:.2f}"
        for item in payload["deadlines"]
    )
    questions = (payload["question"],) if payload["question"] else ()
    notes = (first, *questions, f"Cost and promise by deadline: {curve}.")
    title = f"{payload['work']} within {format_duration(payload['deadline_s'])}"
    return TextTable(columns, tuple(rows), title=title, notes=notes)


def _format_nodes(plan: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in plan["nodes"].items()) or "none"


def _end(end_s: float | None) -> str:
    return "later" if end_s is None else format_duration(end_s)
