"""Large objects: none is in memory more often than it must be, and what is refused says why."""

import os
import tracemalloc

import numpy as np
import pytest

import vgrads
from tests.portal.serving import serve_this_machine
from vgrads.agent.functions.packing import pack, unpack
from vgrads.agent.functions.pickling import dump
from vgrads.executor.encoding import outcome
from vgrads.kernel.errors import InputError


@pytest.mark.parametrize("size", [1 << 20, 20 << 20])
def test_a_value_without_buffers_is_copied_once(size):
    value = {"a": os.urandom(size), "b": list(range(100))}
    parts = unpack(pack(dump(value)))
    tracemalloc.start()
    try:
        good, result = outcome(parts, 0, "")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert good and result == value
    assert peak < 1.1 * size + (1 << 18)


@pytest.mark.more
def test_an_argument_that_a_service_refuses_fails_its_call_alone(tmp_path, home, monkeypatch):
    monkeypatch.setenv("VGRADS_MAX_UPLOAD_MIB", "30")
    served = serve_this_machine(tmp_path / "service")
    try:
        with vgrads.Executor(sites=served.url) as executor:
            accepted = executor.submit(np.sum, np.ones(20 << 20, dtype="u1"))
            refused = executor.submit(np.sum, np.ones(100 << 20, dtype="u1"))
            with pytest.raises(InputError, match=r"100 MiB.*at most 31457280.*max_upload_mib"):
                refused.result(60)
            assert accepted.result(60) == 20 << 20
    finally:
        served.leave()
