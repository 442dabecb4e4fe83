"""The agents' port: authentication, messages, files, pending answers. What the messages mean is the
concern of its owner: the dispatcher of bags, or the engine of a planned run."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote
from weakref import WeakSet

from vgrads.exchange.agent_file import build_agent_file
from vgrads.exchange.http import Connection, HttpRequest, Sink
from vgrads.exchange.incoming import IncomingOutput
from vgrads.exchange.keys import find_slot_of_key
from vgrads.exchange.messages import ReceivedMessage, read
from vgrads.exchange.values import Message
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import open_user_file

_log = logging.getLogger("vgrads.exchange")
_MOST_ENDS = 8000  # per round: a tenth of a second
_CHUNK = 256 * 2**10
_CLOSE_S, _CLOSE_TRIES, _TURNS = 0.01, 50, 3
_LEAST_S = 1e-6
_BACKLOG = 4096
_TRIES = 20  # numbers of ports, before one that the system chooses


class PortOwner(Protocol):
    """Answers the questions of the port; all calls are in its event loop."""

    def is_revoked(self, slot: str) -> bool:
        """Return True where the key of a slot is no longer accepted."""

    def number_of(self, agent: str) -> int:
        """Return the number of an agent; the next free one for an unknown agent."""

    def check(self, message: Message) -> None:
        """Raise InputError for a message that no agent of ours can have sent."""

    def revoke(self, slot: str) -> list[int]:
        """Reject the key of a slot from now on; return its agents, by number."""

    def not_waiting(self, agent: int) -> None:
        """Handle the end of an agent's long poll."""

    def destination(self, numbers: tuple[int, int, int], name: str) -> Path:
        """Return where an output of an attempt is stored. Raise InputError, LookupError or OSError
        for an output that the attempt may not send."""

    def input(self, digest: str) -> Path | None:
        """Return the file of a digest that tasks read."""


