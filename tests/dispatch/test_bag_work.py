"""Bags as a user meets them: the command, the files, the service, the page, futures; and what is
refused."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT
from tests.portal.serving import serve_this_machine
from tests.services.dask import dask_cluster
from tests.waiting import until
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.outputs import OutputReader
from vgrads.dispatch.storage.status import exclusive, is_worked_on
from vgrads.exchange.http import Connection
from vgrads.exchange.keys import derive_key
from vgrads.exchange.messages import read
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import InputError
from vgrads.portal.client import Client
from vgrads.portal.client_bags import command_of
from vgrads.portal.web.bag_intake import commands_of

SQUARES = """
name: squares
command: "echo $(({x} * {x}))"
parameters: {x: {range: [1, 6]}}
"""


def run(vgrads, path):
    answer = vgrads("bags", "run", path, "--json")
    message = json.loads(answer.out)
    return answer.code, message["bags"][0]


def ends(vgrads, bag, *options):
    return [
        json.loads(line)
        for line in vgrads("bags", "logs", bag, "--json", *options).out.splitlines()
    ]


def test_a_bag_from_file_to_results(vgrads, write):
    status, bag = run(vgrads, write("bag.yaml", SQUARES))
    assert (status, bag["state"], bag["done"], bag["failed"]) == (0, "done", 5, 0)
    result = ends(vgrads, bag["id"])
    assert {end["task"]: end["out"] for end in result} == {i: f"{(i + 1) ** 2}\n" for i in range(5)}
    assert all(end["final"] and end["code"] == 0 and end["host"] for end in result)
    assert "squares" in vgrads("bags", "status").out
    assert "task 3: done" in vgrads("bags", "explain", bag["id"], 3).out
    nodes = vgrads("explain", bag["id"])
    assert re.search(r"^after \d+s, local: .*request", nodes.out, re.MULTILINE), nodes
    assert "needs the number of a task" in vgrads("bags", "explain", bag["id"], "--host", "x").err


def test_files_go_to_a_host_and_come_back(vgrads, write, tmp_path):
    (tmp_path / 'a b"c').write_text("one\ntwo\n")
    write("names.txt", 'a b"c\nplain\n')
    (tmp_path / "plain").write_text("three\n")
    bag = """
