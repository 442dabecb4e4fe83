"""An agent's connection to its manager: address, proxy, key, requests and answers.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import base64
import math
import os
import re
import socket
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Mapping, MutableMapping, NamedTuple
from urllib.parse import unquote, urlsplit

from .tcp import connect_here, connect_tcp

if TYPE_CHECKING:
    import ssl

PATIENCE_S = 20.0
"""Timeout of a file transfer without progress, in seconds."""
_CONNECT_S, _ATTEMPT_S = 10.0, 30.0  # timeouts: of a step towards a contact, of all of them
_SLOWEST = 20_000  # bytes per second of a network over which large messages still pass
_MOST_HEAD, _MOST_BODY = 1 << 16, 1 << 30
HERE = "unix"
"""Scheme of the contact of a manager on this machine: a socket that only its owner reaches."""
OURS = "X-Vgrads"
"""Header of the manager's own errors: a proxy on the way also answers 403."""
KEY, KEY_DESCRIPTOR = "VGRADS_HOST_KEY", "VGRADS_KEY_FD"
"""Variables: the key of the slot, and the number of a descriptor from which it is read."""
_PARTIAL_CHAIN = (
    0x80000  # X509_V_FLAG_PARTIAL_CHAIN: the pinned certificate need not be its own issuer
)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_OURS = re.compile(rb"\r\n%s:" % OURS.encode(), re.IGNORECASE)
_NOT_OURS = 502  # in place of a status that is not the manager's
_TOO_LARGE = 413
_PIECE = 1 << 18


class KeyRefused(Exception):
    """The manager does not accept this key, or no longer does."""


def hide_key(environment: MutableMapping[str, str]) -> None:
    """Move the key from an environment into a pipe, which is read once: ``/proc`` shows the
    environment with which a process began to its whole life. KeyError where there is none."""
    if KEY_DESCRIPTOR in environment:
        return
    key = environment.pop(KEY)
    read_end, write_end = os.pipe()
    os.write(write_end, key.encode())
    os.close(write_end)
    environment[KEY_DESCRIPTOR] = str(read_end)