class AgentPort:
    """Connections of agents, and their messages until the owner's loop processes them.

    ``secret``: of the slots' keys; ``notify``: wakes that loop.
    """

    def __init__(
        self, secret: bytes, owner: PortOwner, clock: Clock, notify: Callable[[], None]
    ) -> None:
        self._secret, self._owner, self._clock, self._notify = secret, owner, clock, notify
        self.refused = self.exchanges = 0
        self.lines: dict[int, Connection] = {}
        self._inbox: list[tuple[Connection, ReceivedMessage]] = []
        self._connections: WeakSet[Connection] = WeakSet()
        self._servers: list[asyncio.Server] = []
        self._socket: Path | None = None

    async def listen(self, address: str, port: int, context: ssl.SSLContext | None) -> int:
        """Open the port; return its number. 0: one to which agents can return after a restart."""
        loop = asyncio.get_running_loop()
        for number in [port] if port else [*draw_server_ports(_TRIES, read_client_ports()), 0]:
            # agents of an earlier manager know a stated port, so another one is no help
            with suppress(OSError) if number != port else nullcontext():
                server = await loop.create_server(
                    self._connection, address, number, ssl=context, backlog=_BACKLOG
                )
                self._servers.append(server)
                return int(server.sockets[0].getsockname()[1])
        raise AssertionError("the last number raises where it is taken")

    async def listen_here(self, path: Path) -> None:
        """Open a socket for agents on this machine. It replaces one that a manager of this folder
        has left: the folder's lock is held."""
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(self._connection, path, backlog=_BACKLOG)
        path.chmod(0o600)  # whatever the umask
        self._servers.append(server)
        self._socket = path

    def _connection(self) -> Connection:
        line = Connection(self)
        self._connections.add(line)
        return line

    def opened(self, request: HttpRequest, line: Connection) -> Sink | None:
        """Check the key; a sender without a valid one gets only the refusal."""
        slot = find_slot_of_key(self._secret, request.key)
        if slot is None or self._owner.is_revoked(slot):
            self.refused += 1
            _log.warning(
                "an agent at %s was refused: %s key", line.peer, "revoked" if slot else "wrong"
            )
            line.refuse(403)
            return None
        # the slot of the key, whatever the sender wrote
        request.headers["slot"] = slot
        if request.method == "PUT":
            return self._arrival(request, line)
        return None

    def _arrival(self, request: HttpRequest, line: Connection) -> Sink | None:
        try:
            path = self._owner.destination(*output_of(request.path))
            headers = request.headers
            sink = IncomingOutput(
                path, headers.get("x-sha256", ""), bool(headers.get("x-executable"))
            )
        except (ValueError, LookupError, InputError, OSError) as error:
            _log.warning("an output was refused: %s: %s", request.path[:200], error)
            line.refuse(400)
            return None
        line.arrival = sink
        return sink

    def on_request(self, request: HttpRequest, line: Connection) -> None:
        """Handle a message, or a request for a file; acknowledge complete uploads."""
        if request.method == "PUT":
            problem = line.arrival.problem if line.arrival else "?"
            line.answer(503 if problem else 200, problem.encode())
        elif request.method == "GET" and request.path.startswith("/inputs/"):
            path = self._owner.input(request.path.removeprefix("/inputs/"))
            task = asyncio.ensure_future(send_file(path, line))
            # asyncio logs each exception of a task that nobody retrieves
            task.add_done_callback(lambda done: done.exception())
        elif request.method == "GET" and request.path == "/agent":
            line.answer(200, build_agent_file())
        elif request.method == "POST" and request.path == "/exchange":
            self._exchange(request, line)
        else:
            line.answer(404)

    def _exchange(self, request: HttpRequest, line: Connection) -> None:
        self.exchanges += 1
        slot = request.headers["slot"]
        try:
            received = read(request.body, self._owner.number_of, self._clock.now())
            self._owner.check(received.message)
        except InputError as error:
            _log.error("an agent at %s: %s; the key of slot %s is revoked", line.peer, error, slot)
            self.refused += 1
            line.refuse(400)
            self.revoke(slot)
            return
        hello = received.message.hello
        if hello is not None and hello.slot != slot:
            line.refuse(403)
            return
        self._inbox.append((line, received))
        self._notify()

    def cut(self, line: Connection) -> None:
        """Handle a lost connection; its agent may reconnect."""
        self.release(line)
        if line.agent is not None and self.lines.get(line.agent) is line:
            del self.lines[line.agent]

    def release(self, line: Connection) -> int | None:
        """End a connection's long poll; return the number of its pending message."""
        seq, line.long_poll_pending = line.long_poll_pending, None
        if seq is not None and line.agent is not None:
            self._owner.not_waiting(line.agent)
        return seq

    def hold(self, line: Connection, seq: int, until_s: float) -> None:
        """Hold back the answer to a message until there is content, or until this instant."""
        line.long_poll_pending, line.long_poll_until_s = seq, until_s

    def next_messages(self, closing: bool) -> Iterator[tuple[Connection, ReceivedMessage]]:
        """Return the messages of this round, with a limit on ends so that it is short: otherwise
        all agents send together, and all wait for each other's answers, round after round.

        Each ends the long poll of an earlier message of its connection, also of this round: answers
        are in the order of the messages, and an agent with one under way does not ask again.
        """
        ends = count = 0
        while count < len(self._inbox) and (ends < _MOST_ENDS or closing):
            ends += len(self._inbox[count][1].message.ends)
            count += 1
        inbox, self._inbox = self._inbox[:count], self._inbox[count:]
        if self._inbox:
            self._notify()
        for line, received in inbox:
            if self.release(line) is not None:
                line.answer(204)
            yield line, received

    def revoke(self, slot: str) -> None:
        """Reject the key of a slot from now on, and close the connections of its agents."""
        for agent in self._owner.revoke(slot):
            line = self.lines.pop(agent, None)
            if line is not None:
                line.refuse(403)
        self._notify()

    def adopt(self, line: Connection, agent: int) -> None:
        """Assign a connection to this agent; its previous connection is no longer waiting."""
        before = self.lines.get(agent)
        if before is not None and before is not line:
            self.release(before)
        line.agent = agent
        self.lines[agent] = line

    def overdue(self, now_s: float) -> list[tuple[Connection, int]]:
        """Return connections whose long poll has expired, with the number of the message to
        answer."""
        waited = [
            line
            for line in self.lines.values()
            if line.long_poll_pending is not None and now_s >= line.long_poll_until_s
        ]
        return [(line, self.release(line) or 0) for line in waited]

    async def close(self) -> None:
        """Accept no more connections."""
        # a server that is closed between the acceptance of a connection and the next turn of the
        # loop leaves it open: what follows a timer comes after that turn
        await asyncio.sleep(_LEAST_S)
        for server in self._servers:
            server.close()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    async def close_connections(self) -> None:
        """Close all connections, so that answers still arrive; their agents try to reconnect. Also
        those that were accepted just now: until they are made, the loop needs some turns."""
        for number in range(2 * _CLOSE_TRIES):
            for line in list(self._connections):
                transport = line.transport
                if transport is None:
                    continue
                if not transport.is_closing():  # closed twice, one with TLS cannot be aborted
                    transport.close()
                elif number >= _CLOSE_TRIES:
                    transport.abort()
            await asyncio.sleep(_CLOSE_S if number > _TURNS else 0.0)
            if number >= _TURNS and not any(line.transport for line in self._connections):
                return


def output_of(path: str) -> tuple[tuple[int, int, int], str]:
    """Return (attempt, name of the output) of an upload's path. Raise ValueError for another
    path."""
    _, kind, *numbers, name = path.split("/", 5)
    bag, task, attempt = (int(number) for number in numbers)
    if kind != "outputs":
        raise ValueError(f"no path of an output: {path[:100]}")
    return (bag, task, attempt), unquote(name)


async def send_file(path: Path | None, line: Connection) -> None:
    """Send a file, in pieces."""
    try:
        if path is None:
            raise FileNotFoundError
        with open_user_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            await line.send(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
            while size > 0 and line.open and (chunk := file.read(min(_CHUNK, size))):
                size -= len(chunk)
                await line.send(chunk)
        # the file has become shorter: the announced length cannot be kept
        if size:
            line.refuse(503)
    except OSError:
        line.answer(404)


_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DYNAMIC = range(49_152, 65_536)  # RFC 6335, 6: where the system does not say
_SERVERS = range(20_000, 65_536)  # below them lie the registered ports of most services


def read_client_ports(file: Path = _RANGE) -> range:
    """Return the ports that the kernel gives to clients by itself (ip(7))."""
    try:
        first, last = map(int, file.read_text().split())
    except (OSError, ValueError):
        return _DYNAMIC
    return range(first, last + 1)


def draw_server_ports(count: int, clients: range) -> list[int]:
    """Return at most so many different ports, at random, none of which the kernel gives to a
    client: while a server is away, a port of a client may be taken by any connection of the
    machine, also by one that looks for the server. Empty where the clients have all of them."""
    ports = [number for number in _SERVERS if number not in clients]
    return random.sample(ports, min(count, len(ports)))
