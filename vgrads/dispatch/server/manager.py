"""The dispatcher at work: hosts ask at its port, the core decides, the journal is written, then
they are answered.

What came while a group was being written is the next group: the more hosts ask, the more each write
carries.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from vgrads.bags.bag import Bag
from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.faults import BagFault, serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Answer, Message
from vgrads.dispatch.server.group import Group
from vgrads.dispatch.server.http import Line, Request, Sink
from vgrads.dispatch.server.keys import slot_of
from vgrads.dispatch.server.messages import Files, Heard, check_tasks, read, write
from vgrads.dispatch.server.setting import Setting
from vgrads.dispatch.server.transfers import arrival_of, send_input
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import judged
from vgrads.dispatch.storage.journal import EndReader, Journal, read_state
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError

_log = logging.getLogger("vgrads.dispatch")
_LEVEL_S, _TICK_S = 0.2, 0.25
_MOST_ENDS = 8000  # in a round: a tenth of a second
_FULL_DISK_S = 2.0
_AGAIN = b'{"again_s": 0.0, "hello": true}'

GUEST = "guest"
"""The site of hosts that no site gave: they came with an invitation."""
Told = Callable[[int, End, str], None]


class Manager:
    """One dispatcher. Everything but writing happens in one event loop."""

    def __init__(self, setting: Setting, clock: Clock, told: Told = lambda *_: None) -> None:
        self.setting, self.clock = setting, clock
        state = read_state(setting.folder / "journal")
        self.journal = Journal(setting.folder / "journal")
        self._told_more = told
        self.core = Core(state, setting.rules, self.journal.add, self._told)
        self.core.awake_after_restart(clock.now())
        self.files: dict[int, BagFiles] = {}
        self.refused = self.exchanges = 0
        self.problem, self._stopped = "", False
        self._inbox: list[tuple[Line, Heard]] = []
        self._awaited: list[asyncio.Future[None]] = []
        self._lines: dict[int, Line] = {}
        self._group = Group()
        self._news = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, "journal")
        self._level_s = self._tick_s = 0.0
        self.on_tick: Callable[[float], None] = lambda _: None
        self._server: asyncio.Server | None = None

    @property
    def state(self) -> State:
        """How the dispatcher stands."""
        return self.core.state

    # what others ask of it, in its event loop

    def add(self, number: int, bag: Bag, files: BagFiles, open_: bool = False) -> None:
        """Take a bag on, or know again what its tasks run after a restart."""
        self.files[number] = files
        if number not in self.state.bags:
            self.core.add(number, bag, self.clock.now(), open_)
        digests = files.digests if bag.inputs else None
        self.core.attach(number, bag, digests)
        self.core.have(number, files.had(self.state.bags[number].tasks.status), self.clock.now())
        if bag.outputs:
            ends = EndReader(self.setting.folder / "journal", number).more()
            files.finish_commits(self.state.bags[number].tasks.status, ends)
        self._news.set()

    def cancel(self, number: int, reason: str) -> None:
        """Drop what has not ended of a bag."""
        self.core.cancel(number, self.clock.now(), reason)
        self._news.set()

    def poke(self) -> None:
        """Something has changed."""
        self._news.set()

    async def durable(self) -> None:
        """Return when everything that was noted before is on the disk."""
        done = asyncio.get_running_loop().create_future()
        self._awaited.append(done)
        self._news.set()
        await done

    def revoke(self, slot: str) -> None:
        """Let nobody in any more with the key of a slot."""
        self.core.note(SlotChanged(id=slot, revoked=True))
        for host in self.state.hosts.values():
            if host.slot == slot and host.here:
                self.core.gone(host, self.clock.now(), lost=True)
                line = self._lines.pop(host.number, None)
                if line is not None:
                    line.refuse(403)
        self._news.set()

    async def listen(self, address: str, port: int, context: ssl.SSLContext | None) -> int:
        """Open the port; its number."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Line(self), address, port, ssl=context, backlog=4096
        )
        return int(self._server.sockets[0].getsockname()[1])

    # hosts ask

    def opened(self, request: Request, line: Line) -> Sink | None:
        """Who may not ask is told nothing but that."""
        slot = slot_of(self.setting.secret, request.key)
        name = (slot or "").removeprefix(f"{self.setting.run}.")
        if slot is None or (name in self.state.slots and self.state.slots[name].revoked):
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
            sink = arrival_of(request, self.files, self.state.bags)
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
            task = asyncio.ensure_future(send_input(digest, self.files, line))
            task.add_done_callback(lambda done: done.exception())
        elif request.method == "POST" and request.path == "/exchange":
            self._exchange(request, line)
        else:
            line.answer(404)

    def _exchange(self, request: Request, line: Line) -> None:
        self.exchanges += 1
        try:
            heard = read(request.body, self._number_of, self.clock.now())
            check_tasks(heard.message, self.state.bags)
        except InputError as error:
            slot = request.headers["slot"].removeprefix(f"{self.setting.run}.")
            _log.error("a host at %s: %s; the key of slot %s is revoked", line.peer, error, slot)
            self.refused += 1
            line.refuse(400)
            self.revoke(slot)
            return
        hello = heard.message.hello
        if hello is not None and hello.slot != request.headers["slot"]:
            line.refuse(403)
            return
        if self._unparked(line) is not None:
            line.answer(204)
        self._inbox.append((line, heard))
        self._news.set()

    def _number_of(self, host: str) -> int:
        known = self.state.by_id.get(host)
        return len(self.state.hosts) if known is None else known

    def cut(self, line: Line) -> None:
        """A connection is gone; its host may come back."""
        self._unparked(line)
        if line.host is not None and self._lines.get(line.host) is line:
            del self._lines[line.host]

    def _unparked(self, line: Line) -> int | None:
        """The number of the message that a connection waits for an answer to: it waits no more."""
        seq, line.parked = line.parked, None
        if seq is not None and line.host is not None:
            self.core.waiting.pop(line.host, None)
        return seq

    # the loop

    async def work(self) -> None:
        """Until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        while not self._stopped:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _TICK_S)
            self._news.clear()
            await self._turn(loop)
        await self._turn(loop)

    async def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.clock.now()
        inbox = self._next_messages()
        answers = [a for line, heard in inbox if (a := self._answer_to(line, heard, now))]
        self._now_and_then(now)
        for host, answer in self.core.due(now):
            line = self._lines[host.number]
            seq = self._unparked(line)
            if seq is not None:
                answers.append((line, seq, answer))
        awaited, self._awaited = self._awaited, []
        await self._write(loop)
        for line, seq, given in answers:
            self._send(line, seq, given)
        for done in awaited:
            done.set_result(None)
        faults, self.core.board.faults = self.core.board.faults, []
        for fault in faults:
            name = self.state.bags[fault.bag].name
            _log.error("bag '%s': %s", name, fault.reason, exc_info=fault.__cause__)

    def _next_messages(self) -> list[tuple[Line, Heard]]:
        """What is heard in this round. Not more ends than take a moment: else all hosts ask
        together, and then all of them wait for each other's answers, round after round."""
        ends = count = 0
        while count < len(self._inbox) and (ends < _MOST_ENDS or self._stopped):
            ends += len(self._inbox[count][1].message.ends)
            count += 1
        inbox, self._inbox = self._inbox[:count], self._inbox[count:]
        if self._inbox:
            self._news.set()
        return inbox

    def _answer_to(
        self, line: Line, heard: Heard, now: float
    ) -> tuple[Line, int, Answer | None] | None:
        """The same as :meth:`_heard`; what goes wrong fails the bag that it is about, or ends the
        connection."""
        try:
            return self._heard(line, heard, now)
        except BagFault as fault:
            self.core.board.fail(fault, now)
            return (
                line,
                heard.message.seq,
                None,
            )  # the host says hello again: then both compare what it has
        except Exception:
            _log.exception("a message of a host at %s", line.peer)
            line.refuse(503)
            return None

    def _heard(
        self, line: Line, heard: Heard, now: float
    ) -> tuple[Line, int, Answer | None] | None:
        """What a message is answered; None where the answer waits until there is something to
        say."""
        message = judged(heard.message, self.files)
        site = ""
        if message.hello is not None:
            name = message.hello.slot.removeprefix(f"{self.setting.run}.")
            message = replace(message, hello=replace(message.hello, slot=name))
            unknown = GUEST if name.startswith(f"{GUEST}.") else ""
            requested = self.state.slots.get(name)
            site = requested.site if requested and requested.site else unknown
        if self.core.is_past(message):
            return line, 0, Answer(stop=True)  # nothing of it is acknowledged
        if not self._is_news(message) or not self.core.hear(message, now, site):
            return line, message.seq, None
        host = self.state.hosts[self.state.by_id[message.host]]
        before = self._lines.get(host.number)
        if before is not None and before is not line:
            self._unparked(before)
        line.host = host.number
        self._lines[host.number] = line
        texts = {}
        for said in heard.said:
            self._group.printed.setdefault(said.bag, []).append(said)
            texts[said.bag, said.task] = said.out + said.err
        for bag, end in message.ends:
            with serving(bag):
                self._told_more(bag, end, texts.get((bag, end.task), ""))
        answer = self.core.answer(host, now)
        if answer or message.ends or message.returned or heard.wait_s <= 0 or not line.open:
            self.core.waiting.pop(host.number, None)
            return line, message.seq, answer
        if line.parked is not None:  # by a message of the same round: each has its answer
            line.answer(204)
        line.parked, line.parked_until_s = message.seq, now + heard.wait_s
        return None

    def _is_news(self, message: Message) -> bool:
        """False for a message that was heard before: a second copy of it on some way."""
        number = self.state.by_id.get(message.host)
        if message.hello is not None or number is None:
            return True
        host = self.state.hosts[number]
        return host.life != message.life or message.seq > host.seq

    def _now_and_then(self, now: float) -> None:
        if now - self._level_s > _LEVEL_S:
            self._level_s = now
            self.core.level()
        if now - self._tick_s > _TICK_S:
            self._tick_s = now
            self._end_long_waits(now)
            for host in self.core.lose_silent(now):
                _log.warning(
                    "host %s was not heard of for %.0f s", host.name, self.setting.rules.lost_s
                )
            self.on_tick(now)

    def _end_long_waits(self, now: float) -> None:
        for line in list(self._lines.values()):
            if line.parked is not None and now >= line.parked_until_s:
                self._send(line, self._unparked(line) or 0, Answer())

    async def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Put on the disk what was decided; nobody is answered before. A full disk is waited
        for."""
        group, self._group = self._group, Group()
        group.records = self.journal.take()
        if not group:
            return
        while True:
            try:
                await loop.run_in_executor(self._writer, group.write, self.journal, self.files)
                break
            except OSError as error:
                if self._stopped:  # nobody is answered any more: hosts keep what was not written
                    raise
                if not self.problem:
                    _log.error("the journal cannot be written, hosts go unanswered: %s", error)
                self.problem = str(error)
                await asyncio.sleep(_FULL_DISK_S)
        self.problem = ""
        for fault in group.faults:
            self.core.board.fail(fault, self.clock.now())
            self._news.set()
        if self.journal.full:
            roll = self.journal.roll(self.state)
            loop.run_in_executor(None, roll.carry_out)

    def _told(self, bag: int, end: End, effect: Effect) -> None:
        files = self.files.get(bag)
        if files is not None and files.bag.outputs:
            self._group.arrived.append(
                (bag, end.task, end.attempt, effect.counts and end.code == 0)
            )

    def _send(self, line: Line, seq: int, answer: Answer | None) -> None:
        if answer is None:
            line.answer(200, _AGAIN)
        elif line.open:
            try:
                body = write(seq, answer, self.core.bags, self._files, self.setting.idle_s)
            except BagFault as fault:
                self.core.board.fail(fault, self.clock.now())
                self._news.set()
                body = _AGAIN
            line.answer(200, body)

    def _files(self, bag: int, task: int) -> Files | None:
        files = self.files.get(bag)
        return files.of(task) if files is not None and files.declared else None

    def dismiss(self, host: Host, why: str) -> None:
        """Let a host go when it has ended what it runs."""
        self.core.dismiss(host, why)
        self._news.set()

    async def stop(self) -> None:
        """Answer nobody any more; hosts go on with what they have."""
        self._stopped = True
        self._news.set()
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Everything that is told is on the disk."""
        self._writer.shutdown()
        self.journal.close()
        for files in self.files.values():
            files.close()
