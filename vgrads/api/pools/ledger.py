"""The ledger: where managers say what they need and pools what they have decided. A database, or a
service before it.

What stands in it for too long counts no more; while it cannot be reached everybody goes on with
what was last known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]
PERIOD_S = 15.0
"""How often managers and pools speak, unless a pool says otherwise (Yu 2013, section 4.4.1: 15 to
30 s)."""
_ALONE_S = 3.0
_MISSED = 3
"""So many periods without a word, and an entry counts no more."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """All entries that count. Each has ``name``, ``age_s`` and what its owner wrote
    (docs/pool.md)."""

    managers: Sequence[Json] = ()
    pools: Sequence[Json] = ()


class Ledger(Protocol):
    """What managers and pools need of it; each call raises SiteError while it cannot be reached."""

    def publish_manager(self, name: str, entry: Mapping[str, Any]) -> Standing:
        """Say how a manager stands; the answer tells what pools have decided."""

    def publish_pool(self, name: str, entry: Mapping[str, Any]) -> None:
        """Say what a pool has decided."""

    def read(self) -> Standing:
        """How all stand."""

    def withdraw(self, kind: str, name: str) -> None:
        """Take an entry out: of a ``manager`` or a ``pool`` that has ended."""


def counts(entry: Mapping[str, Any]) -> bool:
    """True for an entry that is not too old."""
    return float(entry["age_s"]) <= _MISSED * float(entry.get("period_s") or PERIOD_S)


def standing_of(managers: Sequence[Json], pools: Sequence[Json]) -> Standing:
    """Of these entries those that count."""
    return Standing(
        managers=[m for m in managers if counts(m)], pools=[p for p in pools if counts(p)]
    )


def decided_for(standing: Standing, manager: str) -> dict[str, int]:
    """Processors that each pool has decided for a manager; a pool that sees it and gives it none is
    there with 0."""
    return {
        str(pool["name"]): int(pool.get("decisions", {}).get(manager, 0)) * int(pool["procs"])
        for pool in standing.pools
        if manager in pool.get("seen", ())
    }


def period_of(standing: Standing) -> float:
    """How often to speak: as often as the quickest pool; while there is none, so that one is soon
    heard of."""
    return min((float(pool["period_s"]) for pool in standing.pools), default=_ALONE_S)
