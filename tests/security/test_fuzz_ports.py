"""Messages that are almost right, sent to the ports of managers: the sender may lose its key, and
nobody else loses anything."""

import asyncio
import json
import random

import pytest
from hypothesis import given

from tests.security.mutation import EXAMPLES, like, mutated, quick, text_of
from tests.security.recorded_messages import AGENT
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.exchange.http import Connection
from vgrads.exchange.keys import derive_key
from vgrads.exchange.port import AgentPort
from vgrads.execmgr.engines.slot_agents import SlotAgents
from vgrads.execmgr.engines.slot_order import SlotOrder
from vgrads.execmgr.tasks.agent_orders import AgentOrder
from vgrads.kernel.clock import SimClock
from vgrads.kernel.errors import InputError

OTHER = {"host": "b", "life": "1", "seq": 1, "wait_s": 0, "hello": {"slot": "h-b", "procs": 2}}
OWN_TASKS = 20_000


class Wire(asyncio.Transport):
    """A connection's other end: collects what is answered."""

    def __init__(self):
        super().__init__()
        self.answers, self.closed = b"", False

    def write(self, data):
        self.answers += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


def say(port, slot, text):
    """Send a message over a connection of its own."""
    line, wire = Connection(port), Wire()
    line.connection_made(wire)
    body = text.encode("utf-8", "surrogatepass")
    head = f"POST /exchange HTTP/1.1\r\nAuthorization: Bearer {derive_key(b's', slot)}\r\n"
    line.data_received(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return wire


def status_of(wire):
    """The status of the last answer; 0: none yet, as of a long poll."""
    head, _, _ = wire.answers.rpartition(b"\r\n\r\n")
    start = wire.answers.rfind(b"HTTP/1.1")
    return int(wire.answers[start + 9 : start + 12]) if head else 0


class Dispatch:
    """A dispatcher with two owners: one's agent ``b`` has both tasks of their bag."""

    def __init__(self, folder):
        self.loop = asyncio.new_event_loop()
        self.manager = DispatchManager(DispatcherConfig(folder=folder, secret=b"s"), SimClock())
        self.port, self.state = self.manager.port, self.manager.state
        for number, owner, count in ((0, "ann", 2), (1, "bob", OWN_TASKS)):
            bag = BagSpec(name=owner, owner=owner, commands=Listed(("true",) * count))
            self.manager.add(number, bag, BagFiles(bag, folder / owner, folder))
            if not number:
                assert json.loads(self.send("h-b", json.dumps(OTHER)).split(b"\r\n\r\n")[1])["give"]
        self.before, self.slots = self.others(), 0

    def send(self, slot, text):
        wire = say(self.port, slot, text)
        self.loop.run_until_complete(self.manager._turn())
        assert status_of(wire) in (0, 200, 400, 403), wire.answers  # 503: an exception
        return wire.answers

    def others(self):
        bag, agent = self.state.bags[0], self.state.agents[0]
        table = bag.tasks
        return (
            bytes(table.status),
            list(table.attempts),
            list(table.counts),
            dict(table.where),
            dict(table.failures),
            dict(table.losses),
            bag.fault,
            bag.had,
            dict(agent.assigned),
            agent.here,
            agent.leaving,
            agent.done,
            agent.failed,
            agent.seq,
        )

    def attack(self, text):
        """A message of bob's agent, whose slot has a new name whenever its key was revoked."""
        slot = f"h{self.slots}"
        if self.state.slots.get(slot) is not None and self.state.slots[slot].revoked:
            self.slots += 1
            slot = f"h{self.slots}"
        text = text.replace('"h0"', f'"{slot}"').replace('"host": "a"', f'"host": "a{self.slots}"')
        self.send(slot, text)
        assert self.others() == self.before, text

    def close(self):
        self.state.check()
        self.loop.run_until_complete(self.manager.stop())
        self.loop.run_until_complete(self.manager._turn())
        self.manager.close()
        self.loop.close()


@pytest.fixture
def dispatch(tmp_path):
    served = Dispatch(tmp_path)
    yield served
    served.close()


def messages(name):
    """Changed messages of an agent with growing numbers, so that they are not outdated; what they
    report is bob's, unless the change names ann's."""
    draw = random.Random(name)
    for number in range(EXAMPLES):
        good = AGENT | {"seq": number + 10}
        for kind in ("ended", "returned", "running", "printing"):
            good[kind] = [[1, *entry[1:]] for entry in AGENT[kind]]
        if draw.random() < 0.5:
            del good["hello"]
        if draw.random() < 0.9:
            good["leaving"] = ""
        yield mutated(draw, good)


def test_changed_messages_to_a_dispatcher_cost_others_nothing(dispatch):
    for number, text in enumerate(messages("dispatcher")):
        dispatch.attack(text)
        if number % 200 == 0:
            dispatch.state.check()
    assert dispatch.slots > EXAMPLES / 10 and len(dispatch.state.agents) > 1


def test_messages_of_any_values_to_a_dispatcher_cost_others_nothing(dispatch):
    @quick
    @given(like(AGENT))
    def check(text):
        dispatch.attack(text)

    check()


@pytest.mark.parametrize("kind", ["ended", "returned", "running"])
def test_reports_of_an_attempt_that_another_agent_has_cost_the_key(dispatch, kind):
    entry = {"ended": AGENT["ended"][0], "returned": [0, 0, 1], "running": [0, 0, 1, 2.0]}[kind]
    good = AGENT | {"ended": [], "returned": [], "running": [], "printing": []}
    dispatch.attack(text_of(good | {"hello": AGENT["hello"] | {"held": []}, kind: [entry]}))
    assert dispatch.state.slots["h0"].revoked


class Ledger:
    """What a run learns of its orders."""

    def __init__(self):
        self.events = []

    def on_introduced(self):
        pass

    def on_end(self, key, end, out, err):
        self.events.append(key)
        json.dumps([out, err], ensure_ascii=False).encode()  # can be stored

    def on_printed(self, key, out, err):
        self.on_end(key, None, out, err)

    def on_lost(self, key, reason):
        self.events.append(key)

    def on_missing(self, key):
        self.events.append(key)

    def destination(self, key, name):
        raise InputError("none")

    def input(self, digest):
        return None


def orders(slot, first, count):
    settings = {"live": False, "procs": 1}
    order = AgentOrder(command="true", settings=settings)
    return [SlotOrder((0, first + n, 1), slot, 1, order) for n in range(count)]


def test_changed_messages_to_a_run_cost_others_nothing():
    """The agent of one slot sends them; that of the other one has two orders."""
    ledger, clock = Ledger(), SimClock()
    agents = SlotAgents("", clock, ledger)
    agents.port = AgentPort(b"s", agents, clock, lambda: None)
    agents.begin()
    for order in orders("h-b", 900, 2):
        agents.send(order)
    say(agents.port, "h-b", json.dumps(OTHER))
    agents.turn()
    agents.turn()
    (other,) = agents.connected()
    slots, before = 0, (dict(other.assigned), other.seq, other.here)
    assert len(other.assigned) == 2
    for number, text in enumerate(messages("run")):
        slot = f"h{slots}"
        if agents.is_revoked(slot):
            slots += 1
            slot = f"h{slots}"
        if number % 50 == 0:
            for order in orders(slot, 0, 2):
                agents.send(order)
        changed = text.replace('"h0"', f'"{slot}"').replace("[1, 0, 1", "[0, 0, 1")
        changed = changed.replace('"host": "a"', f'"host": "a{slots}"')
        wire = say(agents.port, slot, changed)
        agents.turn()
        assert status_of(wire) in (0, 200, 204, 400, 403), wire.answers
        assert (dict(other.assigned), other.seq, other.here) == before, text
    assert slots > EXAMPLES / 10 and not any(key[1] >= 900 for key in ledger.events)


def test_a_late_message_over_a_connection_that_was_left_changes_nothing():
    agents = SlotAgents("", SimClock(), Ledger())
    agents.port = AgentPort(b"s", agents, agents.clock, lambda: None)
    agents.begin()
    first = say(agents.port, "h-b", json.dumps(OTHER | {"seq": 1, "wait_s": 30}))
    agents.turn()
    second = say(agents.port, "h-b", json.dumps(OTHER | {"seq": 3, "wait_s": 30}))
    agents.turn()
    late = say(agents.port, "h-b", json.dumps({**OTHER, "seq": 2, "hello": None}))
    agents.turn()
    assert b'"hello": true' in late.answers
    (line,) = agents.port.lines.values()
    assert line.transport is second and line.long_poll_pending == 3 and not first.closed
