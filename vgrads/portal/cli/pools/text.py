"""Pools and their managers as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count

_IDLE = (
    "no manager needs workers: this pool serves bags with 'sites: [guest]' and "
    "'hosts: {guests: true}' in their files; start one with 'vgrads bags run BAG.yaml', in another "
    "terminal; Ctrl-C ends the pool"
)


def pool_line(status: Mapping[str, Any]) -> str:
    """Return the status of a running pool as one line, with a hint while it has nothing to do."""
    pools = status.get("pools") or {}
    shares = ", ".join(
        f"{name} {count}" for name, count in sorted(pools.get("decided", {}).items())
    )
    problem = status.get("problem") or pools.get("problem") or ""
    hosts = f"{format_count(status['host_count'], 'host')}" + (
        f", {status['coming']} requested" if status.get("coming") else ""
    )
    return "; ".join(filter(None, [hosts, f"decided: {shares}" if shares else _IDLE, problem]))


def pool_table(status: Mapping[str, Any]) -> TextTable:
    """Return the same as a table, a row for each manager."""
    columns = (
        Column("manager", shorten=True),
        Column("decided", right=True),
        Column("running", right=True),
        Column("waiting", right=True, fold=1),
    )
    decided = (status.get("pools") or {}).get("decided", {})
    rows = tuple(
        Row(
            (
                bag["name"],
                str(decided.get(bag["name"], 0)),
                str(bag["running"]),
                str(bag["waiting"]),
            )
        )
        for bag in status["bags"]
        if bag["running"] or bag["waiting"] or decided.get(bag["name"])
    )
    return TextTable(columns, rows, notes=(pool_line(status),))


_POOLS = (
    Column("pool", shorten=True),
    Column("policy", fold=2),
    Column("decided", right=True),
    Column("running", right=True),
    Column("hosts", right=True, fold=1),
    Column("requested", right=True, fold=3),
    Column("maximum", right=True, fold=4),
)
_MANAGERS = (
    Column("manager", shorten=True),
    Column("waiting", right=True),
    Column("running", right=True),
    Column("processors", right=True, fold=3),
    Column("leased from pools", shorten=True, fold=2),
    Column("capacity", right=True, fold=1),
    Column("bottleneck", shorten=True, fold=4),
)


def status_tables(payload: Mapping[str, Any]) -> list[TextTable | str]:
    """Return tables of all pools and managers of a ledger."""
    names = ("name", "policy", "decided", "running", "hosts", "coming", "max_workers")
    pools = tuple(Row(tuple(str(pool[name]) for name in names)) for pool in payload["pools"])
    managers = tuple(map(_make_manager_row, payload["managers"]))
    return [
        TextTable(_POOLS, pools, title="Pools")
        if pools
        else "no pool is running: start one with 'vgrads pool run POOL.yaml'",
        TextTable(_MANAGERS, managers, title="Managers")
        if managers
        else "no manager accepts agents of pools",
    ]


def _make_manager_row(manager: Mapping[str, Any]) -> Row:
    can, by = can_use(manager.get("capacity"))
    leased = ", ".join(f"{pool} {procs}" for pool, procs in manager["by_pool"].items() if pool)
    counts = (str(manager[name]) for name in ("waiting", "running", "procs"))
    return Row((manager["name"], *counts, leased or "–", can, by))


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
            f"{payload['name']} ({payload['policy']}): "
            f"{format_count(payload['decided'], 'worker')} decided, "
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
