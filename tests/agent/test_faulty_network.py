"""Agents behind a faulty network: they come back, all results arrive, and nothing but the manager's
own word ends them."""

import asyncio
import json
import socket
import sys
from types import SimpleNamespace

import pytest

from tests.agent.faulty_proxy import FaultyProxy
from tests.agent.reference_manager import environment
from tests.agent.test_agent import drive
from vgrads.agent.lifetime import InterruptionNotice, Lifetime
from vgrads.agent.link import Connecting, ManagerAddress, ManagerConnection
from vgrads.agent.machine import NodeIdentity
from vgrads.agent.session import AgentLoad, Session
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.exchange.agent_file import build_agent_file
from vgrads.exchange.keys import derive_key, open_keys
from vgrads.kernel.clock import WallClock

TASKS = 40
QUIET_S = 60.0
"""A limit for slow machines; it takes 20 s at most here."""
ADDRESS = ManagerAddress(["tcp://127.0.0.1:9"], "k", "", "", False)


async def through_faults(folder, seed, count, span_s):
    """A dispatcher, and an agent behind a faulty proxy, until all results have come."""
    keys = open_keys(folder)
    config = DispatcherConfig(folder=folder, secret=keys.secret, idle_s=5.0)
    dispatch_manager = DispatchManager(config, WallClock())
    port = await dispatch_manager.port.listen("127.0.0.1", 0, keys.context())
    loop = asyncio.ensure_future(dispatch_manager.work())
    commands = tuple(f"sleep {span_s / TASKS:.3f}; echo {i}" for i in range(TASKS))
    bag = BagSpec(name="x", commands=Listed(commands), retries=100)
    dispatch_manager.add(0, bag, BagFiles(bag, folder / "bag", folder))
    proxy = FaultyProxy(seed)
    await proxy.serve()
    around = environment(
        SimpleNamespace(url=f"tls://127.0.0.1:{port}"),
        str(folder),
        VGRADS_SLOT="h0",
        VGRADS_HOST_KEY=derive_key(keys.secret, "h0"),
        VGRADS_CERT=keys.certificate,
        VGRADS_PROXY=proxy.url,
    )
    (folder / "agent.pyz").write_bytes(build_agent_file())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", f"{folder}/agent.pyz", env=around, cwd="/"
    )
    try:
        await proxy.play(count, span_s)
        async with asyncio.timeout(QUIET_S):
            while not dispatch_manager.state.bags[0].over:
                await dispatch_manager.durable()
                assert process.returncode is None, "the agent has given up"
                await asyncio.sleep(0.05)
        assert dispatch_manager.state.bags[0].tasks.counts[2] == TASKS
        dispatch_manager.state.check()
        assert not dispatch_manager.port.refused
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await proxy.close()
        await dispatch_manager.stop()
        await loop
        dispatch_manager.close()


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.more) for seed in (0, 2, 3, 4, 24))]
)
def test_after_fifteen_faults_all_results_arrive(tmp_path, seed):
    (tmp_path / "d").mkdir()
    asyncio.run(through_faults(tmp_path / "d", seed, 15, 6.0))


PAGE = b"<html>not now</html>"
ANSWERS = [
    (403, PAGE),
    (407, PAGE),
    (400, PAGE),
    (404, b"{}"),
    (502, PAGE),
    (200, PAGE),
    (200, b""),
    (200, b"[1]"),
    (200, b'{"seq": "x"}'),
    (200, b'{"give": [[1]]}'),
    (200, b"[" * 100_000),
]


@pytest.mark.parametrize(("status", "body"), ANSWERS, ids=lambda value: repr(value)[:20])
def test_an_answer_that_is_not_the_managers_costs_the_connection_only(status, body):
    async def scenario(manager, agent):
        manager.pages = [(status, body)]
        await manager.send(give=[[1, 0, 0, "echo a"]])
        await manager.until(lambda: (1, 0, 0) in manager.ended and len(manager.hellos) > 1)
        assert agent.process.returncode is None and not manager.pages

    drive(scenario)


class Away:
    """A session without a connection."""

    link, leaving = None, ""


def test_an_agent_is_not_idle_while_its_manager_is_away():
    session = Away()
    notice = InterruptionNotice({}, lambda: None)
    lifetime = Lifetime(NodeIdentity.from_environment({}), session, notice)
    lifetime.may_idle(60.0)
    assert not lifetime.is_idle(1e9, False)
    session.link = object()
    assert not lifetime.is_idle(1e9 + 59.0, False) and lifetime.is_idle(1e9 + 61.0, False)


def linked():
    """A connection, and the manager's end of it."""
    near, far = socket.socketpair()
    return ManagerConnection(near, ADDRESS), far


def test_an_answer_is_late_when_nothing_holds_it_back_any_more():
    link, far = linked()
    assert link.late_s(1e9) < 0
    link.ask(b"{}", 100.0, 30.0)
    assert link.late_s(130.0) == pytest.approx(0.0, abs=0.01)
    link.ask(b"{}", 110.0, 30.0)  # ends the long poll
    assert link.late_s(111.0) == pytest.approx(1.0, abs=0.01)
    link.pending[1] = link.pending[1]._replace(size=200_000)  # is on its way for long
    assert link.late_s(111.0) == pytest.approx(-9.0, abs=0.01)
    link.close()
    far.close()


def test_a_message_that_cannot_be_written_is_late_at_once():
    link, far = linked()
    link.ask(b"x" * 8_000_000, 100.0, 30.0)
    assert link.blocked and link.late_s(500.0) == pytest.approx(0.0, abs=0.1)
    link.close()
    far.close()


def test_the_first_answer_of_a_connection_is_not_held_back():
    session = Session(ADDRESS, {"host": "a"}, False, lambda: None, dict, dict)
    session.link, far = linked()
    session.send()
    assert b'"wait_s":0.0' in far.recv(65536)
    session.load = AgentLoad(True, False)
    session.link.close()
    far.close()


class Stuck(ManagerAddress):
    """A manager to whom a connection takes for ever."""

    def connect(self):
        return self.certificate.get()  # a queue, in the place of the text


def test_a_connection_attempt_that_does_not_end_is_abandoned():
    import queue  # noqa: PLC0415

    results, rung = queue.SimpleQueue(), queue.SimpleQueue()
    connecting = Connecting(Stuck(["tls://a:1"], "k", results, "", False), lambda: rung.put(1))
    connecting.begin(100.0)
    assert connecting.under_way(129.0) and not connecting.under_way(131.0)
    connecting.begin(131.0)
    near, far = socket.socketpair()
    other, _ = socket.socketpair()
    for end in (near, other):
        results.put(end)
        rung.get(timeout=30)
    (last,) = connecting.connected  # the other one belongs to nobody and is closed
    assert {near.fileno() < 0, other.fileno() < 0} == {True, False} and last.fileno() >= 0
    for end in (near, other, far, _):
        end.close()


def test_an_answer_of_a_kind_that_the_manager_sends_is_accepted():
    from vgrads.agent.answers import parse_answer  # noqa: PLC0415

    settings = {"procs": 1, "memory_mib": 0.0, "limit_s": 0.0, "env": {"A": "b"}, "pass_env": []}
    answer = {
        "seq": 3,
        "bags": {"0": settings},
        "idle_s": None,
        "give": [[0, 1, 1, "echo \0"], [0, 2, 1, "x", {"a": "b"}, ["c"], {"live": True}]],
        "later": "of a newer manager",
    }
    assert parse_answer(json.dumps(answer).encode()) == answer
