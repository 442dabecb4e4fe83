"""Pools as they are run: real processes on this machine, a ledger between them, and things that go
wrong."""

import os
import signal

import pytest

from tests.pool.pooling import Pooling, command_of, until
from tests.portal.serving import serving

POOL = "name: shared\nmax_workers: {most}\nperiod: 1s\nhosts: {{idle: 5s}}\n"
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'


@pytest.fixture
def pooling(tmp_path):
    (tmp_path / "sites.toml").write_text(SITES)
    result = Pooling(tmp_path)
    yield result
    result.stop()


@pytest.mark.more
def test_a_pool_that_is_killed_goes_on_with_the_hosts_that_it_has(pooling, tmp_path):
    options = ("--sites", tmp_path / "sites.toml")
    pool = pooling.pool(POOL.format(most=2), *options)
    bag = pooling.bag("alone", 60, allowed=0)
    until(lambda: pooling.leased("alone") == 2)
    pool.kill()
    pool.wait(10)
    done = len(pooling.ran("alone"))
    pooling.allow("alone")
    until(lambda: len(pooling.ran("alone")) > done + 5)  # work goes on without it
    again = pooling.pool(POOL.format(most=2), *options)
    assert bag.wait(60) == 0, pooling.output("alone")
    assert set(pooling.ran("alone").values()) == {1}
    until(lambda: not pooling.workers(), lambda: f"{pooling.workers()}")
    again.send_signal(signal.SIGINT)
    assert again.wait(60) == 0


@pytest.mark.more
def test_a_manager_and_a_worker_that_are_killed_lose_no_task(pooling, tmp_path):
    pooling.pool(POOL.format(most=2), "--sites", tmp_path / "sites.toml")
    bag = pooling.bag("hurt", 60, allowed=30)
    until(lambda: len(pooling.ran("hurt")) >= 8)
    worker = next(pid for pid in pooling.workers() if "manager.json" in command_of(pid))
    os.kill(worker, signal.SIGKILL)
    until(lambda: len(pooling.ran("hurt")) >= 20)
    bag.kill()
    bag.wait(10)
    pooling.allow("hurt")
    name = next(word for word in pooling.output("hurt").split() if word.startswith("bag-")).rstrip(
        ":"
    )
    again = pooling.start("again", "bags", "resume", name, "--contact", "127.0.0.1")
    assert again.wait(60) == 0, pooling.output("again")
    assert len(pooling.ran("hurt")) == 60
    assert (
        sum(pooling.ran("hurt").values()) <= 62
    )  # the one of the worker that was killed, and its neighbour


def test_a_pool_that_cannot_be_is_refused_in_a_line(vgrads, write):
    cases = {
        "max_workers: 3\n": "name",
        "name: a b\nmax_workers: 3\n": "name",
        "name: a\nmax_workers: 0\n": "max_workers",
        "name: a\nmax_workers: 3\npolicy: d9\n": "policy",
        "name: a\nmax_workers: 3\ndistribution: {'(': 1}\n": "distribution",
        "name: a\nmax_workers: 3\nperiod: 0s\n": "period",
        "name: a\nmax_workers: 3\nsites: [nowhere]\n": "nowhere",
        "name: a\nmax_workers: 3\nworker: {procs: 9999}\n": "processors",
    }
    for text, field in cases.items():
        answer = vgrads("pool", "run", write("pool.yaml", text))
        assert answer.code == 2, text
        assert field in answer.err, (text, answer.err)
        assert "Traceback" not in answer.err
    assert "pool.yaml" in vgrads("pool", "run", "pool.yaml").err
    assert vgrads("pool", "explain").code == 2


@pytest.mark.more
def test_a_pool_that_comes_back_without_a_site_where_it_has_slots_says_so(pooling, tmp_path):
    pool = pooling.pool(POOL.format(most=2), "--sites", tmp_path / "sites.toml")
    pooling.bag("held", 200, allowed=0)
    until(lambda: pooling.leased("held") == 2)
    pool.kill()
    pool.wait(10)
    (tmp_path / "other.toml").write_text(SITES.replace("here", "elsewhere"))
    again = pooling.pool(POOL.format(most=2), "--sites", tmp_path / "other.toml")
    assert again.wait(60) == 2
    assert "'here', where slots are still held" in pooling.output("pool")
    pooling.pool(POOL.format(most=2), "--sites", tmp_path / "sites.toml")
    until(lambda: [item["running"] for item in pooling.json("pool", "status")["pools"]] == [2])
    pooling.allow("held")


@pytest.mark.more
def test_work_goes_on_while_the_service_between_them_is_gone(pooling, tmp_path):
    (tmp_path / "service").mkdir()
    with serving(tmp_path / "service") as served:
        pooling.pool(
            POOL.format(most=2), "--sites", tmp_path / "sites.toml", "--service", served.url
        )
        bag = pooling.bag("remote", 60, "--service", served.url, allowed=10)
        until(lambda: len(pooling.ran("remote")) >= 10)
        served.kill()
        pooling.allow("remote")
        assert bag.wait(60) == 0, pooling.output("remote")
    assert set(pooling.ran("remote").values()) == {1}
    until(lambda: "no answer" in pooling.output("pool"))
    until(lambda: not pooling.workers(), lambda: f"{pooling.workers()}")
