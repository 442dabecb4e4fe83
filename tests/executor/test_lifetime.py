"""Executors at their end and at that of the program; what is freed, and what is pickled anew."""

import os
import signal
import subprocess
import sys
import threading
import time
from pickle import PicklingError

import pytest

import vgrads
from tests.conftest import ROOT

AT_EXIT = """
import time, vgrads
executor = vgrads.Executor(2)
def slow():
    time.sleep(.5)
    print("apple")
executor.submit(slow).add_done_callback(lambda future: print(future.stdout, end=""))
{then}
"""


def program(text, home):
    """Run a program; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "VGRADS_HOME": str(home), "PYTHONPATH": f"{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout, done.stderr


@pytest.mark.more
@pytest.mark.parametrize("then", ["", "executor.shutdown(wait=False)", "del executor"])
def test_calls_end_before_the_program_does(home, then):
    for _ in range(3):  # once in two runs, it never ended
        assert program(AT_EXIT.format(then=then), home) == ("apple\n", "")


FORKED = """
import multiprocessing, vgrads
executor = vgrads.Executor(1)
executor.submit(abs, -1).result()
def use():
    try:
        executor.submit(abs, -2)
    except RuntimeError as error:
        print(error)
    executor.shutdown()
    with vgrads.Executor(1) as other:
        print(other.submit(abs, -3).result())
process = multiprocessing.get_context("fork").Process(target=use)
process.start()
process.join()
print(executor.submit(abs, -4).result())
"""


def test_a_forked_process_leaves_the_executor_alone_and_may_have_its_own(home):
    """It ended never: at its exit it waited for calls of the executor, whose threads it has not."""
    refused = "an executor is of the process that made it: make another one here"
    assert program(FORKED, home) == (f"{refused}\n3\n4\n", "")


def end_agent(number):
    """End the process that gave this one its call, then wait for the end."""
    os.kill(os.getppid(), number)
    time.sleep(60)


@pytest.mark.more
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        # the agent waits each time for the call before it leaves: a minute in all
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_a_call_that_ends_its_agent_again_and_again_fails_alone(executor, number):
    wrong = executor.submit(end_agent, number)
    others = [executor.submit(abs, -n) for n in range(20)]
    with pytest.raises(vgrads.TaskFailed, match=r"agents were lost|agent is leaving: signal 15"):
        wrong.result(180)
    assert [future.result(60) for future in others] == list(range(20))


def test_a_call_that_dies_reports_how_long_it_ran(executor):
    wrong = executor.submit(die_after, 0.2)
    assert isinstance(wrong.exception(60), vgrads.TaskFailed)
    assert 0.2 <= wrong.ran_s < 60.0


def die_after(seconds):
    time.sleep(seconds)
    os._exit(3)


def test_an_executor_ends_once_from_several_threads(executor):
    executor.submit(abs, -1).result()
    threads = [threading.Thread(target=executor.shutdown) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)


def test_a_function_is_pickled_as_it_is_at_its_submission(executor):
    step = 1

    def current():
        return step

    first = executor.submit(current).result()
    step = 2
    assert (first, executor.submit(current).result()) == (1, 2)


class Lock:
    def __init__(self):
        self.inner = {"lock": threading.Lock()}


class ExitsAtUnpickle:
    def __reduce__(self):
        return sys.exit, (3,)


def test_a_result_that_cannot_be_pickled_names_the_part_at_fault(executor):
    with pytest.raises(TypeError, match=r"\.inner\['lock'\]") as caught:
        executor.submit(Lock).result()
    assert isinstance(caught.value, PicklingError)


def test_a_result_that_ends_its_reader_fails_its_call_alone(executor):
    with pytest.raises(vgrads.TaskFailed, match="SystemExit"):
        executor.submit(ExitsAtUnpickle).result()
    assert executor.submit(abs, -1).result() == 1


def test_an_initializer_that_fails_fails_each_call(home):
    with vgrads.Executor(1, initializer=divmod, initargs=(1, 0)) as executor:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                executor.submit(abs, -1).result()


def test_cancelled_and_finished_calls_are_all(executor):
    first = executor.submit(abs, -1)
    first.result()
    futures = [executor.submit(abs, -number) for number in range(50)]
    executor.shutdown(cancel_futures=True)
    assert first.result() == 1
    for number, future in enumerate(futures):
        assert future.cancelled() or future.result() == number
