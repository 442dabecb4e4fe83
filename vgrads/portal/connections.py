"""Connections of HTTP clients, with limits that hold before any request is complete.

uvicorn waits for ever for the first bytes of a request, and accepts any number of connections from
one address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""How long the head of a request may take, from the connection or the first byte on."""
MOST_OF_ADDRESS = 256
"""Open connections from one address; proxies that are trusted carry many users."""
_MOST_REFUSED = 256  # connections too many of an address that get an answer; more are just closed
_REFUSAL_S = 2.0
_REASON = (
    f"{MOST_OF_ADDRESS} connections of this address are open: try again later; a proxy of many "
    "users belongs into trusted_proxies of the service"
)
_BODY = json.dumps({"detail": _REASON}).encode()
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class ConnectionLimits:
    """Open connections by address; shared by all connections of a service."""

    def __init__(self, trusted: Iterable[str] = (), header_s: float = HEADER_S) -> None:
        """``trusted``: addresses or networks of proxies, without a limit."""
        self.header_s = header_s
        self._trusted = [ipaddress.ip_network(text, strict=False) for text in trusted]
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> int:
        """Count a connection; return by how many the address has too many, 0 if it has not."""
        self._open[address] += 1
        extra = max(0, self._open[address] - MOST_OF_ADDRESS)
        return 0 if extra and self._is_trusted(address) else extra

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
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        extra = self.limits.enter(self._address)
        if extra:
            self._refuse(answered=extra <= _MOST_REFUSED)
        else:
            self._await_head()

    def _refuse(self, answered: bool) -> None:
        """Close the connection, one too many, with an answer, which a reset would take away: what
        the client sends is read for a while and not looked at."""
        self._is_refused = True
        if answered and self.transport.can_write_eof():
            self.transport.write(_REFUSAL)
            self.transport.write_eof()
            self._timer = self.loop.call_later(_REFUSAL_S, self.transport.close)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.leave(self._address)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
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
