"""Pools and their managers as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vgrads.portal.cli.terminal import rows_under


def pool_line(status: Mapping[str, Any]) -> str:
    """Return the status of a running pool as one line."""
    pools = status.get("pools") or {}
    shares = ", ".join(
        f"{name} {count}" for name, count in sorted(pools.get("decided", {}).items())
    )
    problem = status.get("problem") or pools.get("problem") or ""
    hosts = f"{status['host_count']} hosts" + (
        f", {status['coming']} requested" if status.get("coming") else ""
    )
    return "; ".join(filter(None, [hosts, f"decided: {shares or 'nobody needs any'}", problem]))


def pool_table(status: Mapping[str, Any]) -> Table:
    """Return the same as a table, a row for each manager."""
    table = Table(caption=Text(pool_line(status)), caption_justify="left")
    for name in ("manager", "decided", "running", "waiting"):
        table.add_column(name, justify="left" if name == "manager" else "right")
    decided = (status.get("pools") or {}).get("decided", {})
    for bag in status["bags"]:
        if bag["running"] or bag["waiting"] or decided.get(bag["name"]):
            table.add_row(
                Text(bag["name"]),
                str(decided.get(bag["name"], 0)),
                str(bag["running"]),
                str(bag["waiting"]),
            )
    return table


def status_tables(payload: Mapping[str, Any]) -> Group:
    """Return tables of all pools and managers of a ledger."""
    pools = rows_under(
        "pool", "policy", "decided", "running", "hosts", "requested", "maximum", title="Pools"
    )
    for p in payload["pools"]:
        pools.add_row(
            *map(
                str,
                (
                    p["name"],
                    p["policy"],
                    p["decided"],
                    p["running"],
                    p["hosts"],
                    p["coming"],
                    p["max_workers"],
                ),
            )
        )
    managers = rows_under(
        "manager",
        "waiting",
        "running",
        "processors",
        "leased from pools",
        "capacity",
        "bottleneck",
        title="Managers",
    )
    for m in payload["managers"]:
        can, by = can_use(m.get("capacity"))
        leased = ", ".join(f"{pool} {procs}" for pool, procs in m["by_pool"].items() if pool)
        managers.add_row(
            m["name"], str(m["waiting"]), str(m["running"]), str(m["procs"]), leased or "–", can, by
        )
    return Group(pools, managers)


def can_use(capacity: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return a capacity with its interval, and its bottleneck."""
    if not capacity:
        return "not known yet", ""
    low, value, high = (f"{float(capacity[key]):.4g}" for key in ("low", "value", "high"))
    return f"{value} ({low} to {high})", str(capacity["bottleneck"])


def decision_text(payload: Mapping[str, Any]) -> Text:
    """Return a decision and its reasons as text."""
    lines = [
        (
            f"{payload['name']} ({payload['policy']}): {payload['decided']} workers decided, "
            f"at most {payload['max_workers']}"
        )
    ]
    lines += [f"  {name}: {count}" for name, count in sorted(payload["decisions"].items())]
    lines += (
        ["because", *(f"  {reason}" for reason in payload["reasons"])]
        if payload["reasons"]
        else ["no manager currently accepts agents of pools"]
    )
    return Text("\n".join(lines))
