"""Processes that learn and plan beside the service, and their end."""

import os
import signal
import struct
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.waiting import until
from vgrads.kernel.process_pool import end_pool
from vgrads.portal.jobs import forkserver


def write_a_part_of_the_result(path):
    """Begin to write a long result, say so, and never go on."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    writer = frame.f_locals["result_queue"]._writer.fileno()
    os.write(writer, struct.pack("!i", 1 << 20) + b"the beginning")
    Path(path).touch()
    signal.pause()


@pytest.mark.timeout(60)
def test_a_pool_ends_although_a_process_was_writing_its_result(tmp_path):
    """A service that was stopped while a forecast was learned never ended: the rest of the result
    was awaited."""
    pool = ProcessPoolExecutor(1, mp_context=forkserver.processes)
    pool.submit(write_a_part_of_the_result, str(tmp_path / "begun"))
    until((tmp_path / "begun").exists)
    end_pool(pool)
    assert not pool._processes
