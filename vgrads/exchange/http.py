"""The subset of HTTP/1.1 that agents use, over one long connection: pipelined requests, answers in
the same order.

A library's server takes several times as long for a request as a dispatcher has for one.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vgrads.exchange.incoming import IncomingOutput

MOST_HEAD = 16 * 2**10
MOST_BODY = 8 * 2**20
"""Maximum size of a message in bytes; outputs of tasks are streamed and may be of any size."""
OURS = "X-Vgrads: 1\r\n"
"""Header of errors: by it agents distinguish them from those of a proxy."""
_KEEPALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 60),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 20),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)
"""Connections of agents that vanished without an end are closed after two minutes."""
_REASONS = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    413: "Content Too Large",
    503: "Service Unavailable",
}


@dataclass(slots=True)
class HttpRequest:
    """A request: its target, its sender, and its body where that was collected."""

    method: str
    path: str
    key: str
    length: int
    headers: dict[str, str]
    body: bytes = b""


class Sink(Protocol):
    """Receives a body in pieces."""

    def write(self, data: bytes) -> None: ...

    def done(self) -> None: ...

    def broken(self) -> None: ...


class Handler(Protocol):
    """Handles requests."""

    def opened(self, request: HttpRequest, line: Connection) -> Sink | None:
        """Handle the head of a request; return a sink for its body, None: it is collected first."""

    def on_request(self, request: HttpRequest, line: Connection) -> None:
        """Handle a complete request."""

    def cut(self, line: Connection) -> None:
        """Handle a lost connection."""


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._buffer = bytearray()
        self._request: HttpRequest | None = None
        self._sink: Sink | None = None
        self._left = 0
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.long_poll_pending: int | None = None  # number of the message with a pending long poll
        self.long_poll_until_s = 0.0
        self.arrival: IncomingOutput | None = None
        self.agent: int | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        plain = transport.get_extra_info("socket")
        if plain is not None and plain.family == socket.AF_UNIX:
            self.peer = "this machine"
            return
        self.peer = str((transport.get_extra_info("peername") or ("?",))[0])
        if plain is not None:
            for option, value in _KEEPALIVE:
                plain.setsockopt(*option, value)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 the library's
        self.transport = None
        # a sender that waits for room must not wait for ever
        self._writable.set()
        if self._sink is not None:
            self._sink.broken()
        self._handler.cut(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    @property
    def open(self) -> bool:
        """Return True while it can be answered."""
        return self.transport is not None and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self.open and (self._body() if self._request else self._head()):
            pass

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEAD:
                self.refuse(413)
            return False
        request = _parse(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        if request is None:
            self.refuse(400)
            return False
        self._request, self._left = request, request.length
        self._sink = self._handler.opened(request, self)
        if self._sink is None and request.length > MOST_BODY:
            self.refuse(413)
        return self.open

    def _body(self) -> bool:
        request = self._request
        assert request is not None
        if self._sink is None:
            if len(self._buffer) < request.length:
                return False
            request.body = bytes(self._buffer[: request.length])
            del self._buffer[: request.length]
        else:
            part = bytes(self._buffer[: self._left])
            del self._buffer[: len(part)]
            self._left -= len(part)
            self._sink.write(part)
            if self._left:
                return False
            self._sink.done()
        self._request, self._sink = None, None
        self._handler.on_request(request, self)
        return bool(self._buffer)

    def answer(self, code: int, body: bytes = b"") -> None:
        """Send an answer; no effect on a closed connection."""
        if self.transport is not None:
            ours = OURS if code >= 400 else ""
            # a 204 must not have the header (RFC 9110, 8.6)
            length = f"Content-Length: {len(body)}\r\n" if code != 204 else ""
            head = f"HTTP/1.1 {code} {_REASONS[code]}\r\n{ours}{length}\r\n"
            self.transport.write(head.encode() + body)

    async def send(self, data: bytes) -> None:
        """Send a part of a long answer, and wait until there is room for the next."""
        if self.transport is not None:
            self.transport.write(data)
            await self._writable.wait()

    def refuse(self, code: int) -> None:
        """Send an error status and close the connection."""
        self.answer(code)
        if self.transport is not None:
            self.transport.close()


def _parse(head: bytes) -> HttpRequest | None:
    try:
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (x.partition(":") for x in lines[1:])
        }
        length = int(headers.get("content-length", "0"))
        scheme, _, key = headers.get("authorization", "").partition(" ")
    except ValueError:
        return None
    # agents state the length; a request with both could be read in two ways (RFC 9112, 11.2)
    if length < 0 or "transfer-encoding" in headers:
        return None
    return HttpRequest(method, path, key if scheme.lower() == "bearer" else "", length, headers)
