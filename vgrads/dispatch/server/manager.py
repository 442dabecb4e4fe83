"""The dispatcher's manager: agents send requests to its port, the core decides, the journal is
written, then they are answered.

Messages that arrive during a write form the next group: the more agents send, the more each write
contains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.faults import BagFault
from vgrads.dispatch.core.protocol import AgentReply, Files
from vgrads.dispatch.core.state import AgentState, Effect, SlotRequest, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.group import GroupWriter, StoredEnd
from vgrads.dispatch.server.messages import check_tasks, write
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import judge_blocks
from vgrads.dispatch.storage.journal import DispatchJournal, EndReader, read_state
from vgrads.dispatch.storage.status import listeners
from vgrads.exchange.http import Connection
from vgrads.exchange.messages import PrintedOutput, ReceivedMessage
from vgrads.exchange.port import AgentPort
from vgrads.exchange.values import AttemptEnd, Message, Triple
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError
from vgrads.kernel.wakeups import wake_all

_log = logging.getLogger("vgrads.dispatch")
_LEVEL_S, _TICK_S = 0.2, 0.25
# for an agent that must introduce itself again, at once
_AGAIN = b'{"again_s": 0.0, "hello": true}'

AD_HOC = "guest"
"""The site of ad-hoc agents: they join by invitation."""
StoredCallback = Callable[[Sequence[StoredEnd]], None]


class DispatchManager:
    """A dispatcher. All work except writing runs in one event loop."""

    def __init__(self, config: DispatcherConfig, clock: Clock) -> None:
        self.config, self.clock = config, clock
        state = read_state(config.folder / "journal")
        self.journal = DispatchJournal(config.folder / "journal", durable=config.durable)
        self.core = Core(state, config.rules, self.journal.add, self._on_end)
        self.core.awake_after_restart(clock.now())
        self.files: dict[int, BagFiles] = {}
        self._stopped = False
        self._awaited: list[asyncio.Future[None]] = []
        self._output = GroupWriter(self.journal, self.files)
        self._news = asyncio.Event()
        self.notify = self._news.set  # wakes the loop after a change
        access = AgentAccess(config.run, clock, self.core, self.files)
        self.port = AgentPort(config.secret, access, clock, self.notify)
        self._level_s = self._tick_s = 0.0
        self.phase_change = PhaseChange()
        self.on_stored: list[StoredCallback] = []
        """Called with ends that have been written."""
        self._listeners = listeners(config.folder)
        self._printed: dict[Triple, PrintedOutput] = {}  # of the message being processed

    @property
    def state(self) -> State:
        """Return the state of the dispatcher."""
        return self.core.state

    # calls from other parts, in its event loop

    def add(self, number: int, bag: BagSpec, files: BagFiles, open_: bool = False) -> None:
        """Add a bag, or attach its commands again after a restart."""
        self.files[number], files.durable = files, self.config.durable
        if number not in self.state.bags:
            self.core.add(number, bag, self.clock.now(), open_)
        digests = files.digests if bag.inputs else None
        self.core.attach(number, bag, digests)
        # results that were stored just before a crash, and whose ends the journal lacks
        self.core.have(number, files.had(self.state.bags[number].tasks.status), self.clock.now())
        if bag.outputs:
            ends = EndReader(self.config.folder / "journal", number).more()
            files.finish_commits(self.state.bags[number].tasks.status, ends)
        self._news.set()

    def cancel(self, number: int, reason: str) -> None:
        """Cancel all tasks of a bag that are not terminal."""
        self.core.cancel(number, self.clock.now(), reason)
        self._news.set()

    async def durable(self) -> None:
        """Return when all earlier records are on disk."""
        done = asyncio.get_running_loop().create_future()
        self._awaited.append(done)
        self._news.set()
        await done

    # the loop

    async def work(self) -> None:
        """Run until :meth:`stop`; close the connections of agents."""
        while not self._stopped:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _TICK_S)
            self._news.clear()
            await self._turn()
        # messages that were received before the stop are processed, and their records written
        await self._turn()
        await self.port.close_connections()

    async def _turn(self) -> None:
        now = self.clock.now()
        inbox = self.port.next_messages(self._stopped)
        answers = [a for line, received in inbox if (a := self._answer_to(line, received, now))]
        self._now_and_then(now)
        for agent, answer in self.core.due(now):
            line = self.port.lines[agent.number]
            seq = self.port.release(line)
            if seq is not None:
                answers.append((line, seq, answer))
        # taken before the write: who asks during it waits for records of the next round
        awaited, self._awaited = self._awaited, []
        await self._write()
        for line, seq, reply in answers:
            self._send(line, seq, reply)
        for done in awaited:
            done.set_result(None)
        self.phase_change.compare(self.core)
        for fault in self.core.take_faults():
            name = self.state.bags[fault.bag].name
            _log.error("bag '%s': %s", name, fault.reason, exc_info=fault.__cause__)

    def _answer_to(
        self, line: Connection, received: ReceivedMessage, now: float
    ) -> tuple[Connection, int, AgentReply | None] | None:
        """Call :meth:`_on_message`; an exception fails the bag concerned, or closes the
        connection."""
        try:
            return self._on_message(line, received, now)
        except BagFault as fault:
            self.core.fail(fault, now)
            # the agent sends hello again: then both compare their lists of tasks
            return line, received.message.seq, None
        except Exception:
            _log.exception("error in the exchange with the agent at %s", line.peer)
            line.refuse(503)
            return None

    def _on_message(
        self, line: Connection, received: ReceivedMessage, now: float
    ) -> tuple[Connection, int, AgentReply | None] | None:
        """Return the answer to a message; None where it is held back until there is content."""
        message = judge_blocks(received.message, self.files)
        message, site = _introduce(message, self.config.run, self.state.slots)
        if self.core.is_past(message):
            return line, 0, AgentReply(stop=True)  # none of it is acknowledged
        # before the core receives the message, since _on_end reads it
        self._printed = {(o.bag, o.task, o.attempt): o for o in received.printed}
        if not self.core.is_new_message(message) or not self.core.receive(message, now, site):
            return line, message.seq, None
        agent = self.state.agents[self.state.by_id[message.agent]]
        self.port.adopt(line, agent.number)
        # only now: what a repeated or refused message printed is not written
        for output in received.printed:
            self._output.group.printed.setdefault(output.bag, []).append(output)
        answer = self.core.answer(agent, now)
        # ends and returned tasks are acknowledged at once: the agent repeats them until then
        if answer or message.ends or message.returned or received.wait_s <= 0 or not line.open:
            self.core.waiting.pop(agent.number, None)
            return line, message.seq, answer
        self.port.hold(line, message.seq, now + received.wait_s)
        return None

    def _now_and_then(self, now: float) -> None:
        if now - self._level_s > _LEVEL_S:
            self._level_s = now
            self.core.level()
        if now - self._tick_s > _TICK_S:
            self._tick_s = now
            for line, seq in self.port.overdue(now):
                self._send(line, seq, AgentReply())
            for agent in self.core.lose_silent(now):
                _log.warning(
                    "no heartbeat of agent %s for %.0f s", agent.name, self.config.rules.lost_s
                )

    async def _write(self) -> None:
        """Write the decisions to disk; no answer is sent before."""
        group = await self._output.flush(lambda: self._stopped)
        for fault in group.faults:
            self.core.fail(fault, self.clock.now())
            # the next round tells agents to cancel the tasks of that bag
            self._news.set()
        if group.ended:
            for callback in self.on_stored:
                callback(group.ended)
            wake_all(self._listeners)
        self._output.roll(self.state)

    def _on_end(self, bag: int, end: AttemptEnd, effect: Effect) -> None:
        files, group = self.files.get(bag), self._output.group
        printed = self._printed.get((bag, end.task, end.attempt))
        group.ended.append(StoredEnd(bag, end, effect.counts, printed))
        if files is not None and files.bag.outputs:
            counts = effect.counts and end.code == 0
            group.arrived.append((bag, end.task, end.attempt, counts))

    @property
    def problem(self) -> str:
        """Return why nothing can be written to disk; empty while it can."""
        return self._output.problem

    def _send(self, line: Connection, seq: int, answer: AgentReply | None) -> None:
        if answer is None:
            line.answer(200, _AGAIN)
        elif line.open:
            try:
                body = write(seq, answer, self.core.bags, self._files, self.config.idle_s)
            except BagFault as fault:
                self.core.fail(fault, self.clock.now())
                self._news.set()
                body = _AGAIN
            line.answer(200, body)

    def _files(self, bag: int, task: int) -> Files | None:
        files = self.files.get(bag)
        return files.of(task) if files is not None and files.declared else None

    def disconnect(self, agent: AgentState, why: str) -> None:
        """Let an agent leave when its running tasks have ended."""
        self.core.disconnect(agent, why)
        self._news.set()

    async def stop(self) -> None:
        """Stop answering; agents continue with their tasks."""
        # no message arrives from here on, so the loop's last round is the last
        await self.port.close()
        self._stopped = True
        self._news.set()

    def close(self) -> None:
        """Close; everything acknowledged is on disk."""
        self._output.close()
        self.journal.close()
        for files in self.files.values():
            files.close()


def _introduce(message: Message, run: str, slots: Mapping[str, SlotRequest]) -> tuple[Message, str]:
    """Return a message with the dispatcher's name of its slot, and the slot's site; no site without
    a hello."""
    if message.hello is None:
        return message, ""
    name = message.hello.slot.removeprefix(f"{run}.")
    requested = slots.get(name)
    unknown = AD_HOC if name.startswith(f"{AD_HOC}.") else ""
    site = requested.site if requested and requested.site else unknown
    return replace(message, hello=replace(message.hello, slot=name)), site


class PhaseChange:
    """Occurs when the first agent has joined or the last one has left, when work begins or none is
    left, and when an open bag that had no task gets one while there is no agent."""

    def __init__(self) -> None:
        self._occurred = asyncio.Event()
        self._phase = (False, False, False)

    def compare(self, core: Core) -> None:
        """Compare the state with that at the last call."""
        agents = bool(core.last_heartbeat_s)
        lacks_agents = not agents and not all(bag.tasks.over for bag in core.serving)
        phase = agents, bool(core.serving), lacks_agents
        if phase != self._phase:
            self._phase = phase
            self._occurred.set()

    def wake(self) -> None:
        """Let whoever waits look now."""
        self._occurred.set()

    async def wait(self, within_s: float) -> bool:
        """Return True as soon as the phase has changed since the last call; False after this many
        seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._occurred.wait(), within_s)
        has_occurred = self._occurred.is_set()
        self._occurred.clear()
        return has_occurred


