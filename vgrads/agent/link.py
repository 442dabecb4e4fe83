"""A host's way to its manager: which address, through which proxy, with which key; requests and
answers on it.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import Callable, Mapping, NamedTuple
from urllib.parse import unquote, urlsplit

PATIENCE_S = 20.0
"""With one connection that is being made, and with a file that does not move."""
_PARTIAL_CHAIN = (
    0x80000  # X509_V_FLAG_PARTIAL_CHAIN: the pinned certificate need not be its own issuer
)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_PIECE = 1 << 18


class Refused(Exception):
    """The manager does not know this key, or does not any more."""


class Manager(NamedTuple):
    """Where the manager is, and what proves it and us."""

    contacts: list[str]
    key: str
    certificate: str
    proxy: str
    plain_proxy: bool

    @classmethod
    def told(cls, environment: Mapping[str, str]) -> Manager:
        """From an agent's environment; KeyError, ValueError where that does not say enough."""
        contacts = environment["VGRADS_CONTACT"].split()
        if not contacts:
            raise ValueError("VGRADS_CONTACT names no manager")
        for contact in contacts:
            parts = urlsplit(contact)
            if parts.scheme not in ("tls", "tcp") or not parts.hostname or not parts.port:
                raise ValueError(f"no contact: {contact!r}")
        proxy = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
        own = environment.get("VGRADS_PROXY")
        return cls(
            contacts,
            environment["VGRADS_HOST_KEY"],
            environment.get("VGRADS_CERT", ""),
            proxy if own is None else own,
            own is not None,
        )

    def connect(self) -> socket.socket:
        """A connection to the first manager that answers, with a timeout; OSError where none
        does."""
        failed: OSError = OSError("no contact")
        for contact in self.contacts:
            try:
                return self._connect(contact)
            except OSError as error:
                failed = error
        raise failed

    def _connect(self, contact: str) -> socket.socket:
        parts = urlsplit(contact)
        host, port = parts.hostname or "", parts.port or 0
        secure = parts.scheme == "tls"
        if self.proxy and (self.plain_proxy or secure) and not (self._bypassed(host, port)):
            plain = _through(self.proxy, host, port)
        else:
            plain = socket.create_connection((host, port), PATIENCE_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._context().wrap_socket(plain, server_hostname=host) if secure else plain
        except BaseException:
            plain.close()
            raise

    def _bypassed(self, host: str, port: int) -> bool:
        """True where ``no_proxy`` excepts the manager from the general proxy."""
        if self.plain_proxy:
            return False
        import urllib.request as request  # noqa: PLC0415, PLR0402 loads much, for few

        return bool(request.proxy_bypass_environment(f"{host}:{port}"))  # type: ignore[attr-defined]

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = (
            False  # the certificate is pinned: whoever has its key is the manager
        )
        context.load_verify_locations(cadata=self.certificate)
        context.verify_flags |= _PARTIAL_CHAIN
        return context

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Host": urlsplit(self.contacts[0]).netloc, "Authorization": f"Bearer {self.key}"}


def _through(proxy: str, host: str, port: int) -> socket.socket:
    """A connection through an HTTP proxy by CONNECT (RFC 9110, 9.3.6)."""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    ask = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n"
    if parts.username is not None:
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        ask += f"Proxy-Authorization: Basic {base64.b64encode(who.encode()).decode()}\r\n"
    plain = socket.create_connection((parts.hostname or "", parts.port or 3128), PATIENCE_S)
    try:
        plain.sendall(f"{ask}\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n") and len(head) < 65536:
            letter = plain.recv(1)  # not one byte of what the manager says may be taken away
            if not letter:
                raise OSError("the proxy hung up")
            head += letter
        if not re.match(rb"HTTP/1\.\d 2\d\d", head):
            raise OSError(f"the proxy says {head[:60].splitlines()[0].decode(errors='replace')}")
    except BaseException:
        plain.close()
        raise
    return plain


class Link:
    """One connection that never waits: requests go out, answers come in their order."""

    def __init__(self, plain: socket.socket, manager: Manager) -> None:
        plain.setblocking(False)
        self._socket = plain
        lines = "".join(f"{name}: {value}\r\n" for name, value in manager.headers.items())
        self._head = f"POST /exchange HTTP/1.1\r\n{lines}Content-Type: application/json\r\n"
        self._out = bytearray()
        self._in = bytearray()
        self.asked: deque[float] = deque()  # when each request without an answer was sent
        self.answered = 0

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    @property
    def blocked(self) -> bool:
        """True while something waits to be written."""
        return bool(self._out)

    def ask(self, body: bytes, now_s: float) -> None:
        """Send a request; OSError where the connection is gone."""
        self.asked.append(now_s)
        self._out += f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.write()

    def write(self) -> None:
        """Write what can be written now."""
        with suppress(BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            while self._out:
                del self._out[: self._socket.send(self._out[:_PIECE])]

    def read(self) -> list[tuple[int, bytes]]:
        """The answers that have come whole: status and body. OSError where the connection is
        gone."""
        gone = False
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while True:  # TLS may hold more than the socket shows
                piece = self._socket.recv(_PIECE)
                gone = not piece
                if gone:
                    break
                self._in += piece
                if len(piece) < _PIECE and not isinstance(self._socket, ssl.SSLSocket):
                    break
        answers = list(iter(self._whole, None))
        if gone and not answers:
            raise ConnectionResetError("the manager hung up")
        return answers

    def _whole(self) -> tuple[int, bytes] | None:
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            return None
        found = _LENGTH.search(self._in, 0, end + 2)
        whole = end + 4 + (int(found.group(1)) if found else 0)
        if len(self._in) < whole:
            return None
        try:
            status, body = int(self._in[9:12]), bytes(self._in[end + 4 : whole])
        except ValueError:
            raise ConnectionResetError("the manager does not speak HTTP") from None
        del self._in[:whole]
        if self.asked:
            self.asked.popleft()
        self.answered += 1
        return status, body

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._socket.close()


class Connecting:
    """Connections are made beside the loop: names and handshakes may take long."""

    def __init__(self, manager: Manager, ring: Callable[[], None]) -> None:
        self._manager, self._ring = manager, ring
        self.made: deque[socket.socket | OSError] = deque()
        self.under_way = False

    def begin(self) -> None:
        """Make one; when it is made, or cannot be, it stands in ``made`` and the loop is told."""
        import threading  # noqa: PLC0415

        self.under_way = True
        threading.Thread(target=self._make, daemon=True).start()

    def _make(self) -> None:
        try:
            self.made.append(self._manager.connect())
        except (OSError, ValueError) as error:  # ValueError: no certificate, a wrong proxy
            self.made.append(error if isinstance(error, OSError) else OSError(str(error)))
        self.under_way = False
        self._ring()


def ring_of(descriptor: int) -> Callable[[], None]:
    """Wakes the loop that reads the other end of a pipe; one that is awake or gone is no error."""

    def ring() -> None:
        with suppress(OSError):
            os.write(descriptor, b"!")

    return ring