name: counted
command: "wc -l < {name} > out/{task}.txt"
parameters: {name: {lines: names.txt}}
inputs: ["{name}"]
outputs: ["out/{task}.txt"]
"""
    status, message = run(vgrads, write("bag.yaml", bag))
    assert status == 0, ends(vgrads, message["id"])
    folder = tmp_path / "home" / "dispatchers" / message["id"] / "bags" / "0000"
    results = {
        path.name: path.read_text().split() for path in (folder / "results" / "out").iterdir()
    }
    assert results == {"0.txt": ["2"], "1.txt": ["1"]}
    assert not list(folder.glob("arriving/*"))


def test_what_fails_is_tried_again_and_reported(vgrads, write):
    bag = "name: wrong\ncommand: 'echo oh >&2; exit {c}'\nparameters: {c: [0, 7]}\nretries: 2\n"
    status, message = run(vgrads, write("bag.yaml", bag))
    assert (
        status,
        message["state"],
        message["done"],
        message["failed"],
        message["tried_again"],
    ) == (
        1,
        "failed",
        1,
        1,
        2,
    )
    wrong = ends(vgrads, message["id"], "--failed")
    assert [(end["code"], end["err"], end["final"]) for end in wrong] == [
        (7, "oh\n", False)
    ] * 2 + [(7, "oh\n", True)]
    assert "it failed 3 times; 2 retries" in vgrads("bags", "explain", message["id"], 1).out


def test_two_bags_share_a_single_dispatcher(vgrads, write):
    item, two = (write(f"{n}.yaml", SQUARES.replace("squares", n)) for n in ("one", "two"))
    message = json.loads(vgrads("bags", "run", item, two, "--json").out)["bags"]
    assert [bag["state"] for bag in message] == ["done", "done"]
    assert message[0]["dispatcher"] == message[1]["dispatcher"]


WRONG = {
    "an unknown parameter": (
        "command: 'echo {y}'\nparameters: {x: [1]}",
        "names the parameter 'y'",
    ),
    "not a valid template": ("command: 'echo {x'\nparameters: {x: [1]}", "is not a valid template"),
    "an unknown form": ("command: 'echo {x:02d}'\nparameters: {x: [1]}", "only the form 'raw'"),
    "an estimate below 0": ("command: 'true'\nruntime_s: -1", "runtime_s"),
    "two sources": ("command: 'true'\ncommands: ['true']", "give one of"),
    "no source": ("retries: 1", "give one of"),
    "no tasks": ("command: 'echo {x}'\nparameters: {x: []}", "has no tasks"),
    "an output for all": (
        "command: 'echo {x}'\nparameters: {x: [1, 2]}\noutputs: [a]",
        "every task would write 'a'",
    ),
    "a file that is not there": (
        "command: 'echo {x}'\nparameters: {x: {lines: none.txt}}",
        "cannot be read",
    ),
    "a line that is no text": (
        "command: 'echo {x}'\nparameters: {x: {lines: broken.txt}}",
        "line 900001: is not UTF-8",
    ),
    "a row too short": ("command: 'echo {a} {b}'\ntable: short.csv", "line 3: has 1 value for 2"),
    "a column that is no name": ("command: 'echo {a}'\ntable: odd.csv", "'a b' cannot be the name"),
    "a name that is given twice": (
        "command: 'echo {a}'\ntable: good.csv\nparameters: {a: [1]}",
        "is given twice: 'a'",
    ),
    "too many processors": ("command: 'true'\nprocs: 4000", "needs 4,000 processors"),
    "a way to ask that nobody knows": (
        "command: 'true'\nhosts: {acquire: some}",
        "unknown acquisition policy 'some'",
    ),
    "a site that is not there": ("command: 'true'\nsites: [mars]", "unknown site 'mars'"),
    "a path outside": ("command: 'true'\noutputs: ['../x']", "is not inside"),
    "a typo": ("comand: 'true'", "comand"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_reported(vgrads, write, tmp_path, name):
    (tmp_path / "broken.txt").write_bytes(b"x\n" * 900_000 + b"\xff\n" + b"x\n" * 100_000)
    write("short.csv", "a,b\n1,2\n3\n")
    write("odd.csv", "a b\n1\n")
    write("good.csv", "a\n1\n")
    text, output = WRONG[name]
    answer = vgrads("bags", "run", write("bag.yaml", f"name: x\n{text}\n"))
    assert answer.code == 2, answer
    assert output in answer.err and "bag.yaml" in answer.err, answer.err
    assert "no bag" in vgrads("bags", "explain", "bag-0000000000", 1).err
    assert not (tmp_path / "home" / "dispatchers").exists()  # nothing was begun


def test_commands_in_a_file_and_a_table(vgrads, write):
    write("jobs.txt", "echo 'a  b'\necho $((1 + 1))\n")
    _, message = run(vgrads, write("bag.yaml", "name: x\ncommands_file: jobs.txt\n"))
    assert [end["out"] for end in sorted(ends(vgrads, message["id"]), key=lambda e: e["task"])] == [
        "a  b\n",
        "2\n",
    ]
    write("points.csv", 'x,why\n1,"it\'s ""so"""\n2,\n')
    table = "name: x\ncommand: 'echo {x} {why} {z}'\ntable: points.csv\nparameters: {z: [5, 6]}\n"
    _, message = run(vgrads, write("bag.yaml", table))
    results = [end["out"] for end in sorted(ends(vgrads, message["id"]), key=lambda e: e["task"])]
    assert results == ['1 it\'s "so" 5\n', '1 it\'s "so" 6\n', "2  5\n", "2  6\n"]


