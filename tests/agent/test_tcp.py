"""Connections to ports on which nobody listens, and which ports servers take."""

import json
import shutil
import socket
import subprocess
import sys

import pytest

from tests.ports import free_ports
from tests.waiting import listens
from vgrads.agent.tcp import connect_tcp
from vgrads.exchange.port import draw_server_ports, read_client_ports

ASK_A_PORT_THAT_ONLY_CLIENTS_GET = """
import fcntl, json, socket, struct, sys
from pathlib import Path
from tests.portal.serving import Served
from vgrads.agent.link import ManagerAddress
from vgrads.kernel.errors import SiteError
from vgrads.portal.client import Client
from vgrads.slurm.program import ServiceUnreachable, send_once

up = struct.pack("16sh", b"lo", 0x49)  # up, loopback, running
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS, netdevice(7)
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40001 40001")
plain = socket.create_connection(("127.0.0.1", 40001))
assert plain.getsockname() == plain.getpeername(), "this machine connects no socket to itself"
plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
plain.close()

def answer(ask):
    try:
        return repr(ask())
    except (OSError, SiteError, ServiceUnreachable) as error:
        return str(error)

served = Served.__new__(Served)
served.url = "http://127.0.0.1:40001"
client = Client(served.url)
agent = ManagerAddress(["tcp://127.0.0.1:40001"], "key", "", "", False)
print(json.dumps({
    "the client": answer(client.list_sets),
    "the client's stream": answer(lambda: client._open("/v1/workflow-sets")),
    "an agent": answer(agent.connect),
    "a command of Slurm": answer(lambda: send_once(served.url, "", "squeue", b"{}")),
    "the tests' services": answer(served.ready),
}))
"""


def test_a_socket_that_was_connected_to_itself_is_nobody_who_listens():
    number = free_ports()
    here = ("127.0.0.1", number)
    with pytest.raises(ConnectionRefusedError):
        connect_tcp(here, 5.0, here)
    assert not listens(number)
    with socket.create_server(here):  # and the port is free again at once
        connect_tcp(here, 5.0).close()


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare (util-linux)")
def test_whoever_asks_a_port_of_clients_finds_nobody_there():
    """In a network of its own, where the kernel gives clients this one port."""
    namespace = ["unshare", "--map-root-user", "--net", "--mount-proc", "--pid", "--fork"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody make a network of his own")
    done = subprocess.run(
        [*namespace, sys.executable, "-c", ASK_A_PORT_THAT_ONLY_CLIENTS_GET],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers.pop("the tests' services") == "False"
    assert all("refused" in text for text in answers.values()), answers


def test_servers_take_no_port_that_clients_get(tmp_path):
    file = tmp_path / "range"
    file.write_text("1024\t64999\n")
    clients = read_client_ports(file)
    assert clients == range(1024, 65_000)
    drawn = draw_server_ports(1000, clients)
    assert len(drawn) == len({*drawn}) == 536 and not {*drawn} & {*clients}
    assert draw_server_ports(20, range(1024, 65_536)) == []
    file.write_text("nothing")
    assert 50_000 in read_client_ports(file) and 50_000 in read_client_ports(tmp_path / "missing")
