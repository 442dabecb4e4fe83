"""All runs of a user together list their jobs at a site twice in a poll interval at most."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.drivers.look_limit import BURST, LookLimit


def set_back(file, seconds):
    """As if the last look was longer ago."""
    at_s, tokens = file.read_text().split()
    file.write_text(f"{float(at_s) - seconds} {tokens}")


@given(gaps=st.lists(st.floats(0.0, 40.0), min_size=1, max_size=60))
def test_looks_never_exceed_the_rate(tmp_path_factory, gaps):
    """Whichever of three runs looks, and whenever."""
    file = tmp_path_factory.mktemp("limit") / "queues" / "site.looks"
    runs = [LookLimit(file, every_s=10.0) for _ in range(3)]
    looks, passed_s = 0, 0.0
    for n, gap_s in enumerate(gaps):
        if file.exists():
            set_back(file, gap_s)
            passed_s += gap_s
        looks += runs[n % 3].permits()
    assert looks <= BURST + BURST * (passed_s + 5.0) / 10.0
    assert looks >= 1


def test_one_run_at_its_own_interval_is_never_limited(tmp_path):
    limit = LookLimit(tmp_path / "queues" / "site.looks", every_s=10.0)
    for _ in range(20):
        assert limit.permits()
        set_back(tmp_path / "queues" / "site.looks", 9.0)


@pytest.mark.parametrize("body", ["", "soon", "1 2 3", "later 0"])
def test_a_damaged_file_and_a_clock_that_was_set_back_limit_nothing(tmp_path, body):
    (tmp_path / "site.looks").write_text(body.replace("later", str(time.time() + 3600)))
    limit = LookLimit(tmp_path / "site.looks", every_s=1000.0)
    assert [limit.permits() for _ in range(3)] == [True, True, False]


def test_a_folder_that_cannot_be_written_limits_nothing(tmp_path):
    (tmp_path / "queues").write_text("a file")
    limit = LookLimit(tmp_path / "queues" / "site.looks", every_s=1000.0)
    assert all(limit.permits() for _ in range(5))
    assert (tmp_path / "queues").read_text() == "a file"
