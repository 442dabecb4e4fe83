"""The agents in the slots of a run: what each is assigned, and what it reports.

All of it belongs to one event loop (:mod:`vgrads.execmgr.engines.agent_server`). Nothing is decided
here: an order starts as soon as a node of its slot has room. A report is acknowledged when the
run's journal has it, so that none is lost with the manager.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from vgrads.exchange.http import Connection
from vgrads.exchange.messages import HEARTBEAT_S, ReceivedMessage
from vgrads.exchange.port import AgentPort
from vgrads.exchange.values import AttemptEnd, Message, Triple
from vgrads.execmgr.engines.slot_agent import SlotAgent, register_agent
from vgrads.execmgr.engines.slot_order import SlotOrder
from vgrads.execmgr.engines.slot_orders import ExpectedOrders, WaitingOrders
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError

LOST_S = 60.0
"""An agent without a heartbeat for so long is lost, with its tasks."""
_AGAIN = b'{"again_s": 0.0, "hello": true}'
_STOP = b'{"seq": 0, "stop": true}'
_REPEATED = re.compile(r"\.again\d+$")


class Listener(Protocol):
    """Receives what becomes of orders, in the event loop."""

    def on_introduced(self) -> None:
        """Another agent accepts orders."""

    def on_end(self, key: Triple, end: AttemptEnd, out: str, err: str) -> None:
        """An order has ended, or could not start."""

    def on_printed(self, key: Triple, out: str, err: str) -> None:
        """An order that runs has printed more lines."""

    def on_lost(self, key: Triple, reason: str) -> None:
        """An order is lost with its agent."""

    def on_missing(self, key: Triple) -> None:
        """No agent has an order that an earlier manager started."""

    def destination(self, key: Triple, name: str) -> Path:
        """Return where an output is stored. InputError, LookupError or OSError if it may not be
        sent."""

    def input(self, digest: str) -> Path | None:
        """Return the file of a digest."""


class PresentNames:
    """Names of slots at their sites: of a slot that was requested again only the last one counts.

    ``run``: prefix of the names.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._present: dict[str, str] = {}  # slot → its present name, empty: none

    def slot_of(self, name: str) -> str:
        """Return the slot of a name."""
        return _REPEATED.sub("", name.removeprefix(f"{self._run}."))

    def use(self, slot: str, name: str) -> None:
        """Accept only this name of a slot from now on."""
        self._present[slot] = name

    def is_present(self, name: str) -> bool:
        """Return True for a name that is accepted."""
        return self._present.get(self.slot_of(name), name) == name


