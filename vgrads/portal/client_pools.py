"""Pools and managers at a service, for programs. Standard library only."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any


class PoolCalls:
    """What :class:`vgrads.portal.client.Client` can ask of the ledger; entries are as docs/pool.md
    says."""

    _ask: Callable[..., Any]

    def managers(self) -> list[dict[str, Any]]:
        """The managers that take hosts of pools."""
        return list(self._ask("GET", "/v1/managers"))

    def pools(self) -> list[dict[str, Any]]:
        """The pools, what they decided, and why."""
        return list(self._ask("GET", "/v1/pools"))

    def publish(self, kind: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Say how a ``manager`` or a ``pool`` stands; a manager is told what pools have decided."""
        return dict(self._ask("PUT", f"/v1/{kind}s/{_quoted(name)}", dict(entry)))

    def withdraw(self, kind: str, name: str) -> None:
        """Take an entry out."""
        self._ask("DELETE", f"/v1/{kind}s/{_quoted(name)}")


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
