"""Pools and managers at a service, for programs. Standard library only."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any


class PoolCalls:
    """Calls of :class:`vgrads.portal.client.Client` for the ledger; docs/pool.md describes the
    entries."""

    _ask: Callable[..., Any]

    def managers(self) -> list[dict[str, Any]]:
        """Return the managers that lease nodes of pools."""
        return list(self._ask("GET", "/v1/managers"))

    def pools(self) -> list[dict[str, Any]]:
        """Return the pools, their decisions, and the reasons."""
        return list(self._ask("GET", "/v1/pools"))

    def publish(self, kind: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Publish the state of a ``manager`` or a ``pool``; returns, for a manager, the pools'
        decisions."""
        return dict(self._ask("PUT", f"/v1/{kind}s/{_quoted(name)}", dict(entry)))

    def withdraw(self, kind: str, name: str) -> None:
        """Remove an entry."""
        self._ask("DELETE", f"/v1/{kind}s/{_quoted(name)}")


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
