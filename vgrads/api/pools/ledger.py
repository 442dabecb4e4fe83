"""The ledger, where managers publish needs and pools publish decisions. A database, or a service in
front of it.

Entries expire after a while; if the ledger cannot be reached, all continue with the last known
entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]
PERIOD_S = 15.0
"""Publication interval of managers and pools, unless a pool states another (Yu 2013, section 4.4.1:
15 to 30 s)."""
_ALONE_S = 3.0
_MISSED = 3
"""Periods without an update after which an entry expires."""


@dataclass(frozen=True, kw_only=True)
class LedgerEntries:
    """All valid entries. Each has ``name``, ``age_s`` and the fields of its owner
    (docs/pool.md)."""

    managers: Sequence[Json] = ()
    pools: Sequence[Json] = ()


class Ledger(Protocol):
    """The ledger as used by managers and pools; each call raises SiteError while it cannot be
    reached."""

    def publish_manager(self, name: str, entry: Mapping[str, Any]) -> LedgerEntries:
        """Publish the state of a manager; return the decisions of pools."""

    def publish_pool(self, name: str, entry: Mapping[str, Any]) -> None:
        """Publish the decisions of a pool."""

    def read(self) -> LedgerEntries:
        """Return all entries."""

    def withdraw(self, kind: str, name: str) -> None:
        """Remove the entry of a ``manager`` or a ``pool`` that has ended."""


def is_current(entry: Mapping[str, Any]) -> bool:
    """True for an entry that has not expired."""
    return float(entry["age_s"]) <= _MISSED * float(entry.get("period_s") or PERIOD_S)


def select_current(managers: Sequence[Json], pools: Sequence[Json]) -> LedgerEntries:
    """Return the valid ones of these entries."""
    return LedgerEntries(
        managers=[m for m in managers if is_current(m)], pools=[p for p in pools if is_current(p)]
    )


def sum_decided(entries: LedgerEntries, manager: str) -> dict[str, int]:
    """Return the processors that each pool has decided for a manager; 0 for a pool that sees it and
    assigns none."""
    return {
        str(pool["name"]): int(pool.get("decisions", {}).get(manager, 0)) * int(pool["procs"])
        for pool in entries.pools
        if manager in pool.get("seen", ())
    }


def choose_period(entries: LedgerEntries) -> float:
    """Return the publication interval: that of the quickest pool; short while there is none, so
    that a new pool is noticed soon."""
    return min((float(pool["period_s"]) for pool in entries.pools), default=_ALONE_S)