def test_a_killed_dispatcher_is_resumed_and_its_host_worked_on(vgrads, write, tmp_path):
    path = write(
        "bag.yaml",
        (
            f"name: slow\ncommand: 'echo {{x}} >> {tmp_path}/ran; sleep 0.3'\nparameters: {{x: "
            "{range: [24]}}\n"
        ),
    )
    first = subprocess.Popen(
        [sys.executable, "-m", "vgrads", "bags", "run", str(path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until((tmp_path / "ran").exists)
    first.send_signal(signal.SIGKILL)
    first.wait()
    (bag,) = json.loads(vgrads("bags", "status", "--json").out)["bags"]
    assert bag["state"] in ("waiting", "running")  # as it was looked at last
    assert vgrads("bags", "resume", bag["id"]).code == 0
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(
        range(24)
    )  # each once: the host was believed
    assert "has ended" in vgrads("bags", "resume", bag["id"]).err


def test_what_a_killed_dispatcher_still_reserved_after_the_last_task_is_released(
    vgrads, write, tmp_path
):
    _, bag = run(vgrads, write("bag.yaml", SQUARES))
    path = tmp_path / "home" / "dispatchers" / bag["id"] / "status.json"
    assert json.loads(path.read_text())["slots"] == []
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"state": "working", "slots": ["h0"]})
    )
    assert vgrads("bags", "resume", bag["id"]).code == 0
    assert json.loads(path.read_text())["state"] == "ended"
    assert "has ended: done" in vgrads("bags", "resume", bag["id"]).err


