"""The end of the agents' port: no connection is left open, also none that has only begun."""

import asyncio
import gc
import socket
import ssl
import warnings
from contextlib import ExitStack, contextmanager

import pytest

from tests.security.test_fuzz_ports import Ledger
from vgrads.dispatch.server.manager import DispatcherConfig, DispatchManager
from vgrads.execmgr.engines.agent_server import AgentServer
from vgrads.execmgr.engines.slot_agents import SlotAgents
from vgrads.kernel.clock import SimClock, WallClock


@pytest.fixture(autouse=True, scope="module")
def _of_earlier_tests():
    """What they left is not looked through again and again: it takes a second each time."""
    gc.collect()
    gc.freeze()


@contextmanager
def everything_is_closed():
    """Fails where something was left open."""
    gc.collect()
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(item.message) for item in noticed] == []


def is_closed(client):
    """Whether the other side has closed a connection, in either way."""
    client.settimeout(10)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("turns", range(8))
def test_a_dispatcher_closes_connections_that_have_only_begun(tmp_path, turns):
    """``turns``: of the loop, from the connection to the end of the port."""
    clients = []

    async def main():
        manager = DispatchManager(DispatcherConfig(folder=tmp_path, secret=b"s"), WallClock())
        port = await manager.port.listen("127.0.0.1", 0, None)
        loop = asyncio.ensure_future(manager.work())
        await asyncio.sleep(0)
        clients.append(socket.create_connection(("127.0.0.1", port)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await manager.stop()
        await loop
        manager.close()

    with everything_is_closed():
        asyncio.run(main())
    with clients[0] as client:
        assert is_closed(client)


@pytest.mark.parametrize("handshake", [False, True])
def test_a_run_closes_connections_of_agents_that_do_nothing(tmp_path, handshake):
    """``handshake``: that of TLS is over; the agent then does not answer its end."""
    server = AgentServer(tmp_path, SlotAgents("r", SimClock(), Ledger()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with everything_is_closed(), ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(("127.0.0.1", server.number)))
        if handshake:
            client = stack.enter_context(context.wrap_socket(client))
        server.close()
        assert is_closed(client)
