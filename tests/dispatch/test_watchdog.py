"""A dispatcher whose loop makes no progress is ended, and the next one continues its work; its
clock is not the calendar."""

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.dispatch.test_bag_work import ends
from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.document import load_bag
from vgrads.kernel.errors import INTERNAL_ERROR
from vgrads.kernel.watchdog import SilentTime, Watchdog
from vgrads.portal.jobs.bags import Crew, submit
from vgrads.portal.records.bags import BagStore
from vgrads.vgrid.catalog import describe_this_machine

BAG = 'name: sweep\ncommand: "sleep .1; echo {n}"\nparameters: {n: {range: [1, 41]}}\n'
HANGS = """
import threading
from vgrads.api.config import dispatcher_folder
from vgrads.vgrid.catalog import describe_this_machine
from vgrads.dispatch.core.protocol import Rules
from vgrads.portal.jobs.bags import Crew
from vgrads.portal.records.store import Store

def watch(status):
    if any(bag["done"] for bag in status["bags"]):
        threading.Event().wait()  # in the loop, for ever

with Store() as store:
    here, rules = describe_this_machine(), Rules(stuck_s=1.0)
    Crew(store, "bag-0", here, rules, watch=watch, own=True).carry_out()
"""
ALONE = """
import asyncio, threading
from vgrads.kernel.watchdog import Watchdog

async def hang():
    with Watchdog(0.1, lambda: {message}).watching():
        threading.Event().wait()

asyncio.run(hang())
"""


@contextmanager
def unwritable(how):
    """A file for stderr: ``full`` as on a full disk, ``closed`` as after the end of who read it,
    ``unread`` by a process that does not end."""
    if how == "full":
        with Path("/dev/full").open("w") as file:
            yield file
        return
    read_end, write_end = os.pipe()
    if how == "closed":
        os.close(read_end)
    else:
        os.set_blocking(write_end, False)
        with suppress(BlockingIOError):
            while True:
                os.write(write_end, bytes(4096))
        os.set_blocking(write_end, True)
    yield write_end
    os.close(write_end)
    if how != "closed":
        os.close(read_end)


@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.booleans()), max_size=60))
def test_time_in_which_the_process_was_stopped_is_not_counted(steps):
    """However long a step, it is no silence: the process could do nothing."""
    now_s, beats, silent = 0.0, 0, SilentTime(0.0)
    expected_s = 0.0
    for step_s, beat in steps:
        now_s += step_s
        beats += beat
        counted_s = step_s if step_s <= 3.0 else 0.0
        expected_s = 0.0 if beat else expected_s + counted_s
        assert abs(silent.update(now_s, beats) - expected_s) < 1e-6


def test_a_loop_without_progress_is_reported_and_a_long_step_is_not():
    silent = SilentTime(1000.0)
    assert [silent.update(1000.0 + s, 0) for s in (1, 2, 3)] == [1.0, 2.0, 3.0]
    assert silent.update(5000.0, 0) == 3.0
    assert silent.update(5001.0, 1) == 0.0


def test_what_may_take_long_is_not_watched():
    ended, until_then = threading.Event(), []

    async def hang():
        watchdog = Watchdog(0.1, lambda: "stuck", lambda _message: ended.set())
        with watchdog.watching():
            with watchdog.paused():
                until_then.append(ended.wait(0.5))
            ended.wait(10.0)

    asyncio.run(hang())
    assert until_then == [False] and ended.is_set()


@pytest.mark.parametrize("how", ["full", "closed", "unread", "without a message"])
def test_a_hung_process_is_ended_also_where_nothing_can_be_reported(how):
    message = "1 / 0" if how == "without a message" else "'stuck'"
    with unwritable("full" if how == "without a message" else how) as err:
        command = [sys.executable, "-c", ALONE.format(message=message)]
        hung = subprocess.run(command, cwd=ROOT, stderr=err, check=False, timeout=60)
    assert hung.returncode == INTERNAL_ERROR


def test_a_bag_whose_dispatcher_hangs_is_finished_by_the_next(store, write, vgrads):
    path = write("bag.yaml", BAG)
    row, _ = submit(store, "bag-0", load_bag(path)[0], path.parent, describe_this_machine())
    hung = subprocess.run(
        [sys.executable, "-c", HANGS],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert hung.returncode == INTERNAL_ERROR, hung.stderr
    assert "made no progress for 1 s" in hung.stderr and "vgrads bags resume bag-0" in hung.stderr
    assert "in watch" in hung.stderr  # where it hangs
    answer = vgrads("bags", "resume", row.id)
    assert answer.code == 0, answer.err
    done = [end["task"] for end in ends(vgrads, row.id) if end["code"] == 0]
    assert sorted(done) == list(range(40))  # each committed once


def test_a_bag_goes_on_after_the_calendar_was_set_back(store, write):
    """Its clock is the machine's uptime, as that of planned runs."""
    path = write("bag.yaml", BAG)
    row, _ = submit(store, "bag-0", load_bag(path)[0], path.parent, describe_this_machine())

    def interrupt(status):
        if any(bag["done"] for bag in status["bags"]):
            crew.end()

    crew = Crew(store, "bag-0", describe_this_machine(), watch=interrupt, own=True)
    assert crew.carry_out() == "interrupted"
    began = dispatcher_folder("bag-0") / "began"
    unix_s, *rest = began.read_text().split()
    began.write_text(" ".join([repr(float(unix_s) + 3 * 86400.0), *rest]))
    crew = Crew(store, "bag-0", describe_this_machine(), own=True)
    assert crew.carry_out() == ""
    assert BagStore(store.engine).get(row.id).state == "done"
