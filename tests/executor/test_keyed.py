"""Results by key: they outlive the program, and later ones find them by name."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vgrads
from tests.conftest import ROOT
from tests.portal.serving import serve_this_machine
from tests.waiting import until
from vgrads.kernel.errors import InputError


def counted(folder, value):
    """Return twice the value, and count the calls in a folder."""
    (Path(folder) / f"call-{value}-{len(list(Path(folder).iterdir()))}").touch()
    return 2 * value


def calls_in(folder):
    return sorted(path.name.rpartition("-")[0] for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "calls"
    path.mkdir()
    return path


def test_a_later_executor_of_the_same_name_calls_nothing_again(home, folder):
    for _ in range(2):
        with vgrads.Executor(1, name='a b"c') as executor:
            first = executor.submit_as("first", counted, folder, 21)
            second = executor.submit_as("second", counted, folder, first)
            assert (first.result(), second.result()) == (42, 84)
            assert executor.submit_as("first", counted, folder, 0) is first
    assert calls_in(folder) == ["call-21", "call-42"]
    with vgrads.Executor(1, name="another") as executor:
        assert executor.submit_as("first", counted, folder, 3).result() == 6
        with pytest.raises(KeyError, match="second"):
            executor.find("second")
    with vgrads.Executor(1, name='a b"c') as executor:
        assert executor.find("second").result() == 84
    assert not list((home / "executor-runs").iterdir())


def test_arrays_are_stored_whole(home):
    for _ in range(2):
        with vgrads.Executor(1, name="arrays") as executor:
            stored = executor.submit_as("zeros", np.arange, 100_000)
            assert np.array_equal(stored.result(), np.arange(100_000))


def test_a_call_that_raised_is_called_again(home, folder):
    for _ in range(2):
        with vgrads.Executor(1, name="fails") as executor, pytest.raises(ZeroDivisionError):
            executor.submit_as("key", divmod, 1, 0).result()
    with vgrads.Executor(1, name="fails") as executor:
        with pytest.raises(ZeroDivisionError):
            executor.submit_as("key", divmod, 1, 0).result()
        assert executor.submit_as("key", counted, folder, 2).result() == 4
        assert executor.find("key").result() == 4
    assert calls_in(folder) == ["call-2"]


def test_a_damaged_result_is_computed_again(home, folder):
    with vgrads.Executor(1, name="damaged") as executor:
        executor.submit_as("key", counted, folder, 2).result()
    (value,) = (home / "executors" / "damaged").rglob("*.value")
    value.write_bytes(value.read_bytes()[:-1])
    with vgrads.Executor(1, name="damaged") as executor:
        assert executor.submit_as("key", counted, folder, 2).result() == 4
    assert calls_in(folder) == ["call-2", "call-2"]


def test_a_result_that_cannot_be_stored_is_returned(home, folder, caplog):
    with vgrads.Executor(1, name="full") as executor:
        (home / "executors" / "full").write_text("a file where the folder would be")
        assert executor.submit_as("key", counted, folder, 2).result() == 4
    assert "the result of key 'key' was not stored" in caplog.text


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 300])
def test_a_name_that_is_no_folder_is_refused(home, name):
    with pytest.raises(InputError, match="name"):
        vgrads.Executor(1, name=name)


def test_keys_need_a_name(executor):
    with pytest.raises(InputError, match="name the executor"):
        executor.submit_as("key", abs, -1)
    with pytest.raises(InputError, match="name the executor"):
        executor.find("key")


SUBMITS = """
import sys, pathlib, time, vgrads
folder = pathlib.Path({folder!r})
def slow(value):
    (folder / f"begun-{{value}}").touch()
    while not (folder / "go").exists():
        time.sleep(.05)
    return value + 1
executor = vgrads.Executor(sites={url!r}, name="study")
for value in range(3):
    executor.submit_as(str(value), slow, value)
time.sleep(600)
"""


@pytest.mark.more
def test_calls_of_a_killed_program_are_found_at_the_service(tmp_path, home, folder):
    served = serve_this_machine(tmp_path / "service")
    try:
        program = SUBMITS.format(folder=str(folder), url=served.url)
        environment = {**os.environ, "VGRADS_HOME": str(home), "PYTHONPATH": f"{ROOT}"}
        submitting = subprocess.Popen([sys.executable, "-c", program], env=environment)
        until((folder / "begun-0").exists, "the first call has begun", 60)
        (bag,) = served.client().list_bags()
        until(lambda: served.client().read_bag(bag["id"])["tasks"] == 3, "the calls are there")
        submitting.send_signal(signal.SIGKILL)
        submitting.wait()
        with vgrads.Executor(sites=served.url, name="study") as executor:
            futures = [executor.find(str(value)) for value in range(3)]
            assert not futures[0].done()
            (folder / "go").touch()
            assert [future.result(60) for future in futures] == [1, 2, 3]
            assert executor.submit_as("2", abs, -99).result() == 3
    finally:
        served.leave()
    with vgrads.Executor(sites=served.url, name="study") as executor:  # without the service
        assert executor.find("1").result() == 2