class SlotAgents:
    """The owner of a run's port (:class:`vgrads.exchange.port.PortOwner`)."""

    def __init__(self, run: str, clock: Clock, listener: Listener) -> None:
        """``run``: prefix of the slots' names at their sites."""
        self.names, self.clock, self._listener = PresentNames(run), clock, listener
        self.port: AgentPort
        self._agents: list[SlotAgent] = []
        self._by_id: dict[str, SlotAgent] = {}
        self._of_slot: dict[str, list[SlotAgent]] = {}
        self._waiting, self._expected = WaitingOrders(), ExpectedOrders(LOST_S)
        self._last_turn_s = clock.now()
        self._has_begun = False

    def is_revoked(self, slot: str) -> bool:
        return not self.names.is_present(slot)

    def number_of(self, agent: str) -> int:
        registered = self._by_id.get(agent)
        return len(self._agents) if registered is None else registered.number

    def check(self, message: Message) -> None:
        agent = self._by_id.get(message.agent)
        if message.hello and agent and self.names.slot_of(message.hello.slot) != agent.slot:
            raise InputError(f"names slot {message.hello.slot}, which is not the agent's")

    def revoke(self, slot: str) -> list[int]:
        name = self.names.slot_of(slot)
        self.names.use(name, "")
        agents = self._of_slot.get(name, [])
        for agent in agents:
            self._lose(agent, "its agent sent an invalid message")
        return [agent.number for agent in agents]

    def not_waiting(self, agent: int) -> None:
        """Do nothing: :meth:`turn` looks at all connections."""

    def destination(self, numbers: tuple[int, int, int], name: str) -> Path:
        return self._listener.destination(numbers, name)

    def input(self, digest: str) -> Path | None:
        return self._listener.input(digest)

    def send(self, order: SlotOrder) -> None:
        """Send an order to a node of its slot, as soon as one has room."""
        self._waiting.add(order)

    def expect(self, key: Triple, slot: str, procs: int) -> None:
        """Expect an order that an earlier manager sent to an agent of this slot."""
        self._expected.add(key, slot, procs)

    def cancel(self, key: Triple) -> None:
        """Cancel an order, wherever it is."""
        self._expected.take(key)
        self._waiting.cancel(key)
        for agent in self._agents:
            agent.cancel(key)

    def confirm(self, keys: Iterable[Triple]) -> None:
        """Acknowledge these ends to their agents: the journal has them."""
        done = set(keys)
        for agent in self._agents:
            for _, ends in agent.unconfirmed:
                ends.difference_update(done)

    def available(self, slot: str) -> list[SlotAgent]:
        """Return the agents of a slot that accept orders, under the slot's present name."""
        agents = self._of_slot.get(slot, ())
        return [a for a in agents if a.is_available and self.names.is_present(a.slot_name)]

    def connected(self) -> list[SlotAgent]:
        """Return the agents with a connection."""
        return [agent for agent in self._agents if agent.number in self.port.lines]

    def begin(self) -> None:
        """Process messages from now on: all orders of an earlier manager are expected."""
        self._has_begun = True

    # messages

    def turn(self) -> None:
        """Process the messages that came, then answer what can be answered."""
        now = self.clock.now()
        # messages wait until all orders of an earlier manager are expected: an agent's list that
        # names unknown ones would be answered by cancelling them
        if not self._has_begun:
            return
        for line, received in self.port.next_messages(False):
            if line.open:
                self._receive(line, received, now)
        self._lose_silent(now)
        for key in self._expected.missing(self._agents, now):
            self._listener.on_missing(key)
        self._waiting.distribute(self._agents)
        for agent in self._agents:
            self._answer(agent)
        for line, _ in self.port.overdue(now):
            if line.agent is not None:
                line.answer(200, json.dumps(self._agents[line.agent].answer()).encode())

    def _receive(self, line: Connection, received: ReceivedMessage, now: float) -> None:
        message = received.message
        agent = self._agent_of(message)
        if agent is None:
            agent = self._by_id.get(message.agent)
            gone = agent is not None and message.incarnation in agent.past_incarnations
            # a process that was replaced must end; an unknown one must introduce itself
            line.answer(200, _STOP if gone else _AGAIN)
            return
        if message.seq <= agent.seq:  # from a connection that the agent has left: outdated
            line.answer(200, _AGAIN)
            return
        # also one that was given up as silent: it may return
        agent.contact_s, agent.here, agent.seq = now, True, message.seq
        self.port.adopt(line, agent.number)
        # ends first: the comparison of lists would send again what has just ended
        self._receive_ends(agent, received)
        for more in received.printing:
            if (key := (more.bag, more.task, more.attempt)) in agent.assigned:
                self._listener.on_printed(key, more.out, more.err)
        if message.hello is not None:
            agent.compare(message.hello.assigned, self._expected.take)
        for key in message.returned:
            order = agent.orders.get(key)
            if self._drop(agent, key):
                self._send_again(key, order)
        agent.leaving = agent.leaving or bool(message.leaving)
        # only these are acknowledged; a heartbeat may stay without an answer
        if message.ends or message.returned or message.leaving or message.cached:
            agent.news_seq = message.seq
        self.port.hold(line, message.seq, now + received.wait_s)

    def _receive_ends(self, agent: SlotAgent, received: ReceivedMessage) -> None:
        message = received.message
        texts = {(p.bag, p.task, p.attempt): (p.out, p.err) for p in received.printed}
        ends = set()
        for bag, end in message.ends:
            key = (bag, end.task, end.attempt)
            if self._drop(agent, key):
                ends.add(key)
                self._listener.on_end(key, end, *texts.get(key, ("", "")))
        if ends:
            agent.unconfirmed.append((message.seq, ends))

    def _agent_of(self, message: Message) -> SlotAgent | None:
        """Return the agent of a message; None if it must introduce itself, or has a successor."""
        agent, hello = self._by_id.get(message.agent), message.hello
        if agent is not None and agent.incarnation == message.incarnation:
            return agent
        if hello is None:
            return None
        if agent is not None:
            if message.incarnation in agent.past_incarnations:
                return None
            # nothing of the earlier process is left
            self._lose(agent, "the agent of its slot was started again")
            agent.begin_anew(message.incarnation)
            return agent
        slot = self.names.slot_of(hello.slot)
        agent = register_agent(message.agent, message.incarnation, hello, slot)
        agent.number = len(self._agents)
        self._by_id[agent.id] = agent
        self._agents.append(agent)
        self._of_slot.setdefault(agent.slot, []).append(agent)
        self._listener.on_introduced()
        return agent

    def _drop(self, agent: SlotAgent, key: Triple) -> bool:
        """Remove an order that has ended; return False if nobody had it."""
        return agent.drop(key) or self._expected.take(key) > 0

    def _send_again(self, key: Triple, order: SlotOrder | None) -> None:
        if order is not None:
            self._waiting.add(order, first=True)
        else:
            self._listener.on_missing(key)

    def _lose_silent(self, now: float) -> None:
        """Give up agents without a heartbeat; time in which this process stood still does not
        count."""
        stood_still_s, self._last_turn_s = now - self._last_turn_s, now
        for agent in self._agents:
            if stood_still_s > HEARTBEAT_S:
                agent.contact_s += stood_still_s
            if agent.here and now - agent.contact_s > LOST_S:
                agent.here = False
                self._lose(agent, "the agent of its slot was lost")

    def _lose(self, agent: SlotAgent, reason: str) -> None:
        unsent, sent = agent.lose_all()
        for order in unsent:
            self._send_again(order.key, order)
        for key in sent:
            self._listener.on_lost(key, reason)

    def _answer(self, agent: SlotAgent) -> None:
        """Answer an agent that waits, if there is something to send."""
        line = self.port.lines.get(agent.number)
        if line is not None and line.long_poll_pending is not None and agent.needs_answer():
            self.port.release(line)
            line.answer(200, json.dumps(agent.answer()).encode())
