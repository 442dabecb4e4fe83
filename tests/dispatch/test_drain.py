"""Hosts are taken away and come to their ends while tasks run: none is killed, none is begun that
cannot end."""

import asyncio
import random

import pytest

from tests.dispatch.test_bag_work import hello, send
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.dispatcher import Dispatcher
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.exchange.values import Hello, Message
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import WallClock

DELAY_S = 0.001


def scale_in(seed, agents=12, tasks=150):
    """One random interleaving: hosts with an end come, and are dismissed at random instants; how
    many were."""
    draws = random.Random(seed)
    runs_s = draws.choice((0.05, 1.0, 7.0, 60.0))
    ends: list[tuple[int, float]] = []
    core = Core(State(), Rules(), lambda _: None, lambda _, end, __: ends.append((end.agent, end)))
    core.add(
        0,
        BagSpec(name="drained", commands=Listed(["true"] * tasks), estimate_s=runs_s, retries=0),
        0.0,
    )
    around = VirtualAgents(core, lambda *_: (runs_s * draws.uniform(0.5, 1.0), 0), DELAY_S)
    dismissed = 0

    def come(name, ends_s=float("inf")):
        around.join(name, procs=draws.randint(1, 4), ends_s=ends_s)

    def go(name):
        nonlocal dismissed
        agent = core.state.agents.get(core.state.by_id.get(name, -1))
        if agent is not None and agent.here and not core.state.bags[0].over:
            core.disconnect(agent, "released")
            around.push()
            dismissed += 1

    for number in range(agents):
        at_s = draws.uniform(0, 5 * runs_s)
        name = f"h{number}"
        ends_s = at_s + draws.uniform(0.5, 20) * runs_s
        around.at(at_s, lambda name=name, ends_s=ends_s: come(name, ends_s))
        around.at(at_s + draws.uniform(0, 15) * runs_s, lambda name=name: go(name))
    around.at(30 * runs_s, lambda: come("last"))
    around.run(over=lambda: core.state.bags[0].over)
    core.state.check()
    bag = core.state.bags[0]
    assert bag.tasks.counts[2] == tasks
    assert not bag.tasks.losses
    assert not bag.tasks.failures
    assert len(ends) == tasks  # no task ran twice: none was killed
    for number, end in ends:
        assert end.at_s <= core.state.agents[number].ends_s + 2 * DELAY_S
    return dismissed


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_killed_by_hosts_that_go(part):
    dismissed = sum(scale_in(seed) for seed in range(100 * part, 100 * part + 100))
    assert dismissed >= 400


def test_an_agent_is_there_until_it_announces_that_it_leaves():
    core = Core(State(), Rules(), lambda _: None)

    def receive(seq, **more):
        assert core.receive(Message(agent="a", incarnation="1", seq=seq, **more), float(seq))
        return core.state.agents[0]

    agent = receive(1, hello=Hello(slot="s", procs=1))
    core.disconnect(agent, "the work has ended")
    assert receive(2).here  # sent before it could know
    assert core.answer(agent, 2.0).drain
    assert not receive(3, leaving="drained").here
    assert core.answer(agent, 3.0).drain  # its announcement is answered


def test_a_dispatcher_ends_when_its_agents_have_left_also_those_that_join_at_its_end(tmp_path):
    requests_to_end = []

    async def drained(port, agent):
        """Send messages of an agent that has joined until the answer is to leave; return the number
        of the next."""
        answer, seq = {}, 1
        while not answer.get("drain"):
            seq += 1
            _, answer = await send(port, {"host": agent, "life": "1", "seq": seq, "wait_s": 0})
        return seq + 1

    async def leave(port, agent, seq):
        """Announce that an agent leaves; return the message that is acknowledged."""
        message = {"host": agent, "life": "1", "seq": seq, "wait_s": 0, "leaving": "drained"}
        return (await send(port, message))[1]["seq"]

    async def scenario():
        clock = WallClock()
        manager = DispatchManager(DispatcherConfig(folder=tmp_path, secret=b"s"), clock)
        port = await manager.port.listen("127.0.0.1", 0, None)
        fleet = Fleet(manager.core, Sites("r", {}, clock, {}), (), "r", lambda _: {})
        dispatcher = Dispatcher(manager, fleet, lambda: bool(requests_to_end))
        ended = asyncio.ensure_future(dispatcher.run())
        assert (await send(port, hello(host="a")))[0] == 200
        requests_to_end.append("now")
        first = await drained(port, "a")
        assert (await send(port, hello(host="b")))[0] == 200
        late = await drained(port, "b")
        assert await leave(port, "a", first) == first
        assert await leave(port, "b", late) == late
        await ended
        assert not any(agent.here for agent in manager.state.agents.values())

    asyncio.run(scenario())
