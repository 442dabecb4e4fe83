"""Tasks in real containers: they read, write, are told what others are told, and end with what
kills their task."""

import pytest

from tests.execmgr.containers import IMAGE, NEEDED, make_image, missing, running, settings
from tests.execmgr.test_engines import Bench
from tests.waiting import until
from vgrads.agent.processes import kill, marked, name_of, variable_of
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.task_environment import Container, TaskEnvironment

pytestmark = pytest.mark.services

IN_PODMAN = TaskEnvironment(
    env=(("GREETING", "a, 'b' \"c\""),), container=Container(image=IMAGE, engine="podman")
)


@pytest.fixture(scope="module", autouse=True)
def podman(tmp_path_factory):
    folder = tmp_path_factory.mktemp("podman")
    lacking = missing()
    with pytest.MonkeyPatch.context() as patch:
        if not lacking:
            for name, value in settings(folder).items():
                patch.setenv(name, value)
            lacking = make_image(folder)
        if lacking and NEEDED:
            pytest.fail(lacking)
        if lacking:
            pytest.skip(lacking)
        yield


@pytest.fixture(params=["processes", "agents"])
def bench(request, tmp_path):
    place = tmp_path / "it's a, folder"
    place.mkdir()
    result = Bench(request.param, place, own=True)
    yield result
    result.close()
    assert running() == []


def test_a_task_in_a_container_reads_and_writes_as_others_do(bench):
    overrides = bench.folder / "set" / 'a b"c'
    overrides.write_text("beside\n")
    order = bench.order(
        "a:b,c",
        'cat a\\ b\\"c >out; echo $VGRADS_TASK $GREETING >>out; pwd >>out; cat beside-2',
        outputs=("out",),
        environment=IN_PODMAN,
    )
    bench.engine.start([order])
    end = bench.ends(1)["a:b,c"]
    assert end.code == 1 and "beside-2" in end.reason  # no such file there
    bench.engine.start(
        [
            bench.order(
                "d", order.command.rpartition(";")[0], outputs=("out",), environment=IN_PODMAN
            )
        ]
    )
    assert bench.ends(1)["d"].ok
    folder = bench.place.place(bench.orders["w", "d", 0])
    assert bench.result("out") == f"beside\nd a, 'b' \"c\"\n{folder}\n"
    long = bench.order("e", f"echo '{'ä' * 100_000}' >out", outputs=("out",), environment=IN_PODMAN)
    bench.engine.start([long])
    assert bench.ends(1)["e"].ok
    assert bench.result("out") == "ä" * 100_000 + "\n"


def test_what_kills_a_task_ends_its_container(bench):
    order = bench.order("long", "echo here >here.txt; sleep 600", environment=IN_PODMAN)
    bench.engine.start([order])
    until((bench.place.place(order) / "here.txt").exists)
    assert len(running()) == 1
    bench.engine.cancel(order.key)
    until(lambda: running() == [])


def test_a_container_is_limited_to_the_memory_that_is_stated(bench):
    eats = "s=0123456789abcdef; while [ ${#s} -lt 100000000 ]; do s=$s$s; done; sleep 60"
    bench.engine.start([bench.order("big", eats, environment=IN_PODMAN, memory_mib=60.0)])
    assert "out of memory" in bench.ends(1)["big"].reason
    assert running() == []


def test_a_manager_that_comes_later_ends_what_it_does_not_want(bench):
    order = bench.order("long", "echo here >here.txt; sleep 600", environment=IN_PODMAN)
    bench.engine.start([order])
    until((bench.place.place(order) / "here.txt").exists)
    bench.again()
    bench.engine.recover([])
    until(lambda: running() == [])


def test_an_image_that_is_not_there_is_the_tasks_own_failure(bench):
    environment = TaskEnvironment(
        container=Container(image="localhost/none:1", engine="podman", options=("--pull", "never"))
    )
    bench.engine.start([bench.order("a", "true", environment=environment)])
    assert "localhost/none:1" in bench.ends(1)["a"].reason


def test_large_inputs_and_fetched_files_are_read_through_their_links(bench, tmp_path):
    big = bench.folder / "set" / "big"
    with big.open("wb") as file:
        file.truncate(17 * 2**20)
    away = tmp_path / "away"
    away.write_text("fetched\n")
    order = bench.order(
        "t",
        "wc -c <big >n; cat c/away >>n; echo x >>c/away; test $? != 0 || exit 3",
        inputs=("big",),
        outputs=("n",),
        environment=IN_PODMAN,
        fetches=(RemoteFile(name="c/away", url=f"file://{away}"),),
    )
    bench.engine.start([order])
    end = bench.ends(1)["t"]
    assert end.ok, end.reason
    assert bench.result("n").split() == [str(17 * 2**20), "fetched"]


def test_conda_is_looked_for_inside_and_setup_runs_outside(bench):
    environment = TaskEnvironment(
        setup=("export GREETING=outside",), env=IN_PODMAN.env, container=IN_PODMAN.container
    )
    bench.engine.start(
        [bench.order("t", "echo $GREETING >n", outputs=("n",), environment=environment)]
    )
    assert bench.ends(1)["t"].ok
    assert bench.result("n") == "outside\n"
    inside = TaskEnvironment(venv="/none", container=IN_PODMAN.container)
    bench.engine.start([bench.order("v", "true", environment=inside)])
    assert "/none/bin/activate" in bench.ends(1)["v"].reason


def test_a_workdir_is_there_inside(bench, tmp_path):
    (tmp_path / "w").mkdir()
    environment = TaskEnvironment(workdir=str(tmp_path / "w"), container=IN_PODMAN.container)
    bench.engine.start([bench.order("t", "pwd >n", outputs=("n",), environment=environment)])
    assert bench.ends(1)["t"].ok
    assert bench.result("n") == f"{tmp_path}/w\n"


def test_a_container_whose_client_was_killed_is_ended(bench):
    order = bench.order("t", "echo here >here.txt; sleep 600", environment=IN_PODMAN)
    bench.engine.start([order])
    until((bench.place.place(order) / "here.txt").exists)
    for pid in marked(lambda _: True):
        if name_of(pid) == "podman" and variable_of(pid, "VGRADS_TASK") == "t":
            kill(pid)
    assert not bench.ends(1)["t"].ok
    assert running() == []
