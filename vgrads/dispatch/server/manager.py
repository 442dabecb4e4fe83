"""The dispatcher at work: hosts ask at its port, the core decides, the journal is written, then
they are answered.

What came while a group was being written is the next group: the more hosts ask, the more each write
carries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from vgrads.bags.bag import Bag
from vgrads.dispatch.core.faults import BagFault, serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Answer, Message
from vgrads.dispatch.server.group import GroupWriter
from vgrads.dispatch.server.http import Line
from vgrads.dispatch.server.messages import Files, Heard, write
from vgrads.dispatch.server.port import AgentPort
from vgrads.dispatch.server.setting import Setting
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import judged
from vgrads.dispatch.storage.journal import EndReader, Journal, read_state
from vgrads.kernel.clock import Clock

_log = logging.getLogger("vgrads.dispatch")
_LEVEL_S, _TICK_S = 0.2, 0.25
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
        self.core = Core(state, setting.rules, self.journal.add, self._on_end)
        self.core.awake_after_restart(clock.now())
        self.files: dict[int, BagFiles] = {}
        self._stopped = False
        self._awaited: list[asyncio.Future[None]] = []
        self._output = GroupWriter(self.journal, self.files)
        self._news = asyncio.Event()
        self.port = AgentPort(setting, clock, self.core, self.files, self._news.set)
        self._level_s = self._tick_s = 0.0
        self.on_tick: Callable[[float], None] = lambda _: None

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

    # the loop

    async def work(self) -> None:
        """Until :meth:`stop`."""
        while not self._stopped:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _TICK_S)
            self._news.clear()
            await self._turn()
        await self._turn()

    async def _turn(self) -> None:
        now = self.clock.now()
        inbox = self.port.next_messages(self._stopped)
        answers = [a for line, heard in inbox if (a := self._answer_to(line, heard, now))]
        self._now_and_then(now)
        for host, answer in self.core.due(now):
            line = self.port.lines[host.number]
            seq = self.port.release(line)
            if seq is not None:
                answers.append((line, seq, answer))
        awaited, self._awaited = self._awaited, []
        await self._write()
        for line, seq, given in answers:
            self._send(line, seq, given)
        for done in awaited:
            done.set_result(None)
        for fault in self.core.take_faults():
            name = self.state.bags[fault.bag].name
            _log.error("bag '%s': %s", name, fault.reason, exc_info=fault.__cause__)

    def _answer_to(
        self, line: Line, heard: Heard, now: float
    ) -> tuple[Line, int, Answer | None] | None:
        """The same as :meth:`_heard`; what goes wrong fails the bag that it is about, or ends the
        connection."""
        try:
            return self._heard(line, heard, now)
        except BagFault as fault:
            self.core.fail(fault, now)
            # the host says hello again: then both compare what it has
            return line, heard.message.seq, None
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
        message, site = _introduced(message, self.setting.run, self.state.slots)
        if self.core.is_past(message):
            return line, 0, Answer(stop=True)  # nothing of it is acknowledged
        if not self.core.is_news(message) or not self.core.hear(message, now, site):
            return line, message.seq, None
        host = self.state.hosts[self.state.by_id[message.host]]
        self.port.adopt(line, host.number)
        texts = {}
        for said in heard.said:
            self._output.group.printed.setdefault(said.bag, []).append(said)
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

    def _now_and_then(self, now: float) -> None:
        if now - self._level_s > _LEVEL_S:
            self._level_s = now
            self.core.level()
        if now - self._tick_s > _TICK_S:
            self._tick_s = now
            for line, seq in self.port.overdue(now):
                self._send(line, seq, Answer())
            for host in self.core.lose_silent(now):
                _log.warning(
                    "host %s was not heard of for %.0f s", host.name, self.setting.rules.lost_s
                )
            self.on_tick(now)

    async def _write(self) -> None:
        """Put on the disk what was decided; nobody is answered before."""
        for fault in await self._output.flush(lambda: self._stopped):
            self.core.fail(fault, self.clock.now())
            self._news.set()
        self._output.roll(self.state)

    def _on_end(self, bag: int, end: End, effect: Effect) -> None:
        files = self.files.get(bag)
        if files is not None and files.bag.outputs:
            counts = effect.counts and end.code == 0
            self._output.group.arrived.append((bag, end.task, end.attempt, counts))

    @property
    def problem(self) -> str:
        """Why nothing can be written to the disk; empty while it can."""
        return self._output.problem

    def _send(self, line: Line, seq: int, answer: Answer | None) -> None:
        if answer is None:
            line.answer(200, _AGAIN)
        elif line.open:
            try:
                body = write(seq, answer, self.core.bags, self._files, self.setting.idle_s)
            except BagFault as fault:
                self.core.fail(fault, self.clock.now())
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
        self.port.close()

    def close(self) -> None:
        """Everything that is told is on the disk."""
        self._output.close()
        self.journal.close()
        for files in self.files.values():
            files.close()


def _introduced(
    message: Message, run: str, slots: Mapping[str, SlotRequest]
) -> tuple[Message, str]:
    """A message that names its slot as the dispatcher does, and the site of that; where it says no
    hello, none."""
    if message.hello is None:
        return message, ""
    name = message.hello.slot.removeprefix(f"{run}.")
    requested = slots.get(name)
    unknown = GUEST if name.startswith(f"{GUEST}.") else ""
    site = requested.site if requested and requested.site else unknown
    return replace(message, hello=replace(message.hello, slot=name)), site