def _read_key(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as file:
        key = file.read().decode("ascii", "replace").strip()
    if not key:
        raise ValueError("the key was read before")
    return key


def contacts_of(environment: Mapping[str, str]) -> list[str]:
    """Return the addresses of the manager. Raise KeyError, ValueError where there is none, or a
    wrong one."""
    contacts = environment["VGRADS_CONTACT"].split()
    if not contacts:
        raise ValueError("VGRADS_CONTACT names no manager")
    for contact in contacts:
        parts = urlsplit(contact)
        is_address = parts.scheme in ("tls", "tcp") and parts.hostname and parts.port
        if not is_address and not (parts.scheme == HERE and parts.path):
            raise ValueError(f"no contact: {contact!r}")
    return contacts


class ManagerAddress(NamedTuple):
    """The manager's address, with the certificate and the key that authenticate both sides."""

    contacts: list[str]
    key: str
    certificate: str
    proxy: str
    plain_proxy: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ManagerAddress:
        """Read it from an agent's environment. Raise KeyError, ValueError where values are missing
        or wrong."""
        proxy = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
        own = environment.get("VGRADS_PROXY")
        return cls(
            contacts_of(environment),
            _read_key(int(environment[KEY_DESCRIPTOR])),
            environment.get("VGRADS_CERT", ""),
            proxy if own is None else own,
            own is not None,
        )

    def connect(self) -> socket.socket:
        """Connect to the first manager that answers, with a timeout. Raise OSError where none
        does."""
        failed: OSError = OSError("no contact")
        for contact in self.contacts:
            try:
                connected = self._connect(contact)
                connected.settimeout(PATIENCE_S)
                return connected
            except OSError as error:
                failed = error
        raise failed

    def _connect(self, contact: str) -> socket.socket:
        parts = urlsplit(contact)
        if parts.scheme == HERE:
            return connect_here(unquote(parts.path), _CONNECT_S)
        host, port = parts.hostname or "", parts.port or 0
        secure = parts.scheme == "tls"
        if self.proxy and (self.plain_proxy or secure) and not (self._bypassed(host, port)):
            plain = _connect_through(self.proxy, host, port)
        else:
            plain = connect_tcp((host, port), _CONNECT_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._context().wrap_socket(plain, server_hostname=host) if secure else plain
        except BaseException:
            plain.close()
            raise

    def _bypassed(self, host: str, port: int) -> bool:
        """Return True where ``no_proxy`` exempts the manager from the general proxy."""
        if self.plain_proxy:
            return False
        import urllib.request as request  # noqa: PLC0415, PLR0402 loads much, for few

        return bool(request.proxy_bypass_environment(f"{host}:{port}"))  # type: ignore[attr-defined]

    def _context(self) -> ssl.SSLContext:
        import ssl  # noqa: PLC0415 not where the manager is on this machine

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False  # the certificate is pinned: its key proves the manager
        context.load_verify_locations(cadata=self.certificate)
        context.verify_flags |= _PARTIAL_CHAIN
        return context

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        host = urlsplit(self.contacts[0]).netloc or "localhost"
        return {"Host": host, "Authorization": f"Bearer {self.key}"}


def _connect_through(proxy: str, host: str, port: int) -> socket.socket:
    """Connect through an HTTP proxy by CONNECT (RFC 9110, 9.3.6)."""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    ask = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n"
    if parts.username is not None:
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        ask += f"Proxy-Authorization: Basic {base64.b64encode(who.encode()).decode()}\r\n"
    plain = connect_tcp((parts.hostname or "", parts.port or 3128), _CONNECT_S)
    try:
        plain.sendall(f"{ask}\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n") and len(head) < 65536:
            letter = plain.recv(1)  # reads no byte of the manager's data
            if not letter:
                raise OSError("the proxy closed the connection")
            head += letter
        if not re.match(rb"HTTP/1\.\d 2\d\d", head):
            raise OSError(
                f"the proxy answered {head[:60].splitlines()[0].decode(errors='replace')}"
            )
    except BaseException:
        plain.close()
        raise
    return plain


class PendingRequest(NamedTuple):
    """An unanswered request; ``wait_s``: how long its answer may be held back, in seconds."""

    sent_s: float
    wait_s: float
    size: int


def _list_not_now(is_tls: bool) -> tuple[type[Exception], ...]:
    """Return what a socket raises where it can neither read nor write now."""
    if not is_tls:
        return (BlockingIOError,)
    import ssl  # noqa: PLC0415 loaded already, by the connection

    return (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ManagerConnection:
    """A non-blocking connection: requests are pipelined, answers arrive in their order."""

    def __init__(self, plain: socket.socket, manager: ManagerAddress) -> None:
        plain.setblocking(False)
        self._socket, self._is_tls = plain, hasattr(plain, "cipher")
        self._not_now = _list_not_now(self._is_tls)
        lines = "".join(f"{name}: {value}\r\n" for name, value in manager.headers.items())
        self._head = f"POST /exchange HTTP/1.1\r\n{lines}Content-Type: application/json\r\n"
        self._out = bytearray()
        self._in = bytearray()
        self.pending: deque[PendingRequest] = deque()
        self.answered = 0
        self._received_s = 0.0  # when data last arrived

    def fileno(self) -> int:
        """Return the descriptor for a selector."""
        return self._socket.fileno()

    @property
    def blocked(self) -> bool:
        """Return True while data waits to be written."""
        return bool(self._out)

    def late_s(self, now_s: float) -> float:
        """Return for how long an answer has been due, in seconds; negative where none is."""
        if not self.pending:
            return -math.inf
        due_s = self.pending[0].sent_s
        if len(self.pending) > 1:  # the next request ends a long poll
            due_s = self.pending[1].sent_s
        elif not self.blocked:
            due_s += self.pending[0].wait_s
        due_s += sum(request.size for request in self.pending) / _SLOWEST
        return now_s - max(due_s, self._received_s)

    def ask(self, body: bytes, now_s: float, wait_s: float) -> None:
        """Send a request; the manager may hold the answer back for ``wait_s`` seconds. Raise
        OSError where the connection is lost."""
        self.pending.append(PendingRequest(now_s, wait_s, len(body)))
        self._out += f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.write()

    def write(self) -> None:
        """Write as much as possible without blocking."""
        with suppress(*self._not_now):
            while self._out:
                del self._out[: self._socket.send(self._out[:_PIECE])]

    def read(self) -> list[tuple[int, bytes]]:
        """Return the answers received in full: status and body. Raise OSError where the connection
        is lost."""
        gone, before = False, len(self._in)
        with suppress(*self._not_now):
            while True:  # TLS may buffer more than the socket reports
                piece = self._socket.recv(_PIECE)
                gone = not piece
                if gone:
                    break
                self._in += piece
                if len(piece) < _PIECE and not self._is_tls:
                    break
        if len(self._in) > before:
            self._received_s = time.monotonic()
        answers = list(iter(self._whole, None))
        if gone and not answers:
            raise ConnectionResetError("the manager closed the connection")
        return answers

    def _whole(self) -> tuple[int, bytes] | None:
        end = self._in.find(b"\r\n\r\n")
        if end < 0 and len(self._in) <= _MOST_HEAD:
            return None
        try:
            match = _LENGTH.search(self._in, 0, end + 2)
            length = int(match.group(1)) if match else 0
            status = int(self._in[9:12])
            if end < 0 or length > _MOST_BODY:
                raise ValueError("too long")
        except ValueError:
            raise ConnectionResetError("this is no answer of the manager") from None
        whole = end + 4 + length
        if len(self._in) < whole:
            return None
        if 400 <= status != _TOO_LARGE and not _OURS.search(self._in, 0, end + 2):
            status = _NOT_OURS
        body = bytes(self._in[end + 4 : whole])
        del self._in[:whole]
        if self.pending:
            self.pending.popleft()
        self.answered += 1
        return status, body

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._socket.close()


class Connecting:
    """Makes connections in a thread outside the loop: name lookup and handshakes may take long."""

    def __init__(self, manager: ManagerAddress, ring: Callable[[], None]) -> None:
        self._manager, self._ring = manager, ring
        self.connected: deque[socket.socket | OSError] = deque()
        self._attempt = 0
        self.ends_s = -math.inf  # when the attempt under way is abandoned
        self._limit_s = _ATTEMPT_S * len(manager.contacts)

    def under_way(self, now_s: float) -> bool:
        """Return True during an attempt, unless it takes so long that it has to be abandoned."""
        return now_s < self.ends_s

    def begin(self, now_s: float) -> None:
        """Start a connection attempt; its result is put into ``connected`` and the loop is
        woken."""
        import threading  # noqa: PLC0415

        self._attempt, self.ends_s = self._attempt + 1, now_s + self._limit_s
        try:
            threading.Thread(target=self._make, args=(self._attempt,), daemon=True).start()
        except RuntimeError as error:  # the node allows no more threads now
            self._end(self._attempt, OSError(str(error)))

    def _make(self, attempt: int) -> None:
        try:
            result: socket.socket | OSError = self._manager.connect()
        except Exception as error:  # also ValueError: no certificate, a wrong proxy
            result = error if isinstance(error, OSError) else OSError(str(error))
        self._end(attempt, result)

    def _end(self, attempt: int, result: socket.socket | OSError) -> None:
        if attempt == self._attempt:
            self.ends_s = -math.inf
            self.connected.append(result)
        elif isinstance(result, socket.socket):  # of an abandoned attempt
            result.close()
        self._ring()


def ring_of(descriptor: int) -> Callable[[], None]:
    """Return a function that wakes the loop at the other end of a pipe; a loop that is awake or
    gone is no error."""

    def ring() -> None:
        with suppress(OSError):
            os.write(descriptor, b"!")

    return ring