def test_ctrl_c_gives_the_hosts_back_and_the_rest_can_go_on(vgrads, write, tmp_path):
    path = write(
        "bag.yaml",
        (
            f"name: slow\ncommand: 'echo {{x}} >> {tmp_path}/ran; sleep 0.2'\nparameters: {{x: "
            "{range: [30]}}\n"
        ),
    )
    first = subprocess.Popen(
        [sys.executable, "-m", "vgrads", "bags", "run", str(path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    until((tmp_path / "ran").exists)
    first.send_signal(signal.SIGINT)
    assert first.wait(30) == 5
    assert first.stderr is not None
    first.stderr.close()
    (bag,) = json.loads(vgrads("bags", "status", "--json").out)["bags"]
    assert bag["state"] == "interrupted"
    answer = vgrads("bags", "cancel", bag["id"])
    assert (answer.code, "released" in answer.out) == (0, True)
    (bag,) = json.loads(vgrads("bags", "status", "--json").out)["bags"]
    assert bag["state"] == "cancelled" and bag["dropped"] > 0


LENT = """
[[site]]
name = "lent"
kind = "dedicated"
procs = 2
driver = "dask"
[site.access]
endpoint = "{endpoint}"
contact = "127.0.0.1"
poll = "{poll}"
"""
SET = """
name: lent
deadline: 10m
workflows:
  - name: w
    count: 2
    tasks:
      - {id: a, runtime_s: 2, command: "echo $VGRADS_TASK > a.txt", outputs: [a.txt]}
      - id: b
        runtime_s: 2
        parents: [a]
        command: "cat a.txt > b.txt"
        inputs: [a.txt]
        outputs: [b.txt]
"""


@pytest.mark.more
def test_a_set_on_the_workers_of_a_dask_cluster(vgrads, write, tmp_path):
    with dask_cluster(2) as cluster:
        sites = LENT.format(endpoint=cluster.scheduler_address, poll="0.3s")
        answer = vgrads(
            "run", write("set.yaml", SET), "--sites", write("sites.toml", sites), "--json"
        )
        assert answer.code == 0, answer
        assert answer.json["outcome"]["in_time"] == 2
        results = sorted(tmp_path.glob("home/runs/*/w-*/results/b.txt"))
        assert [path.read_text() for path in results] == ["a\n"] * 2
        with cluster.get_client() as client:
            until(lambda: not any(client.processing().values()), "workers given back")


@pytest.mark.more
def test_a_bag_on_the_workers_of_a_dask_cluster(vgrads, write, tmp_path):
    """Somebody's cluster lends its workers: an agent on each, as a task that lasts, and none of it
    stays."""
    with dask_cluster(2) as cluster:
        sites = LENT.format(endpoint=cluster.scheduler_address, poll="1s")
        bag = (
            "name: lent\ncommand: 'echo $VGRADS_TASK; sleep 0.1'\nparameters: {x: {range: "
            "[40]}}\nhosts: {idle: 1s}\n"
        )
        answer = vgrads(
            "bags", "run", write("bag.yaml", bag), "--sites", write("sites.toml", sites), "--json"
        )
        (message,) = json.loads(answer.out)["bags"]
        assert (answer.code, message["done"]) == (0, 40), answer.err
        assert {int(end["out"]) for end in ends(vgrads, message["id"])} == set(range(40))
        status = json.loads(
            (tmp_path / "home" / "dispatchers" / message["id"] / "status.json").read_text()
        )
        assert "requested 2 agents" in status["reasons"][0]["reason"]
        with cluster.get_client() as client:
            until(lambda: not any(client.processing().values()), "workers given back")


# the port


@contextmanager
def manager(folder, *commands):
    """A dispatcher with one bag, in an event loop of the test; a function that runs a coroutine
    with its port."""
    folder.mkdir(exist_ok=True)

    async def main(work):
        dispatch_manager = DispatchManager(
            DispatcherConfig(folder=folder, secret=b"s"), WallClock()
        )
        port = await dispatch_manager.port.listen("127.0.0.1", 0, None)
        loop = asyncio.ensure_future(dispatch_manager.work())
        if commands:
            bag = BagSpec(name="x", commands=Listed(commands))
            dispatch_manager.add(0, bag, BagFiles(bag, folder / "bag", folder))
        try:
            await work(dispatch_manager, port)
        finally:
            await dispatch_manager.stop()
            await loop
            dispatch_manager.close()

    yield lambda work: asyncio.run(main(work))


async def send(port, body, key=None, path="/exchange", method="POST"):
    """(status, answer) of one request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    key = derive_key(b"s", "h0") if key is None else key
    writer.write(
        (
            f"{method} {path} HTTP/1.1\r\nAuthorization: Bearer {key}\r\nContent-Length: "
            f"{len(data)}\r\n\r\n"
        ).encode()
        + data
    )
    status = int((await reader.readline()).split()[1])
    length = 0
    while line := (await reader.readline()).strip():
        length = int(line.split()[1]) if line.lower().startswith(b"content-length") else length
    result = await reader.readexactly(length)
    writer.close()
    return status, json.loads(result) if result else None


def hello(seq=1, **more):
    return {
        "host": "a",
        "life": "1",
        "seq": seq,
        "wait_s": 0,
        "hello": {"slot": "h0", "procs": 2, **more.pop("hello", {})},
        **more,
    }


def test_a_wrong_or_revoked_key_is_answered_nothing(tmp_path):
    async def work(result, port):
        assert await send(port, hello(), key="nonsense") == (403, None)
        assert await send(port, hello(), key=derive_key(b"other", "h0")) == (403, None)
        assert await send(port, hello(), key=derive_key(b"s", "h1")) == (
            403,
            None,
        )  # another slot's name
        assert (await send(port, hello()))[0] == 200
        result.port.revoke("h0")
        assert await send(port, hello(2)) == (403, None)
        assert result.port.refused == 3

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


def test_what_is_no_message_is_refused(tmp_path):
    async def work(result, port):
        assert (await send(port, b"x" * (9 * 2**20)))[0] == 413
        assert (await send(port, b"", path="/elsewhere"))[0] == 404
        assert (await send(port, b"", path="/inputs/abc", method="GET"))[0] == 404
        assert (await send(port, b"x", path="/outputs/0/0/1/undeclared", method="PUT"))[0] == 400
        assert (await send(port, b"x", path="/outputs/9/0/1/a", method="PUT"))[0] == 400
        result.state.check()

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


def test_an_exchange_gives_acknowledges_and_ignores_what_nobody_gave(tmp_path):
    def end(task, attempt, code=0):
        return [0, task, attempt, code, [0, 0, 1.5, 0], 0.1, 10, "out", ""]

    async def work(result, port):
        _, answer = await send(port, hello())
        assert answer["give"] == [[0, 0, 1, "echo 0"], [0, 1, 1, "echo 1"]]
        assert answer["bags"]["0"]["output_bytes"] == 4096
        _, answer = await send(
            port,
            {
                "host": "a",
                "life": "1",
                "seq": 2,
                "ended": [end(0, 1), end(2, 1), end(1, 5)],
            },
        )
        assert answer["give"] == [[0, 2, 1, "echo 2"]]  # a long task: no more than it can run
        _, again = await send(port, {"host": "a", "life": "1", "seq": 2, "ended": [end(0, 1)]})
        assert again["hello"]  # heard before: it is to say who it is
        _, answer = await send(port, hello(3, hello={"held": [[0, 1, 1]]}, ended=[end(0, 1)]))
        assert [order[1] for order in answer["give"]] == [2]  # what it never got comes again
        assert (await send(port, {"host": "b", "life": "1", "seq": 1}))[1]["hello"]
        assert result.state.bags[0].tasks.counts[2] == 1
        result.state.check()

    with manager(tmp_path / "d", *(f"echo {i}" for i in range(3))) as alive:
        alive(work)
    with manager(tmp_path / "d") as alive:  # a dispatcher that comes later knows it all

        async def later(results, port):
            assert results.state.bags[0].tasks.counts[2] == 1
            _, answer = await send(
                port, hello(9, hello={"held": [[0, 1, 1], [0, 2, 2]]}, ended=[end(1, 1), end(2, 2)])
            )
            assert "give" not in answer
            assert results.state.bags[0].over

        alive(later)


def request(body):
    data = json.dumps(body).encode()
    head = (
        f"POST /exchange HTTP/1.1\r\nAuthorization: Bearer {derive_key(b's', 'h0')}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def test_messages_that_are_received_in_a_single_round_are_all_answered(tmp_path):
    """Those that only tell of inputs too: else its host soon has too many under way, and falls
    silent."""

    async def work(result, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        news = [
            {"host": "a", "life": "1", "seq": seq, "wait_s": 30, "cached": [f"{seq:064}"]}
            for seq in range(2, 7)
        ]
        writer.write(request(hello()))
        await reader.readuntil(b'"beat_s": 10.0}')
        writer.write(b"".join(map(request, news)))
        async with asyncio.timeout(10):
            for _ in news[:-1]:  # the last one waits for work
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        assert len(result.core.waiting) == 1
        writer.close()

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


def test_a_request_for_work_is_answered_when_a_result_follows_in_the_same_round(tmp_path):
    """Else the agent takes the answer to the result for that to its request, and waits for work
    that the dispatcher gives to nobody, until the next heartbeat."""

    async def work(result, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(hello()))
        await reader.readuntil(b'"beat_s": 10.0}')
        who = {"host": "a", "life": "1", "wait_s": 30}
        end = [0, 0, 1, 0, [0.0, 0.0, 0.01, 0.0], 0.0, 0.0, "", ""]
        writer.write(request({**who, "seq": 2}) + request({**who, "seq": 3, "ended": [end]}))
        async with asyncio.timeout(10):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            await reader.readuntil(b'{"seq": 3}')
        assert not result.core.waiting
        writer.close()

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


def test_an_agent_in_whose_place_another_came_is_stopped(tmp_path):
    async def work(result, port):
        await send(port, hello())
        await send(port, hello() | {"life": "2"})
        assert (await send(port, {"host": "a", "life": "1", "seq": 2}))[1]["stop"]
        assert (await send(port, hello(3)))[1]["stop"]

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


def test_a_full_disk_is_waited_for_and_nothing_is_lost(tmp_path):
    """Nobody is answered before what was decided is on the disk, and all of it is there in the end,
    once."""

    async def work(result, port):
        real, full = result.files[0].printed.append, [True]

        def append(text):
            if full[0]:
                raise OSError(28, "No space left on device")
            real(text)

        result.files[0].printed.append = append
        await send(port, hello())
        agent_task = asyncio.ensure_future(
            send(
                port,
                {
                    "host": "a",
                    "life": "1",
                    "seq": 2,
                    "ended": [[0, 0, 1, 0, [0, 0, 1, 0], 0, 0, "text", ""]],
                },
            )
        )
        while not result.problem:
            await asyncio.sleep(0.01)
        assert not agent_task.done()
        full[0] = False
        assert (await agent_task)[0] == 200
        assert not result.problem

    with manager(tmp_path / "d", "true") as alive:
        alive(work)
    printed = list(OutputReader(tmp_path / "d" / "bag" / "printed.bin").more())
    assert [(output.task, output.out) for output in printed] == [(0, "text")]


def test_a_round_hears_no_more_ends_than_take_a_moment(tmp_path):
    ends = [[0, task, 1, 0, [0, 0, 0, 0], 0, 0, "", ""] for task in range(5000)]
    body = json.dumps({"host": "a", "life": "1", "seq": 1, "ended": ends}).encode()

    async def work(result, port):
        received = read(body, lambda agent: 0, 0.0)
        inbox = [(Connection(result.port), received)] * 3
        result.port._inbox = inbox
        assert len(list(result.port.next_messages(closing=False))) == 2 and result._news.is_set()
        assert len(list(result.port.next_messages(closing=False))) == 1 and not result.port._inbox
        result.port._inbox = inbox
        assert len(list(result.port.next_messages(closing=True))) == 3  # the last round hears all

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


def test_a_single_dispatcher_works_on_a_folder(tmp_path):
    with (
        exclusive(tmp_path),
        pytest.raises(InputError, match="in use by another dispatcher"),
        exclusive(tmp_path),
    ):
        pass
    assert not is_worked_on(tmp_path)


# the service


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    served = serve_this_machine(tmp_path_factory.mktemp("home"))
    yield served
    served.leave()


@pytest.mark.more
def test_a_host_that_another_service_left_here_is_not_taken_for_ones_own(service, tmp_path):
    bag = {"name": "x", "command": "true"}
    list(Client(service.url).bag_results(Client(service.url).submit_bag(bag)))
    neighbour = serve_this_machine(tmp_path)  # the first one's host is still here
    try:
        client = Client(neighbour.url)
        assert [end["code"] for end in client.bag_results(client.submit_bag(bag))] == [0]
    finally:
        neighbour.leave()


@pytest.mark.more
def test_a_service_that_ends_without_work_leaves_no_agent(tmp_path):
    served = serve_this_machine(tmp_path)
    try:
        client = Client(served.url)
        list(client.bag_results(client.submit_bag({"name": "x", "command": "true"})))
        assert served.left_behind()
        served.end()
        until(lambda: not served.left_behind(), "the end of its processes")
        assert "Traceback" not in served.log.read_text()
    finally:
        served.leave()


def test_futures_of_commands(service):
    with Client(service.url) as client:
        results = list(client.map("echo {} {}", [(i, 'a "b"') for i in range(20)]))
        assert [result.out for result in results] == [f'{i} a "b"\n' for i in range(20)]
        with client.tasks(name="mixed", retries=0) as tasks:
            good, bad = tasks.submit("echo yes"), tasks.submit("exit 3")
            assert (good.result(30).out, bad.result(30).code, bad.result().ok) == (
                "yes\n",
                3,
                False,
            )
        with pytest.raises(RuntimeError):
            tasks.submit("true")
        assert client.read_bag(tasks.bag_id)["state"] == "failed"


def test_a_bag_by_rest_its_results_as_they_come_and_its_page(service):
    client = Client(service.url)
    bag = client.submit_bag(
        {"name": 'a b"c', "command": "echo {x}", "parameters": {"x": {"range": [50]}}}
    )
    results = list(client.bag_results(bag))
    assert sorted(int(result["out"]) for result in results) == list(range(50))
    assert [r["task"] for r in client.bag_results(bag, skip=10)] == [
        r["task"] for r in results[10:]
    ]
    assert client.explain_task(bag, 3)["state"] == "done"
    with urllib.request.urlopen(f"{service.url}/v1/bags/{bag}/events") as stream:
        assert b"event: end" in stream.read()
    for path, text in ((f"/bags/{bag}", "50 of 50 tasks done"), ("/", "a b&#34;c")):
        with urllib.request.urlopen(service.url + path) as page:
            assert text in page.read().decode()
    assert bag in {row["id"] for row in client.list_bags()}


@pytest.mark.parametrize(
    "lines",
    [[b'"a', b'b"', b'"c","d"'], [b'"a"', b'["b"]'], [b'"a"', b'"b","c"'], [b'"a"', b'" "']],
)
def test_lines_are_right_in_sequence_though_they_are_read_together(lines):
    assert commands_of([b'"a b"', b'"\\u00e4\\n"'], 0) == ["a b", "ä\n"]
    with pytest.raises(InputError, match=r"line [678]: "):
        commands_of(lines, 5)


def test_tasks_are_streamed_into_an_open_bag(service):
    client = Client(service.url)
    bag = client.submit_bag({"name": "open", "open": True, "runtime_s": 100})
    assert client.add_tasks(bag, (f"echo {i}" for i in range(30_000))) == 30_000
    until(lambda: client.read_bag(bag)["tasks"] == 30_000)
    assert "waits" in client.explain_task(bag, 29_999)["state"]
    client.cancel_bag(bag)
    until(lambda: client.read_bag(bag)["state"] == "cancelled")
    with pytest.raises(InputError, match="has ended: cancelled"):
        client.add_tasks(bag, ["true"])
    bag = client.submit_bag({"name": "open", "open": True, "runtime_s": 100})
    with pytest.raises(InputError, match="line 2: is not JSON; 0 tasks were accepted"):
        client._ask("POST", f"/v1/bags/{bag}/tasks", '"true"\n{\n')
    client.close_bag(bag)
    with pytest.raises(InputError, match="is closed"):
        client.add_tasks(bag, ["true"])
    bag = client.submit_bag({"name": "whole", "command": "true", "parameters": {"x": [1]}})
    with pytest.raises(InputError, match="is not open"):
        client.add_tasks(bag, ["true", "true"])
    with pytest.raises(InputError, match="not submitted as an open bag"):
        client.close_bag(bag)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"parameters": {"x": {"lines": "/etc/passwd"}}, "command": "echo {x}"}, "names a file"),
        ({"table": "/etc/passwd", "command": "true"}, "names a file"),
        ({"inputs": ["a"], "command": "true"}, "cannot be submitted over REST"),
        ({"sites": ["mars"], "command": "true"}, "is not open to you"),
        ({"command": "echo {y}"}, "names the parameter 'y'"),
        ({"open": True, "command": "true"}, "submitted later"),
    ],
)
def test_a_service_takes_no_files_of_its_own_machine(service, more, text):
    with pytest.raises(InputError, match=text):
        Client(service.url).submit_bag({"name": "x", **more})


def test_outputs_of_a_bag_can_be_fetched_and_nothing_else(service):
    client = Client(service.url)
    bag = client.submit_bag(
        {
            "name": "x",
            "command": "echo {task} > {task}.txt",
            "parameters": {"y": [1, 2]},
            "outputs": ["{task}.txt"],
        }
    )
    list(client.bag_results(bag))
    with urllib.request.urlopen(f"{service.url}/v1/bags/{bag}/outputs/1.txt") as answer:
        assert answer.read() == b"1\n"
    for name in ("..%2Fdocument.json", "nothing", "%2Fetc%2Fpasswd"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{service.url}/v1/bags/{bag}/outputs/{name}")


@pytest.mark.more
def test_parameters_of_the_client_are_words_of_the_shell():
    assert command_of("echo {a} {b:raw}", {"a": "it's", "b": "$HOME"}) == "echo 'it'\"'\"'s' $HOME"
    assert command_of("echo {} {}", (1, "x y")) == "echo 1 'x y'"
    assert command_of("echo {{}} {}", 5) == "echo {} 5"
