"""Pools of processes: an interrupt ends their work at once."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from vgrads.kernel.process_pool import process_pool

PROGRAM = """
import os, signal, sys, threading
from vgrads.kernel.process_pool import process_pool

def work(_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as compiled loops, which do not look at it
    os.write(1, b"begun\\n")
    threading.Event().wait(300)

try:
    with process_pool(2) as pool:
        list(pool.map(work, range(9)))
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_does_not_wait_for_the_work():
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout.readline() == b"begun\n"
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    with pytest.raises(ProcessLookupError):  # nor does one of its processes go on
        os.killpg(process.pid, 0)


def test_work_that_is_done_is_returned():
    with process_pool(2) as pool:
        assert list(pool.map(abs, [-1, 2, -3])) == [1, 2, 3]


def test_an_error_of_the_work_is_raised():
    with pytest.raises(ZeroDivisionError), process_pool(1) as pool:
        list(pool.map(divmod, [1], [0]))
