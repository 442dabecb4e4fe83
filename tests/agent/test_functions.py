"""Functions at an agent: what one call does wrong affects only that call."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest

import vgrads
from tests.waiting import until
from vgrads.agent.functions.packing import pack, packed_size, unpack

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def executor(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with vgrads.Executor(2) as own:
        yield own


def describe():
    return os.getpid()


def wait_for_ever():
    signal.pause()


def test_interpreters_stay_and_there_are_as_many_as_places(executor):
    pids = {executor.submit(describe).result() for _ in range(20)}
    assert 1 <= len(pids) <= 2 and os.getpid() not in pids


def test_a_process_that_ends_costs_its_call_only(executor):
    others = [executor.submit(pow, 2, n) for n in range(20)]
    ended = [executor.submit(os._exit, 3), executor.submit(os.kill, 0, signal.SIGKILL)]
    others += [executor.submit(pow, 2, n) for n in range(20)]
    assert [future.result() for future in others] == [2**n for n in range(20)] * 2
    with pytest.raises(vgrads.TaskFailed, match="exit code 3"):
        ended[0].result()
    with pytest.raises(vgrads.TaskFailed, match="signal 9"):
        ended[1].result()


def test_an_exit_without_an_error_is_no_result(executor):
    with pytest.raises(vgrads.TaskFailed, match="exit code 0"):
        executor.submit(os._exit, 0).result()


def test_a_call_beyond_its_time_is_ended_and_others_are_not(executor):
    limited = executor.with_options(limit=0.5)
    late, quick = limited.submit(wait_for_ever), limited.submit(abs, -1)
    with pytest.raises(vgrads.TaskFailed, match="time limit"):
        late.result()
    assert quick.result() == 1


def test_a_call_beyond_its_memory_is_ended(executor):
    def fill():
        rows = []
        while True:
            rows.append(np.ones(2**20))

    with pytest.raises(vgrads.TaskFailed, match="out of memory"):
        executor.with_options(memory="300MB").submit(fill).result()


def test_a_call_is_tried_again_as_often_as_stated(executor, tmp_path):
    def fails_twice(path):
        with Path(path).open("a") as file:
            file.write("x")
        if Path(path).stat().st_size < 3:
            raise ValueError("not yet")
        return "done"

    again = executor.with_options(retries=2)
    assert again.submit(fails_twice, tmp_path / "a").result() == "done"
    with pytest.raises(ValueError, match="not yet"):
        executor.submit(fails_twice, tmp_path / "b").result()


def test_an_exception_has_its_traceback_there_as_its_cause(executor):
    def inner(text):
        raise KeyError(text)

    with pytest.raises(KeyError) as caught:
        executor.submit(inner, "absent").result()
    assert "in inner" in str(caught.value.__cause__) and caught.value.args == ("absent",)


def test_what_a_call_prints_is_its_own(executor):
    def speak(n):
        print("out", n)
        print("err", n, file=sys.stderr)
        os.write(1, b"directly\n")

    futures = [executor.submit(speak, n) for n in range(10)]
    wait(futures)
    for n, future in enumerate(futures):
        assert future.stdout.splitlines() == [f"out {n}", "directly"]
        assert future.stderr == f"err {n}\n"


def test_a_child_that_a_function_forks_reports_nothing(executor):
    def fork():
        return "child" if os.fork() == 0 else "parent"

    assert [executor.submit(fork).result() for _ in range(4)] == ["parent"] * 4
    assert executor.submit(abs, -2).result() == 2


@pytest.mark.parametrize("step", [1, -1])
def test_a_function_that_writes_on_the_connection_of_its_interpreter(executor, step):
    """``step``: −1: on the page with the number of its call first, so that nobody knows which it
    was."""

    def scribble():
        for descriptor in range(3, 64)[::step]:
            try:
                os.write(descriptor, b"nonsense")
            except OSError:
                continue
        signal.pause()

    with pytest.raises(vgrads.TaskFailed):
        executor.submit(scribble).result(timeout=30)
    assert executor.submit(abs, -3).result() == 3


def test_large_arrays_are_used_where_they_lie(executor):
    array = np.arange(3_000_000.0)

    def double(values):
        return values.flags.writeable, values * 2

    writeable, doubled = executor.submit(double, array).result()
    assert not writeable  # a view of the file that was sent
    assert np.array_equal(doubled, array * 2)


def test_what_cannot_be_pickled_is_named(executor):
    lock = threading.Lock()

    def bad_result():
        return {"items": [1, threading.Lock()]}

    with pytest.raises(TypeError, match=r"\['items'\]\[1\], of type lock"):
        executor.submit(bad_result).result()
    with pytest.raises(TypeError, match="variable 'lock', of type lock"):
        executor.submit(lambda: lock).result()
    with pytest.raises(TypeError, match=r"an argument .* of type lock"):
        executor.submit(abs, {"x": lock}).result()


def test_futures_as_arguments_are_replaced_by_their_results(executor):
    first = executor.submit(pow, 2, 10)
    second = executor.submit(lambda pair, more: pair[0] + more["x"], [first], {"x": first})
    assert second.result() == 2048
    failed = executor.submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        executor.submit(abs, failed).result()


def test_an_initializer_is_called_once_in_each_interpreter(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))

    def begin(folder):
        (Path(folder) / str(os.getpid())).touch()

    with vgrads.Executor(2, initializer=begin, initargs=(tmp_path,)) as own:
        pids = {str(own.submit(describe).result()) for _ in range(20)}
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == pids


def test_an_environment_without_a_python_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with pytest.raises(vgrads.InputError, match="is no environment"):
        vgrads.Executor(environment="kind:name")
    with (
        vgrads.Executor(1, environment=str(tmp_path)) as own,
        pytest.raises(vgrads.TaskFailed, match="did not start"),
    ):
        own.submit(abs, 1).result()


def test_functions_of_another_python_are_refused_before_they_run(executor, monkeypatch):
    monkeypatch.setattr("vgrads.executor.encoding.PYTHON", "3.99")
    with pytest.raises(RuntimeError, match=r"pickled by Python 3\.99"):
        executor.submit(abs, 1).result()


def test_a_queued_call_can_be_cancelled_and_a_running_one_cannot(executor):
    limited = executor.with_options(limit=5)
    running = [limited.submit(wait_for_ever) for _ in range(2)]
    until(lambda: all(future.running() for future in running))
    queued = [limited.submit(abs, n) for n in range(300)]
    assert not running[0].cancel()
    cancelled = [future for future in queued if future.cancel()]
    assert cancelled and all(future.cancelled() for future in cancelled)
    for future in set(queued) - set(cancelled):
        future.result()
    for future in running:
        with pytest.raises(vgrads.TaskFailed, match="time limit"):
            future.result()


def test_an_abandoned_executor_finishes_its_calls(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    own = vgrads.Executor(1)
    future = own.submit(time.sleep, 0.1)
    del own
    assert future.result() is None
    until(lambda: not list((tmp_path / "home" / "executor-runs").iterdir()))


def test_packed_parts_are_aligned_and_whole():
    parts = [b"abc", b"", memoryview(b"x" * 100)]
    packed = pack(parts)
    assert packed_size(parts) == len(packed)
    assert [bytes(part) for part in unpack(packed)] == [bytes(part) for part in parts]
    for damaged in (packed[:-1], b"other" + packed[5:], b"", packed[:20]):
        with pytest.raises(ValueError, match="packed"):
            unpack(damaged)
