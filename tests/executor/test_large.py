"""Large objects: none is in memory more often than it must be, and what is refused says why."""

import os
import tracemalloc
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vgrads
from tests.examples import examples
from tests.portal.serving import serve_this_machine
from vgrads.agent.functions.packing import pack, unpack
from vgrads.agent.functions.pickling import dump, load
from vgrads.agent.functions.runner import CallRunner
from vgrads.executor.encoding import CallEncoder, dump_arguments, outcome
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


@pytest.mark.parametrize(
    ("size", "count"), [(20_000, 8), (48 << 10, 3), ((48 << 10) + 1, 3), (100_000, 5), (1, 6000)]
)
def test_a_call_of_many_results_gets_all_of_them(executor, size, count):
    earlier = [executor.submit(bytes, size) for _ in range(count)]
    assert executor.submit(add_sizes, *earlier).result(60) == size * count


@given(sizes=st.lists(st.integers(0, 120_000), max_size=8), whole=st.integers(0, 120_000))
@settings(max_examples=examples(20), deadline=None)
def test_a_call_is_a_message_that_an_interpreter_takes_and_reads(sizes, whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    encoder = CallEncoder(PartFolder(folder))
    arguments, futures = dump_arguments((([Future() for _ in sizes], bytes(whole)), {}))
    command = encoder.command(join_sizes, arguments, [dump(bytes(size)) for size in sizes])
    _, text, digests = command.split("\t")
    assert len(text) < 100 << 10
    assert len(futures) == len(sizes)
    assert {name for name in digests.split(",") if name} == {path.name for path in folder.iterdir()}
    code, parts = CallRunner(str(folder)).result_of(text)
    assert (code, load(parts)) == (0, [*sizes, whole])


class PartFolder:
    """Files of parts by digest, as those of a bag."""

    def __init__(self, folder):
        self._folder = folder

    def put(self, digest, parts):
        (self._folder / digest).write_bytes(pack(parts))


def add_sizes(*values):
    return sum(map(len, values))


def join_sizes(values, last):
    return [*map(len, values), len(last)]
