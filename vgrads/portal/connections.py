"""Connections of HTTP clients, with limits that hold before any request is complete.

uvicorn waits for ever for the first bytes of a request, and accepts any number of connections from
one address.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""How long the head of a request may take, from the connection or the first byte on."""
MOST_OF_ADDRESS = 256
"""Open connections from one address; proxies that are trusted carry many users."""


class ConnectionLimits:
    """Open connections by address; shared by all connections of a service."""

    def __init__(self, trusted: Iterable[str] = (), header_s: float = HEADER_S) -> None:
        """``trusted``: addresses or networks of proxies, without a limit."""
        self.header_s = header_s
        self._trusted = [ipaddress.ip_network(text, strict=False) for text in trusted]
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a connection; return False for one too many."""
        self._open[address] += 1
        return self._open[address] <= MOST_OF_ADDRESS or self._is_trusted(address)

    def leave(self, address: str) -> None:
        """Count the end of a connection."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _is_trusted(self, address: str) -> bool:
        try:
            number = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(number in network for network in self._trusted)


class LimitedConnection(H11Protocol):
    """A connection with these limits."""

    limits = ConnectionLimits()
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.limits.enter(self._address):
            transport.close()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.leave(self._address)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _await_head(self) -> None:
        """Close the connection where the head of a request does not come in time."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.limits.header_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connections_with(limits: ConnectionLimits) -> type[Any]:
    """Return the protocol of connections under these limits, for ``uvicorn.Config(http=…)``."""
    return type("Connection", (LimitedConnection,), {"limits": limits})
