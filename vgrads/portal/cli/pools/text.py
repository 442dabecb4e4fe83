"""How pools and their managers look at a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vgrads.portal.cli.terminal import rows_under


def pool_line(status: Mapping[str, Any]) -> str:
    """How a pool that runs stands, in a line."""
    pools = status.get("pools") or {}
    shares = ", ".join(
        f"{name} {count}" for name, count in sorted(pools.get("decided", {}).items())
    )
    problem = status.get("problem") or pools.get("problem") or ""
    hosts = f"{status['host_count']} hosts" + (
        f", {status['coming']} asked for" if status.get("coming") else ""
    )
    return "; ".join(filter(None, [hosts, f"decided: {shares or 'nobody needs any'}", problem]))


def pool_table(status: Mapping[str, Any]) -> Table:
    """The same as a table, a row for each manager."""
    table = Table(caption=Text(pool_line(status)), caption_justify="left")
    for name in ("manager", "decided", "at work", "waiting for a host"):
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


def standing_tables(told: Mapping[str, Any]) -> Group:
    """All pools and managers of a ledger."""
    pools = rows_under(
        "pool", "policy", "decided", "running", "hosts", "asked for", "at most", title="Pools"
    )
    for p in told["pools"]:
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
        "of pools",
        "can use",
        "held back by",
        title="Managers",
    )
    for m in told["managers"]:
        can, by = can_use(m.get("capacity"))
        lent = ", ".join(f"{pool} {procs}" for pool, procs in m["by_pool"].items() if pool)
        managers.add_row(
            m["name"], str(m["waiting"]), str(m["running"]), str(m["procs"]), lent or "–", can, by
        )
    return Group(pools, managers)


def can_use(capacity: Mapping[str, Any] | None) -> tuple[str, str]:
    """A capacity with its interval, and what holds it back."""
    if not capacity:
        return "not known yet", ""
    low, value, high = (f"{float(capacity[key]):.4g}" for key in ("low", "value", "high"))
    return f"{value} ({low} to {high})", str(capacity["bottleneck"])


def decision_text(told: Mapping[str, Any]) -> Text:
    """A decision and its reasons."""
    lines = [
        (
            f"{told['name']} ({told['policy']}): {told['decided']} workers decided, at most "
            f"{told['max_workers']}"
        )
    ]
    lines += [f"  {name}: {count}" for name, count in sorted(told["decisions"].items())]
    lines += (
        ["because", *(f"  {reason}" for reason in told["reasons"])]
        if told["reasons"]
        else ["no manager takes hosts of pools now"]
    )
    return Text("\n".join(lines))
