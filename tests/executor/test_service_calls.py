"""Calls through a service, and what users of pools expect of them: they are cancelled, their states
are true, and endless arguments are taken as results are."""

import importlib
import itertools
import sys
import time

import pytest

import vgrads
from tests.portal.serving import serve_this_machine
from tests.waiting import until


def wait_for(folder, number):
    (folder / f"began-{number}").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    return number


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    served = serve_this_machine(tmp_path_factory.mktemp("service"))
    yield served
    served.leave()


def begun(folder, futures):
    """Wait until calls run; return those, and the others."""
    places = 2

    def marks():
        return [n for n in range(len(futures)) if (folder / f"began-{n}").exists()]

    until(lambda: len(marks()) >= places, "the first calls", 60)
    running = marks()
    return [futures[n] for n in running], [f for n, f in enumerate(futures) if n not in running]


@pytest.mark.more
def test_calls_that_wait_are_cancelled_and_those_that_run_say_so(service, tmp_path, home):
    with vgrads.Executor(sites=service.url) as executor:
        futures = [executor.submit(wait_for, tmp_path, n) for n in range(40)]
        running, waiting = begun(tmp_path, futures)
        until(running[0].running, "the state of a call that runs", 60)
        assert not running[0].cancel()
        last = waiting[-1]
        assert (last.cancel(), last.cancelled(), last.running()) == (True, True, False)
        assert last.cancel()
        (tmp_path / "go").touch()
        rest = [future for future in futures if future is not last]
        assert sorted(f.result(120) for f in rest) == sorted(
            n for n in range(40) if futures[n] is not last
        )
    assert not (tmp_path / f"began-{futures.index(last)}").exists()


@pytest.mark.more
def test_a_shutdown_cancels_what_waits_and_returns_when_the_rest_has_ended(service, tmp_path, home):
    executor = vgrads.Executor(sites=service.url)
    futures = [executor.submit(wait_for, tmp_path, n) for n in range(40)]
    running, _ = begun(tmp_path, futures)
    executor.shutdown(wait=False, cancel_futures=True)
    cancelled = [future for future in futures if future.cancelled()]
    assert len(cancelled) >= 20 and not set(cancelled) & set(running)
    (tmp_path / "go").touch()
    for future in futures:
        if future not in cancelled:
            assert future.result(120) == futures.index(future)


def raise_there(folder):
    sys.path.insert(0, str(folder))
    only_there = importlib.import_module("only_there")
    raise only_there.Strange("boom", 7)


def test_an_exception_whose_class_is_not_here_keeps_its_name_and_text(tmp_path, home):
    (tmp_path / "only_there.py").write_text(
        "class Strange(Exception):\n"
        "    def __str__(self): return f'{self.args[0]} of {self.args[1]}'\n"
    )
    with vgrads.Executor(1) as executor:
        failure = executor.submit(raise_there, tmp_path).exception(60)
    assert isinstance(failure, vgrads.TaskFailed)
    assert "Strange: boom of 7" in str(failure) and "only_there" in str(failure)
    assert "raise only_there.Strange" in str(failure.__cause__)


@pytest.mark.parametrize("chunksize", [None, 3])
def test_endless_arguments_are_taken_as_results_are(home, chunksize):
    taken = []

    def numbers():
        for number in itertools.count():
            taken.append(number)
            yield number

    with vgrads.Executor(2) as executor:
        results = executor.map(abs, numbers(), chunksize=chunksize)
        assert list(itertools.islice(results, 100)) == list(range(100))
        results.close()
        assert len(taken) < 100_100  # eight chunks of at most 10,000
        assert executor.submit(abs, -1).result(60) == 1


def test_an_iterator_with_an_end_is_mapped_to_it(home):
    with vgrads.Executor(2) as executor:
        assert list(executor.map(abs, iter(range(-50, 0)))) == list(range(50, 0, -1))
        assert list(executor.map(abs, iter(()))) == []
        assert list(executor.map(pow, iter(range(9)), [2] * 9)) == [n * n for n in range(9)]