class AgentAccess:
    """The owner of the dispatcher's port (:class:`vgrads.exchange.port.PortOwner`).

    ``run``: prefix of its slots' names at their sites.
    """

    def __init__(
        self,
        run: str,
        clock: Clock,
        core: Core,
        files: Mapping[int, BagFiles],
    ) -> None:
        self._run, self._clock, self._core, self._files = run, clock, core, files

    def _name(self, slot: str) -> str:
        return slot.removeprefix(f"{self._run}.")

    def is_revoked(self, slot: str) -> bool:
        requested = self._core.state.slots.get(self._name(slot))
        return requested is not None and requested.revoked

    def number_of(self, agent: str) -> int:
        number = self._core.state.by_id.get(agent)
        return len(self._core.state.agents) if number is None else number

    def check(self, message: Message) -> None:
        check_tasks(message, self._core.state)

    def revoke(self, slot: str) -> list[int]:
        name = self._name(slot)
        self._core.note(SlotChanged(id=name, revoked=True))
        agents = [a for a in self._core.state.agents.values() if a.slot == name and a.here]
        for agent in agents:
            self._core.gone(agent, self._clock.now(), lost=True)
        return [agent.number for agent in agents]

    def not_waiting(self, agent: int) -> None:
        self._core.waiting.pop(agent, None)

    def destination(self, numbers: tuple[int, int, int], name: str) -> Path:
        bag, task, attempt = numbers
        tasks = self._core.state.bags[bag].tasks
        # agents name the attempt themselves: they can store nothing for one that was never assigned
        if not (0 <= task < len(tasks) and 0 < attempt <= tasks.attempts[task]):
            raise InputError("is an attempt that was not assigned", where=f"{bag}/{task}/{attempt}")
        return self._files[bag].place(task, attempt, name)

    def input(self, digest: str) -> Path | None:
        # an agent asks by digest alone, and bags may share a file
        return next((p for f in self._files.values() if (p := f.input(digest))), None)
