"""The port at which agents ask: who may, what they say, what waits for an answer."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping

from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.server.http import Line, Request, Sink
from vgrads.dispatch.server.keys import slot_of
from vgrads.dispatch.server.messages import Heard, check_tasks, read
from vgrads.dispatch.server.setting import Setting
from vgrads.dispatch.server.transfers import arrival_of, send_input
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError

_log = logging.getLogger("vgrads.dispatch")
_MOST_ENDS = 8000  # in a round: a tenth of a second


class AgentPort:
    """Connections of agents, and their messages until the manager's loop takes them.

    ``notify``: wakes that loop.
    """

    def __init__(
        self,
        setting: Setting,
        clock: Clock,
        core: Core,
        files: Mapping[int, BagFiles],
        notify: Callable[[], None],
    ) -> None:
        self._setting, self._clock, self._core, self._files = setting, clock, core, files
        self._notify = notify
        self.refused = self.exchanges = 0
        self.lines: dict[int, Line] = {}
        self._inbox: list[tuple[Line, Heard]] = []
        self._server: asyncio.Server | None = None

    async def listen(self, address: str, port: int, context: ssl.SSLContext | None) -> int:
        """Open the port; its number."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Line(self), address, port, ssl=context, backlog=4096
        )
        return int(self._server.sockets[0].getsockname()[1])

    def opened(self, request: Request, line: Line) -> Sink | None:
        """Who may not ask is told nothing but that."""
        slot = slot_of(self._setting.secret, request.key)
        name = (slot or "").removeprefix(f"{self._setting.run}.")
        if slot is None or (
            name in self._core.state.slots and self._core.state.slots[name].revoked
        ):
            self.refused += 1
            _log.warning(
                "a host at %s was refused: %s key", line.peer, "revoked" if slot else "wrong"
            )
            line.refuse(403)
            return None
        request.headers["slot"] = slot
        if request.method == "PUT":
            return self._arrival(request, line)
        return None

    def _arrival(self, request: Request, line: Line) -> Sink | None:
        try:
            sink = arrival_of(request, self._files, self._core.state.bags)
        except (ValueError, LookupError, InputError, OSError) as error:
            _log.warning("an output was refused: %s: %s", request.path[:200], error)
            line.refuse(400)
            return None
        line.arrival = sink
        return sink

    def asked(self, request: Request, line: Line) -> None:
        """A message, or a file to be fetched; what came in whole is confirmed."""
        if request.method == "PUT":
            problem = line.arrival.problem if line.arrival else "?"
            line.answer(503 if problem else 200, problem.encode())
        elif request.method == "GET" and request.path.startswith("/inputs/"):
            digest = request.path.removeprefix("/inputs/")
            task = asyncio.ensure_future(send_input(digest, self._files, line))
            task.add_done_callback(lambda done: done.exception())
        elif request.method == "POST" and request.path == "/exchange":
            self._exchange(request, line)
        else:
            line.answer(404)

    def _exchange(self, request: Request, line: Line) -> None:
        self.exchanges += 1
        try:
            heard = read(request.body, self._number_of, self._clock.now())
            check_tasks(heard.message, self._core.state.bags)
        except InputError as error:
            slot = request.headers["slot"].removeprefix(f"{self._setting.run}.")
            _log.error("a host at %s: %s; the key of slot %s is revoked", line.peer, error, slot)
            self.refused += 1
            line.refuse(400)
            self.revoke(slot)
            return
        hello = heard.message.hello
        if hello is not None and hello.slot != request.headers["slot"]:
            line.refuse(403)
            return
        if self.release(line) is not None:
            line.answer(204)
        self._inbox.append((line, heard))
        self._notify()

    def _number_of(self, host: str) -> int:
        known = self._core.state.by_id.get(host)
        return len(self._core.state.hosts) if known is None else known

    def cut(self, line: Line) -> None:
        """A connection is gone; its host may come back."""
        self.release(line)
        if line.host is not None and self.lines.get(line.host) is line:
            del self.lines[line.host]

    def release(self, line: Line) -> int | None:
        """The number of the message that a connection waits for an answer to: it waits no more."""
        seq, line.parked = line.parked, None
        if seq is not None and line.host is not None:
            self._core.waiting.pop(line.host, None)
        return seq

    def next_messages(self, closing: bool) -> list[tuple[Line, Heard]]:
        """What is heard in this round. Not more ends than take a moment: else all hosts ask
        together, and then all of them wait for each other's answers, round after round."""
        ends = count = 0
        while count < len(self._inbox) and (ends < _MOST_ENDS or closing):
            ends += len(self._inbox[count][1].message.ends)
            count += 1
        inbox, self._inbox = self._inbox[:count], self._inbox[count:]
        if self._inbox:
            self._notify()
        return inbox

    def revoke(self, slot: str) -> None:
        """Let nobody in any more with the key of a slot."""
        self._core.note(SlotChanged(id=slot, revoked=True))
        for host in self._core.state.hosts.values():
            if host.slot == slot and host.here:
                self._core.gone(host, self._clock.now(), lost=True)
                line = self.lines.pop(host.number, None)
                if line is not None:
                    line.refuse(403)
        self._notify()

    def adopt(self, line: Line, host: int) -> None:
        """A connection is this agent's from now on; one that it had before waits no more."""
        before = self.lines.get(host)
        if before is not None and before is not line:
            self.release(before)
        line.host = host
        self.lines[host] = line

    def overdue(self, now_s: float) -> list[tuple[Line, int]]:
        """Connections whose time to wait is over, with the number of the message that each gets an
        answer to."""
        waited = [
            line
            for line in self.lines.values()
            if line.parked is not None and now_s >= line.parked_until_s
        ]
        return [(line, self.release(line) or 0) for line in waited]

    def close(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            self._server.close()
